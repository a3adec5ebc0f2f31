"""Which nodes of a model hold a symbolic size to one number.

Exporters write sizes down as they were: after a Reshape to [1, 2048], an input float32[n, 2048, 1, 1] can have one row only,
and the program refuses any other when it runs. `forced_sizes` tells before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..formats import dims
from ..formats.dims import SymbolicDim
from ..formats.types import UNKNOWN, ShapeDim, TensorType
from . import ir
from .ir.analysis import dimension_names

_TOLD_NODES = 3


@dataclass(frozen=True)
class ForcedSize:
    """A symbolic size of an input that a node leaves no choice."""

    symbol: str
    size: int
    node: str
    why: str


def forced_sizes(function: ir.Function) -> list[ForcedSize]:
    """Those of a function's parameters, in the order of the nodes: of branches, what both leave. Loops are not looked into: they
    may not run."""
    symbols = {name for param in function.params if param.type is not None for name in dimension_names(param.type)}
    if not symbols:
        return []
    return [each for each in _in_block(function.body) if each.symbol in symbols]


def _in_block(block: ir.Block) -> Iterator[ForcedSize]:
    for binding in block.bindings:
        if isinstance(binding.value, ir.If):
            otherwise = {(each.symbol, each.size) for each in _in_block(binding.value.otherwise)}
            yield from (each for each in _in_block(binding.value.then) if (each.symbol, each.size) in otherwise)
        for symbol, size, why in _forced(binding.value):
            yield ForcedSize(symbol, size, binding.origin, why)


def forced_text(function: ir.Function) -> str:
    """A line for each symbol of which one size is left: that size, and the first nodes that want it; of what may
    be a batch, the first axis of an input, what makes it symbolic. Else empty."""
    forced, lines = forced_sizes(function), []
    for symbol, size in dict.fromkeys((each.symbol, each.size) for each in forced):
        found = [each for each in forced if (each.symbol, each.size) == (symbol, size)]
        nodes = "; ".join(f"{each.node} ({each.why})" for each in found[:_TOLD_NODES])
        more = f"; and {len(found) - _TOLD_NODES} more" if len(found) > _TOLD_NODES else ""
        lines.append(f"{symbol} can only be {size}: {nodes}{more}")
    rows = {dim for param in function.params if isinstance(param.type, TensorType) for dim in param.type.shape[:1]}
    if any(dims.variable(each.symbol) in rows for each in forced):
        lines.append('batch="n" (treadle compile --batch n) makes such sizes symbolic where they are those of a batch')
    return "\n".join(lines)


def _forced(expression: ir.Expr) -> Iterator[tuple[str, int, str]]:
    if isinstance(expression, ir.MatchShape):
        type_ = getattr(expression.value, "type", None)
        if isinstance(type_, TensorType) and type_.rank == len(expression.shape):
            for have, want in zip(type_.shape, expression.shape, strict=True):
                yield from _only(have, want, f"it takes the size {want} for {have}")
    elif isinstance(expression, ir.OperatorCall) and expression.operator == "reshape":
        type_ = getattr(expression.args[0], "type", None)
        shape: Any = dict(expression.attributes)["shape"]
        if isinstance(type_, TensorType) and UNKNOWN not in type_.shape:
            text = f"[{', '.join(map(str, shape))}]"
            count = dims.product(type_.shape)  # type: ignore[arg-type]
            yield from _only(count, dims.product(shape), f"it reshapes {type_} to {text}")


def _only(have: ShapeDim, want: ShapeDim, why: str) -> Iterator[tuple[str, int, str]]:
    """The one variable that makes two sizes equal, if they differ by one."""
    if have is UNKNOWN or want is UNKNOWN or have == want:
        return
    for a, b in ((have, want), (want, have)):
        if a != 0 and b != 0:
            ratio = dims.floordiv(a, b)  # type: ignore[arg-type]
            if dims.multiply(ratio, b) == a:  # type: ignore[arg-type]
                have, want = ratio, 1
                break
    difference = dims.add(have, dims.multiply(want, -1))  # type: ignore[arg-type]
    if not isinstance(difference, SymbolicDim):
        return
    terms = dict(difference.terms)
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return
    ((monomial, factor),) = terms.items()
    if len(monomial) != 1 or not isinstance(monomial[0], dims.Variable):  # n = 8 * (n // 8) leaves many sizes
        return
    size, rest = divmod(-constant, factor)
    if not rest and size >= 0:
        yield monomial[0].name, size, why
