"""Work of Python's on the host, which is cut into pieces and pays for what it makes.

One call of C's ends when it is done: nobody can stop it, and all threads of Python's wait while it holds the interpreter's lock.
Python's objects, and what a library allocates, are seen by no allocator of ours (`vm/array_memory.py` sees NumPy's). So code that
works on texts, on arrays of objects or by a library does two things, in every thread:

- it works in pieces of some milliseconds (`spans`, `rows`, `CHARACTERS`), with a call of `look` between two,
- it calls `pay` with the bytes of what a piece makes before it makes it.

The caller sets a `Meter` that bounds the work (`metered`); without one nothing is bounded, but all is in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Union

import numpy as np

Row = Union[Sequence[str], np.ndarray]  # texts one after the other

ITEMS = 1 << 12  # objects of a piece: about a millisecond
CHARACTERS = 1 << 16  # of texts in a piece
STEPS = 1 << 13  # of an automaton, each about half a microsecond, between two looks
OBJECT = 60  # bytes of a text of Python's without its characters, and of the place that refers to it
NUMBER = 40  # bytes of a number of Python's, and of the place that refers to it


class Meter:
    """Bounds of the work that goes on: `look` raises when the work must end, `pay` when memory is exhausted."""

    __slots__ = ("_steps", "look", "pay")

    def __init__(self, look: Callable[[], None], pay: Callable[[int], None]) -> None:
        self.look, self.pay = look, pay
        self._steps = 0

    def step(self, count: int) -> None:
        self._steps += count
        if self._steps >= STEPS:
            self._steps = 0
            self.look()


def free(nbytes: int) -> None:
    """`pay` of work whose memory nobody bounds."""


def _go_on() -> None:
    """`look` of work whose time nobody bounds."""


UNBOUNDED = Meter(_go_on, free)
_current: ContextVar[Meter] = ContextVar("meter", default=UNBOUNDED)


def meter(meter: Meter) -> None:
    """From now on, work in this context of Python's is bounded by a meter."""
    _current.set(meter)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Within this, work is bounded by a meter."""
    before = _current.get()
    _current.set(meter)
    try:
        yield
    finally:
        _current.set(before)


def look() -> None:
    """Raises BudgetExceededError or CancelledError where the work is to end."""
    _current.get().look()


def pay(nbytes: int) -> None:
    """Counts bytes that are taken next. Raises MemoryError where they are too many; they are given back when the work ends."""
    _current.get().pay(nbytes)


def step(count: int) -> None:
    """Counts small steps, and looks now and then."""
    _current.get().step(count)


def spans(count: int, most: int = ITEMS) -> Iterator[slice]:
    """Slices of a range, a piece each; between two of them `look` may end the work."""
    for begin in range(0, count, most):
        if begin:
            look()
        yield slice(begin, min(begin + most, count))


def rows(texts: Row) -> Iterator[slice]:
    """`spans` of texts: with more characters than those of a piece only where a text has them alone."""
    for span in spans(len(texts)):
        if sum(map(len, texts[span])) <= CHARACTERS:
            yield span
            continue
        begin, characters = span.start, 0
        for at, size in enumerate(map(len, texts[span]), span.start):
            characters += size
            if characters > CHARACTERS and at > begin:
                yield slice(begin, at)
                look()
                begin, characters = at, size
        yield slice(begin, span.stop)


def pieces(texts: Row) -> Iterable[list[str]]:
    """The texts, a list for each of their `rows`."""
    if len(texts) <= ITEMS:
        whole = texts.tolist() if isinstance(texts, np.ndarray) else list(texts)
        if sum(map(len, whole)) <= CHARACTERS:
            return (whole,)
    return (list(texts[span]) for span in rows(texts))
