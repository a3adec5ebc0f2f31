"""Importers of random operators, and of dropout in training.

The generator is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): number i of a seed is a
function of both, so that ordinary operators compute all numbers at once. A node with a seed gives the same numbers in each call;
without one it takes a seed of the call (`call_seed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.errors import ModelError
from .onnx_table import importer
from .onnx_tensors import element_type
from .onnx_values import GraphBuilder, UnsupportedError, Value

_STEP = 0x9E3779B97F4A7C15  # the golden ratio, of 64 bits
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_FRACTION_BITS = 53  # of float64


def uniform(g: GraphBuilder, shape: Sequence[Dim], seed: float | None, draw: int = 0) -> Value:
    """Numbers of float64 from 0 to 1, without 1. `draw`: of several of one seed."""
    key = _key(g, seed, draw)
    counters = g.op("cast", g.op("arange", stop=dims.product(shape)), dtype=DType.uint64)
    steps = g.op("multiply", g.op("add", counters, _word(g, 1)), _word(g, _STEP))
    bits = g.op("shift_right", _mixed(g, g.op("add", key, steps)), _word(g, 64 - _FRACTION_BITS))
    fraction = g.op(
        "multiply", g.op("cast", bits, dtype=DType.float64), g.constant(2.0**-_FRACTION_BITS, DType.float64)
    )
    return g.op("reshape", fraction, shape=tuple(shape))


def normal(g: GraphBuilder, shape: Sequence[Dim], seed: float | None) -> Value:
    """Numbers of float64 of the standard normal distribution, by Box and Muller's transform."""
    radius, turn = uniform(g, shape, seed, 0), uniform(g, shape, seed, 1)
    positive = g.op("subtract", g.constant(1.0, DType.float64), radius)  # 0 has no logarithm
    radius = g.op("sqrt", g.op("multiply", g.op("log", positive), g.constant(-2.0, DType.float64)))
    return g.op("multiply", radius, g.op("cos", g.op("multiply", turn, g.constant(2 * math.pi, DType.float64))))


def _key(g: GraphBuilder, seed: float | None, draw: int) -> Value:
    if seed is None:
        return g.op("call_seed", place=g.new_place())
    bits = int(np.float32(seed).view(np.uint32)) | draw << 32
    return _mixed(g, _word(g, bits))


def _word(g: GraphBuilder, value: int) -> Value:
    return g.constant(np.uint64(value), DType.uint64)


def _mixed(g: GraphBuilder, word: Value) -> Value:
    """Each bit of the result depends on each of the word's."""
    for shift, factor in _MIXERS:
        word = g.op("multiply", _folded(g, word, shift), _word(g, factor))
    return _folded(g, word, _LAST_SHIFT)


def _folded(g: GraphBuilder, word: Value, shift: int) -> Value:
    return g.op("bitwise_xor", word, g.op("shift_right", word, _word(g, shift)))


# ---- operators ----


@importer("RandomUniform")
def _random_uniform(
    g: GraphBuilder,
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Value:
    return _between(g, shape, element_type(dtype), low, high, seed)


@importer("RandomUniformLike")
def _random_uniform_like(
    g: GraphBuilder,
    x: Value,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Value:
    return _between(g, x.shape, x.dtype if dtype is None else element_type(dtype), low, high, seed)


@importer("RandomNormal")
def _random_normal(
    g: GraphBuilder,
    *,
    shape: tuple[int, ...],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    return _around(g, shape, element_type(dtype), mean, scale, seed)


@importer("RandomNormalLike")
def _random_normal_like(
    g: GraphBuilder,
    x: Value,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    return _around(g, x.shape, x.dtype if dtype is None else element_type(dtype), mean, scale, seed)


def _between(g: GraphBuilder, shape: Sequence[Dim], dtype: DType, low: float, high: float, seed: float | None) -> Value:
    spread = g.op("multiply", uniform(g, shape, seed), g.constant(high - low, DType.float64))
    return g.op("cast", g.op("add", spread, g.constant(low, DType.float64)), dtype=dtype)


def _around(
    g: GraphBuilder, shape: Sequence[Dim], dtype: DType, mean: float, scale: float, seed: float | None
) -> Value:
    spread = g.op("multiply", normal(g, shape, seed), g.constant(scale, DType.float64))
    return g.op("cast", g.op("add", spread, g.constant(mean, DType.float64)), dtype=dtype)


@importer("Bernoulli")
def _bernoulli(g: GraphBuilder, x: Value, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """1 with the probability that x has, else 0."""
    is_one = g.op("less", uniform(g, x.shape, seed), g.op("cast", x, dtype=DType.float64))
    return g.op("cast", is_one, dtype=x.dtype if dtype is None else element_type(dtype))


@importer("Multinomial")
def _multinomial(
    g: GraphBuilder, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Value:
    """Classes, by the logarithms of how likely each is: x [N, classes] to [N, sample_size]. A draw is a place between 0 and 1;
    its class is how many classes end before it."""
    if x.rank != 2 or sample_size < 1:
        raise ModelError(f"a matrix and samples are needed, but {x.type} and {sample_size} came")
    likely = g.op("softmax", g.op("cast", x, dtype=DType.float64), axis=1)
    ends = g.op("cumulative_sum", likely, axis=1)
    places = g.op("expand_dims", uniform(g, (x.shape[0], sample_size), seed), axes=(2,))
    last = dims.add(x.shape[1], -1)
    ends = g.op("expand_dims", g.op("slice", ends, starts=(0,), ends=(last,), axes=(1,)), axes=(1,))
    before = g.op("cast", g.broadcast("greater_equal", places, ends), dtype=DType.int64)
    return g.op("cast", g.op("sum", before, axes=(2,)), dtype=element_type(dtype))


# ---- dropout ----


@importer("Dropout", since=12)
def _dropout(
    g: GraphBuilder,
    x: Value,
    ratio: Value | None = None,
    training_mode: Value | None = None,
    *,
    seed: int | None = None,
) -> tuple[Value, ...]:
    whole = g.op("full", shape=x.shape, value=True, dtype=DType.bool)
    if training_mode is None or (training_mode.constant is not None and not training_mode.constant.any()):
        return (x, whole)[: g.output_count]
    wide = g.constant(0.5, DType.float64) if ratio is None else g.op("cast", ratio, dtype=DType.float64)
    wide = g.op("reshape", wide, shape=())
    mask = g.op("greater_equal", uniform(g, x.shape, seed), wide)
    one = g.constant(1.0, DType.float64)
    scale = g.op("cast", g.op("divide", one, g.op("subtract", one, wide)), dtype=x.dtype)
    dropped = g.op("where", mask, g.op("multiply", x, scale), g.constant(0, x.dtype))
    if training_mode.constant is None:
        training = g.op("reshape", training_mode, shape=())
        dropped, mask = g.op("where", training, dropped, x), g.op("where", training, mask, whole)
    return (dropped, mask)[: g.output_count]


@importer("Dropout")
def _dropout_before_12(g: GraphBuilder, x: Value, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Value, ...]:
    if not is_test:
        raise UnsupportedError("dropout in training mode, before opset 7")
    mask = {"value": True, "dtype": DType.bool} if g.opset >= 10 else {"value": 1, "dtype": x.dtype}
    return (x, g.op("full", shape=x.shape, **mask))[: g.output_count]
