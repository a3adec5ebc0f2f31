"""HTTP connections with the bounds that uvicorn's have not: on time and bytes of a request's head, on requests that are sent
ahead of their answers, and on how slowly an answer may be read."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .descriptors import are_too_many
from .http_app import PIECE, Answer, HttpApp

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
        self._quick: HttpApp | None = self.config.app if isinstance(self.config.app, HttpApp) else None
        self._pending: bytearray | None = None  # the body of a request that may be answered without a task
        self._waits_for_head = True
        self._kept = b""  # of a head, until more of it comes
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
        if self._waits_for_head:
            data, self._kept = _whole_names(self._kept + data)
            if b"pgrade:" in data:
                data = _without_upgrade(data)
        super().data_received(data)
        if self._pending is not None:  # its body is not all there
            self._begin()
        if self._silent > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def send_400_response(self, msg: str) -> None:
        if self._is_busy():  # it would be taken for the answer to a request before
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._silent = 0
        self._waits_for_head = False
        if len(self.pipeline) >= MAX_AHEAD:
            self.transport.abort()
            raise ConnectionAbortedError(f"{MAX_AHEAD} requests wait already")
        if self._may_answer_now():
            self._pending = bytearray()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        if self._pending is None:
            super().on_body(body)
        else:
            self._pending += body

    def on_message_complete(self) -> None:
        self._silent = 0
        self._waits_for_head = True
        if self._pending is not None:
            assert self._quick is not None
            client = self.client[0] if self.client else ""
            answer = self._quick.answer_now(self.url, self.headers, self._pending, client)
            if isinstance(answer, Answer):
                if len(answer.body) <= PIECE:
                    self._pending = None
                    self._write(answer)
                    return
                answer = self._quick.answering(answer)
            self._begin(answer)
        super().on_message_complete()

    # ---- requests that are all there, and whose calls take next to no time: a task would take longer ----

    def _may_answer_now(self) -> bool:
        return (
            self._quick is not None
            and not self._is_busy()
            and not self.transport.is_closing()
            and not self.parser.should_upgrade()
            and len(self.connections) < (self.limit_concurrency or 0)
            and not self.expect_100_continue
            and self.parser.should_keep_alive()
            and self.parser.get_http_version() == "1.1"
            and self.parser.get_method() == b"POST"
            and not self.transport.get_write_buffer_size()
        )

    def _begin(self, app: Any = None) -> None:
        """Has the application answer what has been kept back, or another one, as uvicorn does."""
        body, self._pending = self._pending, None
        usual: Any = self.app  # type: ignore[has-type]
        self.app = app or usual
        try:
            super().on_headers_complete()
        finally:
            self.app = usual
        if body:
            super().on_body(bytes(body))

    def _write(self, answer: Answer) -> None:
        parts = [STATUS_LINE[answer.status]]
        for name, value in (*self.server_state.default_headers, *answer.headers):
            parts += name, b": ", value, b"\r\n"
        parts += b"\r\n", answer.body
        self.transport.write(b"".join(parts))
        self.on_response_complete()

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


def _without_upgrade(data: bytes) -> bytes:
    """A request's first bytes, without its wish to upgrade: to HTTP/2, which Java's clients ask for with their
    first request. httptools would leave its body out; that a server ignores the wish is HTTP's own rule."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return re.sub(rb"(?i)\r\nupgrade:", b"\r\nX-Ignored:", head) + end + rest


def _whole_names(data: bytes) -> tuple[bytes, bytes]:
    """The received part of a head, and of its end what may be the beginning of the field that `_without_upgrade` renames."""
    at = -1 if b"\r\n\r\n" in data else data.rfind(b"\r")
    if at >= 0 and b"\r\nupgrade:".startswith(data[at:].lower()):
        return data[:at], data[at:]
    return data, b""


async def sweep(connections: set[Any]) -> None:
    """Checks all connections, for ever."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = loop.time()
        for each in list(connections):
            each.check(now)
