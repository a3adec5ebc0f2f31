"""What of a program runs on the host: primitives that have no native kernel, and those of them that stand in a loop.

A host operator is Python's: it costs microseconds to call and knows no threads. Once a call that is nothing; in a loop it may be
all that the program does, which the compiler warns of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..formats.bytecode import Decoded, function_words, jump_target, scan
from ..formats.errors import TreadleError
from ..formats.primitive import PrimitiveDefinition
from ..formats.program import Program
from .kernels.lower import supports
from .kernels.target import Target, host


@dataclass(frozen=True)
class HostPrimitive:
    """A primitive that the host evaluates. `nodes` are those of the model that it comes from."""

    name: str
    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    in_loop: bool

    def __str__(self) -> str:
        nodes = ", ".join(self.nodes[:3]) + (f" and {len(self.nodes) - 3} more" if len(self.nodes) > 3 else "")
        return f"{self.name} ({', '.join(dict.fromkeys(self.operators))})" + (f" of {nodes}" if nodes else "")


def host_primitives(program: Program, target: Target | None = None, *, in_loops: bool = False) -> list[HostPrimitive]:
    """Those of a program, in its order; with `in_loops` those alone that stand in loops."""
    target = target or host()
    nodes: dict[int, dict[str, None]] = {}
    looped: set[int] = set()
    native: dict[int, bool] = {}
    for number, instruction, node, in_loop in _calls(program):
        if in_loops and not in_loop:
            continue
        by_host = instruction.operation.name == "call_host"
        if number not in native:
            native[number] = _has_kernel(program.primitives[number].definition, target)
        if native[number] and not by_host:
            continue
        nodes.setdefault(number, {}).update({node: None} if node else {})
        if in_loop:
            looped.add(number)
    return [
        HostPrimitive(
            program.primitives[number].name,
            tuple(node.operator for node in program.primitives[number].definition.nodes),
            tuple(nodes[number]),
            number in looped,
        )
        for number in sorted(nodes)
    ]


def loop_warning(found: list[HostPrimitive]) -> str:
    """What to tell of host operators in loops; "" if there are none."""
    slow = [str(each) for each in found if each.in_loop]
    return f"the host evaluates in each round of a loop, which may be slow: {'; '.join(slow)}" if slow else ""


def _has_kernel(definition: PrimitiveDefinition, target: Target) -> bool:
    try:
        return supports(definition, target)
    except TreadleError:  # an operator that is not defined here, a template's fault
        return False


def _calls(program: Program) -> Iterator[tuple[int, Decoded, str, bool]]:
    """Each call of a primitive: its number, the instruction, the model node, and whether it is in a loop."""
    origins = {(entry.function, entry.offset): entry.node for entry in program.source_map}
    code = [list(scan(function_words(program, function))) for function in program.functions]
    loops = [_loops(instructions) for instructions in code]
    repeated = _repeated(code, loops)
    for index, instructions in enumerate(code):
        for instruction in instructions:
            if instruction.operation.has("prim"):
                in_loop = index in repeated or _is_inside(instruction, loops[index])
                yield instruction.word("prim"), instruction, origins.get((index, instruction.offset), ""), in_loop


_Spans = list[tuple[int, int]]  # of words, from the target of a jump backwards to the jump


def _loops(instructions: list[Decoded]) -> _Spans:
    targets = ((jump_target(instruction), instruction.offset) for instruction in instructions)
    return [(target, offset) for target, offset in targets if target is not None and target <= offset]


def _is_inside(instruction: Decoded, loops: _Spans) -> bool:
    return any(first <= instruction.offset <= last for first, last in loops)


def _repeated(code: list[list[Decoded]], loops: list[_Spans]) -> set[int]:
    """The functions that are called in a loop, or that call themselves, by whatever way; a closure counts where it is made."""
    calls: dict[int, set[int]] = {}
    repeated: set[int] = set()
    for index, instructions in enumerate(code):
        for instruction in instructions:
            if instruction.operation.has("func"):
                calls.setdefault(index, set()).add(instruction.word("func"))
                if _is_inside(instruction, loops[index]):
                    repeated.add(instruction.word("func"))
    repeated |= {index for index in calls if index in _reached(calls, calls[index])}
    return repeated | _reached(calls, repeated)


def _reached(calls: dict[int, set[int]], start: set[int]) -> set[int]:
    """The functions that can be called from those of `start`, and these."""
    found, pending = set(start), list(start)
    while pending:
        fresh = calls.get(pending.pop(), set()) - found
        found |= fresh
        pending += fresh
    return found
