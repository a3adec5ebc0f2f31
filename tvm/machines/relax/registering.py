"""How functions of Python's are registered as `vm.builtin.*`, which programs call by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ....formats.messages.errors import ArgumentError, OutOfMemoryError, TreadleError
from ...modules.registry import BUILTIN, register_contained, register_func


def builtin(
    function: Callable[..., Any], name: str = "", contained: bool = True, prefix: str = BUILTIN
) -> Callable[..., Any]:
    """Registers a function as vm.builtin. Programs call it with what they will: what Python says of a value that is none of a
    function's is an ArgumentError. `contained` is one that works on its arguments alone, so that programs from files may name it
    (`registry.register_contained`)."""
    name = f"{prefix}{name or function.__name__.rstrip('_')}"

    @functools.wraps(function)
    def checked(*args: Any) -> Any:
        try:
            return function(*args)
        except TreadleError:
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"{name}: {error}") from error
        except (TypeError, ValueError, IndexError, AttributeError, KeyError, OverflowError) as error:
            raise ArgumentError(f"{name}: {error}") from error

    _register(name, checked, contained)
    return function


def calling_builtin(function: Callable[..., Any], name: str = "", contained: bool = True) -> Callable[..., Any]:
    """Registers a function that calls one of the user's, whose errors are its own: the number of arguments is all that is
    checked for it."""
    name = f"{BUILTIN}{name or function.__name__}"
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: Any) -> Any:
        try:
            signature.bind(*args)
        except TypeError as error:
            raise ArgumentError(f"{name}: {error}") from None
        return function(*args)

    _register(name, checked, contained)
    return function


def _register(name: str, function: Callable[..., Any], contained: bool) -> None:
    if contained:
        register_contained(name, function)
    else:
        register_func(name, function, override=True)
