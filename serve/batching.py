"""Requests that wait together become one call, where rows are independent of each other.

A function can take several requests at once if all its inputs and outputs begin with one dimension, the rows, that nothing else
depends on, and no row of a result depends on another row of the inputs. The first is read off its type. The second is tried
when the model is loaded: whatever other rows hold, NaN and infinities too, a row's result must be the same to the bit. Code with
branches is never merged, since what is tried may not take them all; a model's configuration can say otherwise.

Nor may an answer depend on what else is asked: where one row alone is computed in another order than several, which is seen in
the last bits, a request of one row is called with two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats import dims
from ..formats.errors import TreadleError
from ..formats.ports import Port
from ..formats.types import TensorType
from ..vm.budgets import CancelToken
from .batch_sizes import BatchSizes
from .config import ModelConfig
from .endpoint import Endpoint
from .errors import ClientGoneError, DeadlineError, ServeError, as_serve_error
from .scheduler import Line, Work
from .texts import is_texts, packed

Outputs = list[np.ndarray]
Done = Callable[["Outputs | None", "Exception | None"], None]

_TRIED_SIZES = (8, 1, 4, 16, 32)  # of dimensions that are not the rows
_TRIED_TEXTS = ("", "0", "1", "2.5", "a", "B", "a b", "é")
_TRY_SECONDS = 20.0  # that trying a model may take; then its requests are not merged


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
        self.key = (endpoint.function, tuple([array.shape[1:] for array in arguments])) if rows is not None else None
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
        begun = time.monotonic()
        deadlines = [each.deadline for each in members]
        deadline = None if None in deadlines else max(deadlines)  # type: ignore[type-var]
        try:
            arguments = [np.concatenate(parts) for parts in zip(*(each.arguments for each in members), strict=True)]
            started = time.monotonic()
            outputs = members[0].endpoint.run(arguments, deadline, gathering=started - begun)
        except (TreadleError, MemoryError):
            for each in members:
                each.run()
            return
        except Exception as error:
            for each in members:
                each.done(None, error)
            return
        first, ended = 0, time.monotonic()
        self.rows = len(arguments[0])
        for each in members:
            each.gathering, each.started, each.ended = started - begun, started, ended
            assert each.rows is not None
            rows = slice(first, first + each.rows)
            first += each.rows
            each.done([array[rows] for array in outputs], None)

    @staticmethod
    def _is_wanted(each: Pending) -> bool:
        """Tells whoever waits for a request, or did, where it is not."""
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
        """The first request, and what fits behind it."""
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
        return Batch(members)

    def took(self, work: Work, seconds: float) -> None:
        """What calls of so many rows take decides how many the next ones have."""
        if self._sizes is None:
            return
        if isinstance(work, Batch):
            if work.rows:
                self._sizes.took(work.members[0].key, work.rows, seconds)
        elif isinstance(work, Pending) and work.rows and work.ended:
            self._sizes.took(work.key, work.rows, seconds)

    def _wanted(self, first: Pending, waiting: int) -> int:
        """How many rows a call should have that begins with this request, where so many could be in it."""
        return self._config.max_batch if self._sizes is None else self._sizes.wanted(first.key, waiting)

    def _fitting(self, most: int) -> list[Pending]:
        """The first request and the next ones that can be one call with it, up to so many rows."""
        first: Pending = self.waiting[0]
        members, rows = [first], first.rows
        if rows is None:
            return members
        for each in list(self.waiting)[1:]:
            if each.key == first.key and rows + each.rows <= most:
                members.append(each)
                rows += each.rows
        return members


# ---- which functions ----


def rows_of(endpoint: Endpoint) -> str | None:
    """The variable that is the first dimension of all inputs and outputs, and of no other; None if there is none."""
    ports = (*endpoint.inputs, *endpoint.outputs)
    name = None
    for port in ports:
        shape = port.type.shape if isinstance(port.type, TensorType) else ()
        if not shape or not dims.is_variable(shape[0]):  # type: ignore[arg-type]
            return None
        name = name or str(shape[0])
        if str(shape[0]) != name or any(name in dims.variables(dim) for dim in shape[1:]):  # type: ignore[arg-type]
            return None
    return name if endpoint.inputs else None


def least_rows(endpoint: Endpoint, most: int) -> int | None:
    """How many rows a call must have so that a row's result is the same to the bit in any call of up to `most` rows: 1, or 2
    where one row alone is computed in another order. None where requests must not be merged: see above."""
    rows = rows_of(endpoint)
    if rows is None or not endpoint.is_straight:
        return None
    deadline = time.monotonic() + _TRY_SECONDS
    for size in _TRIED_SIZES:
        try:
            return _tried_rows(endpoint, size, most, deadline)
        except TreadleError as error:  # these sizes do not suit the model
            if isinstance(as_serve_error(error), DeadlineError):
                return None
    return None


def _tried_rows(endpoint: Endpoint, size: int, most: int, deadline: float) -> int | None:
    rng = np.random.default_rng(0)
    row = [_row(port, size, rng) for port in endpoint.inputs]

    def result(count: int, fill: float | None = None) -> list[bytes]:
        """The bits of the row's result in a call of so many rows, in the middle of which it is."""
        before = count // 2
        arguments = []
        for port, own in zip(endpoint.inputs, row, strict=True):
            others = [_row(port, size, rng) for _ in range(count - 1)]
            if fill is not None and own.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    others = [np.full_like(own, fill)] * (count - 1)
            arguments.append(np.concatenate([*others[:before], own, *others[before:]]))
        return [_bits(array[before : before + 1]) for array in endpoint.run(arguments, deadline)]

    expected = result(3)
    for fill in (None, None, np.nan, np.inf, -np.inf, 1e30, 0.0):
        if result(3, fill) != expected:
            return None
    if any(result(count) != expected for count in {2, min(5, most), most} - {0, 1}):
        return None
    return 1 if result(1) == expected else 2


def _bits(array: np.ndarray) -> bytes:
    return packed(array) if is_texts(array) else array.tobytes()


def _row(port: Port, size: int, rng: np.random.Generator) -> np.ndarray:
    """A row of an input: small whole numbers, which are places in any table, or floats around 0."""
    type_ = port.type
    assert isinstance(type_, TensorType)
    shape = (1, *(dim if isinstance(dim, int) else size for dim in type_.shape[1:]))
    if type_.dtype.is_string:
        return rng.choice(_TRIED_TEXTS, shape).astype(object)
    if type_.dtype.is_float:
        return rng.standard_normal(shape).astype(type_.dtype.numpy)
    return rng.integers(0, 2, shape).astype(type_.dtype.numpy)
