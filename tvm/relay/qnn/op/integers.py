"""Sums and products of integers that stand for real numbers: exact products, as int32, and arithmetic with a scale of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....compiler.builder.programs import Expression, constant, field, op
from .....formats.dtypes import DType
from .....formats.types import TupleType
from ...op.convolution import _plain_weight, pads
from ...op.layouts import transformed
from ...op.table import Tensor, Tensors, operator, pair, rank_of, type_of
from ...ty import dtype_name
from .scales import along, cast, current_requantize_config, is_zero, kept_in, rescaled

# ---- products ----


def _exact(
    product: Callable[..., Expression],
    product_of_bytes: Callable[..., Expression],
    a: Expression,
    b: Expression,
    a_zero: Expression,
    b_zero: Expression,
    b_axis: int,
    out_dtype: str,
) -> Expression:
    """A product of a - a_zero and b - b_zero: of bytes without zero points by the operator for them, else in float64, which is
    exact up to 2 to the 53. The second's zero points are one for all, or one for each place along an axis."""
    if type_of(a).dtype.itemsize == type_of(b).dtype.itemsize == 1 and is_zero(a_zero) and is_zero(b_zero):
        return cast(product_of_bytes(a, b), DType[dtype_name(out_dtype)])
    left = op.subtract(cast(a, DType.float64), cast(along(a_zero, a, -1), DType.float64))
    right = op.subtract(cast(b, DType.float64), cast(along(b_zero, b, b_axis), DType.float64))
    return op.cast(product(left, right), dtype=DType[dtype_name(out_dtype)])


def _turned(x: Expression) -> Expression:
    rank = rank_of(x)
    return op.permute_dims(x, axes=[*range(rank - 2), rank - 1, rank - 2])


@operator("qnn.dense")
def dense(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Tensor,
    kernel_zero_point: Tensor,
    input_scale: Tensor,
    kernel_scale: Tensor,
    units: int | None = None,
    out_dtype: str = "int32",
) -> Expression:
    """data · weightᵀ in units of both scales' product."""
    return _exact(
        op.matmul, op.matmul_integer, data, _turned(weight), input_zero_point, kernel_zero_point, -1, out_dtype
    )


@operator("qnn.batch_matmul")
def batch_matmul(
    x: Tensor,
    y: Tensor,
    x_zero_point: Tensor,
    y_zero_point: Tensor,
    x_scale: Tensor,
    y_scale: Tensor,
    out_dtype: str = "int32",
) -> Expression:
    """x · yᵀ, one product a batch, in units of both scales' product."""
    return _exact(op.matmul, op.matmul_integer, x, _turned(y), x_zero_point, y_zero_point, -1, out_dtype)


@operator("qnn.conv2d")
def conv2d(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Tensor,
    kernel_zero_point: Tensor,
    input_scale: Tensor,
    kernel_scale: Tensor,
    kernel_size: Any = None,
    channels: int | None = None,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> Expression:
    """Convolution in units of both scales' product; the edges are filled with the zero point."""
    data = transformed(data, data_layout, "NCHW")
    weight = transformed(weight, kernel_layout, "OIHW")
    attributes: dict[str, Any] = {
        "strides": pair(strides, 2),
        "pads": pads(padding, 2),
        "dilations": pair(dilation, 2),
        "groups": int(groups),
    }

    def plain(
        b: Expression,
    ) -> Expression:  # behind the subtraction of zero points, one for each of TVM's output channels
        return _plain_weight(data, b, groups, kernel_layout, "HW")

    result = _exact(
        lambda a, b: op.conv(a, plain(b), **attributes),
        lambda a, b: op.conv_integer(a, plain(b), **attributes),
        data,
        weight,
        input_zero_point,
        kernel_zero_point,
        0,
        out_dtype,
    )
    return transformed(result, "NCHW", out_layout or data_layout)


@operator("qnn.conv2d_transpose")
def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    input_zero_point: Tensor,
    kernel_zero_point: Tensor,
    input_scale: Tensor,
    kernel_scale: Tensor,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Any = (0, 0),
    out_dtype: str = "int32",
) -> Expression:
    """The transpose of convolution in units of both scales' product."""
    data, weight = transformed(data, data_layout, "NCHW"), transformed(weight, kernel_layout, "IOHW")

    def product(a: Expression, b: Expression) -> Expression:
        return op.conv_transpose(
            cast(a, DType.float64),
            cast(b, DType.float64),
            strides=pair(strides, 2),
            pads=pads(padding, 2),
            dilations=pair(dilation, 2),
            groups=int(groups),
            output_padding=pair(output_padding, 2),
        )

    result = _exact(product, product, data, weight, input_zero_point, kernel_zero_point, 1, out_dtype)
    return transformed(result, "NCHW", out_layout or data_layout)


# ---- arithmetic ----


def _none() -> Expression:
    return constant(0, "int32")


def _sum(name: str, combine: Callable[[Expression, Expression], Expression], summary: str) -> Callable[..., Any]:
    @operator(f"qnn.{name}", summary=summary)
    def apply(
        lhs: Tensor,
        rhs: Tensor,
        lhs_scale: Tensor,
        lhs_zero_point: Tensor,
        rhs_scale: Tensor,
        rhs_zero_point: Tensor,
        output_scale: Tensor,
        output_zero_point: Tensor,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Expression:
        rounding = current_requantize_config().rounding
        left = rescaled(lhs, lhs_scale, lhs_zero_point, output_scale, _none(), lhs_axis, rounding)
        right = rescaled(rhs, rhs_scale, rhs_zero_point, output_scale, _none(), rhs_axis, rounding)
        zero = cast(along(output_zero_point, left, lhs_axis), DType.float64)
        return kept_in(op.add(combine(left, right), zero), type_of(lhs).dtype)

    return apply


add = _sum("add", op.add, "Sums, each operand rounded to the result's scale.")
subtract = _sum("subtract", op.subtract, "Differences, each operand rounded to the result's scale.")


@operator("qnn.mul")
def mul(
    lhs: Tensor,
    rhs: Tensor,
    lhs_scale: Tensor,
    lhs_zero_point: Tensor,
    rhs_scale: Tensor,
    rhs_zero_point: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> Expression:
    """Products of numbers, rounded once to the result's scale."""
    left = op.subtract(cast(lhs, DType.float64), cast(along(lhs_zero_point, lhs, lhs_axis), DType.float64))
    right = op.subtract(cast(rhs, DType.float64), cast(along(rhs_zero_point, rhs, rhs_axis), DType.float64))
    exact, scale = op.multiply(left, right), op.multiply(lhs_scale, rhs_scale)
    rounding = current_requantize_config().rounding
    whole = rescaled(exact, scale, _none(), output_scale, output_zero_point, lhs_axis, rounding)
    return kept_in(whole, type_of(lhs).dtype)


@operator("qnn.concatenate")
def concatenate(
    data: Tensors,
    input_scales: Tensors,
    input_zero_points: Tensors,
    output_scale: Tensor,
    output_zero_point: Tensor,
    axis: int,
) -> Expression:
    """Tensors one after the other, each requantized to the result's scale and zero point."""
    several = zip(_fields(data), _fields(input_scales), _fields(input_zero_points), strict=True)
    rounding = current_requantize_config().rounding
    parts = [
        kept_in(rescaled(x, scale, zero, output_scale, output_zero_point, axis, rounding), type_of(x).dtype)
        for x, scale, zero in several
    ]
    return op.concat(*parts, axis=axis)


def _fields(values: Any) -> list[Expression]:
    """The fields of a tuple, or of a list of one."""
    if isinstance(values, (list, tuple)):
        return list(values)
    assert isinstance(values.type, TupleType)
    return [field(values, index) for index in range(len(values.type.fields))]
