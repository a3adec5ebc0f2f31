"""Numba's operations on numbers, for kernels: the types of results, and the code, from its tables alone.

Numba's own pipeline for functions is not used: it would optimise three times, emit code and load it, only for `platform.py` to
do so once more for its own target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from llvmlite import ir
from numba.core import compiler, cpu, imputils, types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.datamodel import default_manager
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.core.typing import BaseContext, templates
from numba.core.typing.templates import RegistryLoader

from .llvm import NativeTarget
from .once import once

# What Numba may assume of the operations that it gives the code of
_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy", "_nrt": False}


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


def _flags() -> Any:
    flags = compiler.Flags()
    cpu_target.options.parse_as_flags(flags, _OPTIONS)
    flags.no_compile = True  # type: ignore[misc,assignment]
    return flags


class _Types(BaseContext):
    """Numba's tables of what functions give. Without attributes, those of arrays and so on, which take half a second to load."""

    def install_registry(self, registry: Any) -> None:
        loader = self._registries.setdefault(registry, RegistryLoader(registry))
        for function, kind in loader.new_registrations("globals"):
            known = self._lookup_global(function)
            if known is not None:
                self._remove_global(function)
                kind = known.augment(kind)
            self._insert_global(function, kind)

    def refresh(self) -> None:
        super().refresh()
        self.install_registry(TYPES)


# What the vocabulary of kernels adds to Numba's tables. It stands in tables of its own, which the user's own functions never see.
TYPES = templates.Registry()
OPERATIONS = imputils.Registry("treadle")
MODELS: dict[type, Any] = {}


class _Codegen(JITCPUCodegen):
    """Numba's, for a CPU that is told, and not by the settings that hold for the user's own functions. Of another kind of machine
    than this process's it knows nothing, and need not: what it makes is not optimised yet (`platform.py`)."""

    def __init__(self, target: NativeTarget) -> None:
        known = target.is_of_this_process
        self._cpu_name, self._cpu_features = (target.cpu, target.features) if known else ("", "")
        super().__init__("treadle")

    def _get_host_cpu_name(self) -> str:
        return self._cpu_name

    def _get_host_cpu_features(self) -> str:
        return self._cpu_features


class _Operations(cpu.CPUContext):
    """The code of operations, likewise."""

    def __init__(self, typing: _Types, codegen: _Codegen) -> None:
        self._own_codegen = codegen
        super().__init__(typing)

    def init(self) -> None:
        super().init()
        self._internal_codegen = self._own_codegen
        self.data_model_manager = default_manager.copy()

    def load_additional_registries(self) -> None:
        from numba.cpython import numbers  # noqa: F401  it registers itself

        self.install_registry(OPERATIONS)
        for kind, model in MODELS.items():
            self.data_model_manager.register(kind, model)


@once
def _context(target: NativeTarget) -> Any:
    return compiler._make_subtarget(_Operations(_Types(), _Codegen(target)), _flags())


_Operation = tuple[Any, tuple[Any, ...], Callable[..., Any]]  # the result's type, what operands become first, the code
_operations: dict[tuple[Any, ...], _Operation] = {}  # by context, function and its operands' types


_target: ContextVar[NativeTarget] = ContextVar("target")


def active_target() -> NativeTarget:
    """The target of the function being compiled (`compiling_for`), which need not be this process's CPU."""
    return _target.get()


@contextlib.contextmanager
def compiling_for(target: NativeTarget) -> Iterator[None]:
    """Within this, instructions are for that target."""
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


class Lowering:
    """A function of Numba's convention that is made instruction by instruction, and what Numba knows of operations on numbers."""

    def __init__(self, symbol: str, target: NativeTarget) -> None:
        self._context, self._target = _context(target), target
        self._context.refresh()
        self._library = _Modules(self._context.codegen(), symbol)
        self._module = self._library.create_ir_module(symbol)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """While the function is made."""
        with compiling_for(self._target), global_compiler_lock, self._context.push_code_library(self._library):
            yield

    def declare(self, symbol: str, result: Any, arguments: Sequence[Any]) -> ir.Function:
        """The function; its first two arguments belong to the convention."""
        convention = self._context.call_conv
        function = ir.Function(self._module, convention.get_function_type(result, arguments), symbol)
        convention.decorate_function(function, [str(i) for i in range(len(arguments))], arguments)
        return function

    def call(
        self, builder: ir.IRBuilder, function: Any, operands: Sequence[tuple[Any, ir.Value]]
    ) -> tuple[Any, ir.Value]:
        """A function's result with its type. Raises NotImplementedError for a function in no table."""
        kinds = tuple([kind for kind, _ in operands])
        key = (self._context, function, kinds)
        operation = _operations.get(key)
        if operation is None:
            operation = _operations[key] = self._find(function, kinds)
        result, wanted, emit = operation
        values = [self.cast(builder, *each, kind) for each, kind in zip(operands, wanted, strict=True)]
        return result, emit(builder, values)

    def _find(self, function: Any, kinds: tuple[Any, ...]) -> _Operation:
        typing = self._context.typing_context
        known = typing.resolve_value_type(function)
        try:
            signature = known.get_call_type(typing, kinds, {})
            emit = self._context.get_function(known, signature)
        except (NumbaError, NotImplementedError):
            raise NotImplementedError(f"{function.__name__}({', '.join(map(str, kinds))})") from None
        return types.unliteral(signature.return_type), signature.args, emit

    def cast(self, builder: ir.IRBuilder, kind: Any, value: ir.Value, wanted: Any) -> ir.Value:
        return value if kind is wanted else self._context.cast(builder, value, kind, wanted)

    def give(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        """Ends the function with a result."""
        self._context.call_conv.return_value(builder, value)

    def texts(self) -> list[str]:
        """The LLVM texts of the function and of those that it calls, once it is made."""
        self._library.add_ir_module(self._module)
        return self._library.texts()
