"""Ends calls that are in native code: at their deadlines, and on Ctrl-C.

Python's signal handlers run on the main thread alone, between its bytecodes, and there are none until the engine returns. So
one thread waits for Python's signals on a pipe, through `signal.set_wakeup_fd`, which is made for that, and for the nearest
deadline. It sets a call's stop word, which the engine and the loops of kernels look at; the calling thread then
finds out why. Calls without deadlines cost nothing; the thread sleeps while there are none.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from ..formats.messages.errors import ExecutionError
from ..formats.starting import Thread
from ..native.once import Lock, uninterrupted
from .context import Context

_PERIOD = 0.01  # seconds between two looks at the deadlines while there are any
# Seconds without deadlines after which nobody looks until the next one comes: waking the thread takes a system call
_PATIENCE = 1.0

# The functions that run native code for a call, whose Context is their local variable `context`. That says on which call the main
# thread is, and costs that call nothing: a register of running calls would take a twentieth of a small model's time.
_ENTRANCES: set[CodeType] = set()

_F = TypeVar("_F", bound=Callable[..., Any])


def entrance(function: _F) -> _F:
    """Marks a function that runs native code for the call of its local variable `context`: Ctrl-C ends that code."""
    code: CodeType = function.__code__
    if "context" not in code.co_varnames:
        raise TypeError(f"{function.__qualname__} has no local variable `context`")
    _ENTRANCES.add(code)
    return function


class _Watch:
    """The thread, what it waits for, and the pipe by which it is woken. One a process."""

    def __init__(self) -> None:
        self._deadlines: dict[int, tuple[float, Context]] = {}  # by the contexts' addresses
        self._lock = Lock()
        self._is_idle = False
        self._pipe: tuple[int, int] | None = None  # once the thread runs

    def add(self, context: Context, deadline: float) -> None:
        """Stops a call at a time of the monotonic clock. Raises ExecutionError where nobody can watch that."""
        try:
            write = self._started()
        except (OSError, RuntimeError) as error:
            raise ExecutionError(
                f"a call's time cannot be bounded: the system has no thread or pipe for that ({error})"
            ) from error
        self._deadlines[context.address] = deadline, context
        # the thread alone says that it is not: Ctrl-C may come between a word of ours and what wakes it
        if self._is_idle:
            with contextlib.suppress(BlockingIOError):  # it has been woken often enough
                os.write(write, b"\0")

    def remove(self, context: Context) -> None:
        self._deadlines.pop(context.address, None)

    def await_signals(self) -> None:
        """Has Python tell this thread of signals, unless it tells someone else. The main thread alone may say so: nothing
        happens on others, nor where the system has no thread or pipe for that now; each new context asks again."""
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            write = self._started()
        except (OSError, RuntimeError):
            return
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before not in (-1, write):
            signal.set_wakeup_fd(before)

    def forget(self) -> None:
        """In a child of fork, which has none of its parent's threads, but their pipe."""
        if self._pipe is None:
            return
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, self._pipe[1]):
            signal.set_wakeup_fd(before)
        for end in self._pipe:
            os.close(end)
        self.__init__()  # type: ignore[misc]
        self.await_signals()  # machines and contexts that the child inherits will not ask for it again

    def _started(self) -> int:
        """Starts the thread, unless it runs. Where to write to wake it."""
        with self._lock:
            if self._pipe is None:
                uninterrupted(self._start)
            assert self._pipe is not None
            return self._pipe[1]

    def _start(self) -> None:
        pipe = os.pipe()
        try:
            for end in pipe:
                os.set_blocking(end, False)
            Thread(target=self._run, args=(pipe[0],), name="treadle-watch", daemon=True).start()
        except BaseException:  # no memory among them
            for end in pipe:
                os.close(end)
            raise
        self._pipe = pipe

    def _run(self, pipe: int) -> None:
        busy = float("-inf")  # when there were deadlines the last time
        while True:
            self._is_idle = not self._deadlines and time.monotonic() - busy > _PATIENCE
            if self._is_idle and self._deadlines:  # it arrived just now
                self._is_idle = False
            ready, _, _ = select.select([pipe], [], [], None if self._is_idle else self._seconds())
            if ready and signal.SIGINT in os.read(pipe, 1 << 12):
                _interrupt()
            busy = self._stop_late() or busy

    def _stop_late(self) -> float | None:
        """Stops the calls whose time is over; what time it is, if there are any with a deadline. A function of its own, so that
        the thread keeps no context while it waits."""
        now = time.monotonic()
        calls = list(self._deadlines.values())
        for deadline, context in calls:
            if deadline <= now:
                context.stop()
        return now if calls else None

    def _seconds(self) -> float:
        """Until there is something to be done."""
        nearest = min((deadline for deadline, _ in list(self._deadlines.values())), default=float("inf"))
        wait = nearest - time.monotonic()
        return wait if 0 < wait < _PERIOD else _PERIOD  # a call that has been stopped may take some time to end


def _interrupt() -> None:
    """Ctrl-C has come, whose handler raises KeyboardInterrupt: if the main thread is in native code, that is left."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is not None and frame.f_code in _ENTRANCES:
        # none yet, or of a call that is just over: the next one takes that back
        context = frame.f_locals.get("context")
        if isinstance(context, Context):
            context.stop()


WATCH = _Watch()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCH.forget)
