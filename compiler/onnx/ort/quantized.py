"""Importers of onnxruntime's own operators on quantised tensors, as its tools write them into models: float operators between
operands that are dequantised and a result that is quantised. Weights of a few bits are in `packed_weights.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....formats.dtypes import DType
from ..operators import networks
from ..operators.quantized import dequantize_linear, matmul_integer, qlinear_conv, quantize_linear
from ..operators.recurrent import lstm, lstm_of_int8
from ..operators.shapes import concatenated
from ..table import importer
from ..values import GraphBuilder, Value
from .attention import FILTER, attention_of_one_product
from .floats import DOMAIN, check_ranks, embed_layer_normalization, times

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
    return _channels_back(g, networks.global_average_pool(g, _channels_first(g, x, channels_last)), channels_last)


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
    floats = dequantize_linear(g, _channels_first(g, x, channels_last), x_scale, x_zero)
    result = networks.average_pool(g, floats, **window)
    return _channels_back(g, _quantized(g, result, scale, zero, x.dtype), channels_last)


@importer("QLinearConv", domain=DOMAIN, attributes_of=networks.convolved)
def _convolution(
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
    *,
    channels_last: int = 0,
    **window: Any,
) -> Value:
    """ONNX's operator, but for images whose channels may lie last; weights [M, C, *window] lie as ever."""
    image = _channels_first(g, x, channels_last)
    others = (weight, weight_scale, weight_zero, y_scale, y_zero, bias)
    result = qlinear_conv(g, image, x_scale, x_zero, *others, **window)
    return _channels_back(g, result, channels_last)


@importer("NhwcMaxPool", domain=DOMAIN, attributes_of=networks.max_pool)
def _max_pool(g: GraphBuilder, x: Value, **window: Any) -> Value:
    pooled = networks.max_pool(g, _channels_first(g, x, 1), **window)
    assert isinstance(pooled, Value)
    return _channels_back(g, pooled, 1)


def _channels_first(g: GraphBuilder, x: Value, channels_last: int) -> Value:
    """An image [N, *sizes, C] as [N, C, *sizes], where its channels lie last."""
    return g.op("permute_dims", x, axes=(0, x.rank - 1, *range(1, x.rank - 1))) if channels_last else x


def _channels_back(g: GraphBuilder, x: Value, channels_last: int) -> Value:
    return g.op("permute_dims", x, axes=(0, *range(2, x.rank), 1)) if channels_last else x


@importer("QLinearWhere", domain=DOMAIN)
def _where(
    g: GraphBuilder,
    condition: Value,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    scale: Value,
    zero: Value,
) -> Value:
    operands = dequantize_linear(g, a, a_scale, a_zero), dequantize_linear(g, b, b_scale, b_zero)
    return _quantized(g, g.broadcast("where", condition, *operands), scale, zero, zero.dtype)


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


@importer("QEmbedLayerNormalization", domain=DOMAIN, attributes_of=embed_layer_normalization)
def _embed_layer_normalization(
    g: GraphBuilder,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None,
    word_scale: Value,
    position_scale: Value,
    segment_scale: Value | None,
    gamma_scale: Value,
    beta_scale: Value,
    word_zero: Value,
    position_zero: Value,
    segment_zero: Value | None,
    gamma_zero: Value,
    beta_zero: Value,
    **attributes: Any,
) -> tuple[Value, ...]:
    """The tables and the normalisation's weights are dequantised, each by one scale."""
    segment_rows = None
    if segment_table is not None and segment_scale is not None:
        segment_rows = dequantize_linear(g, segment_table, segment_scale, segment_zero)
    result, visible, _ = embed_layer_normalization(
        g,
        words,
        segments,
        dequantize_linear(g, word_table, word_scale, word_zero),
        dequantize_linear(g, position_table, position_scale, position_zero),
        segment_rows,
        dequantize_linear(g, gamma, gamma_scale, gamma_zero),
        dequantize_linear(g, beta, beta_scale, beta_zero),
        mask,
        **attributes,
    )
    return result, visible


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
    """The weights lie transposed to those of LSTM. Inputs and states that meet int8 may be rounded to 8 bits, each row by itself:
    onnxruntime rounds those of all sequences together."""

    def floats(weight: Value, scale: Value, zero: Value) -> Value:
        by_place = (g.op("expand_dims", each, axes=(1,) if each.rank == 2 else (1, 2)) for each in (scale, zero))
        return g.op("permute_dims", g.broadcast("dequantize", weight, *by_place), axes=(0, 2, 1))

    check_ranks(3, W=weight, R=recurrent)
    check_ranks(1, 2, W_scale=weight_scale, W_zero_point=weight_zero)
    check_ranks(1, 2, R_scale=recurrent_scale, R_zero_point=recurrent_zero)
    weights = floats(weight, weight_scale, weight_zero), floats(recurrent, recurrent_scale, recurrent_zero)
    may_round = weight.dtype is recurrent.dtype is DType.int8  # all of uint8 less its zero point may not fit int8
    layer = lstm_of_int8 if may_round else lstm
    return layer(g, x, *weights, bias, lengths, hidden, cell, peephole, **attributes)
