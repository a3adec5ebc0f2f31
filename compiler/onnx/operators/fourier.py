"""Importers of what audio models begin with: Fourier transforms, of a whole axis or of windows along it, and mel weights.

A transform is a product with a constant matrix; one of a long axis is two of shorter ones, with factors between them (Cooley,
Tukey, 1965). Windows along a signal are a convolution's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of
from ..sizes_of_run import Axis, is_known, numbered, vector, whole_number
from ..table import importer
from ..tensors import element_type
from ..values import GraphBuilder, Value, constant, scalar
from .shapes import integers_of

_MOST = 768  # points of a transform that is one product, unless their number is prime or nearly
_LEAST = 4  # of the shorter of two products


@importer("DFT", since=20)
def _dft(
    g: GraphBuilder,
    x: Value,
    length: Value | None = None,
    axis: Value | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    if axis is not None and not is_known(axis) and x.rank > 2:
        return _along_unknown(g, x, length, axis, bool(inverse), bool(onesided))
    along = _one(axis, "axis", -2) if is_known(axis) else 0
    return _transformed(g, x, length, along, inverse, onesided)


@importer("DFT")
def _dft_before_20(
    g: GraphBuilder, x: Value, length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Value:
    return _transformed(g, x, length, axis, inverse, onesided)


def _transformed(g: GraphBuilder, x: Value, length: Value | None, axis: int, inverse: int, onesided: int) -> Value:
    """The transform of x [..., 1 or 2] along an axis: the last one holds real and imaginary parts."""
    along = axis_of(axis, x.rank)
    if along == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise ModelError(f"the last axis of {x.type} must be real and imaginary parts, another one is transformed")
    size = _points(g, x.shape[along], length, bool(inverse and onesided))
    order = (*(k for k in range(x.rank) if k not in (along, x.rank - 1)), along, x.rank - 1)
    rows = g.op("permute_dims", x, axes=order)
    if (inverse and onesided) or not isinstance(size, int) or not isinstance(x.shape[along], int):
        result = _by_computed_matrix(g, rows, size, bool(inverse), bool(onesided))
    else:
        result = _along_rows(g, rows, size, bool(inverse))
        if onesided:
            result = g.op("slice", result, starts=(0,), ends=(size // 2 + 1,), axes=(-2,))
    return g.op("permute_dims", result, axes=tuple(map(order.index, range(x.rank))))


def _points(g: GraphBuilder, length: Dim, wanted: Value | None, is_real: bool) -> Dim:
    """The transform's number of points: as given, else from the number of elements, or of frequencies of a real signal."""
    if wanted is None:
        size = dims.multiply(dims.add(length, -1), 2) if is_real else length
    else:
        (size,) = g.sizes(wanted, "lengths")
    if isinstance(size, int) and size < 1:
        raise ModelError(f"a transform of {size} points")
    return size


def _along_unknown(
    g: GraphBuilder, x: Value, length: Value | None, axis: Value, inverse: bool, onesided: bool
) -> Value:
    """The transform along an axis known only at run time, of x as [before, along, behind, parts]."""
    number, count = whole_number(g, axis), x.rank - 1
    parts = g.constant(x.rank, DType.int64)  # counted from the end, axes count the last one too
    number = g.op("where", g.op("less", number, g.constant(0, DType.int64)), g.op("add", number, parts), number)
    at = Axis(g, number, g.from_dims(x.shape[:-1]), count)
    seen = g.op("reshape", x, shape=(*at.sizes(), x.shape[-1]))
    made = _transformed(g, seen, length, 1, int(inverse), int(onesided))
    return g.op("reshape", made, shape=(*g.sizes(at.replaced(made.shape[1]), "sizes"), made.shape[-1]))


def _by_computed_matrix(g: GraphBuilder, x: Value, size: Dim, inverse: bool, onesided: bool) -> Value:
    """The transform of x [..., points, 1 or 2] of a number of points known only at run time: a product with a matrix that the
    program computes. The inverse of one side, of real numbers, gives these alone: [..., size, 1]."""
    *outer, points, parts = x.shape
    is_real = inverse and onesided
    half = dims.add(dims.floordiv(size, 2), 1)
    bins = half if onesided and not inverse else size
    long = whole_number(g, size)
    rows = g.op("expand_dims", numbered(g, points), axes=(1,))
    turns = g.op("remainder", g.op("multiply", rows, numbered(g, bins)), long)

    def real(value: Value) -> Value:
        return g.op("cast", value, dtype=DType.float64)

    angles = g.op("divide", g.op("multiply", real(turns), g.constant(2 * math.pi, DType.float64)), real(long))
    weight = real(g.op("less", rows, whole_number(g, half if is_real else size)))  # what lies after is left out
    if is_real:  # all frequencies but the first, and the middle one, stand for two
        twice = g.op("multiply", rows, g.constant(2, DType.int64))
        is_single = g.op("logical_or", g.op("equal", twice, g.constant(0, DType.int64)), g.op("equal", twice, long))
        weight = g.op("multiply", weight, g.op("where", is_single, *(g.constant(k, DType.float64) for k in (1, 2))))
    weight = g.op("divide", weight, real(long)) if inverse else weight
    cosine, sine = (g.op("multiply", g.op(name, angles), weight) for name in ("cos", "sin"))
    ahead, back = (sine, g.op("negative", sine)) if inverse else (g.op("negative", sine), sine)
    lines: Sequence[tuple[Value, ...]] = [(cosine, ahead), (back, cosine)][: int(parts)]  # type: ignore[arg-type]
    lines = [line[:1] for line in lines] if is_real else lines
    wide = g.op("stack", *(g.op("stack", *line, axis=2) for line in lines), axis=1)
    wide = g.op(
        "cast",
        g.op("reshape", wide, shape=(dims.multiply(points, parts), dims.multiply(bins, len(lines[0])))),
        dtype=x.dtype,
    )
    flat = g.op("reshape", x, shape=(*outer, dims.multiply(points, parts)))
    return g.op("reshape", g.op("matmul", flat, wide), shape=(*outer, bins, len(lines[0])))


def _along_rows(g: GraphBuilder, x: Value, size: int, inverse: bool) -> Value:
    """The transform of x [..., points, 1 or 2], with zeros after it or without its end, to [..., size, 2]."""
    divisor = next((k for k in range(math.isqrt(size), _LEAST - 1, -1) if size % k == 0), 1)
    if size > _MOST and divisor > 1:
        return _in_two(g, _of_size(g, x, size), divisor, size // divisor, inverse)
    *outer, points, parts = x.shape
    used = min(size, int(points))  # type: ignore[arg-type]
    x = g.op("slice", x, starts=(0,), ends=(used,), axes=(-2,)) if used != points else x
    matrix = _matrix(size, used, parts == 2, inverse).astype(x.dtype.numpy)
    product = g.op("matmul", g.op("reshape", x, shape=(*outer, used * parts)), constant(matrix))
    return g.op("reshape", product, shape=(*outer, size, 2))


def _matrix(size: int, used: int, is_complex: bool, inverse: bool) -> np.ndarray:
    """[parts of `used` points, parts of all frequencies], in which parts vary fastest."""
    turns = np.outer(np.arange(used), np.arange(size)) % size / size
    factors = np.exp((2j if inverse else -2j) * np.pi * turns) / (size if inverse else 1)
    rows = [factors, 1j * factors] if is_complex else [factors]
    matrix = np.stack([np.stack([row.real, row.imag], -1) for row in rows], 1)
    return matrix.reshape(used * len(rows), size * 2)


def _of_size(g: GraphBuilder, x: Value, size: int) -> Value:
    """x [..., points, parts] cut or padded to `size` points."""
    points = int(x.shape[-2])  # type: ignore[arg-type]
    if points < size:
        return g.op("pad", x, pads=(*[0] * (2 * x.rank - 2), size - points, 0))
    return g.op("slice", x, starts=(0,), ends=(size,), axes=(-2,)) if points > size else x


def _in_two(g: GraphBuilder, x: Value, first: int, second: int, inverse: bool) -> Value:
    """Points second · j + k, first along j, then along k; to frequencies l + first · m."""
    *outer, _, parts = x.shape
    rank, size = len(outer), first * second
    swapped = (*range(rank), rank + 1, rank, rank + 2)
    x = g.op("permute_dims", g.op("reshape", x, shape=(*outer, first, second, parts)), axes=swapped)
    x = _along_rows(g, x, first, inverse)
    turns = np.outer(np.arange(second), np.arange(first)) / size
    x = _multiplied(g, x, np.exp((2j if inverse else -2j) * np.pi * turns))
    x = _along_rows(g, g.op("permute_dims", x, axes=swapped), second, inverse)
    return g.op("reshape", g.op("permute_dims", x, axes=swapped), shape=(*outer, size, 2))


def _multiplied(g: GraphBuilder, x: Value, factors: np.ndarray) -> Value:
    """Complex numbers, times constant ones."""
    real, imaginary = g.ops("split", x, axis=-1, sizes=(1, 1))
    a, b = (constant(part[..., None].astype(x.dtype.numpy)) for part in (factors.real, factors.imag))

    def sum_of(operator: str, one: Value, other: Value) -> Value:
        return g.op(operator, g.op("multiply", real, one), g.op("multiply", imaginary, other))

    return g.op("concat", sum_of("subtract", a, b), sum_of("add", b, a), axis=-1)


@importer("STFT")
def _stft(
    g: GraphBuilder,
    x: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
    *,
    onesided: int = 1,
) -> Value:
    """x [N, points, 1 or 2] to [N, windows, frequencies, 2]."""
    x = g.op("expand_dims", x, axes=(2,)) if x.rank == 2 else x
    if x.rank != 3 or x.shape[2] not in (1, 2) or (window is None and length is None):
        raise ModelError(f"expected a signal [N, points, parts] and a window or its length, got {x.type}")
    size = window.shape[0] if length is None else _points(g, 0, length, False)  # type: ignore[union-attr]
    if not isinstance(size, int) or not is_known(step):
        return _by_frames(g, x, step, window, size, bool(onesided))
    parts, bins = x.shape[2], size // 2 + 1 if onesided else size
    matrix = _matrix(size, size, parts == 2, inverse=False).reshape(size, parts, size, 2)[:, :, :bins]
    weights = constant(np.ascontiguousarray(matrix.transpose(2, 3, 1, 0), x.dtype.numpy))
    if window is not None:
        weights = g.broadcast("multiply", weights, window)
    weights = g.op("reshape", weights, shape=(2 * bins, parts, size))
    signal = g.op("permute_dims", x, axes=(0, 2, 1))
    result = g.op("permute_dims", g.op("conv", signal, weights, strides=(_one(step, "step"),)), axes=(0, 2, 1))
    return g.op("reshape", result, shape=(*result.shape[:2], bins, 2))


def _by_frames(g: GraphBuilder, x: Value, step: Value, window: Value | None, size: Dim, onesided: bool) -> Value:
    """The same of a step, or a length, known only at run time: [N, windows, size, parts], each window transformed."""
    stride, long = whole_number(g, step), whole_number(g, size)
    room = g.op("subtract", whole_number(g, x.shape[1]), long)
    counted = g.op("add", g.op("floor_divide", room, stride), g.constant(1, DType.int64))
    (count,) = g.sizes(vector(g, counted), "windows")
    starts = g.op("expand_dims", g.op("multiply", numbered(g, count), stride), axes=(1,))
    frames = g.op("take", x, g.op("add", starts, numbered(g, size)), axis=1)
    if window is not None:
        frames = g.op("multiply", frames, g.op("expand_dims", g.checked(window, (size,)), axes=(1,)))
    result = (
        _by_computed_matrix(g, frames, size, False, False)
        if not isinstance(size, int)
        else _along_rows(g, frames, size, False)
    )
    bins = dims.add(dims.floordiv(size, 2), 1)
    return g.op("slice", result, starts=(0,), ends=(bins,), axes=(2,)) if onesided else result


@importer("MelWeightMatrix")
def _mel_weights(
    g: GraphBuilder,
    bands: Value,
    length: Value,
    rate: Value,
    lowest: Value,
    highest: Value,
    *,
    output_datatype: int = 1,
) -> Value:
    """[frequencies, bands]: overlapping triangles, as wide as each other on the mel scale."""
    if not is_known(bands, length, rate) or None in (lowest.constant, highest.constant):
        return _mel_weights_of_a_run(g, bands, length, rate, lowest, highest, element_type(output_datatype))
    count, size, samples = (_one(value, "sizes") for value in (bands, length, rate))
    edges = (scalar(value.constant, "an edge") for value in (lowest, highest) if value.constant is not None)
    low, high = (2595 * math.log10(1 + edge / 700) for edge in edges)
    mels = low + np.arange(count + 2) * (high - low) / (count + 2)
    places = ((size + 1) * 700 * (10 ** (mels / 2595) - 1) // samples).astype(np.int64)
    begin, middle, end = places[:-2], places[1:-1], places[2:]
    bins = np.arange(size // 2 + 1)[:, None]
    rising = np.where(middle > begin, (bins - begin) / np.maximum(middle - begin, 1), 1)
    falling = (end - bins) / np.maximum(end - middle, 1)
    is_rising, is_falling = (bins >= begin) & (bins <= middle), (bins >= middle) & (bins < end)
    weights = np.where(is_falling, falling, np.where(is_rising, rising, 0))
    return g.op("cast", g.constant(weights, DType.float64), dtype=element_type(output_datatype))


def _mel_weights_of_a_run(
    g: GraphBuilder, bands: Value, length: Value, rate: Value, lowest: Value, highest: Value, dtype: DType
) -> Value:
    count, bins = g.sizes(
        vector(g, whole_number(g, bands), g.op("floor_divide", whole_number(g, length), g.constant(2, DType.int64))),
        "sizes",
    )

    def real(value: Value | float) -> Value:
        return (
            g.op("cast", g.op("reshape", value, shape=()), dtype=DType.float64)
            if isinstance(value, Value)
            else number(value)
        )

    def number(value: float) -> Value:
        return g.constant(value, DType.float64)

    def mel(edge: Value) -> Value:
        grown = g.op("add", g.op("divide", real(edge), number(700)), number(1))
        return g.op("multiply", g.op("log", grown), number(2595 / math.log(10)))

    low, high, edges = mel(lowest), mel(highest), dims.add(count, 2)
    step = g.op("divide", g.op("subtract", high, low), real(whole_number(g, edges)))
    mels = g.op("add", g.op("multiply", g.op("cast", numbered(g, edges), dtype=DType.float64), step), low)
    grown = g.op("exp", g.op("multiply", mels, number(math.log(10) / 2595)))
    hertz = g.op("multiply", g.op("subtract", grown, number(1)), number(700))
    points = g.op("add", real(whole_number(g, length)), number(1))
    places = g.op("floor", g.op("divide", g.op("multiply", hertz, points), real(whole_number(g, rate))))

    def part(first: int) -> Value:
        return g.checked(g.op("slice", places, starts=(first,), ends=(dims.add(count, first),)), (count,))

    begin, middle, end = map(part, range(3))
    line = g.op("cast", numbered(g, dims.add(bins, 1)), dtype=DType.float64)
    line, one = g.op("expand_dims", line, axes=(1,)), number(1)
    climb, fall = g.op("subtract", middle, begin), g.op("subtract", end, middle)
    rising = g.op("divide", g.op("subtract", line, begin), g.op("maximum", climb, one))
    rising = g.op("where", g.op("greater", climb, number(0)), rising, one)
    falling = g.op("divide", g.op("subtract", end, line), g.op("maximum", fall, one))
    is_rising = g.op("logical_and", g.op("greater_equal", line, begin), g.op("less_equal", line, middle))
    is_falling = g.op("logical_and", g.op("greater_equal", line, middle), g.op("less", line, end))
    weights = g.op("where", is_falling, falling, g.op("where", is_rising, rising, number(0)))
    return g.op("cast", weights, dtype=dtype)


def _one(value: Value | None, what: str, default: int = 0) -> int:
    numbers = integers_of(value, what)
    if numbers is None:
        return default
    if len(numbers) != 1:
        raise ModelError(f"its {what} must be one number, got {len(numbers)}")
    return numbers[0]
