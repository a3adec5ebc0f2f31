"""Importers of onnxruntime's own operators on quantised tensors, as its tools write them into models: float operators between
operands that are dequantised and a result that is quantised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.errors import ModelError
from ..operators.shapes import axis_of
from . import onnx_networks as networks
from .onnx_quantized import dequantize_linear, matmul_integer, quantize_linear
from .onnx_recurrent import lstm
from .onnx_runtime import DOMAIN, check_ranks, times
from .onnx_runtime_attention import FILTER, attention_of_one_product
from .onnx_shapes import concatenated
from .onnx_table import importer
from .onnx_values import GraphBuilder, UnsupportedError, Value, constant

_FLATTENS = 13  # opset from which on softmax no longer takes all axes from one on

importer("QuantizeLinear", domain=DOMAIN)(quantize_linear)
importer("DequantizeLinear", domain=DOMAIN)(dequantize_linear)


def _binary(name: str, operator: str) -> None:
    @importer(name, domain=DOMAIN)
    def _(
        g: GraphBuilder,
        a: Value,
        a_scale: Value,
        a_zero: Value | None,
        b: Value,
        b_scale: Value,
        b_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
    ) -> Value:
        operands = dequantize_linear(g, a, a_scale, a_zero), dequantize_linear(g, b, b_scale, b_zero)
        return _quantized(g, g.broadcast(operator, *operands), scale, zero, a.dtype)


_binary("QLinearAdd", "add")
_binary("QLinearMul", "multiply")


def _quantized(g: GraphBuilder, x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    return quantize_linear(g, x, scale, zero or g.constant(0, dtype))


def _unary(name: str, function: Callable[..., Value]) -> None:
    """Imports an operator of one tensor, whose attributes are those of `function`."""

    @importer(name, domain=DOMAIN, attributes_of=function)
    def _(
        g: GraphBuilder,
        x: Value,
        x_scale: Value,
        x_zero: Value | None,
        scale: Value,
        zero: Value | None = None,
        **attributes: Any,
    ) -> Value:
        result = function(g, dequantize_linear(g, x, x_scale, x_zero), **attributes)
        return _quantized(g, result, scale, zero, x.dtype)


def _sigmoid(g: GraphBuilder, x: Value) -> Value:
    return g.op("sigmoid", x)


def _leaky_relu(g: GraphBuilder, x: Value, *, alpha: float = 0.01) -> Value:
    return g.op("leaky_relu", x, alpha=alpha)


def _softmax(g: GraphBuilder, x: Value, *, axis: int = -1, opset: int) -> Value:
    return (networks.softmax if opset >= _FLATTENS else networks.softmax_before_13)(g, x, axis=axis)


def _global_average_pool(g: GraphBuilder, x: Value, *, channels_last: int = 0) -> Value:
    _check_layout(channels_last)
    return networks.global_average_pool(g, x)


_unary("QLinearSigmoid", _sigmoid)
_unary("QLinearLeakyRelu", _leaky_relu)
_unary("QLinearSoftmax", _softmax)
_unary("QLinearGlobalAveragePool", _global_average_pool)


@importer("QLinearAveragePool", domain=DOMAIN, attributes_of=networks.average_pool)
def _average_pool(
    g: GraphBuilder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    scale: Value,
    zero: Value | None = None,
    *,
    channels_last: int = 0,
    **window: Any,
) -> Value:
    _check_layout(channels_last)
    result = networks.average_pool(g, dequantize_linear(g, x, x_scale, x_zero), **window)
    return _quantized(g, result, scale, zero, x.dtype)


def _check_layout(channels_last: int) -> None:
    if channels_last:
        raise UnsupportedError("images whose channels lie last")


@importer("QLinearConcat", domain=DOMAIN)
def _concat(g: GraphBuilder, scale: Value, zero: Value, *triples: Value, axis: int) -> Value:
    """Each tensor is followed by its scale and zero point."""
    groups = zip(triples[::3], triples[1::3], triples[2::3], strict=True)
    tensors = [dequantize_linear(g, *group) for group in groups]
    return _quantized(g, concatenated(g, *tensors, axis=axis), scale, zero, zero.dtype)


@importer("QGemm", domain=DOMAIN)
def _gemm(
    g: GraphBuilder,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    c: Value | None = None,
    scale: Value | None = None,
    zero: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """Scales of b are those of the result's columns; c counts in units of both scales' product. Without a scale of its own, the
    result is one of floats."""
    columns = 0 if transB else 1
    operands = dequantize_linear(g, a, a_scale, a_zero), dequantize_linear(g, b, b_scale, b_zero, axis=columns)
    result = networks.gemm(g, *operands, alpha=alpha, transA=transA, transB=transB)
    if c is not None:
        unit = g.broadcast("multiply", g.op("reshape", a_scale, shape=(1,)), _as_vector(g, b_scale))
        unit = times(g, unit, alpha)
        bias = g.broadcast("multiply", g.op("cast", c, dtype=unit.dtype), unit)
        result = g.broadcast("add", result, bias)
    return result if scale is None else _quantized(g, result, scale, zero, a.dtype)


def _as_vector(g: GraphBuilder, scale: Value) -> Value:
    return scale if scale.rank else g.op("reshape", scale, shape=(1,))


@importer("MatMulIntegerToFloat", domain=DOMAIN)
def _matmul_integer_to_float(
    g: GraphBuilder,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """The integers' product in units of both scales' product; those of b are one for all, or one a column."""
    product = matmul_integer(g, a, b, a_zero, b_zero)
    unit = g.broadcast("multiply", _as_vector(g, a_scale), _as_vector(g, b_scale))
    result = g.broadcast("multiply", g.op("cast", product, dtype=unit.dtype), unit)
    return result if bias is None else g.broadcast("add", result, bias)


@importer("DynamicQuantizeMatMul", domain=DOMAIN)
def _dynamic_quantize_matmul(
    g: GraphBuilder, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None
) -> Value:
    whole, scale, zero = _dynamically_quantized(g, a)
    return _matmul_integer_to_float(g, whole, b, scale, b_scale, zero, b_zero, bias)


def _dynamically_quantized(g: GraphBuilder, x: Value) -> tuple[Value, Value, Value]:
    """The tensor in 8 bits, its scale and its zero point, as ONNX's DynamicQuantizeLinear has them."""
    nothing, steps = g.constant(0, x.dtype), g.constant(255, x.dtype)
    axes = tuple(range(x.rank))
    least = g.op("minimum", g.op("min", x, axes=axes, keepdims=False), nothing)
    greatest = g.op("maximum", g.op("max", x, axes=axes, keepdims=False), nothing)
    scale = g.op("divide", g.op("subtract", greatest, least), steps)
    place = g.op("subtract", nothing, g.op("divide", least, scale))
    zero = g.op("cast", g.op("round", g.op("clip", place, min=0.0, max=255.0)), dtype=DType.uint8)
    return quantize_linear(g, x, scale, zero), scale, zero


# ---- layers whose weights are quantised ----


@importer("QAttention", domain=DOMAIN)
def _attention(
    g: GraphBuilder,
    x: Value,
    weights: Value,
    bias: Value,
    x_scale: Value,
    weight_scale: Value,
    mask_index: Value | None = None,
    x_zero: Value | None = None,
    weight_zero: Value | None = None,
    past: Value | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = FILTER,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    return attention_of_one_product(
        g,
        dequantize_linear(g, x, x_scale, x_zero),
        dequantize_linear(g, weights, weight_scale, weight_zero, axis=1),
        bias,
        mask_index,
        past,
        num_heads=num_heads,
        do_rotary=do_rotary,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        scale=scale,
        unidirectional=unidirectional,
    )


@importer("DynamicQuantizeLSTM", domain=DOMAIN, attributes_of=lstm)
def _lstm_of_few_bits(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    recurrent: Value,
    bias: Value | None,
    lengths: Value | None,
    hidden: Value | None,
    cell: Value | None,
    peephole: Value | None,
    weight_scale: Value,
    weight_zero: Value,
    recurrent_scale: Value,
    recurrent_zero: Value,
    **attributes: Any,
) -> tuple[Value, ...]:
    """The weights lie transposed to those of LSTM. Inputs and states stay floats, which onnxruntime rounds step by step."""

    def floats(weight: Value, scale: Value, zero: Value) -> Value:
        by_place = (g.op("expand_dims", each, axes=(1,) if each.rank == 2 else (1, 2)) for each in (scale, zero))
        return g.op("permute_dims", g.broadcast("dequantize", weight, *by_place), axes=(0, 2, 1))

    check_ranks(3, W=weight, R=recurrent)
    check_ranks(1, 2, W_scale=weight_scale, W_zero_point=weight_zero)
    check_ranks(1, 2, R_scale=recurrent_scale, R_zero_point=recurrent_zero)
    weights = floats(weight, weight_scale, weight_zero), floats(recurrent, recurrent_scale, recurrent_zero)
    return lstm(g, x, *weights, bias, lengths, hidden, cell, peephole, **attributes)


# ---- weights of a few bits ----

_BITS = (4, 8)


@importer("MatMulNBits", domain=DOMAIN)
def _matmul_n_bits(
    g: GraphBuilder,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,  # what activations may be rounded to: here they are not
) -> Value:
    """a [..., K] times the transposed [N, K] numbers of `bits` bits in b, block_size of which, neighbours in a row, share a scale
    and a zero point. Each row of b and of packed zero points begins with a byte."""
    _check_bits(bits, "weights")
    if min(K, N, block_size) < 1 or block_size * bits % 8:
        raise ModelError(f"K, N and block_size are to be positive, blocks whole bytes, but {K}, {N}, {block_size} came")
    if a.rank == 0 or a.shape[-1] != K:
        raise ModelError(f"a is to have rows of K = {K} elements, but {a.type} came")
    _check_order(g_idx, K, block_size)
    blocks = -(-K // block_size)
    numbers = _constant_numbers(b, bits, (N, blocks, block_size), "b")
    weights = _of_numbers(g, numbers, bits, _of_blocks(g, scales, N, blocks, "scales"), zero_points)
    rows = g.op("reshape", weights, shape=(N, blocks * block_size))
    if blocks * block_size > K:
        rows = g.op("slice", rows, starts=(0,), ends=(K,), axes=(1,))
    result = networks.product(g, g.op("cast", a, dtype=DType.float32), g.op("permute_dims", rows, axes=(1, 0)))
    if bias is not None:
        result = g.broadcast("add", result, g.op("cast", bias, dtype=DType.float32))
    return g.op("cast", result, dtype=a.dtype)


def _of_numbers(g: GraphBuilder, numbers: np.ndarray, bits: int, scale: Value, zero_points: Value | None) -> Value:
    """The floats [rows, blocks, block size] that numbers without sign stand for; without zero points, these are half way."""
    rows, blocks, _ = numbers.shape
    if zero_points is not None and zero_points.dtype.is_float:
        centre = _of_blocks(g, zero_points, rows, blocks, "zero_points")
        centred = g.op("subtract", g.op("cast", constant(numbers), dtype=DType.float32), centre)
        return g.op("multiply", centred, scale)
    points = _points(zero_points, bits, rows, blocks)
    return g.op("dequantize", constant(numbers), scale, g.constant(points[..., np.newaxis]))


def _check_bits(bits: int, what: str) -> None:
    if bits not in _BITS:
        raise UnsupportedError(f"{what} of {bits} bits; Treadle has those of {' and '.join(map(str, _BITS))}")


def _points(zero_points: Value | None, bits: int, rows: int, blocks: int) -> np.ndarray:
    """Packed zero points, an element each; half way where there are none."""
    if zero_points is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    return _constant_numbers(zero_points, bits, (rows, blocks), "zero_points")


def _check_order(g_idx: Value | None, depth: int, block_size: int) -> None:
    """Raises UnsupportedError for blocks that are not neighbours."""
    if g_idx is None:
        return
    order = g_idx.constant
    if order is None or not np.array_equal(order.reshape(-1)[:depth], np.arange(depth) // block_size):
        raise UnsupportedError("g_idx: blocks of weights that are not neighbours")


def _constant_numbers(packed: Value, bits: int, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Constants that are packed into bytes, the first one into the lowest bits, an element each."""
    content = packed.constant
    if content is None:
        raise UnsupportedError(f"{name}: weights that are not constant")
    each = 8 // bits
    size = -(-shape[-1] // each)
    if packed.dtype is not DType.uint8 or content.size != math.prod(shape[:-1]) * size:
        expected = "x".join(map(str, (*shape[:-1], size)))
        raise ModelError(f"{name} is to have {expected} elements of uint8, but {packed.type} came")
    rows = content.reshape(*shape[:-1], size)
    parts = [rows >> (bits * i) & ((1 << bits) - 1) for i in range(each)]
    numbers = np.stack(parts, axis=-1).reshape(*shape[:-1], each * size)[..., : shape[-1]]
    numbers = np.ascontiguousarray(numbers)
    numbers.flags.writeable = False
    return numbers


def _of_blocks(g: GraphBuilder, parameter: Value, rows: int, blocks: int, name: str) -> Value:
    """One number for each block of each row, float32[rows, blocks, 1]."""
    if not parameter.dtype.is_float or math.prod(parameter.shape) != rows * blocks:
        raise ModelError(f"{name} is to have {rows}x{blocks} floats, but {parameter.type} came")
    return g.op("reshape", g.op("cast", parameter, dtype=DType.float32), shape=(rows, blocks, 1))


@importer("GatherBlockQuantized", domain=DOMAIN)
def _gather_block_quantized(
    g: GraphBuilder,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
) -> Value:
    """Rows of a table that is dequantised by blocks along them. Numbers that come as bytes are packed, `bits` each, and their
    zero points, if they have none, half way."""
    if axis_of(gather_axis, data.rank) != 0 or axis_of(quantize_axis, data.rank) != 1 or data.rank != 2:
        raise UnsupportedError(f"gathering along axis {gather_axis} of {data.type}, blocks along axis {quantize_axis}")
    if data.dtype.is_numpys:
        _check_bits(bits, "numbers")
        rows, size = data.shape
        if not isinstance(rows, int) or not isinstance(size, int):
            raise UnsupportedError("data: a table that is not constant")
        columns = size * 8 // bits
        blocks = -(-columns // block_size)
        data = constant(_constant_numbers(data, bits, (rows, columns), "data"))
        zero_points = constant(_points(zero_points, bits, rows, blocks))
    table = dequantize_linear(g, data, scales, zero_points, axis=1, block_size=block_size)
    return g.op("take", table, indices, axis=0)
