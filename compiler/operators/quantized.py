"""Operators on quantised tensors: integers q that stand for (q - zero point) · scale, and products of 8-bit ones with exact
int32 sums, which wrap around as int32 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import TensorType
from .linear import conv, infer_conv, infer_matmul
from .shapes import FLOAT32, broadcast, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register
from .windows import GROUPS, WINDOW
from .work import of_convolution, of_product

_BYTES = frozenset({DType.int8, DType.uint8})
_NARROW = _BYTES | {DType.int16, DType.uint16}  # what floats become; float32 holds them all
_SUMS = frozenset({DType.int32, DType.float32})
STEPS = 255  # of a range
FACTS = 2  # words behind a row of codes, or a column of bytes, by which their sums become float32
LEAST = float(np.finfo(np.float32).tiny)  # scale, whose reciprocal is finite

# ---- to integers and back ----


def _infer_quantize(inputs: Sequence[TensorType]) -> TensorType:
    x, scale, zero = inputs
    same_dtype([x, scale], FLOAT32)
    require(zero, _NARROW)
    return TensorType(zero.dtype, broadcast(x.shape, scale.shape, zero.shape))


def _quantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    limits = np.iinfo(zero.dtype)
    whole = np.rint(x / scale) + zero.astype(np.float32)
    return np.where(whole > limits.min, np.minimum(whole, limits.max), limits.min).astype(zero.dtype)


def _infer_dequantize(inputs: Sequence[TensorType]) -> TensorType:
    x, scale, zero = inputs
    require(scale, FLOAT32)
    same_dtype([x, zero], _NARROW | {DType.int32})
    return TensorType(DType.float32, broadcast(x.shape, scale.shape, zero.shape))


def _dequantize(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    wide = np.int32 if x.dtype.itemsize < 4 else x.dtype
    return np.subtract(x, zero, dtype=wide).astype(np.float32) * scale


# ---- floats in uint8, by their own range ----


def range_of(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest of the elements along these axes and 0; NaN where not all are finite."""
    is_finite = np.isfinite(x).all(axis=axes, keepdims=True)
    ends = (each.reduce(x, axis=axes, initial=0, keepdims=True) for each in (np.fmin, np.fmax))
    low, high = (np.where(is_finite, end + np.float32(0), np.float32(np.nan)) for end in ends)
    return low, high


def facts_of(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point, as floats, of a range."""
    with np.errstate(all="ignore"):
        scale = np.maximum(high / np.float32(STEPS) - low / np.float32(STEPS), np.float32(LEAST))
        return scale, np.rint(np.float32(0) - low * (np.float32(1) / scale))


def codes_of(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """The uint8 of numbers: their places in the range, from its zero point."""
    with np.errstate(all="ignore"):
        codes = np.rint(x * (np.float32(1) / scale)) + zero
    return np.where(codes > 0, np.minimum(codes, STEPS), 0).astype(np.uint8)


# ---- products ----


def _check_operands(operands: Sequence[TensorType], zeros: Sequence[TensorType]) -> None:
    """Both operands are of 8 bits, and zero points broadcast to them."""
    for operand in operands:
        require(operand, _BYTES)
    for operand, zero in zip(operands, zeros):  # noqa: B905  (there may be fewer zero points)
        if zero.dtype is not operand.dtype or broadcast(operand.shape, zero.shape) != operand.shape:
            raise mismatch(f"zero points for {operand}", zero)


def _centred(x: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    """The operand less its zero point in float64: sums below 2**37 products are exact, and faster than NumPy's integers."""
    return x.astype(np.float64) - (0 if zero is None else zero.astype(np.float64))


def as_int32(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums).astype(np.int64).astype(np.int32)


def _infer_matmul_integer(inputs: Sequence[TensorType]) -> TensorType:
    _check_operands(inputs[:2], inputs[2:])
    product = infer_matmul([TensorType(DType.int32, type_.shape) for type_ in inputs[:2]])
    return TensorType(DType.int32, product.shape)


def matmul_integer(
    a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None = None, b_zero: np.ndarray | None = None
) -> np.ndarray:
    return as_int32(np.matmul(_centred(a, a_zero), _centred(b, b_zero)))


# ---- convolutions ----


def _infer_conv_integer(inputs: Sequence[TensorType], dtype: DType, **attributes: Any) -> TensorType:
    _check_operands(inputs[:2], inputs[2:])
    if dtype not in _SUMS:
        raise mismatch("sums in int32 or float32", dtype.name)
    result = infer_conv([TensorType(DType.float32, type_.shape) for type_ in inputs[:2]], **attributes)
    return TensorType(dtype, result.shape)


def _conv_integer(
    x: np.ndarray,
    weight: np.ndarray,
    x_zero: np.ndarray | None = None,
    weight_zero: np.ndarray | None = None,
    *,
    dtype: DType,
    **attributes: Any,
) -> np.ndarray:
    return as_int32(conv(_centred(x, x_zero), _centred(weight, weight_zero), **attributes)).astype(dtype.numpy)


# fmt: off
register("conv_integer", "x weight x_zero? weight_zero?", _infer_conv_integer, _conv_integer, Fusion.ANCHOR,
         "convolution of 8-bit integers less their zero points, as conv; pads are such points", attributes=WINDOW | {
             **GROUPS, "dtype": Attribute(Kind.DTYPE, "of the sums, int32 or float32", DType.int32)}, work=of_convolution)
register("quantize", "x scale zero", _infer_quantize, _quantize, Fusion.ELEMENTWISE,
         "x / scale rounded to even, plus the zero point, the nearest integer of its type; the least one for NaN")
register("dequantize", "x scale zero", _infer_dequantize, _dequantize, Fusion.ELEMENTWISE,
         "(x - zero) * scale, in float32; int32 wraps around")
register("matmul_integer", "a b a_zero? b_zero?", _infer_matmul_integer, matmul_integer, Fusion.ANCHOR,
         "the matrix product of 8-bit integers less their zero points, in int32", work=of_product)
# fmt: on
