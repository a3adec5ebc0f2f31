"""`tvm.register_func` and the table behind it. Functions that TVM has by itself are registered when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..modules import registry
from ..modules.registry import PackedFunc, register_crossing, register_func, remove_global_func

__all__ = ["get_global_func", "list_global_func_names", "register_extension", "register_func", "remove_global_func"]

# the beginning of names → the module of the face that registers them when it is imported
PROVIDERS: dict[str, str] = {
    **dict.fromkeys(("runtime.", "tvm.graph_", "tvm.relay._"), ".global_functions"),
    "testing.": "..testing.functions",
    "vm.builtin.": "..machines.relax.builtins",
}


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """The function of that name; None, or UnknownGlobalFunctionError (a ValueError), where there is none."""
    if registry.get_global_func(name, allow_missing=True) is None:
        _provide(name)
    return registry.get_global_func(name, allow_missing)


def list_global_func_names() -> list[str]:
    """The names of all functions, sorted."""
    for prefix in PROVIDERS:
        _provide(prefix)
    return registry.list_global_func_names()


def _provide(name: str) -> None:
    for prefix, module in PROVIDERS.items():
        if name.startswith(prefix):
            importlib.import_module(module, __package__)


def register_extension(cls: type, fcreate: Callable[..., Any] | None = None) -> type:
    """A class whose values cross the border of functions as they are. Raises ValueError for `fcreate`, as TVM does."""
    if fcreate is not None:
        raise ValueError("Extension with fcreate is no longer supported")
    return register_crossing(cls)


def register_object(type_key: Any = None) -> Any:
    """A decorator that names a class of objects; Python's classes need no more."""
    if isinstance(type_key, str):
        return lambda cls: cls
    return type_key
