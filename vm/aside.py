"""Work on another thread than the caller's, which can leave it behind: a long call of NumPy's cannot be stopped.

The caller waits, and looks now and then whether the work is still wanted. If not, it goes; the work is ended as soon as Python
can, between two of its bytecodes, and what it reads must stay until then. While many are left behind, no other work is begun:
each keeps a thread, a core and its call's memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..formats.messages.errors import ExecutionError
from ..formats.starting import Thread
from ..native.once import Lock

MOST_LEFT = 16  # jobs of a process that nobody waits for, from which on no other begins; those that run then may still join them
_PERIOD = 0.01  # seconds between two looks whether the work is still wanted


class _Abandoned(SystemExit):
    """Raised in a thread whose work nobody waits for."""


def too_many_left() -> bool:
    """Whether no job may begin now."""
    return len(_left) >= MOST_LEFT


class Job:
    """Work, and how far it is."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self._failure: BaseException | None = None
        self._over = threading.Event()  # there is a result or a failure
        self._lock = Lock()
        self._thread = 0  # that does it
        self._is_abandoned = False
        self._then: Callable[[], None] | None = None

    def run(self, look: Callable[[], None]) -> Any:
        """The work's result, or its exception. Leaves it behind where `look`, called now and then, raises, or a signal's
        handler does. Raises ExecutionError, and begins nothing, while too many jobs are left behind."""
        try:
            if too_many_left():
                raise ExecutionError(
                    f"{len(_left)} operators of calls that ended before them are still at work, and no more than {MOST_LEFT} "
                    "may be; call again when they have ended, and give such calls more max_seconds"
                )
            _a_helper().jobs.put(self)
            while not self._over.wait(_PERIOD):
                look()
        except BaseException:
            self._abandon()
            raise
        failure, self._failure = self._failure, None
        if failure is None:
            return self._result
        try:
            raise failure
        finally:
            del failure  # it refers to this frame, and by that to the machine

    def ended(self, then: Callable[[], None]) -> bool:
        """Whether nothing of it goes on; if something does, `then` is called when that is over."""
        with self._lock:
            if not self._over.is_set():
                self._then = then
            return self._over.is_set()

    def _abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if not self._thread:  # nor will it begin, with or without a helper
                self._over.set()
            elif not self._over.is_set():
                _left.add(self)
                raise_in(ctypes.c_ulong(self._thread), ctypes.py_object(_Abandoned))

    def do(self) -> bool:
        """On the helper's thread. Whether that may do more."""
        try:
            with self._lock:
                self._thread = threading.get_ident()
                is_wanted = not self._is_abandoned
            if is_wanted:
                try:
                    self._result = self._work()
                except _Abandoned:
                    raise
                except BaseException as failure:
                    self._failure = failure
            self._work = _nothing  # what it refers to goes, before the caller does
            with self._lock:
                self._over.set()
            for _ in range(2):  # the exception that has been asked for comes at the latest here
                pass
        except _Abandoned:
            pass
        self._work = _nothing
        with self._lock:
            if self._is_abandoned:  # an error that is kept refers to this
                self._result = self._failure = None
            self._over.set()
            then = self._then
        _left.discard(self)
        if then is not None:
            then()
        return not self._is_abandoned


def later(work: Callable[[], Any]) -> None:
    """Has a helper do work that nobody waits for; without one, the caller does it."""
    with contextlib.suppress(RuntimeError, MemoryError):  # no thread
        _a_helper().jobs.put(Job(work))


def _nothing() -> None:
    """The work of a job that is done."""


class _Helper:
    """A thread that does jobs one after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Job] = SimpleQueue()
        Thread(target=self._run, name="treadle-host", daemon=True).start()

    def _run(self) -> None:
        while self.jobs.get().do():
            _idle.append(self)


def _a_helper() -> _Helper:
    try:
        return _idle.pop()
    except IndexError:
        return _Helper()


raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_idle: list[_Helper] = []
_left: set[Job] = set()  # that nobody waits for, and that go on

if hasattr(os, "register_at_fork"):  # a child has none of these threads
    os.register_at_fork(after_in_child=_idle.clear)
    os.register_at_fork(after_in_child=_left.clear)
