"""A file as another process finds it again: its path, and its digest, by which it is the same file there.

Handles of workers (`cluster/handle.py`) name executables so, and pickles of executables that were loaded from a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .messages.errors import FileError
from .origin import Stamp, stamp_of

_BLOCK = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class SameFile:
    """A file. `digest` is its SHA-256, `stamp` tells without reading it that it is still the one that the digest was taken of."""

    path: str
    digest: str
    stamp: Stamp = ()

    @staticmethod
    def of(path: str | os.PathLike) -> SameFile:
        """The file that is there now. Raises FileError."""
        name = os.fsdecode(path)
        found = os.path.realpath(name)
        if os.path.splitext(found)[1] != os.path.splitext(name)[1]:  # `load` tells libraries by their names
            found = os.path.abspath(name)
        stamp = stamp_of(found)
        return SameFile(found, digest_of_file(found, stamp), stamp)

    def check_is_here(self) -> None:
        """Raises FileError where this host has no such file."""
        if not os.path.exists(self.path):
            raise FileError(
                f"{self.path} is not on this host; put the executable on a file system that all workers share, or at the "
                "same path on each"
            )

    def check_is_same(self) -> None:
        """To be asked after loading: a file that is replaced meanwhile is refused, and never taken for the one that the digest
        is of. Raises FileError."""
        found = stamp_of(self.path)
        if found != self.stamp and digest_of_file(self.path, found) != self.digest:
            raise FileError(f"{self.path} is another file than the one that this work was begun with; begin it anew")


_digests: dict[tuple[str, Stamp], str] = {}
_MOST_DIGESTS = 1024  # from which on files are read again


def digest_of_file(path: str, stamp: Stamp) -> str:
    """The SHA-256 of a file, which is read once as long as its stamp stays. Raises FileError."""
    found = _digests.get((path, stamp))
    if found is None:
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise FileError.of(error, f"{path} cannot be read") from error
        if len(_digests) >= _MOST_DIGESTS:
            _digests.clear()
        found = _digests[path, stamp] = digest.hexdigest()
    return found


def digest_of(pieces: Iterable[Any]) -> str:
    """The SHA-256 of bytes that lie one after another."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
