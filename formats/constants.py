"""Constants as bytes: little-endian, C-contiguous, each at a multiple of 64, arrays mapped on them without a copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import limits, strings
from .codec import Buffer
from .dtypes import DType
from .mapped import is_private, owner, release
from .messages.errors import ArgumentError, FormatError, LimitError
from .types import TensorType, size_problem

_LARGE = 16 << 20  # bytes
_BLOCK_BYTES = 1 << 18  # half of L2, or less


def aligned(size: int) -> int:
    return -(-size // limits.ALIGNMENT) * limits.ALIGNMENT


def constant_type(array: np.ndarray) -> TensorType:
    return TensorType(DType.of(array.dtype), array.shape)


def check_replacements(old: Sequence[np.ndarray], new: Mapping[int, Any]) -> None:
    """Raises ArgumentError for constants, by their places, that are of other types than those whose places they take: what a
    verified program relies on is the type. All replacement of constants goes through here."""
    for place, array in new.items():
        if place not in range(len(old)):
            raise ArgumentError(f"constant {place!r:.40}: expected a number below {len(old)}")
        expected = constant_type(old[place])
        got = constant_type(array) if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        if got != expected:
            raise ArgumentError(f"constant {place}: expected {expected}, got {got}")


def constant_bytes(array: np.ndarray) -> memoryview:
    """The elements as they lie in the file."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return memoryview(little.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def constant_pieces(arrays: Iterable[np.ndarray]) -> list[Buffer]:
    """The elements of all arrays, with zeros between them, so that each starts at a multiple of 64."""
    pieces: list[Buffer] = []
    for array in arrays:
        data = constant_bytes(array)
        pieces.append(data)
        padding = aligned(len(data)) - len(data)
        if padding:
            pieces.append(bytes(padding))
    return pieces


def from_bytes(type_: TensorType, data: Buffer | np.ndarray) -> np.ndarray:
    """The tensor whose elements, little-endian, are these bytes, where they lie if they can stay there.

    Bytes of files and messages become tensors by this function alone. Raises FormatError for a string tensor, since its elements
    are numbers of this process's texts and a file has texts, for a shape that cannot be, and for another number of bytes.
    """
    if type_.dtype.is_string:
        raise FormatError(f"a {type_} cannot be made of bytes: a file has its texts, not numbers of them")
    if problem := size_problem(type_) or ("" if type_.is_static else "has an unknown size"):
        raise LimitError(f"a tensor {type_} {problem}")
    flat = data if isinstance(data, np.ndarray) else _flat(data)
    if flat.nbytes != type_.nbytes:
        raise FormatError(f"a tensor {type_} has {type_.nbytes} bytes, got {flat.nbytes}")
    elements = flat.view(type_.dtype.numpy.newbyteorder("<"))
    return elements.astype(type_.dtype.numpy, copy=False).reshape(type_.shape)  # type: ignore[arg-type]


def _flat(data: Buffer) -> np.ndarray:
    return np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)


def split_constants(types: Iterable[TensorType], data: Buffer, texts: np.ndarray = strings.NONE) -> list[np.ndarray]:
    """Read-only arrays on `data`, not copied unless it lies at an odd address; those of texts are made of places in a list of
    them, whose numbers are `texts`. Raises FormatError when sizes disagree."""
    types = list(types)
    for number, type_ in enumerate(types):
        check_constant_type(number, type_)
    expected = sum(aligned(type_.nbytes) for type_ in types)
    if expected != len(data):
        message = f"the constants of the index take {expected} bytes, but the section has {len(data)}"
        raise FormatError(message, section="constants")
    flat = _aligned_bytes(data)
    arrays, start = [], 0
    for number, type_ in enumerate(types):
        as_stored = TensorType(DType.uint64, type_.shape) if type_.dtype.is_string else type_
        array = from_bytes(as_stored, flat[start : start + type_.nbytes])
        if type_.dtype.is_string:
            array = aligned_copy(strings.from_indices(array, texts, f"constant {number}"))
        array.flags.writeable = False
        arrays.append(array)
        start += aligned(type_.nbytes)
    return arrays


def _aligned_bytes(data: Buffer) -> np.ndarray:
    flat = _flat(data)
    if flat.ctypes.data % limits.ALIGNMENT and len(flat):
        copy = aligned_empty(len(flat))
        copy[:] = flat
        return copy
    return flat


def aligned_empty(size: int) -> np.ndarray:
    """`size` bytes of new memory at a multiple of 64."""
    space = np.empty(size + limits.ALIGNMENT, np.uint8)
    start = -space.ctypes.data % limits.ALIGNMENT
    return space[start : start + size]


def aligned_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new array, C-contiguous, at a multiple of 64; what its elements are is not said."""
    return aligned_empty(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """The same elements, C-contiguous in native byte order, in new memory at a multiple of 64."""
    native = array.dtype.newbyteorder("=")  # another object, equal to NumPy's own, which calls know at a glance
    own = np.dtype(native.type)
    copy = aligned_array(array.shape, own if own == native else native)
    copy_elements(copy, array)
    return copy


def copy_elements(target: np.ndarray, source: np.ndarray) -> None:
    """`target[...] = source`, along the axis on which the source's elements lie farthest apart, as many bytes at a time as stay
    in L2: NumPy goes in the target's order, and fetches each of a transposed source's cache lines again and again."""
    distances = [abs(stride) if size > 1 else 0 for size, stride in zip(source.shape, source.strides, strict=True)]
    axis = int(np.argmax(distances)) if distances else 0
    if axis == 0 or source.nbytes <= _BLOCK_BYTES:
        target[...] = source
        return
    step = max(1, source.shape[axis] * _BLOCK_BYTES // source.nbytes)
    rows, targets = np.moveaxis(source, axis, 0), np.moveaxis(target, axis, 0)
    for start in range(0, len(rows), step):
        targets[start : start + step] = rows[start : start + step]


def gather(arrays: list[np.ndarray], moved: Callable[[int, np.ndarray], object]) -> None:
    """Has the arrays at aligned addresses, read-only, those below `_LARGE` bytes one after another in one block of memory.

    Each array is copied to its place in `arrays`, and `moved` is called, so that holders of the old one can release it before
    the next is copied: together they may be most of the memory. What lies in a private mapping stays there.

    Kernels read weights some percent faster from large pages, for which NumPy asks the system where an array takes megabytes.
    Large arrays have them so, and copies of these would be a burden.
    """
    small = [number for number, array in enumerate(arrays) if array.nbytes < _LARGE and not is_private(array)]
    block, end = aligned_empty(sum(aligned(arrays[number].nbytes) for number in small)), 0
    in_block = set(small)
    for number, array in enumerate(arrays):
        place = array.view()
        if number in in_block:
            place = block[end : end + array.nbytes].view(array.dtype).reshape(array.shape)
            place[...] = array
            end += aligned(array.nbytes)
        elif owner(array) is None and array.ctypes.data % limits.ALIGNMENT:
            place = aligned_copy(array)
        release(array)
        place.flags.writeable = False
        arrays[number] = place
        moved(number, place)
        del array


def check_constant_type(number: int, type_: TensorType) -> None:
    if not type_.is_static:
        raise FormatError(f"constant {number} is a {type_}; its shape must be known", section="constant_index")
    if problem := size_problem(type_):
        raise LimitError(f"constant {number}, a {type_}, {problem}", section="constant_index")
    if type_.nbytes > limits.CONSTANT_BYTES:
        message = (
            f"constant {number}, a {type_}, takes {type_.nbytes} bytes; at most {limits.CONSTANT_BYTES} are allowed"
        )
        raise LimitError(message, section="constant_index")
