"""`tvm.register_func` and the table behind it. Functions that TVM has by itself are registered when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..modules import registry
from ..modules.registry import get_global_func, register_crossing, register_func, remove_global_func

__all__ = ["get_global_func", "list_global_func_names", "register_extension", "register_func", "remove_global_func"]


def list_global_func_names() -> list[str]:
    """The names of all functions, sorted."""
    registry.provided()
    return registry.list_global_func_names()


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
