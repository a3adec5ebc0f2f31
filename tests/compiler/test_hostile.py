"""Inputs that nobody meant: operators with any attributes, texts with any damage. They work, or fail by name, and soon."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.compiler.ir.evaluate import apply_operator
from treadle.compiler.ir.text import parse_module
from treadle.compiler.operators import TABLE, Kind
from treadle.compiler.targets.cpu import operators  # noqa: F401  (they join the table by import)
from treadle.formats import dims
from treadle.formats.dtypes import DType
from treadle.formats.messages.errors import FormatError, IndexOutOfRangeError, InferenceError, ShapeError
from treadle.formats.strings import to_numbers
from treadle.formats.types import UNKNOWN, TensorType

from .ir.test_text import PROGRAM

many = settings(max_examples=1000, deadline=2000, suppress_health_check=list(HealthCheck), derandomize=True)

SMALL = st.integers(-3, 5)
INTEGERS = SMALL | st.sampled_from([1 << 31, 1 << 47, (1 << 63) - 1, -(1 << 63), 1 << 62])
SYMBOLIC = st.sampled_from(
    [dims.parse(text) for text in ("n", "2*n + 1", "n - 3", "n // 2", "max(n, m)", "n*m", "n % 3")]
)
DIMS = INTEGERS | SYMBOLIC
SHAPES = st.lists(st.integers(0, 4) | SYMBOLIC | st.just(UNKNOWN), max_size=5).map(tuple)
TENSORS = st.builds(TensorType, st.sampled_from(list(DType)), SHAPES)
STATIC = st.builds(TensorType, st.sampled_from(list(DType)), st.lists(st.integers(0, 4), max_size=5).map(tuple))

VALUES: dict[Kind, st.SearchStrategy] = {
    Kind.BOOL: st.booleans(),
    Kind.INT: INTEGERS,
    Kind.FLOAT: st.floats() | INTEGERS,
    Kind.NUMBER: st.floats() | INTEGERS | st.booleans(),
    Kind.STRING: st.sampled_from(["none", "tanh", "constant", "edge", "reflect", ""]),
    Kind.DTYPE: st.sampled_from(list(DType)),
    Kind.DIM: DIMS,
    Kind.INTS: st.lists(INTEGERS, max_size=6).map(tuple),
    Kind.DIMS: st.lists(DIMS, max_size=6).map(tuple),
}
ANYTHING = st.one_of(*VALUES.values(), st.none(), st.just(((),)))


def attributes(draw: Any, name: str, sane: bool) -> tuple:
    """Attributes of an operator, of the right kinds, or of any."""
    found = {}
    for key, attribute in TABLE[name].attributes.items():
        if draw(st.booleans()) or sane:
            odd = not sane and draw(st.integers(0, 9)) == 0
            found[key] = draw(ANYTHING if odd else VALUES[attribute.kind])
    return tuple(sorted(found.items()))


@many
@given(st.data(), st.sampled_from(sorted(TABLE)))
def test_inference_gives_types_or_an_inference_error(data: st.DataObject, name: str) -> None:
    inputs = data.draw(st.lists(TENSORS, min_size=len(TABLE[name].inputs), max_size=len(TABLE[name].inputs)))
    try:
        results = TABLE[name].result_types(inputs, attributes(data.draw, name, sane=False))
    except InferenceError:
        return
    assert all(isinstance(result, TensorType) for result in results)


def small(value: object) -> bool:
    """Attributes that ask for no large work."""
    if isinstance(value, tuple):
        return all(map(small, value))
    return not isinstance(value, int) or abs(value) < 10


def _ones(type_: TensorType) -> np.ndarray:
    """Texts among them are "1": what another test has left as the first text may be no number."""
    if type_.dtype is DType.string:
        return to_numbers(np.full(type_.shape, "1", object))
    return np.ones(type_.shape, type_.dtype.numpy)  # type: ignore[arg-type]


@many
@given(st.data(), st.sampled_from(sorted(TABLE)))
def test_what_inference_accepts_can_be_evaluated(data: st.DataObject, name: str) -> None:
    one_type = data.draw(STATIC)
    count = len(TABLE[name].inputs)
    inputs = data.draw(st.lists(st.just(one_type) | STATIC, min_size=count, max_size=count))
    given_attributes = attributes(data.draw, name, sane=True)
    if not all(small(value) for _, value in given_attributes):
        return
    arrays = [_ones(type_) for type_ in inputs]
    with contextlib.suppress(IndexOutOfRangeError, ShapeError):
        apply_operator(name, arrays, given_attributes, {"n": 2, "m": 3})


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype.is_integer])
@pytest.mark.parametrize("bounds", [{}, {"min": 0.0}, {"max": 1.0}, {"min": -1e30, "max": 1e30}])
def test_clipped_integers_keep_their_type(dtype: DType, bounds: dict) -> None:
    (clipped,) = apply_operator("clip", [np.ones((), dtype.numpy)], tuple(bounds.items()), {})
    assert clipped.dtype == dtype.numpy
    assert clipped == 1


@pytest.mark.parametrize("sizes", [(0, 0), (0, 5), (5, 0), (20, 0)])
@pytest.mark.parametrize(
    ("name", "window", "dtype", "attributes"),
    [
        ("pack_integer_matrix", (), DType.int8, ()),
        ("pack_integer_weights", (3, 3), DType.int8, ()),
        ("pack_winograd_weights", (3, 3), DType.float32, (("outputs", 4),)),
    ],
)
def test_what_has_no_elements_is_packed(
    name: str, window: tuple, dtype: DType, attributes: tuple, sizes: tuple
) -> None:
    shape = (*sizes, *window)
    (type_,) = TABLE[name].result_types([TensorType(dtype, shape)], attributes)
    (packed,) = apply_operator(name, [np.ones(shape, dtype.numpy)], attributes, {})
    assert packed.shape == type_.shape


@many
@given(st.integers(0, len(PROGRAM)), st.integers(0, 12), st.text('{}()[]:=<>,."@$#% \nabfnx019', max_size=6))
def test_damaged_text_parses_or_is_refused_by_name(place: int, cut: int, inserted: str) -> None:
    text = PROGRAM.replace("closure: fn", '"closure": fn').replace("closure)", '"closure")')
    with contextlib.suppress(FormatError):
        parse_module(text[:place] + inserted + text[place + cut :])
