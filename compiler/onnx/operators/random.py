"""Importers of random operators, and of dropout in training. `builder/draws.py` makes the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...builder.draws import around, between, dropped, ones, uniform
from ..table import importer
from ..tensors import element_type
from ..values import GraphBuilder, UnsupportedError, Value


def _bits(seed: float | None) -> int | None:
    """ONNX's seeds are numbers of float32."""
    return None if seed is None else int(np.float32(seed).view(np.uint32))


# ---- operators ----


def _uniform(
    g: GraphBuilder,
    shape: tuple[Dim, ...],
    dtype: DType,
    *,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Value:
    return between(g, shape, dtype, low, high, _bits(seed))


def _normal(
    g: GraphBuilder,
    shape: tuple[Dim, ...],
    dtype: DType,
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Value:
    return around(g, shape, dtype, mean, scale, _bits(seed))


def _register(name: str, draw: Callable[..., Value]) -> None:
    @importer(name, attributes_of=draw)
    def of_shape(g: GraphBuilder, *, shape: tuple[int, ...], dtype: int = 1, **parameters: Any) -> Value:
        return draw(g, shape, element_type(dtype), **parameters)

    @importer(f"{name}Like", attributes_of=draw)
    def like(g: GraphBuilder, x: Value, *, dtype: int | None = None, **parameters: Any) -> Value:
        return draw(g, x.shape, x.dtype if dtype is None else element_type(dtype), **parameters)


_register("RandomUniform", _uniform)
_register("RandomNormal", _normal)


@importer("Bernoulli")
def _bernoulli(g: GraphBuilder, x: Value, *, dtype: int | None = None, seed: float | None = None) -> Value:
    """1 with the probability that x has, else 0."""
    return ones(g, x, x.shape, x.dtype if dtype is None else element_type(dtype), _bits(seed))


@importer("Multinomial")
def _multinomial(
    g: GraphBuilder, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Value:
    """Classes, by the logarithms of how likely each is: x [N, classes] to [N, sample_size]. A draw is a place between 0 and 1;
    its class is how many classes end before it."""
    if x.rank != 2 or sample_size < 1:
        raise ModelError(f"expected a matrix and samples, got {x.type} and {sample_size}")
    likely = g.op("softmax", g.op("cast", x, dtype=DType.float64), axis=1)
    ends = g.op("cumulative_sum", likely, axis=1)
    places = g.op("expand_dims", uniform(g, (x.shape[0], sample_size), _bits(seed)), axes=(2,))
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
    result, mask = dropped(g, x, x.shape, x.dtype, wide, _bits(seed))
    if training_mode.constant is None:
        training = g.op("reshape", training_mode, shape=())
        result, mask = g.op("where", training, result, x), g.op("where", training, mask, whole)
    return (result, mask)[: g.output_count]


@importer("Dropout")
def _dropout_before_12(g: GraphBuilder, x: Value, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Value, ...]:
    if not is_test:
        raise UnsupportedError("dropout in training mode, before opset 7")
    mask = {"value": True, "dtype": DType.bool} if g.opset >= 10 else {"value": 1, "dtype": x.dtype}
    return (x, g.op("full", shape=x.shape, **mask))[: g.output_count]
