"""What calls cost beside one another: for tests that say that one is no dearer than another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

ROUNDS = 30  # the least of them is what a call costs without neighbours


def seconds(ways: Mapping[str, Callable[[], Any]], calls: int = 100) -> dict[str, float]:
    """The least CPU time (seconds of this thread) of so many calls of each. They run in turns: clocks of cores change, and all
    meet the same neighbours. Tests that compare are marked `serial`."""
    least = dict.fromkeys(ways, float("inf"))
    for call in ways.values():
        call()
    for _ in range(ROUNDS):
        for name, call in ways.items():
            start = time.thread_time()
            for _ in range(calls):
                call()
            least[name] = min(least[name], time.thread_time() - start)
    return least
