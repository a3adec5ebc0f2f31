"""Where an executable was loaded from, so that a pickle of it may name the file in place of its bytes.

A stamp tells without reading a file that it is still the same one: device, inode, bytes, time of the last change.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from .messages.errors import FileError

Stamp = tuple[int, ...]


def absolute(path: str | os.PathLike) -> str:
    """The path as it stays when the working directory changes; as it is where that was removed."""
    try:
        return os.path.abspath(path)
    except OSError:
        return os.fspath(path)


def stamp_of(path: str | os.PathLike) -> Stamp:
    """Raises FileError."""
    try:
        return _stamp(os.stat(path))
    except OSError as error:
        raise FileError.of(error, f"{os.fspath(path)} cannot be read") from error


def stamp_of_file(path: str | os.PathLike) -> Stamp | None:
    """None for anything but a regular file: nobody reads the same from a pipe twice."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return _stamp(status) if stat.S_ISREG(status.st_mode) else None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Origin:
    """The files that an executable was loaded from, with their stamps from before they were opened."""

    paths: tuple[str, ...]  # its own, then those of its late-bound constants
    mapped: bool
    stamps: tuple[Stamp | None, ...]

    @property
    def constants(self) -> str | None:
        """The `constants` argument of `load`: the file of constants; None if there are several, beside the executable."""
        return self.paths[1] if len(self.paths) == 2 else None

    @property
    def is_there(self) -> bool:
        """Whether all of them are still the same."""
        found = tuple(map(stamp_of_file, self.paths))
        return None not in found and found == self.stamps
