"""`relay.frontend`: models of other tools. ONNX is read by Treadle's own frontend; other tools export to ONNX themselves."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...formats.messages.errors import UnsupportedNameError
from ..runtime.ndarray import array
from .module import IRModule, of_ir

__all__ = ["from_onnx"]


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[int | str]] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Any = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, dict[str, Any]]:
    """The module of an ONNX model (a path, its bytes, or an onnx.ModelProto), and its weights.

    `shape` replaces shapes of inputs, of an onnx.ModelProto also by those of another rank; a name or `Any()` in it is a dimension
    that is known at run time. With `freeze_params` the weights are constants of the module and the dict is empty, else they are
    parameters of main, after the inputs. Element types and the opset are the model's own. A folder as
    `export_node_renamed_model_path` gets the model, a name on each node, `MatMul_0`. Raises what `treadle.compile` raises for a
    model.
    """
    from ...compiler.driver import unbind_weights
    from ...compiler.named_weights import Weights
    from ...compiler.onnx.importer import from_onnx as read

    if export_node_renamed_model_path:
        _export_named(model, export_node_renamed_model_path)
    weights = None if freeze_params else Weights()
    found = read(of_ranks(model, shape), shapes=shapes_of(shape), weights=weights)
    params: dict[str, Any] = {}
    if weights is not None:
        found, arrays = unbind_weights(found, "main")
        params = {name: array(value) for name, value in arrays.items()}
    return of_ir(found), params


def _export_named(model: Any, folder: str) -> None:
    """Writes the model, each node of its graph that has no name called by its operator and a number."""
    import onnx

    named = onnx.ModelProto()
    named.CopyFrom(model if isinstance(model, onnx.ModelProto) else _read(model))
    counts: Counter[str] = Counter()
    for node in named.graph.node:
        node.name = node.name or f"{node.op_type}_{counts[node.op_type]}"
        counts[node.op_type] += 1
    os.makedirs(folder, exist_ok=True)
    onnx.save(named, os.path.join(folder, f"tvm_exported_model_{time.strftime('%Y-%m-%d_%H-%M-%S')}.onnx"))


def _read(model: Any) -> Any:
    import onnx

    return onnx.load_from_string(bytes(model)) if isinstance(model, (bytes, bytearray)) else onnx.load(model)


def of_ranks(model: Any, shapes: Mapping[str, Sequence[Any]] | None) -> Any:
    """The model without the shapes of those inputs whose rank is to be another one."""
    if not hasattr(model, "graph"):
        return model
    ranks = {name: len(each) for name, each in (shapes or {}).items()}

    def differs(info: Any) -> bool:
        kind = info.type.tensor_type
        return info.name in ranks and kind.HasField("shape") and len(kind.shape.dim) != ranks[info.name]

    if not any(map(differs, model.graph.input)):
        return model
    made = type(model)()
    made.CopyFrom(model)
    for info in filter(differs, made.graph.input):
        info.type.tensor_type.ClearField("shape")
    return made


def shapes_of(shapes: Mapping[str, Sequence[Any]] | None) -> dict[str, list[int | str]] | None:
    """Shapes of inputs as the frontend takes them."""
    if not shapes:
        return None
    return {name: [_dim(dim) for dim in dims] for name, dims in shapes.items()}


def _dim(dim: Any) -> int | str:
    """A size; of what is not known, a name: of `Any()`, "", one that is made for it, of a symbolic dimension its own."""
    if isinstance(dim, int):
        return int(dim)
    return "" if str(dim) == "?" else str(dim)


def _other(tool: str, how: str) -> Callable[..., Any]:
    def read(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedNameError(
            f"relay.frontend.from_{tool}: models are read as ONNX; export this one with {how}, and use from_onnx"
        )

    read.__name__ = read.__qualname__ = f"from_{tool}"
    read.__doc__ = f"Raises UnsupportedNameError, which says how to export to ONNX: {how}."
    return read


# what TVM reads → how its models are exported to ONNX
_TOOLS = {
    "caffe": "caffe2onnx",
    "caffe2": "caffe2.python.onnx.frontend",
    "coreml": "onnxmltools.convert_coreml",
    "darknet": "a darknet-to-ONNX converter",
    "keras": "tf2onnx.convert.from_keras(model)",
    "mxnet": "mxnet.onnx.export_model",
    "oneflow": "flow.onnx.export",
    "paddle": "paddle2onnx",
    "pytorch": "torch.onnx.export(model, inputs, path)",
    "tensorflow": "python -m tf2onnx.convert --saved-model",
    "tflite": "python -m tf2onnx.convert --tflite",
}
globals().update({f"from_{tool}": _other(tool, how) for tool, how in _TOOLS.items()})
