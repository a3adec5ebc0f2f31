"""Times that can be trusted: the same work is timed until the fastest runs agree, however often others take the processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_AGREEING = 3  # runs, the fastest ones of one length, whose times must agree
_SPREAD = 0.05  # of the fastest, by which they may differ: clocks of idle cores rise by less while one measures
_PATIENCE = 1.0  # seconds for one measurement; a quiet machine takes a few hundredths
_LEAST_RUN = 0.004  # seconds of a run: thousands of times what a clock resolves and a barrier of threads takes
_MOST_ROUNDS = 1 << 50


class Measured(NamedTuple):
    """The time of one round, and whether runs agreed about it."""

    seconds: float
    is_steady: bool


def seconds_of_a_round(run: Callable[[int], float], clock: Callable[[], float] = time.perf_counter) -> Measured:
    """`run(rounds)` runs them, and returns the seconds that they took.

    A run that another program interrupted tells nothing of how long a round takes, but a bound: no decision is taken by one run
    alone. When patience ends, the fastest run counts, and is not called steady.
    """
    end = clock() + _PATIENCE
    rounds, times = 1, [run(1)]
    last = 0.0  # what half as many rounds took, each
    while clock() < end:
        if len(times) < _AGREEING or not _agree(sorted(times)[:_AGREEING]):
            times.append(run(rounds))
            continue
        found = min(times) / rounds
        # what takes no longer for twice as many rounds is not the rounds' time
        if min(times) >= _LEAST_RUN and last and _agree(sorted([last, found])):
            return Measured(found, True)
        last = found if min(times) >= _LEAST_RUN / 2 else 0.0
        grown = 2 if last else _LEAST_RUN / max(min(times), _LEAST_RUN / 64)
        rounds, times = min(round(rounds * grown) + 1, _MOST_ROUNDS), []
    return Measured(min(times or [run(rounds)]) / rounds, False)


def _agree(ascending: list[float]) -> bool:
    return ascending[-1] <= ascending[0] * (1 + _SPREAD)
