"""Functions of the real numbers that integers stand for, as integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....compiler.builder.programs import Expression, op
from ...op.nn import softmax as _softmax  # noqa: F401  registers the operators that `_of_table` finds
from ...op.pooling import avg_pool2d as _avg_pool2d  # noqa: F401
from ...op.table import TABLE, Tensor, operator, type_of
from .scales import dequantized, quantized


def _unary(name: str, function: Callable[[Expression], Expression]) -> Callable[..., Any]:
    @operator(f"qnn.{name}", summary=f"{name}(x) of the real numbers that x stands for, as integers.")
    def apply(
        x: Tensor, scale: Tensor, zero_point: Tensor, output_scale: Tensor, output_zero_point: Tensor
    ) -> Expression:
        real = function(dequantized(x, scale, zero_point, -1))
        return quantized(real, output_scale, output_zero_point, -1, type_of(x).dtype)

    return apply


tanh, exp, sqrt, rsqrt = (
    _unary("tanh", op.tanh),
    _unary("exp", op.exp),
    _unary("sqrt", op.sqrt),
    _unary("rsqrt", op.rsqrt),
)
erf, abs, sigmoid, log = (
    _unary("erf", op.erf),
    _unary("abs", op.abs),
    _unary("sigmoid", op.sigmoid),
    _unary("log", op.log),
)


@operator("qnn.hardswish")
def hardswish(
    x: Tensor, scale: Tensor, zero_point: Tensor, output_scale: Tensor, output_zero_point: Tensor
) -> Expression:
    """x · min(max(x + 3, 0), 6) / 6 of the real numbers that x stands for, as integers."""
    real = dequantized(x, scale, zero_point, -1)
    real = op.divide(op.multiply(real, op.clip(op.add(real, 3.0), min=0.0, max=6.0)), 6.0)
    return quantized(real, output_scale, output_zero_point, -1, type_of(x).dtype)


@operator("qnn.leaky_relu")
def leaky_relu(
    x: Tensor,
    alpha: float,
    input_scale: Tensor,
    input_zero_point: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
) -> Expression:
    """The real number where it is positive, else alpha times it, as integers."""
    real = op.leaky_relu(dequantized(x, input_scale, input_zero_point, -1), alpha=float(alpha))
    return quantized(real, output_scale, output_zero_point, -1, type_of(x).dtype)


@operator("qnn.softmax")
def softmax(
    x: Tensor, scale: Tensor, zero_point: Tensor, output_scale: Tensor, output_zero_point: Tensor, axis: int = -1
) -> Expression:
    """Exponentials along an axis, of sum 1, as integers."""
    real = TABLE["nn.softmax"].function(dequantized(x, scale, zero_point, -1), axis=axis)
    return quantized(real, output_scale, output_zero_point, -1, type_of(x).dtype)


@operator("qnn.avg_pool2d")
def avg_pool2d(
    data: Tensor,
    input_scale: Tensor,
    input_zero_point: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    pool_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
) -> Expression:
    """Means of windows of the real numbers, as integers."""
    real = TABLE["nn.avg_pool2d"].function(
        dequantized(data, input_scale, input_zero_point, -1),
        pool_size=pool_size,
        strides=strides,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        layout=layout,
        out_layout=out_layout,
    )
    return quantized(real, output_scale, output_zero_point, -1, type_of(data).dtype)
