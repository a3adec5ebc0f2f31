"""Objects that a process makes once, and locks that outlive a fork.

Raw addresses have no owner: where memory is made twice, and one of the two is freed, an address of the freed one may be in
use. So every object of a process is made by `once`, and by nothing else: `functools.cache` calls its function in two threads.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import os
import signal
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ..formats.starting import Thread

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class Lock(_thread.RLock):  # type: ignore[misc]  # CPython's can be a base
    """A re-entrant lock. A child of fork finds it free if another thread held it: that thread is not in the child.

    `with` enters and leaves it in C: where a function of Python's did, Ctrl-C could come between taking the lock and the block
    that gives it back.
    """

    def __init__(self) -> None:
        _locks.add(self)

    def _forget_others(self) -> None:
        if self.acquire(blocking=False):  # free, or held by the thread that forked
            self.release()
        else:
            self._at_fork_reinit()  # type: ignore[attr-defined]


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_is_forked = False


def _after_fork() -> None:
    global _is_forked
    _is_forked = True
    for lock in list(_locks):
        lock._forget_others()
    if _deferred is not None and _deferred.thread != threading.get_ident():  # of a thread that is not in the child
        _deferred.restore()


def is_forked() -> bool:
    """Whether this process is a child of fork, in which a library's locks may be held by threads that no longer exist."""
    return _is_forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def uninterrupted(work: Callable[[], None]) -> None:
    """Does work that Ctrl-C may not leave half done, and raises what it raises. Python's signal handlers run on the main thread:
    so it is done on another one, where there is one to be had."""
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = Thread(target=run, name="treadle-once", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system has no thread now
        work()
        return
    thread.join()
    for failure in failures:
        raise failure


class _Deferred:
    """Ctrl-C, whose handler waits. `_deferred` is set only while it does: Ctrl-C between two lines must leave no other state."""

    handler: Any

    def __init__(self) -> None:
        self.thread, self.is_pending = threading.get_ident(), False

    def defer(self) -> None:
        global _deferred
        self.handler = signal.signal(signal.SIGINT, self._record)  # which first handles a pending one, and may raise
        _deferred = self

    def _record(self, *_: object) -> None:
        self.is_pending = True

    def restore(self) -> None:
        """Handles Ctrl-C at once again, a recorded one among them."""
        global _deferred
        _deferred = None
        signal.signal(signal.SIGINT, self.handler)
        if self.is_pending:
            self.is_pending = False
            if callable(self.handler):
                self.handler(signal.SIGINT, None)


_deferred: _Deferred | None = None


class deferred:
    """A block that Ctrl-C does not leave half done: its handler is called after it, or by `interruptible` within it. Blocks may
    be nested. Does nothing on other threads than the main one: Python runs handlers there alone."""

    _mine: _Deferred | None = None

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and _deferred is None and callable(signal.getsignal(signal.SIGINT)):
            self._mine = _Deferred()
            self._mine.defer()

    def __exit__(self, *_: object) -> None:
        if self._mine is not None:
            self._mine.restore()


class interruptible:
    """A part of such a block, in which a thread waits or computes."""

    _outer: _Deferred | None = None

    def __enter__(self) -> None:
        if _deferred is not None and _deferred.thread == threading.get_ident():
            self._outer = _deferred
            try:
                self._outer.restore()
            except BaseException:
                self._outer.defer()
                raise

    def __exit__(self, *_: object) -> None:
        if self._outer is not None:
            self._outer.defer()


def kept(thing: _T) -> _T:
    """The same object, which now stays for the life of the process, also while Python ends and threads still run."""
    try:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    except ctypes.ArgumentError as error:  # there was no memory for the argument
        raise MemoryError from error
    return thing


def once(make: _F) -> _F:
    """The function, called once for each tuple of (hashable) arguments; other threads wait for its result, and share it. The
    result stays for the life of the process. An error is not kept: the next call tries again.
    """
    made: dict[tuple[Hashable, ...], Any] = {}
    lock = Lock()

    @functools.wraps(make)
    def get(*arguments: Hashable) -> Any:
        if arguments not in made:
            with lock:
                if arguments not in made:
                    thing = make(*arguments)
                    # a finaliser or a signal handler that ran in between, in this thread, may have been first
                    kept(made.setdefault(arguments, thing))
        return made[arguments]

    return get  # type: ignore[return-value]
