"""Images read between their pixels, at places that a tensor tells: grids, crops, convolutions whose taps move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats.messages.errors import InferenceError
from .layouts import transformed
from .table import Tensor, known, like, operator, pair, shape_of, type_of

_TAPS = {"nearest": 1, "nearest_neighbor": 1, "bilinear": 2, "bicubic": 4}
_CUBIC = -0.75  # the coefficient of Keys, 1981, that TVM has
_PADDINGS = ("zeros", "border", "reflection")

_Tap = tuple[Expression, Expression]  # the number of a pixel along an axis, an int64, and its weight


def sampled(
    data: Expression, places: Sequence[Expression], method: str, padding: str = "zeros", aligned: bool = False
) -> Expression:
    """[N, P, C] of data [N, C, *spatial] at places, a tensor [N, P] in pixels for each axis of space."""
    if method not in _TAPS or padding not in _PADDINGS:
        raise InferenceError(f"method {method!r}, padding {padding!r}; there are {', '.join(_TAPS)}; {_PADDINGS}")
    n, channels, *spatial = type_of(data).shape
    lengths = [_known(length) for length in spatial]
    pixels = op.permute_dims(data, axes=(0, *range(2, len(spatial) + 2), 1))
    pixels = op.reshape(pixels, shape=(n, math.prod(lengths), channels))
    taps = [_taps(place, length, method, padding, aligned) for place, length in zip(places, lengths, strict=True)]
    total: Expression | None = None
    for chosen in itertools.product(*taps):
        number, weight = chosen[0]
        for (following, factor), length in zip(chosen[1:], lengths[1:], strict=True):
            number = op.add(op.multiply(number, programs.constant(length)), following)
            weight = op.multiply(weight, factor)
        found = op.gather_nd(pixels, op.expand_dims(number, axes=(2,)), batch_axes=1)
        term = op.multiply(found, op.expand_dims(weight, axes=(2,)))
        total = term if total is None else op.add(total, term)
    assert total is not None
    return total


def _known(length: Any) -> int:
    return known("the image's size", length)[0]


def _taps(place: Expression, length: int, method: str, padding: str, aligned: bool) -> list[_Tap]:
    """The pixels around a place that are read, and their weights."""
    count = _TAPS[method]
    first = op.round(place) if count == 1 else op.floor(place)
    weights = _weights(op.subtract(place, first), count)
    offsets = range(1 - max(count // 2, 1), count)
    pixels = (op.add(first, like(place, offset)) if offset else first for offset in offsets)
    return [_inside(pixel, weight, length, padding, aligned) for pixel, weight in zip(pixels, weights, strict=False)]


def _weights(behind: Expression, count: int) -> list[Expression]:
    """Of the pixels around a place that lies so far after the pixel before it."""
    one = like(behind, 1)
    if count == 1:
        return [op.add(op.multiply(behind, like(behind, 0)), one)]
    before = op.subtract(one, behind)
    if count == 2:
        return [before, behind]
    near, far = (_CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0), (_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    outer = [_polynomial(op.add(distance, one), far) for distance in (behind, before)]
    return [outer[0], _polynomial(behind, near), _polynomial(before, near), outer[1]]


def _polynomial(x: Expression, coefficients: Sequence[float]) -> Expression:
    result = like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = op.add(op.multiply(result, x), like(x, coefficient))
    return result


def _inside(pixel: Expression, weight: Expression, length: int, padding: str, aligned: bool) -> _Tap:
    """A pixel of the image in place of one that may lie outside."""
    zero, last = like(pixel, 0), like(pixel, length - 1)
    if padding == "zeros":
        weight = op.where(op.logical_and(op.greater_equal(pixel, zero), op.less_equal(pixel, last)), weight, zero)
    elif padding == "reflection":
        border, span = (0, max(length - 1, 1)) if aligned else (-0.5, length)
        away = op.fmod(op.abs(op.subtract(pixel, like(pixel, border))), like(pixel, 2 * span))
        pixel = op.add(op.minimum(away, op.subtract(like(pixel, 2 * span), away)), like(pixel, border))
    return op.cast(op.minimum(op.maximum(pixel, zero), last), dtype="int64"), weight


@operator("image.grid_sample")
def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Expression:
    """data at the places of the grid [N, axes, *sizes]: -1 … 1 along each axis of space, the last one first."""
    n, channels, *spatial = type_of(data).shape
    sizes = type_of(grid).shape[2:]
    count = math.prod(_known(size) for size in sizes)
    flat = op.reshape(grid, shape=(n, len(spatial), count))
    places = []
    for axis, length in enumerate(reversed(spatial)):
        place = op.squeeze(op.slice(flat, starts=(axis,), ends=(axis + 1,), axes=(1,)), axes=(1,))
        moved = op.add(place, like(place, 1))
        if align_corners:
            places.append(op.multiply(moved, like(place, (_known(length) - 1) / 2)))
        else:
            scaled = op.multiply(moved, like(place, _known(length)))
            places.append(op.multiply(op.subtract(scaled, like(place, 1)), like(place, 0.5)))
    found = sampled(data, places[::-1], method, padding_mode, bool(align_corners))
    return op.reshape(op.permute_dims(found, axes=(0, 2, 1)), shape=(n, channels, *sizes))


@operator("image.affine_grid")
def affine_grid(data: Tensor, target_shape: Any = None) -> Expression:
    """The grid [N, 2, H, W] of places that matrices [N, 2, 3] move: x and y from -1 to 1."""
    height, width = pair(target_shape, 2)
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    points = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    made = op.matmul(data, programs.constant(points.astype(type_of(data).dtype.numpy)))
    return op.reshape(made, shape=(type_of(data).shape[0], 2, height, width))


@operator("image.crop_and_resize")
def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Any,
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    out_dtype: str | None = None,
) -> Expression:
    """Boxes [y, x, y, x], 0 to 1, of images, each in one size."""
    images = op.take(transformed(data, layout, "NCHW"), op.cast(box_indices, dtype="int64"), axis=0)
    images, (count, channels, *spatial) = shape_of(images)
    sizes = pair(crop_size, 2)
    along, inside = [], []
    for axis, (length, size) in enumerate(zip(spatial, sizes, strict=True)):
        first, last = (op.slice(boxes, starts=(place,), ends=(place + 1,), axes=(1,)) for place in (axis, axis + 2))
        scale, steps = _known(length) - 1, np.arange(size, dtype="float32")
        share = op.multiply(op.subtract(last, first), like(boxes, scale / (size - 1) if size > 1 else 0))
        start = op.multiply(first, like(boxes, scale))
        if size == 1:
            start = op.multiply(op.add(first, last), like(boxes, scale / 2))
        place = op.add(start, op.multiply(share, programs.constant(steps)))
        along.append(place)
        inside.append(op.logical_and(op.greater_equal(place, like(place, 0)), op.less_equal(place, like(place, scale))))
    shape = (count, sizes[0], sizes[1])
    rows, columns = op.expand_dims(along[0], axes=(2,)), op.expand_dims(along[1], axes=(1,))
    flat = [op.reshape(op.broadcast_to(each, shape=shape), shape=(count, -1)) for each in (rows, columns)]
    found = sampled(images, flat, method, "border")
    found = op.reshape(found, shape=(*shape, channels))
    is_in = op.logical_and(op.expand_dims(inside[0], axes=(2, 3)), op.expand_dims(inside[1], axes=(1, 3)))
    found = transformed(op.where(is_in, found, like(found, extrapolation_value)), "NHWC", layout)
    return op.cast(found, dtype=out_dtype) if out_dtype else found


@operator("nn.deformable_conv2d")
def deformable_conv2d(
    data: Tensor,
    offset: Tensor,
    weight: Tensor,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Expression:
    """A convolution each of whose taps is moved by an offset [N, groups · taps · (y, x), H, W]. A tap outside the image is 0."""
    data, offset = transformed(data, data_layout, "NCHW"), transformed(offset, data_layout, "NCHW")
    weight = transformed(weight, kernel_layout, "OIHW")
    n, c, *_ = type_of(data).shape
    o, _, *kernel = type_of(weight).shape
    height, width = (_known(size) for size in type_of(offset).shape[2:])
    taps, parts = math.prod(map(_known, kernel)), int(deformable_groups)
    moves = op.reshape(offset, shape=(n, parts, taps, 2, height * width))
    places = [
        _grid(size, width if axis == 0 else height, axis, kernel, pair(strides, 2), pair(padding, 2), pair(dilation, 2))
        for axis, size in enumerate((height, width))
    ]
    found = []
    for part in range(parts):
        share = _known(c) // parts
        own = op.slice(data, starts=(part * share,), ends=((part + 1) * share,), axes=(1,))
        moved = []
        for axis in (0, 1):
            move = op.slice(moves, starts=(part, axis), ends=(part + 1, axis + 1), axes=(1, 3))
            move = op.reshape(move, shape=(n, taps * height * width))
            moved.append(op.add(move, programs.constant(places[axis].astype("float32"))))
        inside: Any = True
        for place, length in zip(moved, type_of(data).shape[2:], strict=True):
            is_in = op.logical_and(op.greater_equal(place, like(place, 0)), op.less(place, like(place, _known(length))))
            inside = is_in if inside is True else op.logical_and(inside, is_in)
        taken = sampled(own, moved, "bilinear")
        found.append(op.where(op.expand_dims(inside, axes=(2,)), taken, like(taken, 0)))
    pixels = op.permute_dims(op.concat(*found, axis=2) if parts > 1 else found[0], axes=(0, 2, 1))
    pixels = op.reshape(pixels, shape=(n, groups, _known(c) // groups * taps, height * width))
    matrix = op.reshape(weight, shape=(groups, _known(o) // groups, -1))
    result = op.reshape(op.matmul(matrix, pixels), shape=(n, o, height, width))
    result = op.cast(result, dtype=out_dtype) if out_dtype else result
    return transformed(result, "NCHW", out_layout or data_layout)


def _grid(
    size: int, other: int, axis: int, kernel: Any, strides: Any, padding: Sequence[int], dilation: Any
) -> np.ndarray:
    """[taps · H · W]: where each tap of each place lies along an axis, before it is moved."""
    starts = np.arange(size) * strides[axis] - padding[axis]
    taps = np.arange(kernel[axis]) * dilation[axis]
    along = taps[:, None] + starts[None]  # [taps of this axis, places of this axis]
    if axis == 0:
        return np.broadcast_to(along[:, None, :, None], (kernel[0], kernel[1], size, other)).reshape(-1)
    return np.broadcast_to(along[None, :, None, :], (kernel[0], kernel[1], other, size)).reshape(-1)


@operator("image.dilation2d")
def dilation2d(
    data: Tensor,
    weight: Tensor,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilations: Any = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: str = "",
) -> Expression:
    """The greatest sum of a pixel under a window and the window's number there, channel by channel."""
    data = transformed(data, data_layout, "NCHW")
    weight = transformed(weight, kernel_layout, "IHW")
    sides = tuple(map(int, padding))
    sides = sides * 2 if len(sides) == 2 else sides
    low = float(np.finfo(type_of(data).dtype.numpy).min)
    if any(sides):
        data = op.pad(data, pads=(0, 0, *sides[:2], 0, 0, *sides[2:]), value=low)
    steps, gaps = pair(strides, 2)[:2], pair(dilations, 2)[:2]
    _, _, *spatial = type_of(data).shape
    _, *kernel = type_of(weight).shape
    spans = [_known(length) - (_known(size) - 1) * gap for length, size, gap in zip(spatial, kernel, gaps)]  # noqa: B905
    best: Expression | None = None
    for y, x in np.ndindex(*map(_known, kernel)):
        starts = (y * gaps[0], x * gaps[1])
        ends = tuple(start + span for start, span in zip(starts, spans, strict=True))
        part = op.slice(data, starts=starts, ends=ends, axes=(2, 3), steps=steps)
        number = op.slice(weight, starts=(y, x), ends=(y + 1, x + 1), axes=(1, 2))
        term = op.add(part, number)
        best = term if best is None else op.maximum(best, term)
    assert best is not None
    return transformed(best, "NCHW", data_layout)


@operator("nn.correlation")
def correlation(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    padding: Any = 0,
    is_multiply: bool = True,
    layout: str = "NCHW",
) -> Expression:
    """How alike two images are, one moved by each displacement: the mean product under a window, or distance."""
    sides = pair(padding, 2)
    sides = (*sides, *sides) if len(sides) == 2 else sides
    pads = (0, 0, *sides[:2], 0, 0, *sides[2:])
    first, second = (op.pad(transformed(each, layout, "NCHW"), pads=pads) for each in (data1, data2))
    _, channels, *spatial = type_of(first).shape
    border, reach = max_displacement + (kernel_size - 1) // 2, max_displacement // stride2
    lengths = [_known(length) for length in spatial]
    spans = [-(-(length - 2 * border) // stride1) for length in lengths]
    moves = [stride2 * place for place in range(-reach, reach + 1)]
    number = like(first, 1 / (kernel_size * kernel_size * _known(channels)))
    made = []
    for dy, dx in itertools.product(moves, moves):
        total: Expression | None = None
        for y, x in itertools.product(range(kernel_size), range(kernel_size)):
            start = (max_displacement + y, max_displacement + x)
            one = _part(first, start, spans, stride1)
            other = _part(second, (start[0] + dy, start[1] + dx), spans, stride1)
            term = op.multiply(one, other) if is_multiply else op.abs(op.subtract(one, other))
            term = op.sum(term, axes=(1,), keepdims=True)
            total = term if total is None else op.add(total, term)
        assert total is not None
        made.append(op.multiply(total, number))
    return transformed(op.concat(*made, axis=1), "NCHW", layout)


def _part(data: Expression, starts: tuple[int, int], spans: Sequence[int], step: int) -> Expression:
    ends = tuple(start + (span - 1) * step + 1 for start, span in zip(starts, spans, strict=True))
    return op.slice(data, starts=starts, ends=ends, axes=(2, 3), steps=(step, step))
