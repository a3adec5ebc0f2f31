"""What calls cost: beside one another, for tests that say that one is no dearer than another, and at most; and how many there
are, where the clock would only say it on a quiet machine."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

ROUNDS = 30  # at least; the least of them is what a call costs without neighbours
SPAN = 1.0  # seconds, at least, that rounds go on: neighbours come and go in tenths of one


def seconds(ways: Mapping[str, Callable[[], Any]], calls: int = 100) -> dict[str, float]:
    """The least CPU time (seconds of this thread) over several calls of each. They run in turns: clocks of cores change, and all
    meet the same neighbours. Tests that compare are marked `serial`."""
    least = dict.fromkeys(ways, float("inf"))
    for call in ways.values():
        call()
    begin, rounds = time.perf_counter(), 0
    while rounds < ROUNDS or time.perf_counter() - begin < SPAN:
        rounds += 1
        for name, call in ways.items():
            start = time.thread_time()
            for _ in range(calls):
                call()
            least[name] = min(least[name], time.thread_time() - start)
    return least


@contextlib.contextmanager
def soon(limit: float) -> Iterator[None]:
    """What is done within takes less than `limit` seconds of this thread's CPU time, which neither other programs nor what
    other tests left running count for. Caches and the units of cores are shared all the same: a test whose limit is not
    several times what a quiet machine takes is marked `serial`."""
    start = time.thread_time()
    yield
    seconds = time.thread_time() - start
    assert seconds < limit


def calls(work: Callable[[], Any]) -> int:
    """The calls of functions, C's too, that this one makes."""
    found = dict.fromkeys(("call", "c_call", "return", "c_return", "c_exception"), 0)

    def count(frame: Any, event: str, argument: Any) -> None:
        found[event] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found["call"] + found["c_call"]
