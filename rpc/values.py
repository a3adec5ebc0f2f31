"""Values on their way to a remote device and back: a list of nodes, each of which names those that it is made of by number.

Nothing here recurses: a list of a million cells is as deep as it is long. Each node is used once, so that what is read is never
larger than what was sent. What lies at the server is named by a handle, a number of its session's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats import limits
from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError, DTypeError, FormatError
from ..vm.convert import array_of_library
from ..vm.tensor import Tensor
from ..vm.values import Closure, DataValue
from .wire import Steps

_NUMBERS = 1 << 20  # in nested lists: as Python's objects they take some 40 bytes each


class Writer:
    """Collects values; `nodes` goes into the header, `parts` after it. `special`, called with this writer and a value, gives the
    node of what is at the server, or is to stay there, None for anything else."""

    def __init__(self, special: Callable[[Writer, Any], list[Any] | None]) -> None:
        self.nodes: list[list[Any]] = []
        self.parts: list[Any] = []
        self._special = special

    def add(self, value: Any) -> int:
        """The number of a value's node. Raises ArgumentError, DTypeError."""
        todo: list[tuple[Any, int]] = [(value, -1)]
        done: list[int] = []
        while todo:
            value, count = todo.pop()
            if count >= 0:  # its fields are done
                first = len(done) - count
                done[first:] = [self._node([*value, done[first:]])]
                continue
            node = self._special(self, value)
            if node is None and isinstance(value, DataValue):
                fields = value.fields
                todo.append((["data", value.tag, value.constructor, value.type_name], len(fields)))
                todo += [(field, -1) for field in reversed(fields)]
            elif node is None and isinstance(value, (tuple, list)) and not _is_numbers(value):
                todo.append((["tuple"], len(value)))
                todo += [(field, -1) for field in reversed(value)]
            else:
                done.append(self._node(self._leaf(value) if node is None else node))
        return done[0]

    def tensor(self, array: np.ndarray, kind: str = "tensor") -> list[Any]:
        """The node of an array whose elements travel along. Raises DTypeError."""
        array, name = plain(array)
        self.parts.append(array.reshape(-1).view(np.uint8).data)
        return [kind, name, list(array.shape)]

    def _leaf(self, value: Any) -> list[Any]:
        if value is None:
            return ["none"]
        if isinstance(value, Closure):
            raise ArgumentError(f"{value!r} belongs to another machine")
        if isinstance(value, (bool, int, float, list, tuple)):
            array = np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise ArgumentError(f"{value!r:.60}: a number of more than 64 bits does not travel")
            if array.size > _NUMBERS:
                raise ArgumentError(f"lists of {array.size} numbers do not travel, {_NUMBERS} at most; make an array")
            return self.tensor(array, "numbers")
        return self.tensor(as_array(value))

    def _node(self, node: list[Any]) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


class Reader:
    """Makes values of nodes. `special` makes those of kinds that are not known here, `tensor` what an array becomes; neither is
    kept, so that who reads may keep the reader."""

    def __init__(
        self,
        nodes: Any,
        data: memoryview,
        special: Callable[[list[Any]], Any],
        tensor: Callable[[np.ndarray], Any] = lambda array: array,
        steps: Steps | None = None,
    ) -> None:
        """`steps` counts what is made. Raises FormatError."""
        if not isinstance(nodes, list):
            raise FormatError("a message's values: expected a list of nodes")
        self._steps = steps or Steps()
        self._steps.spend(len(nodes))
        self._data, self._values = data, [None] * len(nodes)
        self._free = [False] * len(nodes)  # which are made and not used
        for number, node in enumerate(nodes):
            if not isinstance(node, list) or not node or not isinstance(node[0], str):
                raise FormatError(f"a message's values: node {number} has no kind")
            self._values[number] = self._value(node, special, tensor)
            self._free[number] = True

    def take(self, number: Any) -> Any:
        """The value of a node, once. Raises FormatError."""
        if type(number) is not int or not 0 <= number < len(self._free) or not self._free[number]:
            raise FormatError(f"a message's values: {number!r:.20} is not a node that may be used here")
        self._free[number] = False
        return self._values[number]

    def take_all(self, numbers: Any) -> list[Any]:
        """The values of nodes. Raises FormatError."""
        if not isinstance(numbers, list):
            raise FormatError("a message's values: expected a list of numbers of nodes")
        return [self.take(number) for number in numbers]

    def _value(self, node: list[Any], special: Callable[..., Any], tensor: Callable[..., Any]) -> Any:
        kind, *rest = node
        if kind == "none" and not rest:
            return None
        if kind in ("tensor", "numbers") and len(rest) == 2:
            if kind == "numbers":
                self._steps.spend(_objects(rest[1]))
            array = self._array(*rest)
            if kind == "numbers" and array.size > _NUMBERS:
                raise FormatError(f"a message's values: {array.size} numbers, {_NUMBERS} at most")
            return array.tolist() if kind == "numbers" else tensor(array)
        if kind == "tuple" and len(rest) == 1:
            return tuple(self.take_all(rest[0]))
        if kind == "data" and len(rest) == 4:
            tag, constructor, type_name, fields = rest
            if not isinstance(constructor, str) or not isinstance(type_name, str):
                raise FormatError("a message's values: a data value's names are text")
            if tag is not None and (type(tag) is not int or not 0 <= tag < limits.CONSTRUCTORS):
                raise FormatError(f"a message's values: {tag!r:.20} is not a constructor's tag")
            values = self.take_all(fields)
            return DataValue(constructor if tag is None else tag, values, type_name, constructor)
        return special(node)

    def _array(self, dtype: Any, shape: Any) -> np.ndarray:
        kind, sizes = read_type(dtype, shape)
        size = math.prod(sizes) * kind.itemsize
        if size > len(self._data):
            raise FormatError(f"a message's values: {dtype}{list(sizes)} has {size} bytes, got {len(self._data)}")
        data, self._data = self._data[:size], self._data[size:]
        return array_of(data, kind, sizes)


def _objects(shape: Any) -> int:
    """How many numbers and lists nested lists of a shape are."""
    count = total = 1
    for size in shape if isinstance(shape, list) else ():
        count *= size if type(size) is int and size > 0 else 0
        total += count
    return total


def read_type(dtype: Any, shape: Any) -> tuple[np.dtype, tuple[int, ...]]:
    """A received element type and shape. Raises FormatError."""
    if not isinstance(dtype, str) or dtype not in DType.__members__:
        raise FormatError(f"a message's values: {dtype!r:.40} is not an element type")
    if not isinstance(shape, list) or len(shape) > limits.RANK:
        raise FormatError(f"a message's values: a shape is a list of {limits.RANK} sizes at most")
    if any(type(size) is not int or not 0 <= size <= limits.DIMENSION for size in shape):
        raise FormatError("a message's values: a shape's sizes are whole numbers")
    if DType[dtype].is_string:  # its elements are numbers of this process, and may be another client's texts
        raise FormatError("a message's values: texts do not travel to or from a remote device")
    return DType[dtype].numpy, tuple(shape)


def array_of(data: Any, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """The bytes as an array. Raises FormatError."""
    try:
        if not len(data):
            return np.zeros(shape, dtype)
        array = np.frombuffer(data, np.uint8) if dtype == np.bool_ else np.frombuffer(data, dtype)
        return (array != 0 if dtype == np.bool_ else array).reshape(shape)
    except ValueError as error:
        raise FormatError(f"a message's values: {dtype}{list(shape)}: {error}") from None


def as_array(value: Any) -> np.ndarray:
    """A tensor of whatever library as an array. Raises ArgumentError."""
    if isinstance(value, Tensor):
        return value.array
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    try:
        return array_of_library(value)
    except TypeError:
        raise ArgumentError(f"expected a tensor or a value, got a {type(value).__name__}") from None


def plain(array: np.ndarray) -> tuple[np.ndarray, str]:
    """The elements one after another in this system's byte order, and the name of their type. Raises DTypeError."""
    try:
        dtype = DType.of(array.dtype)
    except DTypeError:
        raise DTypeError(f"an array of {array.dtype} does not travel; convert it with astype") from None
    return np.ascontiguousarray(array, dtype.numpy).reshape(array.shape), dtype.name


def _is_numbers(value: tuple | list) -> bool:
    """Whether these are numbers, or lists of the same lengths of them. Tuples are values of their own where they hold none."""
    if not value or any(not isinstance(each, (bool, int, float, list, tuple)) for each in value):
        return False
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except (ValueError, RecursionError):
        return False
