"""Quantised models, compiled: products of integers are exact, whatever their zero points are."""

import numpy as np
import onnx
import pytest
import treadle
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)


def whole_range(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def model_of(nodes, inputs, constants, outputs):
    """A model of inputs (element type and shape by name), constants (arrays by name), and outputs (element type by name)."""
    elements = {
        name: (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape) for name, (dtype, shape) in inputs.items()
    }
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info(name, *type_) for name, type_ in elements.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(model: onnx.ModelProto):
    return treadle.VirtualMachine(treadle.compile(model, progress=False))["main"]


@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
@pytest.mark.parametrize("depth", [36, 37])
def test_products_of_integers_with_any_zero_points(a_type, b_type, depth):
    b = whole_range(b_type, depth, 50)
    for a_zero in (0, 3):
        for b_zero in (0, 7, 128 if b_type is np.uint8 else -1, np.arange(50)):
            zeros = {"a_zero": np.asarray(a_zero, a_type), "b_zero": np.asarray(b_zero, b_type)}
            node = helper.make_node("MatMulInteger", ["a", "b", *zeros], ["y"])
            run = compiled(model_of([node], {"a": (a_type, ["n", depth])}, {"b": b, **zeros}, {"y": TensorProto.INT32}))
            for rows in (1, 9):
                a = whole_range(a_type, rows, depth)
                wanted = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
                np.testing.assert_array_equal(run(a).numpy(), wanted)


@pytest.mark.parametrize("a_shape", [(5, 300), (2, 3, 5, 300), (300,)])
def test_products_of_computed_integers(a_shape):
    node = helper.make_node("MatMulInteger", ["a", "b", "a_zero", "b_zero"], ["y"])
    zeros = {"a_zero": np.uint8(130), "b_zero": np.int8(-3)}
    inputs = {"a": (np.uint8, a_shape), "b": (np.int8, (300, 4))}
    run = compiled(model_of([node], inputs, zeros, {"y": TensorProto.INT32}))
    a, b = whole_range(np.uint8, *a_shape), whole_range(np.int8, 300, 4)
    np.testing.assert_array_equal(run(a, b).numpy(), (a.astype(np.int64) - 130) @ (b.astype(np.int64) + 3))
