"""`relax.Executable`: what `relax.build` and `ExecBuilder` give."""

from __future__ import annotations

import os
from typing import Any

from ...formats.executable import Executable as Program
from ...formats.relax_program import RelaxProgram, as_text, check, statistics
from ..runtime.module import Module
from ..runtime.vm_text import bytecode_text, constants_text

__all__ = ["Executable"]


class Executable:
    """A program: Treadle's executable, or one that `ExecBuilder` made."""

    def __init__(self, program: Program | RelaxProgram) -> None:
        """Raises VerificationError."""
        if isinstance(program, RelaxProgram):
            check(program)
        self.program = program

    def as_text(self) -> str:
        """The instructions as text; of a program that was compiled, in the Relay VM's layout."""
        if isinstance(self.program, RelaxProgram):
            return as_text(self.program)
        return bytecode_text(self.program.program)

    def stats(self) -> str:
        """What the program consists of."""
        if isinstance(self.program, RelaxProgram):
            return statistics(self.program)
        return f"Relax VM executable statistics:\n{constants_text(self.program.program)}  Globals: {self.program.globals}\n"

    def jit(self, *_: Any) -> Executable:
        """The program itself: kernels are made when a machine is."""
        return self

    @property
    def mod(self) -> Module:
        """The program as a module of functions: `stats`, `as_text`, `has_function`."""
        names = (
            [function.name for function in self.program.functions]
            if isinstance(self.program, RelaxProgram)
            else self.program.globals
        )
        return Module(
            {"stats": self.stats, "as_text": self.as_text, "has_function": lambda name: name in names},
            "relax.Executable",
        )

    def export_library(self, path: str | os.PathLike, *_: Any, **__: Any) -> None:
        """Writes the program into a file, as `treadle.Executable.export_library` does. Raises ArgumentError for one that
        ExecBuilder made, whose constants may be anything."""
        from ...formats.errors import ArgumentError

        if isinstance(self.program, RelaxProgram):
            raise ArgumentError(
                "export_library: a program of ExecBuilder has no file; export one that relax.build made"
            )
        self.program.export_library(path)
