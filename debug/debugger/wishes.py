"""The breakpoints that a client of the Debug Adapter Protocol wants: kept from one call to the next, and set in each.

Conditions are the debugger's own; hits are counted and lines of a log written here.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Union

from ...formats.messages.errors import ArgumentError, TreadleError
from .breakpoints import MADE, Breakpoint, in_iteration
from .session import Session
from .sources import Line, Paths, Sources
from .values import brief
from .variables import Row, Variables
from .wire import argument, objects

_MOST_BREAKPOINTS = 1000  # of a source, or a kind
FILTERS = {
    "error": ("Errors", "The call stops where it fails", True),
    "budget": ("Budgets", "The call stops where it passes max_steps, max_seconds, max_memory or max_depth", True),
    "nan": ("NaN", "The call stops where a NaN is made", False),
    "infinite": ("Infinities", "The call stops where an infinity is made", False),
}
_CONDITIONS = {"nan": "any(isnan(x))", "infinite": "any(isinf(x))"}
_HITS = re.compile(r"(==|=|>=|>|<=|<|%)?\s*(\d{1,9})$")


@dataclass
class Call:
    """A call that is debugged."""

    session: Session
    sources: Sources
    variables: Variables
    reason: str = ""  # of the stop, as the protocol has it


_Make = Callable[[Call, Union[str, None]], Breakpoint]  # sets it in a call, with its condition


@dataclass
class _Wanted:
    """A breakpoint as the client wants it, and the session's while there is one."""

    number: int
    key: tuple[Any, ...]  # of which another one is the same
    make: _Make
    where: Callable[[], Row]  # what the client is told of its place
    when: str | None = None
    hits: str = ""
    log: str = ""
    filter: str = ""
    point: Breakpoint | None = None
    error: str = "no call is debugged yet"
    times: list[int] = field(default_factory=list)  # when it held, sorted

    def told(self) -> Row:
        found: Row = {"id": self.number, "verified": self.point is not None, **self.where()}
        return found if self.point is not None else found | {"message": self.error}

    def counts(self, time: int) -> bool:
        """Whether the hit at a time is one to stop at. Hits are counted from the beginning, however often they are seen."""
        at = bisect.bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
        found = _HITS.match(self.hits)
        if found is None:
            return True
        count, of, sign = at + 1, int(found[2]), found[1] or "=="
        if sign == "%":
            return of > 0 and count % of == 0
        return {"==": count == of, "=": count == of, ">=": count >= of, ">": count > of}.get(
            sign, count <= of if sign == "<=" else count < of
        )


class Wishes:
    """All that a client wants to stop at."""

    def __init__(self, output: Callable[[str], None], paths: Paths) -> None:
        self._output, self._paths = output, paths
        self._call: Call | None = None
        self._wanted: dict[Any, list[_Wanted]] = {}
        self._last = 0
        self.base = 1  # of the client's lines
        self.filters = {name for name, (_, _, is_on) in FILTERS.items() if is_on}

    def begin(self, call: Call) -> Iterator[Row]:
        """A call begins: sets them in it. What the client is told of each."""
        self._call = call
        call.session.passes = self._passes
        for each in self._all():
            self._set(each)
            yield each.told()

    def end(self) -> None:
        """The call has ended."""
        self._call = None
        for each in self._all():
            each.point, each.times = None, []

    def lines(self) -> set[Line]:
        """The lines of Python that they stand on."""
        lines = [each for each in self._all() if each.point is not None and each.key[0] == "line"]
        return {Line(each.key[1][0], each.where()["line"] - 1 + self.base) for each in lines}

    def _all(self) -> list[_Wanted]:
        return [each for some in self._wanted.values() for each in some]

    def by_point(self, point: Breakpoint | None) -> _Wanted | None:
        return next((each for each in self._all() if each.point is point), None) if point is not None else None

    def _set(self, wanted: _Wanted) -> None:
        if self._call is not None and wanted.point is None:
            try:
                if wanted.hits and not _HITS.match(wanted.hits):
                    raise ArgumentError(f"hits {wanted.hits[:40]!r}: expected a number, or as '>= 3', '% 10'")
                wanted.point = wanted.make(self._call, wanted.when)
            except TreadleError as error:
                wanted.error = str(error)

    def _replace(self, kind: Any, wanted: list[_Wanted]) -> dict[str, Any]:
        """The breakpoints of a kind, in the place of those before. Those that are the same stay, with their hits."""
        old = {each.key: each for each in self._wanted.get(kind, [])}
        kept = [old.pop(each.key, each) for each in wanted]
        for each in old.values():
            if each.point is not None and self._call is not None:
                self._call.session.breakpoints.pop(each.point.number, None)
        self._wanted[kind] = kept
        for each in kept:
            self._set(each)
        return {"breakpoints": [each.told() for each in kept]}

    def _want(
        self,
        kind: str,
        place: Any,
        asked: dict[str, Any],
        make: _Make,
        where: Callable[[], Row] = dict,
    ) -> _Wanted:
        when, hits, log = (argument(asked, name, "") for name in ("condition", "hitCondition", "logMessage"))
        self._last += 1
        return _Wanted(self._last, (kind, place, when, hits, log), make, where, when.strip() or None, hits.strip(), log)

    def _passes(self, point: Breakpoint, made: int | None) -> bool:
        """Whether a breakpoint that holds is passed over: by its hits, or since it writes a line and goes on."""
        wanted, call = self.by_point(point), self._call
        if wanted is None or call is None:
            return False
        is_new = not wanted.times or call.session.time > wanted.times[-1]
        if not wanted.counts(call.session.time):
            return True
        if not wanted.log:
            return False
        if is_new:  # and not one that is seen again on the way back
            self._output(_filled(wanted.log, call.session, made) + "\n")
        return True

    def do_set_breakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        source = argument(arguments, "source", {})
        path, reference = argument(source, "path", ""), argument(source, "sourceReference", 0)
        asked = objects(arguments, "breakpoints", _MOST_BREAKPOINTS)
        name = self._paths.know(path) if path else ""
        wanted = []
        for each in asked:
            number = argument(each, "line", 0) + 1 - self.base
            if reference:
                make = _at_text(reference, number)
                wanted.append(self._want("text", (reference, number), each, make, partial(self.line, number)))
            else:
                place = _Moved(self, name, number)
                wanted.append(self._want("line", (name, number), each, place.make, place.where))
        return self._replace(("source", path or reference), wanted)

    def line(self, number: int) -> Row:
        return {"line": number - 1 + self.base}

    def do_set_function_breakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = []
        for each in objects(arguments, "breakpoints", _MOST_BREAKPOINTS):
            name = argument(each, "name", "").strip()

            def make(call: Call, when: str | None, name: str = name) -> Breakpoint:
                where, iteration = in_iteration(name)
                return call.session.break_at(where, when=when, iteration=iteration)

            wanted.append(self._want("function", name, each, make))
        return self._replace("function", wanted)

    def do_set_instruction_breakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = []
        for each in objects(arguments, "breakpoints", _MOST_BREAKPOINTS):
            address = address_of(argument(each, "instructionReference", "")) + argument(each, "offset", 0)

            def make(call: Call, when: str | None, address: int = address) -> Breakpoint:
                sources = call.sources
                if address not in sources.at:
                    raise ArgumentError(f"no instruction is at {address:#x}")
                at = sources.listing[sources.at[address]]
                return call.session.break_at(f"{at.function}+{at.offset}", when=when)

            reference: Row = {"instructionReference": f"{address:#x}"}
            wanted.append(self._want("instruction", address, each, make, reference.copy))
        return self._replace("instruction", wanted)

    def do_data_breakpoint_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        call, name = self._call, argument(arguments, "name", "")
        number = argument(arguments, "variablesReference", 0)
        if call is None:
            raise ArgumentError("no call is debugged now")
        try:
            if not re.fullmatch(r"r\d+", name):
                raise ArgumentError("only registers of values can be watched")
            level = call.variables.level(number) if number else max(0, argument(arguments, "frameId", 1) - 1)
            call.session.value(name, (), level)
        except ArgumentError as error:
            return {"dataId": None, "description": str(error)}
        function = call.session.frames()[level].function
        text = f"{name} of {function}"
        return {"dataId": f"{function}:{name}", "description": text, "accessTypes": ["write", "read"]}

    def do_set_data_breakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = []
        for each in objects(arguments, "breakpoints", _MOST_BREAKPOINTS):
            data, access = argument(each, "dataId", ""), argument(each, "accessType", "write")

            def make(call: Call, when: str | None, data: str = data, access: str = access) -> Breakpoint:
                function, _, name = data.rpartition(":")
                if access not in ("write", "read"):
                    raise ArgumentError(f"accessType: expected 'write' or 'read', got {access[:40]!r}")
                return call.session.watch(function, name, reads=access == "read", when=when)

            wanted.append(self._want("data", (data, access), each, make))
        return self._replace("data", wanted)

    def do_set_exception_breakpoints(self, arguments: dict[str, Any]) -> dict[str, Any]:
        names = argument(arguments, "filters", [])
        unknown = [each for each in names if each not in list(FILTERS)]
        if unknown:
            raise ArgumentError(f"filters: there are {', '.join(FILTERS)}, no {str(unknown[0])[:40]!r}")
        self.filters = set(names)
        wanted = []
        for name, condition in _CONDITIONS.items():
            if name in names:
                made = self._want("filter", name, {"condition": condition}, _anywhere)
                made.filter = name
                wanted.append(made)
        self._replace("filter", wanted)
        return {}

    def do_breakpoint_locations(self, arguments: dict[str, Any]) -> dict[str, Any]:
        path = argument(argument(arguments, "source", {}), "path", "")
        first = argument(arguments, "line", 0) + 1 - self.base
        last = argument(arguments, "endLine", first - 1 + self.base) + 1 - self.base
        known = self._call.sources.lines.get(self._paths.know(path), set()) if path and self._call else set()
        return {"breakpoints": [self.line(each) for each in sorted(known) if first <= each <= last]}


def _anywhere(call: Call, when: str | None) -> Breakpoint:
    return call.session.break_at(when=when)


class _Moved:
    """A breakpoint on a line of Python: it stands on the next line that the program has."""

    def __init__(self, wishes: Wishes, file: str, number: int) -> None:
        self._wishes, self._file, self.number = wishes, file, number

    def where(self) -> Row:
        return self._wishes.line(self.number)

    def make(self, call: Call, when: str | None) -> Breakpoint:
        known = sorted(call.sources.lines.get(self._file, ()))
        at = bisect.bisect_left(known, self.number)
        if at < len(known):
            self.number = known[at]
        return call.session.break_at(f"node {self._file}:{self.number}", when=when)


def _at_text(reference: int, number: int) -> _Make:
    """A breakpoint on a line of a text that the adapter serves."""

    def make(call: Call, when: str | None) -> Breakpoint:
        places = call.sources.text(reference).places
        if not 1 < number <= len(places):
            raise ArgumentError(f"line {number} is no place to stop at")
        return call.session.break_at(places[number - 1], when=when)

    return make


def address_of(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise ArgumentError(f"expected an address, as 0x20, got {text[:40]!r}") from None


def _filled(log: str, made: Session, register: int | None) -> str:
    """A line of a log, with the values of what stands in braces."""

    def value(found: re.Match[str]) -> str:
        text = found[1] if register is None else re.sub(rf"\b{MADE}\b", f"r{register}", found[1])
        try:
            got = made.evaluate(text)
        except TreadleError as error:
            return f"{{{error}}}"
        return brief(got) if getattr(got, "ndim", 0) else str(got)

    return re.sub(r"\{([^{}]*)\}", value, log)
