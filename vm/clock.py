"""The bounds of a call while it runs: it is looked at each slice of work, whether its time, its steps or its caller end it."""

from __future__ import annotations

import time
from typing import Any

from ..formats.messages.errors import BudgetExceededError, CancelledError
from .budgets import Budget
from .context import SLICE_SECONDS, SLICE_TICKS, Context
from .layout import CONTEXT
from .places import Place
from .watch import WATCH

_FIRST_SLICE = SLICE_TICKS >> 5


class Clock:
    """Counts a call's steps and looks at its bounds, once a time slice."""

    def __init__(self, context: Context, budget: Budget, is_running: bool = False) -> None:
        self._context, self._budget = context, budget
        self._steps = 0  # that the slices before took
        is_timed = budget.max_seconds is not None or budget.cancel is not None
        self._slice = _FIRST_SLICE if is_timed and not is_running else SLICE_TICKS
        self._since = time.monotonic()
        self._deadline = None if budget.max_seconds is None else time.monotonic() + budget.max_seconds
        context.clock = self
        if self._deadline is not None:
            WATCH.add(context, self._deadline)
        if budget.cancel is not None:
            budget.cancel.attach(context.address, context.stop)
        if not is_running:
            self._check()
            self._refill()
        self._given = SLICE_TICKS if is_running else context.words[CONTEXT.FUEL]

    def close(self) -> None:
        """The call ends."""
        if self._deadline is not None:
            WATCH.remove(self._context)
        if self._budget.cancel is not None:
            self._budget.cancel.detach(self._context.address)

    def tick(self) -> None:
        """A slice is spent. Raises BudgetExceededError, CancelledError."""
        words = self._context.words
        self._steps += self._given - words[CONTEXT.FUEL] - words[CONTEXT.WORKED]
        self._check()
        self._adapt()
        self._refill()
        self._given = words[CONTEXT.FUEL]

    def _adapt(self) -> None:
        """The next slice's length, so that it takes the time it should: estimates of kernels for tensors of unknown sizes may
        be far off."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if seconds > 2 * SLICE_SECONDS:
            self._slice = max(1, int(self._slice * SLICE_SECONDS / seconds))
        else:
            self._slice = min(SLICE_TICKS, 2 * self._slice)

    def _refill(self) -> None:
        words, most = self._context.words, self._budget.max_steps
        words[CONTEXT.WORKED] = 0
        words[CONTEXT.FUEL] = self._slice if most is None else min(self._slice, most - self._steps)

    def _check(self) -> None:
        self.look()
        budget = self._budget
        if budget.max_steps is not None and self._steps >= budget.max_steps and self._is_running:
            self._exceeded("steps", f"the call took more than {budget.max_steps} steps")

    def look(self) -> None:
        """Has the call been cancelled, or run out of time? Raises BudgetExceededError, CancelledError."""
        budget = self._budget
        if budget.cancel is not None and budget.cancel.cancelled:
            raise CancelledError("the call was cancelled", **self._where())
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._exceeded("seconds", f"the call took more than {budget.max_seconds} s")

    @property
    def max_memory(self) -> int | None:
        """The bytes that the call may hold at once."""
        return self._budget.max_memory

    @property
    def may_end(self) -> bool:
        """Whether something but Ctrl-C can end the call in the middle of an operator."""
        return self._deadline is not None or self._budget.cancel is not None

    def _exceeded(self, name: str, message: str) -> None:
        raise BudgetExceededError(f"{message}; raise max_{name}", budget=name, **self._where())

    @property
    def _is_running(self) -> bool:
        return self._context.words[CONTEXT.FRAME] >= 0

    def _where(self) -> dict[str, Any]:
        return Place.current(self._context).where() if self._is_running else {}


class _Unbounded:
    """The clock of calls that have no bounds of time, while they do host operators."""

    max_memory, may_end = None, False

    def look(self) -> None:
        """Nothing has to be looked at."""

    close = look


UNBOUNDED = _Unbounded()
