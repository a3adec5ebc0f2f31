"""Loading object files without LLVM, which takes more memory and time than the smaller models need in all.

ELF files for x86-64 in which every reference is an absolute address of 64 bits (the large code model, which is what
`platform.py` asks LLVM for) need little more than being copied. For everything else `load` gives None, and LLVM does it.

    Tool Interface Standard, Executable and Linking Format, 1995; System V ABI, AMD64 supplement, 4.4
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..formats.messages.errors import FormatError, OutOfMemoryError
from .once import kept, once

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS = struct.Struct("<Q")

_MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_SYMBOL_TABLE, _RELOCATIONS, _NO_CONTENT, _UNWIND = 2, 4, 8, 0x70000001
_WRITEABLE, _ALLOCATED = 1, 2
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_GLOBAL = 1
_ADDRESS_64 = 1  # R_X86_64_64

_ALIGNMENT = 64  # of sections at least: loops' alignment is relative to them


class _Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Object:
    """An object file, parsed; `places` are where its sections lie in the memory that is being filled."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        header = _HEADER.unpack_from(data)
        start, count = header[6], header[12]
        self.sections = [_Section(*entry) for entry in _SECTION.iter_unpack(self._part(start, count * _SECTION.size))]
        self.is_plain = header[0].startswith(_MAGIC) and header[1:3] == (_RELOCATABLE, _X86_64)
        self.loaded = [
            number
            for number, section in enumerate(self.sections)
            if section.flags & _ALLOCATED and section.kind != _UNWIND and section.size
        ]
        self.places: dict[int, int] = {}

    def _part(self, offset: int, size: int) -> bytes:
        part = self.data[offset : offset + size]
        if len(part) != size:
            raise FormatError("an object file is cut short")
        return part

    def content(self, section: _Section) -> bytes:
        return self._part(section.offset, section.size)

    @property
    def is_loadable(self) -> bool:
        """Nothing to be written to, and no reference of another kind than absolute addresses."""
        if not self.is_plain or any(
            self.sections[number].flags & _WRITEABLE or self.sections[number].kind == _NO_CONTENT
            for number in self.loaded
        ):
            return False
        return all(info & 0xFFFFFFFF == _ADDRESS_64 for _, _, info, _ in self.relocations)

    @functools.cached_property
    def relocations(self) -> list[tuple[_Section, int, int, int]]:
        """Those of what is loaded: (section header, offset, symbol and kind, addend)."""
        return [
            (section, *entry)
            for section in self.sections
            if section.kind == _RELOCATIONS and section.info in self.loaded
            for entry in _RELOCATION.iter_unpack(self.content(section))
        ]

    @functools.cached_property
    def symbols(self) -> list[tuple[str, int, int, int]]:
        """(name, binding, section, value) of each symbol."""
        table = next((section for section in self.sections if section.kind == _SYMBOL_TABLE), None)
        if table is None:
            return []
        names = self.content(self.sections[table.link])
        return [
            (names[name : names.index(b"\0", name)].decode(), info >> 4, section, value)
            for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self.content(table))
        ]

    def place(self, at: int) -> int:
        """Gives each section its place in memory, from `at` on; where the next object may begin."""
        for number in self.loaded:
            alignment = max(self.sections[number].alignment, _ALIGNMENT)
            if alignment > mmap.PAGESIZE:
                raise FormatError(f"an object file asks for an alignment of {alignment} bytes")
            self.places[number] = at = -(-at // alignment) * alignment
            at += len(self.content(self.sections[number]))  # before there is memory for it
        return at

    def fill(self, memory: mmap.mmap, base: int) -> None:
        """Copies the sections, and puts in the addresses that they refer to."""
        for number in self.loaded:
            at = self.places[number]
            memory[at : at + self.sections[number].size] = self.content(self.sections[number])
        for section, offset, info, addend in self.relocations:
            if offset + _ADDRESS.size > self.sections[section.info].size:
                raise FormatError("an object file refers to what is outside of it")
            address = self._address(info >> 32, base) + addend
            _ADDRESS.pack_into(memory, self.places[section.info] + offset, address & 0xFFFFFFFFFFFFFFFF)

    def _address(self, number: int, base: int) -> int:
        name, _, section, value = self.symbols[number]
        if section == _UNDEFINED:
            return _outside(name)
        if section == _ABSOLUTE:
            return value
        if section not in self.places:
            raise FormatError(f"an object file refers to {name!r}, which is not loaded")
        return base + self.places[section] + value

    def exports(self, base: int) -> dict[str, int]:
        """The addresses of its global symbols."""
        return {
            name: base + self.places[section] + value
            for name, binding, section, value in self.symbols
            if binding == _GLOBAL and section in self.places
        }


def load(files: Sequence[bytes]) -> list[dict[str, int]] | None:
    """The addresses of each object file's global symbols. None if they, or this system, are of another kind.

    The files are trusted: what is checked is that they are whole. Raises FormatError.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        objects = [_Object(data) for data in files]
        if not all(each.is_loadable for each in objects):
            return None
        size = 0
        for each in objects:
            size = each.place(size)
        return _filled(objects, size)
    except (struct.error, IndexError, ValueError) as error:
        raise FormatError(f"not an object file: {error}") from error
    except (MemoryError, OSError) as error:
        raise OutOfMemoryError(f"the system has no memory for native code: {error}") from error


def _filled(objects: Sequence[_Object], size: int) -> list[dict[str, int]]:
    """Memory is written first and made executable then: at no time is it both."""
    memory = mmap.mmap(-1, max(size, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for each in objects:
        each.fill(memory, base)
    pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    if _libraries()[0].mprotect(ctypes.c_void_p(base), ctypes.c_size_t(pages), mmap.PROT_READ | mmap.PROT_EXEC):
        raise FormatError("the system does not let code that was just written be executed")
    kept(memory)
    return [each.exports(base) for each in objects]


@once
def _libraries() -> tuple[Any, Any]:
    return ctypes.CDLL(None), ctypes.CDLL("libm.so.6")


def system_call(*words: int) -> int:
    """The result of a system call of Linux; -1 where it fails, and on other systems."""
    return int(_libraries()[0].syscall(*map(ctypes.c_long, words))) if sys.platform == "linux" else -1


def _outside(name: str) -> int:
    """The address of a function of the C library."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise FormatError(f"object code calls {name!r}, which this system does not have")
