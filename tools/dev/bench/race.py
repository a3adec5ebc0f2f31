"""`treadle bench models`: the zoo, on Treadle and on the runtimes that people use today.

All engines run in one process and take turns, so that a slow moment of the machine hits all of them; medians count. Outputs are
compared, so that a fast wrong answer is seen. A model that an engine cannot run is reported with the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ....formats.messages.errors import TreadleError
from ....formats.program import EXACT, PRECISIONS
from ...errors import UsageError

if TYPE_CHECKING:
    import onnx

    from ..zoo.catalogue import Entry
    from .engines import Call

_T = TypeVar("_T")

OURS = "treadle"
RIVALS = ("onnxruntime", "openvino")
WRONG = 1e-3  # an error above this share of the largest element is marked

_REASON_CHARACTERS = 160
ROUNDS = 15
_BURST_SECONDS = 0.02  # an engine's turn lasts about so long: small models are called many times
_MODEL_SECONDS = 20.0  # and all turns of a model together no longer than this, however slow an engine is
_SPIN_SECONDS = 0.25  # threads that are busy for longer are not waited for
_NAP_SECONDS = 0.02  # several ticks of the system's clock: by these it counts what a running thread has used
_IDLE_SHARE = 0.1  # of one core
_QUANTILES = {"p10": 10, "median": 50, "p90": 90}


@dataclass(frozen=True)
class Measurement:
    """One engine on one model. Milliseconds; or why there are none."""

    milliseconds: dict[str, float] = field(default_factory=dict)  # by the names of _QUANTILES
    failure: str = ""
    error: float | None = None  # the largest difference from the first rival's outputs, a share of the largest element

    @property
    def median(self) -> float:
        """Not a number where the engine failed."""
        return self.milliseconds.get("median", math.nan)


@dataclass(frozen=True)
class Race:
    """All engines on one model, with a number of threads."""

    model: str
    threads: int
    engines: dict[str, Measurement]

    @property
    def ratio(self) -> float | None:
        """How many times the best rival's time is ours: above 1, we lead."""
        rivals = [result.median for name, result in self.engines.items() if name != OURS and not result.failure]
        ours = self.engines[OURS]
        return None if ours.failure or not rivals else min(rivals) / ours.median


def add_options(bench: argparse.ArgumentParser) -> None:
    """Adds the options of `models` besides those of all benchmarks."""
    group = bench.add_argument_group("models, accuracy, memory and layers")
    group.add_argument("--only", type=_names, default=(), metavar="MODEL,…", help="models of the zoo (default: all)")
    group.add_argument("--against", type=_names, default=RIVALS, metavar="ENGINE,…", help="rivals (default: all)")
    group.add_argument("--threads", type=counts, default=(1, 2), metavar="N,…", help="thread counts (default: 1,2)")
    group.add_argument(
        "--precision", choices=PRECISIONS, default=EXACT, help="bfloat16: Treadle so, rivals as they are installed"
    )
    group.add_argument("--report", metavar="FILE", help="write a page in Markdown, or its part")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def counts(text: str) -> tuple[int, ...]:
    counts = tuple(map(int, _names(text)))
    if not counts or min(counts) < 1:
        raise argparse.ArgumentTypeError("numbers from 1 on are expected")
    return counts


def told(
    found: Iterable[_T],
    line: Callable[[_T], str],
    options: argparse.Namespace,
    facts: Callable[[_T], Any] | None = None,
) -> list[_T]:
    """All that is found. Prints a line for each when it is there, or, where JSON is asked for, the facts of all."""
    kept = []
    for each in found:
        kept.append(each)
        if not options.json:
            print(line(each), flush=True)
    if options.json and facts is not None:
        print(json.dumps(list(map(facts, kept))))
    return kept


def run_races(
    models: Sequence[str], rivals: Sequence[str], threadcounts: Iterable[int], rounds: int, precision: str = EXACT
) -> Iterator[Race]:
    """Races the models of these names, or all. Raises UsageError for a name that is not in the zoo, or no engine's."""
    return each_count(zoo_entries(models), rivals, threadcounts, partial(_race, rounds=rounds, precision=precision))


def each_count(
    entries: Sequence[Entry],
    rivals: Sequence[str],
    threadcounts: Iterable[int],
    measure: Callable[[Entry, Sequence[str], int], _T],
) -> Iterator[_T]:
    """The measurements of each model, ours and the rivals', at each thread count, which is restored at the end."""
    check_engines(rivals)
    with threads_put_back():
        for entry in entries:
            for threads in threadcounts:
                yield measure(entry, (OURS, *rivals), threads)


@contextmanager
def threads_put_back() -> Iterator[None]:
    """Behind this, calls use as many threads as before."""
    from .... import get_num_threads, set_num_threads

    before = get_num_threads()
    try:
        yield
    finally:
        set_num_threads(before)


def zoo_entries(models: Sequence[str]) -> list[Entry]:
    """The models of these names, or all. Raises UsageError for a name that is not in the zoo."""
    from ..zoo.catalogue import CATALOGUE

    _check_names("model", models, CATALOGUE)
    return [CATALOGUE[name] for name in models] or list(CATALOGUE.values())


def check_engines(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is not an engine's."""
    from .engines import ENGINES

    _check_names("engine", names, ENGINES)


def _check_names(kind: str, given: Sequence[str], known: Iterable[str]) -> None:
    if unknown := [name for name in given if name not in known]:
        raise UsageError(f"there is no {kind} {unknown[0]!r}; there are {', '.join(known)}")


def _race(entry: Entry, engines: Sequence[str], threads: int, rounds: int, precision: str) -> Race:
    """The engines' sessions live for this race only: their threads and memory must not burden the next."""
    from ..zoo.catalogue import inputs

    model = entry.build()
    calls, outputs, failures = prepare(engines, model, inputs(entry, model), threads, precision)
    times = interleaved(calls, rounds)
    reference = next((outputs[name] for name in engines if name != OURS and name in outputs), None)
    results = {
        name: Measurement(failure=failures[name])
        if name in failures
        else Measurement(_quantiles(times[name]), error=None if reference is None else _error(outputs[name], reference))
        for name in engines
    }
    return Race(entry.name, threads, results)


def prepare(
    engines: Sequence[str],
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    threads: int,
    precision: str = EXACT,
) -> tuple[dict[str, Call], dict[str, list[np.ndarray]], dict[str, str]]:
    """By engine: its call, what this gave, and, of those that cannot run the model, why."""
    from .engines import ENGINES

    calls: dict[str, Call] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    failures: dict[str, str] = {}
    for name in engines:
        try:
            call = ENGINES[name](model, feeds, threads, precision)
            outputs[name] = [array.copy() for array in call()]
            calls[name] = call
        except Exception as error:  # whatever a runtime raises: that it cannot run this model is a result
            failures[name] = reason(error)
    return calls, outputs, failures


def interleaved(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each engine, a number for each round.

    A turn begins when the engines' threads are idle, with a call that does not count: it wakes the engine's threads and brings
    its data back into the caches.
    """
    once = {name: _seconds(call, 1) for name, call in calls.items()}
    count = {name: max(1, int(_BURST_SECONDS / seconds)) for name, seconds in once.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for _ in range(rounds):
        for name, call in calls.items():
            await_idle_threads()
            call()
            times[name].append(_seconds(call, count[name]))
        if time.perf_counter() - start > _MODEL_SECONDS:
            break
    return times


def in_turns(calls: Mapping[str, Callable[[], object]], rounds: int, count: int = 1) -> dict[str, list[float]]:
    """Seconds a call of each, `count` calls in each of `rounds` rounds, without those that come first."""
    for call in calls.values():
        _seconds(call, count)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(_seconds(call, count))
    return times


def await_idle_threads() -> None:
    """Waits until the threads of this process are idle: after a run they look for more work for a while, onnxruntime's for some
    50 ms, and would take the cores from another engine's."""
    deadline = time.perf_counter() + _SPIN_SECONDS
    while time.perf_counter() < deadline:
        busy, start = time.process_time(), time.perf_counter()
        time.sleep(_NAP_SECONDS)
        if time.process_time() - busy < _IDLE_SHARE * (time.perf_counter() - start):
            return


def _seconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    return {name: float(np.percentile(seconds, share)) * 1e3 for name, share in _QUANTILES.items()}


def _error(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> float:
    """The largest of all outputs. Infinite for outputs of other shapes."""
    if [array.shape for array in outputs] != [array.shape for array in reference]:
        return math.inf
    return max((errors_of([a], [b])[1] for a, b in zip(outputs, reference, strict=True)), default=0.0)


def errors_of(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> tuple[float, float]:
    """The root mean square of the differences, a share of that of the elements, and the largest, a share of the largest element.
    Infinite where there are other NaNs or infinities than there should be."""
    got, reference = (np.concatenate([array.ravel() for array in arrays]) for arrays in (found, wanted))
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(got)) or not np.array_equal(got[~finite], reference[~finite], True):
        return math.inf, math.inf
    difference, size = np.abs(got[finite] - reference[finite].astype(np.float64)), np.abs(reference[finite])
    if not difference.any():
        return 0.0, 0.0
    mean = math.sqrt(float(np.mean(difference**2) / max(np.mean(size.astype(np.float64) ** 2), 1e-300)))
    return mean, float(difference.max() / max(size.max(), 1e-300))


def reason(error: Exception) -> str:
    """Why an engine fails, on one line, without the lists that some messages end with."""
    if isinstance(error, ImportError):
        return "not installed"
    text = error.message if isinstance(error, TreadleError) else str(error)
    return textwrap.shorten(text, _REASON_CHARACTERS, placeholder=" …") or type(error).__name__
