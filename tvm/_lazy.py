"""Names that are imported when they are first used (PEP 562): a module of the face says what it has, and where that is.

Modules that stand under another name too (`tvm.nd` is `tvm.runtime.ndarray`) can be imported by that one as well, and names that
the face leaves out on purpose say why: `tvm.autotvm`, `from treadle.tvm import autotvm` and `import treadle.tvm.autotvm` alike.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..formats.messages.errors import UnknownAttributeError, UnsupportedImportError, UnsupportedNameError
from ..formats.messages.names import near

_ALIASES: dict[str, str] = {}  # a module's other name, in full → the module
_ABSENT: dict[str, str] = {}  # a name that is left out, in full → why, and what does its job


def lazy(
    package: str,
    own: str = "",
    *,
    others: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    absent: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`.

    `own` names modules of the package, `others` says which module (relative to it) an attribute is, and `names` which names of a
    module are attributes too. A module that does not exist is an AttributeError of its names alone. `absent` says of TVM's names
    why they are not here.
    """
    modules = {**{name: f".{name}" for name in own.split()}, **(others or {})}
    homes = {name: module for module, several in (names or {}).items() for name in several.split()}
    for name, module in (others or {}).items():
        _ALIASES[f"{package}.{name}"] = importlib.util.resolve_name(module, package)
    if others or absent:
        vars(sys.modules[package]).setdefault("__path__", [])  # so that `from package import name` asks `_Aliases`, too
    _ABSENT.update((f"{package}.{name}", why) for name, why in (absent or {}).items())

    def get(name: str) -> Any:
        home = modules.get(name) or homes.get(name)
        if home is None:
            if f"{package}.{name}" in _ABSENT:
                raise UnsupportedNameError(_why(f"{package}.{name}"))
            if name.startswith("_"):  # Python's own protocols ask for these, and want no sentence
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            raise UnknownAttributeError(
                f"module {package!r} has no attribute {name!r}", lambda: near(name, (*modules, *homes))
            )
        full = importlib.util.resolve_name(home, package)
        try:
            found: Any = importlib.import_module(full)
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


def _why(full: str) -> str:
    _, _, name = full.partition("tvm.")
    return f"tvm.{name} is not here: {_ABSENT[full]}"


class _Aliases:
    """Imports modules of the face by their other names; asked after all other finders."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in _ABSENT:
            raise UnsupportedImportError(_why(name))
        return ModuleSpec(name, self) if name in _ALIASES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_ALIASES[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state  # import has put the alias's there


sys.meta_path.append(_Aliases())  # importlib.abc, which has the base class, costs 10 ms
