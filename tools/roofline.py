"""How near the primitives of a program come to what this machine can do: times by a listener, work by definition.

A primitive can be no faster than its arithmetic at the machine's peak, nor than its operands come: constants from the place that
holds all of the program's constants, so that they may still be there from the call before, and other tensors, which have just
been made, from the place that holds those of this call. The roofline is the slower of the two.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.demand import Demand, demand_of
from ..compiler.targets.cpu.kernels.anchor import anchor_of
from ..formats.dtypes import DType
from ..formats.primitive import PrimitiveDefinition
from ..vm.observe.hooks import CALLS, Event, InstrumentAction
from ..vm.observe.profile import Profiler

if TYPE_CHECKING:
    from ..vm.machine import VirtualMachine
    from .machine_limits import Limits

_TRAPS = 200  # calls of the least kernel, by which the cost of a trap is measured


@dataclass
class Row:
    """A primitive at its place in the program, or several of one template. Sums over the calls of one run."""

    primitive: str
    template: str
    node: str | None
    calls: int = 0
    seconds: float = 0.0
    operations: int = 0  # that the algorithm does
    defined: int = 0  # that a plain algorithm would do
    constant_bytes: int = 0
    other_bytes: int = 0
    compute_seconds: float = 0.0  # of the arithmetic, at the machine's peak
    memory_seconds: float = 0.0  # of the traffic, at the machine's bandwidth

    @property
    def bytes(self) -> int:
        return self.constant_bytes + self.other_bytes

    @property
    def bound(self) -> str:
        """The resource that bounds the primitive's speed."""
        return "compute" if self.compute_seconds > self.memory_seconds else "memory"

    def share(self, seconds: float) -> float:
        """Of the time that was taken; 0 where none was."""
        return seconds / self.seconds if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """The share of what the machine could do: 1 is the limit."""
        return self.share(max(self.compute_seconds, self.memory_seconds))

    def as_json(self) -> dict[str, Any]:
        """All numbers, with units in the names."""
        rate = 1 / self.seconds if self.seconds else 0.0
        return {
            "primitive": self.primitive,
            "template": self.template,
            "node": self.node,
            "calls": self.calls,
            "seconds": self.seconds,
            "operations": self.operations,
            "defined_operations": self.defined,
            "bytes": self.bytes,
            "constant_bytes": self.constant_bytes,
            "gflops": self.operations * rate / 1e9,
            "effective_gflops": self.defined * rate / 1e9,
            "gbytes_per_second": self.bytes * rate / 1e9,
            "peak_share": self.share(self.compute_seconds),
            "bandwidth_share": self.share(self.memory_seconds),
            "roofline_share": self.roofline,
            "bound": self.bound,
        }


class _Watch(Profiler):
    """A profiler of calls of primitives alone, that also asks for the work of each."""

    operations = CALLS

    def __init__(self, limits: Limits, constant_bytes: int) -> None:
        super().__init__()
        self._limits = limits
        self._constants_from = limits.bandwidth(constant_bytes)
        self._demand = functools.cache(demand_of)
        self.table: dict[tuple[str, int], Row] = {}

    def before(self, event: Event) -> InstrumentAction | None:
        assert event.primitive is not None
        name, definition = event.primitive.name, event.primitive.definition
        place = event.function, event.instruction.offset
        row = self.table.setdefault(place, Row(name, template_of(definition), event.node))
        demand = self._demand(definition, event.sizes)
        if demand is not None:
            self._add(row, demand, [event.is_constant(register) for register in event.registers("inputs")], definition)
        return super().before(event)

    def _add(self, row: Row, demand: Demand, constants: Sequence[bool], definition: PrimitiveDefinition) -> None:
        constant = sum(size for size, fixed in zip(demand.read, constants, strict=True) if fixed)
        other = sum(demand.read) + demand.written - constant
        row.operations += demand.done
        row.defined += demand.defined
        row.constant_bytes += constant
        row.other_bytes += other
        row.compute_seconds += demand.done / self._limits.peak(_dtype_of(definition))
        row.memory_seconds += constant / self._constants_from + other / self._limits.bandwidth(other)


def _dtype_of(definition: PrimitiveDefinition) -> DType:
    """The type that a primitive multiplies: of the weights of a product or convolution, or the widest of its values."""
    anchor = anchor_of(definition)
    if anchor is not None and len(anchor[0].inputs) > 1:
        return definition.values[anchor[0].inputs[1]].dtype
    is_wide = any(type_.dtype is DType.float64 for type_ in definition.values)
    return DType.float64 if is_wide else DType.float32


def template_of(definition: PrimitiveDefinition) -> str:
    """The operator that anchors the primitive's kernel."""
    anchor = anchor_of(definition)
    return "elementwise" if anchor is None else anchor[0].operator


def measure(
    machine: VirtualMachine, function: str, values: Sequence[Any], limits: Limits, constant_bytes: int, repeat: int
) -> dict[tuple[str, int], Row]:
    """Runs the function some times; the primitives by their places (function, offset), the longest first. Times are medians."""
    machine[function](*values)  # threads, caches
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeat):
        watch = _Watch(limits, constant_bytes)
        with machine.listening(watch):
            machine[function](*values)
        for place, timed in watch.by_place.items():
            times.setdefault(place, []).append(timed.seconds)
            watch.table[place].calls = timed.calls
    trap = trap_seconds()
    for place, row in watch.table.items():
        row.seconds = _without_traps(statistics.median(times[place]), row.calls * trap, row.compute_seconds)
    return dict(sorted(watch.table.items(), key=lambda found: -found[1].seconds))


def _without_traps(measured: float, traps: float, least: float) -> float:
    """A time without its traps, whose cost is known only roughly: no less than the arithmetic takes at
    the peak. That may have been measured in a slow moment: then what was measured counts."""
    return max(measured - traps, min(measured, least))


@functools.cache
def trap_seconds() -> float:
    """Seconds that a listener adds to a call, measured on calls of the smallest kernel."""
    import numpy as np

    from ..formats.executable import Executable
    from ..formats.text.assembly import parse_assembly
    from ..vm.machine import VirtualMachine
    from .least_calls import dispatch_text

    machine = VirtualMachine(Executable(parse_assembly(dispatch_text(_TRAPS))))
    profiler = Profiler()
    with machine.listening(profiler):
        machine["main"](np.float32(1))
    return statistics.median(row.seconds for row in profiler.rows)


def by_template(rows: Iterable[Row]) -> list[Row]:
    """One row for each template, the longest first."""
    groups: dict[str, Row] = {}
    for row in rows:
        group = groups.setdefault(row.template, Row(row.template, row.template, None))
        for name in _SUMMED:
            setattr(group, name, getattr(group, name) + getattr(row, name))
    return sorted(groups.values(), key=lambda row: -row.seconds)


_SUMMED = (
    "calls",
    "seconds",
    "operations",
    "defined",
    "constant_bytes",
    "other_bytes",
    "compute_seconds",
    "memory_seconds",
)
