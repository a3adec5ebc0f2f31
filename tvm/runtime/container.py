"""`tvm.runtime.container`: strings, shapes, lists, maps, tuples and values of data types."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ...formats.errors import ArgumentError
from ...vm.tensor import Tensor
from ...vm.values import DataValue
from .ndarray import NDArray
from .object import Object


class String(str, Object):
    """A string."""

    __slots__ = ()


class ShapeTuple(Object, Sequence):
    """The sizes of a tensor: equal to any sequence of the same integers."""

    __slots__ = ("_sizes",)

    def __init__(self, shape: Iterable[int]) -> None:
        """Raises ArgumentError for what is no integer."""
        try:
            self._sizes = tuple(operator.index(size) for size in shape)
        except TypeError:
            raise ArgumentError(f"ShapeTuple({shape!r}): expected integers") from None

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: Any) -> Any:
        return self._sizes[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (ShapeTuple, tuple, list)):
            return NotImplemented
        return self._sizes == tuple(other)

    def __hash__(self) -> int:
        return hash(self._sizes)

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self._sizes))}]"


class Array(tuple, Object):
    """A list that does not change."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Array(found) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


class Map(dict, Object):
    """A mapping."""

    __slots__ = ()


class ADT(DataValue, Object):
    """A value of a data type: a tag and fields. A tuple is the one with tag 0."""

    __slots__ = ()

    def __init__(self, tag: int | str, fields: Iterable[Any] = (), type_name: str = "", constructor: str = "") -> None:
        super().__init__(tag, tuple(fields), type_name, constructor)

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


def tuple_object(fields: Iterable[Any] = ()) -> ADT:
    """A tuple."""
    return ADT(0, fields)


def wrapped(value: Any) -> Any:
    """What a machine gave, as TVM gives it: tensors as NDArrays over the same memory, tuples and data values as ADTs."""
    if isinstance(value, NDArray):
        return value
    if isinstance(value, Tensor):
        return NDArray(value.array)
    if isinstance(value, ADT):
        return value
    if isinstance(value, DataValue):
        return ADT.of(value)
    if isinstance(value, tuple):
        return tuple_object(map(wrapped, value))
    return value
