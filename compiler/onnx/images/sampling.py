"""Importers of what reads an image between its pixels, at places that another tensor tells: GridSample, DeformConv."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..sizes_of_run import numbered
from ..table import importer
from ..values import GraphBuilder, Value

_CUBIC = -0.75  # the coefficient that ONNX has it by
_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_PADDINGS = ("zeros", "border", "reflection")

_Tap = tuple[Value, Value]  # the number of a pixel along an axis, an int64, and its weight


@importer("GridSample")
def grid_sample(
    g: GraphBuilder, x: Value, grid: Value, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Value:
    """x [N, C, *spatial] at the places of the grid [N, *sizes, axes]: -1 … 1 along each axis of space, the last one first."""
    if mode not in _TAPS or padding_mode not in _PADDINGS:
        raise ModelError(f"mode {mode!r} or padding_mode {padding_mode!r} is not one of ONNX's")
    n, channels, *spatial = x.shape
    sizes = grid.shape[1:-1]
    if not spatial or grid.rank != x.rank or (isinstance(grid.shape[-1], int) and grid.shape[-1] != len(spatial)):
        raise ModelError(f"expected a grid for {len(spatial)} axes of {x.type}, got {grid.type}")
    grid = g.checked(grid, (*grid.shape[:-1], len(spatial)))
    places = g.op("reshape", grid, shape=(grid.shape[0], dims.product(sizes), len(spatial)))
    places = g.checked(places, (n, *places.shape[1:]))
    is_aligned = bool(align_corners)
    taps = [
        _taps(g, _coordinate(g, places, axis, length, is_aligned), length, mode, padding_mode, is_aligned)
        for axis, length in zip(reversed(range(len(spatial))), spatial, strict=True)
    ]
    pixels = g.op("permute_dims", x, axes=(0, *range(2, x.rank), 1))
    pixels = g.op("reshape", pixels, shape=(n, dims.product(spatial), channels))
    terms = [_term(g, pixels, spatial, chosen) for chosen in itertools.product(*taps)]
    total = terms[0]
    for term in terms[1:]:
        total = g.op("add", total, term)
    return g.op("reshape", g.op("permute_dims", total, axes=(0, 2, 1)), shape=(n, channels, *sizes))


def _coordinate(g: GraphBuilder, places: Value, axis: int, length: Dim, is_aligned: bool) -> Value:
    """[N, places, 1]: in pixels, along an axis of `length`. -1 and 1 are the outer pixels' centres, or else their borders."""
    place = g.op("slice", places, starts=(axis,), ends=(axis + 1,), axes=(2,))
    one, half = g.constant(1, place.dtype), g.constant(0.5, place.dtype)
    moved = g.op("add", place, one)
    if is_aligned:
        return g.op("multiply", g.op("multiply", moved, half), g.from_dims(dims.add(length, -1), place.dtype))
    scaled = g.op("multiply", moved, g.from_dims(length, place.dtype))
    return g.op("multiply", g.op("subtract", scaled, one), half)


def _taps(g: GraphBuilder, place: Value, length: Dim, mode: str, padding: str, is_aligned: bool) -> list[_Tap]:
    """The pixels around a place that are read, and their weights."""
    count = _TAPS[mode]
    first = g.op("round" if count == 1 else "floor", place)
    weights = _weights(g, g.op("subtract", place, first), count)
    taps = []
    for offset, weight in enumerate(weights, 1 - max(count // 2, 1)):
        pixel = g.op("add", first, g.constant(offset, place.dtype)) if offset else first
        taps.append(_inside(g, pixel, weight, length, padding, is_aligned))
    return taps


def _weights(g: GraphBuilder, behind: Value, count: int) -> list[Value]:
    """Of the pixels around a place that lies so far after the pixel before it (Keys, 1981, for four)."""
    one = g.constant(1, behind.dtype)
    if count == 1:
        return [one]
    before = g.op("subtract", one, behind)
    if count == 2:
        return [before, behind]
    near, far = (_CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0), (_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    outer = (_polynomial(g, g.op("add", distance, one), far) for distance in (behind, before))
    inner = [_polynomial(g, distance, near) for distance in (behind, before)]
    return [next(outer), *inner, next(outer)]


def _polynomial(g: GraphBuilder, x: Value, coefficients: Sequence[float]) -> Value:
    result = g.constant(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        result = g.op("add", g.op("multiply", result, x), g.constant(coefficient, x.dtype))
    return result


def _inside(g: GraphBuilder, pixel: Value, weight: Value, length: Dim, padding: str, is_aligned: bool) -> _Tap:
    """A pixel of the image in place of one that may lie outside."""
    zero, last = g.constant(0, pixel.dtype), g.from_dims(dims.add(length, -1), pixel.dtype)
    if padding == "zeros":
        is_in = g.op("logical_and", g.op("greater_equal", pixel, zero), g.op("less_equal", pixel, last))
        weight = g.broadcast("where", is_in, weight, zero)
    elif padding == "reflection":
        pixel = _reflected(g, pixel, length, is_aligned)
    kept = g.op("minimum", g.op("maximum", pixel, zero), last)
    return g.op("cast", kept, dtype=DType.int64), weight


def _reflected(g: GraphBuilder, pixel: Value, length: Dim, is_aligned: bool) -> Value:
    """At the centres of the outer pixels, or else at their borders."""
    border = g.constant(0 if is_aligned else -0.5, pixel.dtype)
    span = g.from_dims(dims.maximum(dims.add(length, -1), 1) if is_aligned else length, pixel.dtype)
    double = g.op("add", span, span)
    away = g.op("fmod", g.op("abs", g.op("subtract", pixel, border)), double)
    return g.op("add", g.op("minimum", away, g.op("subtract", double, away)), border)


def _term(g: GraphBuilder, pixels: Value, spatial: Sequence[Dim], taps: Sequence[_Tap]) -> Value:
    """The pixels [N, places, C] of one tap along each axis, times its weight."""
    number, weight = taps[0]
    for (following, factor), length in zip(taps[1:], spatial[1:], strict=True):
        number = g.op("add", g.op("multiply", number, g.from_dims(length, DType.int64)), following)
        weight = g.broadcast("multiply", weight, factor)
    found = g.op("gather_nd", pixels, number, batch_axes=1)
    return g.broadcast("multiply", found, g.op("cast", weight, dtype=found.dtype))


# ---- convolution at moved places ----


@importer("DeformConv")
def _deform_conv(
    g: GraphBuilder,
    x: Value,
    weights: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """The elements that each window meets are sampled, then multiplied by the weights as matrices."""
    n, channels, *spatial = x.shape
    rank, kernel = len(spatial), weights.shape[2:]
    strides, dilations, pads = strides or (1,) * rank, dilations or (1,) * rank, pads or (0,) * (2 * rank)
    if not all(isinstance(size, int) for size in (channels, *kernel)) or {len(kernel), offset.rank - 2} != {rank}:
        raise ModelError(
            f"DeformConv: {x.type}, weights {weights.type} and offsets {offset.type} do not suit each other"
        )
    sizes, elements = offset.shape[2:], math.prod(kernel)
    places, images = dims.product(sizes), dims.multiply(n, offset_group)
    moves = g.op("reshape", offset, shape=(images, elements, rank, places))
    taps = []
    for axis, length in enumerate(spatial):
        start = _window(g, axis, kernel, sizes, strides[axis], dilations[axis], pads[axis], x.dtype)
        move = g.op(
            "reshape",
            g.op("slice", moves, starts=(axis,), ends=(axis + 1,), axes=(2,)),
            shape=(images, elements, places),
        )
        place = g.op("reshape", g.op("add", move, start), shape=(images, dims.multiply(elements, places), 1))
        taps.append(_taps(g, place, length, "linear", "zeros", True))
    each = dims.floordiv(channels, offset_group)
    pixels = g.op("reshape", x, shape=(images, each, dims.product(spatial)))
    pixels = g.op("permute_dims", pixels, axes=(0, 2, 1))
    sampled = functools.reduce(
        lambda a, b: g.op("add", a, b), (_term(g, pixels, spatial, chosen) for chosen in itertools.product(*taps))
    )
    sampled = g.op("permute_dims", sampled, axes=(0, 2, 1))
    if mask is not None:
        factors = g.op("reshape", mask, shape=(images, 1, dims.multiply(elements, places)))
        sampled = g.op("multiply", sampled, factors)
    depth = dims.floordiv(dims.multiply(channels, elements), group)
    columns = g.op("reshape", sampled, shape=(n, group, depth, places))
    rows = g.op("reshape", weights, shape=(group, dims.floordiv(weights.shape[0], group), depth))
    made = g.op("reshape", g.op("matmul", rows, columns), shape=(n, weights.shape[0], *sizes))
    return made if bias is None else g.op("add", made, g.op("expand_dims", bias, axes=tuple(range(1, 1 + rank))))


def _window(
    g: GraphBuilder,
    axis: int,
    kernel: Sequence[Dim],
    sizes: Sequence[Dim],
    stride: int,
    dilation: int,
    pad: int,
    dtype: DType,
) -> Value:
    """Where the elements of each window lie along an axis, before they are moved: [elements, places]."""
    inner = g.op("multiply", numbered(g, kernel[axis]), g.constant(dilation, DType.int64))
    outer = g.op("multiply", numbered(g, sizes[axis]), g.constant(stride, DType.int64))
    outer = g.op("subtract", outer, g.constant(pad, DType.int64))
    parts = []
    for line, whole in ((inner, kernel), (outer, sizes)):
        shape = tuple(size if place == axis else 1 for place, size in enumerate(whole))
        wide = g.op("broadcast_to", g.op("reshape", line, shape=shape), shape=tuple(whole))
        parts.append(g.op("reshape", wide, shape=(dims.product(whole),)))
    total = g.op("add", g.op("expand_dims", parts[0], axes=(1,)), parts[1])
    return g.op("cast", total, dtype=dtype)
