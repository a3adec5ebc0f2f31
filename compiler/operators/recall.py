"""Per-machine caches of operators, for inputs that seldom change: the order of a table's keys, compiled expressions.

Each belongs to one operator, and dies with its machine; it holds the last call's inputs only; and the total of a process
is bounded: without room, an operator recomputes in each call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, Union

import numpy as np

from ...native.once import Lock

MOST = 1 << 25  # bytes that one operator keeps
IN_ALL = 1 << 27  # bytes that all of a process keep

_T = TypeVar("_T")
Key = Sequence[Union[np.ndarray, Hashable]]

_lock = Lock()
_kept: dict[int, int] = {}  # bytes, by the identity of what keeps them


class Recall:
    """The cache of one operator. Any number of threads may use it."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[Key, Any] | None = None

    def of(self, key: Key, nbytes: Callable[[_T], int], make: Callable[[], _T]) -> _T:
        """The result of `make` for these inputs, cached; with copies of them it takes about `nbytes`."""
        last = self._last
        if last is not None and len(last[0]) == len(key) and all(map(_are_equal, last[0], key)):
            return last[1]
        made = make()
        if self._takes(nbytes(made)):
            self._last = [_lasting(each) for each in key], made
        return made

    def _takes(self, nbytes: int) -> bool:
        """Whether there is room for `nbytes` in place of the current contents."""
        with _lock:
            if nbytes > MOST or kept_in_all() - _kept.get(id(self), 0) + nbytes > IN_ALL:
                return False
            _kept[id(self)] = nbytes
            return True

    def __del__(self) -> None:
        if _kept is not None:  # it is where Python ends
            _kept.pop(id(self), None)


def kept_in_all() -> int:
    """Bytes that operators of this process keep."""
    return sum(list(_kept.values()))


def recalled(recall: Recall | None, key: Key, nbytes: Callable[[_T], int], make: Callable[[], _T]) -> _T:
    """`recall.of`; without a cache, computed."""
    return make() if recall is None else recall.of(key, nbytes, make)


def _lasting(part: Any) -> Any:
    """A part of a key as it stays: a copy of an array whose elements may change or lie in the memory of a call."""
    return part.copy() if isinstance(part, np.ndarray) and (part.flags.writeable or part.base is not None) else part


def _are_equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not isinstance(one, np.ndarray):
        return bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype == object:
        return bool(one.tolist() == other.tolist())
    return np.array_equal(one.view(np.uint8), np.ascontiguousarray(other).view(np.uint8))  # NaN equals itself
