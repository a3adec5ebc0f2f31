"""Functions `test.vm.*` for programs of tests, and a comparison of a function with itself, saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....vm.tensor import Tensor
from ...modules.registry import register_func
from ...runtime.ndarray import NDArray
from ..vm import VirtualMachine


def _arrays(function: Any) -> Any:
    return lambda *tensors: NDArray(np.asarray(function(*(tensor.array for tensor in tensors))))


def _written(function: Any) -> Any:
    def write(source: Tensor, target: Tensor) -> None:
        target.array[...] = function(source.array)

    return write


for _name, _function in {
    "move": lambda value: value,
    "add": _arrays(np.add),
    "mul": _arrays(np.multiply),
    "equal_zero": _arrays(lambda array: np.all(array == 0)),
    "subtract_one": _arrays(lambda array: np.subtract(array, 1)),
    "identity": _written(lambda array: array),
    "tile": _written(lambda array: np.tile(array, (1, 2))),
    "add_scalar": lambda left, right: left + right,
    "get_device_id": lambda device: device.device_id,
    "check_if_defined": lambda value: value is not None,
}.items():
    register_func(f"test.vm.{_name}", _function, override=True)


def check_saved_func(vm: VirtualMachine, func_name: str, *inputs: Any) -> Any:
    """The result of a function, which is that of the function saved with these inputs. Raises AssertionError."""
    vm.save_function(func_name, f"{func_name}_saved", *inputs)
    direct, saved = vm[func_name](*inputs), vm[f"{func_name}_saved"]()
    np.testing.assert_allclose(direct.numpy(), saved.numpy(), rtol=1e-7, atol=1e-7)
    return direct
