"""`vm.builtin.ndarray_cache.*` (newer: `tensor_cache`) and `param_array_from_cache`: tensors by name, for the whole process.
Programs from files reach them only where they are handed these functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....formats.messages.errors import ArgumentError, UnknownGlobalFunctionError
from ....vm.device import Device
from ....vm.tensor import Tensor, require_cpu
from ...files.tensor_cache import load as load_folder
from ...modules.containers import Array
from ...modules.module import Module
from .registering import builtin

_tensors: dict[str, Tensor] = {}


def load(folder: str, device_type: int, device_id: int) -> None:
    """Takes up all tensors of a folder. Raises FileError, FormatError; then none."""
    require_cpu(Device(device_type, device_id), "tensor_cache.load")  # type: ignore[arg-type]
    _tensors.update({name: Tensor(array) for name, array in load_folder(folder)[0].items()})


def get(name: str) -> Tensor | None:
    return _tensors.get(name)


def update(name: str, value: Tensor, override: bool = False) -> None:
    """Takes up a tensor; one of that name stays, unless `override`."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"tensor_cache.update: expected a tensor, got a {type(value).__name__}")
    if override or name not in _tensors:
        _tensors[name] = value


def remove(name: str) -> None:
    _tensors.pop(name, None)


def clear() -> None:
    _tensors.clear()


def param_array(prefix: str, count: int) -> Array:
    """The tensors `prefix`_0, `prefix`_1, …; `count` of them, or, with -1, as many as there are."""
    return Array(_numbered(prefix, count))


def _numbered(prefix: str, count: int) -> Iterator[Tensor]:
    number = 0
    while count < 0 or number < count:
        found = _tensors.get(f"{prefix}_{number}")
        if found is None:
            if count < 0:
                return
            raise UnknownGlobalFunctionError(f"Cannot find parameter {prefix}_{number} in the cache")
        yield found
        number += 1


def param_array_by_name(names: Sequence[str]) -> Array:
    """The tensors of these names. Raises UnknownGlobalFunctionError, a ValueError, which lists all that are missing."""
    if missing := [name for name in names if name not in _tensors]:
        raise UnknownGlobalFunctionError(f"Cannot find parameters {', '.join(map(str, missing))} in the cache")
    return Array(_tensors[name] for name in names)


def param_module(params: Array) -> Module:
    """A module whose function `get_params` gives them."""
    return Module({"get_params": lambda: params}, "param_module")


_FUNCTIONS: dict[str, Any] = {"load": load, "get": get, "update": update, "remove": remove, "clear": clear}
for _cache in ("ndarray_cache", "tensor_cache"):
    for _name, _function in _FUNCTIONS.items():
        builtin(_function, f"{_cache}.{_name}", contained=False)
_OF_PARAMETERS: dict[str, Any] = {
    "param_array_from_cache": param_array,
    "param_array_from_cache_by_name": param_array_by_name,
    "param_module_from_cache": lambda prefix, count: param_module(param_array(prefix, count)),
    "param_module_from_cache_by_name": lambda names: param_module(param_array_by_name(names)),
    "param_array_from_cache_by_name_unpacked": lambda *names: param_array_by_name(names),
}
for _name, _function in _OF_PARAMETERS.items():
    builtin(_function, _name, contained=False)
