"""Files that hold what was seen, and folders of them: made anew, with file names that nothing in a model can choose."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..formats import container
from ..formats.codec import Buffer
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


def write(path: Path, content: Buffer) -> None:
    """Writes a file, which is there whole or not at all, or into a pipe or a device. Raises FileError."""
    if os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path):
        container.save(path, [content])
        return
    with naming(f"writing {str(path)!r}"):
        path.write_bytes(content)


def as_npy(array: np.ndarray, allow_pickle: bool = False) -> memoryview:
    """An array in NumPy's format, to be written: `np.save` writes files by buffers of C's, and does not see that a disk has no
    room for the last one."""
    held = io.BytesIO()
    np.save(held, array, allow_pickle=allow_pickle)
    return held.getbuffer()


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
