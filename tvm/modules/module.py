"""Modules: functions by name that travel together. Modules import modules; `kinds.py` has those of executables.

`export_library` writes a module and all that it imports into one file, `load.py` takes them back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...formats import bundle
from ...formats.codec import Buffer
from ...formats.container import LIBRARIES, named, save
from ...formats.executable import BUNDLED
from ...formats.messages.errors import ArgumentError, FormatError, UnknownFunctionError
from ...formats.messages.names import near
from ...vm.device import Device
from ...vm.observe.benchmark import BenchmarkResult, Repeats, measure
from . import linker, registry

ENTRY = "__tvm_main__"
EXECUTABLE = ".trdl"
_OBJECTS = ("o", "obj")  # suffixes of object files


class ModulePropertyMask:
    """What a module can do, as bits."""

    BINARY_SERIALIZABLE = 1
    RUNNABLE = 2
    DSO_EXPORTABLE = 4


class Module:
    """Functions by name, of which one may be the entry; other modules that it imports. Subclasses say what else it is."""

    type_key = "functions"
    format = ""
    is_stored = True  # in what is exported: else it is linked in, and no more

    def __init__(self, functions: Mapping[str, Callable[..., Any]] | None = None, type_key: str = "") -> None:
        self._functions = dict(functions or {})
        self._imports: list[Module] = []
        self.entry_name = ENTRY
        if type_key:
            self.type_key = type_key

    # ---- functions ----

    def function_names(self) -> list[str]:
        """The names of its own functions."""
        return list(self._functions)

    def find(self, name: str) -> Callable[..., Any] | None:
        """Its own function of that name. Subclasses that make functions override this."""
        return self._functions.get(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of that name, of this module, or also of those that it imports. Raises UnknownFunctionError, which is an
        AttributeError."""
        modules = self.with_imports() if query_imports else [self]
        for module in modules:
            found = module.find(name)
            if found is not None:
                return found
        known = ", ".join(list(dict.fromkeys(each for module in modules for each in module.function_names()))[:20])
        near_ = near(name, (each for module in modules for each in module.function_names()))
        raise UnknownFunctionError(f"Module has no function '{name}'; it has {known or 'none'}{near_}")

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return any(module.find(name) is not None for module in (self.with_imports() if query_imports else [self]))

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """`get_function`. Raises FormatError, a ValueError, for a name that is not a string."""
        if not isinstance(name, str):
            raise FormatError(f"Can only take string as function name, got {name!r}")
        return self.get_function(name)

    @property
    def entry_func(self) -> Callable[..., Any]:
        """The function that a call of the module calls."""
        return self.get_function(self.entry_name)

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    # ---- imports ----

    @property
    def imported_modules(self) -> list[Module]:
        return list(self._imports)

    def import_module(self, module: Module) -> None:
        """Makes another module part of this one. Raises ArgumentError where that would be a circle."""
        if not isinstance(module, Module):
            raise ArgumentError(f"import_module: expected a Module, got a {type(module).__name__}")
        if any(each is self for each in module.with_imports()):
            raise ArgumentError("import_module: Cyclic dependency detected: the module imports this one already")
        self._imports.append(module)

    def with_imports(self) -> list[Module]:
        """This module and all that it imports, each once, before those that it imports itself."""
        order: list[Module] = []
        self._visit(order, set())
        return order[::-1]

    def imported_function(self, name: str) -> Callable[..., Any] | None:
        """The function of that name of a module that this one imports: what a program of it may call. None for none."""
        found = (module.find(name) for module in self.with_imports()[1:])
        return next((function for function in found if function is not None), None)

    def _visit(self, order: list[Module], seen: set[int]) -> None:
        """A method: a nested function that calls itself would hold the modules until Python's collector comes."""
        if id(self) not in seen:
            seen.add(id(self))
            for each in reversed(self._imports):
                each._visit(order, seen)
            order.append(self)

    # ---- what it is ----

    def get_property_mask(self) -> int:
        """The bits of `ModulePropertyMask`."""
        bits = ModulePropertyMask
        mask = bits.BINARY_SERIALIZABLE * (self.pieces() is not None)
        return mask | bits.RUNNABLE * bool(self.function_names()) | bits.DSO_EXPORTABLE * self.has_native_code()

    @property
    def is_binary_serializable(self) -> bool:
        return bool(self.get_property_mask() & ModulePropertyMask.BINARY_SERIALIZABLE)

    @property
    def is_runnable(self) -> bool:
        return bool(self.get_property_mask() & ModulePropertyMask.RUNNABLE)

    @property
    def is_dso_exportable(self) -> bool:
        return bool(self.get_property_mask() & ModulePropertyMask.DSO_EXPORTABLE)

    def get_source(self, fmt: str = "") -> str:
        """Its source; "" where it has none."""
        return ""

    def __repr__(self) -> str:
        return f"Module({self.type_key}, {id(self):#x})"

    # ---- saving ----

    def pieces(self) -> list[Buffer] | None:
        """Its bytes, of which a loader of its kind (`register_loader`) makes it again; None if it cannot be saved."""
        return None

    def has_native_code(self) -> bool:
        """Whether it has object code of its own."""
        return False

    def objects(self) -> dict[str, bytes]:
        """Object files to link, by name."""
        return {}

    def symbols(self) -> dict[str, str]:
        """C names of functions → the symbols in the object files."""
        return {}

    def save(self, file_name: str | os.PathLike, fmt: str = "") -> None:
        """Writes this module alone: a library or object file, or the source, as the suffix (or `fmt`) says."""
        suffix = f".{fmt}" if fmt else Path(named(file_name, "save: file_name")).suffix
        source = "" if suffix in (*LIBRARIES, EXECUTABLE) else self.get_source(suffix.removeprefix("."))
        if source:
            save(file_name, [source.encode()])
            return
        _export([self], linker.require_folder(file_name), suffix)

    def export_library(
        self,
        file_name: str | os.PathLike,
        fcompile: Callable[..., Any] | bool | None = None,
        addons: Sequence[str | os.PathLike] | None = None,
        workspace_dir: str | os.PathLike | None = None,
        *,
        cc: str = "",
        options: Sequence[str] = (),
        **kwargs: Any,
    ) -> Any:
        """Writes this module and those that it imports: a shared library (.so), an object file (.o) or an archive of object files
        (.tar), as the suffix says.

        `fcompile(file_name, objects, **kwargs)` links instead of the system's C compiler, which `cc` may name, and which gets
        `options`; what it gives, this function gives. Its `object_format` is the suffix of the object files, "o" or "obj".
        `addons` are further object files. Object files stay in `workspace_dir`
        where it is given. Raises LinkerError, which names the suffix that needs no linker, ArgumentError for a module that cannot
        be saved, FileError.
        """
        path = linker.require_folder(file_name)
        call = fcompile if callable(fcompile) else None
        if call is not None and options:
            kwargs["options"] = list(options)
        return _export(
            self.with_imports(), path, path.suffix, call, list(addons or ()), workspace_dir, cc, options, kwargs
        )

    # ---- timing ----

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that takes a function's arguments and tells how long calls take (see `benchmark.measure`).

        Before each repeat, `cache_flush_bytes` of other memory are read and written, and the registered function `f_preproc` is
        called with the arguments. Raises UnknownFunctionError, ArgumentError.
        """
        repeats = Repeats(
            number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown
        )
        return self.timed(func_name, dev, repeats, cache_flush_bytes, f_preproc)

    def timed(
        self, func_name: str, dev: Device, repeats: Repeats, cache_flush_bytes: int = 0, f_preproc: str = ""
    ) -> Callable[..., BenchmarkResult]:
        """`time_evaluator`, as often as `repeats` says."""
        function = self.get_function(func_name, query_imports=True)
        if not isinstance(dev, Device) or not (dev.exist or dev.session):  # a session is a server's
            raise ArgumentError(f"time_evaluator: expected a device that exists, got {dev!r}")
        before = registry.get_global_func(f_preproc) if f_preproc else None
        flushed = np.zeros(cache_flush_bytes, np.uint8)

        def evaluator(*args: Any) -> BenchmarkResult:
            def prepare() -> None:
                np.add(flushed, 1, out=flushed)
                if before is not None:
                    before(*args)

            return measure(lambda: function(*args), repeats, prepare)

        return evaluator


class HandedFunctions(Module):
    """What `load_module(path, imports=…)` hands over to the programs of a file. It is not saved with them."""

    type_key = "imports"
    is_stored = False


registry.register_crossing(Module)


# ---- writing ----


def _export(
    modules: Sequence[Module],
    path: Path,
    suffix: str,
    fcompile: Callable[..., Any] | None = None,
    addons: Sequence[str | os.PathLike] = (),
    workspace: str | os.PathLike | None = None,
    cc: str = "",
    options: Sequence[str] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Writes modules, the root first, to `path`; see `Module.export_library`. Raises ArgumentError, LinkerError, FileError."""
    parts = _parts(modules)
    if suffix == EXECUTABLE and fcompile is None:
        if len(parts) != 1 or parts[0].kind != BUNDLED:
            raise ArgumentError(f"{str(path)!r}: such a file is one executable; export other modules to a .so or .tar")
        save(path, parts[0].pieces)
        return None
    if fcompile is None and suffix not in LIBRARIES:
        raise ArgumentError(
            f"{str(path)!r}: expected a suffix of {', '.join(LIBRARIES)}, or {EXECUTABLE} for an executable alone"
        )
    form = getattr(fcompile, "object_format", "o")
    if form not in _OBJECTS:
        raise ArgumentError(
            f"export_library: fcompile.object_format is {form!r}; kernels are object code: 'o' or 'obj'"
        )
    compiler = linker.find_compiler(cc, path)
    objects = {name: code for module in modules for name, code in module.objects().items()}
    aliases = {alias: symbol for module in reversed(modules) for alias, symbol in module.symbols().items()}
    with tempfile.TemporaryDirectory(prefix="treadle-export-") as folder:
        place = Path(folder if workspace is None else workspace)
        paths: list[Any] = [*linker.write_objects(place, bundle.pack(parts), objects, compiler, form), *addons]
        if fcompile is not None:
            return fcompile(str(path), [str(each) for each in paths], **(kwargs or {}))
        elif suffix == ".tar":
            linker.archive(path, paths)
        elif suffix in (".o", ".obj"):
            linker.link_object(path, paths, compiler, options)
        else:
            linker.link_shared(path, paths, compiler, aliases, options)
    return None


def _parts(modules: Sequence[Module]) -> list[bundle.Part]:
    """Modules as bytes. Libraries of the user's, which have none, are linked in and no more."""
    stored = [module for module in modules if module.is_stored]
    numbers = {id(module): number for number, module in enumerate(stored)}
    parts = []
    for module in stored:
        pieces = module.pieces()
        if pieces is None:
            raise ArgumentError(f"a module of kind {module.type_key!r} cannot be saved: it has no form as bytes")
        imports = tuple(numbers[id(each)] for each in module.imported_modules if id(each) in numbers)
        parts.append(bundle.Part(module.type_key, pieces, imports))
    if not parts:
        raise ArgumentError("there is no module to save: a static library is linked into another")
    return parts
