"""The engine's entry points, and how its object code is made: what is imported here decides about it, and so does its key."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ..native.llvm import NativeTarget

WORD = ctypes.c_int64


class Entry(NamedTuple):
    """An entry point: where it is defined, its number of words as arguments, whether others may run meanwhile, what it gives."""

    module: str
    arguments: int
    releases_gil: bool = False
    result: Any = WORD


ENTRIES: dict[str, Entry] = {
    "run": Entry("engine", 1, releases_gil=True),
    "call_arrays": Entry("engine", 4),  # releases it itself, once the arrays are read
    "call_bound": Entry("engine", 4, releases_gil=True),
    "give_places": Entry("engine", 2),
    "take_arrays": Entry("arrays", 1, result=ctypes.py_object),
    "copy_arrays": Entry("arrays", 2, result=ctypes.py_object),
    "unpin_arrays": Entry("arrays", 1),
    "drop_owned": Entry("arrays", 1),
    "start": Entry("engine", 2),
    "unwind": Entry("engine", 1),
    "drop": Entry("heap", 2),
    "retain_reference": Entry("heap", 1),
    "new_tensor": Entry("heap", 4),
    "new_like": Entry("heap", 2),
    "new_view": Entry("heap", 5),
    "new_record": Entry("heap", 5),
    "array_malloc": Entry("heap", 2),
    "array_calloc": Entry("heap", 3),
    "array_realloc": Entry("heap", 3),
    "array_free": Entry("heap", 3),
    "close": Entry("heap", 1),
    "settle": Entry("heap", 1),
    "hand_back": Entry("heap", 1),
    "work": Entry("parallel", 3, releases_gil=True),
    "wake": Entry("parallel", 2),
    "own": Entry("parallel", 1),
    "leave": Entry("parallel", 1),
    "rest": Entry("parallel", 1),
    "ticks": Entry("parallel", 0),
    "new_storage": Entry("heap", 2),
    "push": Entry("heap", 6),
}


def least(triple: str) -> NativeTarget:
    """The least CPU of an architecture, for which the engine is made: it is arithmetic on words, of which newer instructions make
    nothing faster (Zen 5, `treadle bench dispatch`: 4.9 ns for x86-64, 5.5 to 5.7 for x86-64-v3, -v4 and that CPU itself)."""
    target = NativeTarget(triple, "generic", "")
    return NativeTarget(triple, "x86-64", "") if target.is_x86 else target


def compiled(target: NativeTarget) -> bytes:
    """The engine's object code. Imports LLVM. Raises CompileError."""
    from ..native.object_code import compile_object
    from ..native.words import source_of
    from . import arrays, engine, heap, parallel

    modules: dict[str, Any] = {"arrays": arrays, "engine": engine, "heap": heap, "parallel": parallel}
    functions = {name: getattr(modules[entry.module], name) for name, entry in ENTRIES.items()}
    return compile_object(source_of(functions), list(functions), target, aligns=False)
