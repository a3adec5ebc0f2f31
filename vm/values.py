"""Values that are not tensors, as Python sees them: data values and closures. Tuples are Python's.

What comes out of the machine stays native until it is looked at, so that a list of a million cells costs nothing to return, and
goes back in as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats.messages.calling import Suggesting
from ..formats.types import FunctionType
from .in_process import InProcess


class NativeReference(InProcess):
    """One reference to an object of the machine's heap, given up when this object goes. `owner` and `constants` keep what is
    none of the heap's alive."""

    __slots__ = ("_drop", "constants", "owner", "word")

    def __init__(
        self, word: int, drop: Callable[[int], Any], owner: object, constants: tuple[object, ...] = ()
    ) -> None:
        self.word, self._drop, self.owner, self.constants = word, drop, owner, constants

    def __del__(self) -> None:
        if self.word & 1 == 0:
            self._drop(self.word)


class DataValue(Suggesting):
    """A value of an algebraic data type: a constructor's tag, and its fields.

    Two values are equal when their constructors are, and all their fields: tensors with the same element type, shape and
    elements (NaN equals nothing), values; closures where they are the same one. There is no hash. It pickles as its constructor
    and fields, those of a value in the machine's heap too.
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Flat: a list may have a million cells, each in the one before."""
        numbers: dict[int, int] = {}  # of the values that stand before, by what tells them apart
        parts: list[tuple[Any, ...]] = []
        waiting = [self]
        while waiting:
            value = waiting[-1]
            inner = [field for field in value.fields if isinstance(field, DataValue) and field._identity not in numbers]
            if inner and value._identity not in numbers:
                waiting += inner
                continue
            waiting.pop()
            if value._identity not in numbers:
                numbers[value._identity] = len(parts)
                fields = [numbers[each._identity] if isinstance(each, DataValue) else (each,) for each in value.fields]
                parts.append((type(value), value.tag, value.constructor, value.type_name, fields))
        return _of_parts, (parts,)

    @property
    def _identity(self) -> int:
        return self.native.word if isinstance(self.native, NativeReference) else id(self)

    def __eq__(self, other: object) -> bool:
        """Not by recursion: a list may have a million cells."""
        if not isinstance(other, DataValue):
            return NotImplemented
        waiting: list[tuple[Any, Any]] = [(self, other)]
        while waiting:
            a, b = waiting.pop()
            if a is b and isinstance(a, Closure):
                continue
            if isinstance(a, DataValue) and isinstance(b, DataValue):
                if not a._is_made_as(b) or len(a.fields) != len(b.fields):
                    return False
                waiting += zip(a.fields, b.fields, strict=True)
            elif isinstance(a, tuple) and isinstance(b, tuple):
                if len(a) != len(b):
                    return False
                waiting += zip(a, b, strict=True)
            elif any(isinstance(each, (DataValue, tuple, Closure)) for each in (a, b)):
                return False
            else:
                if not _are_equal_tensors(a, b):
                    return False
        return True

    __hash__ = None  # type: ignore[assignment]  # fields may be written to

    def _is_made_as(self, other: DataValue) -> bool:
        """By the same constructor: a value that the user made may know no more than the name of that."""
        if self.type_name and other.type_name and self.type_name != other.type_name:
            return False
        if self.tag is not None and other.tag is not None:
            return self.tag == other.tag
        return self.constructor == other.constructor

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __repr__(self) -> str:
        name = self.constructor or f"tag {self.tag}"
        # one level: values may be lists of a million cells
        inner = ", ".join(f"{f.constructor or f.tag}(…)" if isinstance(f, DataValue) else repr(f) for f in self.fields)
        return f"{name}({inner})"


def _are_equal_tensors(a: Any, b: Any) -> bool:
    """A Python number has no element type of its own."""
    x, y = np.asarray(a), np.asarray(b)
    is_typed = type(a) not in (bool, int, float) and type(b) not in (bool, int, float)
    return x.shape == y.shape and (x.dtype == y.dtype or not is_typed) and bool((x == y).all())


def _of_parts(parts: list[tuple[Any, ...]]) -> DataValue:
    """The last of values, whose fields are numbers of values before, or a tuple with anything else."""
    made: list[DataValue] = []
    for kind, tag, constructor, type_name, fields in parts:
        value = object.__new__(kind)
        values = [made[field] if isinstance(field, int) else field[0] for field in fields]
        DataValue.__init__(value, constructor if tag is None else tag, values, type_name, constructor)
        made.append(value)
    return made[-1]


class Closure(InProcess):
    """A function of a program with captured values. `machine.invoke_closure(closure, …)`, or `closure(…)`, calls it.

    It belongs to its machine: it cannot be pickled, and is its own copy."""

    __slots__ = ("_call", "name", "native", "type")

    instead = "return from the function what it captures"

    def __init__(
        self, name: str, type_: FunctionType, native: NativeReference, call: Callable[..., Any] | None = None
    ) -> None:
        self.name, self.type, self.native, self._call = name, type_, native, call

    def __call__(self, *args: Any) -> Any:
        if self._call is None:
            raise TypeError(f"the machine of closure {self.name!r} is gone")
        return self._call(self, *args)

    def __copy__(self) -> Closure:
        return self

    def __deepcopy__(self, memo: object) -> Closure:
        return self

    def __repr__(self) -> str:
        return f"<Closure {self.name}: {self.type}>"
