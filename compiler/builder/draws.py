"""Random numbers, made of ordinary operators: what ONNX's random nodes become, and the functions of `treadle.op` that draw.

The generator is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): number i of a seed is a
function of both, so that ordinary operators compute all numbers at once. A draw with a seed gives the same numbers in each call;
without one it takes a seed of the call (`call_seed`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.types import UNKNOWN, TensorType
from .. import ir
from ..operators import TABLE
from . import checks as check

_STEP = 0x9E3779B97F4A7C15  # the golden ratio, of 64 bits
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_FRACTION_BITS = 53  # of float64
_WORD = 1 << 64


class Maker(Protocol):
    """A builder of operators: a frontend's graph builder, or that of expressions."""

    def op(self, name: str, /, *args: Any, **attributes: Any) -> Any: ...

    def constant(self, value: Any, dtype: DType, /) -> Any: ...

    def new_place(self) -> int:
        """A number that no other draw of the program has."""


def uniform(g: Maker, shape: Sequence[Any], seed: int | None, draw: int = 0) -> Any:
    """Numbers of float64 from 0 to 1, without 1. `seed` are 64 bits, None those of the call; `draw`: of several of one seed."""
    key = _key(g, seed, draw)
    counters = g.op("cast", g.op("arange", stop=dims.product(shape)), dtype=DType.uint64)
    steps = g.op("multiply", g.op("add", counters, _word(g, 1)), _word(g, _STEP))
    bits = g.op("shift_right", _mixed(g, g.op("add", key, steps)), _word(g, 64 - _FRACTION_BITS))
    fraction = g.op(
        "multiply", g.op("cast", bits, dtype=DType.float64), g.constant(2.0**-_FRACTION_BITS, DType.float64)
    )
    return g.op("reshape", fraction, shape=tuple(shape))


def normal(g: Maker, shape: Sequence[Any], seed: int | None) -> Any:
    """Numbers of float64 of the standard normal distribution, by Box and Muller's transform."""
    radius, turn = uniform(g, shape, seed, 0), uniform(g, shape, seed, 1)
    positive = g.op("subtract", g.constant(1.0, DType.float64), radius)  # 0 has no logarithm
    radius = g.op("sqrt", g.op("multiply", g.op("log", positive), g.constant(-2.0, DType.float64)))
    return g.op("multiply", radius, g.op("cos", g.op("multiply", turn, g.constant(2 * math.pi, DType.float64))))


def between(g: Maker, shape: Sequence[Any], dtype: DType, low: float, high: float, seed: int | None) -> Any:
    spread = g.op("multiply", uniform(g, shape, seed), g.constant(high - low, DType.float64))
    return g.op("cast", g.op("add", spread, g.constant(low, DType.float64)), dtype=dtype)


def around(g: Maker, shape: Sequence[Any], dtype: DType, mean: float, scale: float, seed: int | None) -> Any:
    spread = g.op("multiply", normal(g, shape, seed), g.constant(scale, DType.float64))
    return g.op("cast", g.op("add", spread, g.constant(mean, DType.float64)), dtype=dtype)


def ones(g: Maker, x: Any, shape: Sequence[Any], dtype: DType, seed: int | None) -> Any:
    """1 with the probability that `x` has, else 0."""
    is_one = g.op("less", uniform(g, shape, seed), g.op("cast", x, dtype=DType.float64))
    return g.op("cast", is_one, dtype=dtype)


def dropped(g: Maker, x: Any, shape: Sequence[Any], dtype: DType, ratio: Any, seed: int | None) -> tuple[Any, Any]:
    """`x`, of which a share is 0 and the rest larger by as much, and the mask of what is kept. `ratio` is a scalar of float64."""
    mask = g.op("greater_equal", uniform(g, shape, seed), ratio)
    one = g.constant(1.0, DType.float64)
    scale = g.op("cast", g.op("divide", one, g.op("subtract", one, ratio)), dtype=dtype)
    return g.op("where", mask, g.op("multiply", x, scale), g.constant(0, dtype)), mask


def _key(g: Maker, seed: int | None, draw: int) -> Any:
    if seed is None:
        return g.op("call_seed", place=g.new_place())
    return _mixed(g, _word(g, (seed ^ draw << 32) % _WORD))


def _word(g: Maker, value: int) -> Any:
    return g.constant(np.uint64(value), DType.uint64)


def _mixed(g: Maker, word: Any) -> Any:
    """Each bit of the result depends on each of the word's."""
    for shift, factor in _MIXERS:
        word = g.op("multiply", _folded(g, word, shift), _word(g, factor))
    return _folded(g, word, _LAST_SHIFT)


def _folded(g: Maker, word: Any, shift: int) -> Any:
    return g.op("bitwise_xor", word, g.op("shift_right", word, _word(g, shift)))


# ---- functions of treadle.op ----

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # by name; their first parameter is what makes operators


def _of_op(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


@_of_op
def random_uniform(
    g: Maker, *, shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = "float32", seed: int | None = None
) -> Any:
    """Random numbers from low to high, without high: others in each call, unless seed, 64 bits, says which."""
    where = "random_uniform"
    low, high = _number(where, "low", low), _number(where, "high", high)
    return between(g, _shape(where, shape), _floats(where, dtype), low, high, _seed(where, seed))


@_of_op
def random_normal(
    g: Maker, *, shape: Any, mean: float = 0.0, scale: float = 1.0, dtype: Any = "float32", seed: int | None = None
) -> Any:
    """Random numbers of a normal distribution, scale its standard deviation: others in each call, unless seed says which."""
    where = "random_normal"
    mean, scale = _number(where, "mean", mean), _number(where, "scale", scale)
    return around(g, _shape(where, shape), _floats(where, dtype), mean, scale, _seed(where, seed))


@_of_op
def bernoulli(g: Maker, x: Any, /, *, dtype: Any = None, seed: int | None = None) -> Any:
    """1 with the probability that x has there, else 0: others in each call, unless seed says which. dtype: x's own."""
    type_ = _known("bernoulli", x)
    made = type_.dtype if dtype is None else DType.of(dtype)
    return ones(g, x, type_.shape, made, _seed("bernoulli", seed))


@_of_op
def dropout(g: Maker, x: Any, /, *, ratio: float = 0.5, seed: int | None = None) -> Any:
    """As in training: each element is 0 with the probability ratio, else divided by 1 - ratio; others in each call, unless seed
    says which."""
    type_, ratio = _known("dropout", x), _number("dropout", "ratio", ratio)
    if not 0 <= ratio < 1:
        raise InferenceError(f"dropout: ratio={ratio:g}: expected 0 or more, and less than 1")
    share = g.constant(ratio, DType.float64)
    return dropped(g, x, type_.shape, type_.dtype, share, _seed("dropout", seed))[0]


def _number(where: str, name: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or not math.isfinite(value)
    ):
        raise InferenceError(f"{where}: {name}: expected a finite number, not {check.told(value)}")
    return float(value)


def _seed(where: str, seed: Any) -> int | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < _WORD:
        raise InferenceError(f"{where}: seed: expected None, or an integer of 64 bits, not {check.told(seed)}")
    return int(seed)


def _shape(where: str, shape: Any) -> tuple[Any, ...]:
    sizes = check.shape(f"{where}: shape", shape)
    if UNKNOWN in sizes:
        raise InferenceError(
            f"{where}: shape: a size is '?'; each is an integer or a name that the function's inputs have"
        )
    return sizes


def _floats(where: str, dtype: Any) -> DType:
    found = DType.of(dtype)
    if not found.is_float:
        raise InferenceError(f"{where}: dtype: expected an element type of floats, not {found.name!r}")
    return found


def _known(where: str, x: Any) -> TensorType:
    """The type of a tensor of floats, all of whose sizes have names here."""
    type_ = getattr(x, "type", None)
    if not isinstance(type_, TensorType) or UNKNOWN in type_.shape:
        raise InferenceError(
            f"{where}: x: expected a tensor whose shape is known here, {check.subject(x)} is {type_ or 'of no known type'}; "
            "match_shape(x, shape) says it"
        )
    if not type_.dtype.is_float:
        raise InferenceError(f"{where}: x: expected floats, {check.subject(x)} is {type_}")
    return type_


def numbered(module: ir.Module) -> ir.Module:
    """The module, whose draws have places 1, 2, … in its order, so that each has its own and equal programs have equal ones."""
    places = itertools.count(1)

    def block(each: ir.Block) -> ir.Block:
        return replace(each, bindings=tuple(replace(binding, value=value(binding.value)) for binding in each.bindings))

    def value(each: ir.Expr) -> ir.Expr:
        if isinstance(each, ir.OperatorCall) and each.operator == "call_seed":
            return replace(each, attributes=TABLE["call_seed"].canonical({"place": next(places)}))
        return ir.map_atoms(each, lambda atom: atom, block)

    functions = {name: replace(each, body=block(each.body)) for name, each in module.functions.items()}
    return replace(module, functions=functions)
