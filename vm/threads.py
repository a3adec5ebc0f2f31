"""The process's worker threads, which help any machine's call with its larger kernels.

Workers are Python threads that spend their lives in native code (`vm/parallel.py`), without the GIL. One call at a time has
them; others meanwhile run on their own thread alone. They begin with the first call that may want them.

Unless a number was chosen there are as many threads as the process has processors. Loops follow the process's affinity when it
changes. A control group's quota that is lowered later shows in `threads` alone: the engine would have to read files to follow it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from typing import Any

from ..formats.messages.calling import public, warn_user
from ..formats.starting import Thread
from ..native import knobs
from ..native.once import Lock, once, uninterrupted
from ..native.processors import allowed, allowed_count, cpu_count
from . import core
from .budgets import check_threads
from .layout import MAX_PROCESSORS, MAX_THREADS, MEMBER, MEMBER_WORDS, POOL, SLEEPER, WORD

_IDLE_SECONDS = 0.001  # between two looks for work, where a thread has nothing to sleep on
_WORKER_SECONDS = 200e-6  # that a worker spins: from one parallel kernel to the next, also across a call from Python
_YIELD_SECONDS = 10e-6  # that a thread spins before it lets others have the core: the one that it waits for may want it
_RESTS = 4000  # by which a spin is measured
_LINES = 16  # words of two cache lines, which processors like to fetch together
_LOCK_BYTES = 256  # enough for a mutex, and for a condition, of any C library


class Pool:
    """The words that workers and callers share, and the workers."""

    def __init__(self) -> None:
        words = POOL.WORDS + MEMBER_WORDS * MAX_THREADS
        self._memory = (ctypes.c_int64 * (words + _LINES))()
        start = -ctypes.addressof(self._memory) % (_LINES * WORD)
        self._words = (ctypes.c_int64 * words).from_buffer(self._memory, start)
        self._locks: list[Any] = []  # of the workers: what the C library's mutexes and conditions are made of
        self._workers: list[threading.Thread] = []
        self.address = ctypes.addressof(self._words)
        self._wanted: int | None = None  # threads that the user asked for
        self._is_started = False
        self._lock = Lock()
        self._words[POOL.THREADS] = self._words[POOL.LIMIT] = 1
        self._allowed = ctypes.create_string_buffer(2 * MAX_PROCESSORS // 8)
        self._set_spins()
        self._find_functions()

    @property
    def threads(self) -> int:
        """How many threads a call has, or will have once the workers are started."""
        chosen = self._wanted or knobs.get("TREADLE_NUM_THREADS")
        if self._is_started:
            return self._words[POOL.THREADS] if chosen else min(self._words[POOL.THREADS], _default_threads())
        return self._wanted or _default_threads()

    def start(self) -> None:
        """Starts the workers, if this process has none yet: it is new, or a child of fork; and more of them, if nobody has chosen
        their number and there are more CPUs than there were."""
        threads = self._words[POOL.THREADS]
        # asked in turn: to read the quotas takes half a millisecond
        if self._is_started and (
            self._words[POOL.CHOSEN] or allowed_count() <= threads or _default_threads() <= threads
        ):
            return
        with self._lock:
            wanted = self._wanted or _default_threads()
            if not self._is_started or wanted > self._words[POOL.THREADS]:
                self._resize(wanted)

    def resize(self, threads: int) -> None:
        """From the next kernel on, a call has `threads` threads, its own among them."""
        with self._lock:
            self._wanted = threads
            self._resize(threads)

    def _resize(self, threads: int) -> None:
        lacking: list[str] = []
        uninterrupted(lambda: lacking.extend(self._resized(threads)))
        for reason in lacking:  # on this thread, where the user's line is
            warn_user(f"calls have {1 + len(self._workers)} threads, not {threads}: {reason}", RuntimeWarning)

    def _resized(self, threads: int) -> list[str]:
        """Why there are fewer threads, if there are."""
        words = self._words
        self._own()
        try:
            words[POOL.STRIDE] = 0  # scratch memory is for as many workers as there were
            self._take_in()
            while len(self._workers) < threads - 1:
                index = 1 + len(self._workers)  # the caller is member 0
                self._make_lock(index)
                worker = Thread(target=self._work, args=(index,), name=f"treadle-{index}", daemon=True)
                worker.start()
                self._workers.append(worker)
        except RuntimeError as error:
            return [str(error)]
        finally:
            words[POOL.THREADS] = words[POOL.LIMIT] = min(threads, 1 + len(self._workers))
            words[POOL.CHOSEN] = bool(self._wanted or knobs.get("TREADLE_NUM_THREADS"))
            core.engine().leave(self.address)
            self._see_processors()
            self._is_started = True
        return []

    def stop(self) -> None:
        """Ends the workers. What runs afterwards runs on its own thread."""
        self._own()
        self._words[POOL.THREADS], self._words[POOL.LIMIT], self._words[POOL.STOP] = 1, 1, 1
        self._take_in()
        core.engine().leave(self.address)
        core.engine().wake(self.address, len(self._workers))
        for worker in self._workers:
            worker.join()
        self._workers.clear()

    def forget_workers(self) -> None:
        """In a child of fork, which has none of its parent's threads: one thread, until `start`. Whatever the others were in the
        middle of stays as it is: scratch memory and mutexes are left to them."""
        for word in (
            POOL.BUSY,
            POOL.ACTIVE,
            POOL.EPOCH,
            POOL.HINDERED,
            POOL.SCRATCH,
            POOL.STRIDE,
            POOL.BLOCK,
            POOL.STOP,
        ):
            self._words[word] = 0
        self._words[POOL.THREADS] = self._words[POOL.LIMIT] = 1
        ctypes.memset(self.address + WORD * POOL.WORDS, 0, WORD * MEMBER_WORDS * MAX_THREADS)
        self._workers.clear()
        self._is_started = False
        self._see_processors()

    def native_ids(self) -> dict[int, int]:
        """The system's numbers of the workers that have begun, by their places among a call's threads, where 0 is the caller."""
        found = {index: self._words[_place(index, SLEEPER.THREAD)] for index in range(1, 1 + len(self._workers))}
        return {index: number for index, number in found.items() if number}

    def _take_in(self) -> None:
        """Leaves no worker out any longer."""
        self._words[POOL.HINDERED] = 0
        for index in range(1, 1 + len(self._workers)):
            self._words[_place(index, SLEEPER.LEFT_OUT)] = 0

    def _own(self) -> None:
        """Waits until no call has the pool, and takes it."""
        while not core.engine().own(self.address):
            time.sleep(_IDLE_SECONDS)

    def _work(self, index: int) -> None:
        work, seen = core.engine().work, self._words[_place(index, MEMBER.TICKET)] >> 32
        self._words[_place(index, SLEEPER.THREAD)] = threading.get_native_id()
        self._words[_place(index, SLEEPER.APART)] = 0
        while (seen := work(self.address, index, seen)) >= 0:
            time.sleep(_IDLE_SECONDS)

    def _set_spins(self) -> None:
        """Measures how long it takes to relax, between a nanosecond and fifty, and the processor's clock."""
        count, rest = _RESTS, core.engine().rest
        start = time.perf_counter()
        ticks = rest(count)
        seconds = max(time.perf_counter() - start, 1e-9)
        each = seconds / count
        self._words[POOL.MILLISECOND] = int(ticks / (1e3 * seconds))
        self._words[POOL.WORKER_SPINS] = max(1, int(_WORKER_SECONDS / each))
        self._words[POOL.YIELD_SPINS] = max(1, int(_YIELD_SECONDS / each))

    def _find_functions(self) -> None:
        """The C library's functions for locks. Where it has none that we know, workers look for work from time to time."""
        if sys.platform == "win32":
            return
        for word, name in (
            (POOL.LOCK, "pthread_mutex_lock"),
            (POOL.UNLOCK, "pthread_mutex_unlock"),
            (POOL.WAIT, "pthread_cond_wait"),
            (POOL.SIGNAL, "pthread_cond_signal"),
            (POOL.YIELD, "sched_yield"),
        ):
            self._words[word] = _address(name)
        if hasattr(os, "sched_getaffinity") and hasattr(_c_library(), "sched_getcpu"):
            self._words[POOL.PROCESSOR] = _address("sched_getcpu")
            self._words[POOL.CONFINE] = _address("sched_setaffinity")
            self._words[POOL.ASK] = _address("sched_getaffinity")
            self._words[POOL.ALLOWED] = ctypes.addressof(self._allowed)
            self._see_processors()

    def _see_processors(self) -> None:
        """Sets the bits of the processors that the process may use; from here on, the engine follows them."""
        if self._words[POOL.ASK]:
            bits = sum(1 << processor for processor in allowed() if processor < MAX_PROCESSORS)
            ctypes.memmove(self._allowed, bits.to_bytes(MAX_PROCESSORS // 8, "little"), MAX_PROCESSORS // 8)

    def _make_lock(self, index: int) -> None:
        """A mutex and a condition for a worker to sleep on."""
        if sys.platform == "win32":
            return
        lock = ctypes.create_string_buffer(2 * _LOCK_BYTES)
        self._locks.append(lock)  # for ever: a worker of a parent process may have died in the one before
        mutex = ctypes.addressof(lock)
        condition = mutex + _LOCK_BYTES
        _c_library().pthread_mutex_init(ctypes.c_void_p(mutex), None)
        _c_library().pthread_cond_init(ctypes.c_void_p(condition), None)
        self._words[_place(index, SLEEPER.MUTEX)] = mutex
        self._words[_place(index, SLEEPER.CONDITION)] = condition


def _place(index: int, word: int) -> int:
    """Where a word of a member stands among the pool's."""
    return POOL.WORDS + MEMBER_WORDS * index + word


@once
def _c_library() -> Any:
    return ctypes.CDLL(None)


def _address(function: str) -> int | None:
    """Of a function of the C library."""
    return ctypes.cast(getattr(_c_library(), function), ctypes.c_void_p).value


_pool: Pool | None = None


@once
def pool() -> Pool:
    """The pool of this process, whose workers may have to be started."""
    global _pool
    _pool = Pool()
    atexit.register(_pool.stop)  # before the code that the workers run is gone
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_pool.forget_workers)
    return _pool


def _default_threads() -> int:
    return min(knobs.get("TREADLE_NUM_THREADS") or cpu_count(), MAX_THREADS)


@public
def get_num_threads() -> int:
    """How many threads a call may use. Starts nothing."""
    return _default_threads() if _pool is None else _pool.threads


@public
def set_num_threads(count: int) -> None:
    """Sets how many threads a call may use for its larger kernels; 1 for none but its own. For the whole process: a machine, or a
    call, may be given fewer of them (`VirtualMachine(exe, threads=…)`). Raises ArgumentError."""
    check_threads(f"set_num_threads({count!r})", count)
    pool().resize(count)
