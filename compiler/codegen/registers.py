"""Register allocation: from virtual registers to the machine's.

First moves are coalesced: a value that is moved and dead under its old name is made in its new place. Then
every register gets the lowest number that is free wherever it is live. Parameters keep their fixed numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

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
        self._taken = list(fixed)  # by number, where it is in use; past positions are forgotten
        self._ends = [(positions[-1], number) for number, positions in enumerate(fixed)]  # a heap, some of it outdated
        self._free: list[int] = []  # a heap
        self._gapped = {number for number, positions in enumerate(fixed) if len(positions) > 2}  # with gaps
        heapify(self._ends)

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, positions: Spans) -> int:
        """Takes the lowest number that is free at all positions."""
        self._forget(positions[0])
        fitting = [number for number in self._gapped if not meet(self._taken[number], positions)]
        number = min((*fitting, *self._free[:1]), default=len(self._taken))
        if number == len(self._taken):
            self._taken.append(())
        elif self._free[:1] == [number]:
            heappop(self._free)
        self._taken[number] = taken = union(_from(self._taken[number], positions[0]), positions)
        heappush(self._ends, (taken[-1], number))
        if len(taken) > 2:
            self._gapped.add(number)
        return number

    def _forget(self, position: int) -> None:
        """Frees numbers that are in use only before a position."""
        while self._ends and self._ends[0][0] <= position:
            end, number = heappop(self._ends)
            if self._taken[number][-1:] == (end,):
                self._taken[number] = ()
                self._gapped.discard(number)
                heappush(self._free, number)


def _from(spans: Spans, position: int) -> Spans:
    """The runs that end after a position."""
    border = bisect_right(spans, position)
    return spans[border - border % 2 :]
