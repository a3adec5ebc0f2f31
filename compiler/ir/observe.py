"""The reference evaluator, watched: what every binding of a program is worth.

It stands apart from `evaluate.py`, whose text decides about kernels in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import ir
from .evaluate import MAX_DEPTH, Closure, Steps, Value, _argument, _Environment, _Evaluator, _run

Seen = Callable[[ir.Binding, Value], None]


def observe(
    module: ir.Module, name: str, *args: object, seen: Seen, imports: Mapping[str, Callable[..., Any]] | None = None
) -> Value:
    """The value of a function of a typed module, as `evaluate` gives it; `seen` is told of each binding when its block has ended.
    The bindings of a block come in order, those of a loop once a round."""
    function = module.functions[name]
    values = [_argument(arg, param) for arg, param in zip(args, function.params, strict=True)]
    evaluator = _Watched(module, imports or {}, seen)
    return _run(evaluator.apply(Closure(function, {}, {}), values), MAX_DEPTH)


class _Watched(_Evaluator):
    def __init__(self, module: ir.Module, imports: Mapping[str, Callable[..., Value]], seen: Seen) -> None:
        super().__init__(module, imports)
        self._seen = seen

    def block(self, block: ir.Block, outer: _Environment) -> Steps:
        value = yield from super().block(block, outer)
        for binding in block.bindings:
            self._seen(binding, outer.values[binding.var])
        return value
