"""Matrix products and convolutions. Floats are accumulated in double precision in the references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.messages.errors import ExecutionError
from ...formats.metering import look, spans
from ...formats.types import ShapeDim, TensorType
from .shapes import (
    FLOAT,
    NUMERIC,
    Shape,
    broadcast,
    integer,
    lift,
    match_dim,
    mismatch,
    require,
    require_rank,
    same_dtype,
    text,
)
from .table import Attribute, Fusion, Kind, register
from .windows import GROUPS, WINDOW, Axis, axes, padded, result_shape, static_shape, taps
from .work import of_convolution, of_product, of_transposed_convolution

_OUTPUT_PADDING = Attribute(Kind.INTS, "elements added at the end of each axis of the result; None: 0", None)

# ---- matmul ----


def infer_matmul(inputs: Sequence[TensorType], int8_rows: bool = False) -> TensorType:
    """The type of a product of tensors of one numeric type, with as many columns of a as rows of b."""
    a, b = inputs
    dtype = same_dtype(inputs, NUMERIC)
    if not a.rank or not b.rank:
        raise mismatch("tensors of rank 1 at least", f"{a} and {b}")
    inner = b.shape[-2] if b.rank > 1 else b.shape[0]
    try:
        match_dim(a.shape[-1], inner)
    except TypeError:
        raise mismatch(f"{a.shape[-1]} rows in b, as many as a has columns", f"{a} and {b}") from None
    rows = a.shape[-2:-1] if a.rank > 1 else ()
    columns = b.shape[-1:] if b.rank > 1 else ()
    return TensorType(dtype, broadcast(a.shape[:-2], b.shape[:-2]) + rows + columns)


def matmul(a: np.ndarray, b: np.ndarray, int8_rows: bool = False) -> np.ndarray:
    """NumPy's product; sums of floats in float64, rounded once. Rows that may be narrow are not."""
    if a.dtype.kind != "f":
        return np.matmul(a, b)
    return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)


# ---- convolution ----


def _divided(channels: ShapeDim, groups: int) -> ShapeDim:
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise mismatch(f"channels that {groups} groups divide", channels)
    return lift(lambda channels: dims.floordiv(channels, groups), channels)


def _check_conv(inputs: Sequence[TensorType], channels_in: ShapeDim, weight_axis: int, out: ShapeDim) -> None:
    """Checks of both convolutions: ranks, element types, input channels, bias."""
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, FLOAT)
    if x.rank < 3 or weight.rank != x.rank:
        raise mismatch("x [N, C, *spatial] and weights of the same rank", f"{x} and {weight}")
    try:
        match_dim(channels_in, weight.shape[weight_axis])
    except TypeError:
        raise mismatch(f"{channels_in} channels on axis {weight_axis} of the weights for {x}", weight) from None
    if len(inputs) > 2:
        require_rank(inputs[2], 1, "a bias")
        match_dim(out, inputs[2].shape[0])


def infer_conv(inputs: Sequence[TensorType], groups: int, **window: tuple) -> TensorType:
    """The type of a convolution of [N, C, *spatial] by [M, C / groups, *window]: [N, M, *spatial]."""
    x, weight = inputs[0], inputs[1]
    if x.rank < 3 or weight.rank != x.rank:
        raise mismatch("x [N, C, *spatial] and weights of the same rank", f"{x} and {weight}")
    _divided(weight.shape[0], groups)
    _check_conv(inputs, _divided(x.shape[1], groups), 1, weight.shape[0])
    windows = axes(weight.shape[2:], **window)
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:], windows)))


def conv(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, groups: int, **window: tuple
) -> np.ndarray:
    """The convolution of [N, C, *spatial] by [M, C / groups, *window]; sums in float64, rounded once."""
    windows = axes(weight.shape[2:], **window)
    counts = static_shape(x.shape[2:], windows)
    inputs = padded(x.astype(np.float64), windows, counts, 0)
    by_group: Any = _grouped(inputs, 1, groups)
    weights: Any = _grouped(weight.astype(np.float64), 0, groups)
    result = np.zeros((x.shape[0], groups, weights.shape[1], math.prod(counts)))
    for place, elements in taps(by_group, windows, counts):
        result += weights[(..., *place)] @ elements.reshape(*elements.shape[:3], math.prod(counts))
    return _with_bias(result.reshape(x.shape[0], weight.shape[0], *counts), bias).astype(x.dtype)


def _grouped(x: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """x with an axis split in two: groups, and their members."""
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def _with_bias(result: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return result if bias is None else result + bias.reshape(-1, *[1] * (result.ndim - 2))


# ---- transposed convolution ----


def _transposed_shape(spatial: Shape, windows: Sequence[Axis], output_padding: Sequence[int] | None) -> Shape:
    """The input size of a convolution with these windows: their total extent, less the pads."""
    extra = output_padding or (0,) * len(spatial)
    if len(extra) != len(spatial) or any(more < 0 for more in extra):
        raise mismatch(f"{len(spatial)} output paddings of at least 0", text(extra))

    def size(axis: Axis, more: int, length: ShapeDim) -> ShapeDim:
        removed = dims.add(more, dims.multiply(dims.add(axis.begin, axis.end), -1))
        return lift(
            lambda length, extent: dims.add(
                dims.add(dims.multiply(dims.add(length, -1), axis.stride), extent), removed
            ),
            length,
            axis.extent,
        )

    return tuple(map(size, windows, extra, spatial))


def _infer_conv_transpose(
    inputs: Sequence[TensorType], groups: int, output_padding: tuple, **window: tuple
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    if x.rank < 3 or weight.rank != x.rank:
        raise mismatch("x [N, C, *spatial] and weights of the same rank", f"{x} and {weight}")
    _divided(x.shape[1], groups)
    channels = lift(lambda each: dims.multiply(each, groups), weight.shape[1])
    _check_conv(inputs, x.shape[1], 0, channels)
    windows = axes(weight.shape[2:], **window)
    return TensorType(x.dtype, (x.shape[0], channels, *_transposed_shape(x.shape[2:], windows, output_padding)))


def _conv_transpose(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    groups: int,
    output_padding: tuple,
    **window: tuple,
) -> np.ndarray:
    windows = axes(weight.shape[2:], **window)
    spatial = tuple(map(integer, _transposed_shape(x.shape[2:], windows, output_padding)))
    by_group: Any = _grouped(x.astype(np.float64), 1, groups)
    weights: Any = _grouped(weight.astype(np.float64), 0, groups)
    whole = [size + integer(axis.begin) + integer(axis.end) for size, axis in zip(spatial, windows, strict=True)]
    canvas = np.zeros((x.shape[0], groups, weight.shape[1], *whole))
    for place, target in taps(canvas, windows, x.shape[2:]):  # each target is a view of the canvas
        target += np.einsum("ngc...,gcm->ngm...", by_group, weights[(..., *place)])
    inside = [
        slice(integer(axis.begin), integer(axis.begin) + size) for size, axis in zip(spatial, windows, strict=True)
    ]
    result: Any = canvas.reshape(x.shape[0], groups * weight.shape[1], *whole)
    result = result[(..., *inside)]
    return _with_bias(result, bias).astype(x.dtype)


# fmt: off
register("matmul", "a b", infer_matmul, matmul, Fusion.ANCHOR,
         "the matrix product, batched and broadcast as NumPy's", work=of_product,
         attributes={"int8_rows": Attribute(Kind.BOOL, "whether rows may be rounded to int8 where they meet integers", False)})
register("conv", "x weight bias?", infer_conv, conv, Fusion.ANCHOR,
         "convolution of x [N, C, *spatial] with weights [M, C / groups, *kernel], plus a bias [M]",
         attributes=WINDOW | GROUPS, work=of_convolution)
register("conv_transpose", "x weight bias?", _infer_conv_transpose, _conv_transpose, Fusion.ANCHOR,
         "the transpose (gradient) of convolution: x [N, C, *spatial], weights [C, M / groups, *kernel], a bias [M]",
         attributes=WINDOW | GROUPS | {"output_padding": _OUTPUT_PADDING}, work=of_transposed_convolution)
# fmt: on


def _infer_determinant(inputs: Sequence[TensorType]) -> TensorType:
    (x,) = inputs
    require(x, FLOAT)
    if x.rank < 2:
        raise mismatch("matrices", x)
    match_dim(x.shape[-1], x.shape[-2])
    return TensorType(x.dtype, x.shape[:-2])


def _determinant(x: np.ndarray) -> np.ndarray:
    size = x.shape[-1]
    matrices = x.reshape(math.prod(x.shape[:-2]), size, size)
    made = np.empty(len(matrices), np.float64)
    if size <= _BLOCK:
        for span in spans(len(matrices), max(1, _BLOCK**2 // max(1, size**2))):
            made[span] = np.linalg.det(matrices[span].astype(np.float64))
    else:
        for number, matrix in enumerate(matrices):
            made[number] = _determinant_of_large(matrix.astype(np.float64))
    return made.reshape(x.shape[:-2]).astype(x.dtype)


_ROWS = 1 << 10  # rows updated at once
_BLOCK = 64  # columns eliminated before the others are updated


def _determinant_of_large(matrix: np.ndarray) -> float:
    """The determinant by blocked Gaussian elimination with partial pivoting, in place: LAPACK's is one call, which holds the
    GIL in some versions of NumPy (Golub and Van Loan, Matrix Computations, 3.2.11)."""
    sign = 1.0
    for begin in range(0, len(matrix), _BLOCK):
        end = min(begin + _BLOCK, len(matrix))
        for at in range(begin, end):
            pivot = at + int(np.argmax(np.abs(matrix[at:, at])))
            if pivot != at:
                matrix[[at, pivot]] = matrix[[pivot, at]]
                sign = -sign
            if matrix[at, at] == 0:
                return 0.0
            matrix[at + 1 :, at] /= matrix[at, at]
            matrix[at + 1 :, at + 1 : end] -= np.outer(matrix[at + 1 :, at], matrix[at, at + 1 : end])
        for at in range(begin, end):
            matrix[at, end:] -= matrix[at, begin:at] @ matrix[begin:at, end:]
        for span in spans(len(matrix) - end, _ROWS):
            rest = slice(end + span.start, end + span.stop)
            matrix[rest, end:] -= matrix[rest, begin:end] @ matrix[begin:end, end:]
        look()
    diagonal = np.diagonal(matrix)
    return float(sign * np.prod(np.sign(diagonal)) * np.exp(np.sum(np.log(np.abs(diagonal)))))


register(
    "determinant", "x", _infer_determinant, _determinant, Fusion.OPAQUE, "of the matrices that the last two axes are"
)


def _infer_solve(inputs: Sequence[TensorType]) -> TensorType:
    a, b = inputs
    dtype = same_dtype(inputs, FLOAT)
    if a.rank < 2 or a.rank != b.rank:
        raise mismatch("matrices [..., n, n] and right-hand sides [..., n, m]", f"{a} and {b}")
    for mine, other in zip((*a.shape[:-2], a.shape[-1], a.shape[-2]), (*b.shape[:-1], b.shape[-2]), strict=True):
        match_dim(mine, other)
    return TensorType(dtype, b.shape)


def _solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(a.astype(np.float64), b.astype(np.float64)).astype(b.dtype)
    except np.linalg.LinAlgError:
        raise ExecutionError(f"a system of {a.shape[-1]} linear equations whose matrix is singular") from None


register(
    "solve", "a b", _infer_solve, _solve, Fusion.OPAQUE, "x [..., n, m] of which the product a [..., n, n] times x is b"
)
