"""Sequences of requests that build on each other: what a request does not give is as in the one before.

A sequence keeps its inputs, as `set_input` does, and, where the model's configuration says so, makes outputs the inputs of the
next call: a cache, a state. Requests of one sequence run one after another.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from .config import ModelConfig
from .errors import BadRequestError, OverloadedError
from .texts import nbytes


class Sequence:
    """One sequence's state, and whose turn it is."""

    def __init__(self) -> None:
        self.inputs: Mapping[str, np.ndarray] = {}
        self.bytes = 0  # of these
        self.last = time.monotonic()
        self.is_over = False
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()
        self.is_busy = False

    def enter(self, most: int) -> Future[None] | None:
        """The turn, if it is nobody's; else a future that is done when it is this request's. Then `leave` follows. Raises
        OverloadedError where `most` requests wait already."""
        with self._lock:
            if not self.is_busy:
                self.is_busy = True
                return None
            if len(self._waiting) >= most:
                raise OverloadedError(f"{most} requests of the sequence wait already; try again later")
            turn: Future[None] = Future()
            self._waiting.append(turn)
            return turn

    def leave(self) -> None:
        """Gives the turn to the first that still waits for it."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self.is_busy = False

    def give_up(self, turn: Future[None]) -> None:
        """Waits no longer for a turn."""
        if not turn.cancel():  # it has just come
            self.leave()


class Sequences:
    """The sequences of one endpoint, no more than may be, and none that nobody continues."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._open: OrderedDict[int | str, Sequence] = OrderedDict()  # those that were used longest ago come first
        self._bytes = 0  # that they keep

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: int | str, is_start: bool) -> Sequence:
        """The sequence of that id. Raises BadRequestError where it was not started, OverloadedError where there are too many."""
        now = time.monotonic()
        with self._lock:
            self._expire(now)
            if is_start:
                self._drop(key)
                if len(self._open) >= self._config.max_sequences:
                    raise OverloadedError(f"{len(self._open)} sequences are open already; end one, or try again later")
                self._open[key] = Sequence()
            found = self._open.get(key)
            if found is None:
                raise BadRequestError(f"sequence {key!r} is not open: start it with sequence_start, or it has expired")
            found.last = now
            self._open.move_to_end(key)
            return found

    def keep(self, sequence: Sequence, changed: Mapping[str, np.ndarray]) -> None:
        """Has a sequence keep these inputs, in place of those that it has by these names. Raises OverloadedError where all
        sequences together would keep more than they may."""
        inputs = {**sequence.inputs, **changed}
        size, most = sum(map(nbytes, inputs.values())), self._config.max_sequence_memory
        with self._lock:
            if sequence.is_over:  # what it kept does not count any more
                return
            others = self._bytes - sequence.bytes
            if others + size > most:
                raise OverloadedError(
                    f"the sequence would keep {size} bytes and others keep {others}; together they may keep {most} "
                    "(max_sequence_memory): end one, or try again later"
                )
            self._bytes, sequence.bytes = others + size, size
        sequence.inputs = inputs

    def end(self, key: int | str, sequence: Sequence) -> None:
        """Forgets a sequence."""
        with self._lock:
            if self._open.get(key) is sequence:
                self._drop(key)

    def expire(self) -> None:
        """Forgets those that nobody has continued for too long."""
        with self._lock:
            self._expire(time.monotonic())

    def _expire(self, now: float) -> None:
        dropped = []
        for key, each in self._open.items():  # no more of them than have expired: there may be very many
            if now - each.last < self._config.sequence_idle:
                break
            if not each.is_busy:
                dropped.append(key)
        for key in dropped:
            self._drop(key)

    def _drop(self, key: int | str) -> None:
        dropped = self._open.pop(key, None)
        if dropped is not None:
            dropped.is_over = True
            self._bytes -= dropped.bytes
