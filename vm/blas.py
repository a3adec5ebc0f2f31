"""How many threads NumPy's BLAS may use.

A host operator's BLAS has one. OpenBLAS's threads wait for each other by spinning, dozens of times in one factorisation; where
another program, or a thread of ours, holds a core, each wait takes a time slice: on two busy cores, systems of 128 equations
took 0.4 to 200 ms on two threads, and 0.4 ms on one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np

from ..native.once import Lock, once

# In NumPy's wheels, in others' builds of 64-bit integers, and in those of systems
_NAMES = ("scipy_openblas_{}64_", "openblas_{}64_", "scipy_openblas_{}", "openblas_{}")

Functions = tuple[Callable[[], int], Callable[[int], None]]

_lock = Lock()
# that want one thread; where Ctrl-C left one here, the next operator takes it away
_users: set[threading.Thread] = set()
_before = 1  # how many threads BLAS had before the first of them


@once
def thread_functions() -> Functions | None:
    """What gives and sets the number of threads of the BLAS that NumPy has loaded; None for another than OpenBLAS."""
    try:
        library = ctypes.CDLL(np.linalg._umath_linalg.__file__)  # with all that it has loaded
    except (AttributeError, OSError):
        return None
    for name in _NAMES:
        with contextlib.suppress(AttributeError):
            get, set_ = (
                getattr(library, name.format("get_num_threads")),
                getattr(library, name.format("set_num_threads")),
            )
            get.restype, set_.restype, set_.argtypes = ctypes.c_int, None, [ctypes.c_int]
            return get, set_
    return None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """BLAS computes on the calling thread meanwhile. The number is the process's: so it does for other threads, too."""
    global _before
    functions = thread_functions()
    if functions is None:
        yield
        return
    get, set_, me = *functions, threading.current_thread()
    try:
        with _lock:
            if not _users:
                _before = get()
            _users.add(me)
            set_(1)
        yield
    finally:
        with _lock:
            if any(each.is_alive() for each in _users if each is not me):
                _users.discard(me)
            elif _users:
                set_(_before)
                _users.clear()


def _after_fork() -> None:
    """A child has none of the threads that wanted it so."""
    functions = thread_functions() if _users else None
    _users.clear()
    if functions is not None:
        functions[1](_before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
