"""Liveness: the positions of a function's code at which each register holds a value that is still needed.

It is kept per register, as spans: in long code with short-lived registers, that takes space linear in the registers. Two
registers may share a number if and only if the spans of their positions do not intersect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .spans import Spans, contains, runs, union
from .virtual import Instruction, Item, Label, Register, VirtualFunction


@dataclass(frozen=True)
class Liveness:
    wanted: tuple[
        Spans, ...
    ]  # by register's serial, points of the code: 2 p is before the item at position p, 2 p + 1 after it
    positions: tuple[Spans, ...]  # by register's serial, where it is read, written, or live
    before: Mapping[Item, frozenset[Register]]  # the registers that are live at labels and jumps

    def is_wanted(self, register: Register, position: int) -> bool:
        """Whether the value is read at `position` or later, before another is written."""
        return contains(self.wanted[register.serial], 2 * position)

    def ends(self, register: Register) -> Iterator[int]:
        """The positions after which the value is dead."""
        return ((end - 1) // 2 for _, end in runs(self.wanted[register.serial]))


def analyse(function: VirtualFunction) -> Liveness:
    """Backward data flow: one pass over straight-line code, one more for each level of loops."""
    before: dict[Item, frozenset[Register]] = {item: frozenset() for item in function.items if isinstance(item, Label)}
    while (found := _Pass(function, before)).has_news:
        pass
    wanted = found.spans
    positions = [_positions(points) for points in wanted]
    for param in function.params:  # arguments arrive in all of the parameters' registers, live or not
        positions[param.serial] = union(positions[param.serial], (0, 1))
    return Liveness(wanted, tuple(positions), before)


def _positions(points: Spans) -> Spans:
    """The positions that points belong to."""
    found: Spans = ()
    for start, end in runs(points):
        found = union(found, (start // 2, (end + 1) // 2))
    return found


class _Pass:
    """One pass from the end of the code to its start, with the live sets of labels from earlier ones."""

    def __init__(self, function: VirtualFunction, before: dict[Item, frozenset[Register]]) -> None:
        self.has_news = False  # whether the live set of a label that was jumped to has grown
        self._ends: dict[Register, int] = {}  # the end of the current run of each live register
        self._borders: list[list[int]] = [[] for _ in function.registers]  # from high to low
        for position in range(len(function.items) - 1, -1, -1):
            item = function.items[position]
            if isinstance(item, Label):
                self.has_news |= self._ends.keys() != before[item]
            else:
                self._instruction(item, 2 * position, [before[target] for target in item.targets()])
            if isinstance(item, Label) or next(item.targets(), None) is not None:
                before[item] = frozenset(self._ends)
        self._close(list(self._ends), 0)
        self.spans = tuple(tuple(reversed(borders)) for borders in self._borders)

    def _instruction(self, item: Instruction, point: int, at_targets: list[frozenset[Register]]) -> None:
        after = frozenset[Register]().union(*at_targets)
        if item.operation.ends_block:
            self._close(self._ends.keys() - after, point + 2)
        self._open(after, point + 2)
        written = dict.fromkeys(item.writes())
        self._open(written, point + 2)
        self._close(written, point + 1)
        self._open(item.reads(), point + 1)

    def _open(self, registers: Iterable[Register], end: int) -> None:
        for register in registers:
            self._ends.setdefault(register, end)

    def _close(self, registers: Iterable[Register], start: int) -> None:
        for register in registers:
            end = self._ends.pop(register)
            borders = self._borders[register.serial]
            if borders and borders[-1] == end:
                borders[-1] = start
            else:
                borders += end, start
