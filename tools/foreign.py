"""Executables of TVM's two machines, bare or in a library, for `treadle info`, `dis`, `stats` and `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..formats.messages.errors import UnknownFunctionError
from ..tvm.files import executables, relax_executable, relay_executable
from ..tvm.files.relax_program import RelaxProgram, check, statistics


class RelaxFile:
    """An executable of the Relax VM."""

    def __init__(self, data: memoryview) -> None:
        self._program = relax_executable.load_relax_executable(data)
        self.facts = relax_executable.information(self._program)
        self.text = relax_executable.information_text(self._program)

    def listing(self, function: str | None) -> str:
        """The code as TVM prints it, of all functions or of one. Raises UnknownFunctionError."""
        return _chosen(relax_executable.listing(self._program).split("\n\n"), "@", ":", function, "\n\n")

    def stats(self) -> str:
        return statistics(self._program)

    def program(self) -> RelaxProgram:
        """The program that would run, verified. Raises VerificationError."""
        check(self._program)
        return self._program


class RelayFile:
    """An executable of the Relay VM."""

    def __init__(self, data: memoryview) -> None:
        self._executable = relay_executable.load_relay_executable(data)
        self.facts = relay_executable.information(self._executable)
        self.text = relay_executable.information_text(self._executable)

    def listing(self, function: str | None) -> str:
        """The code as TVM prints it, of all functions or of one. Raises UnknownFunctionError."""
        return _chosen(relay_executable.listing(self._executable).split("\n\n"), "]: ", "(", function, "\n\n")

    def stats(self) -> str:
        from ..tvm.runtime.vm_text import statistics_text

        held = [each for each in self._executable.constants if not isinstance(each, str)]
        return statistics_text(held, self._executable.globals, self._executable.primitives)

    def program(self) -> RelaxProgram:
        """The program that would run, verified. Raises VerificationError."""
        from ..tvm.machines.relay.program import make_program

        program = make_program(self._executable)
        check(program)
        return program


def _chosen(parts: list[str], before: str, after: str, function: str | None, between: str) -> str:
    """Of the functions' texts that whose first line has the function's name between two marks; all without a name."""
    if function is None:
        return between.join(parts)
    for part in parts:
        if f"{before}{function}{after}" in part.partition("\n")[0]:
            return part + "\n"
    raise UnknownFunctionError(f"there is no function {function!r} that has instructions")


def read_foreign(source: Path | bytes) -> RelaxFile | RelayFile | None:
    """The executable of one of TVM's machines in a file, or in a library; None for a file of something else."""
    found = executables.find_executable(executables.open_file(source))
    if found is None:
        return None
    return RelayFile(found.data) if found.machine == executables.RELAY else RelaxFile(found.data)


def verified_facts(foreign: RelaxFile | RelayFile) -> dict[str, Any]:
    """The facts that `treadle verify` prints. Raises VerificationError."""
    program = foreign.program()
    return {
        "verified": True,
        "functions": len(list(program.own())),
        "instructions": sum(each["instructions"] for each in foreign.facts["functions"]),
        "constants": len(program.constants),
    }
