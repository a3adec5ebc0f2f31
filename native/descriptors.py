"""Files of descriptors, and both ends of pipes: what makes a descriptor closes it where no file can be made of it."""

from __future__ import annotations

import io
import os


def file_of(descriptor: int, mode: str) -> io.FileIO:
    """The file of a descriptor, which is the file's from now on, also where there is none.

    Not `open`: where that fails, nobody knows whether it has closed the descriptor, which may be another thread's by then.
    """
    try:
        return io.FileIO(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise


def pipe() -> tuple[io.FileIO, io.FileIO]:
    """The reading and the writing end of a new pipe."""
    read, write = os.pipe()
    try:
        reader = file_of(read, "rb")
    except BaseException:
        os.close(write)
        raise
    try:
        return reader, file_of(write, "wb")
    except BaseException:
        reader.close()
        raise
