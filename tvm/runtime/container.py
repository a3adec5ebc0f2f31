"""`tvm.runtime.container`: strings, shapes, lists, maps, tuples and values of data types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...vm.tensor import Tensor
from ...vm.values import DataValue
from ..modules.containers import Array, Map, Object, ShapeTuple, String
from .ndarray import NDArray, over

__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String", "given", "tuple_object", "wrapped"]


class ConstructorName(str):
    """A constructor's name, which also answers as TVM's constructors do."""

    @property
    def name_hint(self) -> str:
        return str(self)


class ADT(DataValue, Object):
    """A value of a data type: a tag and fields. A tuple is the one with tag 0."""

    __slots__ = ()

    def __init__(self, tag: int | str, fields: Iterable[Any] = (), type_name: str = "", constructor: str = "") -> None:
        super().__init__(tag, tuple(fields), type_name, ConstructorName(constructor))

    @staticmethod
    def of(value: DataValue) -> ADT:
        """A machine's value, whose fields are wrapped as they are looked at."""
        tag = value.constructor if value.tag is None else value.tag
        made = ADT(tag, (), value.type_name, value.constructor)
        made.native = value.native
        if value.native is None:
            made._fields = tuple(map(wrapped, value.fields))
        else:
            made._fields, made._read = None, lambda _: tuple(map(wrapped, value.fields))
        return made

    def __getitem__(self, index: int | slice) -> Any:
        """A field; of a slice a list. Raises IndexError."""
        if isinstance(index, slice):
            return list(self.fields[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"Index out of range. size: {len(self)}, got index {index}")
        return self.fields[index]


def tuple_object(fields: Iterable[Any] | None = None) -> ADT:
    """A tuple."""
    return ADT(0, fields or ())


def wrapped(value: Any) -> Any:
    """What a machine gave, as TVM gives it: tensors as NDArrays over the same memory, tuples and data values as ADTs."""
    if type(value) is Tensor:  # most results
        return over(value)
    if isinstance(value, Tensor):
        return NDArray.of(value)
    if isinstance(value, ADT):
        return value
    if isinstance(value, DataValue):
        return ADT.of(value)
    if isinstance(value, tuple):
        return tuple_object(map(wrapped, value))
    return value


def given(value: Any) -> Any:
    """What a machine gave, as Relax's machine gives it: tuples of any class and lists are Arrays, data values what they are."""
    if type(value) is Tensor:  # most results
        return over(value)
    if isinstance(value, Tensor):
        return NDArray.of(value)
    return Array(map(given, value)) if isinstance(value, (tuple, list)) else value
