"""Files with executables of TVM's two virtual machines: which one a file holds, and where, and what their readers share.

Both start with a u64 magic and a version as text. The Relay VM's has TVM's version, as 0.14.0; that of the Relax VM has
always been "0.14", and since TVM 0.23 its magic ends in 1E, for memory scopes. In front of it may be its number of bytes, as
a u64. So it lies in shared libraries, object files and archives, which may be compressed: the magic is looked for, nothing
else in them is read.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from ...formats import limits
from ...formats.codec import Buffer
from ...formats.container import open_mapped
from ...formats.messages.errors import FileError, FormatError, LimitError
from ...formats.messages.file_kinds import HEAD_BYTES, told
from ...formats.param_dict import TensorReader

MAGIC, MAGIC_SCOPES = 0xD225DE2F4214151D, 0xD225DE2F4214151E
RELAX_VERSION = "0.14"
RELAY, RELAX = "Relay", "Relax"  # the two machines

_U64, _I64 = struct.Struct("<Q"), struct.Struct("<q")
_STARTS = (_U64.pack(MAGIC), _U64.pack(MAGIC_SCOPES))
_COMMON = _STARTS[0][1:]  # what both have in common, in a file
_HEAD_BYTES = 20  # of the magic and the shortest version's text
_WINDOW = 1 << 22  # bytes that are looked through at once
_GZIP = b"\x1f\x8b"  # how TVM's .tar files start
_GZIP_BITS = 31  # zlib's number for that kind of file

_T = TypeVar("_T")


class Found(NamedTuple):
    """An executable in a file."""

    machine: str  # RELAY, RELAX
    data: memoryview
    is_inside: bool  # of another file, such as a library


def open_file(source: str | os.PathLike | Buffer) -> memoryview:
    """A file's bytes, mapped, or those that are given. Raises FileError."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).cast("B")
    try:
        _, data = open_mapped(source)
    except OSError as error:
        raise FileError.of(error, f"cannot read {os.fspath(source)!r}", os.fspath(source)) from error
    return memoryview(data).cast("B")


def find_executable(data: memoryview, machine: str = "") -> Found | None:
    """The executable that the bytes are, or the first that they hold; of one machine, or of either."""
    if data[:2] == _GZIP:
        data = _inflated(data)
    for place in (0, _U64.size):
        kind = _machine_at(data, place) if place == 0 or _length_before(data, place) == len(data) - place else ""
        if kind and machine in ("", kind):
            return Found(kind, data[place:], False)
    for place in _places(data):
        length, kind = _length_before(data, place), _machine_at(data, place)
        if kind and machine in ("", kind) and length is not None and _HEAD_BYTES <= length <= len(data) - place:
            return Found(kind, data[place : place + length], True)
    return None


def require_executable(source: str | os.PathLike | Buffer, machine: str) -> memoryview:
    """The bytes of the executable of that machine in a file. Raises FormatError, FileError."""
    data = open_file(source)
    found = find_executable(data, machine)
    if found is not None:
        return found.data
    raise FormatError(f"not an executable of the {machine} VM, nor is one inside: {told(bytes(data[:HEAD_BYTES]))}")


def _inflated(data: memoryview) -> memoryview:
    """What a compressed file holds, up to a multiple of its size; nothing where it is damaged."""
    try:
        return memoryview(zlib.decompressobj(_GZIP_BITS).decompress(data, limits.INFLATED_TIMES * len(data)))
    except zlib.error:
        return memoryview(b"")


def _length_before(data: memoryview, place: int) -> int | None:
    return _U64.unpack_from(data, place - _U64.size)[0] if _U64.size <= place <= len(data) else None


def _machine_at(data: memoryview, place: int) -> str:
    """Whose executable starts here; "" for nobody's."""
    head = bytes(data[place : place + _HEAD_BYTES])
    if head[:8] not in _STARTS:
        return ""
    if head[:8] == _STARTS[1] or head[8:20] == _U64.pack(len(RELAX_VERSION)) + RELAX_VERSION.encode():
        return RELAX
    return RELAY


def _places(data: memoryview) -> Iterator[int]:
    """Where magics stand."""
    for start in range(0, len(data), _WINDOW):
        window = bytes(data[start : start + _WINDOW + len(_COMMON) - 1])
        at = window.find(_COMMON)
        while at >= 0:
            if start + at > 0:
                yield start + at - 1
            at = window.find(_COMMON, at + 1)


class ExecutableReader(TensorReader):
    """Reads lists and numbers; whatever is counted is compared with the bytes that are left, and with a limit."""

    def version(self, machine: str) -> tuple[int, str]:
        """The magic, and the version's text."""
        (magic,) = self.unpack(_U64, "the magic number")
        if magic not in (MAGIC, MAGIC_SCOPES):
            raise self.error(
                f"not an executable of the {machine} VM: those start with {MAGIC:#x}, this with {magic:#x}"
            )
        return magic, self._text("TVM's version")

    def index(self, what: str, index: int, count: int) -> None:
        """Raises FormatError for what is not one of `count`."""
        if not 0 <= index < count:
            raise self.error(f"{what}: {index} is out of range, there are {count}")

    def listed(self, what: str, least: int, read: Callable[[], _T], most: int) -> list[_T]:
        """A count, and that many items of at least `least` bytes each."""
        count = self.count(what, least)
        if count > most:
            raise self.error(f"{count} {what}; the limit is {most}", LimitError)
        return [read() for _ in range(count)]

    def text(self, what: str) -> str:
        return self._text(what)

    def integers(self, what: str) -> np.ndarray:
        """A list of 64-bit integers."""
        count = self.count(what, _I64.size)
        return np.frombuffer(self._take(count * _I64.size, what), "<i8")
