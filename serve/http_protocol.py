"""HTTP connections with the bounds that uvicorn's have not: on time and bytes of a request's head, on requests that are sent
ahead of their answers, and on how slowly an answer may be read."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .descriptors import are_too_many

MAX_HEAD = 128 << 10  # bytes that are neither a body nor the end of anything: request line, headers, trailers
MAX_AHEAD = 64  # requests of a connection that wait for the answer before theirs
HEAD_SECONDS = (
    15.0  # from a connection's start, its handshake or its last answer, to the end of the next request's head
)
READ_SECONDS = 30.0  # in which a client must take READ_BYTES of an answer, or what is left of it
READ_BYTES = 4 << 20
CLOSE_SECONDS = 2.0  # that a connection may take to end once all is said
SWEEP_SECONDS = 1.0  # between two looks at all connections


class Connection(HttpToolsProtocol):
    """One client's connection. `check` is to be called again and again."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._silent = 0  # bytes since a head, a piece of a body or a request was over
        self._since = self.loop.time()  # when we began to wait for a head
        self._left: tuple[int, float] | None = None  # bytes of answers that were unread, and when
        self._closing: float | None = None  # since when there is nothing more to say

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override, unused-ignore]
        super().connection_made(transport)
        if are_too_many(len(self.connections)):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._silent += len(data)
        super().data_received(data)
        if self._silent > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def send_400_response(self, msg: str) -> None:
        if self._is_busy():  # it would be taken for the answer to a request before
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._silent = 0
        if len(self.pipeline) >= MAX_AHEAD:
            self.transport.abort()
            raise ConnectionAbortedError(f"{MAX_AHEAD} requests wait already")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def check(self, now: float) -> None:
        """Ends the connection if its client keeps it waiting for too long."""
        unread = self.transport.get_write_buffer_size()
        if unread:
            if self._left is None or unread <= self._left[0] - READ_BYTES:
                self._left = unread, now
            if now - self._left[1] > READ_SECONDS:
                self.transport.abort()
            self._since = now
            return
        self._left = None
        if self.transport.is_closing():  # TLS waits for its client's last word
            self._closing = self._closing or now
            if now - self._closing > CLOSE_SECONDS:
                self.transport.abort()
        elif not self._is_busy() and now - self._since > HEAD_SECONDS:
            self.transport.abort()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


async def sweep(connections: set[Any]) -> None:
    """Checks all connections, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        for each in list(connections):
            each.check(now)
