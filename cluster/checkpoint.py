"""A folder that keeps the results of finished batches, so that work that was cut short goes on where it was.

    work.json              what the results are of: the executable's digest, the function, the batch size, the source
    0000000042.batch       the result of batch 42: a checksum, its structure and places (msgpack), its arrays

A result is written beside its name and renamed, so that it is there whole or not at all. What a crash of the host left
damaged is found by its checksum, and computed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from ..formats.messages.errors import CheckpointError, FileError
from .wire import end_of, flatten, places, read, unflatten, write

_WORK = "work.json"
_HEAD = struct.Struct("<8sII")  # magic, CRC-32 of what follows, bytes of structure and places
_MAGIC = b"TRDLBTC1"


class Checkpoint:
    """The results that one folder keeps. One run at a time uses it."""

    def __init__(self, folder: str | os.PathLike, work: Mapping[str, Any]) -> None:
        """`work` says what the results are of. Raises CheckpointError where the folder is of other work, or in use; FileError."""
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
        except OSError as error:
            raise FileError.of(error, f"checkpoint {self.folder} cannot be used") from error
        try:
            self._check(dict(work))
        except BaseException:
            self.close()
            raise

    def get(self, number: int) -> Any:
        """The result of a batch; None where there is none, or a damaged one."""
        try:
            data = self._path(number).read_bytes()
            magic, checksum, size = _HEAD.unpack_from(data)
            if magic != _MAGIC or checksum != zlib.crc32(memoryview(data)[_HEAD.size :]):
                return None
            structure, found = msgpack.unpackb(data[_HEAD.size : _HEAD.size + size])
            memory = bytearray(memoryview(data)[_HEAD.size + size :])  # arrays of the caller's own, to write into
            return unflatten(structure, read(found, memory))
        except (OSError, ValueError, TypeError, struct.error):
            return None

    def put(self, number: int, result: Any) -> None:
        """Keeps a result. Raises FileError, with what was kept before unchanged."""
        arrays: list[np.ndarray] = []
        structure = flatten(result, arrays)
        found, _ = places(arrays)
        memory = bytearray(end_of(found))
        write(arrays, found, memory)
        head = msgpack.packb([structure, found])
        checksum = zlib.crc32(memory, zlib.crc32(head))
        path = self._path(number)
        self._write(path, [_HEAD.pack(_MAGIC, checksum, len(head)), head, memory], f"the result of batch {number}")

    def close(self) -> None:
        """Lets other runs use the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:010d}.batch"

    def _locked(self) -> Any:
        """An open file that this run alone has locked; the lock goes with the process."""
        file = open(self.folder / ".lock", "a")  # noqa: SIM115  open until `close`
        try:
            import fcntl
        except ImportError:  # Windows
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise CheckpointError(
                f"checkpoint {self.folder} is in use by another run; wait for it, or take another"
            ) from None
        except OSError:  # a file system without locks
            pass
        return file

    def _check(self, work: dict[str, Any]) -> None:
        path = self.folder / _WORK
        try:
            before = json.loads(path.read_text())
        except FileNotFoundError:
            if any(self.folder.glob("*.batch")):
                raise CheckpointError(
                    f"checkpoint {self.folder} has results, but no {_WORK} that says what they are of; take an empty folder"
                ) from None
            self._write(path, [json.dumps(work, indent=1).encode()], "what the results are of")
            return
        except (OSError, ValueError) as error:
            raise CheckpointError(f"checkpoint {path} cannot be read: {error}; take an empty folder") from error
        if before != work:
            known = before if isinstance(before, dict) else {}
            differing = [name for name in work if known.get(name) != work[name]]
            told = ", ".join(f"{name} was {known.get(name)!r} and is {work[name]!r}" for name in differing)
            raise CheckpointError(
                f"checkpoint {self.folder} is of other work: {told}; take another folder, or empty it"
            )

    def _write(self, path: Path, pieces: list[Any], what: str) -> None:
        temporary = path.with_suffix(".new")
        try:
            with open(temporary, "wb") as file:
                file.writelines(pieces)
            os.replace(temporary, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            if isinstance(error, OSError):
                raise FileError.of(error, f"{what} cannot be kept in checkpoint {self.folder}", str(path)) from error
            raise
