"""Resampling along an axis at places that ordinary operators compute.

For what the operator `resize` cannot express: scales known only at run time, a region of x, a curve without the elements
beside x, and a wider window where x shrinks. Places in x are computed for the elements of the result, then indices and weights of
the elements around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..sizes_of_run import vector, whole_number
from ..values import GraphBuilder, Value

Number = Union[float, Value]  # a scalar of float64, or a number


@dataclass(frozen=True)
class Resampling:
    """The settings of ONNX's Resize for all axes."""

    mode: str  # nearest, linear, cubic
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


class _Scalars:
    """Arithmetic in float64."""

    def __init__(self, g: GraphBuilder) -> None:
        self.g = g

    def of(self, number: Number) -> Value:
        return number if isinstance(number, Value) else self.g.constant(float(number), DType.float64)

    def size(self, dim: Dim) -> Value:
        return self.g.op("cast", whole_number(self.g, dim), dtype=DType.float64)

    def __call__(self, operator: str, *numbers: Number) -> Value:
        return self.g.op(operator, *map(self.of, numbers))


def resampled(
    g: GraphBuilder, x: Value, axis: int, size: Dim, scale: Number | None, how: Resampling, roi: Sequence[Value] = ()
) -> Value:
    """x with `size` elements along an axis. `roi`: where the region starts and ends, 0 and 1 are x's own ends."""
    if how.antialias and how.mode == "nearest":
        raise ModelError("antialiasing is for linear and cubic interpolation")
    at, length = _Scalars(g), x.shape[axis]
    scale = at("divide", at.size(size), at.size(length)) if scale is None else at.of(scale)
    places = _places(at, length, size, scale, how, roi)
    made = _by_matrix(at, x, axis, places, scale, how) if how.antialias else _by_taps(at, x, axis, places, how)
    if how.coordinates != "tf_crop_and_resize":
        return made
    last = at("subtract", at.size(length), 1)
    outside = g.op("logical_or", at("less", places, 0), at("greater", places, last))
    return g.op("where", _column(g, outside, x.rank - axis - 1), g.constant(how.extrapolation, x.dtype), made)


def _places(at: _Scalars, length: Dim, size: Dim, scale: Value, how: Resampling, roi: Sequence[Value]) -> Value:
    """Where the elements of the result lie in x."""
    g, long = at.g, at.size(length)
    places = g.op("cast", g.op("arange", stop=size), dtype=DType.float64)
    whole = at("multiply", scale, long)  # of the result, were it not cut to an integer

    def spread(reach: Value, single: Number) -> Value:
        """Evenly from 0 to reach, or `single` where there is but one."""
        is_one = at("equal", whole, 1)
        steps = at("where", is_one, 1, at("subtract", whole, 1))
        return at("where", is_one, single, at("divide", at("multiply", places, reach), steps))

    if how.coordinates == "align_corners":
        return spread(at("subtract", long, 1), 0)
    if how.coordinates == "asymmetric":
        return at("divide", places, scale)
    if how.coordinates == "tf_crop_and_resize":
        if not roi:
            raise ModelError("tf_crop_and_resize needs a region of interest")
        start, end = (at("multiply", edge, at("subtract", long, 1)) for edge in roi)
        reach = at("subtract", end, start)
        return at("add", spread(reach, at("multiply", reach, 0.5)), start)
    middle = at("divide", at("add", places, 0.5), scale)
    if how.coordinates == "tf_half_pixel_for_nn":
        return middle
    middle = at("subtract", middle, 0.5)
    if how.coordinates == "pytorch_half_pixel":
        return at("where", at("equal", at.size(size), 1), 0, middle)
    if how.coordinates == "half_pixel_symmetric":
        gap = at("subtract", 1, at("divide", at.size(size), whole))
        return at("add", middle, at("multiply", at("multiply", long, 0.5), gap))
    if how.coordinates != "half_pixel":
        raise ModelError(f"coordinate_transformation_mode {how.coordinates!r} is not one of ONNX's")
    return middle


def _nearest(at: _Scalars, places: Value, rounding: str) -> Value:
    if rounding == "round_prefer_floor":
        return at("ceil", at("subtract", places, 0.5))
    if rounding == "round_prefer_ceil":
        return at("floor", at("add", places, 0.5))
    if rounding not in ("floor", "ceil"):
        raise ModelError(f"nearest_mode {rounding!r} is not one of ONNX's")
    return at(rounding, places)


def _by_taps(at: _Scalars, x: Value, axis: int, places: Value, how: Resampling) -> Value:
    """Of the nearest element, of two by their distance, or of four by Keys' curve."""
    g, last = at.g, at("subtract", at.size(x.shape[axis]), 1)

    def taken(index: Value) -> Value:
        inside = at("minimum", at("maximum", index, 0), last)
        return g.op("take", x, g.op("cast", inside, dtype=DType.int64), axis=axis)

    if how.mode == "nearest":
        return taken(_nearest(at, places, how.rounding))
    first = at("floor", places)
    reach = range(2) if how.mode == "linear" else range(-1, 3)
    indices = [at("add", first, k) for k in reach]
    weights = [_weight(at, at("abs", at("subtract", places, index)), how) for index in indices]
    if how.exclude_outside:
        weights = [_inside(at, weight, index, last) for weight, index in zip(weights, indices, strict=True)]
        total = weights[0]
        for weight in weights[1:]:
            total = at("add", total, weight)
        weights = [at("divide", weight, _not_zero(at, total)) for weight in weights]
    behind, parts = x.rank - axis - 1, []
    for weight, index in zip(weights, indices, strict=True):
        factor = _column(g, g.op("cast", weight, dtype=x.dtype), behind)
        parts.append(g.op("multiply", taken(index), factor))
    result = parts[0]
    for part in parts[1:]:
        result = g.op("add", result, part)
    return result


def _by_matrix(at: _Scalars, x: Value, axis: int, places: Value, scale: Value, how: Resampling) -> Value:
    """Of all elements that a window meets, which is the wider, the more x shrinks: a product with a matrix of weights."""
    g, length = at.g, x.shape[axis]
    narrow = at("minimum", scale, 1)
    radius = at("add", at("ceil", at("divide", 1 if how.mode == "linear" else 2, narrow)), 1)
    (margin,) = g.sizes(vector(g, g.op("cast", radius, dtype=DType.int64)), "sizes")
    around: list[Dim] = [0] * (2 * x.rank)
    around[axis] = around[axis + x.rank] = margin
    order = (*(place for place in range(x.rank) if place != axis), axis)
    rows = g.op("permute_dims", g.op("pad", x, pads=tuple(around), mode="edge"), axes=order)
    indices = g.op("arange", start=dims.multiply(margin, -1), stop=dims.add(length, margin))
    indices = g.op("expand_dims", g.op("cast", indices, dtype=DType.float64), axes=(1,))
    distance = at("multiply", at("abs", at("subtract", places, indices)), narrow)
    weights = _weight(at, distance, how)
    if how.exclude_outside:
        weights = _inside(at, weights, indices, at("subtract", at.size(length), 1))
    weights = at("divide", weights, _not_zero(at, g.op("sum", weights, axes=(0,), keepdims=True)))
    weights = g.checked(weights, (rows.shape[-1], weights.shape[1]))
    made = g.op("matmul", rows, g.op("cast", weights, dtype=x.dtype))
    return g.op("permute_dims", made, axes=tuple(map(order.index, range(x.rank))))


def _weight(at: _Scalars, distance: Value, how: Resampling) -> Value:
    """Of an element so far away."""
    if how.mode == "linear":
        return at("maximum", at("subtract", 1, distance), 0)
    a = how.cubic
    near = at("subtract", at("multiply", a + 2, distance), a + 3)
    near = at("add", at("multiply", at("multiply", near, distance), distance), 1)
    far = at("add", at("multiply", at("subtract", distance, 5), distance), 8)
    far = at("multiply", at("subtract", at("multiply", far, distance), 4), a)
    return at("where", at("less_equal", distance, 1), near, at("where", at("less", distance, 2), far, 0))


def _inside(at: _Scalars, weight: Value, index: Value, last: Value) -> Value:
    """The weight, if the element is one of x."""
    inside = at.g.op("logical_and", at("greater_equal", index, 0), at("less_equal", index, last))
    return at("where", inside, weight, 0)


def _not_zero(at: _Scalars, total: Value) -> Value:
    return at("where", at("equal", total, 0), 1, total)


def _column(g: GraphBuilder, numbers: Value, behind: int) -> Value:
    """Numbers for the positions along an axis that has `behind` axes after it."""
    return g.op("expand_dims", numbers, axes=tuple(range(1, behind + 1))) if behind else numbers
