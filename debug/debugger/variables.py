"""What a stop shows, as the Debug Adapter Protocol numbers it: registers, the fields in them, elements a page at a time.

A number stands for what is inside a value; it is looked at when the client opens it, and forgotten when the call goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...formats.messages.errors import ArgumentError
from . import values
from .session import Session, Use
from .values import Value

PAGE = 1000  # elements, for clients that ask for all
Row = dict[str, Any]
_ELEMENT = re.compile(r"\[*(\d{1,18})\]*$")
_Put = Callable[[tuple[int, ...], str], None]  # sets the element at an index to what a text says


class _Place(NamedTuple):
    """Where a value is: its register, and the numbers of fields from there on."""

    register: str
    level: int
    path: tuple[int, ...] = ()


@dataclass
class _Inside:
    """What is inside a value: named children, then elements by number."""

    named: Callable[[], list[Row]] = list
    indexed: Callable[[int, int], list[Row]] = lambda start, count: []
    size: int = 0
    set: Callable[[str, str], Row] | None = None
    level: int | None = None  # of registers: whose


class Variables:
    """The variables of one stop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inside: dict[int, _Inside] = {}
        self._first = 1

    def forget(self) -> None:
        """The call goes on: what was numbered is not there any more, and its numbers are not given again."""
        self._first += len(self._inside)
        self._inside = {}

    def _number(self, inside: _Inside) -> int:
        number = self._first + len(self._inside)
        self._inside[number] = inside
        return number

    def _of(self, number: int) -> _Inside:
        found = self._inside.get(number)
        if found is None:
            raise ArgumentError(f"there are no variables {number}: the call has gone on since")
        return found

    # ---- what a client asks ----

    def scopes(self, level: int) -> list[Row]:
        """The scopes of a frame."""

        def registers(kind: str) -> list[Row]:
            return [
                self._row(each.name, each.value, _Place(each.name, level), each.node)
                for each in self._session.registers(level)
                if each.name[0] == kind
            ]

        def change(name: str, text: str) -> Row:
            self._session.set(name, self._session.evaluate(text, level), level)
            return self._row(name, self._session.value(name, (), level), _Place(name, level))

        def call() -> list[Row]:
            frames = self._session.frames()
            rounds = [_leaf(f"loop at {each.loop}", f"iteration {each.iteration}") for each in frames[level].rounds]
            return [_leaf("step", str(self._session.time)), _leaf("depth", str(len(frames))), *rounds]

        of = {
            "Registers": _Inside(lambda: registers("r"), set=change, level=level),
            "Integers": _Inside(lambda: registers("i")),
            "Call": _Inside(call),
        }
        return [
            {"name": name, "variablesReference": self._number(inside), "expensive": False}
            | ({"presentationHint": "registers"} if name != "Call" else {})
            for name, inside in of.items()
        ]

    def rows(self, number: int, only: str, start: int, count: int) -> list[Row]:
        """The children of a number: "named", "indexed", or both for ""."""
        inside = self._of(number)
        if start < 0 or count < 0:
            raise ArgumentError(f"start and count are from 0 on, got {start} and {count}")
        rows = [] if only == "indexed" else inside.named()
        if only == "named":
            return rows
        end = min(inside.size, start + (count or PAGE), start + 100 * PAGE)
        rows += inside.indexed(start, max(0, end - start))
        if not count and end < inside.size:  # a client that does not ask for pages opens them one by one
            rest = _Inside(
                indexed=lambda first, many: inside.indexed(end + first, many), size=inside.size - end, set=inside.set
            )
            rows.append({"name": f"[{end} …]", "value": "", "variablesReference": self._number(rest)})
        return rows

    def change(self, number: int, name: str, text: str) -> Row:
        """Sets a register, or an element. Its new row."""
        inside = self._of(number)
        if inside.set is None:
            raise ArgumentError(f"{name} cannot be set: registers that hold tensors, and their elements, can")
        return inside.set(name, text)

    def level(self, number: int) -> int:
        """Whose registers a number stands for. Raises ArgumentError where it stands for others."""
        level = self._of(number).level
        if level is None:
            raise ArgumentError("only registers can be watched")
        return level

    def evaluated(self, text: str, level: int) -> Row:
        """The value of an expression of the language of conditions; of a register alone all that is known of it."""
        try:
            value = self._session.value(text, (), level)
        except ArgumentError:
            found = np.asarray(self._session.evaluate(text, level))
            return self._elements(text, found, lambda: found)
        return self._row(text, value, _Place(text, level))

    # ---- rows ----

    def _row(self, name: str, value: Value, at: _Place, node: str = "") -> Row:
        text = f"{value.text}  ({node})" if node else value.text
        row: Row = {"name": name, "value": text, "type": value.type, "variablesReference": 0}
        if not at.path:
            row["evaluateName"] = at.register
        if value.kind == "tensor":
            return row | self._tensor(at, value.type)
        if value.kind in ("integer", "storage"):
            return row

        def fields() -> list[Row]:
            found = self._session.fields(at.register, at.path, at.level)
            rows = [
                self._row(name, inner, at._replace(path=(*at.path, index))) for index, (name, inner) in enumerate(found)
            ]
            return [*rows, self._origin(at)]

        return row | {"variablesReference": self._number(_Inside(fields)), "namedVariables": value.fields + 1}

    def _tensor(self, at: _Place, type_: str) -> Row:
        """What is in a tensor: statistics, where it comes from, and its elements, which can be set in a register."""

        def array() -> np.ndarray:
            return self._session.tensor(at.register, at.path, at.level)

        def put(index: tuple[int, ...], text: str) -> None:
            changed = array()
            changed[index] = self._session.evaluate(text, at.level)
            self._session.set(at.register, changed, at.level)

        def statistics() -> list[Row]:
            found = values.numbers(array())
            rows = [
                _leaf(name, str(value))
                for name, value in vars(found).items()
                if value is not None and name != "histogram"
            ]
            return [*rows, _leaf("histogram", " ".join(map(str, found.histogram)))]

        named = [self._origin(at)]
        if not type_.startswith("string"):
            named.insert(0, _opened("statistics", self._number(_Inside(statistics)), is_lazy=False))
        size = int(type_.partition("[")[2].rstrip("]").partition(",")[0] or 0)
        elements = self._of_array(array, size, put=None if at.path else put)
        return {
            "variablesReference": self._number(replace(elements, named=lambda: named)),
            "namedVariables": len(named),
            "indexedVariables": size,
        }

    def _elements(
        self,
        name: str,
        array: np.ndarray,
        whole: Callable[[], np.ndarray],
        index: tuple[int, ...] = (),
        put: _Put | None = None,
    ) -> Row:
        """A part of an array, at an index of the whole."""
        dtype = "string" if array.dtype == object else array.dtype.name
        if not array.ndim:
            return {"name": name, "value": str(array[()]), "type": dtype, "variablesReference": 0}
        return {
            "name": name,
            "value": values.brief(array),
            "type": f"{dtype}[{', '.join(map(str, array.shape))}]",
            "variablesReference": self._number(self._of_array(whole, len(array), index, put)),
            "indexedVariables": len(array),
        }

    def _of_array(
        self, whole: Callable[[], np.ndarray], size: int, index: tuple[int, ...] = (), put: _Put | None = None
    ) -> _Inside:
        """What is inside a part of `size` rows of an array; with `put`, it can be set."""

        def page(start: int, count: int) -> list[Row]:
            part = whole()[index]
            return [
                self._elements(f"[{at}]", np.asarray(part[at]), whole, (*index, at), put)
                for at in range(start, start + count)
            ]

        def change(name: str, text: str) -> Row:
            found = _ELEMENT.match(name)
            if found is None or int(found[1]) >= size:
                raise ArgumentError(f"there is no element {name[:40]}")
            at = (*index, int(found[1]))
            put(at, text)  # type: ignore[misc]
            return self._elements(name, np.asarray(whole()[at]), whole, at, put)

        return _Inside(list, page, size, change if put is not None else None)

    def _origin(self, at: _Place) -> Row:
        """Where a value comes from: the call runs once more for it, when it is opened."""

        def uses() -> list[Row]:
            found = self._session.origin(at.register, at.path, at.level)
            made = _use("made", found.maker) if found.maker else _leaf("made", found.name or "nothing has written it")
            return [made, *(_use("read", each) for each in found.readers[:PAGE])]

        return _opened("made and read by", self._number(_Inside(uses)), is_lazy=True)


def _leaf(name: str, value: str) -> Row:
    return {"name": name, "value": value, "variablesReference": 0}


def _opened(name: str, number: int, is_lazy: bool) -> Row:
    row: Row = {"name": name, "value": "…", "variablesReference": number}
    return row | {"presentationHint": {"kind": "virtual", "lazy": True}} if is_lazy else row


def _use(name: str, use: Use) -> Row:
    return _leaf(f"{name} at step {use.time}", f"{use.frame.instruction}  {use.frame}")
