"""Elementwise operators: each element of the result from the elements at the same position of the broadcast inputs.

There is no implicit conversion: the inputs of an operator have one element type, except the condition of `where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import ExecutionError
from ...formats.types import TensorType
from .shapes import ANY, BOOL, FLOAT, INTEGER, NUMERIC, SIGNED, broadcast, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register
from .work import no_arithmetic

# ---- inference ----


def _broadcast(
    inputs: Sequence[TensorType], kinds: frozenset[DType], result: DType | None = None, **_: Any
) -> TensorType:
    dtype = same_dtype(inputs, kinds)
    return TensorType(result or dtype, broadcast(*(type_.shape for type_ in inputs)))


def _infer_where(inputs: Sequence[TensorType]) -> TensorType:
    require(inputs[0], BOOL)
    return TensorType(same_dtype(inputs[1:]), broadcast(*(type_.shape for type_ in inputs)))


def _infer_cast(inputs: Sequence[TensorType], dtype: DType) -> TensorType:
    if dtype.is_string or inputs[0].dtype.is_string:
        raise mismatch("numbers (print_numbers and read_numbers are for texts)", f"{inputs[0]} to {dtype.name}")
    return TensorType(dtype, inputs[0].shape)


def _infer_bitcast(inputs: Sequence[TensorType], dtype: DType) -> TensorType:
    (x,) = inputs
    if x.dtype.itemsize != dtype.itemsize or not {DType.bool, DType.string}.isdisjoint((x.dtype, dtype)):
        raise mismatch(f"an element type of as many bytes as {dtype.name}, and no truth values or texts", x)
    return TensorType(dtype, x.shape)


# ---- reference implementations ----


def _in_float64(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The function computed in double precision, its result in the element type of the input."""

    def wrapped(x: np.ndarray, **attributes: Any) -> np.ndarray:
        return np.asarray(function(x.astype(np.float64), **attributes)).astype(x.dtype)

    return wrapped


INTEGER_DIVISIONS = frozenset({"divide", "floor_divide", "remainder", "fmod"})  # fail for integers if the divisor is 0


def _check_divisor(b: np.ndarray) -> None:
    if b.dtype.kind in "iu" and not np.all(b):
        raise ExecutionError("division of an integer by zero")


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.true_divide(a, b)
    _check_divisor(b)
    # floor division, corrected towards zero; -128 / -1 wraps around to -128 in int8, as on the machine
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.floor_divide(a, b) + inexact.astype(a.dtype)


def _checked(function: Callable[..., np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def wrapped(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        _check_divisor(b)
        return function(a, b)

    return wrapped


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "i" or np.all(b >= 0):
        return np.power(a, b)
    magnitude = np.power(a, np.maximum(b, 0))
    parity = np.where(b % 2 == 0, 1, a).astype(a.dtype)
    return np.where(b >= 0, magnitude, np.where(np.abs(a) == 1, parity, 0).astype(a.dtype))


def _infer_clip(inputs: Sequence[TensorType], min: float | None, max: float | None) -> TensorType:
    require(inputs[0], NUMERIC)
    if inputs[0].dtype.is_integer:
        for bound in (min, max):
            if bound is not None and bound != np.floor(bound):
                raise mismatch("whole numbers as bounds of integers", bound)
    return inputs[0]


def _clip(x: np.ndarray, min: float | None, max: float | None) -> np.ndarray:
    wide = DType.of(x.dtype).computed.numpy  # NumPy's maximum of four-bit integers is int8
    clipped = x.astype(wide, copy=False)
    if min is not None:
        clipped = np.maximum(clipped, _bound(min, x.dtype).astype(wide))
    if max is not None:
        clipped = np.minimum(clipped, _bound(max, x.dtype).astype(wide))
    return clipped.astype(x.dtype, copy=False)


def _bound(value: float, dtype: np.dtype) -> np.ndarray:
    """A bound as an element, clamped to the type's range."""
    ours = DType.of(dtype)
    least, greatest = ours.bounds
    if ours.is_float:
        nearest = value if ours.is_numpys else sorted((least, value, greatest))[1]
        return np.asarray(nearest, np.float64).astype(dtype)
    nearest = value if np.isinf(value) else int(value)
    return np.asarray(int(sorted((int(least), nearest, int(greatest)))[1]), dtype)


def _cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    source = DType.of(x.dtype)
    if source.is_float and dtype.is_integer:
        least, greatest = dtype.bounds
        x = x.astype(np.float64)
        whole = np.where(np.isnan(x), 0.0, np.trunc(x))
        low, high = whole < float(least), whole >= float(greatest)
        wide = dtype.computed.numpy
        inside = np.where(low | high, 0.0, whole).astype(wide)
        found = np.select([low, high], [np.asarray(least, wide), np.asarray(greatest, wide)], inside)
        return found.astype(dtype.numpy, copy=False)
    if dtype is DType.bool:
        return x != np.zeros((), x.dtype)
    if not dtype.is_numpys and dtype.is_float:
        x = _to_odd(x) if x.dtype == np.float64 else x.astype(np.float32)
    elif not source.is_numpys:
        x = x.astype(source.computed.numpy)
    return x.astype(dtype.numpy)


def _to_odd(x: np.ndarray) -> np.ndarray:
    """float64 as float32, rounded to odd, so that a further rounding equals a single one: other numbers become the nearer to zero
    of its neighbours, its last bit set."""
    near = x.astype(np.float32)
    bits = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(x))
    exact = (near == x) | np.isnan(x)
    return np.where(exact, near.view(np.uint32), bits.astype(np.uint32) | 1).astype(np.uint32).view(np.float32)


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _hard_sigmoid(x: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return np.clip(alpha * x + beta, 0, 1)


def _hard_swish(x: np.ndarray) -> np.ndarray:
    return x * _hard_sigmoid(x, 1 / 6, 0.5)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.zeros((), x.dtype))


def _leaky_relu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * x, x)


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x < 0, alpha * np.expm1(x), x)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _same(x: np.ndarray, **attributes: Any) -> np.ndarray:
    return x


# ---- the table ----

_alpha = partial(Attribute, Kind.FLOAT, "the slope of the negative part")

# name, what it takes, reference, doc, attributes
UNARY: list[tuple[str, frozenset[DType], Callable[..., np.ndarray], str, dict[str, Attribute]]] = [
    ("negative", SIGNED, np.negative, "-x", {}),
    ("abs", NUMERIC, np.abs, "|x|; the least integer stays itself", {}),
    ("sign", SIGNED, np.sign, "-1, 0 or 1; NaN for NaN", {}),
    ("exp", FLOAT, np.exp, "e to the x", {}),
    ("expm1", FLOAT, np.expm1, "e to the x, minus 1", {}),
    ("log", FLOAT, np.log, "natural logarithm", {}),
    ("log1p", FLOAT, np.log1p, "natural logarithm of 1 + x", {}),
    ("sqrt", FLOAT, np.sqrt, "square root", {}),
    ("rsqrt", FLOAT, _in_float64(lambda x: 1 / np.sqrt(x)), "1 / square root", {}),
    ("reciprocal", FLOAT, np.reciprocal, "1 / x", {}),
    ("square", NUMERIC, np.square, "x times x", {}),
    ("sin", FLOAT, np.sin, "sine of radians", {}),
    ("cos", FLOAT, np.cos, "cosine of radians", {}),
    ("tan", FLOAT, np.tan, "tangent of radians", {}),
    ("asin", FLOAT, np.arcsin, "inverse sine, in radians", {}),
    ("acos", FLOAT, np.arccos, "inverse cosine, in radians", {}),
    ("atan", FLOAT, np.arctan, "inverse tangent, in radians", {}),
    ("sinh", FLOAT, np.sinh, "hyperbolic sine", {}),
    ("cosh", FLOAT, np.cosh, "hyperbolic cosine", {}),
    ("tanh", FLOAT, np.tanh, "hyperbolic tangent", {}),
    ("asinh", FLOAT, np.arcsinh, "inverse hyperbolic sine", {}),
    ("acosh", FLOAT, np.arccosh, "inverse hyperbolic cosine", {}),
    ("atanh", FLOAT, np.arctanh, "inverse hyperbolic tangent", {}),
    ("erf", FLOAT, _in_float64(_erf), "Gauss's error function", {}),
    ("floor", FLOAT, np.floor, "greatest whole number not above x", {}),
    ("ceil", FLOAT, np.ceil, "least whole number not below x", {}),
    ("round", FLOAT, np.rint, "nearest whole number, halves to the even one", {}),
    ("trunc", FLOAT, np.trunc, "whole part, towards zero", {}),
    ("sigmoid", FLOAT, _in_float64(_sigmoid), "1 / (1 + exp(-x))", {}),
    ("hard_sigmoid", FLOAT, _in_float64(_hard_sigmoid), "alpha x + beta, clipped to 0 … 1", {
        "alpha": Attribute(Kind.FLOAT, "slope", 0.2), "beta": Attribute(Kind.FLOAT, "offset", 0.5)}),
    ("relu", SIGNED, _relu, "max(x, 0)", {}),
    ("leaky_relu", FLOAT, _in_float64(_leaky_relu), "x, or alpha x below 0", {"alpha": _alpha(0.01)}),
    ("elu", FLOAT, _in_float64(_elu), "x, or alpha (exp(x) - 1) below 0", {"alpha": _alpha(1.0)}),
    ("gelu", FLOAT, _in_float64(_gelu), "x times the normal distribution's cumulative probability at x", {
        "approximate": Attribute(Kind.STRING, "exact, or by tanh", "none", ("none", "tanh"))}),
    ("silu", FLOAT, _in_float64(lambda x: x * _sigmoid(x)), "x sigmoid(x)", {}),
    ("hard_swish", FLOAT, _in_float64(_hard_swish), "x hard_sigmoid(x, 1/6, 1/2)", {}),
    ("softplus", FLOAT, _in_float64(_softplus), "log(exp(x) + 1)", {}),
    ("softsign", FLOAT, _in_float64(lambda x: x / (1 + np.abs(x))), "x / (1 + |x|)", {}),
    ("mish", FLOAT, _in_float64(lambda x: x * np.tanh(_softplus(x))), "x tanh(softplus(x))", {}),
    ("identity", ANY, _same, "x", {}),
    ("logical_not", BOOL, np.logical_not, "not x", {}),
    ("bitwise_invert", INTEGER, np.invert, "every bit flipped", {}),
]  # fmt: skip

# name, what both take, reference, doc
BINARY: list[tuple[str, frozenset[DType], Callable[..., np.ndarray], str]] = [
    ("add", NUMERIC, np.add, "a + b; integers wrap around"),
    ("subtract", NUMERIC, np.subtract, "a - b; integers wrap around"),
    ("multiply", NUMERIC, np.multiply, "a b; integers wrap around"),
    ("divide", NUMERIC, _divide, "a / b; of integers, towards zero"),
    ("floor_divide", NUMERIC, _checked(np.floor_divide), "the greatest whole number not above a / b"),
    ("remainder", NUMERIC, _checked(np.remainder), "a - b floor(a / b): has the sign of b"),
    ("fmod", NUMERIC, _checked(np.fmod), "a - b trunc(a / b): has the sign of a"),
    ("pow", NUMERIC, _pow, "a to the b; of integers, a fraction is cut off"),
    ("maximum", NUMERIC, np.maximum, "the greater; NaN if one is"),
    ("minimum", NUMERIC, np.minimum, "the lesser; NaN if one is"),
    ("logical_and", BOOL, np.logical_and, "a and b"),
    ("logical_or", BOOL, np.logical_or, "a or b"),
    ("logical_xor", BOOL, np.logical_xor, "a or b, not both"),
    ("bitwise_and", INTEGER, np.bitwise_and, "bits that both have"),
    ("bitwise_or", INTEGER, np.bitwise_or, "bits that one has"),
    ("bitwise_xor", INTEGER, np.bitwise_xor, "bits that only one has"),
    ("shift_left", INTEGER, np.left_shift, "a, shifted left by b bits; 0 if b is too large"),
    (
        "shift_right",
        INTEGER,
        np.right_shift,
        "a, shifted right by b bits with sign extension; all sign if b is too large",
    ),
]

# name, what both take, reference, doc; the result is bool
COMPARISONS: list[tuple[str, frozenset[DType], Callable[..., np.ndarray], str]] = [
    ("equal", ANY, np.equal, "a = b"),
    ("not_equal", ANY, np.not_equal, "a ≠ b"),
    ("less", NUMERIC, np.less, "a < b"),
    ("less_equal", NUMERIC, np.less_equal, "a ≤ b"),
    ("greater", NUMERIC, np.greater, "a > b"),
    ("greater_equal", NUMERIC, np.greater_equal, "a ≥ b"),
]

# name, what it takes, reference, doc; the result is bool
TESTS: list[tuple[str, frozenset[DType], Callable[..., np.ndarray], str]] = [
    ("isnan", FLOAT, np.isnan, "x is not a number"),
    ("isinf", FLOAT, np.isinf, "x is infinite"),
    ("isfinite", FLOAT, np.isfinite, "x is neither infinite nor NaN"),
]

for _name, _kinds, _reference, _doc, _attributes in UNARY:
    _infer = partial(_broadcast, kinds=_kinds)
    register(_name, "x", _infer, _reference, Fusion.ELEMENTWISE, _doc, attributes=_attributes)
for _name, _kinds, _reference, _doc in BINARY:
    register(_name, "a b", partial(_broadcast, kinds=_kinds), _reference, Fusion.ELEMENTWISE, _doc)
for _name, _kinds, _reference, _doc in COMPARISONS:
    _infer = partial(_broadcast, kinds=_kinds, result=DType.bool)
    register(_name, "a b", _infer, _reference, Fusion.ELEMENTWISE, _doc)
for _name, _kinds, _reference, _doc in TESTS:
    _infer = partial(_broadcast, kinds=_kinds, result=DType.bool)
    register(_name, "x", _infer, _reference, Fusion.ELEMENTWISE, _doc)

# fmt: off
register("clip", "x", _infer_clip, _clip, Fusion.ELEMENTWISE,
         "x, not below min, not above max",
         attributes={"min": Attribute(Kind.NUMBER, "lower bound, none if None", None),
                     "max": Attribute(Kind.NUMBER, "upper bound, none if None", None)}, takes_bits=True)
register("where", "condition a b", _infer_where, np.where, Fusion.ELEMENTWISE, "a where the condition holds, else b")
register("cast", "x", _infer_cast, _cast, Fusion.ELEMENTWISE,
         "x in another element type; float to integer is cut off towards zero, kept in range, and 0 for NaN",
         attributes={"dtype": Attribute(Kind.DTYPE, "of the result")}, work=no_arithmetic, takes_bits=True)
register("bitcast", "x", _infer_bitcast, lambda x, dtype: np.array(x, order="C").view(dtype.numpy), Fusion.OPAQUE,
         "the bits of x read as another element type of as many bytes",
         attributes={"dtype": Attribute(Kind.DTYPE, "of the result")}, takes_bits=True)
# fmt: on
