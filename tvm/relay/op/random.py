"""`relay.random`: random numbers as functions of a key, by Threefry (Salmon et al., "Parallel random numbers: as easy as 1,
2, 3", 2011) with splitting (Claessen and Pałka, "Splittable pseudorandom number generators", 2013). The numbers are TVM's.

A key is ten words of 64 bits: a key of four, the path of two, the counter of two, of which the last one counts, and the bit
of the path that the next split sets, of two. Two words of zeros there say that the path is full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import types
from ....formats.dtypes import DType
from ....formats.messages.errors import ArgumentError, InferenceError
from ..expr import Constant, const
from ..ty import dtype_name
from .table import Tensor, known, like, operator, pair, type_of

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_key", "threefry_split", "uniform"]

_KEY = types.TensorType(DType.uint64, (10,))
_ROUNDS = 20
# bits that the second word of each pair is turned by, round by round: table 2 of the paper, Threefry-4x64
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22  # section 4.2, as in Skein 1.3
_LAST = 2**64 - 1
_FIRST_BIT = 1 << 63

_Words = list[Expression]  # scalars, or vectors of one length


def _word(value: int) -> Expression:
    return programs.constant(np.uint64(value))


def threefry_key(seed: int) -> Constant:
    """The key of a seed, a number of 0 to 2**256 - 1. Raises ArgumentError for another one."""
    if not 0 <= seed < 1 << 256:
        raise ArgumentError(f"threefry_key: expected a seed of 0 to 2**256 - 1, got {seed}")
    words = np.frombuffer(int(seed).to_bytes(32, "little"), "<u8")
    return const(np.concatenate([words, [0, 0, 0, 0, _FIRST_BIT, 0]]).astype("uint64"), "uint64")


def _words(key: Expression) -> _Words:
    """The ten words of a key. Raises InferenceError for anything else."""
    if type_of(key) != _KEY:
        raise InferenceError(f"expected a key, {_KEY}, got {type_of(key)}; threefry_key makes one")
    return [op.take(key, programs.constant(place), axis=0) for place in range(10)]


def _key(words: Sequence[Expression]) -> Expression:
    return op.stack(*words, axis=0)


def _hashed(key: _Words, block: _Words) -> _Words:
    """Four words, or vectors of them, by the four words of a key. Sums wrap around."""
    parity = _word(_PARITY)
    for word in key:
        parity = op.bitwise_xor(parity, word)
    keys, state = [*key, parity], list(block)
    for number in range(_ROUNDS):
        if number % 4 == 0:
            count = number // 4
            state = [op.add(word, keys[(count + place) % 5]) for place, word in enumerate(state)]
            state[3] = op.add(state[3], _word(count))
        for first, turn in zip((0, 2), _ROTATIONS[number % 8], strict=True):
            a, b = state[first], state[first + 1]
            turned = op.bitwise_or(op.shift_left(b, _word(turn)), op.shift_right(b, _word(64 - turn)))
            state[first] = op.add(a, b)
            state[first + 1] = op.bitwise_xor(state[first], turned)
        state[1], state[3] = state[3], state[1]
    return state


def _is_full(words: _Words) -> Expression:
    """Whether the path has no bit left."""
    return op.equal(op.bitwise_or(words[8], words[9]), _word(0))


def _next_bit(words: _Words) -> _Words:
    """The two words that have the bit after the path's."""
    high, low, one, zero = words[8], words[9], _word(1), _word(0)
    behind = op.where(op.equal(high, one), _word(_FIRST_BIT), zero)
    low = op.where(op.equal(high, zero), op.shift_right(low, one), behind)
    return [op.shift_right(high, one), low]


def _one_more(words: _Words) -> _Words:
    """The path with its next bit set."""
    return [op.bitwise_or(word, bit) for word, bit in zip(words[4:6], words[8:], strict=True)]


def _chosen(condition: Expression, a: Sequence[Expression], b: Sequence[Expression]) -> _Words:
    return [op.where(condition, one, other) for one, other in zip(a, b, strict=True)]


def _generated(key: Expression, shape: Any) -> tuple[Expression, Expression]:
    """The next key, and an array of random bits, uint64."""
    sizes = known("the shape of random numbers", *(shape if isinstance(shape, (tuple, list)) else pair(shape, 1)))
    count, words, zero = math.prod(sizes), _words(key), _word(0)
    # where the counter has no room left, a key with a longer path, or a new one, of a counter that no number is made of
    last = _word(_LAST)
    renewed = [*_hashed(words[:4], [*words[4:6], last, last]), *[zero] * 4, _word(_FIRST_BIT), zero]
    longer = [*words[:4], *_one_more(words), zero, zero, *_next_bit(words)]
    has_room = op.less(words[7], _word(max(_LAST - count, 0)))
    now = _chosen(has_room, words, _chosen(_is_full(words), renewed, longer))
    whole, rest = divmod(count, 4)
    numbers = np.arange(whole, dtype="uint64")
    steps = [numbers] * 4
    if rest:  # a last block, whose counter alone goes on
        steps = [np.append(numbers, np.uint64(4 * whole if place == 3 else 0)) for place in range(4)]
    made = _hashed(now[:4], [op.add(word, programs.constant(step)) for word, step in zip(now[4:8], steps, strict=True)])
    flat = op.reshape(op.stack(*made, axis=1), shape=(4 * len(steps[0]),))
    bits = op.reshape(op.slice(flat, starts=(0,), ends=(count,), axes=(0,)), shape=sizes)
    counted = op.add(now[7], _word(4 * len(steps[0])))
    return _key([*now[:6], zero, counted, *now[8:]]), bits


@operator("random.threefry_generate")
def threefry_generate(key: Tensor, shape: Any) -> Expression:
    """The next key, and random bits, a uint64 tensor of this shape."""
    return programs.tuple_(*_generated(key, shape))


@operator("random.threefry_split")
def threefry_split(key: Tensor) -> Expression:
    """Two keys, whose numbers have nothing to do with one another's."""
    words, zero = _words(key), _word(0)
    is_full, bits = _is_full(words), _next_bit(words)
    renewed = _hashed(words[:4], words[4:8])
    second = _word(1 << 62)
    left = _chosen(is_full, [*renewed, *[zero] * 4, second, zero], [*words[:8], *bits])
    right = _chosen(
        is_full,
        [*renewed, _word(_FIRST_BIT), *[zero] * 3, second, zero],
        [*words[:4], *_one_more(words), *words[6:8], *bits],
    )
    return programs.tuple_(_key(left), _key(right))


def _uniform(key: Expression, shape: Any, dtype: str) -> tuple[Expression, Expression]:
    """The next key, and numbers of 0 to less than 1, multiples of 2**-23 or 2**-52."""
    kind = DType.of(dtype_name(dtype))
    if kind not in (DType.float32, DType.float64):
        raise InferenceError(f"expected float32 or float64, got {kind.name}")
    key, bits = _generated(key, shape)
    digits, width = (23, DType.uint32) if kind is DType.float32 else (52, DType.uint64)
    own = op.cast(bits, dtype=width)
    fraction = op.shift_right(own, programs.constant(width.itemsize * 8 - digits, width))
    numbers = op.cast(fraction, dtype=kind)
    return key, op.multiply(numbers, like(numbers, 2.0**-digits))


def _moved(numbers: Expression, factor: Any, offset: Any) -> Expression:
    factor, offset = (
        op.cast(each, dtype=type_of(numbers).dtype) if isinstance(each, Expression) else like(numbers, each)
        for each in (factor, offset)
    )
    return op.add(op.multiply(numbers, factor), offset)


@operator("random.uniform")
def uniform(key: Tensor, shape: Any, dtype: str = "float32", low: Any = 0.0, high: Any = 1.0) -> Expression:
    """The next key, and numbers of `low` to less than `high`, each as likely as another."""
    key, numbers = _uniform(key, shape, dtype)
    low, high = (each if isinstance(each, Expression) else like(numbers, each) for each in (low, high))
    return programs.tuple_(key, _moved(numbers, op.subtract(high, low), low))


@operator("random.normal")
def normal(key: Tensor, shape: Any, dtype: str = "float32", mean: Any = 0.0, scale: Any = 1.0) -> Expression:
    """The next key, and numbers of a normal distribution, by Box and Muller's transformation."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    key, both = _uniform(key, (2, *sizes), dtype)
    first, second = (op.take(both, programs.constant(place), axis=0) for place in range(2))
    far = op.sqrt(op.multiply(like(first, -2), op.log(op.subtract(like(first, 1), first))))
    return programs.tuple_(
        key, _moved(op.multiply(far, op.sin(op.multiply(second, like(second, 2 * math.pi)))), scale, mean)
    )


@operator("random.multinomial")
def multinomial(key: Tensor, probs: Tensor, num_samples: int) -> Expression:
    """The next key, and places along the last axis of `probs`, int32, each as likely as its share of the sum there; what is
    negative is taken as 0."""
    shape = type_of(probs).shape
    weights = op.relu(op.cast(probs, dtype="float32"))
    totals = op.cumulative_sum(weights, axis=len(shape) - 1)
    key, numbers = _uniform(key, (*shape[:-1], int(num_samples)), "float32")
    whole = op.max(totals, axes=(-1,), keepdims=True)
    reached = op.less_equal(
        op.expand_dims(totals, axes=(len(shape) - 1,)), op.expand_dims(op.multiply(numbers, whole), axes=(len(shape),))
    )
    places = op.sum(op.cast(reached, dtype="int32"), axes=(-1,))
    # of those that can be chosen, where the product is rounded up
    last = op.argmax(totals, axis=len(shape) - 1, keepdims=True)
    return programs.tuple_(key, op.minimum(places, op.cast(last, dtype="int32")))
