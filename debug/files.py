"""Folders that hold what was seen: made anew, with file names that nothing in a model can choose."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, naming

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST = 80  # characters of a name of a file, of the 255 bytes that file systems take


def path_of(path: Any, what: str) -> Path:
    """Raises ArgumentError for anything but a path."""
    try:
        return Path(path)
    except TypeError:
        raise ArgumentError(f"{what}: expected a path, got {told(path)}") from None


def new_folder(path: str | os.PathLike, what: str, overwrite: bool = False) -> Path:
    """Makes a folder. Raises ArgumentError for one that is not empty, unless it is to be overwritten, and FileError."""
    folder = path_of(path, f"{what}: folder")
    with naming(f"{what} in {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        if not overwrite and any(folder.iterdir()):
            raise ArgumentError(
                f"{what}: the folder {str(folder)!r} is not empty; name a new one, or say overwrite=True (--overwrite)"
            )
    return folder


def safe_name(number: int, name: str) -> str:
    """A name of a file: the number, which tells names apart, and what a file system surely takes of the name."""
    kept = _UNSAFE.sub("_", name).strip("._")[:_LONGEST]
    return f"{number:04d}-{kept}" if kept else f"{number:04d}"
