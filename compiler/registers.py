"""Register allocation: from virtual registers to the few of the machine.

First moves are coalesced: a value that is moved and not wanted under its old name any more is made in its new place. Then
every register takes the lowest number that is free wherever it is live. Parameters keep their fixed numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats.isa import Kind, Role
from .liveness import Liveness
from .virtual import Instruction, Register, VirtualFunction


@dataclass(eq=False)
class _Class:
    """Registers that share one place."""

    kind: Kind
    positions: int
    number: int | None = None
    members: list[Register] = field(default_factory=list)


@dataclass(frozen=True)
class Allocation:
    numbers: dict[Register, int]
    ref_registers: int
    int_registers: int

    def is_void(self, instruction: Instruction) -> bool:
        """True for a move from a register to itself."""
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
        together_only_here = target.positions & source.positions == 1 << position
        if target is source or not together_only_here or None not in (target.number, source.number):
            continue
        target.positions |= source.positions
        target.members += source.members
        target.number = source.number if target.number is None else target.number
        for member in source.members:
            class_of[member.serial] = target
    return class_of


def _assign(classes: list[_Class]) -> int:
    """Gives every class a number, those that live first first; the count of numbers used."""
    taken: list[int] = []  # by number, the positions where it is in use

    def take(cls: _Class, number: int) -> None:
        taken.extend([0] * (number + 1 - len(taken)))
        taken[number] |= cls.positions
        cls.number = number

    for cls in classes:
        if cls.number is not None:
            take(cls, cls.number)
    for cls in sorted((c for c in classes if c.number is None), key=lambda c: c.positions & -c.positions):
        free = (number for number, positions in enumerate(taken) if not positions & cls.positions)
        take(cls, next(free, len(taken)))
    return len(taken)
