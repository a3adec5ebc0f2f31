"""Linear code over virtual registers: the form of a function between the IR and the bytecode.

`lowering.py` makes it, `memory.py` and `registers.py` plan over it, `functions.py` writes it out as instructions. The
instruction table says which operands are read and written; nothing here knows any instruction by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from ...formats.isa import BY_NAME, Kind, Operation
from ...formats.types import Type


@dataclass(eq=False)
class Register:
    """A virtual register, written by few instructions, mostly by one."""

    kind: Kind  # REF or INT
    serial: int  # dense within its function
    type: Type | None = None  # of the value in a reference register


@dataclass(eq=False)
class Label:
    """A jump target in the code."""


Operand = Union[Register, Label, int, tuple[Union[Register, int], ...]]


@dataclass(eq=False)
class Instruction:
    operation: Operation
    operands: tuple[Operand, ...]  # one a field
    origin: str = ""

    @property
    def name(self) -> str:
        return self.operation.name

    def reads(self) -> Iterator[Register]:
        return self._registers(self.operation.read)

    def writes(self) -> Iterator[Register]:
        return self._registers(self.operation.written)

    def operand(self, field: str) -> Operand:
        """The operand in a field."""
        return self.operands[self.operation.position(field)]

    def registers(self, field: str) -> tuple[Register, ...]:
        """The registers in a list of reference registers."""
        operand = self.operand(field)
        assert isinstance(operand, tuple)
        return operand  # type: ignore[return-value]

    def targets(self) -> Iterator[Label]:
        return (self.operands[place] for place in self.operation.labels)  # type: ignore[misc]

    def replace(self, old: Register, new: Register) -> None:
        """Replaces every use of `old` by `new`."""

        def swap(operand: Operand) -> Operand:
            if isinstance(operand, tuple):
                return tuple(new if element is old else element for element in operand)
            return new if operand is old else operand

        self.operands = tuple(map(swap, self.operands))

    def _registers(self, places: tuple[int, ...]) -> Iterator[Register]:
        for place in places:
            operand = self.operands[place]
            if isinstance(operand, Register):
                yield operand
            elif isinstance(operand, tuple):
                for element in operand:
                    if isinstance(element, Register):
                        yield element


def instruction(name: str, *operands: Operand, origin: str = "") -> Instruction:
    """The instruction `name` of the table."""
    return Instruction(BY_NAME[name], operands, origin)


Item = Union[Instruction, Label]


@dataclass
class VirtualFunction:
    """A function's code, and its registers: the parameters come first."""

    name: str
    params: tuple[Register, ...]
    items: list[Item] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)

    def new_register(self, kind: Kind, type_: Type | None = None) -> Register:
        register = Register(kind, len(self.registers), type_)
        self.registers.append(register)
        return register
