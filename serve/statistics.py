"""Statistics of served requests, as the protocol defines them: times are in nanoseconds."""

from __future__ import annotations

import bisect
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
        self.computes = [0] * (len(INTERVALS) + 1)  # and how many calls took so long
        self.sizes: dict[int, tuple[Count, Count]] = {}  # calls by their rows: the gathering of these, and the call

    def called(self, gathering: float, seconds: float, rows: int) -> None:
        """A call that gave results, of one request or several, and the rows of all, which were gathered before."""
        with self._lock:
            self.calls += 1
            self.computes[bisect.bisect_left(INTERVALS, seconds)] += 1
            counts = self.sizes.get(rows)
            if counts is None:
                if len(self.sizes) >= _MAX_SIZES:
                    return
                counts = self.sizes[rows] = Count(), Count()
            for count, each in zip(counts, (gathering, seconds), strict=True):
                count.add(each)

    def succeeded(self, seconds: float, queued: float, prepared: float, computed: float, rows: int) -> None:
        """A request answered after `seconds`, of them `queued`, `prepared` and `computed`. Its
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


class History:
    """The server's last minutes, for its page: one row per sample, of what happened since the sample before."""

    LOOKS = 600
    LEAST_SECONDS = 1.0

    def __init__(self, statistics: Callable[[], Iterable[Statistics]]) -> None:
        self._statistics = statistics
        self._before: tuple[float, _Sums] | None = None
        self.rows: deque[dict[str, float | None]] = deque(maxlen=self.LOOKS)

    def look(self) -> None:
        """To be called now and then, by one thread."""
        now = time.monotonic()
        if self._before is not None and now - self._before[0] < self.LEAST_SECONDS:
            return
        sums = _Sums.of(self._statistics())
        if self._before is not None:
            then, before = self._before
            self.rows.append({"time": time.time(), **sums.since(before, now - then), "memory": resident_bytes()})
        self._before = now, sums


@dataclass
class _Sums:
    """Of all functions."""

    answered: int = 0
    refused: int = 0
    calls: int = 0
    times: tuple[int, ...] = (0,) * (len(INTERVALS) + 1)

    @staticmethod
    def of(several: Iterable[Statistics]) -> _Sums:
        sums = _Sums()
        for each in several:
            sums.answered += each.success.count
            sums.refused += each.fail.count
            sums.calls += each.calls
            sums.times = tuple(map(operator.add, sums.times, each.times))
        return sums

    def since(self, before: _Sums, seconds: float) -> dict[str, float | None]:
        """Requests a second, of them those with an error, times in seconds, requests a call. A model that has gone takes its
        counts along: nothing is less than 0."""
        answered, refused, calls = (
            max(0, now - then)
            for now, then in (
                (self.answered, before.answered),
                (self.refused, before.refused),
                (self.calls, before.calls),
            )
        )
        times = [max(0, now - then) for now, then in zip(self.times, before.times, strict=True)]
        return {
            "answered": answered / seconds,
            "refused": refused / seconds,
            "half": quantile(times, 0.5),
            "most": quantile(times, 0.99),
            "together": answered / calls if calls else None,
        }


def quantile(times: Sequence[int], share: float) -> float | None:
    """The upper end of the interval that a share of the times is not above; None of none."""
    wanted, count = share * sum(times), 0
    for end, each in zip((*INTERVALS, 2 * INTERVALS[-1]), times, strict=True):
        count += each
        if each and count >= wanted:
            return end
    return None


def resident_bytes() -> int:
    """Of this process's memory, what is in the host's; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
