"""Where this Python and NumPy keep what the engine reads of their objects, and by which functions it makes objects of its own.

All of it is looked up once a process and tried on live objects. What does not look as expected is not used: then arguments and
results are converted by Python. Reading and making objects needs the GIL: other threads may change an array's shape, or where
its elements are.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..formats.dtypes import DType
from ..native.once import once
from . import core
from .layout import CAPSULE, OWNER, PYTHON, READABLE, WORD
from .memory import word, words
from .tensor import Tensor

# Places in the table of NumPy's functions, the same in all its versions
_NEW_FROM_DESCRIPTOR, _SET_BASE_OBJECT = 94, 282


@once
def python_layout() -> Any:
    """Its `words` are those of PYTHON, at `address`. `works`: arguments may be read; `makes_arrays`: the functions are there.
    The engine, one of whose functions is among them, is built for it."""
    layout = without_engine()
    if layout.makes_arrays:
        layout.words[PYTHON.DROP] = ctypes.cast(core.engine().drop_owned, ctypes.c_void_p).value or 0
    return layout


@once
def without_engine() -> Any:
    """The same, but for the engine's own function: it says what works before there is an engine."""
    block = (ctypes.c_int64 * PYTHON.WORDS)()
    head = object.__basicsize__
    block[PYTHON.ITEMS], block[PYTHON.LENGTH] = tuple.__basicsize__, head
    block[PYTHON.TYPE], block[PYTHON.ARRAY] = head - WORD, id(np.ndarray)
    # PyArrayObject: data, nd (an int), dimensions, strides, base, descr, flags (an int)
    block[PYTHON.DATA], block[PYTHON.RANK], block[PYTHON.SHAPE] = head, head + 8, head + 16
    block[PYTHON.BASE], block[PYTHON.DESCRIPTOR], block[PYTHON.FLAGS] = head + 32, head + 40, head + 48
    # PyArray_Descr: typeobj, then kind, type, byteorder, flags (a char each), type_num (an int)
    block[PYTHON.KIND] = head + 8
    descriptors = (ctypes.c_int64 * (1 + max(dtype.code for dtype in DType)))()
    for dtype in DType:
        # arrays of others are made by Python: the package of their types is imported when there is one
        if dtype.is_numpys or dtype.is_string:
            descriptors[dtype.code] = id(dtype.numpy)
    block[PYTHON.DESCRIPTORS], block[PYTHON.NONE] = ctypes.addressof(descriptors), id(None)
    # a slot is behind the head; of PyTypeObject, behind the head of an object with a size, 29 words
    block[PYTHON.ELEMENTS], block[PYTHON.PARENT] = head, head + 30 * WORD
    block[PYTHON.TENSOR] = id(Tensor) if _tensors_look_right(block) else 1
    works = _looks_right(block) and _has_locks(block)
    makes_arrays = works and _has_functions(block)
    address = ctypes.addressof(block)
    return SimpleNamespace(
        words=block, address=address, works=works, makes_arrays=makes_arrays, descriptors=descriptors
    )


def _looks_right(layout: Any) -> bool:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    pair = (array, array.T)
    if np.ndarray.__basicsize__ < layout[PYTHON.FLAGS] + 4 or ctypes.sizeof(ctypes.c_void_p) != WORD:
        return False

    def at(thing: object, offset: str) -> int:
        return word(id(thing) + layout[getattr(PYTHON, offset)])

    def narrow(thing: object, offset: str) -> int:
        return ctypes.c_int32.from_address(id(thing) + layout[getattr(PYTHON, offset)]).value

    return (
        at(pair, "LENGTH") == 2
        and words(id(pair) + layout[PYTHON.ITEMS], 2) == (id(pair[0]), id(pair[1]))
        and at(array, "TYPE") == layout[PYTHON.ARRAY]
        and at(array, "DATA") == array.ctypes.data
        and narrow(array, "RANK") == 2
        and words(at(array, "SHAPE"), 2) == (2, 3)
        and at(array, "BASE") == id(array.base)
        and at(array.base, "BASE") == 0
        and at(array, "DESCRIPTOR") == id(np.dtype(np.float32))
        and all(_kind_looks_right(np.dtype(code), layout) for code in ("f4", ">f4", "?", "l", "q"))
        and narrow(array, "FLAGS") & READABLE == READABLE
        and narrow(pair[1], "FLAGS") & READABLE == READABLE & ~1
        and narrow(array.base, "FLAGS") & OWNER == OWNER
        and narrow(array, "FLAGS") & OWNER == 0
    )


def _tensors_look_right(layout: Any) -> bool:
    tensor = Tensor(array := np.zeros(1))
    elements = word(id(tensor) + layout[PYTHON.ELEMENTS])
    parents = [word(id(kind) + layout[PYTHON.PARENT]) for kind in (bool, np.memmap, KeyError)]
    return elements == id(array) and parents == [id(int), id(np.ndarray), id(LookupError)]


def _kind_looks_right(dtype: np.dtype, layout: Any) -> bool:
    at = id(dtype) + layout[PYTHON.KIND]
    letters, number = ctypes.string_at(at, 3).decode("latin-1"), ctypes.c_int32.from_address(at + 4).value
    return (letters, number) == (dtype.kind + dtype.char + dtype.byteorder, dtype.num)


def _has_locks(layout: Any) -> bool:
    """Fills in the functions that calls with arrays need. Where there is no GIL to hold, nothing may be read of an array that
    another thread may change: NumPy makes a view of it then, and Python binds that."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    python = ctypes.pythonapi
    functions = {
        PYTHON.RETAIN: python.Py_IncRef,
        PYTHON.RELEASE: python.Py_DecRef,
        PYTHON.UNLOCK: python.PyEval_SaveThread,
        PYTHON.LOCK: python.PyEval_RestoreThread,
        PYTHON.NEW_WEAK: python.PyWeakref_NewRef,
    }
    for place, function in functions.items():
        layout[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return True


def _has_functions(layout: Any) -> bool:
    """Fills in the functions that make objects, where this Python and NumPy have them."""
    if not _has_capsules():
        return False
    table = numpy_functions()
    if not table:
        return False
    python = ctypes.pythonapi
    functions = {
        PYTHON.NEW_TUPLE: python.PyTuple_New,
        PYTHON.SET_ITEM: python.PyTuple_SetItem,
        PYTHON.NEW_CAPSULE: python.PyCapsule_New,
        PYTHON.SET_CONTEXT: python.PyCapsule_SetContext,
    }
    for place, function in functions.items():
        layout[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
    layout[PYTHON.NEW_ARRAY] = word(table, _NEW_FROM_DESCRIPTOR)
    layout[PYTHON.SET_BASE] = word(table, _SET_BASE_OBJECT)
    return True


def _has_capsules() -> bool:
    """Whether capsules keep what they are made of where the engine looks for it."""
    capsule = _python("PyCapsule_New", ctypes.py_object, *[ctypes.c_void_p] * 3)(WORD, None, None)
    _python("PyCapsule_SetContext", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(capsule, 2 * WORD)
    return (word(id(capsule), CAPSULE.POINTER), word(id(capsule), CAPSULE.CONTEXT)) == (WORD, 2 * WORD)


def _python(name: str, *kinds: Any) -> Any:
    """A function of Python's, by the types of its result and arguments."""
    return ctypes.PYFUNCTYPE(*kinds)((name, ctypes.pythonapi))


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_ONE_ARGUMENT = 8  # METH_O


@once
def _method(name: str) -> _Method:
    """Of an entry point; Python refers to it as long as there may be a function of it."""
    function = ctypes.cast(getattr(core.engine(), name), ctypes.c_void_p).value
    return _Method(name.encode(), function, _ONE_ARGUMENT, None)


def method(name: str, owner: object) -> Callable[[Any], Any]:
    """A function of Python's, `f(x)`, that calls an entry point of the engine with the addresses of `owner`, which it keeps, and
    `x`: ctypes takes 0.1 µs to convert each argument."""
    return _python("PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ctypes.addressof(_method(name)), owner, None
    )


def numpy_functions() -> int:
    """The address of the table of NumPy's functions; 0 if it is not where it should be."""
    core_module = getattr(np, "_core", None) or np.core  # the name before NumPy 2
    capsule = getattr(getattr(core_module, "_multiarray_umath", None), "_ARRAY_API", None)
    pointer_of = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    return 0 if capsule is None else pointer_of(capsule, None) or 0
