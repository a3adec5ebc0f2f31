"""The vocabulary of kernels (`compiler/kernels/simd.py`) in NumPy, on memory that checks each access.

A vector is a NumPy array and, where some lanes are made of memory that nobody wrote, which ones: such lanes may be computed with,
as a tail is that is not stored, but no branch, address or scalar may depend on them. Scalars are Python's numbers for int64,
float64 and bool, and for signed integers, which become int64 in any arithmetic; others are a `Scalar`.

Elementary functions are NumPy's in double precision, rounded once; all else gives the bits of native code on a CPU with
fused multiply-add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ..compiler.kernels.kernel import FEW, PART_NANOSECONDS, STREAM_ALIGNMENT
from ..formats.dtypes import DType
from .kernel_memory import MOST_ALIGNMENT, Fault, Memory

Value = Any  # a Vector, a Scalar, or a number
Array = Any  # of NumPy: the lanes of a vector, or one number for all
Function = Callable[..., Any]

_WORD = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)
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
    """A scalar that is no int64, float64 or bool, float32 above all; or any that is undefined."""

    __slots__ = ("number", "undefined")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, number: np.generic, undefined: bool = False) -> None:
        self.number, self.undefined = number, undefined

    def __bool__(self) -> bool:
        return bool(self.defined("a branch"))

    def __index__(self) -> int:
        """Of what serves as a word: an address, an offset, a count."""
        if self.number.dtype.kind not in "iu":
            raise TypeError(f"{self} is no word")
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


def _is_lost(value: Value) -> bool:
    """Whether it is an undefined scalar."""
    return type(value) is Scalar and value.undefined


def _united(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b


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
        return _as_float32(array).astype(dtype.numpy)
    if array.dtype.kind == "f":
        array = np.clip(np.where(np.isnan(array), 0, array), *dtype.bounds)
    bits, computed = dtype.value.bits, dtype.computed.numpy
    spare = 8 - bits
    held = (array.astype(np.int64) << spare).astype(computed) >> computed.type(spare)
    return held.astype(dtype.numpy)


def _as_float32(array: np.ndarray) -> np.ndarray:
    """On the way to a narrower float. What is no float32 becomes its neighbour nearer to zero, its last bit set, so that
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
            lost = np.ones(len(a), np.bool_) if _is_lost(other) else self.undefined
            return Vector(function(a, element(other, a.dtype)), lost)
        if other.array.dtype != a.dtype:
            raise Fault(f"{name} of {a.dtype} and {other.array.dtype}")
        return Vector(function(a, other.array), _united(self.undefined, other.undefined))

    def reflected(self: Vector, other: Value) -> Vector:
        lost = np.ones(len(self.array), np.bool_) if _is_lost(other) else self.undefined
        return Vector(function(element(other, self.array.dtype), self.array), lost)

    setattr(Vector, f"__{name}__", applied)
    if name not in _COMPARISONS:  # which Python turns round
        setattr(Vector, f"__r{name}__", reflected)


def _settled(name: str, function: Function, decides: bool) -> None:
    """`&` and `|` of masks: a lane that is `decides` in one operand is defined, whatever the other holds."""
    plain = getattr(Vector, f"__{name}__")

    def applied(self: Vector, other: Value) -> Vector:
        found = plain(self, other)
        if found.undefined is None or found.array.dtype != _BOOL:
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
        lost = a.undefined or _is_lost(b)
        other = b.number.dtype if isinstance(b, Scalar) else np.dtype(type(b))
        kinds = {a.number.dtype.kind, other.kind}
        if a.number.dtype == other == np.float32:
            return a.number, b.number, lost
        if "f" in kinds:
            return element(a, np.dtype(np.float64)), element(b, np.dtype(np.float64)), lost
        if kinds == {"u"}:
            return a.number.astype(np.uint64), b.number.astype(np.uint64), lost
        if np.uint64 not in (a.number.dtype, other):
            return a.number.astype(np.int64), element(b, _WORD), lost
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


# ---- functions of lanes ----


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    dtype = np.result_type(a, b, c)
    if dtype == np.float64:
        return _fma_of_doubles(a, b, c)
    if dtype != np.float32:
        return a * b + c
    exact = np.multiply(a, b, dtype=np.float64)
    wide = exact + c
    half_way = (wide.view(np.int64) & 0x1FFFFFFF) == 0x10000000  # where rounding twice may differ from rounding once
    if np.count_nonzero(half_way):
        wide = np.where(half_way, _to_odd(exact, np.asarray(c, np.float64)), wide)
    return wide.astype(np.float32)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and what rounding it has lost (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _to_odd(a: Array, b: Array) -> Array:
    """a + b, rounded to the neighbour whose last bit is set where it is no double: rounding that again is rounding once."""
    total, lost = _sum(a, b)
    bits = total.view(np.int64)
    nearer_to_zero = bits - ((lost != 0) & ((lost < 0) == (total > 0)))
    return np.where((lost != 0) & np.isfinite(total), nearer_to_zero | 1, bits).view(np.float64)


def _fma_of_doubles(a: Array, b: Array, c: Array) -> Array:
    """By exact products and sums (Dekker; Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""

    def halves(x: Array) -> tuple[Array, Array]:
        high = x * 134217729.0
        high = high - (high - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    total, lost = _sum(product, c)
    exact = total + _to_odd(np.atleast_1d(lost), np.atleast_1d(low))
    return np.where(np.isfinite(exact), exact, product + c)


def _select(mask: Array, a: Array, b: Array) -> Array:
    return np.where(mask, a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.where((a > b) | (a != a), a, b)


def _minimum(a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b)


def _like(a: Array, number: float) -> np.generic:
    return a.dtype.type(number)


def _rounded(function: Function) -> Function:
    """A function computed in double precision and rounded to the operands' type."""

    def applied(*operands: Array) -> Array:
        return function(*(each.astype(np.float64) for each in operands)).astype(operands[0].dtype)

    return applied


_erfc: Function = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1.0 + e)


def _gelu(x: Array) -> Array:
    return np.where(x == -np.inf, -0.0, 0.5 * x * _erfc(-x * math.sqrt(0.5)).astype(np.float64))


def _gelu_tanh(x: Array) -> Array:
    return x * _sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))


def _mish(x: Array) -> Array:
    return x * np.tanh(np.logaddexp(0.0, x))


def _sign(x: Array) -> Array:
    return np.where(x != x, x, np.where(x < 0, _like(x, -1) if x.dtype.kind != "u" else x, x > 0)).astype(x.dtype)


def _hard_sigmoid(x: Array, alpha: Array, beta: Array) -> Array:
    return _minimum(_like(x, 1), _maximum(_like(x, 0), _fma(x, alpha, beta)))


def _power_half(x: Array) -> Array:
    return np.where(x == -np.inf, np.inf, np.sqrt(x + _like(x, 0))).astype(x.dtype)


def _truncated(a: Array, b: Array) -> Array:
    """The quotient of integers towards zero; a where b is 0, and the least integer divided by -1 is itself."""
    safe = np.where(b == 0, _like(b, 1), b)
    if a.dtype.kind == "u":
        return a // safe
    negated = b == -1
    safe = np.where(negated, _like(b, 1), safe)
    down = a // safe
    towards = down + ((down * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(negated, -a, towards)


def _divide(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else _truncated(a, b)


def _fmod(a: Array, b: Array) -> Array:
    return np.fmod(a, b) if a.dtype.kind == "f" else a - b * _truncated(a, b)


def _remainder(a: Array, b: Array) -> Array:
    left = _fmod(a, b)
    other_sign = (left < 0) ^ (b < 0)
    result = np.where((left != 0) & other_sign, left + b, left)
    return np.where(left == 0, np.copysign(left, b), result) if a.dtype.kind == "f" else result


def _floor_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        left = np.fmod(a, b)
        whole = (a - left) / b
        whole = np.where((left != 0) & ((left < 0) ^ (b < 0)), whole - _like(a, 1), whole)
        nearest = np.floor(whole)
        nearest = np.where(whole - nearest > 0.5, nearest + _like(a, 1), nearest)
        return np.where(b == 0, a / b, nearest)
    whole = _truncated(a, b)
    left = a - b * whole
    return np.where((left != 0) & ((left < 0) ^ (b < 0)), whole - _like(a, 1), whole)


def _shift_left(a: Array, b: Array) -> Array:
    near = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(near, a << np.where(near, b, _like(b, 0)), _like(a, 0))


def _shift_right(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    near = (b >= 0) & (b < bits)
    if a.dtype.kind == "i":
        return a >> np.where(near, b, _like(b, bits - 1))
    return np.where(near, a >> np.where(near, b, _like(b, 0)), _like(a, 0))


def _nibbles(words: Array) -> Array:
    return (words & _like(words, 15)).astype(np.float32) - np.float32(8)


def _dot(total: Array, x: Array, w: Array) -> Array:
    """Adds four products in each lane: bytes of x without sign by bytes of w with one."""
    products = np.ascontiguousarray(x).view(np.uint8).astype(np.int32) * np.ascontiguousarray(w).view(np.int8)
    return total + products.reshape(-1, 4).sum(1, dtype=np.int32)


# Lane by lane: each lane of the result depends on the same lane of the operands. With the bits of native code …
EXACT: dict[str, Function] = {
    "fma": _fma,
    "maximum": _maximum,
    "minimum": _minimum,
    "absolute": np.abs,
    "copysign": np.copysign,
    **{name: getattr(np, name) for name in ("sqrt", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite")},
    "round_even": np.rint,
    "softsign": lambda x: x / (np.abs(x) + _like(x, 1)),
    "relu": lambda x: _maximum(_like(x, 0), x),
    "leaky_relu": lambda x, alpha: np.where(x < 0, x * alpha, x),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x, _like(x, 1 / 6), _like(x, 0.5)),
    "sign": _sign,
    "power_half": _power_half,
    "divide": _divide,
    "fmod": _fmod,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "nibbles": _nibbles,
    "nibbles_512": _nibbles,
    "from_upper_halves": lambda a: (a.astype(np.uint32) << np.uint32(16)).view(np.float32),
    **dict.fromkeys([f"dot_{kind}{bits}" for kind in ("", "pairs_") for bits in (128, 256, 512)] + ["dot_plain"], _dot),
}
# … and with others, where native code has polynomials
ELEMENTARY: dict[str, Function] = {
    **{name: _rounded(getattr(np, name)) for name in ("exp", "expm1", "log", "log1p", "sin", "cos", "tan")},
    **{name: _rounded(getattr(np, name)) for name in ("sinh", "cosh", "tanh")},
    **{f"a{name}": _rounded(getattr(np, f"arc{name}")) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "exp_of_negative": _rounded(np.exp),
    "weight_of": _rounded(np.exp),
    "sigmoid": _rounded(_sigmoid),
    "erf": _rounded(np.frompyfunc(math.erf, 1, 1)),
    "gelu": _rounded(_gelu),
    "gelu_tanh": _rounded(_gelu_tanh),
    "silu": _rounded(lambda x: x * _sigmoid(x)),
    "softplus": _rounded(lambda x: np.logaddexp(0.0, x)),
    "mish": _rounded(_mish),
    "elu": lambda x, alpha: np.where(x < 0, _rounded(np.expm1)(x) * alpha, x),
    "power": _rounded(np.power),
}


def _repeated(place: int, count: int, a: Array) -> Array:
    return a.reshape(-1, count)[:, place].repeat(count)


def _horizontal_sums(*vectors: Array) -> Array:
    """The sums in the order of native code: halves of halves."""
    width = len(vectors[0])
    rows = [*vectors, *[np.zeros_like(vectors[0])] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))]
    lanes = np.arange(2 * width)
    while len(rows) > 1:
        low = lanes[lanes % width < width // 2]
        pairs = [np.concatenate(pair) for pair in zip(rows[::2], rows[1::2], strict=True)]
        rows = [pair[low] + pair[low + width // 2] for pair in pairs]
        width //= 2
    (total,), apart = rows, width
    while width > 1:
        width //= 2
        total = total + total[np.arange(len(total)) ^ width]
    result = np.zeros_like(total)
    result[: len(vectors)] = total[np.arange(len(vectors)) * apart]
    return result


# Lanes change places, those of a mask as those of values
MOVES: dict[str, Function] = {
    "even_lanes": lambda a, b: np.concatenate([a[::2], b[::2]]),
    "interleaved": lambda a, b: np.stack([a[: len(a) // 2], b[: len(b) // 2]], 1).reshape(-1),
    **{
        f"repeated_{place}_of_{count}": partial(_repeated, place, count)
        for count in (2, 4, 8)
        for place in range(count)
    },
}


def _folded(combine: Function) -> Function:
    """All lanes as one, in the order of native code: halves are combined until one lane is left."""

    def applied(array: Array) -> np.generic:
        while len(array) > 1:
            half = len(array) // 2
            array = combine(array[:half], array[half:])
        return array[0]

    return applied


# One scalar of all lanes
REDUCTIONS: dict[str, Function] = {
    "horizontal_sum": _folded(np.add),
    "horizontal_product": _folded(np.multiply),
    "horizontal_maximum": _folded(_maximum),
    "horizontal_minimum": _folded(_minimum),
    "any_lane": np.any,
    "all_lanes": np.all,
    "first_lane": lambda mask: np.int64(mask.argmax() if mask.any() else len(mask)),
    "last_lane": lambda mask: np.int64(len(mask) - 1 - mask[::-1].argmax() if mask.any() else -1),
}


def _agreed(operands: Sequence[Value]) -> tuple[list[Array], bool]:
    """The operands as arrays, scalars in the element type of the first vector that is no mask; whether there is a vector."""
    vectors = [each for each in operands if type(each) is Vector]
    if not vectors:
        arrays = [each.number.reshape(1) if isinstance(each, Scalar) else np.array([each]) for each in operands]
        if len({array.dtype for array in arrays if array.dtype != _BOOL}) > 1:
            raise Fault(f"scalars of several types: {', '.join(str(array.dtype) for array in arrays)}")
        return arrays, False
    dtype = next((each.array.dtype for each in vectors if each.array.dtype != _BOOL), _BOOL)
    return [
        each.array if type(each) is Vector else element(each, _BOOL if type(each) is bool else dtype)
        for each in operands
    ], True


def _lanewise(function: Function, *operands: Value) -> Value:
    arrays, is_vector = _agreed(operands)
    result = function(*arrays)
    if not is_vector:
        return scalar(result[0], any(map(_is_lost, operands)))
    lost = None
    for each in operands:
        lost = _united(lost, _lost_lanes(each, len(result)))
    return Vector(result, lost)


def _lost_lanes(value: Value, lanes: int) -> Array | None:
    if type(value) is Vector:
        return value.undefined
    return np.ones(lanes, np.bool_) if _is_lost(value) else None


def _selected(mask: Value, a: Value, b: Value) -> Value:
    """A lane is undefined where the mask is, or what it chooses."""
    found = _lanewise(_select, mask, a, b)
    if type(found) is not Vector:
        chosen = a if (mask.defined("a choice") if type(mask) is Scalar else mask) else b
        return scalar(found.number) if type(found) is Scalar and not _is_lost(chosen) else found
    if found.undefined is None:
        return found
    lanes = len(found.array)
    where = mask.array if type(mask) is Vector else np.bool_(mask)
    of_mask, of_a, of_b = (_lost_lanes(each, lanes) for each in (mask, a, b))
    lost = np.zeros(lanes, np.bool_) if of_mask is None else of_mask.copy()
    for each, chosen in ((of_a, where), (of_b, ~where)):
        if each is not None:
            lost |= each & chosen
    return Vector(found.array, lost if lost.any() else None)


def _moved(function: Function, *vectors: Vector) -> Vector:
    if all(each.undefined is None for each in vectors):
        return Vector(function(*(each.array for each in vectors)))
    lost = function(
        *(np.zeros(len(each.array), np.bool_) if each.undefined is None else each.undefined for each in vectors)
    )
    return Vector(function(*(each.array for each in vectors)), lost)


def _summed(*vectors: Vector) -> Vector:
    return Vector(_horizontal_sums(*(each.defined("a sum of lanes") for each in vectors)))


def _looked_up(a: Vector, b: Vector, places: Vector) -> Vector:
    at = places.defined("which lane is looked up")
    return _moved(lambda *each: np.concatenate(each)[at % (2 * len(at))], a, b)


def _reduced(name: str, function: Function, vector: Vector) -> Value:
    return scalar(np.asarray(function(vector.defined(name)))[()])


def _converted(dtype: Callable[[], np.dtype], value: Value) -> Value:
    if type(value) is Vector:
        return Vector(converted(value.array, dtype()), value.undefined)
    return scalar(np.asarray(element(value, dtype()))[()], _is_lost(value))


def _splat(dtype: Callable[[], np.dtype], lanes: int, value: Value) -> Vector:
    return Vector(np.full(lanes, element(value, dtype())), _lost_lanes(value, lanes))


def _saturated(dtype: np.dtype, value: Vector) -> Vector:
    bounds = np.iinfo(dtype)
    inside = np.where(value.array > bounds.min, value.array, bounds.min)
    return Vector(np.minimum(inside, bounds.max).astype(dtype), value.undefined)


# ---- memory ----


class Access:
    """The loads and stores of kernels whose vectors have so many lanes, on a memory."""

    def __init__(self, memory: Memory, lanes: int) -> None:
        self.memory, self.lanes = memory, lanes
        self.places = np.arange(lanes)

    def _between(self, dtype: np.dtype, address: int, low: int, high: int) -> Vector:
        """Lanes `low` to `high` of the vector there; zeros in the others."""
        size = dtype.itemsize
        low, high = max(0, low), min(self.lanes, high)
        array = np.zeros(self.lanes, dtype)
        if high <= low:
            return Vector(array)
        begin = wrapped(address + low * size)
        data, state = self.memory.read(begin, (high - low) * size, min(MOST_ALIGNMENT, size))
        array[low:high] = data != 0 if dtype == _BOOL else data.view(dtype)
        if state is None:
            return Vector(array)
        lost = np.zeros(self.lanes, np.bool_)
        lost[low:high] = (state.reshape(-1, size) != 0).max(1)
        return Vector(array, lost)

    def vload(self, dtype: np.dtype, address: int, offset: int, count: int | None = None) -> Vector:
        return self._between(dtype, wrapped(address + offset), 0, self.lanes if count is None else count)

    def vload_between(self, dtype: np.dtype, address: int, offset: int, low: int, high: int) -> Vector:
        return self._between(dtype, wrapped(address + offset), low, high)

    def vgather(self, dtype: np.dtype, address: int, indices: Vector, mask: Vector | None = None) -> Vector:
        size, array = dtype.itemsize, np.zeros(self.lanes, dtype)
        chosen = slice(None) if mask is None else mask.defined("which elements are gathered")
        lost = None if indices.undefined is None else indices.undefined[chosen]
        if lost is not None and lost.any():
            raise Fault(f"gathers at an index, {indices}, which is made of memory that nobody wrote")
        offsets = indices.array[chosen] * size
        if not len(offsets):
            return Vector(array)
        data, state = self.memory.look(address, offsets, size, min(MOST_ALIGNMENT, size))
        found = np.ascontiguousarray(data).reshape(-1)
        array[chosen] = found != 0 if dtype == _BOOL else found.view(dtype)
        if state is None or not state.any():
            return Vector(array)
        undefined = np.zeros(self.lanes, np.bool_)
        undefined[chosen] = state
        return Vector(array, undefined)

    def vstore(self, address: int, offset: int, value: Vector, count: int | None = None) -> None:
        count = self.lanes if count is None else min(self.lanes, count)
        if count > 0:
            self._store(wrapped(address + offset), value, count, MOST_ALIGNMENT)

    def _store(self, address: int, value: Vector, count: int, alignment: int) -> None:
        array = value.array[:count]
        size = array.dtype.itemsize
        lost = None if value.undefined is None else value.undefined[:count].repeat(size)
        self.memory.write(
            address, array.view(np.uint8), min(alignment, size) if alignment <= MOST_ALIGNMENT else alignment, lost
        )

    def vstream(self, address: int, offset: int, value: Vector) -> None:
        alignment = min(STREAM_ALIGNMENT, self.lanes * value.array.dtype.itemsize)
        self._store(wrapped(address + offset), value, self.lanes, alignment)
        self.memory.is_streaming = True

    def streamed(self) -> None:
        self.memory.is_streaming = False

    def load(self, dtype: np.dtype, address: int, offset: int) -> Value:
        return self._scalar(dtype, wrapped(address + offset), 1)

    def _scalar(self, dtype: np.dtype, address: int, alignment: int) -> Value:
        data, state = self.memory.read(address, dtype.itemsize, alignment)
        if state is not None and (dtype.kind in "ib" or dtype == np.float64):
            raise Fault(f"reads {dtype.name} at {self.memory.named(address)}, which nobody wrote")
        return bool(data[0]) if dtype == _BOOL else scalar(data.view(dtype)[0], state is not None)

    def store(self, dtype: np.dtype, address: int, offset: int, value: Value) -> None:
        data = np.asarray(element(value, dtype)).reshape(1).view(np.uint8)
        lost = np.ones(len(data), np.bool_) if _is_lost(value) else None
        self.memory.write(wrapped(address + offset), data, 1, lost)

    def word(self, address: int, index: int) -> int:
        return self._scalar(_WORD, wrapped(address + 8 * index), 8)

    # ---- words that parts share ----

    def atomic_load(self, address: int, index: int) -> int:
        with self.memory.synchronised():
            return self.word(address, index)

    def atomic_store(self, address: int, index: int, value: int) -> int:
        with self.memory.synchronised():
            self.memory.write(wrapped(address + 8 * index), np.array([wrapped(value)]).view(np.uint8), 8)
        return 0

    def atomic_replace(self, address: int, index: int, expected: int, value: int) -> int:
        if self.atomic_load(address, index) != expected:
            return 0
        self.atomic_store(address, index, value)
        return 1

    # ---- squares, and groups of neighbours ----

    def _line(
        self, dtype: np.dtype, address: int, count: int, alignment: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        size = dtype.itemsize
        data, state = self.memory.read(wrapped(address), count * size, alignment or min(MOST_ALIGNMENT, size))
        lost = np.zeros(count, np.bool_) if state is None else (state.reshape(-1, size) != 0).max(1)
        return data.view(dtype).copy(), lost

    def _put(self, address: int, array: np.ndarray, lost: np.ndarray, alignment: int | None = None) -> None:
        size = array.dtype.itemsize
        data = np.ascontiguousarray(array).view(np.uint8)
        alignment = alignment or min(MOST_ALIGNMENT, size)
        self.memory.write(wrapped(address), data, alignment, lost.repeat(size) if lost.any() else None)

    def transpose(
        self,
        dtype: np.dtype,
        shape: tuple[int, int],
        source: int,
        step: int,
        target: int,
        target_step: int,
        *counts: int,
    ) -> None:
        """A square of rows and columns turned; with counts, of so many rows and columns."""
        rows, columns = (min(most, max(0, count)) for most, count in zip(shape, counts or shape, strict=True))
        if not rows or not columns:
            return
        lines = [self._line(dtype, source + row * step, columns) for row in range(rows)]
        values, lost = np.stack([line for line, _ in lines], 1), np.stack([each for _, each in lines], 1)
        for column in range(columns):
            self._put(target + column * target_step, values[column], lost[column])

    def transpose_stream(
        self, dtype: np.dtype, side: int, source: int, step: int, target: int, target_step: int
    ) -> None:
        alignment = min(STREAM_ALIGNMENT, side * dtype.itemsize)
        for column in range(side):
            if (target + column * target_step) % alignment:
                raise Fault(
                    f"streams to {self.memory.named(target + column * target_step)}, not at a multiple of {alignment}"
                )
        self.transpose(dtype, (side, side), source, step, target, target_step)
        self.memory.is_streaming = True

    def part(self, dtype: np.dtype, side: int, count: int, source: int, target: int, step: int) -> None:
        values, lost = self._line(dtype, source, side * count)
        for number in range(count):
            self._put(target + number * step, values[number::count], lost[number::count])

    def join(self, dtype: np.dtype, side: int, count: int, source: int, step: int, target: int) -> None:
        lines = [self._line(dtype, source + number * step, side) for number in range(count)]
        values, lost = np.stack([line for line, _ in lines], 1), np.stack([each for _, each in lines], 1)
        self._put(target, values.reshape(-1), lost.reshape(-1))


def _parts_for(nanoseconds: int, units: int, threads: int) -> int:
    worthy = math.trunc(nanoseconds / PART_NANOSECONDS)
    return 1 if worthy < 2 or threads < 2 else max(1, min(worthy, units, threads * 8))


@cache
def vocabulary(lanes: int) -> dict[str, Callable[[Access], Any]]:
    """What each global name of a kernel with so many lanes stands for, given the memory. A test compares the names with those of
    `simd.namespace`."""
    names: dict[str, Callable[[Access], Any]] = {}

    def method(name: str, *bound: Any) -> Callable[[Access], Any]:
        return lambda access: partial(getattr(access, name), *bound)

    def fixed(value: Any) -> Callable[[Access], Any]:
        return lambda access: value

    for name in ("vstore", "vstream", "streamed", "word", "atomic_load", "atomic_store", "atomic_replace"):
        names[name] = method(name)
    for name, value in (("math", math), ("min", min), ("max", max), ("parts_for", _parts_for)):
        names[name] = fixed(value)
    names |= {"prefetch": fixed(lambda address, offset: None), "relax": fixed(lambda: 0)}
    names["inside"] = lambda access: lambda count: Vector(access.places < count)
    names |= {name: fixed(partial(_lanewise, function)) for name, function in (EXACT | ELEMENTARY).items()}
    names |= {name: fixed(partial(_moved, function)) for name, function in MOVES.items()}
    names |= {name: fixed(partial(_reduced, name, function)) for name, function in REDUCTIONS.items()}
    names |= {"select": fixed(_selected), "horizontal_sums": fixed(_summed), "looked_up": fixed(_looked_up)}
    for name in ("int8", "uint8", "int16", "uint16"):
        names[f"saturated_{name}"] = fixed(partial(_saturated, np.dtype(name)))
    for each in DType:
        names |= _names_of(each.name, lanes)
    return names


def _names_of(name: str, lanes: int) -> dict[str, Callable[[Access], Any]]:
    """The part of the vocabulary that is of one element type. NumPy's dtype is asked for when a kernel uses it."""

    def method(verb: str, *bound: Any) -> Callable[[Access], Any]:
        return lambda access: partial(getattr(access, verb), dtype_of(name), *bound)

    names = {f"{verb}_{name}": method(verb) for verb in ("vload", "vload_between", "vgather", "load", "store")}
    names[f"convert_{name}"] = lambda access: partial(_converted, partial(dtype_of, name))
    names[f"splat_{name}"] = lambda access: partial(_splat, partial(dtype_of, name), lanes)
    if name.startswith("uint"):
        side = min(lanes, 4 * lanes // DType[name].itemsize)  # rows of the squares that are turned at once
        names[f"transpose_{name}"] = method("transpose", (side, side))
        names[f"transpose_{name}_stream"] = method("transpose_stream", side)
        for part, title in ((2, "half"), (4, "quarter")):
            names[f"transpose_{name}_{title}"] = method("transpose", (side, max(1, side // part)))
        for count in FEW:
            for verb in ("part", "join"):
                names[f"{verb}_{name}_{count}"] = method(verb, side, count)
    if DType[name].is_string or (DType[name].is_integer and DType[name].is_numpys):
        names[f"iota_{name}"] = lambda access: lambda: Vector(np.arange(lanes, dtype=dtype_of(name)))
    return names
