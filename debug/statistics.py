"""`stats`: what one call takes: steps, seconds, and memory, with the tensors that make up its peak.

Memory is what the results of kernels take while they are in use: from the step that makes them to the last that reads them.
The machine holds more where the planner could not lay tensors into the same place; constants are counted apart.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..formats.messages.calling import Suggesting, public, public_class
from ..formats.messages.terminal import showing
from ..vm.observe.hooks import Event, InstrumentAction
from .flow import Flow, Step
from .subject import arguments, subject


@dataclass
class Held:
    """A tensor that a kernel made, and the steps between which it is in use."""

    node: str
    primitive: str
    type: str
    bytes: int
    first: int
    last: int


@public_class
@dataclass
class Stats(Suggesting):
    """One call. `seconds` without listeners, after one to warm up; `peak_bytes` of tensors at step `peak_step`."""

    steps: int
    instructions: dict[str, int]
    seconds: float
    constant_bytes: int
    peak_bytes: int
    peak_step: int
    tensors: list[Held] = field(default_factory=list)
    timeline: list[tuple[float, float]] = field(default_factory=list)  # of each step: when it began, and seconds

    @property
    def at_peak(self) -> list[Held]:
        """The memory in use at the peak, the largest first."""
        alive = [each for each in self.tensors if each.first <= self.peak_step <= each.last]
        return sorted(alive, key=lambda each: -each.bytes)

    def alive(self) -> list[int]:
        """Bytes of tensors that are in use at each step."""
        changes = [0] * (self.steps + 1)
        for each in self.tensors:
            changes[each.first] += each.bytes
            changes[each.last + 1] -= each.bytes
        total, found = 0, []
        for change in changes[: self.steps]:
            total += change
            found.append(total)
        return found

    def __repr__(self) -> str:
        return (
            f"<Stats: {self.steps} kernels, {sum(self.instructions.values())} instructions, {self.seconds * 1e3:.3f} ms, "
            f"peak {self.peak_bytes} bytes of tensors, {self.constant_bytes} of constants>"
        )

    def _repr_html_(self) -> str:
        from ..formats.pictures.plots import memory
        from ..formats.text.html import heading, table, together

        head, *cells = self._cells()
        return together(
            heading(repr(self)[8:-1]),
            memory([], self.alive(), 760) if self.steps else "",
            heading(f"in use at the peak, kernel {self.peak_step + 1}:"),
            table(head, cells, head[:1], first_once=False),
        )

    def _cells(self) -> list[list[str]]:
        """The memory in use at the peak, under the columns' names."""
        cells = [[str(each.bytes), each.type, f"{each.first}…{each.last}", each.node] for each in self.at_peak]
        return [["bytes", "type", "steps", "node"], *cells]

    @showing
    def table(self, rows: int = 20) -> str:
        """The call in one line, then what is in use at the peak, the largest first."""
        lines = [repr(self)[8:-1], f"in use at the peak, kernel {self.peak_step + 1}:"]
        head, *cells = self._cells()
        cells = [head, *cells[: rows or None]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += [
            "  ".join(
                [line[0].rjust(widths[0]), *(c.ljust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
            ).rstrip()
            for line in cells
        ]
        return "\n".join(lines)

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


@public
def stats(
    model: Any, feeds: Mapping[str, Any] | Sequence[Any] | None = None, *, function: str = "main", **options: Any
) -> Stats:
    """The cost of one call; arguments and options are those of `compare`."""
    from ..vm.machine import VirtualMachine

    of = subject(model, function=function, **options)
    values = list(arguments(of.executable, function, feeds).values())
    machine = VirtualMachine(of.executable, trust_native=of.trust_native)
    call = machine[function]
    call(*values)
    start = time.perf_counter()
    call(*values)
    seconds = time.perf_counter() - start
    watch, counted = Watch(), _Instructions()
    with machine.listening(watch):
        watch.begin = time.perf_counter()
        call(*values)
    with machine.listening(counted):
        call(*values)
    constants = sum(array.nbytes for array in of.executable.constants)
    return watch.stats(counted.counts, seconds, constants)


class _Instructions(Flow):
    """Counts instructions of every kind."""

    operations = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def before(self, event: Event) -> InstrumentAction | None:
        name = event.operation.name
        self.counts[name] = self.counts.get(name, 0) + 1
        return None

    def after(self, event: Event) -> None:
        pass


class Watch(Flow):
    """Times of the steps, and the tensors that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = time.perf_counter()
        self.times: list[tuple[float, float]] = []
        self._made: list[Held] = []
        self._since = 0.0

    def reads(self, step: Step, event: Event) -> InstrumentAction | None:
        self._since = time.perf_counter()
        return None

    def after(self, event: Event) -> None:
        now = time.perf_counter()
        self.times.append((self._since - self.begin, now - self._since))
        super().after(event)

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        type_, size = event.describe(register), event.nbytes(register)
        self._made.append(Held(step.node, step.primitive, type_, size, step.number, step.number))

    def held(self) -> list[Held]:
        """The tensors, each in use until its last reader; what nobody reads is a result, and stays to the end."""
        for each in self._made:
            readers = self.readers.get(each.first)
            each.last = max(readers) if readers else len(self.steps) - 1
        return self._made

    def stats(self, instructions: dict[str, int], seconds: float, constant_bytes: int) -> Stats:
        """The call that was watched, with what was found out about it elsewhere."""
        made = Stats(len(self.steps), instructions, seconds, constant_bytes, 0, 0, self.held(), self.times)
        alive = made.alive()
        made.peak_bytes = max(alive, default=0)
        made.peak_step = alive.index(made.peak_bytes) if alive else 0
        return made
