"""Importers of Resize and Upsample: one axis after the other."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.errors import ModelError
from ..operators.shapes import axis_of
from .onnx_shapes import dims_of
from .onnx_table import importer
from .onnx_values import GraphBuilder, UnsupportedError, Value

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
    if antialias:
        raise UnsupportedError("antialiasing")
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise UnsupportedError("cropping by a region of interest")
    if keep_aspect_ratio_policy != "stretch":
        raise UnsupportedError(f"keep_aspect_ratio_policy {keep_aspect_ratio_policy!r}")
    options = {
        "coordinates": coordinate_transformation_mode,
        "rounding": nearest_mode,
        "cubic": cubic_coeff_a,
        "exclude_outside": bool(exclude_outside),
    }
    along = tuple(range(x.rank)) if axes is None else tuple(axis_of(axis, x.rank) for axis in axes)
    if sizes is not None and sizes.shape != (0,):
        return _resized(g, x, along, dims_of(sizes, "sizes"), [None] * len(along), mode, options)
    return _scaled(g, x, along, scales, mode, options)


@importer("Resize", since=10)
@importer("Upsample", since=9)
def _resize_before_11(g: GraphBuilder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _scaled(g, x, tuple(range(x.rank)), scales, mode, {"coordinates": "asymmetric", "rounding": "floor"})


@importer("Upsample", since=7)
def _upsample_before_9(g: GraphBuilder, x: Value, *, scales: tuple[float, ...], mode: str = "nearest") -> Value:
    factors = g.constant(np.array(scales, np.float32))
    return _scaled(g, x, tuple(range(x.rank)), factors, mode, {"coordinates": "asymmetric", "rounding": "floor"})


def _scaled(
    g: GraphBuilder, x: Value, axes: Sequence[int], scales: Value | None, mode: str, options: dict[str, Any]
) -> Value:
    """x resized by constant factors."""
    if scales is None or scales.constant is None:
        raise UnsupportedError("its scales are computed at run time")
    factors = [float(factor) for factor in scales.constant.flat]
    if len(factors) != len(axes):
        raise ModelError(f"{len(factors)} scales for {len(axes)} axes")
    sizes = [_size(x.shape[axis], factor) for axis, factor in zip(axes, factors, strict=True)]
    return _resized(g, x, axes, sizes, factors, mode, options)


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
    scales: Sequence[float | None],
    mode: str,
    options: dict[str, Any],
) -> Value:
    """Axes that shrink first, the outermost of them before the others, then the last one: so the fewest elements are left for
    the last axis, along which neighbours are not resampled alike."""
    if mode not in _MODES:
        raise ModelError(f"mode {mode!r} is not one of ONNX's")
    if len(sizes) != len(axes):
        raise ModelError(f"{len(sizes)} sizes for {len(axes)} axes")

    def order(change: tuple[int, Dim, float | None]) -> tuple[bool, int]:
        axis, size, scale = change
        length = x.shape[axis]
        shrinks = (
            scale < 1 if scale is not None else isinstance(size, int) and isinstance(length, int) and size < length
        )
        return not shrinks, axis if shrinks else -axis

    for axis, size, scale in sorted(zip(axes, sizes, scales, strict=True), key=order):
        if x.shape[axis] != size or scale not in (None, 1.0):
            x = g.op("resize", x, axis=axis, size=size, scale=scale, mode=_MODES[mode], **options)
    return x
