"""Python functions → LLVM text that is not optimised yet, by as much of Numba as that takes.

Numba would go on: optimise three times, emit code and load it, only for `native.py` to do so once more for its own target.
Its rewriting passes, for arrays and closures, find nothing in the functions of this package either, and where variables die
matters to Python objects alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import compiler, sigutils, typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target

_PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)

_OPTIONS = {
    "nopython": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
}


class _Compiler(compiler.CompilerBase):
    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("treadle")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class _Modules(JITCodeLibrary):
    """Collects what a function is lowered to, and leaves the rest to others."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.own: list[str] = []

    def add_ir_module(self, ir_module: Any) -> None:
        self.own.append(str(ir_module))

    def texts(self) -> list[str]:
        """Callers first: a linker leaves out functions that nothing has called yet."""
        # in this form a function may be defined again, as libraries have some in common
        linked = [str(library._get_module_for_linking()) for library in dict.fromkeys(self._linking_libraries)]
        return self.own + linked


_signatures: dict[tuple[Any, ...], Any] = {}


@contextlib.contextmanager
def _remembered_signatures() -> Iterator[None]:
    """Numba searches its tables for what an operator gives for such operands each time that it meets one, several times over.
    Ours are few, and what they give does not change."""
    functions: Any = types.BaseFunction
    search = functions.get_call_type

    def get_call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        if named:
            return search(function, context, arguments, named)
        key = (function, *arguments)
        if key not in _signatures:
            _signatures[key] = search(function, context, arguments, named)
        return _signatures[key]

    functions.get_call_type = get_call_type
    try:
        yield
    finally:
        functions.get_call_type = search


@global_compiler_lock
@_remembered_signatures()
def lower(function: Callable, signature: str) -> tuple[list[str], str]:
    """The LLVM texts of a function and of those it calls, and its name in there. Raises NumbaError."""
    arguments, result = sigutils.normalize_signature(signature)
    flags = compiler.Flags()
    cpu_target.options.parse_as_flags(flags, _OPTIONS)
    flags.no_compile = True  # type: ignore[misc,assignment]
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    library = _Modules(target.codegen(), function.__name__)
    compiled = compiler.compile_extra(
        typing, target, function, arguments, result, flags, {}, library=library, pipeline_class=_Compiler
    )
    return library.texts(), compiled.fndesc.llvm_func_name
