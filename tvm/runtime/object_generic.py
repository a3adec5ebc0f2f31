"""Python's values as TVM's objects: numbers with a type, strings, lists, maps, functions."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from ...formats.dims import SymbolicDim
from ...formats.messages.errors import FormatError, UnsupportedOperatorError
from ...vm.values import Closure, DataValue
from ..modules.containers import Array, FloatImm, IntImm, Map, Object, String
from ..modules.registry import PackedFunc
from .ndarray import NDArray

_FLOAT32 = float(np.finfo(np.float32).max)
_INT32 = np.iinfo(np.int32)
_INT64 = np.iinfo(np.int64)


class ObjectGeneric:
    """What can be made an object: its class says how."""

    def asobject(self) -> Any:
        """The object that stands for this."""
        raise NotImplementedError(f"{type(self).__name__} has no asobject")


ObjectTypes = (Object, SymbolicDim, NDArray, PackedFunc, DataValue, Closure)


def const(value: Any, dtype: str | None = None, span: object = None) -> Any:
    """A number with a type: float32 or int32 where it fits, float64 or int64 otherwise; NumPy's numbers keep theirs.

    Raises FormatError, a ValueError, for a number that no type holds, UnsupportedOperatorError for anything but a number.
    """
    kind = str(dtype) if dtype is not None else _kind(value)
    value = value.item() if hasattr(value, "item") else value
    return FloatImm(kind, float(value)) if "float" in kind else IntImm(kind, int(value))


def _kind(value: Any) -> str:
    if hasattr(value, "dtype"):
        return str(value.dtype)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float32" if -_FLOAT32 <= value <= _FLOAT32 or value != value else "float64"
    if isinstance(value, int):
        if _INT32.min <= value <= _INT32.max:
            return "int32"
        if _INT64.min <= value <= _INT64.max:
            return "int64"
        if _INT64.max < value < 1 << 64:
            return "uint64"
        raise FormatError(f"const({value}): no type of 64 bits holds this")
    raise UnsupportedOperatorError(f"const: Cannot automatically inference the type. value={value!r}", [])


def convert_to_object(value: Any, span: object = None) -> Any:
    """A value as an object of TVM's. Raises FormatError, a ValueError, for one of a kind that has none."""
    if isinstance(value, ObjectTypes) or value is None:
        return value
    if isinstance(value, bool):
        return const(value, "bool")
    if isinstance(value, (Number, np.generic)):
        return const(value)
    if isinstance(value, str):
        return String(value)
    if isinstance(value, (list, tuple)):
        return Array(map(convert_to_object, value))
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, (*ObjectTypes, str, Number)):
                raise FormatError(f"convert: key of map must already been a container type, got {key!r}")
        return Map({_key(key): convert_to_object(item) for key, item in value.items()})
    if isinstance(value, ObjectGeneric):
        return value.asobject()
    if callable(value):
        return PackedFunc.of(value)
    raise FormatError(f"don't know how to convert type {type(value)} to object")


def _key(key: Any) -> Any:
    return String(key) if isinstance(key, str) else key


def convert(value: Any, span: object = None) -> Any:
    """A value as an object of TVM's; a function becomes a PackedFunc. Raises FormatError, a ValueError."""
    return convert_to_object(value, span)
