"""Models that onnxruntime's quantisers wrote: each gives what onnxruntime makes of it, to a step of the quantised numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import treadle
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from treadle.tools.dev.fuzz.random_onnx.judges import exact_session

STEPS = 2 / 255  # of the range of the result, where one rounding may have gone the other way


def network() -> onnx.ModelProto:
    """Convolutions, an addition around one, pooling, and two layers of products, of any batch."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "w3": (8, 16), "b3": (16,), "w4": (16, 4)}
    weights = {name: (rng.normal(size=shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    same: dict[str, Any] = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "first", **same),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", **same),
        helper.make_node("Add", ["b", "c"], ["d"], "around"),
        helper.make_node("MaxPool", ["d"], ["e"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"], "mean"),
        helper.make_node("Flatten", ["f"], ["g"], "flat"),
        helper.make_node("Gemm", ["g", "w3", "b3"], ["h"], "third"),
        helper.make_node("Sigmoid", ["h"], ["i"], "sigmoid"),
        helper.make_node("MatMul", ["i", "w4"], ["y"], "last"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def images(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3, 8, 8)).astype(np.float32)


class Images(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self.batches: Iterator[np.ndarray] = iter([images(4, seed) for seed in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"x": batch}


def check(path: Path) -> None:
    for count in (1, 3):
        x = images(count)
        expected = exact_session(str(path)).run(None, {"x": x})[0]
        got = treadle.VirtualMachine(treadle.compile(path, progress=False))["main"](x).numpy()
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, atol=2 * STEPS * np.abs(expected).max())


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_static_quantisation(form: QuantFormat, activations: QuantType, per_channel: bool, tmp_path: Path) -> None:
    source, made = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(network(), source)
    ways = {"quant_format": form, "activation_type": activations, "weight_type": QuantType.QInt8}
    quantize_static(str(source), str(made), Images(), per_channel=per_channel, **ways)
    check(made)


@pytest.mark.parametrize("weights", [QuantType.QUInt8, QuantType.QInt8])
def test_dynamic_quantisation(weights: QuantType, tmp_path: Path) -> None:
    source, made = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(network(), source)
    quantize_dynamic(str(source), str(made), weight_type=weights)
    check(made)
