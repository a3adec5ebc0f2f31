"""Undocumented internals of Numba, llvmlite, NumPy and CPython that Treadle relies on: in one table, with a probe for each.

`treadle doctor` runs the probes, which build no engine. What NumPy and CPython keep inside has a slower way around it, which
`python_layout.py` takes by itself; Numba's has none, and what breaks is named. A test compares `NAMES` with what the modules of
this package import.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass

from ..formats.messages.errors import TreadleError
from ..native.platform import ADVICE

# Modules and what is taken of them
NAMES = {
    "llvmlite": ("binding", "ir"),
    "numba.core": ("cgutils", "compiler", "config", "cpu", "imputils", "types"),
    "numba.core.codegen": ("JITCPUCodegen", "JITCodeLibrary"),
    "numba.core.compiler": ("Flags", "_make_subtarget"),
    "numba.core.compiler_lock": ("global_compiler_lock",),
    "numba.core.cpu": ("CPUContext",),
    "numba.core.datamodel": ("default_manager", "models"),
    "numba.core.errors": ("NumbaError",),
    "numba.core.extending": ("register_model",),
    "numba.core.imputils": ("lower_builtin",),
    "numba.core.registry": ("cpu_target",),
    "numba.core.typing": ("BaseContext", "templates"),
    "numba.core.typing.templates": ("AbstractTemplate", "RegistryLoader", "builtin_registry", "signature"),
    "numba.cpython": ("numbers",),
}

# Functions of the interpreter that ctypes finds by name
PYTHON_FUNCTIONS = (
    "PyCFunction_NewEx",
    "PyCapsule_GetPointer",
    "PyCapsule_IsValid",
    "PyCapsule_New",
    "PyCapsule_SetContext",
    "PyErr_CheckSignals",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyThreadState_SetAsyncExc",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyWeakref_NewRef",
    "Py_DecRef",
    "Py_IncRef",
)


@dataclass(frozen=True)
class Reliance:
    """`probe` gives what is not as expected, "" if nothing is; `otherwise` says what happens then."""

    name: str
    probe: Callable[[], str]
    otherwise: str

    def problem(self) -> str:
        """One sentence, or ""."""
        try:
            found = self.probe()
        except Exception as error:  # whatever a package does that is not the one we know
            found = f"{type(error).__name__}: {error}"
        return found and f"{found}; {self.otherwise}"


def missing_names() -> str:
    """The relied-on names that the installed Numba and llvmlite lack."""
    absent = []
    for name, attributes in NAMES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            absent.append(name)
            continue
        for attribute in attributes:
            if not hasattr(module, attribute):
                try:
                    importlib.import_module(f"{name}.{attribute}")
                except ImportError:
                    absent.append(f"{name}.{attribute}")
    return f"there is no {', '.join(absent)}" if absent else ""


def _compiles() -> str:
    """A function is made the way the engine is made, and runs."""
    from ..native import object_code, platform, words

    try:
        code = object_code.compile_object(
            words.source_of({"treadle_probe": _successor}), ["treadle_probe"], platform.host_target()
        )
        address = platform.load_object(code)["treadle_probe"]
    except TreadleError as error:
        return str(error)
    found = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(41)
    return "" if found == 42 else f"41 + 1 is compiled to {found}"


def _successor(x: int) -> int:
    return x + 1


def _layouts() -> str:
    from .python_layout import without_engine

    return "" if without_engine().works else "objects are laid out otherwise than expected"


def _functions() -> str:
    from .python_layout import without_engine

    return (
        ""
        if without_engine().makes_arrays
        else "the functions that make arrays and tuples are not where they should be"
    )


def _handlers() -> str:
    from .array_memory import handler_functions

    return "" if handler_functions() else "the functions that set who gives arrays their memory are not there"


def _blas() -> str:
    from .blas import thread_functions

    return "" if thread_functions() else "the BLAS of numpy is not OpenBLAS, or does not say how many threads it has"


def _python_functions() -> str:
    if sys.implementation.name != "cpython":
        return f"this is {sys.implementation.name}"
    absent = [name for name in PYTHON_FUNCTIONS if not hasattr(ctypes.pythonapi, name)]
    return f"this Python has no {', '.join(absent)}" if absent else ""


RELIANCES = (
    Reliance("names in numba and llvmlite", missing_names, f"nothing can be compiled; {ADVICE}"),
    Reliance("compiling by numba", _compiles, f"nothing can be compiled; {ADVICE}"),
    Reliance("layout of arrays and tuples", _layouts, "arguments and results are converted by Python, which is slower"),
    Reliance("functions of numpy", _functions, "results are made by Python, which is slower"),
    Reliance("memory of numpy's arrays", _handlers, "what operators of Python take is not bounded by max_memory"),
    Reliance("threads of numpy's BLAS", _blas, "operators of Python may wait for its threads where other programs run"),
    Reliance("functions of python", _python_functions, "use CPython 3.10 or newer"),
)
