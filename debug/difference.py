"""`diff`: in what two executables differ: signatures, constants and primitives by their digests, instructions."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ..formats.executable import Executable
from ..formats.messages.calling import public
from ..formats.messages.terminal import showing
from ..formats.sections import encode_definition
from ..formats.text.dis import dis
from .subject import executable_of

_DIGITS = 12  # of a digest, in the text


@dataclass
class Difference:
    """Each list has one line for each thing: "- " only the first has it, "+ " only the second."""

    signatures: list[str] = field(default_factory=list)
    metadata: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    primitives: list[str] = field(default_factory=list)
    instructions: dict[str, list[str]] = field(default_factory=dict)  # by function

    @property
    def same(self) -> bool:
        """True if nothing differs."""
        return not any(asdict(self).values())

    def __repr__(self) -> str:
        counts = {name: len(lines) for name, lines in asdict(self).items() if lines}
        return f"<Difference: {', '.join(f'{count} in {name}' for name, count in counts.items()) or 'none'}>"

    def _repr_html_(self) -> str:
        from ..formats.text.html import preformatted

        return preformatted(str(self))

    @showing
    def __str__(self) -> str:
        if self.same:
            return "the executables are the same: signatures, constants, primitives and instructions"
        parts = []
        for name in ("signatures", "metadata", "constants", "primitives"):
            lines = getattr(self, name)
            parts += [f"{name}:", *(f"  {line}" for line in lines)] if lines else []
        for function, lines in self.instructions.items():
            parts += [f"instructions of {function}:", *(f"  {line}" for line in lines)]
        return "\n".join(parts)


@public
def diff(a: Any, b: Any) -> Difference:
    """The differences between two executables, their files, or models, which are compiled.

    Constants are the same if their types and bytes are, wherever they stand; an instruction is told apart by its text, in which
    constants and primitives are numbers. Raises ArgumentError for anything but a program.
    """
    a, b = executable_of(a, "diff"), executable_of(b, "diff")
    found = Difference()
    found.signatures = list(_only(_signatures(a), _signatures(b)))
    found.metadata = list(_only(_metadata(a), _metadata(b)))
    found.constants = list(_counted(_constants(a), _constants(b), _readers(a) | _readers(b)))
    found.primitives = list(_counted(_primitives(a), _primitives(b)))
    mine, others = ({function.name for function in each.program.functions} for each in (a, b))
    for name in sorted(mine & others):
        lines = [line for line in difflib.ndiff(_instructions(a, name), _instructions(b, name)) if line[0] in "+-"]
        if lines:
            found.instructions[name] = lines
    return found


def _signatures(executable: Executable) -> dict[str, str]:
    return {
        function.name: f"{function.name}({', '.join(function.param_names)}): {function.type}"
        for function in executable.program.functions
    }


def _metadata(executable: Executable) -> dict[str, str]:
    return {name: f"{name} = {value}" for name, value in executable.program.metadata.items()}


def _only(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys([*a, *b]):
        if a.get(name) != b.get(name):
            yield from (f"{sign} {each[name]}" for sign, each in (("-", a), ("+", b)) if name in each)


def _constants(executable: Executable) -> Counter[str]:
    return Counter(map(_constant, executable.constants))


def _constant(array: np.ndarray) -> str:
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:_DIGITS]
    return f"{array.dtype.name}[{', '.join(map(str, array.shape))}] {digest}"


def _readers(executable: Executable) -> dict[str, str]:
    """The model nodes that load each constant: which layer differs."""
    nodes: dict[str, dict[str, None]] = {}
    for each in dis(executable):
        if each.opname == "load_const" and each.node:
            nodes.setdefault(_constant(each.argval["const"]), {})[each.node] = None
    return {text: f"  of {', '.join(map(repr, names))}" for text, names in nodes.items()}


def _primitives(executable: Executable) -> Counter[str]:
    return Counter(
        f"{each.name} {hashlib.sha256(encode_definition(each.definition)).hexdigest()[:_DIGITS]}"
        for each in executable.program.primitives
    )


def _counted(a: Counter[str], b: Counter[str], notes: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    for sign, rest in (("-", a - b), ("+", b - a)):
        for text, count in rest.items():
            yield f"{sign} {text}{f' ({count} times)' if count > 1 else ''}{notes.get(text, '')}"


def _instructions(executable: Executable, function: str) -> list[str]:
    """Without offsets, which shift."""
    return [f"{each.opname} {each.argrepr}" for each in dis(executable, function)]
