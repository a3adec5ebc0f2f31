"""Breakpoints: where a program stops, found by the names that its user knows."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...formats.bytecode import Decoded, jump_target
from ...formats.isa import Role, with_role
from ...formats.messages.errors import ArgumentError
from ...formats.messages.names import near
from ...formats.program import Program
from ...vm.observe.loops import Loop
from ..flow import nodes_of
from .conditions import Condition
from .timeline import Timeline

MADE = "x"  # what conditions call the results of the instruction that was just executed
WORKS = with_role(Role.WORKS)
_LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d{1,9})$")
_INSTRUCTION = re.compile(r"(?P<function>.+)\+(?P<offset>\d{1,9})$")  # as frames are shown
_ITERATION = re.compile(r"(?:^|\s)iteration\s+(\d{1,9})$")
_MOST_NAMES = 8  # that a message lists
_KINDS = ("function", "node", "primitive", "operator", "import", "loop")


def _some(known: list[str]) -> str:
    """For an unknown name, what there is."""
    names = list(dict.fromkeys(known))
    return f"; there are {', '.join(names[:_MOST_NAMES])}{', …' * (len(names) > _MOST_NAMES)}" if names else ""


def in_iteration(text: str) -> tuple[str | None, int | None]:
    """The place and the iteration of `WHERE iteration N`, of which either may be left out."""
    found = _ITERATION.search(text)
    return text[: found.start() if found else None].strip() or None, int(found[1]) if found else None


@dataclass(frozen=True)
class Breakpoint:
    """Where to stop: before the instructions `before`, or after those of `after` whose results the condition holds for."""

    number: int
    text: str  # as it was set
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    condition: Condition | None = None
    iteration: int | None = None

    def __str__(self) -> str:
        return f"breakpoint {self.number}: {self.text}"


class Sites:
    """The instructions of a program, by what they are of."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline, self._program = timeline, timeline.program
        self._nodes: dict[tuple[int, int], str] = {(at.function, at.offset): at.node for at in self._program.source_map}
        self._boundaries: dict[int, frozenset[int]] = {}
        self._all = [
            (number, instruction)
            for number in range(len(self._program.functions))
            for instruction in timeline.instructions(number).values()
        ]

    def node(self, number: int, offset: int) -> str:
        """The model node, or the user's line, of an instruction; "" if it has none."""
        return self._nodes.get((number, offset), "")

    def boundaries(self, number: int) -> frozenset[int]:
        """Where a function's nodes begin: the stops of who steps through it, one a round of each loop."""
        if number not in self._boundaries:
            instructions = self._timeline.instructions(number).values()
            targets = {jump_target(each) for each in instructions}
            found, last = set(), None
            for each in instructions:
                node = self.node(number, each.offset)
                if last is None or (node and node != last) or each.offset in targets:
                    found.add(self._timeline.address(number, each.offset))
                last = node or last or ""
            self._boundaries[number] = frozenset(found)
        return self._boundaries[number]

    def entering(self, number: int) -> frozenset[int]:
        """The instructions of a function that call others."""
        return frozenset(
            self._timeline.address(number, each.offset)
            for each in self._timeline.instructions(number).values()
            if each.operation.name in ("invoke", "invoke_closure")
        )

    def works(self) -> frozenset[int]:
        """All that make what conditions look at."""
        return self._addresses((at, each) for at, each in self._all if self._makes(each))

    def makers(self) -> frozenset[int]:
        """All that make another value than a tensor, and copies."""
        names = ("alloc_data", "alloc_closure", "make_shape", "device_copy")
        return self._addresses((at, each) for at, each in self._all if each.operation.name in names)

    def parse(self, number: int, where: str | None, condition: Condition | None, iteration: int | None) -> Breakpoint:
        """A breakpoint at the function, node, line, primitive, operator, import or loop that `where` names (`function NAME` and
        so on where several have a name), or at an instruction, `main+30`; everywhere for None. Raises ArgumentError."""
        text = " ".join(
            part
            for part in (
                where or "",
                f"iteration {iteration}" if iteration is not None else "",
                f"if {condition.text}" if condition else "",
            )
            if part
        )
        if iteration is not None and (type(iteration) is not int or iteration < 0):
            raise ArgumentError(f"iteration: expected a number from 0 on, got {iteration!r}")
        reads = condition is not None and MADE in condition.names
        if where is None:
            if iteration is None and not reads:
                raise ArgumentError(
                    f"a breakpoint needs a place, an iteration, or a condition on {MADE}, what was just made; "
                    "registers are looked at in a place: break model.py:8 if max(r0) > 1"
                )
            at = self._addresses(self._loop_starts(self._loops())) if not reads else self.works()
        else:
            at = self._find(where.strip(), iteration is not None, reads)
        before, after = (frozenset[int](), at) if reads else (at, frozenset[int]())
        return Breakpoint(number, text, before, after, condition, iteration)

    def _find(self, where: str, is_round: bool, reads: bool) -> frozenset[int]:
        kind, _, name = where.partition(" ")
        kinds: tuple[str, ...] = (kind,) if kind in _KINDS and name else _KINDS
        name = name.strip() if kind in _KINDS and name else where.removeprefix("@")
        if place := _INSTRUCTION.match(name):
            found = [
                (at, each) for at, each in self._function(place["function"]) if each.offset == int(place["offset"])
            ]
            if found:
                return self._addresses(found)
        if is_round:
            loops = [loop for loop in self._loops() if loop.node and name in self._names(loop.node)]
            if loops and not reads:
                return self._addresses(self._loop_starts(loops))
        for each in kinds:
            found = list(getattr(self, f"_{each}_sites")(name, reads))
            if found:
                return self._addresses(found)
        known = self._known(kinds)
        raise ArgumentError(
            f"there is nothing called {name!r} to stop at{near(name, known)}{self._lines(name) or _some(known)}"
        )

    def _addresses(self, found: Iterator[tuple[int, Decoded]] | list[tuple[int, Decoded]]) -> frozenset[int]:
        return frozenset(self._timeline.address(number, each.offset) for number, each in found)

    def _loops(self) -> list[Loop]:
        return self._timeline.loops.all

    def _loop_starts(self, loops: list[Loop]) -> Iterator[tuple[int, Decoded]]:
        return ((loop.number, self._timeline.instructions(loop.number)[loop.header]) for loop in loops)

    def _names(self, node: str) -> tuple[str, ...]:
        return (node, *nodes_of(node, {}))

    def _known(self, kinds: tuple[str, ...]) -> list[str]:
        program: Program = self._program
        names = {
            "function": [each.name for each in program.functions],
            "primitive": [each.name for each in program.primitives],
            "node": sorted({name for node in self._nodes.values() for name in self._names(node)}),
            "operator": [node.operator for each in program.primitives for node in each.definition.nodes],
            "import": [each.name for each in program.imports],
            "loop": [loop.node for loop in self._loops() if loop.node],
        }
        return [name for kind in kinds for name in names[kind]]

    def _lines(self, name: str) -> str:
        """For an unknown line, the lines that the program has of its file."""
        asked = _LINE.match(name)
        if asked is None:
            return ""
        lines = sorted(
            int(found["line"])
            for node in self._known(("node",))
            if (found := _LINE.match(node)) and found["file"] == asked["file"]
        )
        if not lines:
            return ""
        at = bisect.bisect(lines, int(asked["line"]))
        return f"; of {asked['file']} the program has lines {', '.join(map(str, lines[max(0, at - 4) : at + 4]))}"

    def _function(self, name: str) -> list[tuple[int, Decoded]]:
        """The instructions of a function."""
        return [(number, each) for number, each in self._all if self._program.functions[number].name == name]

    def _function_sites(self, name: str, reads: bool) -> list[tuple[int, Decoded]]:
        found = self._function(name)
        return [each for each in found if self._makes(each[1])] if reads else found[:1]

    def _node_sites(self, name: str, reads: bool) -> Iterator[tuple[int, Decoded]]:
        for number, each in self._all:
            node = self.node(number, each.offset)
            if node and name in self._names(node):
                is_first = self._timeline.address(number, each.offset) in self.boundaries(number)
                if self._makes(each) if reads else is_first:
                    yield number, each

    def _loop_sites(self, name: str, reads: bool) -> Iterator[tuple[int, Decoded]]:
        return self._loop_starts([loop for loop in self._loops() if loop.node and name in self._names(loop.node)])

    def _primitive_sites(self, name: str, reads: bool) -> Iterator[tuple[int, Decoded]]:
        for number, each in self._all:
            if each.operation.has("prim") and self._program.primitives[each.word("prim")].name == name:
                yield number, each

    def _import_sites(self, name: str, reads: bool) -> Iterator[tuple[int, Decoded]]:
        for number, each in self._all:
            if each.operation.has("imported") and self._program.imports[each.word("imported")].name == name:
                yield number, each

    def _operator_sites(self, name: str, reads: bool) -> list[tuple[int, Decoded]]:
        """Of an operator, or where there is none of that name, of what the CPU's passes have made of it: of conv conv_blocked."""
        exact, made = [], []
        for number, each in self._all:
            if each.operation.has("prim"):
                definition = self._program.primitives[each.word("prim")].definition
                operators = {node.operator for node in definition.nodes}
                exact += [(number, each)] if name in operators else []
                made += [(number, each)] if any(known.startswith(f"{name.lower()}_") for known in operators) else []
        return exact or made

    @staticmethod
    def _makes(instruction: Decoded) -> bool:
        return instruction.operation.name in (*WORKS, "call_import")
