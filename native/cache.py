"""The cache of native code, and of what was measured: a folder of immutable blobs by key, shared by this user's processes.

What lies in it is run, so it is trusted only where nobody but this user (or the system's administrator) can have put it there:
each folder and file is opened by descriptor, without following links, and its owner and mode are looked at before it is read.
Anything else is as if there were no cache, with one warning that says what to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..formats.messages.calling import warn_user
from ..formats.messages.errors import TreadleError
from . import knobs
from .claims import Claims
from .descriptors import file_of
from .once import once

_HEX = re.compile(r"[0-9a-f]+").fullmatch
_TEMPORARY = ".new-"
_CLAIMS = ".claims"

_LEFT_OVER = 3600.0  # seconds after which a temporary file is nobody's: writing one takes milliseconds
_FRESH = 3600.0  # seconds for which a use need not be noted again: noting it writes to the disk
_BLOCK = 4096  # bytes that file systems give to a file at once
_IN_MEMORY = 64 << 20  # bytes that are held where the folder takes none: a thousand kernels
_SWEEPS = 64  # of the limit, the share that is written between two looks at the whole, on average: 1 in this many
_SPARED = 7 / 8  # of the limit, what is kept when some of it must go: not every file that comes is the next one's end


class ObjectCache:
    """Blobs by key (hexadecimal digits). The folder may vanish, be read-only or full at any time: then it keeps nothing, and says
    so once, and what this process makes stays in its memory. It holds about `limit` bytes; beyond that, what was not used for
    longest is removed.

    A file is the SHA-256 of its key and content, then the content: what a crash or a bad disk left is found, and made anew.
    """

    def __init__(self, folder: Path | None, limit: int | None = None) -> None:
        self._warned = self._tidied = False
        self._unwritten: dict[str, bytes] = {}  # what the folder did not take
        try:
            self.folder = None if folder is None else Path(os.path.abspath(folder))
        except OSError as error:
            self.folder = None
            self._warn(
                f"{folder} lies in the working directory, which is not there ({error}); set TREADLE_CACHE to a whole path"
            )
        self.limit = limit or knobs.KNOBS["TREADLE_CACHE_SIZE"].default
        self._store = _store(self.folder) if self.folder is not None else None

    def get(self, key: str) -> bytes | None:
        """The blob of that key, or None."""
        if self._store is None:
            return None
        if key in self._unwritten:
            return self._unwritten[key]
        try:
            data = self._store.read(key[:2], key[2:])
        except _Distrusted as error:
            self._warn(str(error))
            return None
        except (OSError, MemoryError):  # no memory for it: building will say so, if it is needed
            return None
        content = data[32:]
        return content if data[:32] == _digest(key, content) else None

    def put(self, key: str, content: bytes) -> None:
        """Stores a blob. Two processes may do so at once: one of the equal files stays."""
        if self._store is None or len(content) > self.limit:
            return
        try:
            self._store.write(key[:2], key[2:], _digest(key, content) + content)
            self._keep_in_bounds(len(content))
        except _Distrusted as error:
            self._hold(key, content)
            self._warn(str(error))
        except OSError as error:
            self._hold(key, content)
            self._warn(f"{error}; set TREADLE_CACHE to a writable folder")

    def _hold(self, key: str, content: bytes) -> None:
        """Keeps a blob for this process alone, which made it."""
        if sum(map(len, self._unwritten.values())) + len(content) <= _IN_MEMORY:
            self._unwritten[key] = content

    def claims(self) -> Claims:
        """The claims: which process builds a missing entry."""
        descriptor = None
        if self._store is not None:
            with contextlib.suppress(_Distrusted, OSError):
                descriptor = self._store.open_claims()
        return Claims(descriptor, self.get)

    def problem(self) -> str:
        """Why nothing can be kept, and what to do; "" if something can."""
        if self._store is None:
            return ""
        try:
            self._store.probe()
        except (_Distrusted, OSError) as error:
            return f"{error}; set TREADLE_CACHE to another folder"
        return ""

    def entries(self) -> list[Entry]:
        """The entries, in no order."""
        try:
            return [] if self._store is None else [entry for entry in self._store.entries() if not entry.is_temporary]
        except (_Distrusted, OSError):
            return []

    def sweep(self) -> None:
        """Removes what dead processes left, and of the rest what was not used for longest, where it is more than the limit."""
        assert self._store is not None
        now, kept = time.time(), []
        for entry in self._store.entries():
            if not entry.is_temporary:
                kept.append(entry)
            elif entry.used < now - _LEFT_OVER:
                self._store.remove(entry)
        total = sum(entry.size for entry in kept)
        if total > self.limit:
            for entry in sorted(kept, key=lambda entry: entry.used):
                if total <= _SPARED * self.limit:
                    break
                self._store.remove(entry)
                total -= entry.size

    def _keep_in_bounds(self, written: int) -> None:
        """Looks at the whole each time that some share of the limit was written. Nobody counts that: it is drawn by lot, so that
        many processes that write a little each do as one that writes much."""
        assert self._store is not None
        share = self.limit / _SWEEPS
        if int.from_bytes(os.urandom(4), "little") / 2**32 * share < max(written, _BLOCK):
            self.sweep()
        elif not self._tidied:
            for entry in self._store.left_over(time.time() - _LEFT_OVER):
                self._store.remove(entry)
        self._tidied = True

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warn_user(f"no native code is kept in {self.folder}: {reason}", RuntimeWarning)


def _digest(key: str, content: bytes) -> bytes:
    """The key too: one blob in another's place would be another kernel."""
    digest = hashlib.sha256(key.encode())
    digest.update(content)
    return digest.digest()


class Entry(NamedTuple):
    """A file of the cache: in which of its folders, bytes on the disk, seconds of the epoch when it was last used."""

    shelf: str
    name: str
    size: int
    used: float

    @property
    def is_temporary(self) -> bool:
        return self.name.startswith(_TEMPORARY)


class _Distrusted(Exception):
    """Others could have put there what would be run."""


def _store(folder: Path) -> _PlainStore:
    guarded = {os.open, os.mkdir, os.unlink, os.rename, os.chmod} <= os.supports_dir_fd and os.scandir in os.supports_fd
    return (
        _GuardedStore(folder)
        if guarded and hasattr(os, "geteuid") and hasattr(os, "O_NOFOLLOW")
        else _PlainStore(folder)
    )


class _PlainStore:
    """Files in folders, for systems without owners and modes, as Windows: there the rights of the user's own folder, which is
    the default, keep others out, and who names another folder answers for it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, str(folder)

    def read(self, shelf: str, name: str) -> bytes:
        data = (self._folder / shelf / name).read_bytes()
        with contextlib.suppress(OSError):
            os.utime(self._folder / shelf / name)
        return data

    def write(self, shelf: str, name: str, data: bytes) -> None:
        (self._folder / shelf).mkdir(parents=True, exist_ok=True)
        temporary = self._folder / _temporary_name()
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, self._folder / shelf / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def open_claims(self) -> int | None:
        """A descriptor of the file of `claims.py`."""
        return None

    def remove(self, entry: Entry) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._folder / entry.shelf / entry.name)

    def probe(self) -> None:
        """Raises what writing would."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _temporary_name()
        with open(path, "xb"):
            pass
        os.unlink(path)

    def left_over(self, before: float) -> list[Entry]:
        """Temporary files of before that time."""
        return [entry for entry in self._files(".") if entry.is_temporary and entry.used < before]

    def entries(self) -> Iterator[Entry]:
        """Files that are ours by their names; a folder in use for other things loses nothing."""
        for shelf in (".", *self._shelves()):
            for entry in self._files(shelf):
                if entry.is_temporary or (shelf != "." and _HEX(entry.name)):
                    yield entry

    def _shelves(self) -> list[str]:
        with os.scandir(self._folder) as found:
            return [entry.name for entry in found if _is_shelf(entry)]

    def _files(self, shelf: str) -> list[Entry]:
        with os.scandir(self._folder / shelf) as found:
            return list(_described(shelf, found))


class _GuardedStore(_PlainStore):
    """The same by descriptors: what was looked at is what is used, whatever others do to names meanwhile."""

    def read(self, shelf: str, name: str) -> bytes:
        with self._root() as root, _opened(shelf, root) as folder:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
            with file_of(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise _Distrusted(f"{shelf}/{name} is not an ordinary file; remove it")
                _check(status, f"{shelf}/{name}")
                data = file.readall()
                if status.st_mtime < time.time() - _FRESH:
                    with contextlib.suppress(OSError):  # of a cache that can only be read
                        os.utime(descriptor)
                return data

    def write(self, shelf: str, name: str, data: bytes) -> None:
        with self._root(make=True) as root:
            _make(shelf, root)
            with _opened(shelf, root) as folder:
                temporary = _temporary_name()
                try:
                    self._fill(temporary, root, data)
                    os.replace(temporary, name, src_dir_fd=root, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=root)
                    raise

    @staticmethod
    def _fill(name: str, folder: int, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
        with file_of(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # the umask may have taken more
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]

    def open_claims(self) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._root(make=True) as root:
            return os.open(_CLAIMS, flags, 0o600, dir_fd=root)

    def remove(self, entry: Entry) -> None:
        with contextlib.suppress(OSError), self._root() as root, _opened(entry.shelf, root) as folder:
            os.unlink(entry.name, dir_fd=folder)

    def probe(self) -> None:
        with self._root(make=True) as root:
            name = _temporary_name()
            try:
                self._fill(name, root, b"treadle")
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=root)

    def _shelves(self) -> list[str]:
        with self._root() as root, os.scandir(root) as found:
            return [entry.name for entry in found if _is_shelf(entry)]

    def _files(self, shelf: str) -> list[Entry]:
        with self._root() as root, _opened(shelf, root) as folder, os.scandir(folder) as found:
            return list(_described(shelf, found))

    @contextlib.contextmanager
    def _root(self, make: bool = False) -> Iterator[int]:
        if make and not os.path.lexists(self._folder):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            _make(str(self._folder), None)
        try:
            descriptor = _open_folder(self._path, None)
        except NotADirectoryError:
            if self._folder.is_symlink():
                message = "it is a symbolic link; set TREADLE_CACHE to the folder that it leads to"
                raise _Distrusted(message) from None
            raise
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _opened(name: str, folder: int) -> Iterator[int]:
    """A descriptor of a folder in another."""
    descriptor = _open_folder(name, folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(name: str, folder: int | None) -> int:
    """A descriptor of a folder that only this user may write to."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        _check(os.fstat(descriptor), "it" if folder is None else name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make(name: str, folder: int | None) -> None:
    """A folder of mode 0700, unless there is one of that name."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if mode & 0o700 != 0o700:  # a umask may take from the owner too
        os.chmod(name, 0o700, dir_fd=folder)


def _check(status: os.stat_result, what: str) -> None:
    """Raises _Distrusted where others could have written. The administrator can do anything, and is not counted."""
    user = os.geteuid()
    if status.st_uid not in (user, 0):
        raise _Distrusted(
            f"{what} belongs to user {status.st_uid}, not to you (user {user}), and its code would be run; "
            "remove the folder, or set TREADLE_CACHE to one of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Distrusted(
            f"others may write to {what} (mode {stat.S_IMODE(status.st_mode):04o}), and its code would be run; remove the "
            "folder, or if you trust what is there, chmod -R go-w it"
        )


def _temporary_name() -> str:
    return _TEMPORARY + os.urandom(8).hex()


def _is_shelf(entry: os.DirEntry[str]) -> bool:
    return len(entry.name) == 2 and _HEX(entry.name) is not None and entry.is_dir(follow_symlinks=False)


def _described(shelf: str, found: Iterator[os.DirEntry[str]]) -> Iterator[Entry]:
    for each in found:
        with contextlib.suppress(OSError):  # it went
            status = each.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield Entry(shelf, each.name, -(-status.st_size // _BLOCK) * _BLOCK, status.st_mtime)


# ---- this user's ----


@once
def _cache_at(setting: str | None, limit: int) -> ObjectCache:
    if setting == "off":
        return ObjectCache(None)
    if setting:
        try:
            return ObjectCache(Path(setting).expanduser(), limit)
        except RuntimeError as error:
            raise TreadleError(f"environment variable TREADLE_CACHE={setting!r}: {error}") from None
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("treadle", appauthor=False))
    if folder.is_absolute():
        return ObjectCache(folder, limit)
    # a user without a home: what lies in the working directory is anybody's
    message = f"no native code is kept: {str(folder)!r} is not a place of yours; set TREADLE_CACHE to a folder"
    warn_user(message, RuntimeWarning)
    return ObjectCache(None)


def cache() -> ObjectCache:
    """The cache of this user, where the knob TREADLE_CACHE says, as large as TREADLE_CACHE_SIZE says."""
    return _cache_at(knobs.get("TREADLE_CACHE"), knobs.get("TREADLE_CACHE_SIZE"))
