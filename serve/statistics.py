"""What has been served, counted as the protocol's statistics ask: times are in nanoseconds."""

from __future__ import annotations

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


class Statistics:
    """Of one endpoint."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows = self.calls = self.last_ms = 0
        self.success, self.fail, self.queue, self.compute = Count(), Count(), Count(), Count()

    def succeeded(self, queued: float, computed: float, rows: int) -> None:
        """A request that waited and was computed for so many seconds."""
        with self._lock:
            self.rows += rows
            self.calls += 1
            self.last_ms = int(time.time() * 1000)
            self.success.add(queued + computed)
            self.queue.add(queued)
            self.compute.add(computed)

    def failed(self, seconds: float) -> None:
        """A request that was answered with an error."""
        with self._lock:
            self.fail.add(seconds)
