"""Threads that begin, or are an error.

`threading.Thread.start` waits until the new thread says that it runs. Where the system has no memory left, the thread dies before
that, before its first bytecode, and the wait never ends.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

_LOOK = 0.05  # seconds between two looks whether it has died


class _Begun(threading.Event):
    """Set when the thread runs."""

    def __init__(self) -> None:
        super().__init__()
        self.work: weakref.ref | None = None  # what the new thread calls: nobody else holds it

    def wait(self, timeout: float | None = None) -> bool:
        """Raises RuntimeError where the thread does not begin."""
        if timeout is not None:
            return super().wait(timeout)
        while not super().wait(_LOOK):
            if self.work is not None and self.work() is None and not self.is_set():
                raise RuntimeError("can't start new thread: it had no memory to begin")
        return True


class Thread(threading.Thread):
    """A thread whose `start` raises RuntimeError where it does not begin."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started: Any = _Begun()

    @property
    def _bootstrap(self) -> Callable[[], None]:
        """The function that `start` runs in the new thread; released when it ends."""
        work = functools.partial(threading.Thread._bootstrap, self)  # type: ignore[attr-defined]
        self._started.work = weakref.ref(work)
        return work
