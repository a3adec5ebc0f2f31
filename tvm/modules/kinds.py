"""Kinds of modules: an executable, its kernels, an object file of the user's, the functions of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.codec import Buffer
from ...formats.container import named
from ...formats.executable import BUNDLED, Executable, load
from ...formats.messages.errors import FileError, FormatError, MissingModuleError
from ...formats.program import NativeKernel, Program
from ...native import platform
from ...vm import library
from ...vm.machine import VirtualMachine
from ..graphs.names import PREFIXES, own_names
from . import linker, registry
from .kernel_function import kernel_function
from .module import ENTRY, Module


class _OfExecutable(Module):
    """What modules have in common that are an executable's bytes and kernels."""

    executable: Executable

    def pieces(self) -> list[Buffer] | None:
        return [self.executable.as_bytes()]

    def has_native_code(self) -> bool:
        return bool(self.executable.program.primitives)

    def objects(self) -> dict[str, bytes]:
        codes = {kernel.code: None for kernel in _kernels(self.executable).values()}
        parts = [
            platform._split(code) for code in codes
        ]  # kernels' keys cover that file: nothing is added to it for this
        return {"-".join(names): code for names, code in parts}

    def symbols(self) -> dict[str, str]:
        kernels = {name: kernel for name, kernel in _kernels(self.executable).items() if linker.is_name(name)}
        return {f"treadle_{name}": platform._split(kernel.code)[0][0] for name, kernel in kernels.items()}

    @classmethod
    def load(cls, data: memoryview, trust_native: bool = False) -> Module:
        """The module that `pieces` gave."""
        return cls(load(data, trust_native=trust_native))  # type: ignore[arg-type]


class ExecutableModule(_OfExecutable):
    """An executable: its functions run on a machine, which is made when the first one is asked for. `module["default"](cpu())` is
    a graph executor of its main."""

    type_key = BUNDLED

    def __init__(self, executable: Executable) -> None:
        super().__init__()
        self.executable = executable
        self._machine: VirtualMachine | None = None
        self._extensions: dict[Callable[[Any], Any], Module] = {}

    @property
    def machine(self) -> VirtualMachine:
        """The machine that its functions run on."""
        if self._machine is None:
            names = [each.name for each in self.executable.program.imports]
            found = ((name, self.imported_function(name)) for name in names)
            imports = {name: function for name, function in found if function is not None}
            self._machine = VirtualMachine(self.executable, imports=imports)
        return self._machine

    def function_names(self) -> list[str]:
        return [*self.executable.globals, *super().function_names()]

    def find(self, name: str) -> Callable[..., Any] | None:
        if name == ENTRY:
            name = "main"
        if name in self.executable.globals:
            return self.machine[name]
        if name.startswith(PREFIXES):
            return self._kernels.find(name)
        found = super().find(name)
        if found is None and name in registry.extensions:
            found = self._extension(registry.extensions[name]).find(name)
        return found

    @cached_property
    def _kernels(self) -> KernelModule:
        return KernelModule(self.executable)

    def _extension(self, make: Callable[[Any], Any]) -> Module:
        """What has further functions, such as those that make graph executors of its main."""
        if make not in self._extensions:
            self._extensions[make] = make(self.executable)
        return self._extensions[make]

    def get_source(self, fmt: str = "") -> str:
        """Its kernels' source ("python", "llvm" or "asm"), else its assembly."""
        return _source(self.executable, fmt) if fmt in _FORMS and fmt else self.executable.as_text(elide=True)


def export_executable(executable: Executable, path: str | os.PathLike) -> None:
    """Writes a library with an executable in it, as the suffix says. Raises LinkerError, FileError."""
    ExecutableModule(executable).export_library(path)


SYSTEM_ENTRY = "TVMSystemLibEntryPoint"


class KernelModule(_OfExecutable):
    """The primitives of an executable as functions: `module["add"](x, y, out)` writes into its last arguments. A graph's weights
    may be linked in, as constants that no function has."""

    type_key = "library"
    graph_weights: Any = None  # how the graph's weights are made of the model's, until it is saved

    def __init__(self, executable: Executable, linked: Sequence[np.ndarray] = ()) -> None:
        super().__init__()
        program = Program((), tuple(linked), executable.program.primitives, np.zeros(0, np.int64), (), ())
        is_library = not executable.program.functions
        self.executable = executable if is_library else Executable(program).with_native_of(executable)

    def function_names(self) -> list[str]:
        return self.executable.primitive_ops

    def find(self, name: str) -> Callable[..., Any] | None:
        """By a primitive's own name, or that in the text of a graph or of the Relay VM's program; by C's name for the function
        that gives the library, what does so."""
        if name == SYSTEM_ENTRY:
            return lambda: self
        own = name if name in self.executable.lib else self._in_texts.get(name, name)
        if own not in self._functions and own in self.executable.lib:
            primitives = {primitive.name: primitive for primitive in self.executable.program.primitives}
            self._functions[own] = kernel_function(primitives[own], self.executable)
        return self._functions.get(own)

    @cached_property
    def _in_texts(self) -> dict[str, str]:
        return own_names(self.executable.program.primitives)

    def get_source(self, fmt: str = "") -> str:
        return _source(self.executable, fmt)

    def has_native_code(self) -> bool:
        return True


class StaticLibrary(Module):
    """An object file of the user's, to be linked into what imports it. Its functions are C's: they are not called from here."""

    type_key = "static_library"
    is_stored = False

    def __init__(self, path: str | os.PathLike, func_names: Iterable[str]) -> None:
        """Raises MissingModuleError."""
        super().__init__()
        self._names = list(func_names)
        self._name, self._code = Path(named(path, "load_static_library: path")).stem, _read(path)

    def function_names(self) -> list[str]:
        return []

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return name in self._names or super().implements_function(name, query_imports)

    def has_native_code(self) -> bool:
        return True

    def objects(self) -> dict[str, bytes]:
        return {self._name: self._code}


_FORMS = {"": "llvm", "ll": "llvm", "llvm": "llvm", "asm": "asm", "s": "asm", "py": "python", "python": "python"}


def _source(executable: Executable, fmt: str) -> str:
    """The source of all kernels that have one."""
    form = _FORMS.get(fmt)
    if form is None:
        raise FormatError(f"get_source({fmt!r}): there are {', '.join(filter(None, _FORMS))}")
    comment = {"llvm": ";", "asm": "#", "python": "#"}[form]
    texts = [f"{comment} {name}\n{executable.lib.get_source(name, form)}" for name in executable.lib.names]
    return "\n".join(texts)


def _kernels(executable: Executable) -> dict[str, NativeKernel]:
    """The native code of primitives by name, built where neither the executable nor the cache has it; not of those that only the
    reference evaluator can do, and none of an executable for a target without native code."""
    if executable.program.target:
        return {}
    primitives = executable.program.primitives
    compiler = library.compiler()
    target = compiler.target_key()
    definitions = [primitive.definition for primitive in primitives]
    keys = [library.definition_key(definition, target) for definition in definitions]
    found = dict(executable.native.get(target, {}))
    lacking = [number for number, key in enumerate(keys) if key not in found]
    if lacking:
        built = compiler.build(
            [definitions[number] for number in lacking],
            names=[primitives[number].name for number in lacking],
            seconds=None,
        )
        for number, kernel in zip(lacking, built, strict=True):
            if kernel is not None:
                found[keys[number]] = NativeKernel(kernel.code, kernel.words, kernel.scratch_bytes, kernel.nanoseconds)
    return {primitive.name: found[key] for primitive, key in zip(primitives, keys, strict=True) if key in found}


def _read(path: str | os.PathLike) -> bytes:
    if not os.path.isfile(named(path)):
        raise MissingModuleError(f"cannot find file {os.fspath(path)}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError.of(error, f"cannot read {os.fspath(path)!r}", os.fspath(path)) from error


class _SystemLibrary(Module):
    """The functions that this process has registered, below a prefix of their names."""

    type_key = "system_lib"

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def function_names(self) -> list[str]:
        names = registry.list_global_func_names()
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def find(self, name: str) -> Callable[..., Any] | None:
        return registry.get_global_func(self._prefix + name, allow_missing=True)


def system_lib(symbol_prefix: str = "") -> Module:
    """The functions of this process: those registered under names that begin with a prefix."""
    return _SystemLibrary(symbol_prefix)
