"""What a call does, measured: times, memory, the timeline, and errors beside those of others."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...debug import compare, loss
from ...debug.comparison import DIFFERS, UNKNOWN, Comparison
from ...debug.flow import Step, nodes_of
from ...debug.noise import NOISY, Loss, is_loss
from ...debug.statistics import Held, Stats, Watch
from ...debug.subject import Subject
from ...debug.trace import Timeline, record
from ...formats.messages.errors import TreadleError
from ...formats.pictures.program import Graph, Node, graphs
from ...formats.program import EXACT
from ..machine_limits import limits
from ..roofline import measure

if TYPE_CHECKING:
    from ...vm.observe.hooks import Event
    from ..machine_limits import Limits
    from ..roofline import Row

Place = tuple[str, int]  # a function's name, an instruction's offset
_REPEAT, _SECONDS = 10, 2.0  # calls that are measured, and about how long that may take
_QUIET, _LOUD = 50.0, 10.0  # dB: the ends of the scale of noise


@dataclass(frozen=True)
class Tensor:
    """What a kernel made, and where."""

    held: Held
    place: Place
    address: int


@dataclass
class Run:
    """A call. `seconds` is that of one that nobody listens to."""

    seconds: float
    threads: int
    rows: Mapping[Place, Row]
    bounds: Limits
    timeline: Timeline
    stats: Stats
    steps: Sequence[Step]
    tensors: Sequence[Tensor]

    @cached_property
    def made(self) -> dict[Place, int]:
        """The bytes of the results of kernels by place."""
        found: dict[Place, int] = {}
        for each in self.tensors:
            found[each.place] = found.get(each.place, 0) + each.held.bytes
        return found

    @cached_property
    def in_use(self) -> dict[Place, int]:
        """The most bytes of tensors that are in use while a kernel runs, by place."""
        found: dict[Place, int] = {}
        for number, held in enumerate(self.stats.alive()):
            place = self.place(number)
            found[place] = max(held, found.get(place, 0))
        return found

    def place(self, step: int) -> Place:
        return self.steps[step].function, self.steps[step].offset


@dataclass
class Error:
    """How a kernel's results differ from what was wanted. `grade`: 0 the same, 1 as far as is allowed, more beyond."""

    text: str
    grade: float
    status: str


@dataclass
class Beside:
    """A comparison of the first program with another, or with a runtime."""

    name: str
    report: Comparison | Loss
    errors: dict[Place, Error] = field(default_factory=dict)
    first: Place | None = None
    ends: tuple[str, str] = ("≤ 0.01 × bound", "≥ 100 × bound")  # of the scale of grades, 0.01 to 100


@dataclass
class Seen:
    """A program, and a call of it unless `why` says why there is none."""

    name: str
    of: Subject
    bytes: int = 0  # of the file
    run: Run | None = None
    why: str = ""

    @cached_property
    def graphs(self) -> list[Graph]:
        """Its functions."""
        return graphs(self.of.executable)

    @cached_property
    def keys(self) -> dict[Place, str]:
        """The keys of nodes, by which the page and its pictures name them."""
        return {
            (graph.name, node.offset): key_of(number, at)
            for number, graph in enumerate(self.graphs)
            for at, node in enumerate(graph.nodes)
        }

    def node(self, key: str) -> Node:
        """The node of that key."""
        function, at = map(int, key.split(":"))
        return self.graphs[function].nodes[at]


def key_of(function: int, node: int) -> str:
    """The key of a node, by the numbers of its function and its own."""
    return f"{function}:{node}"


class _Watch(Watch):
    """Also where tensors lie."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[int] = []

    def result(self, step: Step, index: int, event: Event, register: int) -> None:
        super().result(step, index, event, register)
        self.addresses.append(event.address(register))


def run(of: Subject, feeds: Mapping[str, Any]) -> Run:
    """Runs the function some times, with and without listeners. Raises what running raises."""
    from ... import VirtualMachine, get_num_threads

    machine, values = VirtualMachine(of.executable, trust_native=of.trust_native), list(feeds.values())
    call = machine[of.function]
    call(*values)  # kernels are built, threads begin
    times = [_timed(call, values)]
    times += [_timed(call, values) for _ in range(_as_often(times[0]))]
    watch = _Watch()
    with machine.listening(watch):
        watch.begin = time.perf_counter()
        call(*values)
        watched = time.perf_counter() - watch.begin
    constants = sum(array.nbytes for array in of.executable.constants)
    threads = get_num_threads()
    bounds = limits(threads)
    rows = measure(machine, of.function, values, bounds, constants, max(1, _as_often(watched)))
    stats = watch.stats({}, statistics.median(times), constants)
    tensors = [
        Tensor(each, (watch.steps[each.first].function, watch.steps[each.first].offset), address)
        for each, address in zip(stats.tensors, watch.addresses, strict=True)
    ]
    timeline = record(of, feeds, function=of.function)
    return Run(stats.seconds, threads, rows, bounds, timeline, stats, watch.steps, tensors)


def _as_often(seconds: float) -> int:
    """How often a call that takes so long is measured."""
    return min(_REPEAT, int(_SECONDS / max(seconds, 1e-6)))


def _timed(call: Any, values: Sequence[Any]) -> float:
    start = time.perf_counter()
    call(*values)
    return time.perf_counter() - start


def seen(name: str, of: Subject, feeds: Mapping[str, Any] | None, size: int = 0, why: str = "") -> Seen:
    """A program and, with feeds, a call of it. A call that fails is told of in the page."""
    found = Seen(name, of, size, why=why)
    if feeds is not None:
        try:
            found.run = run(of, feeds)
        except TreadleError as error:
            found.why = f"the call failed: {type(error).__name__}: {error}"
    return found


# ---- errors ----


def beside(first: Seen, feeds: Mapping[str, Any], against: Any, name: str = "", tolerance: float = 1.0) -> Beside:
    """The first program beside another one, or a runtime (`debug.compare` has the names)."""
    if first.of.precision != EXACT or is_loss(first.of, against):
        lost = loss(first.of, first.of.model if against is None else against, feeds, function=first.of.function)
        return of_loss(first, lost, name or lost.against)
    report = compare(first.of, feeds, against, function=first.of.function, tolerance=tolerance)
    return of_comparison(first, report, name or report.against)


def of_comparison(first: Seen, report: Comparison, name: str) -> Beside:
    """By places, of a report about this program."""
    found = Beside(name, report)
    for row in report.rows:
        if first.run is None or not 0 <= row.step < len(first.run.steps):
            continue
        place = first.run.place(row.step)
        if row.status == UNKNOWN:
            continue
        grade = row.error / row.bound if row.bound else (math.inf if row.error else 0.0)
        known = found.errors.get(place)
        if known is None or grade > known.grade:
            text = f"{row.error:.2g} (bound {row.bound:.2g}), tensor {row.tensor}"
            found.errors[place] = Error(text, min(grade, 1e9), row.status)
        if row is report.first:
            found.first = place
    return found


def of_loss(first: Seen, lost: Loss, name: str) -> Beside:
    """By places, of what narrow numbers cost: by the model nodes that the kernels were made of."""
    found = Beside(name, lost, ends=(f"≥ {_QUIET:.0f} dB", f"≤ {_LOUD:.0f} dB"))
    if first.run is None:
        return found
    by_node = {row.node: row for row in lost.rows}
    for step in first.run.steps:
        rows = [by_node[node] for node in nodes_of(step.node, by_node) if node in by_node]
        if not rows:
            continue
        row = min(rows, key=lambda row: row.snr)
        grade = 10 ** (4 * (_QUIET - min(max(row.snr, _LOUD), _QUIET)) / (_QUIET - _LOUD) - 2)
        status = DIFFERS if row.snr < NOISY else "close"
        place = step.function, step.offset
        found.errors[place] = Error(
            f"{'exact' if row.snr == math.inf else f'{row.snr:.1f} dB'}, tensor {row.tensor}", grade, status
        )
        if found.first is None and status == DIFFERS:
            found.first = place
    if found.first is None and lost.first is not None:
        found.first = max(found.errors, key=lambda place: found.errors[place].grade, default=None)
    return found
