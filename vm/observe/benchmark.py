"""How long a function takes: TVM's time evaluator, and its result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.messages.errors import ArgumentError

_GROWTH = 1.618  # of the number of calls, where a repeat was too short
_LEAST = {"number": 1, "repeat": 1, "repeats_to_cooldown": 1}  # of the others 0


class BenchmarkResult:
    """Seconds that calls took: `results`, one for each repeat, and their mean, median, min, max and std (of the population)."""

    def __init__(self, results: Sequence[float]) -> None:
        """Raises ArgumentError where there are none."""
        self.results = tuple(float(result) for result in results)
        if not self.results:
            raise ArgumentError("BenchmarkResult: expected one result at least")
        self.mean = float(np.mean(self.results))
        self.std = float(np.std(self.results))
        self.median = float(np.median(self.results))
        self.min = min(self.results)
        self.max = max(self.results)

    def __repr__(self) -> str:
        names = ("min", "mean", "median", "max", "std", "results")
        return f"BenchmarkResult({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = " ".join(f"{f'{name} (ms)':^12s}" for name in names)
        row = " ".join(f"{getattr(self, name) * 1000:^12.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{row}\n{' ' * 15}"


@dataclass(frozen=True)
class Repeats:
    """How often calls are timed, by TVM's names and in its order."""

    number: int = 10  # calls of a repeat
    repeat: int = 1
    min_repeat_ms: float | None = 0
    limit_zero_time_iterations: int = 100
    cooldown_interval_ms: float = 0
    repeats_to_cooldown: int = 1

    def __post_init__(self) -> None:
        """Raises ArgumentError."""
        for name, value in vars(self).items():
            _require(name, value or 0 if name == "min_repeat_ms" else value, _LEAST.get(name, 0))


def measure(
    function: Callable[[], Any],
    repeats: Repeats,
    prepare: Callable[[], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Any] | None = None,
) -> BenchmarkResult:
    """Calls a function once for nothing, then `repeat` times `number` times; a result is the mean of a repeat's calls in
    seconds.

    A repeat that takes less than `min_repeat_ms` is made again with more calls, as many as the time that it took suggests and at
    least 1.618 times as many; the next repeats begin with that number. Repeats that take no time by the clock are made again
    `limit_zero_time_iterations` times at most. `prepare` is called before each repeat. After each repeats_to_cooldown-th repeat,
    the first one among them, the thread sleeps for `cooldown_interval_ms`, or `sleep` does, which is
    told of it in seconds.
    """
    least = repeats.min_repeat_ms or 0
    number = int(repeats.number)  # whole, though it may be a float
    function()
    results = []
    for turn in range(int(repeats.repeat)):
        if prepare is not None:
            prepare()
        milliseconds, zero_times = _timed(function, number, clock), 0
        while milliseconds < least:
            zero_times += milliseconds == 0
            if zero_times >= repeats.limit_zero_time_iterations and milliseconds == 0:
                break
            wanted = least / (milliseconds / number) + 1 if milliseconds > 0 else 0
            number = int(max(wanted, number * _GROWTH, number + 1))
            milliseconds = _timed(function, number, clock)
        results.append(milliseconds / 1000 / number)
        if repeats.cooldown_interval_ms and turn % repeats.repeats_to_cooldown == 0:
            (sleep or time.sleep)(repeats.cooldown_interval_ms / 1000)
    return BenchmarkResult(results)


def _timed(function: Callable[[], Any], number: int, clock: Callable[[], float]) -> float:
    """Milliseconds of `number` calls."""
    start = clock()
    for _ in range(number):
        function()
    return (clock() - start) * 1000


def _require(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise ArgumentError(f"{name}={value!r}: expected a number from {least} on")
    if least == 1 and (value == math.inf or int(value) != value):
        raise ArgumentError(f"{name}={value!r}: expected a whole number")
