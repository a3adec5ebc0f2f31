"""What a call of a Relax program may use up (`vm/budgets.py`): its steps, seconds and arrays are counted between instructions.

A function of Python's that the program calls is not interrupted: it is over before the time is looked at. Its NumPy arrays count
as it makes them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from ....formats.messages.errors import BudgetExceededError, CancelledError
from ....vm.array_memory import bounded
from ....vm.budgets import Budget


class Meter:
    """Counts for one call, and for the calls of closures within it."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._steps = 0
        self._deadline = None if budget.max_seconds is None else time.monotonic() + budget.max_seconds

    def step(self, function: str) -> None:
        """An instruction of a function begins. Raises BudgetExceededError, CancelledError."""
        budget = self.budget
        if budget.cancel is not None and budget.cancel.cancelled:
            raise CancelledError("the call was cancelled", function=function)
        if budget.max_steps is not None and self._steps >= budget.max_steps:
            self._exceeded("steps", f"the call took more than {budget.max_steps} steps", function)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._exceeded("seconds", f"the call took longer than {budget.max_seconds} s", function)
        self._steps += 1

    def _exceeded(self, name: str, message: str, function: str) -> None:
        raise BudgetExceededError(f"{message}; raise max_{name}", budget=name, function=function)

    @contextlib.contextmanager
    def arrays(self, function: str) -> Iterator[None]:
        """Within this, arrays that the thread makes count. Raises BudgetExceededError."""
        most = self.budget.max_memory
        if most is None:
            yield
            return
        with bounded(most) as account:
            try:
                yield
            except MemoryError:
                if not account.was_refused:
                    raise
                self._exceeded("memory", f"the call's arrays take more than {most} bytes", function)
