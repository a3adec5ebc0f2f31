"""Values as TVM gives them."""

from __future__ import annotations

from typing import Any

from ...vm.tensor import Tensor
from ..modules.containers import Array
from ..runtime.ndarray import NDArray, over


def given(value: Any) -> Any:
    """A result as TVM gives it: tensors as NDArrays over the same memory, tuples of any class and
    sequences as Arrays."""
    if type(value) is Tensor:  # most results
        return over(value)
    if isinstance(value, Tensor):
        return NDArray.of(value)
    return Array(map(given, value)) if isinstance(value, (tuple, list)) else value
