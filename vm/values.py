"""Values that are no tensors, as Python sees them: data values and closures. Tuples are Python's.

What comes out of the machine stays native until it is looked at, so that a list of a million cells costs nothing to return, and
goes back in as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..formats.types import FunctionType


class NativeReference:
    """One reference to an object of the machine's heap, given up when this object goes. `owner` and `constants` keep what is
    none of the heap's alive."""

    __slots__ = ("_drop", "constants", "owner", "word")

    def __init__(self, word: int, drop: Callable[[int], Any], owner: object, constants: object = None) -> None:
        self.word, self._drop, self.owner, self.constants = word, drop, owner, constants

    def __del__(self) -> None:
        if self.word & 1 == 0:
            self._drop(self.word)


class DataValue:
    """A value of an algebraic data type: a constructor's tag, and its fields.

    Two values are equal when their tags are, and they are of the same type; fields are compared by whoever knows how.
    """

    __slots__ = ("_fields", "_read", "constructor", "native", "tag", "type_name")

    def __init__(self, tag: int | str, fields: tuple | list = (), type_name: str = "", constructor: str = "") -> None:
        """`tag` is a constructor's position in its type, or its name: then the machine finds the position where the value
        is used, as it does for the type's name."""
        self.tag: int | None = None if isinstance(tag, str) else tag
        self.constructor = tag if isinstance(tag, str) else constructor
        self.type_name = type_name
        self._fields: tuple | None = tuple(fields)
        self._read: Callable[[NativeReference], tuple] | None = None
        self.native: NativeReference | None = None

    @staticmethod
    def of_native(
        tag: int, type_name: str, constructor: str, native: NativeReference, read: Callable[[NativeReference], tuple]
    ) -> DataValue:
        """A value in the machine's heap; `read` gives its fields."""
        value = DataValue(tag, (), type_name, constructor)
        value._fields, value._read, value.native = None, read, native
        return value

    @property
    def fields(self) -> tuple:
        if self._fields is None:
            assert self._read is not None
            assert self.native is not None
            self._fields = self._read(self.native)
        return self._fields

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __repr__(self) -> str:
        name = self.constructor or f"tag {self.tag}"
        # one level: values may be lists of a million cells
        inner = ", ".join(f"{f.constructor or f.tag}(…)" if isinstance(f, DataValue) else repr(f) for f in self.fields)
        return f"{name}({inner})"


class Closure:
    """A function of a program with captured values. `machine.invoke_closure(closure, …)`, or `closure(…)`, calls it."""

    __slots__ = ("_call", "name", "native", "type")

    def __init__(
        self, name: str, type_: FunctionType, native: NativeReference, call: Callable[..., Any] | None = None
    ) -> None:
        self.name, self.type, self.native, self._call = name, type_, native, call

    def __call__(self, *args: Any) -> Any:
        if self._call is None:
            raise TypeError(f"the machine of closure {self.name!r} is gone")
        return self._call(self, *args)

    def __repr__(self) -> str:
        return f"<Closure {self.name}: {self.type}>"
