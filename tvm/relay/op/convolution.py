"""`relay.nn`: convolutions over one, two and three axes, their transposes, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from ....formats.types import TensorType
from ..ty import dtype_name
from .layouts import transformed
from .table import Tensor, operator, pair, rank_of, said, type_of

LETTERS = {1: "W", 2: "HW", 3: "DHW"}  # the axes of space


def each(number: int, count: int) -> int | tuple[int, ...]:
    """A default for each axis; of one axis the number."""
    return number if count == 1 else (number,) * count


def pads(padding: Any, count: int) -> tuple[int, ...]:
    """Beginnings, then ends: from one number, one for each axis, or both for each."""
    numbers = pair(padding, count)
    if len(numbers) not in (count, 2 * count):
        raise InferenceError(f"padding {padding!r}: expected 1, {count} or {2 * count} numbers")
    return numbers * 2 if len(numbers) == count else numbers


def window(row: str, count: int, **given: Any) -> dict[str, Any]:
    """Treadle's attributes of a window: what is not the default of the row, or is said."""
    found = said(row, **given)  # TVM's own programs give two numbers of output_padding for one axis
    made = {
        name: pads(value, count) if name == "padding" else pair(value, count)[:count] for name, value in found.items()
    }
    return {_WINDOW.get(name, name): value for name, value in made.items()}


_WINDOW = {"padding": "pads", "dilation": "dilations"}


def _kinds(data: Expression, weight: Expression, out_dtype: str) -> tuple[Expression, Expression, DType, DType | None]:
    """Operands to compute with, the type they have, and what the result is cast to, if anything."""
    own, other = type_of(data).dtype, type_of(weight).dtype
    result = DType[dtype_name(out_dtype)] if out_dtype else own
    if own.is_float:
        wide = result if result.is_float and result.itemsize > own.itemsize else own
        data = data if own is wide else op.cast(data, dtype=wide)
        weight = weight if other is wide else op.cast(weight, dtype=wide)
        return data, weight, wide, None if result is wide else result
    if own.itemsize == 1 and other.itemsize == 1:
        return data, weight, own, None if result is DType.int32 else result
    # sums of products of wider integers: float64 is exact up to 2 to the 53
    return op.cast(data, dtype="float64"), op.cast(weight, dtype="float64"), DType.float64, result


def _convolution(count: int) -> Callable[..., Any]:
    spatial = LETTERS[count]
    ones, zeros = each(1, count), each(0, count)

    @operator(f"nn.conv{count}d", summary=f"Convolution over the axes {spatial}.")
    def convolve(
        data: Tensor,
        weight: Tensor,
        strides: Any = ones,
        padding: Any = zeros,
        dilation: Any = ones,
        groups: int = 1,
        channels: int | None = None,
        kernel_size: Any = None,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"OI{spatial}",
        out_layout: str = "",
        out_dtype: str = "",
    ) -> Expression:
        data = transformed(data, data_layout, f"NC{spatial}")
        weight = _plain_weight(data, transformed(weight, kernel_layout, f"OI{spatial}"), groups, kernel_layout, spatial)
        data, weight, kind, cast_to = _kinds(data, weight, out_dtype)
        attributes = window(f"nn.conv{count}d", count, strides=strides, padding=padding, dilation=dilation)
        attributes["groups"] = int(groups)
        result = (op.conv if kind.is_float else op.conv_integer)(data, weight, **attributes)
        result = result if cast_to is None else op.cast(result, dtype=cast_to)
        return transformed(result, f"NC{spatial}", out_layout or data_layout)

    return convolve


def _plain_weight(data: Expression, weight: Expression, groups: int, layout: str, spatial: str) -> Expression:
    """The weight of a depthwise convolution, channels and how many results each has, as [results, 1, …]."""
    channels, shape = type_of(data).shape[1], type_of(weight).shape
    is_depthwise = layout == f"{spatial}OI" or shape[0] == channels
    if groups > 1 and groups == channels and shape[1] != 1 and is_depthwise:
        return op.reshape(weight, shape=(dims.product(shape[:2]), 1, *shape[2:]))  # type: ignore[arg-type]
    return weight


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))


def _transposed(count: int) -> Callable[..., Any]:
    spatial = LETTERS[count]
    ones, zeros = (1,) * count, (0,) * count

    @operator(f"nn.conv{count}d_transpose", summary=f"The transpose of convolution over the axes {spatial}.")
    def transpose(
        data: Tensor,
        weight: Tensor,
        strides: Any = ones,
        padding: Any = zeros,
        dilation: Any = ones,
        groups: int = 1,
        channels: int | None = None,
        kernel_size: Any = None,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"IO{spatial}",
        out_layout: str = "",
        output_padding: Any = zeros,
        out_dtype: str = "",
    ) -> Expression:
        kernel_layout = "IOW" if kernel_layout == "OIW" else kernel_layout  # TVM takes both for one
        data = transformed(data, data_layout, f"NC{spatial}")
        weight = transformed(weight, kernel_layout, f"IO{spatial}")
        if type_of(data).dtype.is_integer:  # as _kinds has wide integers
            out_dtype = out_dtype or type_of(data).dtype.name
            data, weight = (op.cast(each, dtype="float64") for each in (data, weight))
        data, weight, _, cast_to = _kinds(data, weight, out_dtype)
        sizes = {"strides": strides, "padding": padding, "dilation": dilation, "output_padding": output_padding}
        attributes = window(f"nn.conv{count}d_transpose", count, **sizes)
        result = op.conv_transpose(data, weight, **attributes, groups=int(groups))
        result = result if cast_to is None else op.cast(result, dtype=cast_to)
        return transformed(result, f"NC{spatial}", out_layout or data_layout)

    return transpose


conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_transposed, (1, 2, 3))


def _product(a: Expression, b: Expression, out_dtype: str) -> Expression:
    a, b, kind, cast_to = _kinds(a, b, out_dtype)
    result = (op.matmul if kind.is_float else op.matmul_integer)(a, _fitted(a, b))
    return result if cast_to is None else op.cast(result, dtype=cast_to)


def _fitted(a: Expression, b: Expression) -> Expression:
    """b with as many rows as a has columns: a run checks where that is not known of b alone."""
    known: list[Any] = [x.type.shape if isinstance(x.type, TensorType) else () for x in (a, b)]
    if len(known[1]) < 2 or not known[0] or not isinstance(known[0][-1], int) or isinstance(known[1][-2], int):
        return b
    return programs.match_shape(b, (*known[1][:-2], known[0][-1], known[1][-1]))  # a size that is not known may be 1


def _turned(x: Expression) -> Expression:
    rank = rank_of(x)
    return op.permute_dims(x, axes=[*range(rank - 2), rank - 1, rank - 2])


@operator("nn.matmul")
def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Expression:
    """The product of matrices."""
    a = _turned(tensor_a) if transpose_a else tensor_a
    return _product(a, _turned(tensor_b) if transpose_b else tensor_b, out_dtype)


@operator("nn.dense")
def dense(data: Tensor, weight: Tensor, units: int | None = None, out_dtype: str = "") -> Expression:
    """data · weightᵀ."""
    return _product(data, _turned(weight), out_dtype)


@operator("nn.batch_matmul")
def batch_matmul(
    tensor_a: Tensor, tensor_b: Tensor, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
) -> Expression:
    """Products of matrices, one a batch; the second is transposed by default."""
    a = _turned(tensor_a) if transpose_a else tensor_a
    return _product(a, _turned(tensor_b) if transpose_b else tensor_b, out_dtype)
