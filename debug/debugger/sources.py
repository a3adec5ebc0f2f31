"""What an editor shows a frame in: the user's file where the program knows its line, else the list of the function's nodes, or
its bytecode, which are served as texts of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.messages.errors import ArgumentError
from ...formats.program import Program
from ...formats.text.dis import dis
from ...formats.text.disassembly import Instruction, signature
from ..flow import nodes_of

WORD_BYTES = 8
_LINE = re.compile(r"(.+):(\d{1,9})$")


class Line(NamedTuple):
    """A line of the user's Python, as nodes name it: `model.py:8`."""

    file: str
    number: int


def lines_of(node: str) -> list[Line]:
    """The lines that a node comes from; none where it is a model's."""
    return [Line(found[1], int(found[2])) for each in nodes_of(node, {}) if (found := _LINE.match(each))]


class Text(NamedTuple):
    """A text that the adapter serves. `places` are, of each line from the first, where to stop in it; "" for nowhere."""

    name: str
    lines: list[str]
    places: list[str]


class Sources:
    """The texts and addresses of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.listing: list[Instruction] = list(dis(program))
        self._starts = {each.name: each.start for each in program.functions}
        self.addresses = [self.address(each.function, each.offset) for each in self.listing]
        self.at = {address: index for index, address in enumerate(self.addresses)}
        self.lines: dict[str, set[int]] = {}
        for instruction in self.listing:
            for line in lines_of(instruction.node):
                self.lines.setdefault(line.file, set()).add(line.number)
        self._texts: list[Text] = []
        self._at: dict[tuple[str, str], tuple[int, int]] = {}  # of a function, and a node or an offset: text and line
        for function in program.functions:
            self._add(function.name)

    def address(self, function: str, offset: int) -> int:
        """Of an instruction: bytes from the start of the code."""
        return (self._starts[function] + offset) * WORD_BYTES

    def _add(self, function: str) -> None:
        """The texts of a function: its nodes, and its bytecode."""
        of = [each for each in self.listing if each.function == function]
        head = signature(next(each for each in self.program.functions if each.name == function))
        code = Text(f"{function}.bytecode", [head], [""])
        nodes: dict[str, list[str]] = {}
        for each in of:
            if each.node and not lines_of(each.node):
                name = each.argval.get("prim")
                nodes.setdefault(each.node, []).extend([f"{each.opname} {name}"] if name is not None else [])
        names = Text(f"{function}.nodes", [head], [""])
        for node, does in nodes.items():
            self._at[function, node] = len(self._texts) + 1, len(names.lines) + 1
            names.lines.append(f"  {node:40}  {', '.join(does)}".rstrip())
            names.places.append(f"node {node}")
        for each in of:
            self._at[function, str(each.offset)] = len(self._texts) + 2, len(code.lines) + 1
            code.lines.append(str(each))
            code.places.append(f"{function}+{each.offset}")
        self._texts += [names, code]

    def text(self, reference: int) -> Text:
        """What a reference stands for. Raises ArgumentError."""
        if not 0 < reference <= len(self._texts):
            raise ArgumentError(f"there is no source {reference}")
        return self._texts[reference - 1]

    def place(
        self, function: str, offset: int, node: str, paths: Paths, stands: Collection[Line] = ()
    ) -> dict[str, Any]:
        """`source` and `line` of an instruction; of several lines, one that a breakpoint stands on."""
        lines = lines_of(node)
        if lines:
            line = next((each for each in lines if each in stands), lines[0])
            path = paths.find(line.file)
            if path is not None:
                return {"source": {"name": line.file, "path": path}, "line": line.number}
        key = (function, node) if (function, node) in self._at else (function, str(offset))
        reference, number = self._at[key]
        name = self._texts[reference - 1].name
        return {"source": {"name": name, "sourceReference": reference, "origin": "Treadle"}, "line": number}


class Paths:
    """Where files of Python lie, which programs name without their folders."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self._known: dict[str, str] = {}

    def know(self, path: str) -> str:
        """A file that the client has; its name."""
        name = path.replace("\\", "/").rpartition("/")[2]
        self._known[name] = path
        return name

    def find(self, name: str) -> str | None:
        if name not in self._known:
            loaded = [getattr(each, "__file__", None) or "" for each in list(sys.modules.values())]
            for path in (*(folder / name for folder in (*self.folders, Path.cwd())), *map(Path, loaded)):
                if path.name == name and path.is_file():
                    self._known[name] = str(path.absolute())
                    break
        return self._known.get(name)
