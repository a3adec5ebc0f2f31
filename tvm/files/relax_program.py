"""Programs of the Relax VM: four instructions over registers that hold any value, and functions that are called by name.

Here they are data, their text (as the Relax VM prints it), and the check that comes before any run, which is the work of
`relax/machine.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Union

from ...formats import limits
from ...formats.messages.errors import VerificationError
from ...formats.messages.terminal import showing

VOID = 1 << 54  # the register that is None, and forgets what it is given
MACHINE = VOID + 1  # the register that is the machine


class Kind(IntEnum):
    """What an operand is."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class Operand(NamedTuple):
    """An argument of a call."""

    kind: Kind
    value: int


class Call(NamedTuple):
    """Calls a function of the table; its result goes into a register."""

    function: int
    args: tuple[Operand, ...]
    dst: int


class Ret(NamedTuple):
    """Returns a register."""

    result: int


class Goto(NamedTuple):
    """Goes on `offset` instructions from here."""

    offset: int


class If(NamedTuple):
    """Goes on with the next instruction, or `false_offset` from here where a register is 0."""

    condition: int
    false_offset: int


Instruction = Union[Call, Ret, Goto, If]


@dataclass(frozen=True)
class RelaxFunction:
    """A function of the table; without instructions (None) it is one that the machine finds by name, or one whose instructions
    are native code of a library, for the Relax VM's registers. Its parameters are its first registers."""

    name: str
    params: tuple[str, ...] = ()
    code: tuple[Instruction, ...] | None = None
    registers: int = 0
    is_native: bool = False


@dataclass(frozen=True)
class RelaxProgram:
    """Functions, and constants: tensors, shapes, texts, element types, numbers."""

    functions: tuple[RelaxFunction, ...]
    constants: tuple[Any, ...]
    # it calls by name what it was handed, and no registered function
    from_file: bool = field(default=False, compare=False)

    def own(self) -> Iterator[RelaxFunction]:
        """The functions that have instructions."""
        return (function for function in self.functions if function.code is not None)


# ---- text ----


def _register(number: int) -> str:
    return {VOID: "%void", MACHINE: "%vm"}.get(number, f"%{number}")


@showing
def as_text(program: RelaxProgram) -> str:
    """The program as the Relax VM prints it."""
    text = []
    for function in program.functions:
        if function.code is None:
            kind = f"num_inputs={len(function.params)} vm_tir_func" if function.is_native else "packed_func"
            text.append(f"@{function.name} {kind};\n\n")
            continue
        lines = [_line(program, instruction) for instruction in function.code]
        text.append("".join([f"@{function.name}:\n", *(f"  {line}\n" for line in lines), "\n"]))
    return "".join(text)


def _line(program: RelaxProgram, instruction: Instruction) -> str:
    if isinstance(instruction, Call):
        args = ", ".join(_operand(program, arg) for arg in instruction.args)
        name = program.functions[instruction.function].name
        return f"{'call':6}{name:16} in: {args:12} dst: {_register(instruction.dst)}"
    if isinstance(instruction, Ret):
        return f"{'ret':6}{_register(instruction.result)}"
    if isinstance(instruction, Goto):
        return f"{'goto':6}{instruction.offset}"
    return f"{'If':6}{_register(instruction.condition)}, {instruction.false_offset}"


def _operand(program: RelaxProgram, operand: Operand) -> str:
    if operand.kind == Kind.REGISTER:
        return _register(operand.value)
    if operand.kind == Kind.IMMEDIATE:
        return f"i{operand.value}"
    if operand.kind == Kind.CONSTANT:
        return f"c[{operand.value}]"
    return f"f[{program.functions[operand.value].name}]"


@showing
def statistics(program: RelaxProgram) -> str:
    """What the program consists of, as the Relax VM prints it."""
    constants = ", ".join(map(_constant, program.constants))
    names = ", ".join(function.name for function in program.functions)
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(program.constants)}): [{constants}]\n"
        f"  Globals (#{len(program.functions)}): [{names}]\n"
    )


def _constant(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"[{', '.join(map(str, shape))}]" if len(shape) else "scalar"
    return f"shapetuple[{', '.join(map(str, value))}]" if isinstance(value, Sequence) else str(value)


# ---- the check ----


def check(program: RelaxProgram) -> None:
    """Every index is that of something, every jump ends in its function, every path ends in a return, and no register is read
    on a path on which nothing has written it. Raises VerificationError."""
    names: set[str] = set()
    for function in program.functions:
        if function.name in names:
            raise VerificationError(f"function {function.name!r} is defined twice", layer="tables")
        names.add(function.name)
    for function in program.own():
        _Check(program, function).run()


class _Check:
    def __init__(self, program: RelaxProgram, function: RelaxFunction) -> None:
        assert function.code is not None
        self._program, self._function, self._code = program, function, function.code

    def run(self) -> None:
        """A register is written on a path; what is written where paths meet, is written on all of them. What is known is kept
        where jumps lead, as bits: its size, and how often a place is looked at, are bounded."""
        if self._function.registers < len(self._function.params):
            self._refuse("code", "it has fewer registers than parameters", 0)
        places = self._places()
        if len(places) * self._function.registers > limits.FLOW_BITS:
            self._refuse("code", f"{len(places)} jumps and {self._function.registers} registers are too many", 0)
        known: dict[int, int] = {0: 0}
        waiting, steps = [0], limits.FLOW_STEPS * (len(self._code) + 1)
        while waiting:
            begin = heapq.heappop(waiting)
            fresh: set[int] = set()
            end, following = self._block(begin, places, known[begin], fresh)
            steps -= end - begin
            if steps < 0:
                self._refuse("code", "its jumps are too entangled", begin)
            after = known[begin] | _bits(fresh)
            for place in following:
                before = known.get(place)
                met = after if before is None else before & after
                if met != before:
                    known[place] = met
                    heapq.heappush(waiting, place)

    def _places(self) -> set[int]:
        """Where paths may meet: what jumps lead to."""
        places = set()
        for at, instruction in enumerate(self._code):
            if isinstance(instruction, Goto):
                places.add(at + instruction.offset)
            elif isinstance(instruction, If):
                places |= {at + 1, at + instruction.false_offset}
        return places

    def _block(self, begin: int, places: set[int], known: int, fresh: set[int]) -> tuple[int, tuple[int, ...]]:
        """Goes on until a jump, or to where one leads: the end, and the places that may follow. Adds to the fresh registers."""
        at = begin
        while True:
            if not 0 <= at < len(self._code):
                self._refuse(
                    "code", f"a path leads to instruction {at}, of {len(self._code)}: every path ends in a ret", at
                )
            if at in places and at > begin:
                return at, (at,)
            instruction = self._code[at]
            if isinstance(instruction, Ret):
                self._read(instruction.result, known, fresh, at)
                return at + 1, ()
            if isinstance(instruction, Goto):
                if instruction.offset == 0:
                    self._refuse("code", "a goto leads to itself", at)
                return at + 1, (at + instruction.offset,)
            if isinstance(instruction, If):
                self._read(instruction.condition, known, fresh, at)
                if instruction.false_offset <= 1:
                    self._refuse(
                        "code", f"an If's false offset must be more than 1, got {instruction.false_offset}", at
                    )
                return at + 1, (at + 1, at + instruction.false_offset)
            self._call(instruction, known, fresh, at)
            at += 1

    def _call(self, call: Call, known: int, fresh: set[int], at: int) -> None:
        functions = self._program.functions
        if not 0 <= call.function < len(functions):
            self._refuse("tables", f"there is no function {call.function}", at)
        callee = functions[call.function]
        if callee.code is not None and len(call.args) != len(callee.params):
            got = f"{len(callee.params)} arguments, {len(call.args)} come"
            self._refuse("types", f"{callee.name} expects {got}", at)
        for kind, value in call.args:
            if kind == Kind.REGISTER:
                self._read(value, known, fresh, at)
            elif kind == Kind.CONSTANT and not 0 <= value < len(self._program.constants):
                self._refuse("tables", f"there is no constant {value}", at)
            elif kind == Kind.FUNCTION and not 0 <= value < len(functions):
                self._refuse("tables", f"there is no function {value}", at)
        if call.dst in (VOID, MACHINE):
            return
        if not 0 <= call.dst < self._function.registers:
            self._refuse("code", f"there is no register {_register(call.dst)}", at)
        fresh.add(call.dst)

    def _read(self, register: int, known: int, fresh: set[int], at: int) -> None:
        if 0 <= register < len(self._function.params) or register in fresh or register in (VOID, MACHINE):
            return
        if 0 <= register < self._function.registers and known >> register & 1:
            return
        self._refuse(
            "data flow",
            f'register r({register}) in VM function "{self._function.name}" is used as input while, on a path to here, it is '
            f"never defined as a destination. Dump: {_line(self._program, self._code[at])}",
            at,
        )

    def _refuse(self, layer: str, message: str, at: int) -> None:
        raise VerificationError(message, layer=layer, function=self._function.name, instruction=at)


def _bits(numbers: set[int]) -> int:
    """An integer with these bits."""
    found = bytearray(max(numbers, default=-1) // 8 + 1)
    for number in numbers:
        found[number // 8] |= 1 << number % 8
    return int.from_bytes(found, "little")
