"""Register allocation: from virtual registers to the machine's.

First moves are coalesced: a value that is moved and dead under its old name is made in its new place. Then
every register gets the lowest number that is free wherever it is live. Parameters keep their fixed numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ...formats.isa import Kind, Role
from .liveness import Liveness
from .spans import Spans, intersection, meet, union
from .virtual import Instruction, Register, VirtualFunction


@dataclass(eq=False)
class _Class:
    """Registers that share one number."""

    kind: Kind
    positions: Spans
    number: int | None = None
    members: list[Register] = field(default_factory=list)


@dataclass(frozen=True)
class Allocation:
    numbers: dict[Register, int]
    ref_registers: int
    int_registers: int

    def is_void(self, instruction: Instruction) -> bool:
        """Whether an item is a move from a register to itself."""
        if Role.COPIES not in instruction.operation.roles:
            return False
        dst, src = instruction.operand("dst"), instruction.operand("src")
        return self.numbers[dst] == self.numbers[src]  # type: ignore[index]


def allocate(function: VirtualFunction, liveness: Liveness) -> Allocation:
    """Numbers for the registers of `function`."""
    classes = [_Class(r.kind, liveness.positions[r.serial], members=[r]) for r in function.registers]
    for number, param in enumerate(function.params):
        classes[param.serial].number = number
    class_of = _coalesce(function, classes)
    kept = list({id(c): c for c in class_of if c.positions}.values())
    counts = {Kind.REF: len(function.params), Kind.INT: 0}
    for kind in counts:
        counts[kind] = max(counts[kind], _assign([c for c in kept if c.kind is kind]))
    numbers = {r: c.number for r in function.registers if (c := class_of[r.serial]).number is not None}
    return Allocation(numbers, counts[Kind.REF], counts[Kind.INT])


def _coalesce(function: VirtualFunction, class_of: list[_Class]) -> list[_Class]:
    for position, item in enumerate(function.items):
        if not isinstance(item, Instruction) or Role.COPIES not in item.operation.roles:
            continue
        target, source = (class_of[register.serial] for register in (*item.writes(), *item.reads()))
        together_only_here = intersection(target.positions, source.positions) == (position, position + 1)
        if target is source or not together_only_here or None not in (target.number, source.number):
            continue
        target.positions = union(target.positions, source.positions)
        target.members += source.members
        target.number = source.number if target.number is None else target.number
        for member in source.members:
            class_of[member.serial] = target
    return class_of


def _assign(classes: list[_Class]) -> int:
    """Assigns numbers to classes in order of their first position; returns the count of numbers used."""
    fixed = {cls.number: cls.positions for cls in classes if cls.number is not None}  # parameters: the first numbers
    numbers = _Numbers([fixed[number] for number in range(len(fixed))])
    for cls in sorted((c for c in classes if c.number is None), key=lambda c: c.positions[0]):
        cls.number = numbers.take(cls.positions)
    return len(numbers)


class _Numbers:
    """The numbers of one kind of register, allocated in order of the classes' first positions."""

    def __init__(self, fixed: Sequence[Spans]) -> None:
        self._taken: list[Spans] = []  # by number, where it is in use; what lies behind is forgotten
        self._free: list[int] = []  # a heap
        self._gapped: set[int] = set()  # free at the moment, in use again later
        self._changes: list[tuple[int, int]] = []  # a heap: where each number is free next, or in use again
        self._next: list[int] = []  # by number, the one of its changes that is not outdated
        for number, positions in enumerate(fixed):
            self._take(number, positions)

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, positions: Spans) -> int:
        """The lowest number that is free at all of them."""
        self._advance(positions[0])
        fitting = [number for number in self._gapped if not meet(self._taken[number], positions)]
        number = min((*fitting, *self._free[:1]), default=len(self._taken))
        if self._free[:1] == [number]:
            heappop(self._free)
        self._take(number, positions)
        return number

    def _take(self, number: int, positions: Spans) -> None:
        if number == len(self._taken):
            self._taken.append(())
            self._next.append(0)
        self._taken[number] = union(_from(self._taken[number], positions[0]), positions)
        self._gapped.discard(number)
        self._expect(number, self._taken[number][1])

    def _expect(self, number: int, position: int) -> None:
        self._next[number] = position
        heappush(self._changes, (position, number))

    def _advance(self, position: int) -> None:
        """Notes which numbers are free at a position."""
        while self._changes and self._changes[0][0] <= position:
            change, number = heappop(self._changes)
            if change != self._next[number]:
                continue
            self._taken[number] = rest = _from(self._taken[number], position)
            self._gapped.discard(number)
            if not rest:
                self._next[number] = -1
                heappush(self._free, number)
            elif rest[0] > position:
                self._gapped.add(number)
                self._expect(number, rest[0])
            else:
                self._expect(number, rest[1])


def _from(spans: Spans, position: int) -> Spans:
    """The runs that end after a position."""
    border = bisect_right(spans, position)
    return spans[border - border % 2 :]
