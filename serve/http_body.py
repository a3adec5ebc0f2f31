"""Bodies of requests: read as far as they are wanted, and no further."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any

from .errors import BadRequestError, ClientGoneError, OverloadedError, TooLargeError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


async def gone(receive: Receive) -> None:
    """Ends when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Room:
    """How many bytes the bodies of all requests may have together, while they are read and answered. For any thread."""

    def __init__(self, size: int) -> None:
        self._left = self._size = size
        self._lock = threading.Lock()

    def has(self, count: int) -> bool:
        """Whether there is room for `count` bytes at the moment."""
        return count <= self._left

    def take(self, count: int) -> None:
        """Raises OverloadedError if there is no room for `count` bytes."""
        with self._lock:
            if count > self._left:
                used = self._size - self._left
                raise OverloadedError(
                    f"the bodies of all requests have {used} bytes, of {self._size} that they may have; {count} more do "
                    "not fit: try again later"
                )
            self._left -= count

    def give(self, count: int) -> None:
        """The inverse."""
        with self._lock:
            self._left += count

    @contextlib.contextmanager
    def held(self, count: int) -> Iterator[None]:
        """Holds `count` bytes until the end of the block. Raises OverloadedError."""
        self.take(count)
        try:
            yield
        finally:
            self.give(count)


class Body:
    """A request's body, of which parts arrive one after another; with `with`, its room is given back at the end."""

    def __init__(
        self, receive: Receive, length: int | None, limit: int, seconds: float, room: Room | None = None
    ) -> None:
        """`length` is what the client says of it, `limit` what it may have. `seconds` are what a client may take to send it.
        Raises TooLargeError."""
        if length is not None and length > limit:
            raise TooLargeError(f"a body of {length} bytes; at most {limit} are taken")
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._deadline: float | None = None
        self._data = bytearray()
        self._is_over = False
        self._room, self._taken = room, 0

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        if self._room is not None:
            self._room.give(self._taken)
            self._taken = 0

    def take(self, count: int) -> None:
        """Takes room for `count` more bytes of this request, or gives it back if negative. Raises OverloadedError."""
        if self._room is not None:
            self._room.take(count)
            self._taken += count

    async def first(self, count: int) -> memoryview:
        """The first `count` bytes. Raises BadRequestError where there are fewer, TooLargeError."""
        while len(self._data) < count and not self._is_over:
            await self._more()
        if len(self._data) < count:
            raise BadRequestError(f"the body has {len(self._data)} bytes, {count} are declared")
        return memoryview(self._data)[:count]

    async def all(self) -> bytearray:
        """All bytes. Raises TooLargeError."""
        while not self._is_over:
            await self._more()
        return self._data

    def bound(self, size: int) -> None:
        """From now on it is an error if the body has more bytes."""
        self._limit = min(self._limit, size)
        self._check()

    async def _more(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
            message = await self._receive()  # what has arrived with the head of the request is there at once
        else:
            try:
                message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
            except asyncio.TimeoutError:
                raise ClientGoneError(f"the body has not come within {self._seconds} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client went away")
        piece = message.get("body", b"")
        self.take(len(piece))
        self._data += piece
        self._is_over = not message.get("more_body", False)
        self._check()

    def _check(self) -> None:
        if len(self._data) > self._limit:
            raise TooLargeError(f"the body has more than the {self._limit} bytes that it declares or may have")


def decompressed(data: bytes | bytearray, encoding: str, limit: int) -> bytes:
    """A body, decompressed. Raises BadRequestError, TooLargeError."""
    if encoding not in _WINDOWS:
        raise BadRequestError(f"content-encoding {encoding[:20]!r}: expected gzip or deflate")
    decoder = zlib.decompressobj(_WINDOWS[encoding])
    try:
        result = decoder.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadRequestError(f"the body is not {encoding}: {error}") from None
    if len(result) > limit:
        raise TooLargeError(f"the body, decompressed, has more than {limit} bytes")
    if not decoder.eof:
        raise BadRequestError(f"the body is not {encoding}: it ends too early")
    return result


def compressed(data: bytes, encoding: str) -> bytes:
    """The inverse."""
    encoder = zlib.compressobj(1, zlib.DEFLATED, _WINDOWS[encoding])
    return encoder.compress(data) + encoder.flush()


MOST_INFLATED = 1032  # how many times as many bytes zlib makes of some: its format has no shorter code
_WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's window bits, which say the format too
