"""The functions of lanes that kernels may call (`FUNCTIONS` of `vectors/simd.py`), in NumPy.

All give the bits of native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ....formats.dtypes import DType
from . import emitted
from .memory import Fault
from .vectors import (
    BOOL,
    Array,
    Function,
    Scalar,
    Value,
    Vector,
    as_float32,
    converted,
    element,
    is_lost,
    lost_lanes,
    scalar,
    united,
)

_LEAST = np.float32(2.0**-126)  # normal number


def _select(mask: Array, a: Array, b: Array) -> Array:
    return np.where(mask, a, b)


def _maximum(a: Array, b: Array) -> Array:
    return np.where((a > b) | (a != a), a, b)


def _minimum(a: Array, b: Array) -> Array:
    return np.where((a < b) | (a != a), a, b)


def _like(a: Array, number: float) -> np.generic:
    return a.dtype.type(number)


def _nibbles(words: Array) -> Array:
    return (words & _like(words, 15)).astype(np.float32) - np.float32(8)


def _dot(total: Array, x: Array, w: Array) -> Array:
    """Adds four products in each lane: bytes of x without sign by bytes of w with one."""
    products = np.ascontiguousarray(x).view(np.uint8).astype(np.int32) * np.ascontiguousarray(w).view(np.int8)
    return total + products.reshape(-1, 4).sum(1, dtype=np.int32)


def normal(a: Array) -> Array:
    """With zeros of the same sign for numbers below the least normal one."""
    return np.where(np.abs(a) < _LEAST, np.copysign(a.dtype.type(0), a), a)


def _dot_words(total: Array, x: Array, w: Array) -> Array:
    """Adds two products in each lane: of words of 16 bits with sign."""
    products = np.ascontiguousarray(x).view(np.int16).astype(np.int32) * np.ascontiguousarray(w).view(np.int16)
    return total + products.reshape(-1, 2).sum(1, dtype=np.int32)


def _dot_halves(total: Array, x: Array, w: Array) -> Array:
    """Adds two products in each half of a lane, which saturate at 16 bits: bytes of x without sign by bytes of w with one."""
    products = np.ascontiguousarray(x).view(np.uint8).astype(np.int32) * np.ascontiguousarray(w).view(np.int8)
    pairs = products.reshape(-1, 2).sum(1).clip(-(1 << 15), (1 << 15) - 1).astype(np.int16)
    return (np.ascontiguousarray(total).view(np.int16) + pairs).view(np.int32)


def _dot_bfloat16(total: Array, x: Array, w: Array) -> Array:
    """Adds two products in each lane of float32: of the upper halves as bfloat16, then of the lower ones. Subnormal
    numbers are zeros."""
    total = normal(np.asarray(total))
    for half in (upper_halves, lower_halves):
        total = normal(emitted.fma(normal(half(x)), normal(half(w)), total))
    return total


def _dot_bfloat16_odd(total: Array, x: Array, w: Array) -> Array:
    """Likewise, with ARM's rounding of sums: first that of the products."""
    products = [half(x).astype(np.float64) * half(w) for half in (upper_halves, lower_halves)]
    both = _odd_sum(*(_odd(each, np.zeros_like(each)) for each in products))
    return _odd_sum(np.asarray(total), both)


def _odd_sum(a: Array, b: Array) -> Array:
    return _odd(*(each.astype(np.float64) for each in (a, b)))


def _odd(a: Array, b: Array) -> Array:
    """a + b as float32 (Arm Architecture Reference Manual, BFAdd): rounded to odd, subnormal results to 0."""
    exact = emitted.to_odd(normal(a), normal(b))
    near = as_float32(exact)
    near = np.where(np.abs(exact) > np.finfo(np.float32).max, np.copysign(np.float32(np.inf), near), near)
    return normal(near)


def _square(dot: Function, total: Vector, x: Vector, w: Vector) -> Vector:
    """In each four lanes two rows by two columns: a step for the first word of each, then one for the second."""
    sums = total.array
    rows, columns = (each.defined("a square of sums").reshape(-1, 2, 2) for each in (x, w))
    for word in range(2):
        pairs = np.broadcast_arrays(rows[:, :, None, word], columns[:, None, :, word])
        sums = dot(sums, *(each.reshape(-1) for each in pairs))
    return Vector(sums, total.undefined)


def upper_halves(words: Array) -> Array:
    return (words & _like(words, -1 << 16)).view(np.float32)


def lower_halves(words: Array) -> Array:
    return (words << _like(words, 16)).view(np.float32)


def _round_bfloat16(a: Array) -> Array:
    return normal(a).astype(DType.bfloat16.numpy)


# Lane by lane: each lane of the result depends on the same lane of the operands.
EXACT: dict[str, Function] = {
    "fma": emitted.fma,
    "maximum": _maximum,
    "minimum": _minimum,
    "absolute": np.abs,
    "copysign": np.copysign,
    **{name: getattr(np, name) for name in ("sqrt", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite")},
    "round_even": np.rint,
    "nibbles": _nibbles,
    "nibbles_512": _nibbles,
    "from_upper_halves": lambda a: (a.astype(np.uint32) << np.uint32(16)).view(np.float32),
    **dict.fromkeys(
        [f"dot_{kind}{bits}" for kind in ("", "pairs_") for bits in (128, 256, 512)]
        + ["dot_plain", "dot_usdot", "dot_sdot"],
        _dot,
    ),
    **dict.fromkeys([f"dot_words_{bits}" for bits in (128, 256, 512)], _dot_words),
    **dict.fromkeys([f"dot_halves_{bits}" for bits in (128, 256, 512)], _dot_halves),
    **dict.fromkeys([f"dot_bfloat16_{bits}" for bits in (128, 256, 512)], _dot_bfloat16),
    "round_bfloat16": lambda a: _round_bfloat16(a).astype(np.float32),
    "dot_bfloat16_odd": _dot_bfloat16_odd,
    "upper_halves": upper_halves,
    "lower_halves": lower_halves,
}

# Likewise, those of `elementary.py` and `elementary_inverse.py`, by their own instructions
ELEMENTARY: dict[str, Function] = {name: partial(emitted.call, name) for name in emitted.NAMES}


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


def _woven(width: int, half: int, a: Array, b: Array) -> Array:
    """Half number `half` of a and of b, `width` lanes of each in turn."""
    return np.stack([each.reshape(2, -1, width)[half] for each in (a, b)], 1).reshape(-1)


def _pairs(place: int, a: Array, b: Array) -> Array:
    return np.concatenate([a, b]).reshape(-1, 2, 2)[:, place].reshape(-1)


# Lanes change places, those of a mask as those of values
MOVES: dict[str, Function] = {
    "even_lanes": lambda a, b: np.concatenate([a[::2], b[::2]]),
    "interleaved": partial(_woven, 1, 0),
    "interleaved_last": partial(_woven, 1, 1),
    "pairs_interleaved": partial(_woven, 2, 0),
    "pairs_interleaved_last": partial(_woven, 2, 1),
    "even_pairs": partial(_pairs, 0),
    "odd_pairs": partial(_pairs, 1),
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


def _undefined(vector: Vector) -> Array:
    """Which lanes are undefined."""
    return np.zeros(len(vector.array), np.bool_) if vector.undefined is None else vector.undefined


def _moved(function: Function, *vectors: Vector) -> Vector:
    if all(each.undefined is None for each in vectors):
        return Vector(function(*(each.array for each in vectors)))
    lost = function(*map(_undefined, vectors))
    return Vector(function(*(each.array for each in vectors)), lost)


def _summed(*vectors: Vector) -> Vector:
    return Vector(_horizontal_sums(*(each.defined("a sum of lanes") for each in vectors)))


def _rounded_words(a: Vector, b: Vector, axis: int) -> Vector:
    """The lanes of both as bfloat16, two to a word: neighbours (`axis` 1), or the same lanes of both (0)."""
    rounded, lost = _round_bfloat16(np.stack([a.array, b.array])), np.stack([_undefined(a), _undefined(b)])
    halves, lost = (each.reshape(-1, 2) if axis else each.T for each in (rounded, lost))
    of_words: Array = lost.any(1)
    return Vector(np.ascontiguousarray(halves).view(np.int32)[:, 0], of_words if of_words.any() else None)


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
    "square_usmmla": partial(_square, _dot),
    "square_bfmmla": partial(_square, _dot_bfloat16_odd),
    "bfloat16_pairs": partial(_rounded_words, axis=1),
    "bfloat16_words": partial(_rounded_words, axis=0),
}
