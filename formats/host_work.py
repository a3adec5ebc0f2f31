"""The primitives that the host evaluates, and which of them are in a loop.

Which primitives have no native kernel the compiler notes in the metadata, so that no compiler is needed to say so. The metadata
only word what is shown: a machine finds out for itself what it has kernels for.

A host operator is Python's: it costs microseconds to call and knows no threads. Once a call that is nothing; in a loop it may be
all that the program does, which the compiler warns of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .bytecode import Decoded, function_words, loops, scan
from .primitive import Primitive
from .program import Program

NOTE = "host_primitives"  # the metadata's key
_MADE = "producer"  # of the metadata of what was compiled: a program without a note then has no host primitives


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


def host_primitives(program: Program, has_kernel: Callable[[Primitive], bool]) -> list[HostPrimitive]:
    """Those of a program, in its order."""
    nodes: dict[int, dict[str, None]] = {}
    looped: set[int] = set()
    native: dict[int, bool] = {}
    for number, instruction, node, in_loop in _calls(program):
        by_host = instruction.operation.name == "call_host"
        if number not in native:
            native[number] = has_kernel(program.primitives[number])
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


def _calls(program: Program) -> Iterator[tuple[int, Decoded, str, bool]]:
    """Each call of a primitive: its number, the instruction, the model node, and whether it is in a loop."""
    origins = {(entry.function, entry.offset): entry.node for entry in program.source_map}
    code = [list(scan(function_words(program, function))) for function in program.functions]
    spans = [[(first, back[-1]) for first, back in loops(instructions).items()] for instructions in code]
    repeated = _repeated(code, spans)
    for index, instructions in enumerate(code):
        for instruction in instructions:
            if instruction.operation.has("prim"):
                in_loop = index in repeated or _is_inside(instruction, spans[index])
                yield instruction.word("prim"), instruction, origins.get((index, instruction.offset), ""), in_loop


def note(found: Sequence[HostPrimitive]) -> dict[str, str]:
    """The metadata about them."""
    return {NOTE: ", ".join(each.name for each in found)} if found else {}


def noted(program: Program) -> list[HostPrimitive] | None:
    """The primitives that the compiler noted; None for a program that it did not make."""
    if _MADE not in program.metadata:
        return None
    names = set(program.metadata.get(NOTE, "").split(", "))
    return host_primitives(program, lambda primitive: primitive.name not in names)


_Spans = list[tuple[int, int]]  # of words, from the target of a jump backwards to the jump


def _is_inside(instruction: Decoded, spans: _Spans) -> bool:
    return any(first <= instruction.offset <= last for first, last in spans)


def _repeated(code: list[list[Decoded]], spans: list[_Spans]) -> set[int]:
    """The functions that are called in a loop, or that call themselves, by whatever way; a closure counts where it is made."""
    calls: dict[int, set[int]] = {}
    repeated: set[int] = set()
    for index, instructions in enumerate(code):
        for instruction in instructions:
            if instruction.operation.has("func"):
                calls.setdefault(index, set()).add(instruction.word("func"))
                if _is_inside(instruction, spans[index]):
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
