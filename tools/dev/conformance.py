"""The cases that ONNX keeps for tests of backends, in the installed package `onnx`: `make conformance` runs all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "real")

# Of ONNX's tests of its own reference (tests/python/backend_reference_test.py): bfloat16 has 8 bits; sums of a Fourier
# transform that are 0 but for rounding.
_TOLERANCES = {"test_celu_bfloat16_expanded": (1e-2, 1e-2)}
_TOLERANCES |= {
    f"test_dft{suffix}": (1e-3, 1e-6)
    for suffix in ("", "_axis", "_axis_opset19", "_inverse", "_inverse_opset19", "_opset19")
}


@dataclass(frozen=True)
class Case:
    """A model, and sets of inputs with the outputs that are due, as arrays, lists and None."""

    name: str  # with its kind: "node/test_abs"
    model: Any  # onnx.ModelProto, or the path of a file
    sets: Callable[[], list[tuple[list[Any], list[Any]]]]
    rtol: float
    atol: float

    def saved(self, folder: Path) -> Path:
        """The path of the model's file, which is written to the folder if there is none yet."""
        if isinstance(self.model, Path):
            return self.model
        path = folder / "model.onnx"
        path.write_bytes(self.model.SerializeToString())
        return path


@cache
def cases() -> dict[str, Case]:
    """All cases by name."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, in the making of expected results
        for kind in KINDS:
            for test in load_model_tests(kind=kind):
                case = _MAKERS.get(kind, _of_folder)(kind, test)
                found[case.name] = case
    return found


def _case(kind: str, test: Any, model: Any, sets: Callable[[], list[tuple[list[Any], list[Any]]]]) -> Case:
    rtol, atol = _TOLERANCES.get(test.name, (test.rtol, test.atol))
    return Case(f"{kind}/{test.name}", model, sets, rtol, atol)


def _of_node(kind: str, test: Any) -> Case:
    def sets() -> list[tuple[list[Any], list[Any]]]:
        return [(list(map(_value, inputs)), list(map(_value, outputs))) for inputs, outputs in test.data_sets]

    return _case(kind, test, test.model, sets)


def _value(value: Any) -> Any:
    """A value of a case that is made by Python code."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if value is None or isinstance(value, (list, tuple)):
        return value if value is None else list(map(_value, value))
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind == "U" else array


def _of_folder(kind: str, test: Any) -> Case:
    folder = Path(test.model_dir)

    def sets() -> list[tuple[list[Any], list[Any]]]:
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [info for info in graph.input if info.name not in weights]
        return [
            (
                [_read(each / f"input_{place}.pb", info.type) for place, info in enumerate(inputs)],
                [_read(each / f"output_{place}.pb", info.type) for place, info in enumerate(graph.output)],
            )
            for each in sorted(folder.glob("test_data_set_*"))
        ]

    return _case(kind, test, folder / "model.onnx", sets)


def _read(path: Path, type_: Any) -> Any:
    content = path.read_bytes()
    if type_.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if type_.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def _of_network(kind: str, test: Any) -> Case:
    """A network, of which the package has the model and what it gives for a ramp from 0 to 1."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    path = folder / Path(test.url).name

    def sets() -> list[tuple[list[Any], list[Any]]]:
        graph = onnx.load(path).graph
        weights = {tensor.name for tensor in graph.initializer}
        shapes = [
            [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            for info in graph.input
            if info.name not in weights
        ]
        ramps = [(np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)).astype(np.float32) for shape in shapes]
        return [(ramps, [onnx.numpy_helper.to_array(onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb")))])]

    return _case(kind, test, path, sets)


_MAKERS = {"node": _of_node, "real": _of_network}
