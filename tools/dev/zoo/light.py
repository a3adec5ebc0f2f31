"""The nine classic image networks of the onnx package's test data, with weights that say something.

In the package every weight is 0.02 (a ConstantOfShape node with a stored shape), so that all outputs are equal. Here each
becomes a seeded initializer, scaled by the role that its consumer gives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

LIGHT_NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

# The inputs of batch normalisation, after x; densenet and inception apply scale and bias by a Mul and an Add of their own.
_NORMALISATION = {1: "scale", 2: "bias", 3: "bias", 4: "variance"}


def light_path(name: str) -> Path:
    """The package's own file; its expected output for arange(n) / n lies beside it as light_NAME_output_0.pb."""
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def light(name: str, *, seed: int = 0, batch: int | str = 1) -> onnx.ModelProto:
    """A network of `LIGHT_NETWORKS` with seeded weights; a string makes the batch symbolic."""
    model = onnx.load(light_path(name))
    graph = model.graph
    rng = np.random.default_rng(seed)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    generated = {
        node.output[0]: tuple(int(dim) for dim in stored[node.input[0]])
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    weights = dict(generated) | {key: array.shape for key, array in stored.items() if array.dtype == np.float32}
    roles = _roles(graph)
    fresh = {key: _draw(rng, shape, roles.get(key, "bias")) for key, shape in weights.items()}
    reshapes = {node.input[1] for node in graph.node if node.op_type == "Reshape" and node.input[0] not in weights}
    shapes = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    integers = {key: array for key, array in stored.items() if key not in fresh and key not in shapes}
    for key in reshapes:
        integers[key] = np.concatenate([[0], integers[key][1:]]).astype(np.int64)  # 0: the input's batch

    kept = [node for node in graph.node if node.output[0] not in generated]
    inputs = [info for info in graph.input if info.name not in stored]
    for info in [*inputs, *graph.output]:
        dim = info.type.tensor_type.shape.dim[0]
        dim.Clear()
        if isinstance(batch, str):
            dim.dim_param = batch
        else:
            dim.dim_value = batch
    initializers = [numpy_helper.from_array(array, key) for key, array in (integers | fresh).items()]
    remade = onnx.helper.make_graph(kept, graph.name, inputs, graph.output, initializers)
    return onnx.helper.make_model(remade, ir_version=8, opset_imports=list(model.opset_import))


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """The role of each weight, judged by the node that reads it."""

    def uses() -> Iterator[tuple[str, str]]:
        behind = {node.input[0]: node.output[0] for node in graph.node if node.op_type in ("Unsqueeze", "Reshape")}
        readers = {
            (value, node.op_type): position
            for node in graph.node
            if node.op_type in ("Conv", "Gemm", "BatchNormalization", "Mul", "Add")
            for position, value in enumerate(node.input)
            if position
        }
        names = {value for value, _ in readers}
        source = {result: value for value, result in behind.items() if result in names}
        for (value, op_type), position in readers.items():
            if op_type == "BatchNormalization":
                role = _NORMALISATION[position]
            else:
                role = {"Mul": "scale", "Add": "bias"}.get(op_type, "kernel" if position == 1 else "bias")
            yield source.get(value, value), role

    return dict(uses())


def _draw(rng: np.random.Generator, shape: tuple[int, ...], role: str) -> np.ndarray:
    if role == "kernel":
        fan_in = math.prod(shape[1:])
        return (rng.standard_normal(shape, np.float32) * math.sqrt(2 / fan_in)).astype(np.float32)
    if role == "scale":
        return rng.uniform(0.5, 1, shape).astype(np.float32)  # below 1: sums over many residual blocks stay bounded
    if role == "variance":
        return rng.uniform(1, 2, shape).astype(np.float32)
    return (rng.standard_normal(shape, np.float32) * 0.1).astype(np.float32)
