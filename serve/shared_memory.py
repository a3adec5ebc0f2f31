"""The protocol's system shared memory: clients on this host name a region once, then tensors in it by offset and size.

Regions are read and written by system calls, not mapped: a client that makes its region shorter meanwhile gets an error, where
a mapping would end the server. It is off unless the server's owner turns it on, since a region may be another program's.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .descriptors import most_regions
from .errors import BadRequestError, NotFoundError, NotImplementedHereError
from .http_body import Room

_KEY = re.compile(r"/?[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
_FOLDER = "/dev/shm"  # where Linux keeps POSIX shared memory objects
_LONGEST_NAME = 256  # characters; names stay until the region is forgotten


@dataclass(frozen=True)
class Region:
    """A part of a shared memory object."""

    name: str
    key: str
    offset: int
    size: int
    descriptor: int


class Regions:
    """The regions that clients have registered."""

    def __init__(self, is_on: bool = False, room: Room | None = None) -> None:
        """`room` is for the bytes of tensors that were read from regions, until these are gone."""
        self._is_on, self._room = is_on, room
        self._lock = threading.Lock()
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Raises BadRequestError, NotImplementedHereError where the server was started without shared memory."""
        self._check_on()
        if len(name) > _LONGEST_NAME:
            raise BadRequestError(
                f"a shared memory region's name has at most {_LONGEST_NAME} characters, got {len(name)}"
            )
        if not _KEY.fullmatch(key):
            raise BadRequestError(
                f"shared memory {name!r}: the key {key[:60]!r} is not the name of a shared memory object"
            )
        if offset < 0 or size <= 0:
            raise BadRequestError(f"shared memory {name!r}: {size} bytes from {offset} on are not a region")
        with self._lock:
            if name in self._regions:
                raise BadRequestError(f"shared memory region {name!r} is registered already; unregister it first")
            if len(self._regions) >= most_regions():
                raise BadRequestError(f"{len(self._regions)} shared memory regions are registered already, the most")
            try:
                path = os.path.join(_FOLDER, key.lstrip("/"))
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise BadRequestError(f"shared memory {name!r}: cannot open {key!r}: {error.strerror}") from None
            region = Region(name, key, offset, size, descriptor)
            if os.fstat(descriptor).st_size < offset + size:
                os.close(descriptor)
                raise BadRequestError(f"shared memory {name!r}: {key!r} is shorter than {offset + size} bytes")
            self._regions[name] = region

    def unregister(self, name: str = "") -> None:
        """Forgets a region, or all of them."""
        self._check_on()
        with self._lock:
            names = [name] if name else list(self._regions)
            for each in names:
                region = self._regions.pop(each, None)
                if region is not None:
                    os.close(region.descriptor)

    def status(self, name: str = "") -> list[Region]:
        """The regions, or the one of that name. Raises NotFoundError."""
        with self._lock:
            if not name:
                return list(self._regions.values())
            if name not in self._regions:
                raise NotFoundError(f"no shared memory region {name!r} is registered")
            return [self._regions[name]]

    def read(self, name: str, offset: int, size: int) -> np.ndarray:
        """A copy of some bytes of a region. Raises NotFoundError, BadRequestError, OverloadedError."""
        with self._lock:  # so that the descriptor is not another's by now
            region = self._part(name, offset, size)
            if not self._has(region, offset + size):
                raise BadRequestError(f"shared memory region {name!r} has been made shorter")
            data = np.empty(size, np.uint8)
            if self._room is not None:
                self._room.take(size)
                weakref.finalize(data, self._room.give, size)
            self._transfer(os.preadv, region, offset, data)
        return data

    def write(self, name: str, offset: int, size: int, array: np.ndarray) -> None:
        """Puts an array's elements into a region. Raises NotFoundError, BadRequestError."""
        data = np.ascontiguousarray(array)
        if data.nbytes > size:
            raise BadRequestError(f"shared memory region {name!r}: {data.nbytes} bytes of output, {size} bytes of room")
        with self._lock:
            region = self._part(name, offset, size)
            if not self._has(region, offset + data.nbytes):  # writing would make it longer
                raise BadRequestError(f"shared memory region {name!r} has been made shorter")
            self._transfer(os.pwritev, region, offset, data.reshape(-1).view(np.uint8))

    def close(self) -> None:
        """Forgets all."""
        if self._is_on:
            self.unregister()

    @staticmethod
    def _has(region: Region, size: int) -> bool:
        return os.fstat(region.descriptor).st_size >= region.offset + size

    @staticmethod
    def _transfer(call: Callable[..., int], region: Region, offset: int, data: np.ndarray) -> None:
        """Reads or writes all of the bytes, of which one call of the system takes 2 GiB at most. Raises BadRequestError."""
        done = 0
        while done < data.nbytes:
            try:
                count = call(region.descriptor, [data.data[done:]], region.offset + offset + done)
            except OSError as error:  # sealed by its owner, no memory for it
                raise BadRequestError(f"shared memory region {region.name!r}: {error.strerror}") from None
            if count <= 0:
                raise BadRequestError(f"shared memory region {region.name!r} has been made shorter")
            done += count

    def _part(self, name: str, offset: int, size: int) -> Region:
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"no shared memory region {name!r} is registered")
        if offset < 0 or size < 0 or offset + size > region.size:
            raise BadRequestError(
                f"shared memory region {name!r} has {region.size} bytes; {size} from {offset} on are asked for"
            )
        return region

    def _check_on(self) -> None:
        if not self._is_on:
            raise NotImplementedHereError(
                "this server has no shared memory; its owner can start it with --shared-memory"
            )
