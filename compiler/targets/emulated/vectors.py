"""Vectors and scalars of interpreted kernels: their conversions and operators.

A vector is a NumPy array and, where some lanes are made of memory that nobody wrote, which ones: such lanes may be computed with,
as a tail is that is not stored, but no branch, address or scalar may depend on them. Scalars are Python's numbers for int64,
float64 and bool, and for signed integers, which become int64 in any arithmetic; others are a `Scalar`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ....formats.dtypes import DType
from .memory import Fault

Value = Any  # a Vector, a Scalar, or a number
Array = Any  # of NumPy: the lanes of a vector, or one number for all
Function = Callable[..., Any]

WORD = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
_SHOWN_LANES = 8
_SIGN, _MODULUS = 1 << 63, 1 << 64


def wrapped(value: Any) -> Any:
    """A word as 64 bits hold it; anything else as it is."""
    if type(value) is int and not -_SIGN <= value < _SIGN:
        return (value + _SIGN) % _MODULUS - _SIGN
    return value


class Vector:
    """The lanes of a register, and which of them are undefined (None: no lane)."""

    __slots__ = ("array", "undefined")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray, undefined: np.ndarray | None = None) -> None:
        self.array, self.undefined = array, undefined

    def __bool__(self) -> bool:
        raise Fault("a vector decides no branch; any_lane and all_lanes do")

    def __neg__(self) -> Vector:
        return Vector(-self.array, self.undefined)

    def __invert__(self) -> Vector:
        return Vector(~self.array, self.undefined)

    def __repr__(self) -> str:
        shown = [f"{lane:g}" if isinstance(lane, float) else str(lane) for lane in self.array.tolist()]
        if self.undefined is not None:
            shown = ["?" if lost else text for text, lost in zip(shown, self.undefined, strict=True)]
        if len(set(shown)) == 1:
            shown = [f"all {shown[0]}"]
        rest = " …" if len(shown) > _SHOWN_LANES else ""
        return f"{self.array.dtype.name}[{' '.join(shown[:_SHOWN_LANES])}{rest}]"

    def defined(self, what: str) -> np.ndarray:
        """The array, of which a scalar, a branch or an address depends. Raises Fault where a lane is undefined."""
        if self.undefined is not None:
            raise Fault(
                f"{what} depends on lane {int(self.undefined.argmax())}, which is made of memory that nobody wrote"
            )
        return self.array


class Scalar:
    """A scalar that is not an int64, float64 or bool, float32 above all; or any that is undefined."""

    __slots__ = ("number", "undefined")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: np.generic, undefined: bool = False) -> None:
        self.number, self.undefined = number, undefined

    def __bool__(self) -> bool:
        return bool(self.defined("a branch"))

    def __index__(self) -> int:
        """Of what serves as a word: an address, an offset, a count."""
        if self.number.dtype.kind not in "iu":
            raise TypeError(f"{self} is not a word")
        return int(self.defined("a word"))

    def __neg__(self) -> Value:
        return scalar(-self.number, self.undefined)  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"{self.number.dtype.name}({'?' if self.undefined else self.number})"

    def defined(self, what: str) -> np.generic:
        if self.undefined:
            raise Fault(f"{what} depends on a scalar that is made of memory that nobody wrote")
        return self.number


def scalar(number: Array, undefined: bool = False) -> Value:
    """A NumPy scalar as kernels compute with it."""
    kind = number.dtype.kind
    if not undefined and (kind in "ib" or number.dtype == np.float64):
        return number.item()
    return Scalar(number, undefined)


def is_lost(value: Value) -> bool:
    """Whether it is an undefined scalar."""
    return type(value) is Scalar and value.undefined


def united(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


def lost_lanes(value: Value, lanes: int) -> Array | None:
    if type(value) is Vector:
        return value.undefined
    return np.ones(lanes, np.bool_) if is_lost(value) else None


# ---- conversions ----


@cache
def dtype_of(name: str) -> np.dtype:
    """How elements of a type of `formats/dtypes.py` are held here; those of texts are numbers."""
    return np.dtype(np.uint64) if name == "string" else DType[name].numpy


def converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """As astype, but floats beyond an integer's range become its nearest value, and NaN becomes 0."""
    source = array.dtype
    if source == dtype:
        return array
    if source.kind not in "iufb":
        return converted(array.astype(DType.of(source).computed.numpy), dtype)
    if dtype.kind not in "iufb":
        return _narrowed(array, DType.of(dtype))
    if dtype.kind == "b":
        return array != 0
    if dtype == np.float16 and source.kind in "iu":
        return array.astype(np.float32).astype(dtype)
    if source.kind == "f" and dtype.kind in "iu":
        return _rounded_to_zero(array, dtype)
    return array.astype(dtype)


def _rounded_to_zero(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    bounds = np.iinfo(dtype)
    wide = array.astype(np.float64)
    inside = (wide > float(bounds.min)) & (wide < float(bounds.max + 1))  # the end is a power of two, which is exact
    result = np.where(inside, wide, 0.0).astype(dtype)
    beyond = np.where(wide >= float(bounds.max + 1), dtype.type(bounds.max), dtype.type(bounds.min))
    return np.where(inside | np.isnan(wide), result, beyond).astype(dtype)


def _narrowed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """As a type of `ml_dtypes`."""
    if dtype.format is not None:
        return as_float32(array).astype(dtype.numpy)
    if array.dtype.kind == "f":
        array = np.clip(np.where(np.isnan(array), 0, array), *dtype.bounds)
    bits, computed = dtype.value.bits, dtype.computed.numpy
    spare = 8 - bits
    held = (array.astype(np.int64) << spare).astype(computed) >> computed.type(spare)
    return held.astype(dtype.numpy)


def as_float32(array: np.ndarray) -> np.ndarray:
    """On the way to a narrower float. What is not a float32 becomes its neighbour nearer to zero, its last bit set, so that
    rounding again gives what rounding once would."""
    near = array.astype(np.float32)
    if array.dtype != np.float64:
        return near
    bits = near.view(np.uint32)
    bits = np.where(np.abs(near.astype(np.float64)) > np.abs(array), bits - np.uint32(1), bits)
    exact = (near == array) | np.isnan(array)
    return np.where(exact, near.view(np.uint32), bits | np.uint32(1)).astype(np.uint32).view(np.float32)


@lru_cache(maxsize=1 << 12)
def _constant(kind: Any, value: Any, dtype: np.dtype) -> np.generic:
    """A Python number in an element type."""
    number: np.ndarray = np.array([value], np.uint64 if kind is int and value >= _SIGN else kind)
    return converted(number, dtype)[0]


def element(value: Value, dtype: np.dtype) -> np.generic:
    """A scalar in an element type, as it is splatted."""
    if isinstance(value, Scalar):
        number = value.number
        return number if number.dtype == dtype else converted(number.reshape(1), dtype)[0]
    if value == 0:  # 0.0 and -0.0 are one key
        return converted(np.array([value]), dtype)[0]
    kind: Any = type(value)
    return _constant(kind, wrapped(value), dtype)


# ---- operators ----

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def _vector_operators(name: str, function: Function) -> None:
    """Defines an operator between vectors, and between a vector and a scalar, which is splatted."""

    def applied(self: Vector, other: Value) -> Vector:
        a = self.array
        if type(other) is not Vector:
            lost = np.ones(len(a), np.bool_) if is_lost(other) else self.undefined
            return Vector(function(a, element(other, a.dtype)), lost)
        if other.array.dtype != a.dtype:
            raise Fault(f"{name} of {a.dtype} and {other.array.dtype}")
        return Vector(function(a, other.array), united(self.undefined, other.undefined))

    def reflected(self: Vector, other: Value) -> Vector:
        lost = np.ones(len(self.array), np.bool_) if is_lost(other) else self.undefined
        return Vector(function(element(other, self.array.dtype), self.array), lost)

    setattr(Vector, f"__{name}__", applied)
    if name not in _COMPARISONS:  # which Python turns round
        setattr(Vector, f"__r{name}__", reflected)


def _settled(name: str, function: Function, decides: bool) -> None:
    """`&` and `|` of masks: a lane that is `decides` in one operand is defined, whatever the other holds."""
    plain = getattr(Vector, f"__{name}__")

    def applied(self: Vector, other: Value) -> Vector:
        found = plain(self, other)
        if found.undefined is None or found.array.dtype != BOOL:
            return found
        lost = found.undefined.copy()
        for each in (self, other):
            if type(each) is Vector:
                known = each.array == decides
                lost &= ~(known if each.undefined is None else known & ~each.undefined)
        return Vector(found.array, lost if lost.any() else None)

    setattr(Vector, f"__{name}__", applied)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        raise Fault(f"vectors of {a.dtype} have no /; divide is for these")
    return np.true_divide(a, b)


_OPERATORS: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": _divided,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
for _name, _function in _OPERATORS.items():
    _vector_operators(_name, _function)
_settled("and", np.bitwise_and, False)
_settled("or", np.bitwise_or, True)


def _scalar_operators(name: str, function: Function) -> None:
    """Numba's types: float32 with float32 is float32, with anything else float64; integers without sign are uint64. A mix of
    uint64 and int64, which would be float64, is an error here."""

    def typed(a: Scalar, b: Value) -> tuple[Any, Any, bool]:
        lost = a.undefined or is_lost(b)
        other = b.number.dtype if isinstance(b, Scalar) else np.dtype(type(b))
        kinds = {a.number.dtype.kind, other.kind}
        if a.number.dtype == other == np.float32:
            return a.number, b.number, lost
        if "f" in kinds:
            return element(a, np.dtype(np.float64)), element(b, np.dtype(np.float64)), lost
        if kinds == {"u"}:
            return a.number.astype(np.uint64), b.number.astype(np.uint64), lost
        if np.uint64 not in (a.number.dtype, other):
            return a.number.astype(np.int64), element(b, WORD), lost
        raise Fault(f"{name} of {a.number.dtype} and {other} would be float64; convert one")

    def applied(self: Scalar, other: Value) -> Value:
        a, b, lost = typed(self, other)
        return scalar(function(a, b), lost)

    def reflected(self: Scalar, other: Value) -> Value:
        a, b, lost = typed(self, other)
        return scalar(function(b, a), lost)

    setattr(Scalar, f"__{name}__", applied)
    if name not in _COMPARISONS:
        setattr(Scalar, f"__r{name}__", reflected)


for _name, _function in _OPERATORS.items():
    _scalar_operators(_name, np.true_divide if _name == "truediv" else _function)


def divided(a: Value, b: Value) -> Value:
    """`/`: of scalars, in float64, also by 0."""
    if isinstance(a, (Vector, Scalar)) or isinstance(b, (Vector, Scalar)):
        return a / b
    return float(np.float64(a) / np.float64(b))


def quotient(a: int, b: int) -> int:
    """`//` of words: 0 by 0."""
    return wrapped(a // b) if b else 0


def rest(a: int, b: int) -> int:
    """`%` of words: 0 by 0."""
    return a % b if b else 0
