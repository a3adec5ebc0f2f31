"""Values that TVM's functions take and give besides tensors: numbers, strings, shapes, lists, mappings; Python's values too."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ...formats.messages.errors import ArgumentError


class Object:
    """A value of TVM's. Here it is Python's own object; `handle` tells two apart."""

    __slots__ = ()

    @property
    def handle(self) -> ctypes.c_void_p:
        """A handle of its own each time, as each crossing of TVM's border makes one; its value is the object's."""
        return ctypes.c_void_p(id(self))

    @property
    def __tvm_object__(self) -> Object:
        return self

    def same_as(self, other: object) -> bool:
        """Whether both names mean one object."""
        return self is other

    def _move(self) -> Any:
        """The object, for a call that may take it over: Python counts references itself."""
        return self


class IntImm(int, Object):
    """An integer that says its type."""

    dtype: str

    def __new__(cls, dtype: str, value: int, span: object = None) -> IntImm:
        made = super().__new__(cls, value)
        made.dtype = dtype
        return made

    @property
    def value(self) -> int:
        return int(self)


class FloatImm(float, Object):
    """A number that says its type."""

    __slots__ = ("dtype",)
    dtype: str

    def __new__(cls, dtype: str, value: float, span: object = None) -> FloatImm:
        made = super().__new__(cls, value)
        made.dtype = dtype
        return made

    @property
    def value(self) -> float:
        return float(self)


class String(str, Object):
    """A string."""

    __slots__ = ()


class ShapeTuple(Object, Sequence):
    """The sizes of a tensor: equal to any sequence of the same integers."""

    __slots__ = ("_sizes",)

    def __init__(self, shape: Iterable[int]) -> None:
        """Raises ArgumentError for anything but an integer."""
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
    type_key = "Array"

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Array(found) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


class Map(dict, Object):
    """A mapping; `items` gives a list, as it did in TVM."""

    __slots__ = ()
    type_key = "Map"

    def items(self) -> list[tuple[Any, Any]]:  # type: ignore[override]
        return list(super().items())
