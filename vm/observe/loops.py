"""The loops of a function's code: a jump back, and what lies between."""

from __future__ import annotations

from typing import NamedTuple

from ...formats.bytecode import function_words, jump_target, scan
from ...formats.program import Program
from ..places import node_at


class Loop(NamedTuple):
    """A loop of function `number`: it goes on at word `header` of it, from the jumps at words `back`."""

    number: int
    header: int
    back: tuple[int, ...]
    node: str | None  # the model node, or the user's line, that the loop comes from

    def encloses(self, other: Loop) -> bool:
        """Whether the other one begins anew in each round of this one."""
        return self.number == other.number and self.header < other.header <= self.back[-1]


def loops_of(program: Program, number: int) -> tuple[Loop, ...]:
    """In order of their first instructions."""
    found: dict[int, list[int]] = {}
    for instruction in scan(function_words(program, program.functions[number])):
        target = jump_target(instruction)
        if target is not None and target <= instruction.offset:
            found.setdefault(target, []).append(instruction.offset)
    return tuple(
        Loop(number, header, tuple(back), node_at(program, number, back[-1])) for header, back in sorted(found.items())
    )
