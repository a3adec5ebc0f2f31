"""Operators of element types, ranks, bounds and symbolic sizes that exporters seldom write, which the standard allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ValueInfoProto, helper, numpy_helper
from treadle.compiler.ir.evaluate import evaluate
from treadle.compiler.onnx.importer import from_onnx
from treadle.tools.dev.fuzz.random_onnx.judges import by_onnxruntime, by_reference, type_of
from treadle.tools.dev.fuzz.random_onnx.walk import make_model


def model_of(op: str, *inputs: np.ndarray, opset: int = 18, **attributes: Any) -> Any:
    names = [f"x{i}" for i in range(len(inputs))]
    infos = [helper.make_value_info(name, type_of(array)) for name, array in zip(names, inputs, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    result = ValueInfoProto(name="y")
    return make_model(helper.make_graph([node], "g", infos, [result]), opset)


def result_of(op: str, *inputs: np.ndarray, opset: int = 18, **attributes: Any) -> np.ndarray:
    return evaluate(from_onnx(model_of(op, *inputs, opset=opset, **attributes)), "main", *inputs)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_sign_of_numbers_without_one(dtype: str) -> None:
    np.testing.assert_array_equal(result_of("Sign", np.array([0, 1, 200], dtype)), np.array([0, 1, 1], dtype))


@pytest.mark.parametrize("opset", [12, 26])
def test_celu_of_a_single_number(opset: int) -> None:
    assert result_of("Celu", np.float32(-1.5), opset=opset, alpha=2.0).shape == ()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_shrink_of_integers_compares_with_the_number_as_it_is(dtype: str) -> None:
    x = np.array([0, 1, 2, 5], dtype)
    got = result_of("Shrink", x, lambd=1.25, bias=0.25)
    model = model_of("Shrink", x, lambd=1.25, bias=0.25)
    for judge in (by_onnxruntime, by_reference):
        np.testing.assert_array_equal(got, judge(model, {"x0": x})[0])


def test_mean_variance_normalization_of_float16() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float16)
    got = result_of("MeanVarianceNormalization", x)
    expected = result_of("MeanVarianceNormalization", x.astype(np.float32))
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("size", [1, 2, 4, "n"])
@pytest.mark.parametrize("start", [-5, -(2**62)])
def test_a_backward_slice_that_starts_before_all_elements_has_the_first(size: int | str, start: int) -> None:
    """The standard lets a start that is too low be 0; in Python such a slice is empty."""
    x = np.arange(4 if size == "n" else size)
    settings = [np.array([number]) for number in (start, -(2**62), 0, -1)]
    model = model_of("Slice", x, *settings)
    model.graph.initializer.extend(numpy_helper.from_array(each, f"x{i}") for i, each in enumerate(settings, 1))
    del model.graph.input[1:]
    model.graph.input[0].type.CopyFrom(type_of(x, [size]))
    np.testing.assert_array_equal(evaluate(from_onnx(model), "main", x), by_onnxruntime(model, {"x0": x})[0])


def test_sizes_that_only_a_run_knows_are_the_same_where_tensors_are_joined() -> None:
    """Tensors of as many columns as there are elements that are not 0."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (int64[?, ?] y) {
        a = NonZero (x)
        z = Neg (x)
        b = NonZero (z)
        both = SequenceConstruct (a, b)
        y = ConcatFromSequence <axis = 0> (both)
    }"""
    x = np.float32([0, 1, 0, 2])
    np.testing.assert_array_equal(evaluate(from_onnx(onnx.parser.parse_model(text)), "main", x), [[1, 3], [1, 3]])


@pytest.mark.parametrize("op", ["InstanceNormalization", "BatchNormalization"])
def test_a_symbolic_count_of_channels_is_checked_when_the_program_runs(op: str) -> None:
    rng = np.random.default_rng(0)
    x, count = rng.normal(size=(2, 3, 4)).astype(np.float32), {"InstanceNormalization": 2, "BatchNormalization": 4}[op]
    parameters = [rng.uniform(1, 2, 3).astype(np.float32) for _ in range(count)]
    model = model_of(op, x, *parameters)
    expected = by_onnxruntime(model, {f"x{i}": each for i, each in enumerate([x, *parameters])})[0]
    model.graph.input[0].type.CopyFrom(type_of(x, ["n", "channels", 4]))
    np.testing.assert_allclose(evaluate(from_onnx(model), "main", x, *parameters), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_grid_sample_of_an_image_whose_type_is_not_the_grids(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, grid = rng.normal(size=(1, 2, 4, 5)).astype(dtype), rng.uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    got = result_of("GridSample", x, grid, opset=20)
    assert got.dtype == dtype
    expected = result_of("GridSample", x.astype(np.float32), grid, opset=20)
    np.testing.assert_allclose(got, expected, rtol=1e-2 if dtype == "float16" else 1e-5, atol=2e-3)
