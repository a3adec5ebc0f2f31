"""Which thread did which part of a kernel, and when: what the engine notes of a call while a listener wants it (`hooks.py`).

Times are of the processor's clock, which `TickClock` reads as seconds of `time.perf_counter`.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from .. import core
from ..in_process import InProcess
from ..layout import LOG, LOG_ENTRY

_ROOM = 0xFFFF  # parts; a kernel has no more


class Part(NamedTuple):
    """A part of one call of a kernel. `thread` 0 is the one that called, others are the pool's workers."""

    thread: int
    part: int
    parts: int
    begin: int
    end: int


class PartsLog(InProcess):
    """The parts of one call of a kernel at a time."""

    def __init__(self) -> None:
        # pages that nothing is written to take no memory
        self._words = np.empty(LOG.WORDS + LOG_ENTRY.WORDS * _ROOM, np.int64)
        self._words[LOG.ROOM] = _ROOM
        self.address = self._words.ctypes.data
        self.clear()

    def clear(self) -> None:
        self._words[LOG.COUNT] = 0

    def parts(self) -> list[Part]:
        """Those since `clear`, as they ended; of a call that one thread made alone none."""
        count = min(int(self._words[LOG.COUNT]), _ROOM)
        rows = self._words[LOG.WORDS :][: LOG_ENTRY.WORDS * count].reshape(count, LOG_ENTRY.WORDS)
        return [Part(*row) for row in rows.tolist()]


class TickClock:
    """Reads the processor's clock as seconds: by two looks at both clocks, the longer apart the better."""

    def __init__(self) -> None:
        self._first = self._last = self._look()

    def look(self) -> None:
        """The second look."""
        self._last = self._look()

    @property
    def runs(self) -> bool:
        """Whether the processor has a clock that is known."""
        return self._last[1] != self._first[1]

    def seconds(self, ticks: int) -> float:
        """The time of `time.perf_counter` at which the processor's clock was there, if it runs."""
        (start, since), (end, until) = self._first, self._last
        return start + (ticks - since) * (end - start) / (until - since)

    @staticmethod
    def _look() -> tuple[float, int]:
        before = time.perf_counter()
        ticks = core.engine().ticks()
        return (before + time.perf_counter()) / 2, ticks
