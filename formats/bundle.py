"""Modules inside another file: a shared library, an object file, an archive.

    marker                                   32 bytes that stand nowhere else, at a multiple of 64
    u64 bytes from the marker on, u32 bytes of the index, u32 checksum of the index
    index                                    of each module its kind, bytes, their checksum, the numbers of those it imports
    modules                                  each at the next multiple of 64 from the marker

Readers look for the marker, whatever the file around it is: nothing of that file is executed, or believed. The first module is
the root; a module imports only later ones.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import limits
from .codec import Buffer, Integer, Text, row
from .codec import Sequence as List
from .constants import aligned, aligned_empty
from .container import crc32, open_mapped
from .messages.errors import ChecksumError, FileError, FormatError, LimitError

MARKER = b"\0Treadle modules" + bytes.fromhex("d2b1c09e7f354ac8965a13e8fd0272b4")
_HEADER = struct.Struct("<32sQII")
_INDEX = List(
    row(
        "module",
        kind=Text(limits.SECTION_NAME_BYTES),
        length=Integer(),
        crc32=Integer(0, (1 << 32) - 1),
        imports=List(Integer(0, limits.MODULES), limits.MODULES),
    ),
    limits.MODULES,
)
_WINDOW = 1 << 22  # bytes that are looked through at once
_TRIES = 16  # markers that nothing sensible follows, before a file is given up


@dataclass(frozen=True)
class Part:
    """A module as bytes: what kind it is, its pieces, and the numbers of the modules that it imports."""

    kind: str
    pieces: list[Buffer]
    imports: tuple[int, ...] = ()


@dataclass(frozen=True)
class StoredModule:
    """A module in a file. Its bytes are at an aligned address, as those of constants are."""

    kind: str
    data: memoryview
    imports: tuple[int, ...]
    checksum: int

    def check(self) -> None:
        """Compares the bytes with their checksum. Raises ChecksumError."""
        if zlib.crc32(self.data) != self.checksum:
            raise ChecksumError(f"a module of kind {self.kind!r} is damaged: its checksum does not fit")


def pack(parts: Sequence[Part]) -> list[Buffer]:
    """The pieces of a bundle."""
    rows = [(part.kind, sum(map(len, part.pieces)), crc32(part.pieces), part.imports) for part in parts]
    index = _INDEX.encode(rows, "modules")
    end = _HEADER.size + len(index)
    body: list[Buffer] = []
    for part, (_, length, _, _) in zip(parts, rows, strict=True):
        body += [bytes(aligned(end) - end), *part.pieces]
        end = aligned(end) + length
    return [_HEADER.pack(MARKER, end, len(index), zlib.crc32(index)), index, *body]


def unpack(data: memoryview, name: str) -> list[StoredModule]:
    """The modules in a file's bytes. `name` is the file's, for messages. Raises FormatError."""
    for _, place in zip(range(_TRIES), _places(data), strict=False):
        header = _HEADER.unpack_from(data, place)
        _, size, index_bytes, checksum = header
        index = bytes(data[place + _HEADER.size : place + _HEADER.size + min(index_bytes, limits.INDEX_BYTES)])
        if index and len(index) == index_bytes and zlib.crc32(index) == checksum:
            return _modules(data, place, size, index, name)
    raise FormatError(f"{name} holds no module of Treadle's; those that export_library wrote do")


def read(path: str | os.PathLike) -> list[StoredModule]:
    """The modules in a file. Raises FormatError, FileError."""
    try:
        _, data = open_mapped(path)
    except OSError as error:
        raise FileError.of(error, f"{os.fspath(path)} cannot be read", os.fspath(path)) from error
    return unpack(data, os.fspath(path))


def only(path: str | os.PathLike, kind: str) -> memoryview:
    """The bytes of the one module of that kind in a file. Raises FormatError, FileError."""
    found = [module.data for module in read(path) if module.kind == kind]
    if len(found) != 1:
        raise FormatError(
            f"{os.fspath(path)} holds {len(found)} modules of kind {kind!r}, expected one; see load_module"
        )
    return found[0]


def _places(data: memoryview) -> Iterator[int]:
    """Where markers stand."""
    for start in range(0, len(data), _WINDOW):
        window = bytes(data[start : start + _WINDOW + len(MARKER) - 1])
        at = window.find(MARKER)
        while at >= 0:
            if start + at + _HEADER.size <= len(data):
                yield start + at
            at = window.find(MARKER, at + 1)


def _modules(data: memoryview, place: int, size: int, index: bytes, name: str) -> list[StoredModule]:
    if size > len(data) - place:
        raise FormatError(
            f"{name} is truncated: its modules take {size} bytes, {len(data) - place} are left", offset=place
        )
    rows = _INDEX.decode(index, "modules", place + _HEADER.size)
    end = _HEADER.size + len(index)
    modules = []
    for number, (kind, length, checksum, imports) in enumerate(rows):
        start = aligned(end)
        if length > size - start:
            raise LimitError(
                f"{name}: module {number} has {length} bytes, {max(0, size - start)} are left", offset=place
            )
        if any(not number < other < len(rows) for other in imports):
            raise FormatError(f"{name}: module {number} imports {list(imports)}, of {len(rows)} modules")
        end = start + length
        modules.append(StoredModule(kind, _at_aligned(data[place + start : place + end]), imports, checksum))
    if not modules:
        raise FormatError(f"{name} holds no module", offset=place)
    return modules


def _at_aligned(data: memoryview) -> memoryview:
    view = np.frombuffer(data, np.uint8)
    if view.ctypes.data % limits.ALIGNMENT == 0:
        return data.toreadonly()
    copy = aligned_empty(len(data))
    copy[:] = view
    return memoryview(copy).toreadonly()  # type: ignore[arg-type]
