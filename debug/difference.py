"""`diff`: in what two executables differ: signatures, constants and primitives by their digests, instructions."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ..formats.executable import Executable
from ..formats.messages.calling import public
from ..formats.messages.terminal import showing
from ..formats.program import Primitive
from ..formats.sections import encode_definition
from ..formats.text.dis import dis
from .subject import executable_of

_DIGITS = 12  # of a digest, in the text


@dataclass
class Difference:
    """Each list has one line for each thing: "- " only the first has it, "+ " only the second; "= " says how two differ that
    stand in the same place."""

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
        counts = {name: sum(line[0] != "=" for line in lines) for name, lines in asdict(self).items() if lines}
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
    readers = _readers(a) | _readers(b)
    found.constants = [*_counted(_constants(a), _constants(b), readers), *_changed_constants(a, b, readers)]
    found.primitives = [*_counted(_primitives(a), _primitives(b)), *_changed_primitives(a, b)]
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


def _changed_constants(a: Executable, b: Executable, readers: Mapping[str, str]) -> Iterator[str]:
    """How constants of one type differ that the same node loads; first is the executable that stands first."""
    mine, others = ({_constant(array): array for array in each.constants} for each in (a, b))
    for text, array, other in _alone(mine, others, lambda text: text.rpartition(" ")[0] + readers.get(text, "")):
        changed = (array != other) & ~((array != array) & (other != other))
        first = np.unravel_index(int(changed.argmax()), array.shape)
        order = ""
        if changed.sum() > 1 and np.array_equal(np.sort(array, axis=None), np.sort(other, axis=None)):
            order = "; they are the same numbers in another order"
        yield (
            f"= {text}: {int(changed.sum())} of {array.size} elements differ, the first at {list(map(int, first))}: "
            f"{array[first]} and {other[first]}{order}"
        )


def _changed_primitives(a: Executable, b: Executable) -> Iterator[str]:
    """Which attributes primitives of one name and the same operators differ in."""
    mine, others = ({_primitive(each): each for each in executable.program.primitives} for executable in (a, b))
    for text, first, second in _alone(mine, others, lambda text: text.rpartition(" ")[0]):
        for node, other in zip(first.definition.nodes, second.definition.nodes, strict=False):
            was, now = dict(node.attributes), dict(other.attributes)
            named = [
                f"{name} {was.get(name)} and {now.get(name)}" for name in was | now if was.get(name) != now.get(name)
            ]
            if node.operator == other.operator and named:
                yield f"= {text}, {node.operator}: {', '.join(named)}"


def _alone(
    mine: Mapping[str, Any], others: Mapping[str, Any], place: Callable[[str], str]
) -> Iterator[tuple[str, Any, Any]]:
    """The things that only one side has, in pairs of those that are alone in a place."""
    sides: list[dict[str, list[Any]]] = []
    for these, those in ((mine, others), (others, mine)):
        by_place: dict[str, list[Any]] = {}
        for text, thing in these.items():
            if text not in those:
                by_place.setdefault(place(text), []).append(thing)
        sides.append(by_place)
    for where, found in sides[0].items():
        if len(found) == len(sides[1].get(where, ())) == 1:
            yield where, found[0], sides[1][where][0]


def _readers(executable: Executable) -> dict[str, str]:
    """The model nodes that load each constant: which layer differs."""
    nodes: dict[str, dict[str, None]] = {}
    for each in dis(executable):
        if each.opname == "load_const" and each.node:
            nodes.setdefault(_constant(each.argval["const"]), {})[each.node] = None
    return {text: f"  of {', '.join(map(repr, names))}" for text, names in nodes.items()}


def _primitives(executable: Executable) -> Counter[str]:
    return Counter(map(_primitive, executable.program.primitives))


def _primitive(primitive: Primitive) -> str:
    return f"{primitive.name} {hashlib.sha256(encode_definition(primitive.definition)).hexdigest()[:_DIGITS]}"


def _counted(a: Counter[str], b: Counter[str], notes: Mapping[str, str] = MappingProxyType({})) -> Iterator[str]:
    for sign, rest in (("-", a - b), ("+", b - a)):
        for text, count in rest.items():
            yield f"{sign} {text}{f' ({count} times)' if count > 1 else ''}{notes.get(text, '')}"


def _instructions(executable: Executable, function: str) -> list[str]:
    """Without offsets, which shift."""
    return [f"{each.opname} {each.argrepr}" for each in dis(executable, function)]
