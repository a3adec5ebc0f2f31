"""Whose call is next: one set of threads makes the calls of all models, fairly.

As many calls run at once as there are processors; each may use the machine's worker threads besides (`vm/threads.py`). Of the
models that have requests waiting, the one that has used the least time is next. A model of which nothing runs may always start
one call more: so calls that never end, of another model, hold nobody up but their own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ..formats.starting import Thread
from ..native.processors import allowed_count
from .errors import LOG, OverloadedError, UnavailableError

_IDLE_SECONDS = 10.0  # after which a thread that has nothing to do ends


class Work(Protocol):
    """Something that waits in a line."""

    def run(self) -> None:
        """Makes the call, and wakes its waiter. Raises nothing."""


class Line:
    """The requests that wait for one model. `take` gives a thread its next work; subclasses may merge requests into one call."""

    def __init__(self, name: str, max_queue: int, instances: int | None) -> None:
        self.name, self.max_queue, self.instances = name, max_queue, instances
        self.waiting: deque[Work] = deque()
        self.running = 0
        self.used = 0.0  # seconds, counted from that of the others when it has been idle

    def due(self, now: float) -> float:
        """When what waits may start."""
        return now

    def take(self) -> Work:
        """The first work in line."""
        return self.waiting.popleft()

    def took(self, work: Work, seconds: float) -> None:
        """The taken work is done; it used all processors for `seconds`, or some of them for proportionally longer."""


class Scheduler:
    """Threads, and the lines that they serve."""

    def __init__(self, slots: Callable[[], int] = allowed_count) -> None:
        """`slots` says how many calls run at once; it is asked again and again, since quotas and affinities change."""
        self._slots = slots
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lines: list[Line] = []
        self._running = 0
        self._threads = self._busy = self._idle = 0
        self._is_closed = False

    # ---- who wants to call ----

    def enter(self, line: Line) -> bool:
        """A slot at once, for a call in the thread at hand, if there is one and nobody waits for it; then `leave` follows."""
        with self._lock:
            if line.waiting or not self._may_start(line) or self._is_closed:
                return False
            self._start(line)
            return True

    def leave(self, line: Line, seconds: float) -> None:
        """The call after `enter` is over, and took so long."""
        with self._lock:
            self._end(line, seconds)

    def submit(self, line: Line, work: Work) -> None:
        """Has a thread do it when it is this line's turn. Raises OverloadedError, UnavailableError."""
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the server stops")
            if len(line.waiting) >= line.max_queue:
                raise OverloadedError(f"{line.name}: {len(line.waiting)} requests wait already; try again later")
            if not line.waiting:
                self._activate(line)
            line.waiting.append(work)
            try:
                self._wake()
            except RuntimeError:
                line.waiting.remove(work)
                if not line.waiting:
                    self._lines.remove(line)
                raise OverloadedError("the system has no thread to make the call; try again later") from None

    def waiting(self) -> int:
        """How many requests wait, of all models."""
        with self._lock:
            return sum(len(line.waiting) for line in self._lines)

    def running(self) -> int:
        """How many calls run."""
        return self._running

    def close(self, seconds: float) -> bool:
        """Takes nothing more, and waits until all is done, no longer than that. Whether it is."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while (self._lines or self._running) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.1))
            self._is_closed = True
            self._changed.notify_all()
            return not (self._lines or self._running)

    # ---- with the lock ----

    def _may_start(self, line: Line) -> bool:
        if line.running == 0:
            return True
        return self._running < self._slots() and (line.instances is None or line.running < line.instances)

    def _activate(self, line: Line) -> None:
        """A line that was idle starts with no claim from before, and no debt."""
        if line not in self._lines:
            if not line.running and self._lines:
                line.used = max(line.used, min(each.used for each in self._lines))
            self._lines.append(line)

    def _start(self, line: Line) -> None:
        line.running += 1
        self._running += 1

    def _end(self, line: Line, seconds: float) -> None:
        line.running -= 1
        line.used += seconds
        self._running -= 1
        if self._lines or self._is_closed:
            self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._changed.notify()
        elif self._threads == self._busy and any(map(self._may_start, self._lines)):
            thread = Thread(target=self._serve, name="treadle-serve", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no thread for us: the existing ones will do it
                if not self._threads:
                    raise
            else:
                self._threads += 1

    def _next(self) -> tuple[Line | None, float | None]:
        """The line to be served now, or for how long there is none; None for ever."""
        now, first = time.monotonic(), None
        best: Line | None = None
        for line in self._lines:
            if not self._may_start(line):
                continue
            due = line.due(now)
            if due > now:
                first = due if first is None else min(first, due)
            elif best is None or line.used < best.used:
                best = line
        return best, None if first is None else first - now

    def _serve(self) -> None:
        """The loop of each thread."""
        while True:
            with self._lock:
                found = self._await()
                if found is None:
                    self._threads -= 1
                    return
                line, work = found
                beside = self._running
            start = time.perf_counter()
            try:
                work.run()
            except BaseException:  # whatever it was, the slot is free again
                LOG.exception("a fault of the server")
            with self._lock:
                self._busy -= 1
                seconds = time.perf_counter() - start
                line.took(work, seconds * 2 / (beside + self._running))  # calls that run at once share the processors
                self._end(line, seconds)

    def _await(self) -> tuple[Line, Work] | None:
        """The next thing to do, once there is one; None where the thread is not needed any more."""
        while True:
            line, seconds = self._next()
            if line is not None:
                work = line.take()
                if not line.waiting:
                    self._lines.remove(line)
                self._start(line)
                self._busy += 1
                if self._lines:
                    self._wake()
                return line, work
            if self._is_closed and not self._lines:
                return None
            self._idle += 1
            is_notified = self._changed.wait(_IDLE_SECONDS if seconds is None else seconds)
            self._idle -= 1
            if not is_notified and seconds is None and not self._lines:
                return None


class Seats:
    """How many answers a model makes at once. For any thread."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count, self._left = name, count, count
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Raises OverloadedError."""
        with self._lock:
            if count > self._left:
                raise OverloadedError(
                    f"{self._name}: {self._count - self._left} answers are made or wait already; try again later"
                )
            self._left -= count

    def give(self, count: int) -> None:
        with self._lock:
            self._left += count
