"""A profile of one call: how long each primitive took, and each allocation, by a listener.

Times are those of the machine's traps too, some microseconds a call of a primitive: compare with care what is smaller.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..formats.isa import Role, with_role
from ..formats.primitive import Primitive, PrimitiveDefinition
from ..formats.sections import encode_definition
from .device import Device, cpu
from .hooks import Event, InstrumentAction, Listener
from .report import COUNT, DEVICE, DURATION, NAME, PERCENT, SHAPES, Count, Duration, Metric, Percent, Report, merged

_DEVICE = "cpu0"
_ENTRIES = 10_000  # of a report: a loop may meet other shapes each time, which then are one entry a place


@dataclass
class ProfileRow:
    """One place of the program that calls a primitive."""

    primitive: str
    node: str | None  # the model node that it comes from
    calls: int = 0
    seconds: float = 0.0


@dataclass
class _Entry:
    """What happened at one place with tensors of the same shapes."""

    name: str
    shapes: str
    primitive: Primitive | None
    count: int = 0
    seconds: float = 0.0
    collected: dict[str, Metric] = field(default_factory=dict)


class MetricCollector(Protocol):
    """Measures something else during each instruction."""

    def init(self, devices: Sequence[Device]) -> None:
        """The profile begins."""

    def start(self, device: Device) -> Any:
        """An instruction begins; what `stop` is given."""

    def stop(self, started: Any) -> dict[str, Metric]:
        """It has ended: metrics by name."""


class Profile(Report):
    """A report of one call. As a sequence, it is the places that call primitives, the longest first."""

    def __init__(self, profiler: Profiler, seconds: float, threads: int) -> None:
        """`threads` are those that kernels could share."""
        total = seconds * 1e6
        configuration: dict[str, Metric] = {"Executor": "VM", "Number of threads": Count(threads)}
        totals: dict[str, Metric] = {DURATION: Duration(total), COUNT: Count(1), DEVICE: _DEVICE}
        super().__init__([_metrics(entry, total) for entry in profiler.entries], {_DEVICE: totals}, configuration)
        self.rows = profiler.rows

    def __iter__(self) -> Iterator[ProfileRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ProfileRow:
        return self.rows[index]


class Profiler(Listener):
    """Adds up the times of the instructions that do work, by place, in the one call that it listens to."""

    operations = with_role(Role.WORKS, Role.MAKES, Role.VIEWS, Role.EFFECTS)

    def __init__(self, collectors: Sequence[MetricCollector] = ()) -> None:
        self.by_place: dict[tuple[str, int], ProfileRow] = {}  # (function, offset of the instruction)
        self._entries: dict[tuple[str, int, str], _Entry] = {}
        self._collectors = list(collectors)
        self._started: list[Any] = []
        for collector in self._collectors:
            collector.init([cpu()])
        self._since = 0.0

    @property
    def rows(self) -> list[ProfileRow]:
        """The places that call primitives, the longest first."""
        return sorted(self.by_place.values(), key=lambda row: -row.seconds)

    @property
    def entries(self) -> list[_Entry]:
        return list(self._entries.values())

    def before(self, event: Event) -> InstrumentAction | None:
        self._started = [collector.start(cpu()) for collector in self._collectors]
        self._since = time.perf_counter()
        return None

    def after(self, event: Event) -> None:
        seconds = time.perf_counter() - self._since
        entry = self._entry(event)
        entry.count += 1
        entry.seconds += seconds
        for collector, started in zip(self._collectors, self._started, strict=True):
            for name, metric in collector.stop(started).items():
                entry.collected[name] = merged([entry.collected[name], metric]) if name in entry.collected else metric
        if event.primitive is not None:
            place = event.function, event.instruction.offset
            row = self.by_place.setdefault(place, ProfileRow(event.primitive.name, event.node))
            row.calls += 1
            row.seconds += seconds

    def _entry(self, event: Event) -> _Entry:
        primitive = event.primitive
        shapes = ", ".join(map(event.describe, event.tensors)) if primitive is not None else ""
        if len(self._entries) >= _ENTRIES and primitive is not None:
            shapes = "…"
        key = event.function, event.instruction.offset, shapes
        found = self._entries.get(key)
        if found is None:
            name = event.imported or event.operation.name if primitive is None else primitive.name
            found = self._entries[key] = _Entry(name, shapes, primitive)
        return found


def _metrics(entry: _Entry, total: float) -> dict[str, Metric]:
    microseconds = entry.seconds * 1e6
    metrics: dict[str, Metric] = {
        NAME: entry.name,
        DURATION: Duration(microseconds),
        PERCENT: Percent(100 * microseconds / total if total else 0.0),
        DEVICE: _DEVICE,
        COUNT: Count(entry.count),
        SHAPES: entry.shapes,
        **entry.collected,
    }
    if entry.primitive is not None:
        metrics["Hash"] = kernel_hash(entry.primitive.definition)
    return metrics


def kernel_hash(definition: PrimitiveDefinition) -> str:
    """What tells kernels apart in reports: of their definitions."""
    return hashlib.sha256(encode_definition(definition)).hexdigest()[:16]
