"""Sequences of requests that build on each other: what a request does not give is as in the one before.

A sequence keeps its inputs, as `set_input` does, and, where the model's configuration says so, makes outputs the inputs of the
next call: a cache, a state. Requests of one sequence run one after another.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

import numpy as np

from .config import ModelConfig
from .errors import BadRequestError, OverloadedError


class Sequence:
    """What one sequence keeps."""

    def __init__(self) -> None:
        self.inputs: dict[str, np.ndarray] = {}
        self.lock = threading.Lock()
        self.last = time.monotonic()


class Sequences:
    """The sequences of one endpoint, no more than may be, and none that nobody continues."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._open: OrderedDict[int | str, Sequence] = OrderedDict()  # those that were used longest ago come first

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: int | str, is_start: bool) -> Sequence:
        """The sequence of that id. Raises BadRequestError where it was not started, OverloadedError where there are too many."""
        now = time.monotonic()
        with self._lock:
            self._expire(now)
            if is_start:
                self._open.pop(key, None)
                if len(self._open) >= self._config.max_sequences:
                    raise OverloadedError(f"{len(self._open)} sequences are open already; end one, or try again later")
                self._open[key] = Sequence()
            found = self._open.get(key)
            if found is None:
                raise BadRequestError(f"sequence {key!r} is not open: start it with sequence_start, or it has expired")
            found.last = now
            self._open.move_to_end(key)
            return found

    def end(self, key: int | str, sequence: Sequence) -> None:
        """Forgets a sequence."""
        with self._lock:
            if self._open.get(key) is sequence:
                del self._open[key]

    def _expire(self, now: float) -> None:
        while self._open:
            key, oldest = next(iter(self._open.items()))
            if now - oldest.last < self._config.sequence_idle or oldest.lock.locked():
                return
            del self._open[key]
