"""onnxruntime's own operators that ONNX has taken over since, and some that it has not, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
import treadle
from onnx import helper
from treadle.formats.messages.errors import ModelError, UnsupportedOperatorError

from .runtime_models import RUNTIME, check, compiled, floats, model_of


@pytest.mark.parametrize("k", [None, 0, 2, -1])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(k: int | None, upper: int) -> None:
    constants = {} if k is None else {"k": np.int64(k)}
    check("Trilu", {"x": floats(2, 5, 6)}, constants=constants, upper=upper)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_samples_on_a_grid(mode: str, padding_mode: str) -> None:
    grid = np.random.default_rng(0).uniform(-1.3, 1.3, (2, 3, 5, 2)).astype(np.float32)
    ways = {"mode": mode, "padding_mode": padding_mode, "align_corners": 1}
    check("GridSample", {"x": floats(2, 3, 6, 7), "grid": grid}, **ways)


def test_places_of_several_axes() -> None:
    check("GatherND", {"x": floats(4, 5, 6)}, constants={"places": np.int64([[0, 1], [3, -1], [2, 2]])})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_padding(mode: str) -> None:
    value = {"value": np.float32([0.5])} if mode == "constant" else {}
    check("Pad", {"x": floats(3, 4)}, constants={"pads": np.int64([1, 0, 2, 3]), **value}, mode=mode)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32])
@pytest.mark.parametrize("delta", [None, 2])
def test_ranges(kind: type, delta: int | None) -> None:
    """Of scalars known only at run time."""
    bounds = {"start": 3, "limit": 9} | ({} if delta is None else {"delta": delta})
    inputs = {name: np.asarray(bound, kind) for name, bound in bounds.items()}
    check("Range", inputs)


@pytest.mark.parametrize("axis", [0, 1, -1, 2])
def test_new_axes(axis: int) -> None:
    check("ExpandDims", {"x": floats(3, 4)}, constants={"axis": np.int32(axis)})


def test_elements_once_in_the_order_in_which_they_came() -> None:
    outputs = ("values", "places", "counts")
    values, _, _ = check("Unique", {"x": np.float32([3, 1, 3, 2, 1, 3])}, outputs)
    np.testing.assert_array_equal(values, [3, 1, 2])


def test_products_of_16_bits() -> None:
    a, b = (
        np.random.default_rng(i).integers(-900, 900, shape).astype(np.int16) for i, shape in enumerate([(5, 6), (6, 4)])
    )
    check("MatMulInteger16", {"a": a}, constants={"b": b})


@pytest.mark.parametrize("shape", [(4, 4), (1, 1), (2, 3, 5, 5)])
def test_inverse_matrices(shape: tuple[int, ...]) -> None:
    x = floats(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)
    (inverse,) = check("Inverse", {"x": x}, tolerance=1e-4)
    np.testing.assert_allclose(inverse @ x, np.broadcast_to(np.eye(shape[-1]), shape), atol=1e-4)


def test_a_singular_matrix_has_no_inverse() -> None:
    node = helper.make_node("Inverse", ["x"], ["y"], domain=RUNTIME)
    invert = compiled(model_of([node], {"x": floats(2, 3, 3)}, ["y"]))
    with pytest.raises(treadle.TreadleError, match=r"3 linear equations.*singular"):
        invert({"x": np.zeros((2, 3, 3), np.float32)})


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("ways", [{}, {"metric": "euclidean"}, {"metric": "sqeuclidean"}])
def test_distances_of_rows(kind: type, ways: dict[str, str]) -> None:
    check("CDist", {"a": floats(5, 9).astype(kind), "b": floats(7, 9, seed=1).astype(kind)}, **ways)


def test_a_metric_that_is_not_known_is_named() -> None:
    node = helper.make_node("CDist", ["a", "b"], ["y"], "the node", domain=RUNTIME, metric="cosine")
    with pytest.raises(ModelError, match=r"metric 'cosine' is none of euclidean, sqeuclidean.*the node"):
        treadle.compile(model_of([node], {"a": floats(2, 3), "b": floats(2, 3)}, ["y"]), progress=False)


# ---- weights of four bits ----


@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(("rows", "depth", "block"), [(8, 32, 16), (6, 48, 32), (3, 32, 64)])
def test_products_with_weights_as_bitsandbytes_has_them(quant_type: int, rows: int, depth: int, block: int) -> None:
    """Blocks go on from one row to the next."""
    source = np.random.default_rng(1)
    count = rows * depth
    constants = {
        "b": source.integers(0, 256, (count + 1) // 2).astype(np.uint8),
        "absmax": source.uniform(0.1, 2, -(-count // block)).astype(np.float32),
    }
    ways = {"K": depth, "N": rows, "block_size": block, "quant_type": quant_type}
    check("MatMulBnb4", {"a": floats(2, 5, depth)}, constants=constants, **ways)


def test_weights_that_are_too_few_are_told() -> None:
    ways = {"K": 32, "N": 2, "block_size": 16, "quant_type": 1}
    node = helper.make_node("MatMulBnb4", ["a", "b", "absmax"], ["y"], "the node", domain=RUNTIME, **ways)
    codes, absmax = np.zeros(32, np.uint8), np.ones(4, np.float32)
    for constants, text in (
        ({"b": codes[1:], "absmax": absmax}, "b must have 32 elements of uint8"),
        ({"b": codes, "absmax": absmax[1:]}, "absmax must have 4 elements"),
    ):
        with pytest.raises(ModelError, match=f"{text}.*the node"):
            treadle.compile(model_of([node], {"a": floats(3, 32)}, ["y"], constants), progress=False)
    node.attribute.append(helper.make_attribute("transB", 0))
    model = model_of([node], {"a": floats(3, 32)}, ["y"], {"b": codes, "absmax": absmax})
    with pytest.raises(UnsupportedOperatorError, match="transB = 0"):
        treadle.compile(model, progress=False)
