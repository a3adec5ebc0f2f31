"""Writing modules: their data and their native code, in one library, object file or archive."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...formats import bundle
from ...formats.container import LIBRARIES, save
from ...formats.executable import BUNDLED
from ...formats.messages.errors import ArgumentError
from . import linker

if TYPE_CHECKING:
    from .module import Module

EXECUTABLE = ".trdl"


def export(
    modules: Sequence[Module],
    path: Path,
    suffix: str,
    fcompile: Callable[..., Any] | None = None,
    addons: Sequence[str | os.PathLike] = (),
    workspace: str | os.PathLike | None = None,
    cc: str = "",
    options: Sequence[str] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Writes modules, the root first, to `path`; see `Module.export_library`. Raises ArgumentError, LinkerError, FileError."""
    parts = _parts(modules)
    if suffix == EXECUTABLE and fcompile is None:
        if len(parts) != 1 or parts[0].kind != BUNDLED:
            raise ArgumentError(f"{str(path)!r}: such a file is one executable; export other modules to a .so or .tar")
        save(path, parts[0].pieces)
        return
    if fcompile is None and suffix not in LIBRARIES:
        raise ArgumentError(
            f"{str(path)!r}: expected a suffix of {', '.join(LIBRARIES)}, or {EXECUTABLE} for an executable alone"
        )
    compiler = linker.find_compiler(cc, path)
    objects = {name: code for module in modules for name, code in module.objects().items()}
    aliases = {alias: symbol for module in reversed(modules) for alias, symbol in module.symbols().items()}
    with tempfile.TemporaryDirectory(prefix="treadle-export-") as folder:
        place = Path(folder if workspace is None else workspace)
        paths: list[Any] = [*linker.write_objects(place, bundle.pack(parts), objects, compiler), *addons]
        if fcompile is not None:
            fcompile(str(path), [str(each) for each in paths], **(kwargs or {}))
        elif suffix == ".tar":
            linker.archive(path, paths)
        elif suffix in (".o", ".obj"):
            linker.link_object(path, paths, compiler, options)
        else:
            linker.link_shared(path, paths, compiler, aliases, options)


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
