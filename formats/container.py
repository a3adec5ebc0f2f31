"""The file around the sections: where each one lies, and that its bytes are those that were written.

    offset  bytes
    0       8      magic: 89 54 52 44 4C 0D 0A 1A (no text file, and damaged by a transfer as text)
    8       4      format version
    12      4      bytes of the index
    16      8      bytes of the file
    24      4      CRC-32 of the index
    28      4      CRC-32 of the 28 bytes before
    32      …      the index; then the sections in its order, each at the next multiple of 64; zeros between

Integers are little-endian. The index has no offsets: sections cannot overlap or leave gaps. Every byte of a file is known:
it belongs to the header, the index, a section, each with its checksum, or is zero. Files of late-bound constants have the
same form.

The format may gain sections that are not required, kinds of choices, instructions and operators; what a number means never
changes. Anything else takes a new version, and every version ever released stays readable: one file of each is in
tests/formats/golden.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, Union

from . import limits
from .codec import Buffer, Integer, Scalar, Sequence, Text, row
from .constants import aligned, aligned_empty
from .mapped import read_once
from .messages.errors import (
    ArgumentError,
    ChecksumError,
    FileError,
    FormatError,
    LimitError,
    MissingFileError,
    TreadleError,
    VersionError,
)
from .starting import Thread

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows
    import fcntl

_T = TypeVar("_T")

MAGIC = b"\x89TRDL\r\n\x1a"
FORMAT_VERSION = 1
HEADER = struct.Struct("<8sIIQII")

ENTRY = row(
    "entry",
    name=Text(limits.SECTION_NAME_BYTES),
    length=Integer(),
    crc32=Integer(0, (1 << 32) - 1),
    required=Scalar(bool),
)
INDEX = Sequence(ENTRY, limits.SECTIONS)

# Of containers of all kinds, the section that tells which it is
_KINDS = {
    "code": "an executable; treadle.load takes it",
    "recording": "a recording of calls; `treadle replay` makes them again",
    "session": "a session; treadle.text.resume goes on with it",
}

LIBRARIES = (".so", ".dylib", ".dll", ".o", ".obj", ".tar")  # suffixes of files that `bundle.py` finds executables in

# Systems keep a file in pages as large as the writes that made it, where its file system can, and map it so.
_BLOCK = 2 << 20

_OPEN_FILES = "/proc/self/fd"  # where Linux gives files that have no name one


@dataclass(frozen=True)
class Entry:
    """A section's place."""

    name: str
    offset: int
    length: int
    crc32: int
    required: bool


# ---- writing ----


def crc32(pieces: Iterable[Buffer]) -> int:
    value = 0
    for piece in pieces:
        for part in read_once(piece):
            value = zlib.crc32(part, value)
    return value


def layout(contents: Mapping[str, list[Buffer]], required: Mapping[str, bool]) -> list[Buffer]:
    """The pieces of the file that holds these sections."""
    rows = [(name, sum(map(len, pieces)), crc32(pieces), required[name]) for name, pieces in contents.items()]
    index = INDEX.encode(rows, "index")
    end = HEADER.size + len(index)
    padded: list[Buffer] = []
    for name, length, _, _ in rows:
        padded += [bytes(aligned(end) - end), *contents[name]]
        end = aligned(end) + length
    head = HEADER.pack(MAGIC, FORMAT_VERSION, len(index), end, zlib.crc32(index), 0)[:-4]
    return [head, struct.pack("<I", zlib.crc32(head)), index, *padded]


def target_of(path: str | os.PathLike) -> Path:
    """Where a file of that name is written. Raises FileError for a folder that does not exist, and for a path that is anything
    but a regular file: a device would be replaced by one."""
    target = Path(os.path.realpath(named(path)))
    if os.path.exists(target) and not os.path.isfile(target):  # these do not raise
        raise FileError(f"{str(path)!r} cannot be written: it is a folder, a pipe or a device")
    if not os.path.isdir(target.parent):
        doing = f"{str(path)!r} cannot be written: there is no folder {str(target.parent)!r}"
        raise FileError.of(FileNotFoundError(errno.ENOENT, "make it first", str(path)), doing)
    return target


def check_is_file(path: Path, error: type[TreadleError]) -> None:
    """Raises `error` for what is there and no file: a pipe would be waited for, a device read without end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise error(f"{path} is a folder, a pipe or a device; expected a file")


def foreign_bytes(path: Path, most: int, error: type[TreadleError], missing: str) -> bytes:
    """A file that another tool wrote, at most `most` bytes. Raises FileError; MissingFileError, which says what is `missing`;
    `error` for what is larger, or no file."""
    check_is_file(path, error)
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise MissingFileError(f"{path.parent} has no {path.name}; {missing}") from None
    except OSError as refused:
        raise FileError.of(refused, f"cannot read {path}") from None
    if len(data) > most:
        raise error(f"{path}: more than {most} bytes")
    return data


def save(path: str | os.PathLike, pieces: list[Buffer]) -> None:
    """Write a file that is there whole or not at all: whatever happens, `path` is the old file or the new one.

    Raises FileError, with the old file unchanged, and as `target_of` does.
    """
    target = target_of(path)
    ends = "", f".{os.urandom(6).hex()}"  # the second where another process or thread writes the same file
    names = [target.with_name(f".{target.name[:200]}{end}.tmp") for end in ends]
    _remove_left(names[0])
    temporary: Path | None = None
    try:
        with contextlib.ExitStack() as locked:
            opened, temporary = _opened(names)
            with opened as file:
                _lock(file, locked)
                write_behind(file, blocks(pieces))
                file.flush()
                os.fsync(file.fileno())
                if temporary is None:
                    # Python follows the link to the file only where a folder is given, too
                    link = partial(os.link, f"{_OPEN_FILES}/{file.fileno()}", src_dir_fd=file.fileno())
                    _, temporary = _with_first(names, link)
            os.replace(temporary, target)
    except BaseException as error:  # Ctrl-C too
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()
        if isinstance(error, OSError):
            doing = f"an error while saving; what was there before is unchanged: {str(path)!r}"
            raise FileError.of(error, doing, str(path)) from error
        raise
    _sync_folder(target.parent)


def _opened(names: list[Path]) -> tuple[BinaryIO, Path | None]:
    """A new file, without a name where the system has such files: of these, a process that is killed leaves nothing, unless that
    happens between their link and its renaming."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(_OPEN_FILES):
        with contextlib.suppress(OSError):  # not all file systems have them
            return open(os.open(names[0].parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb"), None
    return _with_first(names, lambda name: open(name, "xb"))


def _with_first(names: list[Path], make: Callable[[Path], _T]) -> tuple[_T, Path]:
    """What is made under the first name that is free, and that."""
    *others, last = names
    for name in others:
        with contextlib.suppress(FileExistsError):
            return make(name), name
    return make(last), last


def _lock(file: BinaryIO, held: contextlib.ExitStack) -> None:
    """Locks a file that is being written; the lock also ends with the process."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # not all file systems have locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.callback(os.close, os.dup(file.fileno()))  # which has the same lock


def _remove_left(path: Path) -> None:
    """Removes what a process that was killed has left under the name of a temporary file."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            path.unlink()


def blocks(pieces: Iterable[Buffer]) -> Iterator[memoryview]:
    """The same bytes in blocks of one size; the last one is shorter. A block is overwritten by the next but one."""
    block, other = memoryview(bytearray(_BLOCK)), memoryview(bytearray(_BLOCK))
    filled = 0
    for piece in pieces:
        for rest in read_once(piece):
            while len(rest):
                count = min(len(rest), _BLOCK - filled)
                block[filled : filled + count] = rest[:count]
                rest, filled = rest[count:], filled + count
                if filled == _BLOCK:
                    yield block
                    block, other, filled = other, block, 0
    yield block[:filled]


def write_behind(file: BinaryIO, parts: Iterable[Buffer]) -> None:
    """Write the parts, each in a second thread while the next is made, which may overwrite the last but one."""
    failures: list[BaseException] = []
    writing: threading.Thread | None = None

    def write(part: Buffer) -> None:
        try:
            file.write(part)
        except BaseException as error:
            failures.append(error)

    def settle() -> None:
        if writing is not None:
            writing.join()
        if failures:
            raise failures[0]

    try:
        for part in parts:
            settle()
            try:
                writing = Thread(target=write, args=(part,))
                writing.start()
            except RuntimeError:  # the system starts no thread, or Python ends: this one writes
                writing = None
                write(part)
    finally:
        settle()


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, where the system can (Windows cannot open folders)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---- reading ----

Source = Union[str, os.PathLike, bytes, bytearray, memoryview]


class Container:
    """An opened file: `contents` are views on its sections by name, checked but for those named in `deferred`.

    `plain`: the file is one that another file names, and so must be a regular file: no link, which may lead anywhere, and
    no pipe or device, which may never end. `mapped` is False for what must be read: see `open_mapped`.
    """

    def __init__(
        self,
        source: Source,
        known: frozenset[str],
        deferred: frozenset[str] = frozenset(),
        *,
        plain: bool = False,
        mapped: bool = True,
    ) -> None:
        try:
            self.name, self.data = open_mapped(source, plain, mapped)
        except OSError as error:
            raise FileError.of(error, f"{source!s} cannot be read") from error
        self.entries = _read_index(self.data, self.name)
        for entry in self.entries.values():
            if entry.required and entry.name not in known:
                message = f"{self.name} has a section {entry.name!r} that this Treadle does not know; a newer one may"
                if kind := next((_KINDS[name] for name in _KINDS.keys() - known if name in self.entries), ""):
                    message = f"{self.name} is {kind}"
                raise VersionError(message, section=entry.name, offset=entry.offset)
        self.contents = {entry.name: self._view(entry) for entry in self.entries.values()}
        for name in self.entries.keys() - deferred:
            self.check(name)

    def _view(self, entry: Entry) -> memoryview:
        return self.data[entry.offset : entry.offset + entry.length]

    def check(self, name: str) -> None:
        """Compare a section's bytes with its checksum. Raises ChecksumError."""
        entry = self.entries[name]
        found = zlib.crc32(self.contents[name])
        if found != entry.crc32:
            message = f"{self.name} is damaged: checksum {found:08x}, expected {entry.crc32:08x}"
            raise ChecksumError(message, section=name, offset=entry.offset)

    def require(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.entries]
        if missing:
            raise FormatError(f"{self.name} has no section {', '.join(map(repr, missing))}", section="index")


def open_mapped(source: Source, plain: bool = False, mapped: bool = True) -> tuple[str, memoryview]:
    """A name for messages, and the bytes: mapped where the file can be mapped, and is nobody else's to change.

    Truncating a mapped file ends the process that reads it (SIGBUS). A file that others may write is copied, and any
    that is not to be `mapped`.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return "the data", memoryview(bytes(source) if isinstance(source, bytearray) else source).cast("B").toreadonly()
    check_source(source)
    with open(named(source), "rb", opener=_open_plain if plain else open_ending) as file:
        status = os.fstat(file.fileno())
        if _is_others(status) or (stat.S_ISREG(status.st_mode) and not mapped):
            return str(source), _copy(file)
        try:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError):  # an empty file, a pipe
            return str(source), memoryview(file.read())
    if hasattr(mmap, "MADV_HUGEPAGE"):  # for a file that is not in memory yet
        with contextlib.suppress(OSError):  # systems without such pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return str(source), memoryview(mapping)


def check_source(source: object) -> None:
    """Raises ArgumentError for anything but a Source: an integer, which to the system would be an open file, to be closed."""
    if not isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        kind = type(source).__name__
        raise ArgumentError(f"expected a path or the bytes of a file, got a value of type {kind}")
    if isinstance(source, str) and "\n" in source:
        raise ArgumentError(
            "expected a path or the bytes of a file, got a text of several lines; treadle.Executable.from_text takes assembly"
        )


def named(path: str | os.PathLike, what: str = "path") -> str:
    """The path as text; `what` says in errors which argument it is. Raises FileError for one that no file can have, ArgumentError
    for anything else: an integer, which to the system would be an open file, or bytes, which elsewhere are a file's content."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"{what}: expected a path, got a value of type {type(path).__name__}")
    name = os.fsdecode(path)
    if "\0" in name:
        raise FileError(f"{name!r} is not a path: there is a zero byte in it")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise FileError(f"{name!r} is not a path: the system has no bytes for it") from None
    return name


def open_ending(path: str, flags: int) -> int:
    """`os.open` for a named path of finite size: a file, or a pipe, which is empty if nobody writes to it.
    Raises FormatError for a device, which may never end, such as /dev/zero."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    with _closing_if_refused(descriptor):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise FormatError(f"{path} is a device, which may never end; expected a file")
        if stat.S_ISFIFO(mode):
            os.set_blocking(descriptor, True)
    return descriptor


@contextlib.contextmanager
def _closing_if_refused(descriptor: int) -> Iterator[None]:
    """Closes what was opened, where what follows fails."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


def _open_plain(path: str, flags: int) -> int:
    """`os.open` for a regular file alone. Raises FormatError for anything else, without waiting for a pipe's other end."""
    if os.path.islink(path):  # where the system has no O_NOFOLLOW; it is asked for below, too
        raise _not_plain(path)
    extra = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        descriptor = os.open(path, flags | extra)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # a link since then, a socket
            raise _not_plain(path) from None
        raise
    with _closing_if_refused(descriptor):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_plain(path)
    return descriptor


def _not_plain(path: str) -> FormatError:
    return FormatError(f"{path} is not a regular file; constants are not read through links, pipes or devices")


def _is_others(found: os.stat_result) -> bool:
    """Whether a regular file can be written by others than this process's user, its own group and the system's administrator."""
    if not stat.S_ISREG(found.st_mode) or not hasattr(os, "geteuid"):
        return False
    group = found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()
    return found.st_uid not in (os.geteuid(), 0) or bool(group) or bool(found.st_mode & stat.S_IWOTH)


def _copy(file: BinaryIO) -> memoryview:
    """All bytes of a file, at an aligned address."""
    size = os.fstat(file.fileno()).st_size
    copy = memoryview(aligned_empty(size))  # type: ignore[arg-type]
    filled = 0
    while filled < size and (count := file.readinto(copy[filled:])):  # type: ignore[attr-defined]
        filled += count
    return copy[:filled].toreadonly()


def _read_header(data: memoryview, name: str) -> bytes:
    """The checked bytes of the index."""
    if bytes(data[:8]) != MAGIC[: len(data)]:
        from .messages.file_kinds import HEAD_BYTES, kind_of, told  # only for malformed files

        head = bytes(data[:HEAD_BYTES])
        hint = f"; {told(head)}" if kind_of(head) else ""
        raise FormatError(f"{name} is not a Treadle file: it starts with {head[:8]!r}{hint}", offset=0)
    if len(data) < HEADER.size:
        raise FormatError(
            f"{name} is truncated: {len(data)} bytes, the header alone has {HEADER.size}", offset=len(data)
        )
    _, version, index_bytes, file_bytes, index_crc, header_crc = HEADER.unpack(data[: HEADER.size])
    if version != FORMAT_VERSION:
        advice = (
            "a newer Treadle wrote it; upgrade to read it" if version > FORMAT_VERSION else "there is no such version"
        )
        message = f"{name} has format version {version}; this Treadle reads version {FORMAT_VERSION} ({advice})"
        raise VersionError(message, offset=8)
    if zlib.crc32(data[: HEADER.size - 4]) != header_crc:
        raise ChecksumError(f"{name} is damaged: the header's checksum does not fit", section="header", offset=0)
    if len(data) != file_bytes:
        what = "is truncated" if len(data) < file_bytes else "has bytes behind its end"
        raise FormatError(f"{name} {what}: {len(data)} bytes, expected {file_bytes}", offset=min(len(data), file_bytes))
    if index_bytes > min(limits.INDEX_BYTES, len(data) - HEADER.size):
        raise LimitError(f"{name}: an index of {index_bytes} bytes does not fit", section="header", offset=12)
    index = bytes(data[HEADER.size : HEADER.size + index_bytes])
    if zlib.crc32(index) != index_crc:
        raise ChecksumError(
            f"{name} is damaged: the index's checksum does not fit", section="index", offset=HEADER.size
        )
    return index


def _read_index(data: memoryview, name: str) -> dict[str, Entry]:
    index = _read_header(data, name)
    entries: dict[str, Entry] = {}
    end = HEADER.size + len(index)
    for section, length, checksum, required in INDEX.decode(index, "index", HEADER.size):
        if section in entries:
            raise FormatError(f"{name} has two sections {section!r}", section="index")
        start = aligned(end)
        if length > len(data) - start:
            message = f"{name}: section {section!r} has {length} bytes, but {max(0, len(data) - start)} are left"
            raise LimitError(message, section="index")
        if any(data[end:start]):
            raise ChecksumError(f"{name} is damaged: the bytes before section {section!r} are not zero", offset=end)
        entries[section] = Entry(section, start, length, checksum, required)
        end = start + length
    if end != len(data):
        raise FormatError(f"{name} has {len(data) - end} bytes behind its last section", offset=end)
    return entries
