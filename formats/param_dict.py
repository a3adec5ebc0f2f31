"""TVM's parameter file, byte for byte: names, and a tensor for each.

    list    u64 magic, u64 reserved (0), names, u64 count (as many as there are names), one tensor for each name
    names   u64 count, of each u64 bytes and UTF-8 text
    tensor  u64 magic, u64 reserved (0), device (i32 type: CPU, i32 number: 0), i32 rank, dtype, i64 sizes, i64 bytes, elements
    dtype   u8 code, u8 bits, u16 lanes

All little-endian, elements in C order. The layout has been the same since TVM 0.6. TVM reads a file that ends too early and gives
memory that nobody wrote as weights; here every length is compared with the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import limits
from .codec import Buffer
from .constants import aligned_copy
from .container import open_mapped, save
from .data_type import DataTypeCode, bfloat16
from .messages.errors import FileError, FormatError, LimitError

LIST_MAGIC = 0xF7E58D4F05049CB7
TENSOR_MAGIC = 0xDD5E40F096B4A13F

_CPU = 1
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_HEAD = struct.Struct("<QQ")  # magic, reserved
_TENSOR = struct.Struct("<QQiiiBBH")  # magic, reserved, device, rank, dtype
_TENSOR_BYTES = _TENSOR.size + _I64.size  # at least


# An element type's name → DLPack's (code, bits). Of several codes of one type the last is written: TVM up to 0.19 has truth
# values as unsigned integers of one bit, in a byte each; later ones read that too, and have a code for them.
_CODES: tuple[tuple[str, tuple[int, int]], ...] = (
    ("bool", (6, 8)),
    ("bool", (6, 1)),
    ("bool", (DataTypeCode.UINT, 1)),
    *((f"int{bits}", (DataTypeCode.INT, bits)) for bits in (8, 16, 32, 64)),
    *((f"uint{bits}", (DataTypeCode.UINT, bits)) for bits in (8, 16, 32, 64)),
    *((f"float{bits}", (DataTypeCode.FLOAT, bits)) for bits in (16, 32, 64)),
    ("bfloat16", (DataTypeCode.BFLOAT, 16)),
    ("complex64", (DataTypeCode.COMPLEX, 64)),
    ("complex128", (DataTypeCode.COMPLEX, 128)),
)
_BY_CODE = {code: name for name, code in _CODES}
_BY_NAME = dict(_CODES)
ELEMENT_TYPES = frozenset(_BY_NAME)  # that TVM's files have


# ---- writing ----


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """The bytes of a parameter file. Values are arrays, or anything that NumPy makes one of.

    Names keep their order: the same mapping gives the same bytes. Raises FormatError.
    """
    return bytearray().join(_pieces(params))


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Writes a parameter file, which is there whole or not at all. Raises FormatError, FileError."""
    save(path, list(_pieces(params)))


def _pieces(params: Mapping[str, Any]) -> Iterator[Buffer]:
    names = [_name(name) for name in params]
    yield _HEAD.pack(LIST_MAGIC, 0) + _U64.pack(len(names))
    for text in names:
        yield _U64.pack(len(text)) + text
    yield _U64.pack(len(names))
    for name, value in params.items():
        yield from tensor_pieces(name, value)


def _name(name: object) -> bytes:
    if not isinstance(name, str):
        raise FormatError(f"a parameter's name must be a string, got {name!r}")
    data = name.encode()
    if len(data) > limits.STRING_BYTES:
        raise LimitError(
            f"parameter {name[:40]!r}…: its name has {len(data)} bytes; the limit is {limits.STRING_BYTES}"
        )
    return data


def tensor_pieces(name: str, value: Any) -> Iterator[Buffer]:
    """A tensor as TVM's files hold it. `name` is for messages. Raises FormatError."""
    array = np.asarray(value)
    code = _BY_NAME.get(array.dtype.name)
    if code is None:
        known = ", ".join(_BY_NAME)
        raise FormatError(f"parameter {name!r}: TVM's files have no element type {array.dtype}; they have {known}")
    if array.ndim > limits.RANK:
        raise LimitError(f"parameter {name!r}: rank {array.ndim}; the limit is {limits.RANK}")
    array = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    yield (
        _TENSOR.pack(TENSOR_MAGIC, 0, _CPU, 0, array.ndim, *code, 1)
        + b"".join(map(_I64.pack, array.shape))
        + _I64.pack(array.nbytes)
    )
    yield memoryview(array.reshape(-1).view(np.uint8)) if array.nbytes else b""  # type: ignore[arg-type]


# ---- reading ----


def load_param_dict(data: Buffer | bytearray) -> dict[str, np.ndarray]:
    """The parameters in the bytes of a file; the arrays are copies. Raises FormatError, which says at what byte."""
    reader = TensorReader(memoryview(data).cast("B"))
    names = reader.names()
    count = reader.count("tensors", _TENSOR_BYTES)
    if count != len(names):
        raise reader.error(f"there are {len(names)} names, and {count} tensors")
    params = {name: reader.tensor(name) for name in names}
    if reader.left:
        raise reader.error(f"{reader.left} bytes are behind the last parameter")
    return params


def load_param_dict_from_file(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The parameters of a file. Raises FormatError, FileError."""
    try:
        _, data = open_mapped(path)
    except OSError as error:
        raise FileError.of(error, f"cannot read {str(path)!r}", str(path)) from error
    return load_param_dict(data)


class TensorReader:
    """Reads names and tensors off TVM's files. Nothing is allocated before the bytes for it are there."""

    def __init__(self, data: memoryview, offset: int = 0, what: str = "parameters") -> None:
        self._data, self.offset, self._what = data, offset, what

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return len(self._data) - self.offset

    def error(self, message: str, kind: type[FormatError] = FormatError) -> FormatError:
        """An error that says where."""
        return kind(message, section=self._what, offset=self.offset)

    def names(self) -> list[str]:
        """The head of a list, and its names."""
        magic, _ = self.unpack(_HEAD, "the head of the list")
        if magic != LIST_MAGIC:
            from .messages.file_kinds import HEAD_BYTES, told  # only for malformed ones

            raise self.error(f"not TVM's parameters: {told(bytes(self._data[:HEAD_BYTES]))}")
        count = self.count("names", _U64.size)
        if count > limits.STRINGS:
            raise self.error(f"{count} names; the limit is {limits.STRINGS}", LimitError)
        names: dict[str, None] = {}
        for number in range(count):
            name = self._text(f"name {number}")
            if name in names:
                raise self.error(f"two parameters are called {name!r}")
            names[name] = None
        return list(names)

    def tensor(self, name: str) -> np.ndarray:
        """The next tensor, copied. `name` is for messages."""
        what = f"parameter {name!r}"
        magic, _, device, _, rank, *dtype = self.unpack(_TENSOR, f"{what}: its head")
        if magic != TENSOR_MAGIC:
            raise self.error(f"{what}: a tensor starts with {TENSOR_MAGIC:#x}, this with {magic:#x}")
        if device != _CPU:
            raise self.error(f"{what}: tensors in files are on the CPU ({_CPU}), this is on device type {device}")
        if not 0 <= rank <= limits.RANK:
            raise self.error(f"{what}: rank {rank}; the limit is {limits.RANK}", LimitError)
        shape = [self.unpack(_I64, f"{what}: its shape")[0] for _ in range(rank)]
        (size,) = self.unpack(_I64, f"{what}: its number of bytes")
        kind = self._dtype(what, *dtype)
        if any(not 0 <= dim <= limits.DIMENSION for dim in shape) or _volume(shape) > limits.DIMENSION:
            raise self.error(f"{what}: a shape of {shape}; the limit is {limits.DIMENSION} elements", LimitError)
        expected = math.prod(shape) * kind.itemsize
        if size != expected:
            raise self.error(f"{what}: {size} bytes are announced, {kind.name}{shape} has {expected}")
        elements = self._take(size, f"{what}: its elements")
        if kind == np.bool_ and size and np.frombuffer(elements, np.uint8).max() > 1:
            raise self.error(
                f"{what}: truth values must be the bytes 0 and 1, got others (8-bit floats are not supported)"
            )
        return aligned_copy(np.frombuffer(elements, kind).reshape(shape))

    def count(self, what: str, least: int) -> int:
        """A number of things, each of which takes `least` bytes at least."""
        (count,) = self.unpack(_U64, f"the number of {what}")
        if count > self.left // least:
            raise self.error(f"{count} {what} are announced; {self.left} bytes are left", LimitError)
        return count

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        """The fields of a fixed layout."""
        return layout.unpack(self._take(layout.size, what))

    def _text(self, what: str) -> str:
        (size,) = self.unpack(_U64, f"{what}: its length")
        if size > limits.STRING_BYTES:
            raise self.error(f"{what}: {size} bytes; the limit is {limits.STRING_BYTES}", LimitError)
        data = self._take(size, what)
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what}: {bytes(data[:40])!r} is not UTF-8") from None

    def _take(self, size: int, what: str) -> memoryview:
        if size > self.left:
            raise self.error(f"{what} needs {size} bytes, {self.left} are left: the data is cut short")
        self.offset += size
        return self._data[self.offset - size : self.offset]

    def _dtype(self, what: str, code: int, bits: int, lanes: int) -> np.dtype:
        name = _BY_CODE.get((code, bits))
        if lanes != 1 or name is None:
            known = ", ".join(_BY_NAME)
            raise self.error(f"{what}: element type code {code}, {bits} bits, {lanes} lanes is none of {known}")
        if name == "bfloat16":
            try:
                return bfloat16()
            except FormatError as error:
                raise self.error(f"{what}: {error.message}") from None
        return np.dtype(name).newbyteorder("<")


def _volume(shape: list[int]) -> int:
    """Elements, without regard to axes of size 0: NumPy refuses what is too large in this sense."""
    return math.prod(dim or 1 for dim in shape)
