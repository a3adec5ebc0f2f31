"""Tensors that are parts of others: joining or splitting tensors along an outermost axis need not copy anything.

The memory planner places such tensors where they belong, and the kernel does not copy data that is in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...formats import limits
from ...formats.primitive import PrimitiveDefinition
from .copies import Copy, copies_of


@dataclass(frozen=True)
class Parts:
    """A primitive that moves contiguous ranges between one tensor, the whole, and others."""

    is_join: bool  # the whole is the output and the parts are the inputs; else it is the other way round
    starts: tuple[int, ...]  # of each part in the whole, in bytes


def parts_of(definition: PrimitiveDefinition) -> Parts | None:
    """None for other primitives, and if a part would not be aligned like a separate tensor."""
    is_static = all(type_.is_static for type_ in (*definition.params, *definition.results))
    if not is_static or definition.variables:  # attributes may have variables even if types have none
        return None
    copies = copies_of(definition)
    if copies is None or not all(map(_is_stretch, copies)):
        return None
    inputs, results = len(definition.params), len(definition.results)
    is_join = inputs > 1
    found = [copy.source for copy in copies] if is_join else [copy.target - inputs for copy in copies]
    if found != list(range(inputs if is_join else results)):
        return None  # a tensor that is joined more than once, or in another order
    itemsize = definition.results[0].dtype.itemsize
    starts = tuple(int(copy.target_start if is_join else copy.source_start) * itemsize for copy in copies)  # type: ignore[arg-type]
    return None if any(start % limits.ALIGNMENT for start in starts) else Parts(is_join, starts)


def _is_stretch(copy: Copy) -> bool:
    return len(copy.axes) == 1 and (copy.axes[0].source, copy.axes[0].target) == (1, 1)
