"""What the Relax VM's functions make of values: truth, shapes, and the errors that they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....formats.messages.errors import ArgumentError, CheckError
from ....vm.tensor import Tensor
from ...modules.containers import ShapeTuple


def required(value: Any, kinds: type | tuple[type, ...], what: str, doing: str) -> Any:
    """The value, which is of one of these classes: `what`. Raises ArgumentError."""
    if not isinstance(value, kinds):
        raise ArgumentError(f"{doing}: expected {what}, got a {type(value).__name__}")
    return value


def truth(value: Any) -> bool:
    """A condition: a truth value, an integer, or a tensor of one of them. Raises ArgumentError."""
    if isinstance(value, Tensor):
        array = value.array
        if array.ndim or array.dtype.kind not in "biu":
            raise ArgumentError(
                f"read_if_cond: expected a scalar of truth values or integers, got {array.dtype}{list(array.shape)}"
            )
        return bool(array)
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return bool(value)
    raise ArgumentError(f"read_if_cond: expected a truth value or a scalar tensor, got a {type(value).__name__}")


def sizes(value: Any, doing: str) -> tuple[int, ...]:
    """A shape's integers. Raises ArgumentError."""
    if not isinstance(value, (ShapeTuple, tuple, list)) or any(
        isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0 for size in value
    ):
        raise ArgumentError(f"{doing}: expected a shape, got {value!r}")
    return tuple(int(size) for size in value)


def tensor(value: Any, doing: str) -> Tensor:
    """The tensor itself. Raises ArgumentError."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{doing} expect a Tensor but get {type(value).__name__}")
    return value


def like(value: Tensor, array: np.ndarray) -> Tensor:
    """A tensor of the same class over other elements."""
    return type(value)(array)


def reshaped(value: Any, shape: tuple[int, ...], doing: str) -> Tensor:
    """The same elements in another shape, not copied. Raises ArgumentError, CheckError."""
    array = tensor(value, doing).array
    if int(np.prod(shape, dtype=object)) != array.size:
        raise CheckError(f"{doing}: {list(array.shape)} has not as many elements as {list(shape)}")
    return like(value, array.reshape(shape))


def parts(value: Any, doing: str) -> Sequence[Any]:
    """A tuple's fields. Raises ArgumentError."""
    if not isinstance(value, (tuple, list)) or isinstance(value, ShapeTuple):
        raise ArgumentError(f"{doing} expect a Tuple but get {type(value).__name__}")
    return value
