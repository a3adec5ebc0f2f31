"""What is not the program's own in a call: the numbers that it draws, and what its imports gave or raised, in order.

The first time it is noted, the second time it is played, so that a call that runs again goes the same way, and no import is
called twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...compiler.operators.table import lookup
from ...formats.messages.errors import ExecutionError
from ...formats.primitive import PrimitiveDefinition
from ...formats.program import Program
from ...vm import library
from ...vm.values import DataValue

BREAKPOINT = "breakpoint"  # the operator that `treadle.debug.breakpoint` makes, which no pass may leave out


class Note(NamedTuple):
    """One thing that was not the program's own."""

    source: str  # the import, or the primitive that draws
    value: Any  # the import's result; the primitive's results, a list
    error: Exception | None = None  # that the import raised instead …
    own_notes: int = 0  # … with this many notes


class Tape:
    """The notes of one call, and how far they were played."""

    def __init__(self, notes: Sequence[Note] = ()) -> None:
        self.notes = list(notes)
        self.at = 0

    def seek(self, at: int) -> None:
        self.at = at

    def forget(self) -> None:
        """What was to come is made anew."""
        del self.notes[self.at :]

    def note(self, source: str, make: Callable[[], Any]) -> Any:
        """What `make` gives or raises; or, where that is known, what it did the first time."""
        if self.at == len(self.notes):
            try:
                self.notes.append(Note(source, frozen(make())))
            except Exception as error:
                self.notes.append(Note(source, None, error, len(getattr(error, "__notes__", ()))))
        found = self.notes[self.at]
        if found.source != source:
            raise ExecutionError(
                f"replay: the call comes to {source!r}, the recording to {found.source!r} (note {self.at}): "
                "it is of another program or of other arguments"
            )
        self.at += 1
        if found.error is not None:
            # the machine adds where it was raised, each time
            del getattr(found.error, "__notes__", [])[found.own_notes :]
            raise found.error
        return found.value

    def imported(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """An import that is noted."""
        return lambda *args: self.note(name, lambda: function(*args))

    def evaluators(self, program: Program, known: Mapping[int, library.Evaluate]) -> dict[int, library.Evaluate]:
        """What computes primitives on the host: those that `known` has, and the program's that draw, noted."""
        found = dict(known)
        for number in drawing(program):
            primitive = program.primitives[number]
            evaluate = library.target_of(program.target_of(number)).evaluator(primitive.definition)
            found[number] = self._noted(primitive.name, evaluate)
        return found

    def _noted(self, name: str, evaluate: library.Evaluate) -> library.Evaluate:
        return lambda arrays, sizes: self.note(name, lambda: list(evaluate(arrays, sizes)))


def drawing(program: Program) -> list[int]:
    """The numbers of a program's primitives that have other results each time."""

    def varies(definition: PrimitiveDefinition) -> bool:
        return any(lookup(node.operator).varies and node.operator != BREAKPOINT for node in definition.nodes)

    return [number for number, each in enumerate(program.primitives) if varies(each.definition)]


def frozen(value: Any) -> Any:
    """The value, of which nobody else has the elements."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (tuple, list)):
        return (
            type(value)(frozen(each) for each in value) if type(value) in (tuple, list) else tuple(map(frozen, value))
        )
    if isinstance(value, DataValue) or value is None or isinstance(value, (bool, int, float, str)):
        return value
    return np.array(value) if hasattr(value, "__array__") else value
