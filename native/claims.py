"""Claims of missing cache entries: of processes and threads that want the same one at once, one builds it, the others wait.

A claim is a lock on one byte of a file beside the cache, the byte of the key, held by an open file: it ends with its process.
Where the system has no such locks (all but Linux), or the folder takes no file, each makes what it wants.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections.abc import Callable
from typing import Any

_LOCK = struct.Struct("hhqqi0q")  # Linux's struct flock
_POLL = 0.02  # seconds between two looks at what another process makes
# Seconds without a new blob after which another process is taken to be stopped: a kernel takes a tenth of one, 25 at most
_PATIENCE = 120.0


class Claims:
    """The claims of one open file, `descriptor`, which it closes in the end; `get` looks into the cache."""

    def __init__(self, descriptor: int | None, get: Callable[[str], bytes | None]) -> None:
        self._descriptor, self._get = descriptor, get
        self._gives_up: float | None = None  # by the monotonic clock; None while nothing is waited for

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            self._lock("F_UNLCK", 0, 0)  # of all: a child of fork may have the file open, too
            os.close(self._descriptor)

    def take(self, key: str) -> bool:
        """Whether this one is to make it: nobody else does, or nobody knows."""
        return self._lock("F_WRLCK", _place(key), 1)

    def release(self, key: str) -> None:
        self._lock("F_UNLCK", _place(key), 1)

    def await_other(self, key: str, until: float = float("inf")) -> bytes | None:
        """The blob that another one makes, once it is in the cache. None where nobody makes it, and this one is to, or when the
        monotonic clock shows `until`."""
        if self._gives_up is None:
            self._gives_up = time.monotonic() + _PATIENCE
        until = min(until, self._gives_up)
        while True:
            is_ours = self.take(key)
            found = self._get(key)
            if found is not None:
                self._gives_up = None  # the other one is at work
            if found is not None or is_ours or time.monotonic() > until:
                return found
            time.sleep(_POLL)

    def _lock(self, kind: str, start: int, length: int) -> bool:
        """False where another one has the lock."""
        if self._descriptor is None:
            return True
        import fcntl

        names: Any = fcntl
        request = _LOCK.pack(getattr(names, kind), os.SEEK_SET, start, length, 0)
        with contextlib.suppress(AttributeError):
            try:
                fcntl.fcntl(self._descriptor, names.F_OFD_SETLK, request)
            except OSError as error:
                return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True


def _place(key: str) -> int:
    """The byte of a key."""
    return int(key[:15], 16)
