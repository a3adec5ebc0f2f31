"""`treadle bench threads`: what it costs to share a primitive among threads, and how much faster that makes models.

The cost of a start is what one call of a primitive takes on some threads beyond its fair share of the time on one: finding
out that it is worth it, publishing the work, until the others see it, and waiting for the last of them.

What a virtual machine calls its cores may be one core's halves, may run at other speeds, or be lent to a neighbour, for
milliseconds or for minutes. So a model is held against itself: as many calls at once as there are threads, each on one thread
and a core of its own, which share no work and never wait for each other. No call that several threads share gets faster than
these do together. They take turns, those calls before and after the shared one. Nor are cores always equally near each other:
what one has computed the other reads within some 100 ns or within 400, by whether they share a cache. Rounds in which threads
had all cores, near each other, tell what the model can do, the others what the machine did.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from ....formats.executable import Executable
from ....formats.text.assembly import parse_assembly
from . import race

if TYPE_CHECKING:
    from ..zoo.catalogue import Entry

_CALLS = 1000  # of the primitive whose start is measured, in one program
_ELEMENTS = 1 << 15  # that it works on: some 20 µs
_ROUNDS = 15
_TURN_SECONDS = 0.05
_ALL_CORES = 0.95  # of perfect scaling: calls that share nothing and reach it had a core each
_NEAR = 200.0  # nanoseconds there and back between cores that share a cache, at most
_MODELS = ("resnet50", "minilm", "mobilenet-v2", "densenet121")


@dataclass(frozen=True)
class Scaling:
    """One model on one thread and on several: milliseconds of a call, a number for each round."""

    name: str
    threads: int
    alone: list[float]  # on one thread
    shared: list[float]  # on all threads
    apart: list[float]  # of as many calls at once, each on one thread, divided by how many there are
    round_trips: list[float]  # nanoseconds of a word between two cores and back

    @property
    def speedup(self) -> float:
        """Of a call that all threads share."""
        return median(self.alone) / median(self.shared)

    @property
    def speedup_apart(self) -> float:
        """Of calls that share nothing: what the machine gave."""
        return median(self.alone) / median(self.apart)

    @property
    def undisturbed(self) -> Scaling | None:
        """The rounds that had a core for each thread, near each other. None where there were none."""
        rounds = zip(self.alone, self.shared, self.apart, self.round_trips, strict=True)
        kept = [each for each in rounds if each[0] / each[2] >= _ALL_CORES * self.threads and each[3] <= _NEAR]
        return Scaling(self.name, self.threads, *map(list, zip(*kept, strict=True))) if kept else None


def threads_command(options: argparse.Namespace) -> int:
    """Prints the cost of a start, then each model's times."""
    entries = race.zoo_entries(options.only or _MODELS)
    counts, rounds = [count for count in options.threads if count > 1], options.repeat or _ROUNDS
    costs = start_costs(counts, rounds)
    if not options.json:
        for threads, microseconds in costs.items():
            print(f"a start on {threads} threads: {microseconds:.2f} us")
        print(
            "\nThe speedup of a call that the threads share; in brackets that of as many calls at once, a thread each."
        )
    found = race.told((each for entry in entries for each in _scaling_of(entry, counts, rounds)), _line, options)
    if options.json:
        print(json.dumps({"start_us": costs, "models": [asdict(each) | _factors(each) for each in found]}))
    return 0


def _line(scaling: Scaling) -> str:
    alone, shared = median(scaling.alone), median(scaling.shared)
    times = f"{scaling.name:20}{alone:10.3f} ms, {scaling.threads} threads{shared:10.3f} ms   {_speedups(scaling)}"
    clear = scaling.undisturbed
    trips = f"cores {min(scaling.round_trips):.0f}-{max(scaling.round_trips):.0f} ns apart"
    rounds = f"in {len(clear.alone) if clear else 0} of {len(scaling.alone)} rounds undisturbed"
    return f"{times}   {trips}; {rounds}" + (f" {_speedups(clear)}" if clear else "")


def _speedups(scaling: Scaling) -> str:
    return f"x{scaling.speedup:.2f} (x{scaling.speedup_apart:.2f})"


def _factors(scaling: Scaling) -> dict[str, Any]:
    clear = scaling.undisturbed
    return _factors_of(scaling) | {"undisturbed": clear and _factors_of(clear)}


def _factors_of(scaling: Scaling) -> dict[str, float]:
    return {"rounds": len(scaling.alone), "speedup": scaling.speedup, "speedup_apart": scaling.speedup_apart}


def start_costs(counts: Sequence[int], rounds: int) -> dict[int, float]:
    """Microseconds that a start costs, by the count of threads."""
    from .... import VirtualMachine

    function = VirtualMachine(Executable(parse_assembly(_work_text(_CALLS))))["main"]
    x = np.linspace(-3, 3, _ELEMENTS, dtype=np.float32)
    times: dict[int, list[float]] = {count: [] for count in (1, *counts)}
    with race.threads_put_back():
        for _ in range(rounds):
            for count, found in times.items():
                found.append(_shared(lambda: function(x), count))
    return {count: (median(times[count]) - median(times[1]) / count) / _CALLS * 1e3 for count in counts}


def _work_text(calls: int) -> str:
    """A program that so often does what is computation alone."""
    kind = f"float32[{_ELEMENTS}]"
    lines = "".join(f"  call work (r{1 + i % 2}) -> (r{2 - i % 2})\n" for i in range(calls))
    return f"""\
prim work(%0: {kind}) -> {kind} {{
  %1 = tanh(%0) : {kind}
  return %1
}}

func @main(x: {kind}) -> {kind} {{
  frame_tensor r1, {kind}, 0
  frame_tensor r2, {kind}, {4 * _ELEMENTS}
  alloc_tensor r3, {kind}
  call work (r0) -> (r1)
{lines}  call work (r1) -> (r3)
  ret r3
}}
"""


def _scaling_of(entry: Entry, counts: Sequence[int], rounds: int) -> Iterator[Scaling]:
    from .... import VirtualMachine, compile
    from ..zoo.catalogue import inputs

    model = entry.build()
    function, feeds = VirtualMachine(compile(model, progress=False))["main"], tuple(inputs(entry, model).values())
    for count in counts:
        with race.threads_put_back():
            yield Scaling(entry.name, count, *_rounds(lambda: function(*feeds), count, rounds))


def _rounds(call: Callable[[], Any], count: int, rounds: int) -> tuple[list[float], ...]:
    """Milliseconds of a call on one thread, on `count` threads, and of `count` calls at once; nanoseconds between two cores."""
    from ...machine_limits import RoundTrip

    trip = RoundTrip()
    alone, shared, apart, trips = [], [], [], []
    for _ in range(rounds):
        alone.append(_shared(call, 1))
        apart_before, trip_before = _apart(call, count), trip.nanoseconds()
        shared.append(_shared(call, count))
        trips.append(max(trip_before, trip.nanoseconds()))
        apart.append(max(apart_before, _apart(call, count)))
    return alone, shared, apart, trips


def _shared(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of a call that `count` threads share: the median of a turn."""
    from .... import set_num_threads

    set_num_threads(count)
    return _turn(call)


def _apart(call: Callable[[], Any], count: int) -> float:
    """Milliseconds of a call where `count` are made at once, each on a thread and, where the system can tell, a core of its own:
    as long as all together take for one."""
    from .... import set_num_threads
    from ...machine_limits import run_threads, take_core

    set_num_threads(1)
    times, barrier = [0.0] * count, threading.Barrier(count)

    def caller(index: int) -> None:
        take_core(index, count)
        barrier.wait()
        times[index] = _turn(call)

    run_threads(caller, count)
    return 1 / sum(1 / each for each in times)


def _turn(call: Callable[[], Any]) -> float:
    """Milliseconds: the median of calls, one by one, after one that wakes the workers and does not count."""
    call()
    times, end = [], time.perf_counter() + _TURN_SECONDS
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        times.append((now - start) * 1e3)
        if now > end:
            return median(times)
