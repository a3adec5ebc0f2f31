"""The verifier: it stands between an executable, which is untrusted, and the machine.

`verify` runs when a program is loaded, before anything of it executes. It is made of layers, each relying on those before it:

    tables      types, constants, data types and primitive definitions are well-formed     tables.py
    code        instructions decode, fields are in range, jumps land                       code.py
    data flow   registers, and the elements of tensors, are written before they are read   flow.py
    types       everything that an instruction is given has the type and shape it needs    flow.py

A program that passes cannot corrupt memory: values known only at run time (sizes of dynamic allocations, tags, the shapes that
match_shape asks for, indices in tensors) the machine and the kernels check then. What fails says where and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...formats.bytecode import Decoded
from ...formats.dims import Dim
from ...formats.messages.errors import VerificationError
from ...formats.program import Function, Program
from .code import BadInstruction, Ranges, check_layout, decode
from .flow import Flow
from .state import Held, Signatures, State
from .tables import check_tables
from .work import Refusal, Work


@dataclass(frozen=True)
class VerifiedFunction:
    """Facts about a verified function."""

    function: Function
    index: int
    instructions: tuple[Decoded, ...]
    escaping: tuple[bool, ...]  # per parameter: a call may keep it, return it, or show it to a host operator


@dataclass(frozen=True)
class Registers:
    """Contents of registers before an instruction, in every run. Integer registers: a number, or an expression."""

    refs: Mapping[int, Held]
    ints: Mapping[int, Dim]


@dataclass(frozen=True)
class Verified:
    """A program that may run."""

    program: Program
    functions: tuple[VerifiedFunction, ...]

    def called_primitives(self) -> set[int]:
        """The primitives that a call may come to: those in functions with names, and in what these make closures of."""
        found = set[int]()
        seen = {facts.index for facts in self.functions if not facts.function.captured}
        pending = list(seen)
        while pending:
            for instruction in self.functions[pending.pop()].instructions:
                operation = instruction.operation
                if operation.has("outputs"):  # the host's have no native code
                    found.add(instruction.word("prim"))
                elif operation.has("func"):
                    callee = instruction.word("func")
                    if callee not in seen:
                        seen.add(callee)
                        pending.append(callee)
        return found

    def registers(self, function: int) -> list[Registers | None]:
        """The state before each instruction of a function, by its index; None for unreachable ones.

        This runs the analysis again: it is for hooks and inspectors, not for the machine's fast path.
        """
        facts = self.functions[function]
        found: list[Registers | None] = [None] * len(facts.instructions)

        def observe(position: int, state: State) -> None:
            found[position] = Registers(dict(state.refs), dict(state.ints))

        signatures = Signatures(self.program)
        flow = Flow(facts.function, function, list(facts.instructions), signatures, Work(_size(self.program)))
        flow.run(observe)
        return found


def verify(program: Program) -> Verified:
    """Raises VerificationError for a program that could do harm, LimitError for one that is too large to tell."""
    work = Work(_size(program))
    try:
        check_tables(program, work)
        check_layout(program)
    except Refusal as refusal:
        raise VerificationError(refusal.message, layer=refusal.layer) from None
    signatures = Signatures(program)
    ranges = Ranges(program)
    functions = [_verify_function(program, index, ranges, signatures, work) for index in range(len(program.functions))]
    return Verified(program, tuple(functions))


def _size(program: Program) -> int:
    """In words of code: an entry of a table takes as long as a few of them."""
    tables = program.functions, program.types, program.primitives, program.imports
    return len(program.code) + 4 * sum(map(len, tables))


def _verify_function(
    program: Program, index: int, ranges: Ranges, signatures: Signatures, work: Work
) -> VerifiedFunction:
    function = program.functions[index]
    try:
        instructions = decode(program, function, ranges.of(function), work)
    except BadInstruction as refusal:
        raise _error(program, index, refusal, refusal.offset, refusal.index) from None
    flow = Flow(function, index, instructions, signatures, work)
    try:
        flow.run()
    except Refusal as refusal:
        raise _error(program, index, refusal, instructions[flow.at].offset, flow.at) from None
    escaping = tuple([bool(flow.escaping >> param & 1) for param in range(len(function.param_names))])
    return VerifiedFunction(function, index, tuple(instructions), escaping)


def _error(program: Program, function: int, refusal: Refusal, offset: int, instruction: int) -> VerificationError:
    node = next(
        (place.node for place in program.source_map if (place.function, place.offset) == (function, offset)), None
    )
    name = program.functions[function].name
    return VerificationError(refusal.message, layer=refusal.layer, function=name, instruction=instruction, node=node)
