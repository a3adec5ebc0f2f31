"""A profile of one call: how long each primitive took, and each allocation, by a listener.

Times are those of the machine's traps too, some microseconds a call of a primitive: compare with care what is smaller.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...formats.isa import Role, with_role
from ...formats.messages.calling import public_class, told
from ...formats.messages.errors import ArgumentError, IndexOutOfRangeError
from ...formats.primitive import PrimitiveDefinition
from ...formats.sections import encode_definition
from ...formats.types import TensorType
from ..device import Device, cpu
from ..places import Round, iterations
from .hooks import Event, InstrumentAction, Listener, Site
from .report import LONGEST, NODE, Count, Metric, Report, in_all, merged, timed

_ENTRIES = 10_000  # of a report: a loop may meet other shapes each time, which then are one entry a place


@dataclass
class ProfileRow:
    """One place of the program that calls a primitive."""

    primitive: str
    node: str | None  # the model node that it comes from
    calls: int = 0
    seconds: float = 0.0


class _Entry:
    """Events at one place with tensors of the same shapes. Texts about it are made after the call."""

    __slots__ = ("collected", "count", "longest", "rounds", "seconds", "shapes", "site")

    def __init__(self, site: Site, shapes: tuple[tuple[int, ...], ...] | None = None) -> None:
        self.site = site
        self.shapes = shapes  # None for those that the primitive's types say, and for any others of a place
        self.count = 0
        self.seconds = self.longest = 0.0
        self.rounds: tuple[Round, ...] = ()  # in which it took longest
        self.collected: dict[str, Metric] | None = None

    @property
    def name(self) -> str:
        """Of the primitive, or the imported function, or the operation."""
        site = self.site
        return (site.imported or site.operation.name) if site.primitive is None else site.primitive.name

    def tensors(self) -> str:
        """Those of a call of a primitive: inputs, then outputs."""
        if self.site.primitive is None:
            return ""
        if self.shapes is None and not self.site.is_static:
            return "…"
        types = self.site.tensor_types()
        shapes = (type_.shape for type_ in types) if self.shapes is None else self.shapes
        return ", ".join(map(_described, types, shapes))


def _described(type_: TensorType, shape: tuple[object, ...]) -> str:
    return f"{type_.dtype.numpy.name}[{', '.join(map(str, shape))}]"


class MetricCollector(Protocol):
    """Measures something else during each instruction."""

    def init(self, devices: Sequence[Device]) -> None:
        """The profile begins."""

    def start(self, device: Device) -> Any:
        """An instruction begins; what `stop` is given."""

    def stop(self, started: Any) -> dict[str, Metric]:
        """It has ended: metrics by name."""


@public_class
class Profile(Report):
    """A report of one call. As a sequence, it is the places that call primitives, the longest first."""

    def __init__(self, profiler: Profiler, seconds: float, threads: int) -> None:
        """`threads` are those that kernels could share."""
        configuration: dict[str, Metric] = {"Executor": "VM", "Number of threads": Count(threads)}
        super().__init__([_metrics(entry, seconds) for entry in profiler.entries], in_all(seconds), configuration)
        self.rows = profiler.rows

    def __iter__(self) -> Iterator[ProfileRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ProfileRow:
        if isinstance(index, bool) or not isinstance(index, (int, slice)):
            raise ArgumentError(f"expected the number of a row, got {told(index)}")
        try:
            return self.rows[index]
        except IndexError:  # also where iteration by index ends
            raise IndexOutOfRangeError(f"there is no row {index}; the profile has {len(self.rows)}") from None


class Profiler(Listener):
    """Adds up the times of the instructions that do work, by place, in the one call that it listens to."""

    operations = with_role(Role.WORKS, Role.MAKES, Role.VIEWS, Role.EFFECTS)

    def __init__(self, collectors: Sequence[MetricCollector] = ()) -> None:
        self._entries: dict[Any, _Entry] = {}  # by site, and where these differ by shapes as well
        self._collectors = list(collectors)
        self._started: list[Any] = []
        for collector in self._collectors:
            collector.init([cpu()])
        self._since = 0.0

    @property
    def by_place(self) -> dict[tuple[str, int], ProfileRow]:
        """The places that call primitives, by function and offset of the instruction."""
        found: dict[tuple[str, int], ProfileRow] = {}
        for entry in self._entries.values():
            site = entry.site
            if site.primitive is not None:
                place = site.function.name, site.instruction.offset
                row = found.setdefault(place, ProfileRow(site.primitive.name, site.node))
                row.calls += entry.count
                row.seconds += entry.seconds
        return found

    @property
    def rows(self) -> list[ProfileRow]:
        """The places that call primitives, the longest first."""
        return sorted(self.by_place.values(), key=lambda row: -row.seconds)

    @property
    def entries(self) -> list[_Entry]:
        return list(self._entries.values())

    def before(self, event: Event) -> InstrumentAction | None:
        if self._collectors:
            self._started = [collector.start(cpu()) for collector in self._collectors]
        self._since = time.perf_counter()
        return None

    def after(self, event: Event) -> None:
        seconds = time.perf_counter() - self._since
        site = event.site
        entry = self._entries.get(site) if site.is_static else self._of_shapes(event)
        if entry is None:
            entry = self._entries[site] = _Entry(site)
        entry.count += 1
        entry.seconds += seconds
        if site.has_loops and seconds > entry.longest:
            entry.longest, entry.rounds = seconds, event.rounds
        if self._collectors:
            self._collect(entry)

    def _of_shapes(self, event: Event) -> _Entry | None:
        """The entry of a call whose tensors may have other shapes the next time; None for that of any others."""
        shapes = tuple(map(event.shape, event.tensors))
        found = self._entries.get((event.site, shapes))
        if found is None and len(self._entries) < _ENTRIES:
            found = self._entries[event.site, shapes] = _Entry(event.site, shapes)
        return found or self._entries.get(event.site)

    def _collect(self, entry: _Entry) -> None:
        collected = entry.collected = entry.collected or {}
        for collector, started in zip(self._collectors, self._started, strict=True):
            for name, metric in collector.stop(started).items():
                collected[name] = merged([collected[name], metric]) if name in collected else metric


def _metrics(entry: _Entry, whole: float) -> dict[str, Metric]:
    metrics = timed(entry.name, entry.seconds, whole, entry.tensors(), entry.count) | (entry.collected or {})
    if entry.site.primitive is not None:
        metrics["Hash"] = kernel_hash(entry.site.primitive.definition)
    if entry.site.node:
        metrics[NODE] = entry.site.node
    if entry.rounds:
        metrics[LONGEST] = iterations(entry.rounds)
    return metrics


def kernel_hash(definition: PrimitiveDefinition) -> str:
    """A hash of the definition, which tells kernels apart in reports."""
    return hashlib.sha256(encode_definition(definition)).hexdigest()[:16]
