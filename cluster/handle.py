"""A handle: what workers are told of an executable. It pickles as a path, a digest and options, never as weights or code.

    handle = Handle.of("model.trdl", max_memory=1 << 30)
    machine = handle.machine()      # in whatever process the handle has come to; one machine a process

The file's constants are mapped, so that all workers of a host read one copy of the weights.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

from ..formats.errors import ArgumentError, FileError
from ..formats.executable import Executable, load
from ..vm import cache
from ..vm.machine import VirtualMachine
from ..vm.once import Lock, once

Exe = Union["Handle", Executable, str, os.PathLike]

# What of a machine's options travels.
OPTIONS = ("kernels", "trust_native", "max_steps", "max_seconds", "max_memory", "max_depth", "max_build_seconds")

_BLOCK = 1 << 20  # bytes read at once
_UNUSED = 30 * 86400.0  # seconds after which an exported executable that nobody has used is removed
_EXPORTS = "executables"  # the folder in the user's cache


@dataclass(frozen=True)
class Handle:
    """An executable's file and how to run it. `digest` is the SHA-256 of the file, `stamp` tells without reading it that a file
    is still the one that the digest was taken of."""

    path: str
    digest: str
    stamp: tuple[int, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(exe: Exe, **options: Any) -> Handle:
        """A handle of a path, or of an executable, which is written to the user's cache folder by its digest if it has no file.

        Options are those of `VirtualMachine` named in `OPTIONS`; those that are None stay as they are. Raises ArgumentError,
        FileError, FormatError.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := sorted(given.keys() - set(OPTIONS)):
            raise ArgumentError(f"Handle.of: no option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
        if isinstance(exe, Handle):
            return replace(exe, options=tuple(sorted({**dict(exe.options), **given}.items())))
        if isinstance(exe, Executable):
            if exe.trust_native:
                given.setdefault("trust_native", True)
            path, digest = _exported(exe)
        elif isinstance(exe, (str, os.PathLike)):
            path = os.path.realpath(os.fsdecode(exe))
            digest = _digest_of_file(path, _stamp(path))
        else:
            raise ArgumentError(
                f"expected an executable, the path of one or a handle, a {type(exe).__name__} came; see treadle.load"
            )
        return Handle(path, digest, _stamp(path), tuple(sorted(given.items())))

    def load(self) -> Executable:
        """The executable. Raises FileError where this host has no such file, or another one of that name; FormatError."""
        if not os.path.exists(self.path):
            raise FileError(
                f"{self.path} is not on this host; put the executable on a file system that all workers share, or at the "
                "same path on each"
            )
        executable = load(self.path, trust_native=dict(self.options).get("trust_native", False))
        # behind loading: a file that is replaced meanwhile is refused, and never taken for the one that the digest is of
        found = _stamp(self.path)
        if found != self.stamp and _digest_of_file(self.path, found) != self.digest:
            raise FileError(f"{self.path} is another file than the one that this work was begun with; begin it anew")
        return executable

    def open(self) -> tuple[Executable, VirtualMachine]:
        """The executable and this process's machine for it. Raises what `load` and `VirtualMachine` raise."""
        with _lock:
            found = _opened.get((self.digest, self.options))
            if found is None:
                executable = self.load()
                found = executable, VirtualMachine(executable, **dict(self.options))
                _opened[self.digest, self.options] = found
            return found

    def machine(self) -> VirtualMachine:
        """This process's machine for the executable; see `open`."""
        return self.open()[1]


_opened: dict[Any, tuple[Executable, VirtualMachine]] = {}
_lock = Lock()


# ---- digests ----


def _stamp(path: str) -> tuple[int, ...]:
    """Raises FileError."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise FileError.of(error, f"{path} cannot be read") from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_digests: dict[tuple[str, tuple[int, ...]], str] = {}


def _digest_of_file(path: str, stamp: tuple[int, ...]) -> str:
    found = _digests.get((path, stamp))
    if found is None:
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise FileError.of(error, f"{path} cannot be read") from error
        found = _digests[path, stamp] = digest.hexdigest()
    return found


def _digest_of(pieces: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


# ---- executables without a file ----


def _exported(exe: Executable) -> tuple[str, str]:
    """The path and digest of a file that holds an executable, which is written where there is none yet."""
    if exe.late_bound_consts:  # the file is to be whole: it lies elsewhere than its constants
        exe = Executable(exe.program, exe.native, exe.tuning, exe.weights)
    digest = _digest_of(exe._pieces(exe.native))
    folder = _export_folder()
    path = folder / f"{digest}.trdl"
    if path.exists() and _digest_of_file(str(path), _stamp(str(path))) == digest:
        with contextlib.suppress(OSError):
            os.utime(path)  # it is in use: see `_sweep`
    else:
        _sweep(folder)
        exe.export_library(path)
    return str(path), digest


def _export_folder() -> Path:
    cached = cache.cache()
    if cached.folder is None or cached.problem():
        return _temporary_folder()
    folder = cached.folder / _EXPORTS
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise FileError.of(error, f"no folder for executables can be made in {cached.folder}") from error
    return folder


@once
def _temporary_folder() -> Path:
    """For a user without a cache; removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-executables-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _sweep(folder: Path) -> None:
    """Removes what nobody has used for long. Processes that have mapped it keep it."""
    before = time.time() - _UNUSED
    for path in folder.glob("*.trdl"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()
