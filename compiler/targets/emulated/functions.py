"""The functions of lanes that kernels may call (`FUNCTIONS` of `vectors/simd.py`), in NumPy.

Elementary functions are NumPy's in double precision, rounded once; all else gives the bits of native code on a CPU with
fused multiply-add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .memory import Fault
from .vectors import (
    BOOL,
    Array,
    Function,
    Scalar,
    Value,
    Vector,
    converted,
    element,
    is_lost,
    lost_lanes,
    scalar,
    united,
)


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
    """a + b, rounded to the neighbour whose last bit is set where it is not a double: rounding that again is rounding once."""
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
    """The operands as arrays, scalars in the element type of the first vector that is not a mask; whether there is a vector."""
    vectors = [each for each in operands if type(each) is Vector]
    if not vectors:
        arrays = [each.number.reshape(1) if isinstance(each, Scalar) else np.array([each]) for each in operands]
        if len({array.dtype for array in arrays if array.dtype != BOOL}) > 1:
            raise Fault(f"scalars of several types: {', '.join(str(array.dtype) for array in arrays)}")
        return arrays, False
    dtype = next((each.array.dtype for each in vectors if each.array.dtype != BOOL), BOOL)
    return [
        each.array if type(each) is Vector else element(each, BOOL if type(each) is bool else dtype)
        for each in operands
    ], True


def _lanewise(function: Function, *operands: Value) -> Value:
    arrays, is_vector = _agreed(operands)
    result = function(*arrays)
    if not is_vector:
        return scalar(result[0], any(map(is_lost, operands)))
    lost = None
    for each in operands:
        lost = united(lost, lost_lanes(each, len(result)))
    return Vector(result, lost)


def _selected(mask: Value, a: Value, b: Value) -> Value:
    """A lane is undefined where the mask is, or what it chooses."""
    found = _lanewise(_select, mask, a, b)
    if type(found) is not Vector:
        chosen = a if (mask.defined("a choice") if type(mask) is Scalar else mask) else b
        return scalar(found.number) if type(found) is Scalar and not is_lost(chosen) else found
    if found.undefined is None:
        return found
    lanes = len(found.array)
    where = mask.array if type(mask) is Vector else np.bool_(mask)
    of_mask, of_a, of_b = (lost_lanes(each, lanes) for each in (mask, a, b))
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


def convert(dtype: Callable[[], np.dtype], value: Value) -> Value:
    if type(value) is Vector:
        return Vector(converted(value.array, dtype()), value.undefined)
    return scalar(np.asarray(element(value, dtype()))[()], is_lost(value))


def splat(dtype: Callable[[], np.dtype], lanes: int, value: Value) -> Vector:
    return Vector(np.full(lanes, element(value, dtype())), lost_lanes(value, lanes))


def saturate(dtype: np.dtype, value: Vector) -> Vector:
    bounds = np.iinfo(dtype)
    inside = np.where(value.array > bounds.min, value.array, bounds.min)
    return Vector(np.minimum(inside, bounds.max).astype(dtype), value.undefined)


# All of them, as texts call them
FUNCTIONS: dict[str, Function] = {
    **{name: partial(_lanewise, function) for name, function in (EXACT | ELEMENTARY).items()},
    **{name: partial(_moved, function) for name, function in MOVES.items()},
    **{name: partial(_reduced, name, function) for name, function in REDUCTIONS.items()},
    "select": _selected,
    "horizontal_sums": _summed,
    "looked_up": _looked_up,
}
