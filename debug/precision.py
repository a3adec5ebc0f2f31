"""The search of `treadle.compile(precision="auto")`: the fastest program that a tolerance allows.

The profile of the program in each precision says which is fastest for each node, and what that gains; for another CPU than this
one, a node's operations stand for its time. Nodes are measured in groups of like ones: how much noise a group brings to the
results if it alone is narrow. Errors that know nothing of each other add up as squares (31 nodes of MiniLM: 1.86e-5 one by one,
1.80e-5 together). So steps, each a group and a precision, are put in the order of the time that they gain for the square that
they add; the longest row of steps whose program is within the tolerance is looked for by halving. From there, or from all nodes
in one precision if that gains more, further steps are tried, or halves of them.

A program is within the tolerance if the bound for other samples is (`measures.py`). What was chosen is checked on samples that
the search has not seen; if it fails, the program found before it is taken.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from ..compiler import bounds
from ..compiler.targets.base import Backend
from ..compiler.targets.choice import backend_of
from ..formats import limits
from ..formats.executable import Executable
from ..formats.messages.calling import warn_user
from ..formats.messages.errors import ArgumentError
from ..formats.program import AUTO, EXACT, PRECISION, PRECISION_REPORT
from ..vm.machine import VirtualMachine
from ..vm.observe.profile import Profiler
from .flow import nodes_of
from .measures import LARGEST, Sample, measure_of, noise
from .subject import arguments

_TOLERANCE = 0.01
_TRIES = 20  # programs, at most, that a search compiles and runs, besides the float32 one
_MEASURED = 10  # of these, at most, that tell the noise of a group
_PROFILED = 5  # runs of a profile, the shortest of which counts
# float32 is taken for a node if it takes less than this share of the time in a narrow precision: profiles differ by less
_FASTER = 0.9
# Samples that are made where none are given; the last third of all, and one at least, is kept for the check
_SEEDED = 4
_HOPE = 1.1  # of the tolerance: squares that are added say somewhat more than what is found
_NAMED = 5  # nodes in a message

Choice = dict[str, str]  # the precision of each node that is narrow
Feeds = Mapping[str, np.ndarray]


def chosen(
    build: Callable[[Backend], Executable],
    backend: Backend,
    function: str,
    tolerance: float | None,
    samples: Any,
    measure: str | None,
) -> Executable:
    """The executable, with a report in its metadata. `build` compiles for a backend, whose precision is what differs.

    Raises ArgumentError for samples, a tolerance or a measure that are none, and what compiling and running raise.
    """
    try:
        is_number = tolerance is None or (isinstance(tolerance, Real) and not isinstance(tolerance, bool))
        most = float(_TOLERANCE if tolerance is None else tolerance) if is_number else math.nan
    except OverflowError:
        most = math.inf
    if not 0 < most < math.inf:
        raise ArgumentError(
            f"tolerance={tolerance!r}: expected a number above 0, the largest error as a share of an output"
        )
    return _Search(build, backend, function, most, samples, measure).run()


@dataclasses.dataclass(frozen=True)
class _Program:
    """One that was tried."""

    choice: Choice
    executable: Executable
    error: float  # on the samples of the search
    bound: float  # for others


@dataclasses.dataclass(frozen=True)
class _Step:
    """Nodes that become narrow together."""

    nodes: tuple[str, ...]
    precision: str
    gain: float  # in seconds, of the nodes alone
    square: float  # of the noise that they bring

    def half(self, second: bool) -> _Step:
        middle = len(self.nodes) // 2
        nodes = self.nodes[middle:] if second else self.nodes[:middle]
        return dataclasses.replace(self, nodes=nodes)


class _Search:
    def __init__(
        self,
        build: Callable[[Backend], Executable],
        backend: Backend,
        function: str,
        tolerance: float,
        samples: Any,
        measure: str | None,
    ) -> None:
        self._build, self._backend, self._function, self._tolerance = build, backend, function, tolerance
        self._name, self._measure = LARGEST if measure is None else measure, measure_of(measure)
        self._tries, self._failed = 0, list[Choice]()
        exact = self._built(EXACT)
        self._source, self._feeds = _samples(exact, function, samples)
        machine = VirtualMachine(exact)
        self._wanted = [self._results(machine, feeds) for feeds in self._feeds]
        kept = max(1, len(self._feeds) // 3) if len(self._feeds) > 1 else 0
        self._seen = range(len(self._feeds) - kept)
        self._unseen = range(len(self._seen), len(self._feeds))
        self._exact = _Program({}, exact, 0.0, 0.0)
        self._times: dict[str, dict[str, float]] = {}  # precision → node → seconds
        self._made: dict[str, dict[str, str]] = {}  # precision → node → what that precision makes of it
        self._work: dict[str, int] = {}  # operations of each node
        self._squares: dict[tuple[str, str], float] = {}  # node and precision → its part of the noise of its group

    def run(self) -> Executable:
        narrow = [each for each in self._backend.precisions if each != EXACT]
        nodes = self._profiled(narrow)
        fastest = {node: self._fastest(node) for node in nodes}
        steps = self._steps(nodes, [each for each in narrow if each in fastest.values()])
        whole = self._tried({node: each for node, each in fastest.items() if each != EXACT})
        if self._is_within(whole):
            trail = [self._exact, whole]
        else:
            starts = [*self._even(whole.choice, narrow), self._halved(steps)]
            trail = self._more(max(starts, key=lambda trail: self._gain_of(trail[-1].choice)), steps, whole)
        best, unseen = self._checked(trail)
        return self._told(best, nodes, whole, unseen)

    # ---- programs ----

    def _built(self, precision: str | Choice) -> Executable:
        self._backend = self._backend.with_precision(precision)
        return self._build(self._backend)

    def _next(self, precision: str | Choice) -> Executable:
        self._tries += 1
        bounds.step(f"the search for precisions: program {self._tries} of {_TRIES} at most")
        return self._built(precision)

    def _tried(self, choice: Choice) -> _Program:
        if not choice:
            return self._exact
        executable = self._next(choice)
        error, bound = self._measure(self._pairs(executable, self._seen))
        return _Program(choice, executable, error, bound)

    def _is_within(self, program: _Program) -> bool:
        if program.bound <= self._tolerance:
            return True
        self._failed.append(program.choice)
        return False

    def _results(self, machine: VirtualMachine, feeds: Feeds) -> list[np.ndarray]:
        return list(_tensors(machine[self._function](*feeds.values())))

    def _pairs(self, executable: Executable, samples: Iterable[int]) -> list[Sample]:
        machine = VirtualMachine(executable)
        return [(self._results(machine, self._feeds[each]), self._wanted[each]) for each in samples]

    # ---- what is measured ----

    def _profiled(self, narrow: Sequence[str]) -> list[str]:
        """Measures the times of all nodes that may be narrow, which it returns, in the order of the run."""
        programs, met = {EXACT: self._exact.executable}, dict[str, int]()
        for precision in narrow:
            programs[precision] = self._next(precision)
            met |= self._backend.narrowing.met
            self._made[precision] = self._backend.narrowing.made
        if self._is_timed:
            self._times = self._profiles(programs, met)
        else:
            self._times = {
                precision: {
                    node: (1 + work) / 2 ** list(programs).index(self._become(node, precision))
                    for node, work in met.items()
                }
                for precision in programs
            }
        self._work = met
        return list(met)

    @cached_property
    def _is_timed(self) -> bool:
        """Whether the program is for this CPU, so that its times are known here."""
        return self._backend.key == backend_of().key

    def _profiles(self, programs: Mapping[str, Executable], nodes: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """The seconds of nodes in runs of each program on the first sample. A kernel of several nodes is the first's: the others
        are its epilogue. Programs take turns, so that what else the machine does slows them alike."""
        machines = {precision: VirtualMachine(executable) for precision, executable in programs.items()}
        least: dict[str, dict[tuple[str, int], tuple[str, float]]] = {precision: {} for precision in programs}
        for _ in range(_PROFILED):
            for precision, machine in machines.items():
                profiler, rows = Profiler(), least[precision]
                with machine.listening(profiler):
                    machine[self._function](*self._feeds[0].values())
                for place, row in profiler.by_place.items():
                    rows[place] = row.node or "", min(rows.get(place, ("", math.inf))[1], row.seconds)
        found = {precision: dict.fromkeys(nodes, 0.0) for precision in programs}
        for precision, rows in least.items():
            for text, seconds in rows.values():
                anchor = next(iter(nodes_of(text, nodes)), "")
                if anchor in nodes:
                    found[precision][anchor] += seconds
        return found

    def _fastest(self, node: str) -> str:
        """A narrow precision, unless float32 is clearly faster."""
        seconds = {each: self._times[each][node] for each in self._made if self._become(node, each) == each}
        best = min(seconds, key=lambda each: seconds[each], default=EXACT)
        return best if best == EXACT or self._times[EXACT][node] >= _FASTER * seconds[best] else EXACT

    def _become(self, node: str, precision: str) -> str:
        """What a node is computed in where that precision is asked for it."""
        return self._made.get(precision, {}).get(node, EXACT)

    def _gain(self, node: str, precision: str) -> float:
        return self._times[EXACT][node] - self._times[precision][node]

    def _gain_of(self, choice: Choice) -> float:
        return sum(self._gain(node, precision) for node, precision in choice.items())

    def _steps(self, nodes: Sequence[str], narrow: Sequence[str]) -> list[_Step]:
        """All that a group may become, the best first."""
        gains = {node: max(0.0, *(self._gain(node, each) for each in narrow)) for node in nodes} if narrow else {}
        steps = []
        for group in _in_groups(gains, self._work, _MEASURED // max(len(narrow), 1)):
            for precision in narrow:
                choice = dict.fromkeys(group, precision)
                executable = self._next(choice)
                square = noise(self._pairs(executable, self._seen[:1])) ** 2
                self._squares |= {(node, precision): square / len(group) for node in group}
                steps.append(_Step(tuple(group), precision, self._gain_of(choice), square))
        return _in_order(steps)

    # ---- the search ----

    def _even(self, whole: Choice, narrow: Sequence[str]) -> Iterator[list[_Program]]:
        """The programs within the tolerance whose narrow nodes are all of one precision."""
        for precision in narrow:
            choice = {node: precision for node in whole if self._become(node, precision) == precision}
            if choice not in ({}, whole) and self._gain_of(choice) > 0 and self._tries < _TRIES:
                program = self._tried(choice)
                if self._is_within(program):
                    yield [self._exact, program]

    def _halved(self, steps: Sequence[_Step]) -> list[_Program]:
        """The programs of the longest row of steps found that is within the tolerance, and of the one found before."""
        trail, low, high = [self._exact], 0, len(steps)  # `low` steps are within it, `high` too many
        while high - low > 1 and self._tries < _TRIES:
            middle = (low + high) // 2
            program = self._tried(_after(steps[:middle]))
            if self._is_within(program):
                trail, low = [trail[-1], program], middle
            else:
                high = middle
        return trail

    def _more(self, trail: list[_Program], steps: Sequence[_Step], whole: _Program) -> list[_Program]:
        """The same, with further steps, or halves of these, while there are tries left and errors may add up to the tolerance."""
        waiting = list(steps)
        while waiting and self._tries < _TRIES:
            step, best = waiting.pop(0), trail[-1]
            choice = best.choice | _after([step])
            if not self._gains(step, best.choice):
                continue
            known = best if best.choice else whole
            expected = known.bound * math.sqrt(self._square(choice) / (self._square(known.choice) or math.inf))
            if choice not in self._failed and not expected > _HOPE * self._tolerance:
                program = self._tried(choice)
                if self._is_within(program):
                    trail = [best, program]
                    continue
            if len(step.nodes) > 1:
                waiting = [step.half(False), step.half(True), *waiting]
        return trail

    def _square(self, choice: Choice) -> float:
        """Of the noise that these nodes bring, each group of them measured by itself."""
        return sum(self._squares.get(pair, 0.0) for pair in choice.items())

    def _gains(self, step: _Step, choice: Choice) -> bool:
        """Whether a step from there on is a gain of time."""
        before = sum(self._gain(node, choice.get(node, EXACT)) for node in step.nodes)
        return sum(self._gain(node, step.precision) for node in step.nodes) > before

    def _checked(self, trail: list[_Program]) -> tuple[_Program, float | None]:
        """The last program that is within the tolerance on the samples that the search has not seen, and its error there."""
        if not self._unseen:
            return trail[-1], None
        for program in reversed(trail):
            error, _ = self._measure(self._pairs(program.executable, self._unseen))
            if error <= self._tolerance:
                return program, error
        return self._exact, 0.0

    # ---- the report ----

    def _told(self, best: _Program, nodes: Sequence[str], whole: _Program, unseen: float | None) -> Executable:
        spent = self._square(best.choice) or math.inf
        rows = []
        for node in nodes:
            precision = best.choice.get(node, EXACT)
            square = self._squares.get((node, precision))
            share = None if square is None or not math.isfinite(square) else round(square / spent, 4)
            times = [round(self._times[each][node] * 1e6, 2) if self._is_timed else None for each in (EXACT, precision)]
            rows.append([node, self._become(node, precision), *times, share])
        left = {node: precision for node, precision in whole.choice.items() if node not in best.choice}
        worst = sorted(left, key=lambda node: -self._squares.get((node, left[node]), 0.0))[:_NAMED]
        report: dict[str, Any] = {
            "tolerance": self._tolerance,
            "measure": self._name,
            "samples": self._source,
            "error": best.error,
            "bound": best.bound,
            "unseen": unseen,
            "narrow": whole.error if math.isfinite(whole.error) else None,
            "worst": worst,
            "nodes": rows,
        }
        if left and not best.choice:
            warn_user(
                f"tolerance={self._tolerance:g}: no node is narrow within it; all that gain time would be off by "
                f"{whole.error:.1e} on the samples, most of it by {', '.join(worst)}; a tolerance of {whole.bound:.1e} takes all"
            )
        while len(text := json.dumps(report)) > limits.STRING_BYTES:  # of many nodes or long names
            report["worst"] = []
            least = sorted(report["nodes"], key=lambda row: self._times[EXACT][row[0]])[: len(report["nodes"]) // 4 + 1]
            report["nodes"] = [row for row in report["nodes"] if row not in least]
        return best.executable.with_metadata({PRECISION: AUTO, PRECISION_REPORT: text})


def _after(steps: Sequence[_Step]) -> Choice:
    """The precisions of nodes after these steps."""
    return {node: step.precision for step in steps for node in step.nodes}


def _in_order(steps: Sequence[_Step]) -> list[_Step]:
    """Those that gain time, the most of it for the square of their noise first. A group that has taken a step takes a later one
    only if it gains more, for what that adds."""
    taken: dict[tuple[str, ...], _Step] = {}
    order: list[_Step] = []

    def worth(step: _Step) -> float:
        before = taken.get(step.nodes)
        gain = step.gain - (before.gain if before else 0.0)
        square = max(step.square - (before.square if before else 0.0), 0.0)
        return gain / square if square else math.inf * gain if gain else 0.0

    while candidates := [step for step in steps if worth(step) > 0]:
        best = max(candidates, key=worth)
        order.append(best)
        taken[best.nodes] = best
    return order


def _tensors(result: Any) -> Iterator[np.ndarray]:
    """The tensors of a result. Raises ArgumentError for a function, which cannot be measured."""
    if hasattr(result, "__array__"):
        yield np.asarray(result)
    elif isinstance(result, tuple) or hasattr(result, "fields"):
        for each in result if isinstance(result, tuple) else result.fields:
            yield from _tensors(each)
    else:
        raise ArgumentError(
            f'precision="auto": a result is a {type(result).__name__}, which has no error; give a precision'
        )


def _samples(executable: Executable, function: str, samples: Any) -> tuple[str, list[Feeds]]:
    """Where they are from, and arrays by the names of the parameters, one mapping for each sample."""
    if samples is None:
        made: list[Feeds] = [arguments(executable, function, None, seed) for seed in range(_SEEDED)]
        return f"{_SEEDED} from seeds", made
    given = samples if isinstance(samples, (list, tuple)) and not isinstance(samples[:1], np.ndarray) else [samples]
    if not given:
        raise ArgumentError(
            "samples: expected one mapping of arrays by the names of inputs, or a list of such, got none"
        )
    return f"{len(given)} given", [arguments(executable, function, each) for each in given]


def _in_groups(gains: Mapping[str, float], work: Mapping[str, int], most: int) -> list[list[str]]:
    """Nodes of equal work, which are alike (the same layer of each block), in groups of neighbours of about equal gain; where
    there are more kinds than groups, neighbours of any kind."""
    kinds: dict[int, dict[str, float]] = {}
    for node, gain in gains.items():
        kinds.setdefault(work[node], {})[node] = gain
    if len(kinds) > most:
        kinds = {0: dict(gains)}
    counts = dict.fromkeys(kinds, 1)
    for _ in range(most - len(kinds) if kinds else 0):
        largest = max(kinds, key=lambda kind: sum(kinds[kind].values()) / counts[kind])
        counts[largest] += 1
    return [group for kind, nodes in kinds.items() for group in _of_equal_gain(nodes, counts[kind])]


def _of_equal_gain(gains: Mapping[str, float], count: int) -> list[list[str]]:
    least = sum(gains.values()) / (10 * len(gains)) or 1.0  # so that many small ones make a group, too
    whole = sum(gains.values()) + least * len(gains)
    groups: list[list[str]] = [[] for _ in range(count)]
    before = 0.0
    for name, gain in gains.items():
        groups[int((before + (gain + least) / 2) * count / whole)].append(name)
        before += gain + least
    return [group for group in groups if group]
