"""Importers of operators on quantised tensors: integers q that stand for (q - zero point) · scale.

They are imported as floats that are made of integers; `passes/integer_products.py` sees which ones need not be floats. Where ONNX
wants a sum as an int32, it is the exact one.
"""

from __future__ import annotations

from typing import Any

from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of
from ..table import importer
from ..tensors import element_type
from ..values import GraphBuilder, Value
from .elementwise import converted
from .networks import convolution, convolved, product

_NARROW = frozenset({DType.int8, DType.uint8, DType.int16, DType.uint16})  # which float32 holds


@importer("QuantizeLinear")
def quantize_linear(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    dtype = element_type(output_dtype) if output_dtype else DType.uint8
    if zero_point is not None:
        dtype = zero_point.dtype
    inner = element_type(precision) if precision else scale.dtype
    x, scale = _cast(g, x, inner), _cast(g, _spread(g, scale, x, axis, block_size), inner)
    zero = _zero(g, _computed(g, zero_point), x, axis, block_size)
    if dtype.is_float:
        steps = g.broadcast("divide", x, scale)
        if zero is not None:
            steps = g.broadcast("add", steps, _cast(g, zero, inner))
        return converted(g, steps, dtype, bool(saturate))
    whole = _quantized(g, x, scale, zero, dtype.computed)
    if dtype.computed is dtype:
        return whole
    least, greatest = dtype.bounds
    return g.op("cast", g.op("clip", whole, min=least, max=greatest), dtype=dtype)


def _computed(g: GraphBuilder, x: Value | None) -> Value | None:
    """Elements of types that are only stored, as those of types that are computed with. Constants at once, whatever their size:
    products are made of such weights' integers."""
    if x is None or x.dtype.is_numpys:
        return x
    if x.constant is None:
        return g.op("cast", x, dtype=x.dtype.computed)
    return g.constant(x.constant, x.dtype.computed)


@importer("DequantizeLinear")
def dequantize_linear(
    g: GraphBuilder,
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    x = _computed(g, x)  # type: ignore[assignment]
    zero = _zero(g, _computed(g, zero_point), x, axis, block_size)
    result = _dequantized(g, x, _spread(g, scale, x, axis, block_size), zero)
    return _cast(g, result, element_type(output_dtype)) if output_dtype else result


def _quantized(g: GraphBuilder, x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """x / scale, rounded to even, plus the zero point, kept in the range of the integers."""
    if x.dtype is DType.float32 and dtype in _NARROW:
        return g.broadcast("quantize", x, scale, zero or g.constant(0, dtype))
    whole = g.op("round", g.broadcast("divide", x, scale))
    if zero is not None:
        whole = g.broadcast("add", whole, _cast(g, zero, whole.dtype))
    return g.op("cast", whole, dtype=dtype)


def _dequantized(g: GraphBuilder, x: Value, scale: Value, zero: Value | None) -> Value:
    if scale.dtype is DType.float32 and x.dtype in _NARROW | {DType.int32}:
        return g.broadcast("dequantize", x, scale, zero or g.constant(0, x.dtype))
    return g.broadcast("multiply", _centred(g, x, zero, scale.dtype), scale)


def _centred(g: GraphBuilder, x: Value, zero: Value | None, dtype: DType) -> Value:
    """x minus its zero point. Integers of 32 bits are subtracted as such: a float32 does not hold them all."""
    if zero is None:
        return _cast(g, x, dtype)
    if x.dtype.itemsize < DType.int32.itemsize:
        return g.broadcast("subtract", _cast(g, x, dtype), _cast(g, zero, dtype))
    return _cast(g, g.broadcast("subtract", x, zero), dtype)


def _cast(g: GraphBuilder, x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else g.op("cast", x, dtype=dtype)


def _zero(g: GraphBuilder, zero_point: Value | None, x: Value, axis: int, block_size: int = 0) -> Value | None:
    """The zero points as they broadcast with x; None if all are 0."""
    if zero_point is None or (zero_point.constant is not None and not zero_point.constant.any()):
        return None
    return _spread(g, zero_point, x, axis, block_size)


def _spread(g: GraphBuilder, parameter: Value, x: Value, axis: int, block_size: int = 0) -> Value:
    """Scales or zero points, one for all, for each place along an axis, or for each block of places, to broadcast with x.

    One for all is a tensor of one element, not a scalar: that would be a number in a kernel's text, which then served no other.
    """
    if parameter.rank == 0 or parameter.shape == (1,):
        return g.op("reshape", parameter, shape=(1,) * min(x.rank, 1))
    along = axis_of(axis, x.rank)
    if not block_size:
        if parameter.rank != 1:
            raise ModelError(f"expected one number for each place along axis {axis}, got {parameter.type}")
        return g.op("expand_dims", parameter, axes=tuple(range(1, x.rank - along)))
    if parameter.rank != x.rank:
        raise ModelError(f"expected one number for each block of {x.type}, got {parameter.type}")
    before, count, behind = parameter.shape[:along], parameter.shape[along], parameter.shape[along + 1 :]
    apart = g.op("reshape", parameter, shape=(*before, count, 1, *behind))
    repeated = g.op("broadcast_to", apart, shape=(*before, count, block_size, *behind))
    whole = g.op("reshape", repeated, shape=(*before, dims.multiply(count, block_size), *behind))
    return g.op("slice", whole, starts=(0,), ends=(x.shape[along],), axes=(along,))


# ---- products of integers ----


@importer("MatMulInteger")
def matmul_integer(
    g: GraphBuilder, a: Value, b: Value, a_zero: Value | None = None, b_zero: Value | None = None
) -> Value:
    return product(g, a, b, *_zeros(g, _of_rows(g, a_zero), a, _zero(g, b_zero, b, -1), b), operator="matmul_integer")


def _zeros(g: GraphBuilder, a_zero: Value | None, a: Value, b_zero: Value | None, b: Value) -> list[Value]:
    """The existing zero points of two operands; zeros for the first one's where only the other has some."""
    a_zero, b_zero = (z if z is None else g.repeated_to(z, x) for z, x in ((a_zero, a), (b_zero, b)))
    if b_zero is None:
        return [] if a_zero is None else [a_zero]
    return [a_zero or g.constant(0, a.dtype), b_zero]


def _of_rows(g: GraphBuilder, parameter: Value | None) -> Value | None:
    """Scales or zero points of a product's left operand: one for all, or one a row."""
    if parameter is None or parameter.rank != 1:
        return parameter
    return g.op("reshape", parameter, shape=() if parameter.shape == (1,) else (parameter.shape[0], 1))


@importer("QLinearMatMul")
def _qlinear_matmul(
    g: GraphBuilder,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    a_scale, a_zero, row_scale, row_zero = (_of_rows(g, p) for p in (a_scale, a_zero, y_scale, y_zero))  # type: ignore[assignment]
    assert row_scale is not None
    left = _dequantized(g, a, a_scale, a_zero)
    right = _dequantized(g, b, _of_columns(g, b_scale, b), _of_columns(g, b_zero, b))
    return _quantized(g, product(g, left, right), row_scale, row_zero, y_zero.dtype)


def _of_columns(g: GraphBuilder, parameter: Value, b: Value) -> Value:
    return parameter if parameter.rank > 1 else _spread(g, parameter, b, -1)


# ---- convolutions of integers ----


@importer("ConvInteger", attributes_of=convolved)
def _conv_integer(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    **window: Any,
) -> Value:
    zeros = _zeros(g, _zero(g, x_zero, x, 0), x, _zero(g, weight_zero, weight, 0), weight)
    return convolved(g, "conv_integer", x, weight, *zeros, **window)


@importer("QLinearConv", attributes_of=convolved)
def qlinear_conv(
    g: GraphBuilder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    weight_scale: Value,
    weight_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    **window: Any,
) -> Value:
    """The bias counts in units of both scales' product."""
    signal = _dequantized(g, x, _spread(g, x_scale, x, 0), _zero(g, x_zero, x, 0))
    kernel = _dequantized(g, weight, _spread(g, weight_scale, weight, 0), _zero(g, weight_zero, weight, 0))
    if bias is not None:
        unit = g.broadcast("multiply", _spread(g, x_scale, bias, 0), _spread(g, weight_scale, bias, 0))
        bias = g.broadcast("multiply", _cast(g, bias, unit.dtype), unit)
    result = convolution(g, signal, kernel, bias, **window)
    return _quantized(g, result, _spread(g, y_scale, result, 0), _zero(g, y_zero, result, 0), y_zero.dtype)
