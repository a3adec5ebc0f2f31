"""A handle: what workers are told of an executable. It pickles as a path, a digest and options, never as weights or code.

    handle = Handle.of("model.trdl", max_memory=1 << 30)
    machine = handle.machine()      # in whatever process the handle has come to; one machine a process

The file's constants are mapped, so that all workers of a host read one copy of the weights.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Union

from ..formats.executable import Executable, load_same
from ..formats.messages.errors import ArgumentError, FileError
from ..formats.origin import Stamp, stamp_of
from ..formats.same_file import SameFile, digest_of, digest_of_file
from ..native import cache
from ..native.once import Lock, once
from ..vm.machine import VirtualMachine

Exe = Union["Handle", Executable, str, os.PathLike]

# What of a machine's options travels.
OPTIONS = (
    "kernels",
    "trust_native",
    "max_steps",
    "max_seconds",
    "max_memory",
    "max_depth",
    "max_build_seconds",
    "threads",
)

ANSWERING = ("max_new_tokens", "temperature", "top_p", "seed", "chat")  # of a generator's: see `Generator.map`
_UNUSED = 30 * 86400.0  # seconds after which an exported executable that nobody has used is removed
_EXPORTS = "executables"  # the folder in the user's cache


@dataclass(frozen=True)
class Handle:
    """An executable's file and how to run it. `digest` is the SHA-256 of the file, `stamp` tells without reading it that a file
    is still the one that the digest was taken of."""

    path: str
    digest: str
    stamp: Stamp = ()
    options: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(exe: Exe, **options: Any) -> Handle:
        """A handle of a path, or of an executable, which is written to the user's cache folder by its digest if it has no file
        that workers could read: it was made here, its file is another one by now, or its constants lie in other files.

        Options are those of `VirtualMachine` named in `OPTIONS`, and those named in `ANSWERING`; those that are None stay as they
        are. Raises ArgumentError, FileError, FormatError.
        """
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := sorted(given.keys() - {*OPTIONS, *ANSWERING}):
            known = ", ".join([*OPTIONS, *ANSWERING])
            raise ArgumentError(f"Handle.of: no option {', '.join(unknown)}; there are {known}")
        if isinstance(exe, Handle):
            return replace(exe, options=tuple(sorted({**dict(exe.options), **given}.items())))
        if isinstance(exe, Executable):
            if exe.trust_native:
                given.setdefault("trust_native", True)
            file = _file_of(exe)
        elif isinstance(exe, (str, os.PathLike)):
            file = SameFile.of(exe)
        else:
            raise ArgumentError(
                f"expected an executable, the path of one or a handle, got a {type(exe).__name__}; see treadle.load"
            )
        return Handle(file.path, file.digest, file.stamp, tuple(sorted(given.items())))

    def load(self) -> Executable:
        """The executable. Raises FileError where this host has no such file, or another one of that name; FormatError."""
        file = SameFile(self.path, self.digest, self.stamp)
        return load_same(file, trust_native=dict(self.options).get("trust_native", False))

    @property
    def answering(self) -> dict[str, Any]:
        """How a generator answers."""
        return {name: value for name, value in self.options if name in ANSWERING}

    def open(self) -> tuple[Executable, VirtualMachine]:
        """The executable and this process's machine for it. Raises what `load` and `VirtualMachine` raise."""
        options = tuple((name, value) for name, value in self.options if name in OPTIONS)
        with _lock:
            found = _opened.get((self.digest, options))
            if found is None:
                executable = self.load()
                found = executable, VirtualMachine(executable, **dict(options))
                if len(_opened) >= MOST_OPENED:  # calls that use the oldest one keep it alive
                    del _opened[next(iter(_opened))]
                _opened[self.digest, options] = found
            return found

    def machine(self) -> VirtualMachine:
        """This process's machine for the executable; see `open`."""
        return self.open()[1]


MOST_OPENED = 64  # machines that a process keeps for handles to come
_opened: dict[Any, tuple[Executable, VirtualMachine]] = {}
_lock = Lock()


# ---- executables without a file ----


def _file_of(exe: Executable) -> SameFile:
    """A file that holds an executable, which is written where there is none yet."""
    file = None if exe.late_bound_consts else exe._same_file()  # it is to be whole
    if file is not None:
        return file
    exe = exe._whole()
    digest = digest_of(exe._pieces(exe.native))
    folder = _export_folder()
    path = folder / f"{digest}.trdl"
    if path.exists() and digest_of_file(str(path), stamp_of(path)) == digest:
        with contextlib.suppress(OSError):
            os.utime(path)  # it is in use: see `_sweep`
    else:
        _sweep(folder)
        exe.export_library(path)
    return SameFile(str(path), digest, stamp_of(path))


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
