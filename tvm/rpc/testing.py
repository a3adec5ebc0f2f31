"""Functions that are registered for tests of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..modules.registry import get_global_func, register_func
from ..runtime.ndarray import array
from ..testing.functions import object_use_count


def _except(text: Any) -> None:
    raise ValueError(f"{text}")


def _remote_array_func(tensor: Any) -> None:
    np.testing.assert_equal(tensor.numpy(), np.ones((3, 4)))


def _remote_return_nd(name: str) -> Callable[..., Any]:
    """Functions of one tensor of zeros, and of what is given."""
    held = array(np.zeros(10, "float32"))
    functions: dict[str, Callable[..., Any]] = {
        "get_arr": lambda: held,
        "ref_count": lambda: object_use_count(held),
        "get_elem": lambda index: held.numpy()[index],
        "get_arr_elem": lambda tensor, index: tensor.numpy()[index],
    }
    return functions[name]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "addone": lambda x: x + 1,
    "strcat": lambda name, x: f"{name}:{x}",
    "except": _except,
    "runtime_str_concat": lambda x, y: x + y,
    "remote_array_func": _remote_array_func,
    "add_to_lhs": lambda x: lambda y: x + y,
    "remote_return_nd": _remote_return_nd,
}

for _name, _function in FUNCTIONS.items():
    if get_global_func(f"rpc.test.{_name}", allow_missing=True) is None:
        register_func(f"rpc.test.{_name}", _function)
