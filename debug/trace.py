"""A timeline of one call, as Chrome's trace JSON (about:tracing, ui.perfetto.dev) or in Perfetto's own format.

Slices of functions hold those of the functions and kernels that they call. Of a kernel that threads share, each part is a slice
of the thread that did it. A counter says how many bytes of tensors are in use. Times are those of a call that is listened to:
each kernel is some microseconds longer (`profile` takes that off).

Perfetto's format (perfetto.dev/docs/reference/trace-packet-proto) is a protocol buffer; the few fields of it that a timeline
needs are written here by hand. Times are nanoseconds there, microseconds in JSON.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError
from ..vm.observe.hooks import Event, InstrumentAction
from ..vm.observe.parts_log import Part, TickClock
from ..vm.threads import pool
from .files import path_of, write
from .flow import Step
from .statistics import Watch
from .subject import arguments, subject

_INVOKES = ("invoke", "invoke_closure")
_BYTES = "bytes of tensors"


@dataclass(frozen=True)
class Slice:
    """Something that took time. Seconds since the call began; those that begin later and end earlier lie within."""

    name: str
    begin: float
    end: float
    details: Mapping[str, str]


@dataclass(frozen=True)
class Track:
    """One thread's events, in order of their beginnings. `number` is the system's for the thread."""

    number: int
    name: str
    slices: list[Slice]


@dataclass(frozen=True)
class Timeline:
    """A call on the threads that took part, the caller's first, and the counter's values."""

    threads: list[Track]
    counter: list[tuple[float, int]]

    @property
    def slices(self) -> list[Slice]:
        """Those of the thread that called."""
        return self.threads[0].slices


class _Frames(Watch):
    """Also sees functions begin and end, and which threads share a kernel."""

    operations = frozenset({"call", "ret", *_INVOKES})
    wants_parts = True

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Slice] = []
        self.parts: list[list[Part]] = []  # of each step
        self._open: list[tuple[str, float]] = []
        self.thread = threading.current_thread()

    def before(self, event: Event) -> InstrumentAction | None:
        if event.operation.name == "call":
            return super().before(event)
        if event.operation.name == "ret" and self._open:
            name, begin = self._open.pop()
            self.frames.append(Slice(name, begin, self._now(), {}))
        return None

    def after(self, event: Event) -> None:
        if event.operation.name == "call":
            super().after(event)
            self.parts.append(event.parts)
        elif event.operation.name in _INVOKES:
            name = event.callee if event.operation.name == "invoke" else "closure"
            self._open.append((name or "", self._now()))

    def _now(self) -> float:
        return time.perf_counter() - self.begin


def record(
    model: Any, feeds: Mapping[str, Any] | Sequence[Any] | None = None, *, function: str = "main", **options: Any
) -> Timeline:
    """The timeline of one call, after one to warm up; arguments and options as `compare` has them."""
    from ..vm.machine import VirtualMachine

    of = subject(model, function=function, **options)
    values = list(arguments(of.executable, function, feeds).values())
    machine = VirtualMachine(of.executable, trust_native=of.trust_native)
    call = machine[function]
    call(*values)
    watch, clock = _Frames(), TickClock()
    with machine.listening(watch):
        watch.begin = time.perf_counter()
        call(*values)
        whole = Slice(function, 0.0, time.perf_counter() - watch.begin, {})
    clock.look()
    kernels = [_slice(step, *at) for step, at in zip(watch.steps, watch.times, strict=True)]
    parts = _parts(kernels, watch.parts, clock, watch.begin)
    caller = [whole, *watch.frames, *kernels, *parts.pop(0, [])]
    tracks = [Track(watch.thread.native_id or 1, watch.thread.name, _in_order(caller))]
    numbers = pool().native_ids()
    tracks += [Track(numbers.get(index, index), f"treadle-{index}", _in_order(parts[index])) for index in sorted(parts)]
    alive = watch.stats({}, whole.end, 0).alive()
    counter = [(begin, size) for (begin, _), size in zip(watch.times, alive, strict=True)]
    return Timeline(tracks, [*counter, (whole.end, 0)])


def _parts(
    kernels: Sequence[Slice], parts: Sequence[Sequence[Part]], clock: TickClock, begin: float
) -> dict[int, list[Slice]]:
    """The slices of parts of kernels by the threads that did them. The two clocks differ by little; what that is, is cut off."""
    found: dict[int, list[Slice]] = {}
    if not clock.runs:
        return found
    for kernel, shares in zip(kernels, parts, strict=True):
        for share in shares:
            times = (clock.seconds(ticks) - begin for ticks in (share.begin, share.end))
            start, end = (min(max(time, kernel.begin), kernel.end) for time in times)
            details = {"part": f"{share.part + 1} of {share.parts}", **kernel.details}
            found.setdefault(share.thread, []).append(Slice(kernel.name, start, end, details))
    return found


def _in_order(slices: Sequence[Slice]) -> list[Slice]:
    """By their beginnings; what lies within another comes after it."""
    return sorted(slices, key=lambda each: (each.begin, -each.end))


def _slice(step: Step, begin: float, seconds: float) -> Slice:
    details = {"node": step.node, "operators": ", ".join(step.operators), "function": step.function}
    details |= {"iterations": step.iterations} if step.iterations else {}
    return Slice(step.primitive, begin, begin + seconds, details)


@public
def save_trace(
    model: Any,
    feeds: Mapping[str, Any] | Sequence[Any] | None,
    path: str | os.PathLike,
    *,
    function: str = "main",
    **options: Any,
) -> None:
    """Writes the timeline of one call to a file: .json for Chrome's format, .pftrace for Perfetto's. Raises ArgumentError for
    another ending, FileError, and what running raises."""
    file = path_of(path, "save_trace: path")
    if file.suffix not in _WRITERS:
        raise ArgumentError(f"trace: {file.name!r} must end with {' or '.join(_WRITERS)}")
    content = _WRITERS[file.suffix](record(model, feeds, function=function, **options))
    write(file, content)


# ---- Chrome ----


def as_chrome(timeline: Timeline) -> bytes:
    """Complete events ("X") for slices, which nest by their times, and a counter ("C")."""
    of_process = {"pid": os.getpid(), "tid": timeline.threads[0].number}
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", **of_process, "args": {"name": "treadle"}}]
    for track in timeline.threads:
        where = {"pid": os.getpid(), "tid": track.number}
        events.append({"ph": "M", "name": "thread_name", **where, "args": {"name": track.name}})
        for each in track.slices:
            times = {"ts": each.begin * 1e6, "dur": (each.end - each.begin) * 1e6}
            events.append(
                {"ph": "X", "cat": "treadle", "name": each.name, **where, **times, "args": dict(each.details)}
            )
    for at, value in timeline.counter:
        events.append({"ph": "C", "name": _BYTES, **of_process, "ts": at * 1e6, "args": {"bytes": value}})
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()


# ---- Perfetto ----
# Numbers of fields, by message
_PACKET = 1  # of Trace
_TIMESTAMP, _SEQUENCE, _EVENT, _FLAGS, _DESCRIPTOR = 8, 10, 11, 13, 60  # of TracePacket
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8  # of TrackDescriptor
_PID, _PROCESS_NAME = 1, 6  # of ProcessDescriptor
_THREAD_PID, _TID, _THREAD_NAME = 1, 2, 5  # of ThreadDescriptor
_UNIT, _SIZE_BYTES = 3, 3  # of CounterDescriptor, and a value of its enum
_DETAIL, _TYPE, _TRACK, _CATEGORY, _EVENT_NAME, _VALUE = 4, 9, 11, 22, 23, 30  # of TrackEvent
_DETAIL_TEXT, _DETAIL_NAME = 6, 10  # of DebugAnnotation
_BEGIN, _END, _COUNT = 1, 2, 4  # values of TrackEvent.Type
_CLEARED = 1  # of the sequence's flags: its state begins here
_PROCESS_TRACK, _CALLER_TRACK, _COUNTER_TRACK, _WORKER_TRACKS = 1, 2, 3, 4


def as_perfetto(timeline: Timeline) -> bytes:
    """The packets of a trace, in the order of their times."""
    pid = os.getpid()
    process = _field(_PID, pid) + _field(_PROCESS_NAME, "treadle")
    parent = _field(_PARENT, _PROCESS_TRACK)
    counter = _field(_NAME, _BYTES) + parent + _field(_COUNTER, _field(_UNIT, _SIZE_BYTES))
    packets = [
        _track(_PROCESS_TRACK, _field(_PROCESS, process), _field(_FLAGS, _CLEARED)),
        _thread(_CALLER_TRACK, timeline.threads[0], pid),
        _track(_COUNTER_TRACK, counter),
    ]
    packets += [_thread(uuid, track, pid) for uuid, track in enumerate(timeline.threads[1:], _WORKER_TRACKS)]
    packets += [_event(at, event) for at, event in _ordered(timeline)]
    return b"".join(_field(_PACKET, packet) for packet in packets)


def _ordered(timeline: Timeline) -> Iterable[tuple[float, bytes]]:
    """All events by their times; those of one thread as they nest."""
    caller, *workers = timeline.threads
    found = _nested(_CALLER_TRACK, caller.slices)
    for uuid, track in enumerate(workers, _WORKER_TRACKS):
        found += _nested(uuid, track.slices)
    counted = _field(_TYPE, _COUNT) + _field(_TRACK, _COUNTER_TRACK)
    found += [(at, counted + _field(_VALUE, value)) for at, value in timeline.counter]
    return sorted(found, key=lambda pair: pair[0])


def _nested(uuid: int, slices: Sequence[Slice]) -> list[tuple[float, bytes]]:
    """Beginnings and ends as they nest: what is open and ends before the next begins is closed first."""
    found: list[tuple[float, bytes]] = []
    waiting: list[float] = []
    end = _field(_TYPE, _END) + _field(_TRACK, uuid)
    for each in slices:
        while waiting and waiting[-1] <= each.begin:
            found.append((waiting.pop(), end))
        details = (_field(_DETAIL_NAME, name) + _field(_DETAIL_TEXT, text) for name, text in each.details.items())
        event = _field(_TYPE, _BEGIN) + _field(_TRACK, uuid) + _field(_CATEGORY, "treadle")
        event += _field(_EVENT_NAME, each.name) + b"".join(_field(_DETAIL, detail) for detail in details)
        found.append((each.begin, event))
        waiting.append(min(each.end, waiting[-1]) if waiting else each.end)
    return found + [(waiting.pop(), end) for _ in range(len(waiting))]


def _thread(uuid: int, track: Track, pid: int) -> bytes:
    thread = _field(_THREAD_PID, pid) + _field(_TID, track.number) + _field(_THREAD_NAME, track.name)
    return _track(uuid, _field(_PARENT, _PROCESS_TRACK) + _field(_THREAD, thread))


def _track(uuid: int, content: bytes, more: bytes = b"") -> bytes:
    return _field(_SEQUENCE, 1) + more + _field(_DESCRIPTOR, _field(_UUID, uuid) + content)


def _event(seconds: float, event: bytes) -> bytes:
    return _field(_TIMESTAMP, round(seconds * 1e9)) + _field(_SEQUENCE, 1) + _field(_EVENT, event)


def _field(number: int, value: int | str | bytes) -> bytes:
    """A field of a protocol buffer: a number as a varint, all else with its length before it."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


_WRITERS = {".json": as_chrome, ".pftrace": as_perfetto}
