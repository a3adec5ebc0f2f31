"""Importers of Resize and Upsample: one axis after the other."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Union

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of
from ..sizes_of_run import vector, whole_number
from ..table import importer
from ..values import GraphBuilder, Value
from .resample import Resampling, resampled

Scale = Union[float, Value, None]  # elements of the result for each of x; None: by the sizes

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_MOST_DENOMINATOR = 1000


@importer("Resize", since=11)
def _resize(
    g: GraphBuilder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    how = Resampling(
        _MODES.get(mode, mode),
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        bool(antialias),
        extrapolation_value,
    )
    along = tuple(range(x.rank)) if axes is None else tuple(axis_of(axis, x.rank) for axis in axes)
    regions = _regions(g, roi, len(along)) if coordinate_transformation_mode == "tf_crop_and_resize" else []
    if sizes is None or sizes.shape == (0,):
        return _scaled(g, x, along, scales, how, regions)
    wanted = g.sizes(sizes, "sizes")
    if keep_aspect_ratio_policy == "stretch":
        return _resized(g, x, along, wanted, [None] * len(along), how, regions)
    return _resized(g, x, along, *_in_proportion(g, x, along, wanted, keep_aspect_ratio_policy), how, regions)


def _regions(g: GraphBuilder, roi: Value | None, count: int) -> list[list[Value]]:
    """Where the region starts and ends on each axis."""
    if roi is None or roi.shape != (2 * count,):
        raise ModelError(f"a region of interest of {2 * count} numbers is needed")
    numbers = [
        g.op("take", g.op("cast", roi, dtype=DType.float64), g.constant(place, DType.int64), axis=0)
        for place in range(2 * count)
    ]
    return [[numbers[place], numbers[count + place]] for place in range(count)]


def _in_proportion(
    g: GraphBuilder, x: Value, axes: Sequence[int], sizes: Sequence[Dim], policy: str
) -> tuple[list[Dim], list[Scale]]:
    """Sizes of the same proportions as x's, not larger, or not smaller, than these, and their scale."""
    operators = {"not_larger": "minimum", "not_smaller": "maximum"}
    if policy not in operators or len(sizes) != len(axes):
        raise ModelError(f"keep_aspect_ratio_policy {policy!r}, of {len(sizes)} sizes for {len(axes)} axes")

    def number(dim: Dim) -> Value:
        return g.op("cast", whole_number(g, dim), dtype=DType.float64)

    lengths = [number(x.shape[axis]) for axis in axes]
    scales = [g.op("divide", number(size), length) for size, length in zip(sizes, lengths, strict=True)]
    scale = functools.reduce(lambda a, b: g.op(operators[policy], a, b), scales)
    half = g.constant(0.5, DType.float64)
    rounded = [g.op("floor", g.op("add", g.op("multiply", scale, length), half)) for length in lengths]
    made = g.sizes(vector(g, *(g.op("cast", each, dtype=DType.int64) for each in rounded)), "sizes")
    known = scale if scale.constant is None else float(scale.constant)
    return list(made), [known] * len(axes)


@importer("Resize", since=10)
@importer("Upsample", since=9)
def _resize_before_11(g: GraphBuilder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _scaled(g, x, tuple(range(x.rank)), scales, Resampling(_MODES.get(mode, mode), "asymmetric", "floor"))


@importer("Upsample", since=7)
def _upsample_before_9(g: GraphBuilder, x: Value, *, scales: tuple[float, ...], mode: str = "nearest") -> Value:
    factors = g.constant(np.array(scales, np.float32))
    return _scaled(g, x, tuple(range(x.rank)), factors, Resampling(_MODES.get(mode, mode), "asymmetric", "floor"))


def _scaled(
    g: GraphBuilder,
    x: Value,
    axes: Sequence[int],
    scales: Value | None,
    how: Resampling,
    regions: Sequence[Sequence[Value]] = (),
) -> Value:
    """x resized by factors."""
    if scales is not None and scales.rank == 1:
        scales = g.checked(scales, (len(axes),))
    if scales is None or scales.shape != (len(axes),):
        raise ModelError(f"{0 if scales is None else scales.shape} scales for {len(axes)} axes")
    if scales.constant is not None:
        factors: list[Scale] = [float(factor) for factor in scales.constant.flat]
        sizes = [_size(x.shape[axis], factor) for axis, factor in zip(axes, factors, strict=True)]  # type: ignore[arg-type]
        return _resized(g, x, axes, sizes, factors, how, regions)
    lengths = g.op("cast", g.from_dims([x.shape[axis] for axis in axes]), dtype=DType.float32)
    made = g.op("floor", g.op("multiply", lengths, g.op("cast", scales, dtype=DType.float32)))
    sizes = list(g.sizes(g.op("cast", made, dtype=DType.int64), "sizes"))
    wide = g.op("cast", scales, dtype=DType.float64)
    factors = [g.op("take", wide, g.constant(place, DType.int64), axis=0) for place in range(len(axes))]
    return _resized(g, x, axes, sizes, factors, how, regions)


def _size(length: Dim, factor: float) -> Dim:
    """⌊length · factor⌋, where the factor was rounded to a float32."""
    if isinstance(length, int):
        return int(np.float32(length) * np.float32(factor))
    ratio = Fraction(factor).limit_denominator(_MOST_DENOMINATOR)
    if np.float32(float(ratio)) != np.float32(factor):
        ratio = Fraction(factor)
    return dims.floordiv(dims.multiply(length, ratio.numerator), ratio.denominator)


def _resized(
    g: GraphBuilder,
    x: Value,
    axes: Sequence[int],
    sizes: Sequence[Dim],
    scales: Sequence[Scale],
    how: Resampling,
    regions: Sequence[Sequence[Value]] = (),
) -> Value:
    """Axes that shrink first, the outermost of them before the others, then the last one: so the fewest elements are left for
    the last axis, along which neighbours are not resampled alike."""
    if how.mode not in _MODES.values():
        raise ModelError(f"mode {how.mode!r} is not one of ONNX's")
    if len(sizes) != len(axes):
        raise ModelError(f"{len(sizes)} sizes for {len(axes)} axes")

    def order(place: int) -> tuple[bool, int]:
        axis, size, scale, length = axes[place], sizes[place], scales[place], x.shape[axes[place]]
        are_known = isinstance(size, int) and isinstance(length, int)
        shrinks = scale < 1 if isinstance(scale, float) else are_known and size < length
        return not shrinks, axis if shrinks else -axis

    wanted = DType.float32 if how.mode != "nearest" and not x.dtype.is_float else x.dtype
    result = g.op("cast", x, dtype=wanted) if wanted is not x.dtype else x
    for place in sorted(range(len(axes)), key=order):
        region = regions[place] if regions else ()
        result = _along(g, result, axes[place], sizes[place], scales[place], how, region)
    if wanted is x.dtype:
        return result
    least, greatest = x.dtype.bounds
    return g.op("cast", g.op("clip", result, min=least, max=greatest), dtype=x.dtype)


def _along(
    g: GraphBuilder, x: Value, axis: int, size: Dim, scale: Scale, how: Resampling, region: Sequence[Value]
) -> Value:
    is_plain = not region and not isinstance(scale, Value)
    if is_plain and x.shape[axis] == size and scale in (None, 1.0):
        return x
    if not is_plain or how.antialias or (how.exclude_outside and how.mode == "cubic"):
        return resampled(g, x, axis, size, scale, how, region)
    return g.op(
        "resize",
        x,
        axis=axis,
        size=size,
        scale=scale,
        mode=how.mode,
        coordinates=how.coordinates,
        rounding=how.rounding,
        cubic=how.cubic,
    )
