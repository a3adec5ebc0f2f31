"""`treadle.dis`, in the manner of Python's own.

print(treadle.dis(executable, "main"))
for instruction in treadle.dis(executable):
    print(instruction.offset, instruction.opname, instruction.argrepr)
"""

from __future__ import annotations

from ..executable import Executable
from ..messages.calling import public, told
from ..messages.errors import ArgumentError, UnknownFunctionError
from ..messages.names import near
from ..program import Program
from .disassembly import Listing, instructions


@public
def dis(executable: Executable | Program, function: str | None = None) -> Listing:
    """The instructions of all functions, or of one. Raises UnknownFunctionError, and FormatError for malformed code."""
    program = executable if isinstance(executable, Program) else getattr(executable, "program", None)
    if not isinstance(program, Program):
        raise ArgumentError(
            f"dis(executable): expected an Executable, got {told(executable)}; treadle.load reads a file"
        )
    if function is not None and all(f.name != function for f in program.functions):
        names = ", ".join(f.name for f in program.functions)
        raise UnknownFunctionError(
            f"there is no function {function!r}; the executable has {names}{near(function, (f.name for f in program.functions))}"
        )
    return Listing(instructions(program, [f for f in program.functions if function is None or f.name == function]))
