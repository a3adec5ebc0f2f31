"""Spills constants that passes compute from weights to a file until the executable is written.

`treadle compile` writes a file: computed weights need not stay in memory until then. A spilled constant is
mapped read-only, and paged in by the system on access (`formats/mapped.py` releases pages).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...formats import mapped
from ...formats.constants import aligned_array, aligned_copy, constant_bytes, copy_elements
from ...formats.container import blocks, write_behind
from ...formats.messages.errors import FileError

LEAST_BYTES = 1 << 18  # of an array that is worth a mapping of its own, of which systems allow some 65,000


class _Spill:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file: BinaryIO | None = None  # created for the first array
        self.end = 0

    def kept(self, array: np.ndarray) -> np.ndarray:
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.folder, prefix=".treadle-")  # noqa: SIM115  (`close` closes it)
        start = -(-self.end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self.file.seek(start)
        write_behind(self.file, _parts(array))
        self.file.flush()
        self.end = start + array.nbytes
        mapping = mapped.PrivateMapping(self.file.fileno(), array.nbytes, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(mapping, np.uint8).view(array.dtype).reshape(array.shape)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()  # it has no name: it is gone with the last mapping


def _parts(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array as a constant; each part overwrites the last but one."""
    if array.flags.c_contiguous:
        yield from blocks([constant_bytes(array)])
        return
    step = max(1, len(array) * mapped.CHUNK // array.nbytes)
    rows, other = (aligned_array((step, *array.shape[1:]), array.dtype) for _ in range(2))
    for start in range(0, len(array), step):
        part = array[start : start + step]
        copy_elements(rows[: len(part)], part)
        yield constant_bytes(rows[: len(part)])
        rows, other = other, rows


_current: ContextVar[_Spill | None] = ContextVar("spill", default=None)


@contextlib.contextmanager
def spilling(folder: str | os.PathLike) -> Iterator[None]:
    """Within this, large computed constants are in an unnamed file in that folder."""
    spill = _Spill(Path(folder))
    token = _current.set(spill)
    try:
        yield
    finally:
        _current.reset(token)
        spill.close()


def kept(array: np.ndarray, *, is_last: bool = False) -> np.ndarray:
    """The same elements, C-contiguous; in the file if there is one, and they are many. Elements of another file stay there
    until the constant is known to be final (`is_last`). Raises FileError if the file cannot hold them."""
    spill = _current.get()
    mapping = mapped.owner(array)
    is_there = isinstance(mapping, mapped.PrivateMapping) or (mapping is not None and not is_last)
    if spill is None or array.nbytes < LEAST_BYTES or (is_there and array.flags.c_contiguous):
        return array if array.flags.c_contiguous else aligned_copy(array)
    try:
        return spill.kept(array)
    except OSError as error:
        doing = f"constants cannot be kept in a file beside the executable, in {str(spill.folder)!r}"
        raise FileError.of(error, doing, str(spill.folder)) from error
