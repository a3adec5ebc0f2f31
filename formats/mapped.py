"""Pages of files that are mapped to be read: who has read what is large gives them back, and they no longer count as in use.

The system reads them again when they are asked for. A mapping that may be written is left alone: its pages may be all there is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

CHUNK = 4 << 20  # bytes that are read before their pages are given back
_PAGE = mmap.PAGESIZE
_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)  # None on systems without


class PrivateMapping(mmap.mmap):
    """A mapping, for reading, of a file that nobody else can reach or change."""


def is_private(array: np.ndarray) -> bool:
    """Whether an array lies in such a mapping: it is as good as memory of its own."""
    return isinstance(owner(array), PrivateMapping)


def owner(buffer: Any) -> mmap.mmap | None:
    """The mapping for reading that an array, or a view of bytes, lies in."""
    while isinstance(buffer, (np.ndarray, memoryview)):
        buffer = buffer.base if isinstance(buffer, np.ndarray) else buffer.obj
    return buffer if isinstance(buffer, mmap.mmap) and not buffer.closed and memoryview(buffer).readonly else None


def release(buffer: Any) -> None:
    """Gives back the pages of a mapped file that an array, or a view of bytes, lies on; nothing for other memory."""
    mapping = owner(buffer)
    if mapping is None or _DONTNEED is None:
        return
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    first = start // _PAGE * _PAGE
    mapping.madvise(_DONTNEED, first, min(start + array.nbytes, len(mapping)) - first)


def read_once(buffer: Any) -> Iterator[memoryview]:
    """The bytes of a contiguous buffer, in parts, the pages of each given back when the next is asked for."""
    view = memoryview(buffer).cast("B")
    if owner(buffer) is None:
        yield view
        return
    for start in range(0, len(view), CHUNK):
        part = view[start : start + CHUNK]
        yield part
        release(part)
