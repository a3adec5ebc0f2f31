"""Bounds of a compilation's time and memory: `treadle.compile(…, max_seconds=…, max_memory=…)`.

Steps say that they begin (`step`), and ask before each node whether there is time and memory left (`check`), so that an error
names both, and nothing is interrupted in the middle. What is about to be made is asked for before it is made (`check_room`).
`effort.py` bounds the work that any model may ask for; this bounds what the caller gives.

`telling` says on standard error which step is under way, once that takes longer than two seconds.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..formats.messages.errors import BudgetExceededError, CompileBudgetError, CompileError
from ..formats.starting import Thread

_SAMPLE_SECONDS = 0.01  # between two looks at the memory that is in use: one takes some 10 us
_SILENCE = 2.0  # seconds that a step may take before it is told
_AGAIN = 4  # times the seconds that it took until then, after which it is told again
_LOOK = 0.25  # seconds between two looks at the step that is under way


@dataclass
class _Bounds:
    max_seconds: float
    max_memory: float
    until: float  # on the monotonic clock
    base: int = 0  # the least bytes that have been in use: what others leave behind is given back meanwhile
    most: int = 0  # bytes that have been in use at once, above these
    step: str = "the beginning"
    node: str = ""  # of the model, the last that was told


_current: ContextVar[_Bounds | None] = ContextVar("bounds", default=None)


@contextlib.contextmanager
def bounded(max_seconds: float | None = None, max_memory: int | None = None) -> Iterator[None]:
    """Within this, `check` raises CompileBudgetError after `max_seconds`, or when the process holds `max_memory` bytes more.
    Files that are mapped do not count, nor do the processes that build kernels. Without either, nothing is bounded anew.

    Raises CompileError for anything but a bound.
    """
    for name, value in (("max_seconds", max_seconds), ("max_memory", max_memory)):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        if value is not None and not is_number:
            raise CompileError(f"{name}={value!r}: expected a number that is not negative, or None")
    if max_seconds is None and max_memory is None:
        yield
        return
    seconds, memory = (math.inf if bound is None else bound for bound in (max_seconds, max_memory))
    bounds = _Bounds(seconds, memory, time.monotonic() + seconds, 0 if max_memory is None else _held_bytes())
    token = _current.set(bounds)
    try:
        with _sampling(bounds) if max_memory is not None else contextlib.nullcontext():
            yield
    finally:
        _current.reset(token)


def step(name: str) -> None:
    """A part of the compilation begins: from now on errors name it, and so does who tells of it."""
    if (teller := _teller.get()) is not None:
        teller.begin(lambda: name)
    if (bounds := _current.get()) is not None:
        bounds.step, bounds.node = name, ""
        check()


class Teller:
    """What is under way. Its clock is not that of bounds, which tests set."""

    def __init__(self) -> None:
        self.begin(str)

    def begin(self, text: Callable[[], str]) -> None:
        """Something else is under way, which a text is asked for when it is told; nothing is, where that is empty."""
        self.since = time.perf_counter()
        self.text = text

    def tell(self, ended: threading.Event) -> None:
        """Prints lines until it ends."""
        since, due = self.since, self.since + _SILENCE
        while not ended.wait(_LOOK):
            if self.since != since:
                since, due = self.since, self.since + _SILENCE
            seconds = time.perf_counter() - since
            if since + seconds > due and (text := self.text()) and sys.stderr is not None:
                print(f"treadle: {text}, {seconds:.0f} s so far", file=sys.stderr, flush=True)
                due = since + _AGAIN * seconds


_teller: ContextVar[Teller | None] = ContextVar("teller", default=None)


@contextlib.contextmanager
def telling(is_wanted: bool = True) -> Iterator[Teller]:
    """Within this, steps that take long are told on standard error, by a thread; where there is none, they are not."""
    outer = _teller.get()
    teller = outer or Teller()
    if outer is not None or not is_wanted:
        before = teller.text
        try:
            yield teller
        finally:
            teller.begin(before)
        return
    ended = threading.Event()
    thread = Thread(target=teller.tell, args=(ended,), name="treadle-progress", daemon=True)
    token = _teller.set(teller)
    try:
        with contextlib.suppress(RuntimeError):  # the system has no thread for this
            thread.start()
        yield teller
    finally:
        _teller.reset(token)
        ended.set()
        if thread.ident is not None:
            thread.join()


def check(node: str = "") -> None:
    """Asked before each node, whose name is given where there is one. Raises CompileBudgetError where a bound has been passed."""
    bounds = _current.get()
    if bounds is None:
        return
    bounds.node = node or bounds.node
    if time.monotonic() > bounds.until:
        raise _passed(bounds, "seconds", f"longer than max_seconds={bounds.max_seconds:g}")
    if bounds.most > bounds.max_memory:
        raise _passed(bounds, "memory", f"more than max_memory={bounds.max_memory:.0f} bytes ({bounds.most} so far)")


def check_room(nbytes: int) -> None:
    """`check` before an allocation of `nbytes`."""
    bounds = _current.get()
    if bounds is None:
        return
    check()
    if bounds.max_memory == math.inf:
        return
    needed = nbytes + _look(bounds)
    if needed > bounds.max_memory:
        what = f"more than max_memory={bounds.max_memory:.0f} bytes ({needed} with what is made next)"
        raise _passed(bounds, "memory", what)


def seconds_left() -> float | None:
    """None where time is not bounded."""
    bounds = _current.get()
    return None if bounds is None or bounds.until == math.inf else max(0.0, bounds.until - time.monotonic())


@contextlib.contextmanager
def naming_build() -> Iterator[None]:
    """Within this, kernels that are not built in time (`seconds_left`) are told as `check` tells."""
    try:
        yield
    except BudgetExceededError as error:
        bounds = _current.get()
        if bounds is None:
            raise
        raise _passed(bounds, "seconds", f"longer than max_seconds={bounds.max_seconds:g} ({error.message})") from None


def _passed(bounds: _Bounds, budget: str, what: str) -> CompileBudgetError:
    message = f"compiling takes {what}, in {bounds.step}"
    return CompileBudgetError(message, budget=budget, step=bounds.step, node=bounds.node or None)


@contextlib.contextmanager
def _sampling(bounds: _Bounds) -> Iterator[None]:
    """Meanwhile a thread looks at the memory in use: what an operator takes for itself is over when the next check comes."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            _look(bounds)

    thread = Thread(target=look, name="treadle-memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look(bounds: _Bounds) -> int:
    """Bytes in use above the least."""
    held = _held_bytes()
    bounds.base = min(bounds.base, held)
    bounds.most = max(bounds.most, held - bounds.base)
    return held - bounds.base


def _held_bytes() -> int:
    """Bytes of memory that this process has to itself; where the system does not tell, the most that it has ever had."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            fields: Any = file.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")  # resident, without files' pages
    except (OSError, ValueError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
