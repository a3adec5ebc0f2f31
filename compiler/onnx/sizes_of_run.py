"""Numbers known only at run time, where an operator wants sizes, bounds or axes.

Sizes become dimensions: the operator `extents` makes a tensor of no elements whose dimensions they are, so that all after it is
typed, planned and compiled as for any symbolic size. The rank of a result never depends on numbers: it follows from how many of
them there are, which is static, or one of few (`onnx_held.by_length`). An axis is looked at through a view, [before, along,
behind], in which the operator works on axis 1: one kernel serves every axis and rank, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.errors import ModelError
from .. import effort
from .values import GraphBuilder, Value

_NUMBER_UNITS = 10 * effort.NODE_UNITS  # to import what is done with one of several numbers


def is_known(*values: Value | None) -> bool:
    """Whether the elements of all these tensors, as far as they are given, are known at import."""
    return all(value is None or value.elements is not None for value in values)


def is_found(g: GraphBuilder, dim: Dim) -> bool:
    """Whether a run finds a size that inputs' shapes do not tell. Sizes that these name are taken for others than 0 and 1."""
    if not g.finds_sizes or g.input_names is None or g.tape is not None:
        return False
    return not g.input_names.issuperset(dims.variables(dim))


def whole_number(g: GraphBuilder, value: Value | Dim) -> Value:
    """An int64 scalar. Of a vector of unknown length a run checks that it is one number."""
    if not isinstance(value, Value):
        return g.from_dims(np.array(value, object))
    value = g.checked(value, (1,)) if value.rank == 1 and not value.type.is_static else value
    if value.type.shape != () and value.type.shape != (1,):
        raise ModelError(f"expected one number, got {value.type}")
    value = g.op("cast", value, dtype=DType.int64) if value.dtype is not DType.int64 else value
    return g.op("reshape", value, shape=()) if value.rank else value


def vector(g: GraphBuilder, *numbers: Value | Dim) -> Value:
    """An int64 vector of the numbers; elements that are known stay known."""
    parts = [g.op("reshape", whole_number(g, number), shape=(1,)) for number in numbers]
    return g.joined(parts)


def numbers_of(g: GraphBuilder, value: Value, what: str) -> list[Value]:
    """The elements of a vector of known length, as int64 scalars."""
    elements = g.known_elements(value, what)
    effort.spend(_NUMBER_UNITS * len(elements), g.origin)
    if None not in elements:
        return [whole_number(g, element) for element in elements if element is not None]
    flat = g.op("cast", value, dtype=DType.int64)
    flat = g.op("reshape", flat, shape=(len(elements),))
    return [
        g.op("take", flat, g.constant(place, DType.int64), axis=0) if element is None else whole_number(g, element)
        for place, element in enumerate(elements)
    ]


def numbered(g: GraphBuilder, count: Dim) -> Value:
    """0, 1, … as many as a size says, which is not negative."""
    return g.checked(g.op("arange", stop=count), (count,))


def shape_of(g: GraphBuilder, x: Value) -> Value:
    """The dimensions of x as an int64 tensor."""
    return g.from_dims(x.shape)


# ---- an axis ----


def counted_from_front(g: GraphBuilder, axis: Value, rank: int) -> Value:
    """Axes of which those below 0 count from the end."""
    zero, count = g.constant(0, DType.int64), g.constant(rank, DType.int64)
    return g.op("where", g.op("less", axis, zero), g.op("add", axis, count), axis)


class Axis:
    """An axis of a tensor of `shape` (an int64 vector, so that it may be computed), known only at run time."""

    def __init__(self, g: GraphBuilder, number: Value, shape: Value, rank: int) -> None:
        self.g, self.shape, self.rank = g, shape, rank
        self.length = g.op("take", shape, number, axis=0)  # fails where the number is not an axis
        self.number = counted_from_front(g, number, rank)
        self.places = g.constant(np.arange(rank), DType.int64)

    def sizes(self) -> tuple[Dim, ...]:
        """How many elements are before the axis, along it and after it."""
        g, one = self.g, self.g.constant(1, DType.int64)
        before = g.op("prod", g.op("where", g.op("less", self.places, self.number), self.shape, one))
        behind = g.op("prod", g.op("where", g.op("greater", self.places, self.number), self.shape, one))
        return g.sizes(vector(g, before, self.length, behind), "sizes")

    def seen(self, x: Value) -> Value:
        """x as [before, along, behind]."""
        return self.g.op("reshape", x, shape=self.sizes())

    def replaced(self, length: Value | Dim) -> Value:
        """The shape with another length along the axis."""
        g = self.g
        return g.op("where", g.op("equal", self.places, self.number), whole_number(g, length), self.shape)


def along_axis(g: GraphBuilder, x: Value, axis: Value, operate: Callable[[Value, int], Value]) -> Value:
    """`operate(x, axis)`, of the same shape, on an axis that may be known only at run time."""
    if axis.elements is not None or x.rank == 1:
        return operate(x, 0 if axis.elements is None else int(axis.elements.reshape(()).item()))
    number = whole_number(g, axis)
    return g.op("reshape", operate(Axis(g, number, shape_of(g, x), x.rank).seen(x), 1), shape=x.shape)


def resized_along(g: GraphBuilder, x: Value, axis: Value | int, operate: Callable[[Value, int], Value]) -> Value:
    """`operate(x, axis)`, which may have another length along the axis."""
    if isinstance(axis, int):
        return operate(x, axis)
    if axis.elements is not None or x.rank == 1:
        return operate(x, 0 if axis.elements is None else int(axis.elements.reshape(()).item()))
    at = Axis(g, whole_number(g, axis), shape_of(g, x), x.rank)
    made = operate(at.seen(x), 1)
    return g.op("reshape", made, shape=g.sizes(at.replaced(made.shape[1]), "sizes"))


# ---- several axes ----


def _marked(g: GraphBuilder, axes: Value, rank: int) -> Value:
    """1 for each axis that is among these, else 0. A run fails where one is not an axis."""
    none, count = g.constant(np.zeros(rank), DType.int64), len(g.known_elements(axes, "axes"))
    ones = g.constant(np.ones(count), DType.int64)
    listed = g.op("reshape", g.op("cast", axes, dtype=DType.int64), shape=(count,))  # a scalar is a list of one
    return g.op("put_along_axis", none, listed, ones, axis=0)


def _others_first(g: GraphBuilder, marks: Value, rank: int) -> Value:
    """The axes, those that are marked last."""
    places = g.constant(np.arange(rank), DType.int64)
    keys = g.op("add", g.op("multiply", marks, g.constant(rank, DType.int64)), places)
    return g.ops("top_k", keys, k=rank, largest=False)[1]


def reduced(g: GraphBuilder, x: Value, axes: Value, keepdims: bool, operate: Callable[[Value, int], Value]) -> Value:
    """x reduced over axes known only at run time, one after the other; `operate(x, axis)` keeps an axis of size 1."""
    shape, one = shape_of(g, x), g.constant(1, DType.int64)
    original, rank = shape, x.rank
    _check_count(g, axes, rank)
    for number in numbers_of(g, axes, "axes"):
        at = Axis(g, number, shape, rank)
        x, shape = operate(at.seen(x), 1), at.replaced(one)
    if keepdims:
        return g.op("reshape", x, shape=g.sizes(shape, "sizes"))
    return g.op("reshape", x, shape=without(g, original, axes, rank))


def _check_count(g: GraphBuilder, axes: Value, rank: int) -> int:
    """How many axes these are, all different. Raises ModelError where a tensor of that rank has fewer."""
    count = len(g.known_elements(axes, "axes"))
    if count > rank:
        raise ModelError(f"{count} axes of a tensor of rank {rank}")
    return count


def without(g: GraphBuilder, shape: Value, axes: Value, rank: int) -> tuple[Dim, ...]:
    """The dimensions of a shape but for those of some axes, which are all different."""
    count = _check_count(g, axes, rank)
    order = _others_first(g, _marked(g, axes, rank), rank)
    kept = g.op("slice", order, starts=(0,), ends=(rank - count,))
    return g.sizes(g.op("take", shape, kept, axis=0), "sizes")


def with_ones(g: GraphBuilder, x: Value, axes: Value) -> Value:
    """x with axes of size 1 put in at places of the result known only at run time."""
    rank = x.rank + len(g.known_elements(axes, "axes"))
    old = g.op("slice", _others_first(g, _marked(g, axes, rank), rank), starts=(0,), ends=(x.rank,))
    shape = g.op("put_along_axis", g.constant(np.ones(rank), DType.int64), old, shape_of(g, x), axis=0)
    return g.op("reshape", x, shape=g.sizes(shape, "sizes"))


# ---- shapes ----


def reshaped(g: GraphBuilder, x: Value, shape: Value, allow_zero: bool) -> Value:
    """ONNX's Reshape: 0 keeps a dimension, -1 takes what is left, be it that a run says so."""
    known = g.known_elements(shape, "dimensions")
    zero, minus, one = (g.constant(number, DType.int64) for number in (0, -1, 1))
    wanted = numbers_of(g, shape, "dimensions")
    if not allow_zero:
        own = [whole_number(g, dim) for dim in x.shape]
        if any(element == 0 for element in known[x.rank :]):
            raise ModelError(f"Reshape: a dimension must be that of the input, which has rank {x.rank}")
        wanted = [
            g.op("where", g.op("equal", dim, zero), own[place], dim) if place < x.rank else dim
            for place, dim in enumerate(wanted)
        ]
    sizes = vector(g, *wanted)
    is_open = g.op("equal", sizes, minus)
    rest = g.op("prod", g.op("where", is_open, one, sizes))
    whole = whole_number(g, dims.product(x.shape))
    left = g.op("floor_divide", whole, g.op("where", g.op("equal", rest, zero), one, rest))
    made = [
        number
        if number.elements is not None and number.elements.item() != -1
        else g.op("where", g.op("equal", number, minus), left, number)
        for number in wanted
    ]
    return g.op("reshape", x, shape=g.sizes(vector(g, *made), "dimensions"))


# ---- bounds ----


def arranged(g: GraphBuilder, start: Value, limit: Value, step: Value) -> Value:
    """start, start + step, … short of limit: scalars of one element type."""
    if start.dtype.is_float:
        wide = [g.op("cast", value, dtype=DType.float64) for value in (start, limit, step)]
        count = g.op("ceil", g.op("divide", g.op("subtract", wide[1], wide[0]), wide[2]))
        count = g.op("cast", g.op("maximum", count, g.constant(0, DType.float64)), dtype=DType.int64)
    else:
        wide = [whole_number(g, value) for value in (start, limit, step)]
        count = _count(g, *wide)
    (size,) = g.sizes(vector(g, count), "bounds")
    places = g.op("cast", g.op("arange", stop=size), dtype=wide[0].dtype)
    made = g.op("add", wide[0], g.op("multiply", places, wide[2]))
    return g.op("cast", made, dtype=start.dtype) if made.dtype is not start.dtype else made


def _count(g: GraphBuilder, first: Value, last: Value, step: Value) -> Value:
    """How many numbers from the first on, so far apart, come before the last."""
    zero, one, minus = (g.constant(number, DType.int64) for number in (0, 1, -1))
    way = g.op("where", g.op("less", step, zero), minus, one)
    span = g.op("subtract", g.op("subtract", last, first), way)
    return g.op("maximum", g.op("add", g.op("floor_divide", span, step), one), zero)


def sliced(g: GraphBuilder, x: Value, axis: Value | int, start: Value, end: Value, step: Value) -> Value:
    """start:end:step along an axis, all of which may be computed by a run: as in Python, but what is taken backwards from before
    all elements begins at the first, where Python takes nothing."""
    zero, one, minus = (g.constant(number, DType.int64) for number in (0, 1, -1))

    def taken(x: Value, axis: int) -> Value:
        length = whole_number(g, x.shape[axis])
        is_back = g.op("less", step, zero)
        lowest = g.op("where", is_back, minus, zero)
        highest = g.op("where", is_back, g.op("subtract", length, one), length)

        def bound(at: Value, lowest: Value) -> Value:
            at = g.op("where", g.op("less", at, zero), g.op("add", at, length), at)
            return g.op("minimum", g.op("maximum", at, lowest), highest)

        first, last = bound(start, zero), bound(end, lowest)
        (size,) = g.sizes(vector(g, _count(g, first, last, step)), "bounds")
        places = g.op("add", first, g.op("multiply", g.op("arange", stop=size), step))
        return g.op("take", x, places, axis=axis)

    return resized_along(g, x, axis, taken)
