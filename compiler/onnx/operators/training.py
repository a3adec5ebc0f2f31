"""Importers of `ai.onnx.preview.training`: a step of an optimiser, of any number of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..table import importer
from ..values import GraphBuilder, Value

DOMAIN = "ai.onnx.preview.training"


def _groups(g: GraphBuilder, name: str, tensors: Sequence[Value], count: int) -> list[list[Value]]:
    """For each tensor that is optimised, itself, its gradient, and what is kept of it: all of the same shape."""
    if not tensors or len(tensors) % count:
        raise ModelError(f"{name}: expected {count} tensors for each optimised tensor, got {len(tensors)}")
    size = len(tensors) // count
    groups = []
    for group in (tensors[place::size] for place in range(size)):
        if len({each.rank for each in group}) > 1:
            raise ModelError(
                f"{name}: expected tensors of one shape, got {', '.join(str(each.type) for each in group)}"
            )
        groups.append(g.same_sizes(group, range(group[0].rank)))
    return groups


def _ungrouped(groups: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
    return tuple(value for part in zip(*groups, strict=True) for value in part)


def _regularised(g: GraphBuilder, x: Value, gradient: Value, factor: float) -> Value:
    return g.op("add", _times(g, x, factor), gradient) if factor else gradient


def _times(g: GraphBuilder, x: Value, factor: float) -> Value:
    return g.op("multiply", x, g.constant(factor, x.dtype))


def _scalar(g: GraphBuilder, value: Value, dtype: DType) -> Value:
    return g.op("reshape", g.op("cast", value, dtype=dtype), shape=())


def _root(g: GraphBuilder, x: Value, epsilon: float) -> Value:
    return g.op("add", g.op("sqrt", x), g.constant(epsilon, x.dtype))


@importer("Adagrad", domain=DOMAIN)
def _adagrad(
    g: GraphBuilder,
    rate: Value,
    count: Value,
    *tensors: Value,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Value, ...]:
    results = []
    for x, gradient, squares in _groups(g, "Adagrad", tensors, 3):
        decay = g.op("add", _times(g, _scalar(g, count, x.dtype), decay_factor), g.constant(1, x.dtype))
        step = g.op("divide", _scalar(g, rate, x.dtype), decay)
        slope = _regularised(g, x, gradient, norm_coefficient)
        squares = g.op("add", squares, g.op("square", slope))
        change = g.op("divide", g.op("multiply", slope, step), _root(g, squares, epsilon))
        results.append((g.op("subtract", x, change), squares))
    return _ungrouped(results)


@importer("Adam", domain=DOMAIN)
def _adam(
    g: GraphBuilder,
    rate: Value,
    count: Value,
    *tensors: Value,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Value, ...]:
    results = []
    for x, gradient, mean, squares in _groups(g, "Adam", tensors, 4):
        slope = _regularised(g, x, gradient, norm_coefficient)
        mean = g.op("add", _times(g, mean, alpha), _times(g, slope, 1 - alpha))
        squares = g.op("add", _times(g, squares, beta), _times(g, g.op("square", slope), 1 - beta))
        step = g.op("multiply", mean, _adam_rate(g, rate, count, alpha, beta, x.dtype))
        change = g.op("divide", step, _root(g, squares, epsilon))
        x = g.op("subtract", x, change)
        results.append((_times(g, x, 1 - norm_coefficient_post) if norm_coefficient_post else x, mean, squares))
    return _ungrouped(results)


def _adam_rate(g: GraphBuilder, rate: Value, count: Value, alpha: float, beta: float, dtype: DType) -> Value:
    """The rate, corrected for means that began at 0; of the first step, as it is."""
    steps, one = _scalar(g, count, DType.float64), g.constant(1.0, DType.float64)

    def left(factor: float) -> Value:
        return g.op("subtract", one, g.op("pow", g.constant(factor, DType.float64), steps))

    plain = _scalar(g, rate, DType.float64)
    corrected = g.op("divide", g.op("multiply", plain, g.op("sqrt", left(beta))), left(alpha))
    is_later = g.op("greater", steps, g.constant(0.0, DType.float64))
    return g.op("cast", g.op("where", is_later, corrected, plain), dtype=dtype)


@importer("Momentum", domain=DOMAIN)
def _momentum(
    g: GraphBuilder,
    rate: Value,
    count: Value,
    *tensors: Value,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Value, ...]:
    if mode not in ("standard", "nesterov"):
        raise ModelError(f"Momentum: mode {mode!r} is not one of ONNX's")
    results = []
    for x, gradient, speed in _groups(g, "Momentum", tensors, 3):
        is_later = g.op("greater", g.op("reshape", count, shape=()), g.constant(0, count.dtype))
        factor = g.op("where", is_later, g.constant(beta, x.dtype), g.constant(1, x.dtype))
        slope = _regularised(g, x, gradient, norm_coefficient)
        speed = g.op("add", _times(g, speed, alpha), g.op("multiply", slope, factor))
        change = speed if mode == "standard" else g.op("add", slope, _times(g, speed, alpha))
        results.append((g.op("subtract", x, g.op("multiply", change, _scalar(g, rate, x.dtype))), speed))
    return _ungrouped(results)
