"""Data movement as strided copies, one loop nest each."""

from __future__ import annotations

from dataclasses import dataclass

from .....formats import dims
from .....formats.dims import Dim


@dataclass(frozen=True)
class Axis:
    size: Dim
    source: Dim  # step, in elements
    target: Dim


@dataclass(frozen=True)
class Copy:
    """Axes are given in the target's order, outermost first; `source` and `target` count the kernel's tensors."""

    source: int
    target: int
    axes: tuple[Axis, ...]
    source_start: Dim = 0
    target_start: Dim = 0

    def simplified(self) -> Copy:
        """The same copy with as few axes as possible."""
        merged: list[Axis] = []
        for axis in self.axes:
            if axis.size == 1:
                continue
            if merged and all(
                outer == dims.multiply(inner, axis.size)
                for outer, inner in ((merged[-1].source, axis.source), (merged[-1].target, axis.target))
            ):
                merged[-1] = Axis(dims.multiply(merged[-1].size, axis.size), axis.source, axis.target)
            else:
                merged.append(axis)
        axes = tuple(merged) or (Axis(1, 1, 1),)
        return Copy(self.source, self.target, axes, self.source_start, self.target_start)
