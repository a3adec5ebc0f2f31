"""Names that are imported when they are first used (PEP 562): a module of the face says what it has, and where that is."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(
    package: str, modules: Mapping[str, str], names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`.

    `modules` says which module (relative to the package) an attribute is, `names` what modules have by the attribute's own name.
    A module that does not exist is an AttributeError of its names alone.
    """
    homes = {name: module for module, several in names.items() for name in several}

    def get(name: str) -> object:
        home = modules.get(name) or homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        full = importlib.util.resolve_name(home, package)
        try:
            found: object = importlib.import_module(full)
        except ModuleNotFoundError as error:
            if error.name is None or not (full + ".").startswith(error.name + "."):
                raise
            raise AttributeError(f"module {package!r} has no attribute {name!r}: there is no {full}") from None
        if name not in modules:
            found = getattr(found, name)
        setattr(sys.modules[package], name, found)
        return found

    def names_of() -> list[str]:
        own = [name for name in vars(sys.modules[package]) if not name.startswith("_")]
        return sorted({*own, *modules, *homes})

    return get, names_of
