"""Reading modules: from executables, and from libraries, object files and archives, of which the data alone is looked at.

Nothing in such a file is executed, unless the user vouches for its native code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...formats import bundle
from ...formats.container import named
from ...formats.executable import load
from ...formats.messages.errors import ExecutionError, FormatError, MissingModuleError
from ...vm.device import device as device_of
from ..files import executables
from . import registry
from .kinds import ExecutableModule, KernelModule, StaticLibrary
from .module import HandedFunctions, Module

for _kind in (ExecutableModule, KernelModule):
    registry.register_loader(_kind.type_key, _kind.load)
_OF_MACHINES = {executables.RELAX: "relax.Executable", executables.RELAY: "relay.Executable"}


def load_module(
    path: str | os.PathLike, fmt: str = "", *, imports: registry.Imports = (), trust_native: bool = False
) -> Module:
    """The module in a file: an executable (.trdl), what `export_library` wrote, an executable of TVM's Relay VM or Relax VM, also
    in TVM's libraries, or what a registered function "runtime.module.loadfile_FMT" reads.

    `fmt` is the suffix to go by. `imports` are the functions that programs in the file may call: by name, or the names of
    registered ones (`imports=["vm.builtin.ndarray_cache.load"]`). They reach no others but the builtins that work on their
    arguments alone. Native code in the file is ignored unless `trust_native`: kernels come from this user's cache, or are built
    from their definitions. Raises MissingModuleError, which is a ValueError, FormatError, FileError, and
    UnknownGlobalFunctionError for a name that is not registered.
    """
    given = registry.handed(imports)
    module = _read(path, fmt, trust_native)
    if given:
        functions = HandedFunctions(given)
        for each in module.with_imports():
            each.import_module(functions)
    return module


def _read(path: str | os.PathLike, fmt: str, trust_native: bool) -> Module:
    if not os.path.isfile(named(path, "load_module: path")):
        raise MissingModuleError(f"cannot find file {os.fspath(path)}")
    suffix = fmt.removeprefix(".") or Path(path).suffix.removeprefix(".")
    reader = registry.get_global_func(f"runtime.module.loadfile_{suffix}", allow_missing=True)
    if reader is not None:
        return reader(os.fspath(path), suffix)
    if suffix == "trdl":
        return ExecutableModule(load(path, trust_native=trust_native))
    try:
        stored = bundle.read(path)
    except FormatError:
        foreign = _of_tvm(path)
        if foreign is None:
            raise
        return foreign
    modules = [_loaded(each, trust_native) for each in stored]
    for module, each in zip(modules, stored, strict=True):
        for number in each.imports:
            module.import_module(modules[number])
    return modules[0]


def _of_tvm(path: str | os.PathLike) -> Module | None:
    """The module of a file that TVM wrote: an executable of one of its machines, or a library that holds one."""
    found = executables.find_executable(executables.open_file(path))
    return None if found is None else _loader(_OF_MACHINES[found.machine])(found.data, False)


def _loader(kind: str) -> registry.Loader:
    if kind not in registry.loaders:
        raise FormatError(f"a module of kind {kind!r}, for which nobody has registered a loader")
    return registry.loaders[kind]


def _loaded(stored: bundle.StoredModule, trust_native: bool) -> Module:
    loader = _loader(stored.kind)
    if stored.kind not in (ExecutableModule.type_key, KernelModule.type_key):  # these have checksums of their own
        stored.check()
    return loader(stored.data, trust_native)


def load_static_library(path: str | os.PathLike, func_names: Iterable[str]) -> StaticLibrary:
    """An object file to be linked into what imports it, which has C functions of these names. Raises MissingModuleError."""
    return StaticLibrary(path, func_names)


# ---- what there is ----

_ENABLED = ("cpu", "llvm", "c", "stackvm", "composite", "graph_executor", "vm", "profiler")
_DISABLED = ("rpc", "tflite", "micro", "nvptx", "gpu", "cl", "mtl", "opengl", "edgetpu", "sdaccel", "aocl_sw_emu")


def enabled(target: str) -> bool:
    """Whether there is such a target or part here. Raises ExecutionError for a name of none."""
    name = re.split(r"[\s:]", target.strip(), maxsplit=1)[0] if isinstance(target, str) else ""
    if name in _ENABLED:
        return True
    if name in _DISABLED:
        return False
    try:
        return device_of(name).exist
    except FormatError:
        raise ExecutionError(f"Unknown optional runtime {target!r}") from None
