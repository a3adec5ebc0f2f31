"""`treadle bench threads`: what it costs to share a primitive among threads, and how much faster that makes models.

The cost of a start is what one call of a primitive takes on some threads beyond its fair share of the time on one: finding
out that it is worth it, publishing the work, until the others see it, and waiting for the last of them. Models are run on
all counts of threads in turn, so that a slow moment of the machine hits all of them. Beside each model, in the same turns,
multiply-adds are timed that need nothing but registers: what a virtual machine calls its cores may be one core's halves for
some seconds, and no model gets faster by more threads than these do.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .zoo.catalogue import Entry

_CALLS = 1000  # of the primitive whose start is measured, in one program
_ELEMENTS = 1 << 15  # that it works on: some 20 µs
_ROUNDS = 15
_TURN_SECONDS = 0.05  # of one count of threads
_MULTIPLY_ADDS, _CORE_RUNS = 1 << 20, 3  # rounds that take some milliseconds, and how often a turn has them
_MODELS = ("resnet50", "minilm", "mobilenet-v2", "densenet121")


@dataclass(frozen=True)
class Scaling:
    """One model (or other work) on several counts of threads."""

    name: str
    milliseconds: dict[int, float]  # of a call, medians
    cores_milliseconds: dict[int, float]  # of some multiply-adds in the same turns, medians

    @property
    def speedup(self) -> dict[int, float]:
        """How many times faster than on the first count."""
        return _speedup(self.milliseconds)

    @property
    def cores_speedup(self) -> dict[int, float]:
        return _speedup(self.cores_milliseconds)


def _speedup(milliseconds: dict[int, float]) -> dict[int, float]:
    first = next(iter(milliseconds.values()))
    return {threads: first / time for threads, time in milliseconds.items()}


def threads_command(options: argparse.Namespace) -> int:
    """Prints the cost of a start, then each model's times."""
    from .race import told, zoo_entries

    entries = zoo_entries(options.only or _MODELS)
    counts, rounds = options.threads, options.repeat or _ROUNDS
    costs = start_costs([count for count in counts if count > 1], rounds)
    if not options.json:
        for threads, microseconds in costs.items():
            print(f"a start on {threads} threads: {microseconds:.2f} us")
        heads = "".join(f"{f'{count} thread' + 's' * (count > 1):>14}" for count in counts)
        print(f"\n{'':24}{heads}   speedup; of multiply-adds in registers")
    found = told((_scaling_of(entry, counts, rounds) for entry in entries), _line, options)
    if options.json:
        models = [asdict(each) | {"speedup": each.speedup, "cores_speedup": each.cores_speedup} for each in found]
        print(json.dumps({"start_us": costs, "models": models}))
    return 0


def _line(scaling: Scaling) -> str:
    times = "".join(f"{time:11.3f} ms" for time in scaling.milliseconds.values())
    factors, cores = (
        ", ".join(f"{factor:.2f}" for factor in speedup.values())
        for speedup in (scaling.speedup, scaling.cores_speedup)
    )
    return f"{scaling.name:24}{times}   x{factors}; x{cores}"


def start_costs(counts: Sequence[int], rounds: int) -> dict[int, float]:
    """Microseconds that a start costs, by the count of threads."""
    import numpy as np

    from .. import VirtualMachine
    from ..formats.assembly import parse_assembly
    from ..formats.executable import Executable

    function = VirtualMachine(Executable(parse_assembly(_work_text(_CALLS))))["main"]
    x = np.linspace(-3, 3, _ELEMENTS, dtype=np.float32)
    (times,) = _medians([lambda _: _turn(lambda: function(x))], (1, *counts), rounds)
    return {count: (times[count] - times[1] / count) / _CALLS * 1e3 for count in counts}


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


def _scaling_of(entry: Entry, counts: Sequence[int], rounds: int) -> Scaling:
    from .. import VirtualMachine, compile
    from .machine_limits import MultiplyAdds
    from .zoo.catalogue import inputs

    model = entry.build()
    function, feeds = VirtualMachine(compile(model, progress=False))["main"], tuple(inputs(entry, model).values())
    cores = {count: MultiplyAdds(count) for count in counts}

    def multiply_adds(count: int) -> list[float]:
        return [1e3 * cores[count].seconds(_MULTIPLY_ADDS) for _ in range(_CORE_RUNS)]

    turns = [lambda _: _turn(lambda: function(*feeds)), multiply_adds]
    return Scaling(entry.name, *_medians(turns, counts, rounds))


def _medians(
    turns: Sequence[Callable[[int], Iterable[float]]], counts: Sequence[int], rounds: int
) -> list[dict[int, float]]:
    """For each kind of turn, which takes a count of threads and gives milliseconds, their median on each count."""
    import statistics

    from .. import get_num_threads, set_num_threads

    times: list[dict[int, list[float]]] = [{count: [] for count in counts} for _ in turns]
    before = get_num_threads()
    try:
        for _ in range(rounds):
            for count in counts:
                set_num_threads(count)
                for turn, found in zip(turns, times, strict=True):
                    found[count] += turn(count)
    finally:
        set_num_threads(before)
    return [{count: statistics.median(each) for count, each in found.items()} for found in times]


def _turn(call: Callable[[], Any]) -> Iterator[float]:
    """Milliseconds of calls, one by one, after one that wakes the workers and does not count."""
    call()
    end = time.perf_counter() + _TURN_SECONDS
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        yield (now - start) * 1e3
        if now > end:
            return
