"""Importers of what audio models begin with: Fourier transforms, of a whole axis or of windows along it, and mel weights.

A transform is a product with a constant matrix; one of a long axis is two of shorter ones, with factors between them (Cooley,
Tukey, 1965). Windows along a signal are a convolution's.
"""

from __future__ import annotations

import math

import numpy as np

from ...formats.dtypes import DType
from ...formats.errors import ModelError
from ..operators.shapes import axis_of
from .onnx_shapes import integers_of
from .onnx_table import importer
from .onnx_tensors import element_type
from .onnx_values import GraphBuilder, UnsupportedError, Value, constant, scalar

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
    return _transformed(g, x, length, _one(axis, "axis", -2), inverse, onesided)


@importer("DFT")
def _dft_before_20(
    g: GraphBuilder, x: Value, length: Value | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Value:
    return _transformed(g, x, length, axis, inverse, onesided)


def _transformed(g: GraphBuilder, x: Value, length: Value | None, axis: int, inverse: int, onesided: int) -> Value:
    """The transform of x [..., 1 or 2] along an axis: the last one holds real and imaginary parts."""
    along = axis_of(axis, x.rank)
    if along == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise ModelError(f"the last axis of {x.type} is to be real and imaginary parts, another one is transformed")
    if inverse and onesided:
        raise UnsupportedError("an inverse transform of one side")
    size = x.shape[along] if length is None else _one(length, "length")
    if not isinstance(size, int) or not isinstance(x.shape[along], int):
        raise UnsupportedError("its length depends on the sizes of the inputs")
    if size < 1:
        raise ModelError(f"a transform of {size} points")
    order = (*(k for k in range(x.rank) if k not in (along, x.rank - 1)), along, x.rank - 1)
    result = _along_rows(g, g.op("permute_dims", x, axes=order), size, bool(inverse))
    if onesided:
        result = g.op("slice", result, starts=(0,), ends=(size // 2 + 1,), axes=(-2,))
    return g.op("permute_dims", result, axes=tuple(map(order.index, range(x.rank))))


def _along_rows(g: GraphBuilder, x: Value, size: int, inverse: bool) -> Value:
    """The transform of x [..., points, 1 or 2], with zeros behind it or without its end, to [..., size, 2]."""
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
    """[parts of so many points, parts of all frequencies], in which parts vary fastest."""
    turns = np.outer(np.arange(used), np.arange(size)) % size / size
    factors = np.exp((2j if inverse else -2j) * np.pi * turns) / (size if inverse else 1)
    rows = [factors, 1j * factors] if is_complex else [factors]
    matrix = np.stack([np.stack([row.real, row.imag], -1) for row in rows], 1)
    return matrix.reshape(used * len(rows), size * 2)


def _of_size(g: GraphBuilder, x: Value, size: int) -> Value:
    """x [..., points, parts] with so many points."""
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
        raise ModelError(f"a signal [N, points, parts] and a window or its length are needed, but {x.type} came")
    size = _one(length, "length") if length is not None else window.shape[0]  # type: ignore[union-attr]
    if not isinstance(size, int) or size < 1:
        raise UnsupportedError("its length depends on the sizes of the inputs")
    parts, bins = x.shape[2], size // 2 + 1 if onesided else size
    matrix = _matrix(size, size, parts == 2, inverse=False).reshape(size, parts, size, 2)[:, :, :bins]
    weights = constant(np.ascontiguousarray(matrix.transpose(2, 3, 1, 0), x.dtype.numpy))
    if window is not None:
        weights = g.broadcast("multiply", weights, window)
    weights = g.op("reshape", weights, shape=(2 * bins, parts, size))
    signal = g.op("permute_dims", x, axes=(0, 2, 1))
    result = g.op("permute_dims", g.op("conv", signal, weights, strides=(_one(step, "step"),)), axes=(0, 2, 1))
    return g.op("reshape", result, shape=(*result.shape[:2], bins, 2))


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
    count, size, samples = (_one(value, "sizes") for value in (bands, length, rate))
    edges = (scalar(_known(value), "an edge") for value in (lowest, highest))
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


def _one(value: Value | None, what: str, default: int = 0) -> int:
    numbers = integers_of(value, what)
    if numbers is None:
        return default
    if len(numbers) != 1:
        raise ModelError(f"its {what} is one number, but {len(numbers)} came")
    return numbers[0]


def _known(value: Value) -> np.ndarray:
    if value.constant is None:
        raise UnsupportedError("its edges are computed at run time")
    return value.constant
