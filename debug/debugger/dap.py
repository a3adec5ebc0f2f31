"""The debugger as a server of the Debug Adapter Protocol, for one client.

The client's requests are read by a thread. While a call is debugged they are carried out by the thread that makes it, so that
imports run where they would without a debugger; else by the reader. `listening.py` has calls debugged.
"""

from __future__ import annotations

import bisect
import queue
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.messages.errors import ArgumentError, BudgetExceededError, TreadleError
from ...vm.budgets import Budget
from ...vm.calls import Calls
from .session import Frame, Session, Stop, session
from .sources import Line, Paths, Sources
from .variables import Row, Variables
from .wire import ConnectionFailure, Wire, argument
from .wishes import FILTERS, Call, Wishes, address_of

THREAD = 1  # a call is the one thread there is
_MOST_INSTRUCTIONS = 10_000
_CAPABILITIES = (
    "ConfigurationDoneRequest FunctionBreakpoints ConditionalBreakpoints HitConditionalBreakpoints LogPoints StepBack "
    "SetVariable RestartRequest ExceptionInfoRequest TerminateRequest DataBreakpoints DisassembleRequest SteppingGranularity "
    "InstructionBreakpoints BreakpointLocationsRequest EvaluateForHovers"
)
_CHANGES = {
    "setBreakpoints",
    "setFunctionBreakpoints",
    "setExceptionBreakpoints",
    "setDataBreakpoints",
    "setInstructionBreakpoints",
}

# What may end a motion early: a pause; that, and a change of breakpoints, after which it goes on, or begins again; nothing
_PAUSED, _FREE, _BACK, _WHOLE = "paused", "free", "back", "whole"
_MOTIONS: dict[str, tuple[Callable[[Session], Stop], str]] = {
    "continue": (Session.resume, _FREE),
    "reverseContinue": (lambda made: made.resume(back=True), _BACK),
    "next": (Session.over, _PAUSED),
    "stepIn": (Session.step, _PAUSED),
    "stepOut": (Session.out, _PAUSED),
    "stepBack": (lambda made: made.over(back=True), _BACK),
    "restart": (lambda made: made.goto(0), _WHOLE),
}


class _Motion(NamedTuple):
    go: Callable[[], Stop]
    bounds: str


def _motion(made: Session, command: str, is_fine: bool) -> _Motion:
    """What a request for a motion does; fine ones go by instructions."""

    def over(back: bool) -> Stop:
        depth, stop = len(made.frames()), made.instruction(back)
        return made.out(back) if stop.reason == "step" and len(made.frames()) > depth else stop

    if is_fine and command in ("next", "stepIn", "stepBack"):
        return _Motion(made.instruction if command == "stepIn" else lambda: over(command == "stepBack"), _WHOLE)
    go, bounds = _MOTIONS[command]
    return _Motion(partial(go, made), bounds)


class LeftError(SystemExit):
    """The client that has launched the program ends it."""


class Adapter:
    """Serves one client. `read` it in a thread; `debug` is the debugger of `vm.calls`."""

    def __init__(self, wire: Wire, is_launched: bool) -> None:
        self._wire, self._is_launched = wire, is_launched
        self.launches: queue.Queue[dict[str, Any] | None] = queue.Queue()  # requests; None: the client has gone
        self.configured = threading.Event()
        self.is_gone = False
        self.paths = Paths()
        self._call: Call | None = None
        self._sources: Sources | None = None  # of the last call's program
        self._turn = threading.Lock()  # of the one call that is debugged
        self._lock = threading.Lock()  # between the reader and a call that begins or ends
        self._inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self._is_running = self._is_pausing = False
        self._bounds = _WHOLE  # of the motion that goes on
        self._is_announced = self._has_begun = False
        self._options: dict[str, Any] = {}
        self.wishes = Wishes(self.output, self.paths)

    # ---- the reader ----

    def read(self) -> None:
        """Reads requests until the client goes."""
        try:
            for request in self._wire.requests():
                self._receive(request)
        except (ConnectionFailure, OSError) as error:
            self.output(f"the connection ends: {error}\n", "important")
        finally:
            self.leave()

    def leave(self) -> None:
        """The client has gone, or is to go: calls are not debugged any more; one that was launched ends."""
        with self._lock:
            self.is_gone = True
            if self._call is not None:
                self._interrupt(self._call)
            self._inbox.put({})
        self.launches.put(None)
        self.configured.set()

    def _receive(self, request: dict[str, Any]) -> None:
        command = request["command"]
        if command in ("disconnect", "terminate"):
            self._wire.respond(request)
            if command == "terminate":
                self._wire.event("terminated")
            self.leave()
            return
        if command == "launch" and self._is_launched and not self._has_begun:
            self.launches.put(request)  # answered by `launched`
            return
        with self._lock:
            if self._call is None or command in ("threads", "initialize"):
                self._do(request)
            elif command == "pause":
                self._is_pausing = self._is_running
                self._interrupt(self._call)
                self._wire.respond(request)
            elif not self._is_running or command in _CHANGES:
                self._is_running |= command in _MOTIONS
                self._inbox.put(request)
                if self._bounds is not _PAUSED:
                    self._interrupt(self._call)
            else:
                self._wire.respond(request, ArgumentError(f"{command}: the call is running; pause it first"))

    def _interrupt(self, call: Call) -> None:
        if self._bounds is not _WHOLE:
            call.session.interrupt()

    def _do(self, request: dict[str, Any]) -> None:
        """Carries out what moves nothing, and answers."""
        command, arguments = request["command"], request.get("arguments") or {}
        name = "do_" + re.sub("([A-Z])", r"_\1", command).lower()
        method = getattr(self, name, None) or getattr(self.wishes, name, None)
        try:
            if method is None:
                raise ArgumentError(f"there is no request {command[:40]!r} here")
            answer = method(arguments)
        except TreadleError as error:
            answer = error
        self._wire.respond(request, answer)
        if command == "attach" and not isinstance(answer, Exception):
            self.announce()

    def announce(self) -> None:
        """Asks the client for its breakpoints, once."""
        if not self._is_announced:
            self._is_announced = True
            self._wire.event("initialized")

    def output(self, text: str, category: str = "console") -> None:
        self._wire.event("output", output=text, category=category)

    def ended(self, code: int) -> None:
        """The program that was launched has ended."""
        self._wire.event("exited", exitCode=code)
        self._wire.event("terminated")

    def launched(self, request: dict[str, Any], error: Exception | None = None) -> bool:
        """Answers a launch: the program is there, or what is wrong with it. Whether it can begin."""
        if error is None:
            try:
                self.do_attach(request.get("arguments") or {})
            except ArgumentError as wrong:
                error = wrong
        self._has_begun = error is None
        self._wire.respond(request, error)
        return self._has_begun

    # ---- a call ----

    def debug(self, calls: Calls, number: int, values: Sequence[Any], budget: Budget) -> tuple[Any] | None:
        """Makes a call under the client's eyes; None if another one is, or nobody looks."""
        if self.is_gone or self._options.get("noDebug") or not self._turn.acquire(blocking=False):
            return None
        try:
            with session(calls, number, values, budget) as made:
                return self._debug(made)
        finally:
            with self._lock:
                self._call = None
                self._is_running, self._bounds = False, _WHOLE
                self.wishes.end()
                self._drain()
            self._turn.release()

    def _debug(self, made: Session) -> tuple[Any]:
        if self._sources is None or self._sources.program is not made.program:
            self._sources = Sources(made.program)
        call = Call(made, self._sources, Variables(made))
        with self._lock:
            self._call, self._is_running = call, self.configured.is_set()
            for told in self.wishes.begin(call):
                self._wire.event("breakpoint", reason="changed", breakpoint=told)
        self.announce()
        while not self.configured.is_set() and not self.is_gone:
            self._do(request) if (request := self._inbox.get()) else None
        is_entry = self._options.pop("stopOnEntry", False) and not self.is_gone
        if not is_entry:
            return self._follow(call, _Motion(made.begin, _FREE))
        self._stopped(call, made.stop, "entry")
        return self._follow(call, None)

    def _follow(self, call: Call, motion: _Motion | None) -> tuple[Any]:
        """Moves as the client says until the call has ended; its result. Raises what it fails with."""
        made = call.session
        while True:
            before = made.stop
            stop = self._move(made, motion or self._next_motion(call))
            is_end = stop.reason in ("returned", "error", "budget")
            if is_end and (not self._shows(stop) or (before.reason, before.time) == (stop.reason, stop.time)):
                if stop.error is not None:
                    raise stop.error
                return (made.result,)
            self._stopped(call, stop)
            motion = None

    def _shows(self, stop: Stop) -> bool:
        """Whether the client wants to see the end of a call before the program goes on."""
        if self.is_gone:
            return False
        return (
            bool(self._options.get("stopOnExit")) if stop.reason == "returned" else stop.reason in self.wishes.filters
        )

    def _move(self, made: Session, motion: _Motion) -> Stop:
        """A motion, with what the client changes meanwhile."""
        start = made.time
        while True:
            with self._lock:
                if self.is_gone:
                    if self._is_launched:
                        raise LeftError(0)
                    made.breakpoints.clear()
                    motion = _Motion(made.resume, _FREE)
                if self._is_pausing:
                    return replace(made.stop, reason="interrupted")
                self._is_running, self._bounds = True, motion.bounds
            stop = motion.go()
            with self._lock:
                self._bounds = _WHOLE
                made.interrupt(False)
                if stop.reason != "interrupted":
                    return stop
                if motion.bounds is _BACK:
                    made.goto(start)
                if not self._is_pausing:
                    self._drain()
                if motion.bounds is _FREE:
                    motion = _Motion(made.begin, _FREE)  # a breakpoint here was not looked at

    def _drain(self) -> None:
        """Carries out what waits."""
        while not self._inbox.empty():
            if request := self._inbox.get():
                self._do(request)

    def _stopped(self, call: Call, stop: Stop, reason: str = "") -> None:
        body: dict[str, Any] = {"threadId": THREAD, "allThreadsStopped": True}
        wanted = self.wishes.by_point(stop.breakpoint)
        kinds = {"start": "entry", "interrupted": "pause", "error": "exception", "budget": "exception"}
        call.reason = reason or kinds.get(stop.reason, stop.reason)
        if stop.reason == "returned":
            call.reason, body["description"] = "exit", "The call has returned; it can go back"
        if wanted is not None and wanted.filter:
            call.reason = "exception"
        elif wanted is not None:
            call.reason = {"function": "function breakpoint", "data": "data breakpoint"}.get(wanted.key[0], call.reason)
            body["hitBreakpointIds"] = [wanted.number]
        told = _told(call.session, stop)
        if told:
            body["text"] = told
        with self._lock:
            self._is_running = self._is_pausing = False
        self._wire.event("stopped", reason=call.reason, **body)

    def _next_motion(self, call: Call) -> _Motion:
        """Answers the client until it wants the call to go on."""
        made = call.session
        while not self.is_gone:
            request = self._inbox.get()
            command = request.get("command")
            if command not in _MOTIONS:
                self._do(request) if request else None
                continue
            call.variables.forget()
            self._wire.respond(request, {"allThreadsContinued": True} if command == "continue" else None)
            is_fine = (request.get("arguments") or {}).get("granularity") == "instruction"
            return _motion(made, command, is_fine)
        return _Motion(made.resume, _FREE)

    # ---- beginning and looking ----

    def do_initialize(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self.wishes.base = 1 if argument(arguments, "linesStartAt1", True) else 0
        return {f"supports{name}": True for name in _CAPABILITIES.split()} | {
            "exceptionBreakpointFilters": [
                {"filter": name, "label": label, "description": text, "default": is_on}
                for name, (label, text, is_on) in FILTERS.items()
            ],
        }

    def do_attach(self, arguments: dict[str, Any]) -> None:
        folders = argument(arguments, "sources", [])
        if not all(isinstance(each, str) for each in folders):
            raise ArgumentError("sources: expected a list of folders")
        self.paths.folders += [*map(Path, folders), Path(argument(arguments, "program", "")).parent]
        self._options = {name: argument(arguments, name, False) for name in ("stopOnEntry", "stopOnExit", "noDebug")}

    def do_configuration_done(self, arguments: dict[str, Any]) -> None:
        self.configured.set()

    def do_threads(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"threads": [{"id": THREAD, "name": "call"}]}

    def do_pause(self, arguments: dict[str, Any]) -> None:
        """Nothing runs."""

    def _require(self) -> Call:
        if self._call is None:
            raise ArgumentError("no call is debugged now")
        return self._call

    def do_stack_trace(self, arguments: dict[str, Any]) -> dict[str, Any]:
        call = self._require()
        frames = call.session.frames()
        start, many = argument(arguments, "startFrame", 0), argument(arguments, "levels", 0) or len(frames)
        shown = frames[max(0, start) : max(0, start) + max(0, many)]
        stands = self.wishes.lines()
        return {"stackFrames": [self._frame(call, each, stands) for each in shown], "totalFrames": len(frames)}

    def _frame(self, call: Call, frame: Frame, stands: set[Line]) -> Row:
        place = call.sources.place(frame.function, frame.offset, frame.node, self.paths, stands)
        rounds = f", {frame.iterations}" if frame.rounds else ""
        address = call.sources.address(frame.function, frame.offset)
        return {
            "id": frame.level + 1,
            "name": f"{frame.function}{rounds}",
            "column": 1,
            "instructionPointerReference": f"{address:#x}",
            "source": place["source"],
            **self.wishes.line(place["line"]),
        }

    def _level(self, arguments: dict[str, Any]) -> int:
        return argument(arguments, "frameId", 1) - 1

    def do_scopes(self, arguments: dict[str, Any]) -> dict[str, Any]:
        call, level = self._require(), self._level(arguments)
        call.session.registers(level)  # raises where there is no such frame
        return {"scopes": call.variables.scopes(level)}

    def do_variables(self, arguments: dict[str, Any]) -> dict[str, Any]:
        number, start, count = (argument(arguments, name, 0) for name in ("variablesReference", "start", "count"))
        only = argument(arguments, "filter", "")
        return {"variables": self._require().variables.rows(number, only, start, count)}

    def do_set_variable(self, arguments: dict[str, Any]) -> Row:
        number, name, text = (argument(arguments, *each) for each in _CHANGE)
        row = self._require().variables.change(number, name, text)
        return {each: row[each] for each in ("value", "type", "variablesReference", "indexedVariables") if each in row}

    def do_evaluate(self, arguments: dict[str, Any]) -> Row:
        row = self._require().variables.evaluated(argument(arguments, "expression", "").strip(), self._level(arguments))
        return {"result": row.pop("value"), **{each: row[each] for each in row if each not in ("name", "evaluateName")}}

    def do_exception_info(self, arguments: dict[str, Any]) -> dict[str, Any]:
        call = self._require()
        stop = call.session.stop
        wanted = self.wishes.by_point(stop.breakpoint)
        if call.reason != "exception":
            raise ArgumentError("the call has not stopped at an exception")
        kind = type(stop.error).__name__ if stop.error is not None else FILTERS[wanted.filter if wanted else "nan"][0]
        found = {"exceptionId": kind, "description": _told(call.session, stop), "breakMode": "always"}
        if isinstance(stop.error, BudgetExceededError) or stop.error is None:
            return found
        return found | {"details": {"message": str(stop.error), "typeName": kind}}

    def do_source(self, arguments: dict[str, Any]) -> dict[str, Any]:
        reference = argument(arguments, "sourceReference", 0) or argument(
            argument(arguments, "source", {}), "sourceReference", 0
        )
        return {"content": "\n".join(self._require().sources.text(reference).lines) + "\n"}

    def do_disassemble(self, arguments: dict[str, Any]) -> dict[str, Any]:
        sources = self._require().sources
        address = address_of(argument(arguments, "memoryReference", "")) + argument(arguments, "offset", 0)
        first = bisect.bisect_left(sources.addresses, address) + argument(arguments, "instructionOffset", 0)
        count = argument(arguments, "instructionCount", 0)
        if not 0 <= count <= _MOST_INSTRUCTIONS:
            raise ArgumentError(f"instructionCount: expected at most {_MOST_INSTRUCTIONS}, got {count}")
        return {"instructions": [self._instruction(sources, at) for at in range(first, first + count)]}

    def _instruction(self, sources: Sources, at: int) -> Row:
        if not 0 <= at < len(sources.listing):
            beyond = max(0, at - len(sources.listing)) * 8 + sources.addresses[-1] + 8 if at > 0 else 0
            return {"address": f"{beyond:#x}", "instruction": "(none)", "presentationHint": "invalid"}
        each = sources.listing[at]
        place = sources.place(each.function, each.offset, each.node, self.paths)
        return {
            "address": f"{sources.addresses[at]:#x}",
            "instruction": f"{each.opname} {each.argrepr}".rstrip(),
            "symbol": f"{each.function}+{each.offset}",
            "location": place["source"],
            **self.wishes.line(place["line"]),
        }


_CHANGE: tuple[tuple[str, Any], ...] = (("variablesReference", 0), ("name", ""), ("value", ""))


def _told(made: Session, stop: Stop) -> str:
    """Why the call stands, in one line."""
    if stop.error is not None:
        return str(stop.error)
    if stop.made is not None and stop.register:
        value = made.value(stop.register)
        return f"{stop.register}: {value.type} {value.text}, made by {stop.made.instruction}  {stop.made}"
    return ""
