"""Turns of the remote device's sessions: how many requests they may have at once, and when each call runs.

No session keeps others waiting: each may always have one request, and the server's scheduler gives each line of calls its share.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from ...formats.messages.errors import BudgetExceededError, CancelledError, RemoteLimitError
from ...serve.scheduler import Line, Scheduler
from ...vm.budgets import CancelToken
from .sessions import Session

_T = TypeVar("_T")


class Places:
    """Requests of a kind that may be at once, of all sessions; one that has none always gets a place."""

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._lock = threading.Lock()
        self._of: Counter[bytes] = Counter()

    @contextlib.contextmanager
    def turn(self, session: Session) -> Iterator[None]:
        """Within this, a place is taken. Raises RemoteLimitError where there is none."""
        with self._lock:
            if self._of[session.id] and self._of.total() >= self._most:
                raise RemoteLimitError(f"the server has {self._most} {self._what}, its most; try again later")
            self._of[session.id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of[session.id] -= 1
                if not self._of[session.id]:
                    del self._of[session.id]


class _Waiting:
    """A task that one of the scheduler's threads does, unless nobody waits for it any more."""

    def __init__(self, task: Callable[[], object]) -> None:
        self._task = task
        self._lock = threading.Lock()
        self.changed = threading.Event()  # it is done, or its client has gone
        self._is_begun = False
        self._done = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        if not self.begin():
            return
        try:
            self.result = self._task()
        except BaseException as error:  # raised where it is waited for
            self.error = error
        finally:
            self._done.set()
            self.changed.set()

    def begin(self) -> bool:
        """Whether the caller is the first: either a thread does it, or the waiter gives it up."""
        with self._lock:
            is_first, self._is_begun = not self._is_begun, True
        return is_first

    def taken(self) -> object:
        """The task's result once it is over. Raises the task's exception."""
        self._done.wait()
        if self.error is not None:
            raise self.error
        return self.result


def in_turn(scheduler: Scheduler, line: Line, token: CancelToken, seconds: float, task: Callable[[], _T]) -> _T:
    """Does a task when it is its line's turn, in the thread at hand if that is now. Raises what the task raises,
    BudgetExceededError if its turn does not come within `seconds`, CancelledError, OverloadedError."""
    if scheduler.enter(line):
        start = time.perf_counter()
        try:
            return task()
        finally:
            scheduler.leave(line, time.perf_counter() - start)
    waiting = _Waiting(task)
    token.attach(id(waiting), waiting.changed.set)
    try:
        scheduler.submit(line, waiting)
        if token.cancelled:
            waiting.changed.set()
        waiting.changed.wait(seconds)
        if waiting.begin():  # it has not begun, and will not
            if token.cancelled:
                raise CancelledError("the call was cancelled while it waited")
            raise BudgetExceededError("the time of the call was over before its turn", budget="seconds")
        return waiting.taken()  # type: ignore[return-value]
    finally:
        token.detach(id(waiting))
