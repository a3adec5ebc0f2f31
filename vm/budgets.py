"""Budgets: what a call may use up, and how it is stopped from outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import ArgumentError
from .layout import MAX_THREADS

DEFAULT_DEPTH = 200_000  # frames
BOUNDS = ("max_steps", "max_seconds", "max_memory", "max_depth", "threads")  # of a machine, and of its calls
OF_A_CALL = (*BOUNDS, "cancel")  # what a call takes beside its arguments
_UNITS = {"max_steps": "instructions", "max_seconds": "seconds", "max_memory": "bytes", "max_depth": "frames"}
_MOST = 1 << 61  # no call comes so far, and what it holds before fits into a word beside it


@public_class
class CancelToken(Suggesting):
    """Stops calls from another thread: `token.cancel()` makes the calls that were given it raise CancelledError."""

    __slots__ = ("_stops", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._stops: dict[int, Callable[[], None]] = {}  # of the calls that run, by their contexts' addresses

    def __repr__(self) -> str:
        running = f" of {len(self._stops)} running calls" if self._stops else ""
        return f"<CancelToken{running}: {'cancelled' if self.cancelled else 'not cancelled'}>"

    def cancel(self) -> None:
        """Ends the calls that run with this token, and each that begins with it from now on. It stays so."""
        self.cancelled = True
        for stop in list(self._stops.values()):
            stop()

    def attach(self, key: int, stop: Callable[[], None]) -> None:
        """Until `detach(key)`, a call that `stop` stops runs with this token."""
        self._stops[key] = stop

    def detach(self, key: int) -> None:
        self._stops.pop(key, None)


@dataclass(frozen=True)
class Budget:
    """The bounds of one call; None means no bound.

    Steps are instructions, of all frames: the same program on the same input takes the same number. Memory is bytes of
    objects and frames in use at once, depth the number of frames. So many threads share a kernel at most; there are no more than
    the process has (`threads.py`).
    """

    max_steps: int | None = None
    max_seconds: float | None = None
    max_memory: int | None = None
    max_depth: int = DEFAULT_DEPTH
    cancel: CancelToken | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, unit in _UNITS.items():
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= _MOST:
                object.__setattr__(self, name, _amount(name, value, unit))
        if self.cancel is not None and not isinstance(self.cancel, CancelToken):
            raise ArgumentError(f"cancel: expected a treadle.CancelToken, got {told(self.cancel)}")
        if self.threads is not None:
            check_threads(f"threads={self.threads!r}", self.threads)

    @property
    def is_depth_alone(self) -> bool:
        """True if calls may take the fast path, which knows no other bound; that of threads costs nothing."""
        return self == Budget(max_depth=self.max_depth, threads=self.threads)

    def but(self, **changes: Any) -> Budget:
        """This budget with some bounds changed; those that are None stay. Raises ArgumentError."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, **given) if given else self


def _amount(name: str, value: Any, unit: str) -> float | None:
    """A bound that is not a count of Python's: None, seconds, or a count as NumPy has it, or as 1e9. Raises ArgumentError."""
    if value is None:
        return DEFAULT_DEPTH if name == "max_depth" else None
    whole = name != "max_seconds"
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if is_number and value >= 0 and (not whole or (value < math.inf and value == int(value))):
        return min(int(value), _MOST) if whole else float(value)
    raise ArgumentError(
        f"{name}={value!r}: expected a {'whole ' * whole}number of {unit} that is not negative, or None"
    )


def check_threads(given: str, count: Any) -> None:
    """Raises ArgumentError for anything but a number of threads; `given` is how the user wrote it."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= MAX_THREADS:
        raise ArgumentError(f"{given}: expected a number from 1 to {MAX_THREADS}")
