"""Arguments as TVM's machines take them, made into what Treadle's takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.messages.errors import ArgumentError, UnknownArgumentError
from ...formats.types import TensorType, TupleType, Type
from ...vm.tensor import Tensor
from .container import ADT, tuple_object
from .ndarray import NDArray


def argument(value: Any, type_: Type | None) -> Any:
    """A value as the machine takes it: numbers of the parameter's type, tuples for lists, the one field of a list for
    a tensor."""
    if type_ is None:
        return _untyped(value)
    if isinstance(type_, TensorType):
        array = value.array if type(value) is NDArray else value
        if type(array) is np.ndarray and array.dtype == type_.dtype.numpy:  # most calls: nothing else is asked
            return array
        return _tensor(value, type_)
    if isinstance(type_, TupleType):
        fields = (
            list(value.fields)
            if isinstance(value, ADT)
            else list(value)
            if isinstance(value, (list, tuple))
            else [value]
        )
        if len(fields) != len(type_.fields):
            raise ArgumentError(f"expected a tuple of {len(type_.fields)}, got {len(fields)} values")
        return tuple(argument(each, wanted) for each, wanted in zip(fields, type_.fields, strict=True))
    return value


def in_order(function: str, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """One value for each parameter: those that `kwargs` does not name are given by place. Raises ArgumentError,
    UnknownArgumentError, a ValueError, for another name."""
    if not kwargs and len(args) == len(names):
        return args
    known = ", ".join(names) or "none"
    if unknown := [name for name in kwargs if name not in names]:
        raise UnknownArgumentError(f"{function} has no parameters {', '.join(unknown)}; it has {known}")
    if len(args) + len(kwargs) != len(names):
        raise ArgumentError(
            f"{function}: The number of provided parameters doesn't match the number of arguments: expected {len(names)} "
            f"({known}), got {len(args)} by place and {', '.join(kwargs) or 'none'} by name"
        )
    rest = iter(args)
    return [kwargs[name] if name in kwargs else next(rest) for name in names]


def _untyped(value: Any) -> Any:
    """A value for a parameter of which the program says no type: integers have 32 bits, and so have floats."""
    if isinstance(value, (Tensor, ADT)) or callable(value):
        return value
    if isinstance(getattr(value, "data", None), Tensor):  # a constant of Relay's
        return value.data
    if isinstance(value, (list, tuple)):
        return tuple_object(map(_untyped, value))
    if isinstance(value, (bool, int, float)):
        return NDArray(np.asarray(value, np.float32 if isinstance(value, float) else np.int32))
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        return NDArray(np.asarray(value))
    raise ArgumentError(f"Unsupported type: {type(value)}")


def _tensor(value: Any, type_: TensorType) -> Any:
    if isinstance(value, Tensor):
        return value if value.device.session else integers_as(value.array, type_)  # what lies at a server stays there
    if isinstance(value, np.ndarray):
        return integers_as(value, type_)
    if isinstance(value, (list, tuple, ADT)):
        if len(value) != 1:
            raise ArgumentError(f"expected a tensor {type_}, got {len(value)} values")
        return _tensor(value[0], type_)
    if isinstance(getattr(value, "data", None), Tensor):  # a constant of Relay's
        return integers_as(value.data.array, type_)
    if value is None:
        return np.zeros((0,), type_.dtype.numpy)
    if isinstance(value, (bool, int, float)):
        made = np.asarray(value, type_.dtype.numpy)
        if not type_.dtype.is_float and made.item() != value:
            raise ArgumentError(f"{value!r} is not a {type_.dtype.name}")
        return made
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        return integers_as(np.asarray(value), type_)
    raise ArgumentError(f"Unsupported type: {type(value)}")


def integers_as(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """Whole numbers of another width as those of the parameter's, where all fit: `np.array([11])` is 64 bits wide by default."""
    if array.dtype == type_.dtype.numpy or array.dtype.kind not in "iu" or not type_.dtype.is_integer:
        return array
    made = array.astype(type_.dtype.numpy)
    return made if np.array_equal(made, array) else array
