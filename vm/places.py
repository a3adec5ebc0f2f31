"""Where in a program a call stands: the function, the instruction, its frame and the values of its registers."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..formats.bytecode import Decoded, function_words, scan
from ..formats.dtypes import DType
from ..formats.messages.errors import FormatError
from ..formats.program import Function, Program
from .context import Context
from .layout import CONTEXT, FRAME, OBJECT, WORD
from .memory import array_at, tensor_shape, word


class Round(NamedTuple):
    """In which iteration of a loop a frame is, from 0."""

    loop: str
    iteration: int

    def __str__(self) -> str:
        return f"loop at {self.loop}, iteration {self.iteration}"


@dataclass(frozen=True)
class Place:
    """An instruction of a program, and the frame that was to execute it."""

    context: Context
    function: Function
    number: int  # of the function
    offset: int  # words from the function's start
    frame: int  # bytes from the start of the stack: an invoke makes another one the current one, and may move the stack

    @staticmethod
    def current(context: Context) -> Place:
        """Where a context's program counter stands."""
        at = context.words[CONTEXT.PC] // WORD
        number, offset = instruction_at(context.image.program, at)
        function = context.image.program.functions[number]
        return Place(context, function, number, offset, context.words[CONTEXT.FRAME])

    @property
    def instruction(self) -> Decoded:
        start = self.function.start + self.offset
        code = self.context.image.program.code[start : self.function.start + self.function.length]
        try:
            found = next(scan(code[:_USUAL].tolist()))
        except FormatError:  # it is longer than most
            found = next(scan(code.tolist()))
        return found._replace(offset=self.offset)

    @property
    def node(self) -> str | None:
        """The model node that the instruction comes from."""
        return node_at(self.context.image.program, self.number, self.offset)

    def before(self) -> list[Decoded]:
        """The instructions of the function that stand before."""
        words = function_words(self.context.image.program, self.function)
        return list(itertools.takewhile(lambda found: found.offset != self.offset, scan(words)))

    @property
    def index(self) -> int:
        """How many instructions of the function stand before."""
        return len(self.before())

    def where(self) -> dict[str, Any]:
        """The fields of errors that name the place."""
        depth = self.context.words[CONTEXT.DEPTH] if self.is_recursive else None
        return {
            "function": self.function.name,
            "instruction": self.index,
            "node": self.node,
            "depth": depth,
            "iterations": iterations(self.rounds) or None,
        }

    def _callers(self) -> Iterator[tuple[int, int, int]]:
        """Of the frames that have called this one, the innermost first: where each is, its function, and its next instruction."""
        for at, pc in itertools.islice(callers(self.context, self.frame), _FRAMES):
            yield at, *instruction_at(self.context.image.program, pc // WORD)

    @property
    def is_recursive(self) -> bool:
        """Whether one of the frames around this one is of the same function."""
        return any(number == self.number for _, number, _ in self._callers())

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The iterations that it is in, the innermost loop first, those of its callers' included. Empty where nobody counts."""
        rounds = self.context.rounds
        if rounds is None or not rounds.loops.all:
            return ()
        found = rounds.at(self.frame, self.number, self.offset)
        return sum((rounds.at(*each) for each in self._callers()), found)

    # ---- values ----

    def integer(self, operand: int) -> int:
        """The value of a d field."""
        return operand if operand >= 0 else word(self.context.registers(self.frame)[1], ~operand)

    def reference(self, register: int) -> int:
        return word(self.context.registers(self.frame)[0], 2 * register + 1)

    def data(self, register: int) -> int:
        """The address of the elements of the tensor in a register."""
        return word(self.context.registers(self.frame)[0], 2 * register)

    def shape(self, register: int) -> tuple[int, ...]:
        return tensor_shape(self.reference(register))

    def array(self, register: int) -> np.ndarray:
        """The tensor in a register, in place."""
        dtype = DType.from_code(word(self.reference(register) & ~1, OBJECT.TAG)).numpy
        return array_at(self.data(register), dtype, self.shape(register))


_USUAL = 64  # words of an instruction
_FRAMES = 64  # that are looked at
_SHOWN = 8  # loops of a text


def callers(context: Context, frame: int) -> Iterator[tuple[int, int]]:
    """The frames that have called one, the innermost first: where each is, in bytes from the start of the stack, and its next
    instruction, in bytes from the start of the code."""
    stack = context.words[CONTEXT.STACK]
    while size := word(stack + frame, FRAME.CALLER):
        pc = word(stack + frame, FRAME.RETURN)
        frame -= size
        yield frame, pc


def instruction_at(program: Program, at: int) -> tuple[int, int]:
    """The number of the function of an instruction at a word of the code, and the words between that one's start and it."""
    number = bisect.bisect_right(program.functions, at, key=lambda function: function.start) - 1
    return number, at - program.functions[number].start


def iterations(rounds: Sequence[Round]) -> str:
    """The innermost loop, then those that it is in."""
    more = f", in {len(rounds) - _SHOWN} more" if len(rounds) > _SHOWN else ""
    return ", in ".join(map(str, rounds[:_SHOWN])) + more


def node_at(program: Program, number: int, offset: int) -> str | None:
    """The model node that the instruction at word `offset` of function `number` comes from."""
    source_map = program.source_map
    found = bisect.bisect_left(source_map, (number, offset), key=lambda each: (each.function, each.offset))
    if found < len(source_map) and source_map[found].function == number:
        return source_map[found].node if source_map[found].offset == offset else None
    return None
