"""Iterations: the loops of a program's code (a jump back, and what lies between), and how often each has gone back in a call.

Nothing is counted in a call that nobody observes. One with listeners, or in a debugger, traps where loops go back and where
functions with loops begin. For an error of any other, the call is made once more, and counts (`vm/calls.py`).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from ...formats.bytecode import function_words, loops, scan
from ...formats.messages.errors import CancelledError, ExecutionError, OutOfMemoryError
from ...formats.program import Program
from ..image import Image
from ..layout import WORD
from ..places import Round, node_at


class Loop(NamedTuple):
    """A loop of function `number`: it goes on at word `header` of it, from the jumps at words `back`."""

    number: int
    header: int
    back: tuple[int, ...]
    node: str | None  # the model node, or the user's line, that the loop comes from


def _header(loop: Loop) -> int:
    return loop.header


class Loops:
    """The loops of a program. Addresses are bytes from the start of the code, as the program counter has them."""

    def __init__(self, program: Program) -> None:
        self._of = [loops_of(program, number) for number in range(len(program.functions))]
        self.all = [loop for of_one in self._of for loop in of_one]
        starts = [function.start for function in program.functions]
        self.back = {(starts[loop.number] + at) * WORD: loop for loop in self.all for at in loop.back}
        self.begun = {starts[number] * WORD: of_one for number, of_one in enumerate(self._of) if of_one}
        self.headers = {loop: (starts[loop.number] + loop.header) * WORD for loop in self.all}
        self.sites = frozenset((*self.back, *self.begun))  # the instructions that `Rounds` is told of

    def inner(self, loop: Loop) -> Sequence[Loop]:
        """Those that begin anew in each round of one."""
        of_one = self._of[loop.number]
        first = bisect.bisect_right(of_one, loop.header, key=_header)
        return of_one[first : bisect.bisect_right(of_one, loop.back[-1], key=_header)]

    def around(self, number: int, offset: int) -> list[Loop]:
        """The loops that an instruction stands in, the innermost first."""
        return [each for each in reversed(self._of[number]) if each.header <= offset <= each.back[-1]]


class Rounds:
    """In which iterations the frames of one call are."""

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self._counts: dict[tuple[int, Loop], int] = {}  # by frame: how often a loop has gone back in it
        self._goes_back = False  # to a function's first instruction, where else a frame begins

    def copy(self) -> Rounds:
        made = Rounds(self.loops)
        made._counts, made._goes_back = dict(self._counts), self._goes_back
        return made

    def executed(self, pc: int, frame: int, following: int) -> None:
        """The instruction at `pc`, one of `loops.sites`, was executed in a frame; `following` is the next one."""
        counts, known = self._counts, self.loops
        begun = () if self._goes_back else known.begun.get(pc, ())
        self._goes_back = False
        for each in begun:
            counts.pop((frame, each), None)
        loop = known.back.get(pc)
        if loop is not None and following == known.headers[loop]:
            counts[frame, loop] = counts.get((frame, loop), 0) + 1
            self._goes_back = following in known.begun
            for other in known.inner(loop):
                counts.pop((frame, other), None)

    def of(self, frame: int, loop: Loop) -> int:
        """Which iteration of a loop a frame is in, from 0."""
        return self._counts.get((frame, loop), 0)

    def at(self, frame: int, number: int, offset: int) -> tuple[Round, ...]:
        """Those of the loops that an instruction stands in, the innermost first."""
        around = self.loops.around(number, offset)
        return tuple(Round(loop.node or f"+{loop.header}", self.of(frame, loop)) for loop in around)


def loops_in(image: Image) -> Loops:
    """Those of its program, which are looked for once."""
    if image.loops is None:
        image.loops = Loops(image.program)
    return image.loops


def lacks_iterations(failure: ExecutionError, image: Image) -> bool:
    """Whether nobody has counted the iterations that a call has failed in, and it would fail there once more."""
    is_elsewhere = (
        isinstance(failure, (CancelledError, OutOfMemoryError)) or getattr(failure, "budget", "") == "seconds"
    )
    is_open = failure.iterations is None and failure.instruction is not None
    return is_open and not is_elsewhere and bool(loops_in(image).all)


def loops_of(program: Program, number: int) -> tuple[Loop, ...]:
    """In order of their first instructions."""
    found = loops(scan(function_words(program, program.functions[number])))
    return tuple(Loop(number, header, back, node_at(program, number, back[-1])) for header, back in found.items())
