"""Rows quantised as they come, and products with int8 matrices: compiled, they have the bits of the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from treadle.compiler.targets.cpu.operators.int8 import FACTS
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, definition_of, evaluate, run_kernel, without

COLUMNS = 37


TARGETS = [TARGET, *NARROW, without(NARROW[0], "vnni")]
ANY_TARGET = pytest.mark.parametrize("target", TARGETS, ids=lambda each: f"{each.vector_bytes} {each.dot}")


def rows_of(x, target=TARGET, parts=2, symbolic=False):
    shape = ("n", *x.shape[1:]) if symbolic else x.shape
    definition = definition_of("quantize_rows", [tensor("float32", shape)])
    _, (got,) = run_kernel(definition, [x], {"n": len(x)} if symbolic else {}, parts, target)
    return got


def product_of(rows, panels, columns, target=TARGET, parts=2, symbolic=False, added=None):
    shape = ("n", *rows.shape[1:]) if symbolic else rows.shape
    operands = [rows, panels, *([] if added is None else [added])]
    build = Builder(tensor("uint8", shape), *(tensor(each.dtype.name, each.shape) for each in operands[1:]))
    value = build("matmul_int8_packed", 0, 1, columns=columns)
    if added is not None:
        value = build("gelu", build("add", value, 2))
    definition = build.definition(value)
    _, (got,) = run_kernel(definition, operands, {"n": len(rows)} if symbolic else {}, parts, target)
    return got


FLOATS = st.floats(width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e-40, 3e38, float("inf")])


@settings(max_examples=40, deadline=None)
@given(x=arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=FLOATS))
def test_rows_have_the_bits_of_their_reference(x):
    got = rows_of(x, symbolic=True, parts=1)
    assert got.tobytes() == evaluate("quantize_rows", x).tobytes()


@ANY_TARGET
def test_products_have_the_bits_of_their_reference(target):
    generator = np.random.default_rng(0)
    for shape, depth in (((1,), 5), ((4,), 130), ((9,), 600), ((2, 13), 64), ((33,), 2112)):
        x = generator.standard_normal((*shape, depth), np.float32) + np.float32(0.3)
        matrix = generator.standard_normal((depth, COLUMNS), np.float32)
        rows, panels = evaluate("quantize_rows", x), evaluate("pack_int8_matrix", matrix)
        assert rows_of(x, target).tobytes() == rows.tobytes()
        wanted = evaluate("matmul_int8_packed", rows, panels, columns=COLUMNS)
        assert product_of(rows, panels, COLUMNS, target).tobytes() == wanted.tobytes()
        assert np.abs(wanted - x @ matrix).max() < 0.02 * np.abs(x @ matrix).max()


def test_a_row_is_the_same_in_any_batch_and_on_any_number_of_threads():
    generator = np.random.default_rng(1)
    x, matrix = generator.standard_normal((21, 600), np.float32), generator.standard_normal((600, COLUMNS), np.float32)
    panels, bias = evaluate("pack_int8_matrix", matrix), generator.standard_normal(COLUMNS).astype("f")
    rows = rows_of(x)
    whole = product_of(rows, panels, COLUMNS, symbolic=True, added=bias)
    for count in (1, 2, 5, 21):
        part = product_of(rows[:count], panels, COLUMNS, parts=3, symbolic=True, added=bias)
        assert part.tobytes() == whole[:count].tobytes()


def test_a_row_ends_with_its_scale_and_its_zero_point():
    row = evaluate("quantize_rows", np.float32([[-1, 0, 4.1]]))[0]
    assert len(row) == 4 + 4 * FACTS
    scale, zero = row[4:8].view(np.float32), row[8:].view(np.int32)
    np.testing.assert_allclose(scale, 5.1 / 255, rtol=1e-6)
    assert (zero, *row[:4]) == (50, 0, 50, 255, 50)


def test_rows_that_are_not_finite_are_nan_and_no_others():
    x = np.ones((3, 20), np.float32)
    x[0, 3], x[1, 7] = np.inf, np.nan
    panels = evaluate("pack_int8_matrix", np.ones((20, 5), np.float32))
    got = product_of(rows_of(x), panels, 5)
    assert np.isnan(got[:2]).all()
    np.testing.assert_allclose(got[2], 20, rtol=1e-6)


WINDOWS = [
    ((1, 3, 17, 19), (20, 3, 7, 7), {"strides": (2, 2)}, (3, 3, 3, 3)),
    ((2, 40, 9, 13), (33, 40, 3, 3), {"dilations": (2, 1)}, (1, 0, 2, 1)),
    ((2, 27, 7, 9), (16, 27, 1, 1), {"strides": (2, 2)}, None),
    ((1, 20, 31), (17, 20, 5), {"strides": (2,)}, (2, 2)),
    ((2, 64, 9, 8), (96, 32, 3, 3), {"groups": 2}, (1, 1, 1, 1)),
]


def kernel_result(operator, operands, sizes=None, target=TARGET, symbolic=(), **attributes):
    """By the kernel; axes of the first operand from the third on, other than the last, may be symbolic."""
    types = [tensor(each.dtype.name, each.shape) for each in operands]
    if symbolic:
        types[0] = tensor(types[0].dtype, (*types[0].shape[:2], *symbolic, 16))
    definition = definition_of(operator, types, **attributes)
    _, (got,) = run_kernel(definition, operands, sizes or {}, 2, target)
    return got


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("shape", "weights", "window", "pads"), WINDOWS, ids=str)
def test_convolutions_have_the_bits_of_their_reference(shape, weights, window, pads, symbolic):
    generator = np.random.default_rng(2)
    x = generator.standard_normal(shape, np.float32) - np.float32(0.2)
    weight, bias = generator.standard_normal(weights, np.float32), generator.standard_normal(weights[0]).astype("f")
    image = evaluate("pack_channels", x)
    image[:, -1, ..., (shape[1] - 1) % 16 + 1 :] = 0 if shape[1] % 16 == 0 else 1e9
    ranges = kernel_result("image_ranges", [image], channels=shape[1])
    assert ranges.tobytes() == evaluate("image_ranges", image, channels=shape[1]).tobytes()
    facts = kernel_result("image_facts", [ranges])
    assert facts.tobytes() == evaluate("image_facts", ranges).tobytes()
    names = tuple(f"d{axis}" for axis in range(len(shape) - 2)) if symbolic else ()
    sizes = dict(zip(names, shape[2:], strict=True)) if symbolic else {}
    codes = kernel_result("quantize_image", [image, facts], sizes, symbolic=names, pads=pads)
    assert codes.tobytes() == evaluate("quantize_image", image, facts, pads=pads).tobytes()
    operands = [codes, evaluate("pack_int8_weights", weight), facts, evaluate("pack_int8_columns", weight, bias)]
    sizes = dict(zip(names, codes.shape[2:-1], strict=True)) if symbolic else {}
    wanted = evaluate("conv_int8_blocked", *operands, **window)
    for target in TARGETS if not symbolic else (TARGET,):
        got = kernel_result("conv_int8_blocked", operands, sizes, target, names, **window)
        assert got.tobytes() == wanted.tobytes()
    exact = evaluate("conv", x, weight, bias, pads=pads, **window)
    error = np.abs(evaluate("unpack_channels", wanted, channels=weights[0]) - exact).max()
    assert error < 0.02 * np.abs(exact).max()


def test_images_that_are_not_finite_have_no_scale():
    image = np.ones((2, 2, 3, 16), np.float32)
    image[1, 1, 2, 3] = np.inf
    facts = kernel_result("image_facts", [kernel_result("image_ranges", [image], channels=32)])
    assert np.isnan(facts).tolist() == [[False, False], [True, True]]
