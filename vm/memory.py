"""Memory at raw addresses, as Python looks at it: words, tensors' elements and dimensions."""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any

import numpy as np

from .layout import KIND, OBJECT, OBJECT_HEAD, WORD


def word(address: int, index: int = 0) -> int:
    """A word of memory."""
    return ctypes.c_int64.from_address(address + WORD * index).value


def set_word(address: int, index: int, value: int) -> None:
    ctypes.c_int64.from_address(address + WORD * index).value = value


def words(address: int, count: int) -> tuple[int, ...]:
    return tuple(_array_type(count).from_address(address))


@functools.lru_cache(maxsize=64)
def _array_type(count: int) -> Any:
    return ctypes.c_int64 * count


def array_at(address: int, dtype: np.dtype, shape: tuple[int, ...], writeable: bool = True) -> np.ndarray:
    """Memory as an array, which keeps nothing alive."""
    # NumPy takes no null for no elements
    made: np.ndarray = np.ndarray(shape, dtype, _Memory.from_address(address or 64))
    if not writeable:
        made.flags.writeable = False
    return made


_Memory: Any = ctypes.c_char * (1 << 62)  # from an address on, however much is read: an array knows how far it goes
_OWN = 1  # `dtype.isbuiltin` of NumPy's own types: not of those that a package has registered, nor of texts' numbers


class Elements:
    """Memory as NumPy takes it, with an `owner` that lives as long as an array of it."""

    __slots__ = ("__array_interface__", "dtype", "owner")

    def __init__(self, address: int, dtype: np.dtype, shape: tuple[int, ...], owner: object, writeable: bool) -> None:
        # NumPy wants an address that is not zero even for no elements
        data = (address or 64, not writeable)
        self.dtype = dtype
        # NumPy's interface has no names for types of others
        typestr = dtype.str if dtype.isbuiltin == _OWN else np.dtype(f"u{dtype.itemsize}").str
        self.__array_interface__ = {"version": 3, "typestr": typestr, "shape": shape, "data": data}
        self.owner = owner

    def array(self) -> np.ndarray:
        array = np.asarray(self)
        return array if self.dtype.isbuiltin == _OWN else array.view(self.dtype)


def pinned(array: np.ndarray) -> object:
    """An object that pins an array's elements while it lives: NumPy refuses to resize an array that has weak
    references, also where it is told not to look at the strong ones (`refcheck=False`)."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return weakref.ref(array)


def tensor_shape(reference: int) -> tuple[int, ...]:
    """The dimensions of a tensor object."""
    address = reference & ~1
    return words(address + WORD * OBJECT.ITEMS, word(address, OBJECT.COUNT))


def block_bytes(size: int) -> int:
    """The bytes that an object of `size` bytes counts in the budget: `heap.allocate` rounds to one of four sizes between two
    powers of two."""
    power = (size - 1).bit_length() - 1
    return ((size - 1 >> power - 2) & 3) + 5 << power - 2


def heap_bytes(reference: int, most: int) -> int:
    """Bytes of all objects that a reference leads to, each counted once; those of the program's constants are not. Stops soon
    after `most`: a list of a million cells takes about a second."""
    total, seen, todo = 0, set(), [reference]
    while todo and total <= most:
        address = todo.pop()
        if address == 0 or address & 1 or address in seen:
            continue
        seen.add(address)
        header = words(address, OBJECT.ITEMS)
        total += header[OBJECT.SIZE]
        if header[OBJECT.KIND] == KIND.TENSOR:
            todo.append(header[OBJECT.OWNER])
        elif header[OBJECT.KIND] in (KIND.DATA, KIND.CLOSURE):
            todo += words(address + OBJECT_HEAD, header[OBJECT.COUNT])
    return total
