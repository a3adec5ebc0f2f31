"""Programs of the Relax VM: four instructions over registers that hold any value, and functions that are called by name.

Here they are data, their text (as the Relax VM prints it), and the check that comes before any run, which is the work of
`vm/relax_machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Union

from .errors import VerificationError

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
    """A function of the table; without instructions (None) it is one that the machine finds by name. Its parameters are its
    first registers."""

    name: str
    params: tuple[str, ...] = ()
    code: tuple[Instruction, ...] | None = None
    registers: int = 0


@dataclass(frozen=True)
class RelaxProgram:
    """Functions, and constants: tensors, shapes, texts, element types, numbers."""

    functions: tuple[RelaxFunction, ...]
    constants: tuple[Any, ...]

    def own(self) -> Iterator[RelaxFunction]:
        """The functions that have instructions."""
        return (function for function in self.functions if function.code is not None)


# ---- text ----


def _register(number: int) -> str:
    return {VOID: "%void", MACHINE: "%vm"}.get(number, f"%{number}")


def as_text(program: RelaxProgram) -> str:
    """The program as the Relax VM prints it."""
    text = []
    for function in program.functions:
        if function.code is None:
            text.append(f"@{function.name} packed_func;\n\n")
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
        """A register is written on a path; what is written where paths meet, is written on all of them."""
        if self._function.registers < len(self._function.params):
            self._refuse("code", "it has fewer registers than parameters", 0)
        written: dict[int, frozenset[int]] = {}
        waiting = [(0, frozenset(range(len(self._function.params))))]
        while waiting:
            at, known = waiting.pop()
            if not 0 <= at < len(self._code):
                self._refuse(
                    "code", f"a path leads to instruction {at}, of {len(self._code)}: every path ends in a ret", at
                )
            if at in written and written[at] <= known:
                continue
            known = written[at] = known & written.get(at, known)
            instruction = self._code[at]
            if isinstance(instruction, Ret):
                self._read(instruction.result, known, at)
            elif isinstance(instruction, Goto):
                if instruction.offset == 0:
                    self._refuse("code", "a goto leads to itself", at)
                waiting.append((at + instruction.offset, known))
            elif isinstance(instruction, If):
                self._read(instruction.condition, known, at)
                if instruction.false_offset <= 1:
                    self._refuse("code", f"an If's false offset is more than 1, {instruction.false_offset} came", at)
                waiting += [(at + 1, known), (at + instruction.false_offset, known)]
            else:
                waiting.append((at + 1, known | self._call(instruction, known, at)))

    def _call(self, call: Call, known: frozenset[int], at: int) -> frozenset[int]:
        functions = self._program.functions
        if not 0 <= call.function < len(functions):
            self._refuse("tables", f"there is no function {call.function}", at)
        callee = functions[call.function]
        if callee.code is not None and len(call.args) != len(callee.params):
            came = f"{len(callee.params)} arguments, {len(call.args)} come"
            self._refuse("types", f"{callee.name} expects {came}", at)
        for kind, value in call.args:
            if kind == Kind.REGISTER:
                self._read(value, known, at)
            elif kind == Kind.CONSTANT and not 0 <= value < len(self._program.constants):
                self._refuse("tables", f"there is no constant {value}", at)
            elif kind == Kind.FUNCTION and not 0 <= value < len(functions):
                self._refuse("tables", f"there is no function {value}", at)
        if call.dst in (VOID, MACHINE):
            return frozenset()
        if not 0 <= call.dst < self._function.registers:
            self._refuse("code", f"there is no register {_register(call.dst)}", at)
        return frozenset({call.dst})

    def _read(self, register: int, known: frozenset[int], at: int) -> None:
        if register in known or register in (VOID, MACHINE):
            return
        self._refuse(
            "data flow",
            f'register r({register}) in VM function "{self._function.name}" is used as input while, on a path to here, it is '
            f"never defined as a destination. Dump: {_line(self._program, self._code[at])}",
            at,
        )

    def _refuse(self, layer: str, message: str, at: int) -> None:
        raise VerificationError(message, layer=layer, function=self._function.name, instruction=at)
