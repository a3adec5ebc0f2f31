"""What has been served, counted as the protocol's statistics ask: times are in nanoseconds."""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass


@dataclass
class Count:
    """How often, and how long in all."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.ns += int(seconds * 1e9)


# Upper ends of the intervals in which times are counted, in seconds: from 50 µs on, each twice the one before; more is the last.
INTERVALS = tuple(50e-6 * 2**number for number in range(20))


class Statistics:
    """Of one endpoint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows = self.calls = self.last_ms = 0
        self.success, self.fail, self.queue, self.compute = Count(), Count(), Count(), Count()
        self.times = [0] * (len(INTERVALS) + 1)  # how many requests took so long

    def succeeded(self, queued: float, computed: float, rows: int) -> None:
        """A request that waited and was computed for so many seconds."""
        with self._lock:
            self.rows += rows
            self.calls += 1
            self.last_ms = int(time.time() * 1000)
            self.success.add(queued + computed)
            self.times[bisect.bisect_left(INTERVALS, queued + computed)] += 1
            self.queue.add(queued)
            self.compute.add(computed)

    def failed(self, seconds: float) -> None:
        """A request that was answered with an error."""
        with self._lock:
            self.fail.add(seconds)
