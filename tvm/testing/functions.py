"""Functions on the other side of the border, for tests of the border."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

from ...vm.device import Device
from ...vm.tensor import Tensor
from .. import error
from ..modules.registry import PackedFunc, crossing, get_global_func, register_func


def echo(value: Any, *rest: Any) -> Any:
    """The value, after it has crossed; others are left alone."""
    return crossing(value)


def nop(*args: Any) -> None:
    """Nothing."""


def identity_cpp(value: Any) -> Any:
    """The value, after it has crossed."""
    return crossing(value)


def device_test(dev: Device, device_type: int, device_id: int) -> Device:
    """The device, which is of that type and number. Raises TVMError."""
    if (dev.device_type, dev.device_id) != (device_type, device_id):
        raise error.TVMError(f"device_test: {dev} is not of type {device_type} and number {device_id}")
    return dev


def object_use_count(value: Any) -> int:
    """How many references there are to an object besides those of this call and its caller's argument; to a tensor's elements,
    how many tensors have them."""
    return sys.getrefcount(value.array) - 1 if isinstance(value, Tensor) else sys.getrefcount(value) - 2


def test_wrap_callback(function: Callable[..., Any]) -> PackedFunc:
    """The function, after one more border."""
    return PackedFunc(PackedFunc.of(function))


def test_raise_error_callback(message: str) -> PackedFunc:
    """A function that raises the error that "Kind: text" names."""
    return PackedFunc(lambda: _raise(message))


def test_check_eq_callback(message: str) -> PackedFunc:
    """A function of two values that raises the error where they differ."""
    return PackedFunc(lambda x, y: None if x == y else _raise(f"{message}: Check failed: x == y ({x} vs. {y})"))


def ErrorTest(x: int, y: int) -> None:
    """Raises ValueError where the numbers differ, InternalError where they are equal."""
    if x != y:
        raise ValueError(f"Check failed: (x == y) is false: {x} vs. {y}")
    raise error.InternalError("InternalError: no error was raised before")


# pytest would take them for tests
for _function in (test_wrap_callback, test_raise_error_callback, test_check_eq_callback):
    vars(_function)["__test__"] = False


def _raise(message: str) -> None:
    name, _, _ = message.partition(":")
    found = vars(error).get(name) or vars(builtins).get(name)
    raise found(message) if isinstance(found, type) and issubclass(found, Exception) else error.TVMError(message)


_GLOBAL: tuple[Callable[..., Any], ...] = (
    *(echo, nop, identity_cpp, device_test, object_use_count),
    *(test_wrap_callback, test_raise_error_callback, ErrorTest),
)

for _each in _GLOBAL:
    if get_global_func(f"testing.{_each.__name__}", allow_missing=True) is None:
        register_func(f"testing.{_each.__name__}", _each)
