"""Importers of onnxruntime's own operators on quantised tensors, as its tools write them into models: float operators between
operands that are dequantised and a result that is quantised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from . import onnx_networks as networks
from .onnx_quantized import dequantize_linear, quantize_linear
from .onnx_shapes import concatenated
from .onnx_table import importer
from .onnx_values import GraphBuilder, UnsupportedError, Value

_DOMAIN = "com.microsoft"
_FLATTENS = 13  # opset from which on softmax no longer takes all axes from one on

importer("QuantizeLinear", domain=_DOMAIN)(quantize_linear)
importer("DequantizeLinear", domain=_DOMAIN)(dequantize_linear)


def _binary(name: str, operator: str) -> None:
    @importer(name, domain=_DOMAIN)
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

    @importer(name, domain=_DOMAIN, attributes_of=function)
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


@importer("QLinearAveragePool", domain=_DOMAIN, attributes_of=networks.average_pool)
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


@importer("QLinearConcat", domain=_DOMAIN)
def _concat(g: GraphBuilder, scale: Value, zero: Value, *triples: Value, axis: int) -> Value:
    """Each tensor is followed by its scale and zero point."""
    groups = zip(triples[::3], triples[1::3], triples[2::3], strict=True)
    tensors = [dequantize_linear(g, *group) for group in groups]
    return _quantized(g, concatenated(g, *tensors, axis=axis), scale, zero, zero.dtype)


@importer("QGemm", domain=_DOMAIN)
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
        unit = g.op("multiply", unit, g.constant(np.float32(alpha))) if alpha != 1 else unit
        bias = g.broadcast("multiply", g.op("cast", c, dtype=unit.dtype), unit)
        result = g.broadcast("add", result, bias)
    return result if scale is None else _quantized(g, result, scale, zero, a.dtype)


def _as_vector(g: GraphBuilder, scale: Value) -> Value:
    return scale if scale.rank else g.op("reshape", scale, shape=(1,))
