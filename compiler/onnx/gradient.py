"""Gradient of ai.onnx.preview.training: partial derivatives of a tensor of the graph by others.

The nodes between `xs` and `y` are imported once more, of the values that the node is given, and what they become is noted on a
tape of operators. Backwards along it, each operator's rule tells what of its result's derivative is that of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...formats.dtypes import DType
from ...formats.messages.errors import ModelError
from ..operators import lookup
from ..operators.shapes import axis_of
from .values import GraphBuilder, Noted, UnsupportedError, Value

if TYPE_CHECKING:
    import onnx

Rule = Callable[[GraphBuilder, Noted, Value], "Sequence[Value | None]"]
_RULES: dict[str, Rule] = {}


def gradients(g: GraphBuilder, tape: Sequence[Noted], y: Value, xs: Sequence[Value]) -> list[Value]:
    """The derivatives of the sum of y's elements by those of each of `xs`; zeros where y does not depend on them. Raises
    UnsupportedError for an operator that has no rule."""
    if not y.dtype.is_float:
        raise ModelError(f"the gradient of a {y.type}")
    known: dict[Value, Value] = {y: _filled(g, y, 1)}
    wanted = {*xs}
    for noted in tape:
        if wanted.intersection(noted.inputs):
            wanted.update(noted.results)
    for noted in reversed(tape):
        behind = [known.get(result) for result in noted.results]
        if not wanted.intersection(noted.inputs) or not any(behind):
            continue
        if noted.operator not in _RULES or len(behind) != 1 or behind[0] is None:
            raise UnsupportedError(f"the derivative of {noted.operator} is not known")
        for value, part in zip(noted.inputs, _RULES[noted.operator](g, noted, behind[0]), strict=True):
            if part is None or value not in wanted or not value.dtype.is_float:
                continue
            part = _of_shape(g, part, value)
            known[value] = g.op("add", known[value], part) if value in known else part
    return [known[x] if x in known else _filled(g, x, 0) for x in xs]


def _filled(g: GraphBuilder, value: Value, number: float) -> Value:
    return g.op("full", shape=value.shape, value=number, dtype=value.dtype)


def _of_shape(g: GraphBuilder, part: Value, value: Value) -> Value:
    """A derivative by what was broadcast: the sum over what it became."""
    extra = part.rank - value.rank
    if extra:
        part = g.op("sum", part, axes=tuple(range(extra)))
    axes = tuple(axis for axis, dim in enumerate(value.shape) if dim == 1 != part.shape[axis])
    if axes:
        part = g.op("sum", part, axes=axes, keepdims=True)
    return g.checked(part, value.shape)


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for name in names:
            lookup(name)
            _RULES[name] = rule
        return rule

    return add


def _number(g: GraphBuilder, like: Value, number: float) -> Value:
    return g.constant(number, like.dtype)


def _times(g: GraphBuilder, *values: Value) -> Value:
    first, *others = values
    for other in others:
        first = g.broadcast("multiply", first, other)
    return first


# ---- arithmetic ----


@_rule("add")
def _add(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    return dy, dy


@_rule("subtract")
def _subtract(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    return dy, g.op("negative", dy)


@_rule("multiply")
def _multiply(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    a, b = noted.inputs
    return _times(g, dy, b), _times(g, dy, a)


@_rule("divide")
def _divide(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    _, b = noted.inputs
    (y,) = noted.results
    by_a = g.broadcast("divide", dy, b)
    return by_a, g.op("negative", _times(g, by_a, y))


@_rule("pow")
def _pow(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    a, b = noted.inputs
    (y,) = noted.results
    less = g.op("subtract", b, _number(g, b, 1))
    return _times(g, dy, b, g.broadcast("pow", a, less)), _times(g, dy, y, g.op("log", a))


@_rule("maximum", "minimum")
def _extreme(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    a, _ = noted.inputs
    (y,) = noted.results
    zero = _number(g, dy, 0)
    is_a = g.broadcast("equal", a, y)
    return g.broadcast("where", is_a, dy, zero), g.broadcast("where", is_a, zero, dy)


@_rule("where")
def _where(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    condition, _, _ = noted.inputs
    zero = _number(g, dy, 0)
    return None, g.broadcast("where", condition, dy, zero), g.broadcast("where", condition, zero, dy)


@_rule("matmul")
def _matmul(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    a, b = noted.inputs
    if a.rank < 2 or b.rank < 2:
        raise UnsupportedError("the derivative of a product with a vector is not known")
    return g.op("matmul", dy, _turned(g, b)), g.op("matmul", _turned(g, a), dy)


def _turned(g: GraphBuilder, x: Value) -> Value:
    return g.op("permute_dims", x, axes=(*range(x.rank - 2), x.rank - 1, x.rank - 2))


# ---- functions of one number: what the derivative is, of x and y ----


def _elementwise(name: str, derivative: Callable[[GraphBuilder, Value, Value], Value]) -> None:
    @_rule(name)
    def rule(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
        return (g.op("multiply", dy, derivative(g, noted.inputs[0], noted.results[0])),)


def _less_from(g: GraphBuilder, number: float, x: Value) -> Value:
    return g.op("subtract", _number(g, x, number), x)


_elementwise("negative", lambda g, x, y: _number(g, x, -1))
_elementwise("exp", lambda g, x, y: y)
_elementwise("log", lambda g, x, y: g.op("reciprocal", x))
_elementwise("sqrt", lambda g, x, y: g.op("divide", _number(g, x, 0.5), y))
_elementwise("reciprocal", lambda g, x, y: g.op("negative", g.op("square", y)))
_elementwise("square", lambda g, x, y: _times(g, x, _number(g, x, 2)))
_elementwise("tanh", lambda g, x, y: _less_from(g, 1, g.op("square", y)))
_elementwise("sigmoid", lambda g, x, y: _times(g, y, _less_from(g, 1, y)))
_elementwise("relu", lambda g, x, y: g.op("cast", g.op("greater", x, _number(g, x, 0)), dtype=x.dtype))
_elementwise("abs", lambda g, x, y: g.op("sign", x))
_elementwise("sin", lambda g, x, y: g.op("cos", x))
_elementwise("cos", lambda g, x, y: g.op("negative", g.op("sin", x)))
_elementwise(
    "erf",
    lambda g, x, y: _times(g, g.op("exp", g.op("negative", g.op("square", x))), _number(g, x, 2 / math.sqrt(math.pi))),
)


@_rule("softmax")
def _softmax(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    (y,) = noted.results
    both = _times(g, dy, y)
    total = g.op("sum", both, axes=(axis_of(noted.attributes["axis"], y.rank),), keepdims=True)
    return (g.op("subtract", both, _times(g, y, total)),)


# ---- sums and views ----


@_rule("sum", "mean")
def _sum(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    (x,) = noted.inputs
    axes = noted.attributes["axes"]
    axes = tuple(range(x.rank)) if axes is None else tuple(axis_of(axis, x.rank) for axis in axes)
    kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
    spread = g.op("broadcast_to", g.op("reshape", dy, shape=kept), shape=x.shape)
    if noted.operator == "sum":
        return (spread,)
    ones = g.op("full", shape=x.shape, value=1, dtype=x.dtype)
    count = g.op("reshape", g.op("sum", ones, axes=axes), shape=kept)
    return (g.broadcast("divide", spread, count),)


@_rule("reshape", "expand_dims", "squeeze")
def _reshape(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    return (g.op("reshape", dy, shape=noted.inputs[0].shape),)


@_rule("permute_dims")
def _permute(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    rank = dy.rank
    axes: Any = noted.attributes["axes"]
    axes = tuple(reversed(range(rank))) if axes is None else tuple(axis_of(axis, rank) for axis in axes)
    return (g.op("permute_dims", dy, axes=tuple(axes.index(axis) for axis in range(rank))),)


@_rule("cast")
def _cast(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    x = noted.inputs[0]
    return (g.op("cast", dy, dtype=x.dtype) if x.dtype.is_float and x.dtype is not DType.string else None,)


@_rule("broadcast_to")
def _broadcast_to(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    return (dy,)


@_rule("concat")
def _concat(g: GraphBuilder, noted: Noted, dy: Value) -> Sequence[Value | None]:
    axis = axis_of(noted.attributes["axis"], dy.rank)
    sizes = tuple(value.shape[axis] for value in noted.inputs)
    return g.ops("split", dy, axis=axis, sizes=sizes)


_RULES["checked"] = lambda g, noted, dy: (dy,)  # GraphBuilder.checked


def between(makers: Mapping[str, onnx.NodeProto], begin: set[str], end: str) -> list[onnx.NodeProto]:
    """The nodes that depend on values of some names, and that another one depends on, in order."""
    depends: dict[str, bool] = dict.fromkeys(begin, True)
    found: dict[int, onnx.NodeProto] = {}
    waiting = [(end, False)]
    while waiting:
        name, is_seen = waiting.pop()
        node = makers.get(name)
        if name in depends and not is_seen:
            continue
        if node is None:
            depends[name] = False
        elif not is_seen:
            depends[name] = False
            waiting += [(name, True), *((each, False) for each in node.input if each)]
        elif any(depends.get(each) for each in node.input):
            depends |= {each: each in begin or True for each in node.output}
            found[id(node)] = node
    return list(found.values())
