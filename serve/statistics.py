"""What has been served, counted as the protocol's statistics ask: times are in nanoseconds."""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass

_MAX_SIZES = 256  # numbers of rows that are counted each for itself


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
    """Of one endpoint. Requests and calls are two things: several requests may be one call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows = self.calls = self.last_ms = 0
        self.success, self.fail, self.queue = Count(), Count(), Count()
        self.input, self.compute, self.output = Count(), Count(), Count()
        self.times = [0] * (len(INTERVALS) + 1)  # how many requests took so long
        self.waits = [0] * (len(INTERVALS) + 1)  # and waited so long for their turn
        self.sizes: dict[int, tuple[Count, Count]] = {}  # calls by their rows: the gathering of these, and the call

    def called(self, gathering: float, seconds: float, rows: int) -> None:
        """A call that gave results, of one request or several, and the rows of all, which were gathered before."""
        with self._lock:
            self.calls += 1
            counts = self.sizes.get(rows)
            if counts is None:
                if len(self.sizes) >= _MAX_SIZES:
                    return
                counts = self.sizes[rows] = Count(), Count()
            for count, each in zip(counts, (gathering, seconds), strict=True):
                count.add(each)

    def succeeded(self, seconds: float, queued: float, prepared: float, computed: float, rows: int) -> None:
        """A request that was answered after so many seconds, of which it waited for its turn and was computed for those. Its
        tensors were read, and put among others', in `prepared` seconds."""
        with self._lock:
            self.rows += rows
            self.last_ms = int(time.time() * 1000)
            self.success.add(seconds)
            self.queue.add(queued)
            self.input.add(prepared)
            self.compute.add(computed)
            self.times[bisect.bisect_left(INTERVALS, seconds)] += 1
            self.waits[bisect.bisect_left(INTERVALS, queued)] += 1

    def printed(self, seconds: float) -> None:
        """The message of an answer, which succeeded, was made of its tensors."""
        with self._lock:
            self.output.add(seconds)
            self.success.ns += int(seconds * 1e9)

    def failed(self, seconds: float) -> None:
        """A request that was answered with an error."""
        with self._lock:
            self.fail.add(seconds)
