"""The process's worker threads, which help any machine's call with its larger kernels.

Workers are Python threads that spend their lives in native code (`vm/parallel.py`), without the GIL. One call at a time has
them; others meanwhile run on their own thread alone. They begin with the first call that may want them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from typing import Any

from ..formats.errors import ArgumentError
from . import core, knobs
from .layout import POOL

_IDLE_SECONDS = 0.001  # between two looks for work, where a thread has nothing to sleep on


class Pool:
    """The words that workers and callers share, and the workers."""

    def __init__(self, threads: int) -> None:
        self._words = (ctypes.c_int64 * POOL.WORDS)()
        self._locks = ctypes.create_string_buffer(512)  # a mutex and a condition of the C library
        self._workers: list[threading.Thread] = []
        self.address = ctypes.addressof(self._words)
        self._find_functions()
        self.resize(threads)

    @property
    def threads(self) -> int:
        return self._words[POOL.THREADS]

    def resize(self, threads: int) -> None:
        """From the next kernel on, a call has so many threads, its own among them."""
        words = self._words
        self._own()
        try:
            words[POOL.STRIDE] = 0  # scratch memory is for as many workers as there were
            words[POOL.THREADS] = threads
            while len(self._workers) < threads - 1:
                index = len(self._workers)
                worker = threading.Thread(target=self._work, args=(index,), name=f"treadle-{index}", daemon=True)
                self._workers.append(worker)
                worker.start()
        finally:
            words[POOL.BUSY] = 0

    def stop(self) -> None:
        """Ends the workers. What runs afterwards runs on its own thread."""
        self._own()
        self._words[POOL.THREADS], self._words[POOL.STOP] = 1, 1
        self._words[POOL.BUSY] = 0
        core.engine().wake(self.address)
        for worker in self._workers:
            worker.join()
        self._workers.clear()

    def forget_workers(self) -> None:
        """In a child of fork, which has none of its parent's threads: one thread, until more are asked for."""
        self._workers.clear()
        self._words[POOL.THREADS], self._words[POOL.BUSY], self._words[POOL.SLEEPERS] = 1, 0, 0
        self._find_functions()

    def _own(self) -> None:
        """Waits until no call has the pool, and takes it."""
        while not core.engine().own(self.address):
            time.sleep(_IDLE_SECONDS)

    def _work(self, index: int) -> None:
        work, seen = core.engine().work, self._words[POOL.NEXT] >> 32
        while (seen := work(self.address, index, seen)) >= 0:
            time.sleep(_IDLE_SECONDS)

    def _find_functions(self) -> None:
        """The C library's locks. Where it has none that we know, workers look for work from time to time."""
        words = self._words
        if sys.platform == "win32":
            return
        library: Any = ctypes.CDLL(None)
        mutex = ctypes.addressof(self._locks)
        words[POOL.MUTEX], words[POOL.CONDITION] = mutex, mutex + 256
        library.pthread_mutex_init(ctypes.c_void_p(mutex), None)
        library.pthread_cond_init(ctypes.c_void_p(mutex + 256), None)
        for word, name in (
            (POOL.LOCK, "pthread_mutex_lock"),
            (POOL.UNLOCK, "pthread_mutex_unlock"),
            (POOL.WAIT, "pthread_cond_wait"),
            (POOL.BROADCAST, "pthread_cond_broadcast"),
            (POOL.YIELD, "sched_yield"),
        ):
            words[word] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value


_pool: Pool | None = None
_lock = threading.Lock()


def pool() -> Pool:
    """The pool of this process."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = Pool(knobs.get("TREADLE_NUM_THREADS") or cpu_count())
            atexit.register(_pool.stop)  # before the code that the workers run is gone
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_pool.forget_workers)
        return _pool


def cpu_count() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """How many threads a call may use."""
    return pool().threads


def set_num_threads(count: int) -> None:
    """Sets how many threads a call may use for its larger kernels; 1 for none but its own. For the whole process."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"set_num_threads({count!r}): expected a number from 1 on")
    pool().resize(count)
