"""`relax.Executable`: what `relax.build` and `ExecBuilder` give."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...formats.container import LIBRARIES, named
from ...formats.executable import Executable as Program
from ..files.relax_program import RelaxProgram, as_text, statistics
from ..machines.relax.module import RelaxModule, save_relax_program
from ..modules.kinds import ExecutableModule
from ..runtime.module import Module
from ..runtime.vm_text import bytecode_text, constants_text

__all__ = ["Executable"]


class Executable:
    """A program: Treadle's executable, or one that `ExecBuilder` made."""

    def __init__(self, program: Program | RelaxProgram | RelaxModule | ExecutableModule) -> None:
        """Of a program, or of a module that holds one. Raises VerificationError."""
        self._module = RelaxModule(program) if isinstance(program, RelaxProgram) else program
        if isinstance(self._module, RelaxModule):
            self.program: Program | RelaxProgram = self._module.program
        else:
            self.program = program.executable if isinstance(program, ExecutableModule) else program  # type: ignore[assignment]

    @property
    def module(self) -> Any:
        """What it was made of: its imports are what the program may call."""
        return self._module

    def as_text(self) -> str:
        """The instructions as text; of a program that was compiled, in the Relay VM's layout."""
        if isinstance(self.program, RelaxProgram):
            return as_text(self.program)
        return bytecode_text(self.program.program)

    def stats(self) -> str:
        """What the program consists of."""
        if isinstance(self.program, RelaxProgram):
            return statistics(self.program)
        constants = constants_text(self.program.program.constants)
        return f"Relax VM executable statistics:\n{constants}  Globals: {self.program.globals}\n"

    def jit(self, *_: Any) -> Executable:
        """The program itself: kernels are made when a machine is."""
        return self

    @property
    def mod(self) -> Module:
        """The program as a module of functions: `stats`, `as_text`, `has_function`."""
        if isinstance(self._module, RelaxModule):
            return self._module
        assert not isinstance(self.program, RelaxProgram)
        return _CompiledModule(self)

    def export_library(self, path: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Writes the program into a file, as `treadle.Executable.export_library` does. One that ExecBuilder made goes into a
        library (.so, .o, .tar), or, with any other suffix, into a file as the Relax VM has it. Raises FormatError, FileError."""
        if not isinstance(self.program, RelaxProgram):
            return self.mod.export_library(path, *args, **kwargs)
        if Path(named(path, "export_library: path")).suffix in LIBRARIES:
            return self.mod.export_library(path, *args, **kwargs)
        save_relax_program(self.program, path)
        return None


class _CompiledModule(ExecutableModule):
    """A program that was compiled, as a module: it is exported, and a machine takes it."""

    def __init__(self, of: Executable) -> None:
        super().__init__(of.program)  # type: ignore[arg-type]
        self._of = of
        self._own: dict[str, Callable[..., Any]] = {
            "as_text": of.as_text,
            "has_function": lambda name: name in self.executable.globals,
            "stats": of.stats,
        }

    def find(self, name: str) -> Callable[..., Any] | None:
        return self._own.get(name) or super().find(name)
