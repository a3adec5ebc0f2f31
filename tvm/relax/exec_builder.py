"""`relax.ExecBuilder`: programs of the Relax VM, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np

from ...formats.data_type import DataType
from ...formats.messages.errors import ArgumentError, CheckError
from ...vm.tensor import Tensor
from ..files.relax_program import (
    MACHINE,
    VOID,
    Call,
    Goto,
    If,
    Instruction,
    Kind,
    Operand,
    RelaxFunction,
    RelaxProgram,
    Ret,
)
from ..modules.containers import ShapeTuple
from .executable import Executable

_IMMEDIATES = 1 << 55  # of this magnitude and more, integers are constants
VMFuncScope = contextmanager


class VMFuncKind(IntEnum):
    """What a function of the table is."""

    PACKED_FUNC = 0
    VM_FUNC = 1


class ExecBuilder:
    """Collects functions and constants; `get` gives the program, checked, its registers numbered by their first definitions."""

    def __init__(self) -> None:
        self._functions: list[RelaxFunction] = []
        self._kinds: dict[str, VMFuncKind] = {}
        self._index: dict[str, int] = {}
        self._constants: list[Any] = []
        self._keys: dict[Any, int] = {}
        self._code: list[Instruction] | None = None

    # ---- operands ----

    def r(self, idx: int) -> Operand:
        """A register."""
        return Operand(Kind.REGISTER, _index(idx, "r"))

    def imm(self, value: int) -> Operand:
        """An integer. Raises ArgumentError for one of more than 55 bits."""
        if isinstance(value, bool) or not isinstance(value, int) or not -_IMMEDIATES <= value < _IMMEDIATES:
            raise ArgumentError(f"imm({value!r}): expected an integer of 55 bits; convert_constant takes others")
        return Operand(Kind.IMMEDIATE, value)

    def c(self, idx: int) -> Operand:
        """A constant."""
        return Operand(Kind.CONSTANT, _index(idx, "c"))

    def f(self, name: str) -> Operand:
        """A function, declared as one that is found by name where nothing is known of it yet."""
        return Operand(Kind.FUNCTION, self._function(name))

    def void_arg(self) -> Operand:
        """None."""
        return Operand(Kind.REGISTER, VOID)

    def vm_state(self) -> Operand:
        """The machine."""
        return Operand(Kind.REGISTER, MACHINE)

    # ---- functions ----

    def declare_function(self, func_name: str, kind: VMFuncKind = VMFuncKind.PACKED_FUNC) -> None:
        """Says what a function is before it is defined or called. Raises CheckError where it is of another kind."""
        known = self._kinds.setdefault(func_name, VMFuncKind(kind))
        if known != kind:
            raise CheckError(f"Function {func_name} already declared in a different kind: {known.name}")
        self._function(func_name)

    def _function(self, name: str) -> int:
        if not isinstance(name, str):
            raise ArgumentError(f"expected the name of a function, got {name!r}")
        if name not in self._index:
            self._index[name] = len(self._functions)
            self._functions.append(RelaxFunction(name))
        return self._index[name]

    @contextmanager
    def function(
        self, func_name: str, num_inputs: int | None = 0, param_names: Sequence[str] | None = None
    ) -> Iterator[None]:
        """Within this, instructions are those of a function. Raises CheckError for one that is defined already."""
        names = tuple(param_names or (f"arg{number}" for number in range(num_inputs or 0)))
        if len(names) != (num_inputs or 0):
            raise CheckError(f"function {func_name}: {num_inputs} inputs, got {len(names)} names")
        if self._code is not None:
            raise CheckError(f"function {func_name}: the one before has not ended")
        at = self._function(func_name)
        if self._functions[at].code is not None:
            raise CheckError(f"Function {func_name} already defined")
        self._code = []
        try:
            yield
            self._functions[at] = RelaxFunction(func_name, names, *_formal(self._code, len(names)))
        finally:
            self._code = None

    # ---- instructions ----

    def convert_constant(self, const: Any) -> Operand:
        """What a call takes for a value: an immediate for an integer, else a constant, the same one for equal values."""
        if isinstance(const, Operand):
            return const
        if isinstance(const, bool):
            const = int(const)
        if isinstance(const, int) and -_IMMEDIATES <= const < _IMMEDIATES:
            return self.imm(int(const))
        value = ShapeTuple(const) if isinstance(const, tuple) else const
        if isinstance(value, np.ndarray):
            value = Tensor(value)
        key = _key(value)
        if key not in self._keys:
            self._keys[key] = len(self._constants)
            self._constants.append(value)
        return self.c(self._keys[key])

    def emit_call(self, name: str, args: Sequence[Any] | None = None, dst: Operand | None = None) -> None:
        """Calls a function. Tuples are shapes; tensors, shapes and element types are constants."""
        self._emit(
            lambda: Call(
                self._function(name),
                tuple(self.convert_constant(arg) for arg in args or ()),
                VOID if dst is None else _register(dst),
            )
        )

    def emit_ret(self, result: Operand) -> None:
        """Returns a register."""
        self._emit(lambda: Ret(_register(result)))

    def emit_goto(self, pc_offset: int) -> None:
        """Jumps by `pc_offset` instructions from here."""
        self._emit(lambda: Goto(pc_offset))

    def emit_if(self, cond: Operand, false_offset: int) -> None:
        """Jumps by `false_offset` instructions from here if a register is 0."""
        self._emit(lambda: If(_register(cond), false_offset))

    def _emit(self, make: Any) -> None:
        if self._code is None:
            raise CheckError("emit should happen in a function scope")
        self._code.append(make())

    def get(self) -> Executable:
        """The program. Raises CheckError, VerificationError."""
        if self._code is not None:
            raise CheckError("get: a function has not ended; Function has not be been called its EndFunction")
        for name, kind in self._kinds.items():
            if (self._functions[self._index[name]].code is not None) != (kind == VMFuncKind.VM_FUNC):
                raise CheckError(f"Function {name} was declared in a different kind: {kind.name}")
        return Executable(RelaxProgram(tuple(self._functions), tuple(self._constants)))


def _index(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"{name}({value!r}): expected a number from 0 on")
    return value


def _register(operand: Any) -> int:
    if not isinstance(operand, Operand) or operand.kind != Kind.REGISTER:
        raise ArgumentError(f"expected a register, got {operand!r}")
    return operand.value


def _key(value: Any) -> Any:
    """Equal for constants that are one. Raises ArgumentError for anything but a constant."""
    if isinstance(value, Tensor):
        array = value.array
        return "tensor", str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, (ShapeTuple, list)):
        return "shape", tuple(value)
    if isinstance(value, (str, int, float, DataType)):
        return type(value).__name__, str(value)
    raise ArgumentError(f"convert_constant: a {type(value).__name__} is not a constant")


def _formal(code: Sequence[Instruction], params: int) -> tuple[tuple[Instruction, ...], int]:
    """The code with its registers numbered in the order of their first definitions, after the parameters; how many there are."""
    numbers: dict[int, int] = {number: number for number in range(params)}
    numbers |= {VOID: VOID, MACHINE: MACHINE}
    for instruction in code:
        if isinstance(instruction, Call):
            numbers.setdefault(instruction.dst, len(numbers) - 2)
    undefined = len(numbers) - 2  # from here on, in the order in which they are read: the check names them

    def number(register: int) -> int:
        return numbers.setdefault(register, len(numbers) - 2)

    made: list[Instruction] = []
    for instruction in code:
        if isinstance(instruction, Call):
            args = tuple(
                Operand(arg.kind, number(arg.value)) if arg.kind == Kind.REGISTER else arg for arg in instruction.args
            )
            made.append(Call(instruction.function, args, number(instruction.dst)))
        elif isinstance(instruction, Ret):
            made.append(Ret(number(instruction.result)))
        elif isinstance(instruction, If):
            made.append(If(number(instruction.condition), instruction.false_offset))
        else:
            made.append(instruction)
    return tuple(made), max(undefined, len(numbers) - 2)
