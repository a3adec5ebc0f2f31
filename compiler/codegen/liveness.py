"""Liveness: the positions of a function's code at which each register holds a value that is still needed.

It is kept by register, as spans: long code, where each register lives for a short while, takes room for each register once. Two
registers may share a place if and only if the spans of their positions do not meet. Where blocks of code begin, sets are bits of
numbers: of what is wanted across a branch only what changes there is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .spans import Spans, contains, runs, union
from .virtual import Instruction, Item, Label, Register, VirtualFunction

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Liveness:
    # by register's serial, points of the code: 2 p is before the item at position p, 2 p + 1 behind it
    wanted: tuple[Spans, ...]
    positions: tuple[Spans, ...]  # by register's serial, where it is read, written, or waits to be read
    crossing: Sequence[Register]  # those that may be wanted at labels and jumps
    before: Mapping[Item, int]  # of labels and jumps, what is wanted there: bits, by place in `crossing`

    def is_wanted(self, register: Register, position: int) -> bool:
        """Whether the value is read at `position` or later, before another is written."""
        return contains(self.wanted[register.serial], 2 * position)

    def ends(self, register: Register) -> Iterator[int]:
        """The positions after which the value is dead."""
        return ((end - 1) // 2 for _, end in runs(self.wanted[register.serial]))


def members(bits: int, items: Sequence[_Item]) -> Iterator[_Item]:
    """Those whose bits are set."""
    while bits:
        low = bits & -bits
        yield items[low.bit_length() - 1]
        bits ^= low


def analyse(function: VirtualFunction) -> Liveness:
    """Backward data flow over blocks, then one walk over the code."""
    blocks = _blocks(function.items)
    numbers = _crossing(function.items, blocks)
    crossing = list(numbers)
    for block in blocks:
        block.reads = sum(1 << numbers[register] for register in block.exposed)
        block.writes = sum(1 << numbers[register] for register in block.written if register in numbers)
    before = _solve(function.items, blocks, numbers)
    wanted = _Walk(function, blocks, crossing).spans
    positions = [_positions(points) for points in wanted]
    for param in function.params:  # arguments arrive in all of the parameters' registers, live or not
        positions[param.serial] = union(positions[param.serial], (0, 1))
    return Liveness(wanted, tuple(positions), crossing, before)


def _positions(points: Spans) -> Spans:
    """The positions that points belong to."""
    found: Spans = ()
    for start, end in runs(points):
        found = union(found, (start // 2, (end + 1) // 2))
    return found


@dataclass(eq=False)
class _Block:
    """Code without labels but at its start, and without jumps but at its end."""

    start: int  # positions of its items
    end: int
    exposed: dict[Register, None]  # read before they are written here
    written: dict[Register, None]
    reads: int = 0  # the same as bits
    writes: int = 0
    before: int = 0  # what is wanted at its start
    after: int = 0  # and at its end


def _blocks(items: Sequence[Item]) -> list[_Block]:
    blocks: list[_Block] = []
    is_open = False
    for position, item in enumerate(items):
        if not is_open or isinstance(item, Label):
            blocks.append(_Block(position, position, {}, {}))
        block = blocks[-1]
        block.end, is_open = position + 1, True
        if isinstance(item, Instruction):
            block.exposed.update((register, None) for register in item.reads() if register not in block.written)
            block.written.update((register, None) for register in item.writes())
            is_open = not _leaves(item)
    return blocks


def _leaves(item: Item) -> bool:
    """Whether another item than the next one may follow."""
    return isinstance(item, Instruction) and (item.operation.ends_block or next(item.targets(), None) is not None)


def _crossing(items: Sequence[Item], blocks: Iterable[_Block]) -> dict[Register, int]:
    """Bits for what blocks or jumps read: all that may be wanted at a label or jump."""
    numbers: dict[Register, int] = {}
    for block in blocks:
        last = items[block.end - 1]
        for register in (*block.exposed, *(last.reads() if isinstance(last, Instruction) else ())):
            numbers.setdefault(register, len(numbers))
    return numbers


def _solve(items: Sequence[Item], blocks: Sequence[_Block], numbers: Mapping[Register, int]) -> dict[Item, int]:
    """What is wanted at labels and jumps, and before and behind each block: a round, and one more for each level of loops."""
    before: dict[Item, int] = {item: 0 for item in items if isinstance(item, Label)}
    has_news = True
    while has_news:
        has_news, behind = False, 0
        for block in reversed(blocks):
            last, after = items[block.end - 1], behind
            if isinstance(last, Instruction):
                after = 0 if last.operation.ends_block else behind
                for target in last.targets():
                    after |= before[target]
                if _leaves(last):
                    written = sum(1 << numbers[register] for register in last.writes() if register in numbers)
                    read = sum(1 << numbers[register] for register in dict.fromkeys(last.reads()))
                    before[last] = after & ~written | read
            behind = after & ~block.writes | block.reads
            has_news |= behind != block.before
            block.before, block.after = behind, after
            if isinstance(first := items[block.start], Label):
                before[first] = behind
    return before


class _Walk:
    """From the end of the code to its start, with what is wanted behind each block."""

    def __init__(self, function: VirtualFunction, blocks: Sequence[_Block], crossing: Sequence[Register]) -> None:
        self._ends: dict[Register, int] = {}  # of what is wanted at the moment, the end of its run
        self._borders: list[list[int]] = [[] for _ in function.registers]  # from high to low
        behind = 0
        for block in reversed(blocks):
            self._close(members(behind & ~block.after, crossing), 2 * block.end)
            self._open(members(block.after & ~behind, crossing), 2 * block.end)
            for position in range(block.end - 1, block.start - 1, -1):
                item = function.items[position]
                if isinstance(item, Instruction):
                    self._instruction(item, 2 * position)
            behind = block.before
        self._close(list(self._ends), 0)
        self.spans = tuple(tuple(reversed(borders)) for borders in self._borders)

    def _instruction(self, item: Instruction, point: int) -> None:
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
