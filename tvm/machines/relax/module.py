"""Programs of the Relax VM as modules, and in TVM's files (`files/relax_executable.py`), of which nothing is executed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....formats.codec import Buffer
from ....vm.tensor import Tensor
from ...files.relax_executable import load_relax_executable, pieces, save_relax_executable
from ...files.relax_program import RelaxProgram, as_text, check, statistics
from ...modules.containers import ShapeTuple
from ...modules.module import Module
from ...modules.registry import PackedFunc
from .machine import RelaxMachine


def load_relax_program(source: str | os.PathLike | Buffer) -> RelaxProgram:
    """The program in a file of TVM's, checked, with constants as a machine has them. Raises FormatError (VerificationError),
    FileError."""
    program = load_relax_executable(source)
    check(program)
    return replace(program, constants=tuple(map(_running, program.constants)))


def save_relax_program(program: RelaxProgram, path: str | os.PathLike) -> None:
    """Writes a file as TVM's. Raises FormatError for a constant that such a file cannot hold, FileError."""
    save_relax_executable(_stored(program), path)


def _running(constant: Any) -> Any:
    if isinstance(constant, np.ndarray):
        return Tensor(constant)
    return ShapeTuple(constant) if isinstance(constant, tuple) else constant


def _stored(program: RelaxProgram) -> RelaxProgram:
    def plain(constant: Any) -> Any:
        if isinstance(constant, Tensor):
            return constant.array
        return tuple(constant) if isinstance(constant, (ShapeTuple, list)) else constant

    return replace(program, constants=tuple(map(plain, program.constants)))


class RelaxModule(Module):
    """A program as a module: its functions run on a machine, which is made when the first is asked for. What it calls by name is
    a function of a module that this one imports, or, for a program that this process has made, a registered one."""

    type_key = "relax.Executable"

    def __init__(self, program: RelaxProgram) -> None:
        """Raises VerificationError."""
        check(program)
        self.program = program
        names = [function.name for function in program.functions]
        super().__init__(
            {
                "stats": lambda: statistics(program),
                "as_text": lambda: as_text(program),
                "has_function": lambda name: name in names,
            }
        )
        self._machine: RelaxMachine | None = None

    def function_names(self) -> list[str]:
        return [*(function.name for function in self.program.own()), *super().function_names()]

    def find(self, name: str) -> Callable[..., Any] | None:
        if name not in (function.name for function in self.program.own()):
            return super().find(name)
        if self._machine is None:
            self._machine = RelaxMachine(self.program, self.given_functions())
        machine = self._machine
        return lambda *args: machine.call(name, args)

    def given_functions(self) -> dict[str, Callable[..., Any]]:
        """What the modules that it imports have of the functions that the program calls by name."""
        names = [function.name for function in self.program.functions if function.code is None]
        found = ((name, self.imported_function(name)) for name in names)
        return {name: PackedFunc.of(function) for name, function in found if function is not None}

    def get_source(self, fmt: str = "") -> str:
        return "" if fmt else as_text(self.program)

    def pieces(self) -> list[Buffer]:
        found = list(pieces(_stored(self.program)))
        return [sum(map(len, found)).to_bytes(8, "little"), *found]  # its length first, as in TVM's libraries

    @staticmethod
    def load(data: memoryview, trust_native: bool = False) -> RelaxModule:
        """The module in a file's bytes."""
        return RelaxModule(load_relax_program(data))
