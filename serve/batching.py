"""Requests that wait together become one call, where rows are independent of each other.

Which functions that holds for is found out when a model is loaded (`independence.py`). Requests are merged with those whose rows
have the same shape: of texts, those of the same length. None is padded, which changes the last bits of most sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..formats.messages.errors import TreadleError
from ..vm.budgets import CancelToken
from .batch_sizes import BatchSizes
from .config import ModelConfig
from .endpoint import Endpoint
from .errors import ClientGoneError, DeadlineError, ServeError
from .scheduler import Line, Work

Outputs = list[np.ndarray]
Done = Callable[["Outputs | None", "Exception | None"], None]


class Pending:
    """A request that waits for its turn, alone or with others."""

    __slots__ = (
        "arguments",
        "cancel",
        "deadline",
        "done",
        "ended",
        "endpoint",
        "gathering",
        "key",
        "rows",
        "since",
        "started",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        arguments: list[np.ndarray],
        rows: int | None,
        deadline: float | None,
        cancel: CancelToken | None,
        done: Done,
    ) -> None:
        """`rows` is None for a request that stays alone. `done(outputs, error)` is called once, in any thread."""
        self.endpoint, self.arguments, self.rows = endpoint, arguments, rows
        self.deadline, self.cancel, self.done = deadline, cancel, done
        self.key: Hashable = (
            (endpoint.function, tuple([array.shape[1:] for array in arguments])) if rows is not None else None
        )
        self.since = time.monotonic()
        self.started = self.ended = 0.0  # of the call that answers it, which others may share
        self.gathering = 0.0  # seconds that it took to put its rows among these

    def check_wanted(self) -> None:
        """Raises ClientGoneError, DeadlineError for a request that nobody waits for any more."""
        if self.cancel is not None and self.cancel.cancelled:
            raise ClientGoneError("the call was cancelled while it waited")
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise DeadlineError("the deadline passed while the request waited")

    def run(self) -> None:
        """Calls for this request alone."""
        try:
            self.check_wanted()
            self.started = time.monotonic()
            outputs = self.endpoint.run(self.arguments, self.deadline, self.cancel)
            self.ended = time.monotonic()
        except Exception as error:
            self.done(None, error)
        else:
            self.done(outputs, None)

    def together(self, members: Sequence[Pending]) -> Batch:
        """What calls once for this request and others of its key."""
        return Batch(members)


class Batch:
    """Several requests in one call."""

    def __init__(self, members: Sequence[Pending]) -> None:
        self.members = members
        self.rows = 0  # of the one call, once it has been made

    def run(self) -> None:
        """Calls once for all that still want it; each gets its rows. Where that fails, each is called for itself: what one holds
        must not be the others' error."""
        members = list(filter(self._is_wanted, self.members))
        if len(members) < 2:
            for each in members:
                each.run()
            return
        try:
            outputs = self.call(members)
        except (TreadleError, MemoryError):
            for each in members:
                each.run()
        except Exception as error:
            for each in members:
                each.done(None, error)
        else:
            for each, found in zip(members, outputs, strict=True):
                each.done(found, None)

    def call(self, members: Sequence[Pending]) -> list[Any]:
        """The outputs of each, of one call for all. Raises what the call raises."""
        begun = time.monotonic()
        deadlines = [each.deadline for each in members]
        deadline = None if None in deadlines else max(deadlines)  # type: ignore[type-var]
        arguments = [np.concatenate(parts) for parts in zip(*(each.arguments for each in members), strict=True)]
        started = time.monotonic()
        outputs = members[0].endpoint.run_merged(arguments, deadline, started - begun)
        first, ended = 0, time.monotonic()
        self.rows = len(arguments[0])
        found = []
        for each in members:
            each.gathering, each.started, each.ended = started - begun, started, ended
            assert each.rows is not None
            rows = slice(first, first + each.rows)
            first += each.rows
            found.append([array[rows] for array in outputs])
        return found

    @staticmethod
    def _is_wanted(each: Pending) -> bool:
        """Wakes those who wait for a request."""
        try:
            each.check_wanted()
        except ServeError as error:
            each.done(None, error)
            return False
        return True


class BatchLine(Line):
    """A line in which requests that fit together are taken together."""

    waiting: Any  # of Pending

    def __init__(self, name: str, config: ModelConfig) -> None:
        super().__init__(name, config.max_queue, config.instances)
        self._config = config
        # preferred ones are the owner's choice
        self._sizes = None if config.preferred else BatchSizes(config.max_batch)

    def due(self, now: float) -> float:
        """At once, unless more may still come for a batch that is not full."""
        first: Pending = self.waiting[0]
        if first.rows is None or not self._config.max_delay:
            return now
        rows = sum(each.rows or 0 for each in self._fitting(self._config.max_batch))
        if rows >= self._wanted(first, rows) or rows in self._config.preferred:
            return now
        return max(now, first.since + self._config.max_delay)

    def take(self) -> Pending | Batch:
        """The first request, and what fits after it."""
        first: Pending = self.waiting[0]
        most = self._config.max_batch
        if first.rows is not None and len(self.waiting) > 1:
            most = self._wanted(first, sum(each.rows or 0 for each in self._fitting(most)))
        members = self._fitting(most)
        if len(members) == 1:
            return self.waiting.popleft()
        taken = set(map(id, members))
        rest = [each for each in self.waiting if id(each) not in taken]
        self.waiting.clear()
        self.waiting.extend(rest)
        return first.together(members)

    def took(self, work: Work, seconds: float) -> None:
        """The time of this call informs the sizes of the next ones."""
        if self._sizes is None:
            return
        if isinstance(work, Batch):
            if work.rows:
                self._sizes.took(work.members[0].key, work.rows, seconds)
        elif isinstance(work, Pending) and work.rows and work.ended:
            self._sizes.took(work.key, work.rows, seconds)

    def _wanted(self, first: Pending, waiting: int) -> int:
        """The number of rows for a call that begins with this request, when `waiting` could join it."""
        return self._config.max_batch if self._sizes is None else self._sizes.wanted(first.key, waiting)

    def _fitting(self, most: int) -> list[Pending]:
        """The first request and the following ones that fit into one call with it, up to `most` rows."""
        first: Pending = self.waiting[0]
        members, rows = [first], first.rows
        if rows is None:
            return members
        for each in list(self.waiting)[1:]:
            if each.key == first.key and rows + each.rows <= most:
                members.append(each)
                rows += each.rows
        return members
