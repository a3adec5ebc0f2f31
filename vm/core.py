"""The engine as this process sees it: its entry points, as functions of C called through ctypes.

The engine is compiled once a machine and kept as object code in the kernel cache; a process that finds it there never imports
Numba.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from ..formats.errors import CompileError
from . import native, sources
from .once import is_forked, once

_WORD = ctypes.c_int64


class Entry(NamedTuple):
    """An entry point: where it is defined, its number of words as arguments, whether others may run meanwhile, what it gives."""

    module: str
    arguments: int
    releases_gil: bool = False
    result: Any = _WORD


ENTRIES: dict[str, Entry] = {
    "run": Entry("engine", 1, releases_gil=True),
    "call_arrays": Entry("engine", 4),  # releases it itself, once the arrays are read
    "call_bound": Entry("engine", 4, releases_gil=True),
    "give_places": Entry("engine", 2),
    "take_arrays": Entry("arrays", 1, result=ctypes.py_object),
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
}


@once
def engine() -> SimpleNamespace:
    """The entry points by name. The first call on a machine compiles them, which takes some seconds."""
    native.check_runnable()
    addresses = native.load_object(_object_code())
    return SimpleNamespace(**{name: _function(entry, addresses[name]) for name, entry in ENTRIES.items()})


def is_built() -> bool:
    """Whether the engine's object code is in the cache."""
    return native.cache().get(_key()) is not None


def _function(entry: Entry, address: int) -> Callable[..., int]:
    prototype = ctypes.CFUNCTYPE if entry.releases_gil else ctypes.PYFUNCTYPE
    return prototype(entry.result, *[_WORD] * entry.arguments)(address)


def _object_code() -> bytes:
    cache = native.cache()
    key = _key()
    code = cache.get(key)
    if code is None:
        if sys.stderr is not None and sys.stderr.isatty():
            print("Treadle builds its engine for this machine, once …", file=sys.stderr, flush=True)
        code = _compiled_elsewhere() if is_forked() else _compiled()
        cache.put(key, code)
    return code


def _key() -> str:
    identity = f"{sources.engine_version()} {native.host_target().key} {object.__basicsize__}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _compiled_elsewhere() -> bytes:
    """In a child of fork, another thread of the parent may hold Numba's locks for ever."""
    from . import processes

    program = f"import sys; from {__name__} import _compiled; sys.stdout.buffer.write(_compiled())"
    done = processes.run(program, stdout=processes.PIPE)
    if done.returncode:
        raise CompileError(f"the process that builds the engine failed, with exit status {done.returncode}")
    return done.stdout


def _compiled(target: native.NativeTarget | None = None) -> bytes:
    from . import arrays, heap, parallel, words
    from . import engine as loop

    modules: dict[str, Any] = {"arrays": arrays, "engine": loop, "heap": heap, "parallel": parallel}
    entries = {name: getattr(modules[entry.module], name) for name, entry in ENTRIES.items()}
    return native.compile_object(words.source_of(entries), list(entries), target, aligns=False)
