"""A bound on the memory of the arrays that NumPy makes for an operator, temporaries included.

NumPy takes the memory of an array from the handler that is set for the current context of Python (NEP 49). Ours counts, in native
code, and has none left where the bound is passed: NumPy raises MemoryError then.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from ..native.once import Lock, kept, once
from . import core
from .layout import ARRAYS
from .memory import word
from .python_layout import numpy_functions

# Places in the table of NumPy's functions, the same in all its versions that have them
_SET_HANDLER, _GET_HANDLER = 304, 305
_CAPSULE = b"mem_handler"


class _Handler(ctypes.Structure):
    """PyDataMem_Handler"""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("account", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


class Account:
    """The bytes of arrays made while this was the handler. It lives as long as the process: arrays refer to it."""

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * ARRAYS.WORDS)()
        engine = core.engine()
        functions = (engine.array_malloc, engine.array_calloc, engine.array_realloc, engine.array_free)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        self._handler = _Handler(b"treadle", 1, ctypes.addressof(self.words), *addresses)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        make = new(("PyCapsule_New", ctypes.pythonapi))
        self.capsule = make(ctypes.addressof(self._handler), _CAPSULE, None)
        kept(self)

    def pay(self, nbytes: int) -> None:
        """Counts memory that is not NumPy's, until the account is used again. Raises MemoryError where it passes the bound."""
        words = self.words
        if words[ARRAYS.USED] + nbytes > words[ARRAYS.MOST]:
            words[ARRAYS.REFUSED] = 1
            raise MemoryError
        words[ARRAYS.MOST] -= nbytes

    @property
    def was_refused(self) -> bool:
        """Whether an array would have passed the bound."""
        return bool(self.words[ARRAYS.REFUSED])


_lock = Lock()
_accounts: list[Account] = []  # that nobody uses now; arrays that were made on their account may live


@contextlib.contextmanager
def bounded(most: int) -> Iterator[Account]:
    """Arrays that this thread makes meanwhile, and what it pays for, have at most `most` bytes together. Arrays are not
    counted where NumPy cannot be told."""
    functions = handler_functions()
    with _lock:
        free = next((each for each in _accounts if not each.words[ARRAYS.USED]), None)
        if free is not None:
            _accounts.remove(free)
    account = free or Account()
    account.words[ARRAYS.MOST], account.words[ARRAYS.REFUSED] = most, 0
    before = None if functions is None else functions[0]()
    try:
        if functions is not None:
            functions[1](account.capsule)
        yield account
    finally:
        if functions is not None:
            functions[1](before)
        with _lock:
            _accounts.append(account)


@once
def handler_functions() -> tuple[Any, Any] | None:
    """NumPy's functions that give and set the handler of the current context; None where they are not what we know."""
    table = numpy_functions()
    if not table:
        return None
    get = ctypes.PYFUNCTYPE(ctypes.py_object)(word(table, _GET_HANDLER))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(word(table, _SET_HANDLER))
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
    valid = is_valid(("PyCapsule_IsValid", ctypes.pythonapi))
    return (get, set_handler) if valid(get(), _CAPSULE) else None
