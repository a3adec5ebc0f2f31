"""Elementwise operators, and those that make, join and copy tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats.messages.errors import InferenceError
from ..ty import dtype_name
from . import table
from .dynamic import full_of
from .table import Tensor, Tensors, like, operator, type_of


def _unary(name: str, ours: str = "") -> Callable[..., Any]:
    @operator(name, summary=f"`{name}`, element by element.")
    def apply(data: Tensor) -> Expression:
        return getattr(op, ours or name)(data)

    return apply


def _binary(name: str, ours: str = "") -> Callable[..., Any]:
    @operator(name, summary=f"`{name}`, element by element.")
    def apply(lhs: Tensor, rhs: Tensor) -> Expression:
        return getattr(op, ours or name)(lhs, rhs)

    return apply


log, tan, cos, cosh, sin, sinh = map(_unary, ("log", "tan", "cos", "cosh", "sin", "sinh"))
acos, acosh, asin, asinh, atan, atanh = map(_unary, ("acos", "acosh", "asin", "asinh", "atan", "atanh"))
exp, erf, sqrt, rsqrt, sigmoid, tanh = map(_unary, ("exp", "erf", "sqrt", "rsqrt", "sigmoid", "tanh"))
floor, ceil, trunc, sign, negative = map(_unary, ("floor", "ceil", "trunc", "sign", "negative"))
isnan, isfinite, isinf = map(_unary, ("isnan", "isfinite", "isinf"))
fast_exp, fast_tanh, fast_erf = map(_unary, ("fast_exp", "fast_tanh", "fast_erf"), ("exp", "tanh", "erf"))
abs = _unary("abs")
round = _unary("round")
logical_not = _unary("logical_not")
bitwise_not = _unary("bitwise_not", "bitwise_invert")

add, subtract, multiply, divide = map(_binary, ("add", "subtract", "multiply", "divide"))
floor_divide = _binary("floor_divide")
power = _binary("power", "pow")
mod, trunc_mod = _binary("mod", "fmod"), _binary("trunc_mod", "fmod")
floor_mod = _binary("floor_mod", "remainder")
logical_and, logical_or, logical_xor = map(_binary, ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor"))
equal, not_equal, less, less_equal = map(_binary, ("equal", "not_equal", "less", "less_equal"))
greater, greater_equal, maximum, minimum = map(_binary, ("greater", "greater_equal", "maximum", "minimum"))
right_shift, left_shift = _binary("right_shift", "shift_right"), _binary("left_shift", "shift_left")


@operator("trunc_divide")
def trunc_divide(lhs: Tensor, rhs: Tensor) -> Expression:
    """The quotient, towards zero."""
    quotient = op.divide(lhs, rhs)
    return op.trunc(quotient) if type_of(lhs).dtype.is_float else quotient


@operator("log2")
def log2(data: Tensor) -> Expression:
    """The logarithm to the base 2."""
    return op.multiply(op.log(data), like(data, 1 / math.log(2)))


@operator("log10")
def log10(data: Tensor) -> Expression:
    """The logarithm to the base 10."""
    return op.multiply(op.log(data), like(data, 1 / math.log(10)))


@operator("clip")
def clip(a: Tensor, a_min: float, a_max: float) -> Expression:
    """Elements not below `a_min`, not above `a_max`."""
    whole = not type_of(a).dtype.is_float
    low, high = (int(bound) if whole else float(bound) for bound in (a_min, a_max))
    return op.clip(a, min=low, max=high)


@operator("zeros")
def zeros(shape: Any, dtype: str) -> Expression:
    """Zeros of this shape, which may be a tensor."""
    return full_of(programs.constant(0, dtype_name(dtype)), shape)


@operator("ones")
def ones(shape: Any, dtype: str) -> Expression:
    """Ones of this shape, which may be a tensor."""
    return full_of(programs.constant(1, dtype_name(dtype)), shape)


def filled(data: Expression, value: Expression) -> Expression:
    """`value` in the shape of `data`."""
    data, shape = table.shape_of(data)

    return table.behind("broadcast_to", value, [data], shape=shape)


@operator("zeros_like")
def zeros_like(data: Tensor) -> Expression:
    """Zeros in the shape of `data`."""
    return filled(data, like(data, 0))


@operator("ones_like")
def ones_like(data: Tensor) -> Expression:
    """Ones in the shape of `data`."""
    return filled(data, like(data, 1))


@operator("concatenate")
def concatenate(data: Tensors, axis: int) -> Expression:
    """Tensors joined along an axis."""
    return op.concat(*_agreeing(data, axis), axis=axis)


def _agreeing(data: Sequence[Expression], axis: int) -> list[Expression]:
    """The tensors with one shape but for an axis: a run checks what is not known of their sizes."""
    shapes = [type_of(each).shape for each in data]
    if len({len(shape) for shape in shapes}) != 1:
        return list(data)  # inference names them
    common = [next((size for size in sizes if isinstance(size, int)), sizes[0]) for sizes in zip(*shapes, strict=True)]
    made = []
    for each, shape in zip(data, shapes, strict=True):
        wanted: list[Any] = [
            size if at == axis % len(shape) or isinstance(size, int) else common[at] for at, size in enumerate(shape)
        ]
        made.append(each if wanted == list(shape) else programs.match_shape(each, tuple(wanted)))
    return made


@operator("stack")
def stack(data: Tensors, axis: int) -> Expression:
    """Tensors joined along a new axis."""
    return op.stack(*data, axis=axis)


@operator("copy")
def copy(data: Tensor) -> Expression:
    """The tensor."""
    return op.identity(data)


@operator("device_copy")
def device_copy(data: Tensor, src_device: Any, dst_device: Any) -> Expression:
    """The tensor: there is one device."""
    return op.identity(data)


@operator("shape_of")
def shape_of(data: Tensor, dtype: str = "int32") -> Expression:
    """The shape, as a tensor."""
    return op.cast(op.shape(data), dtype=dtype_name(dtype))


@operator("ndarray_size")
def ndarray_size(data: Tensor, dtype: str = "int32") -> Expression:
    """The number of elements."""
    return op.cast(op.prod(op.shape(data)), dtype=dtype_name(dtype))


@operator("einsum")
def einsum(data: Tensors, equation: str) -> Expression:
    """Einstein's sums, as products and sums of two tensors at a time."""
    inputs, _, result = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not result:
        counts = "".join(terms)
        result = "".join(sorted({letter for letter in counts if counts.count(letter) == 1}))
    letters = result + "".join(sorted(set("".join(terms)) - set(result)))
    if "." in equation or any(len(set(term)) != len(term) for term in terms):
        raise InferenceError(f"the equation {equation!r} has a form that is not supported here")
    product = None
    for tensor, term in zip(data, terms, strict=True):
        order = sorted(range(len(term)), key=lambda axis: letters.index(term[axis]))
        part = op.permute_dims(tensor, axes=order)
        missing = [place for place, letter in enumerate(letters) if letter not in term]
        part = op.expand_dims(part, axes=missing) if missing else part
        product = part if product is None else op.multiply(product, part)
    axes = tuple(range(len(result), len(letters)))
    assert product is not None
    return op.sum(product, axes=axes) if axes else product


@operator("fixed_point_multiply")
def fixed_point_multiply(data: Tensor, multiplier: int, shift: int) -> Expression:
    """data · multiplier · 2 to the (shift - 31), rounded half up."""
    wide = op.multiply(op.cast(data, dtype="int64"), programs.constant(int(multiplier), "int64"))
    places = 31 - int(shift)
    rounded = op.floor_divide(
        op.add(wide, programs.constant(1 << (places - 1), "int64")), programs.constant(1 << places, "int64")
    )
    return op.cast(rounded, dtype=type_of(data).dtype)


def as_array(value: Any) -> np.ndarray:
    """A number or array that an attribute holds."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


__all__ = table.operators_in(globals())
