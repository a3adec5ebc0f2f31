"""TLS for HTTP: handshakes count as connections, and have a time.

asyncio's own servers tell nobody of a connection before its handshake is over. So clients that begin one and say no more would
take all descriptors of the process, unseen.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

import uvicorn
from uvicorn.server import ServerState

from . import http_protocol
from .descriptors import are_too_many

_RETRY_SECONDS = 0.1  # after which a system that had no descriptor is asked for one again


class TlsListener:
    """Accepts connections for uvicorn, whose server object for a port this stands for."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        """Opens the port. Raises OSError."""
        self._config, self._state = config, state
        self._loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listener = socket.create_server((config.host, config.port), family=family, backlog=config.backlog)
        listener.setblocking(False)
        self.sockets = (listener,)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept(listener))

    def close(self) -> None:
        """Accepts no more, and ends the handshakes that are not over."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Waits until `close` is done."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)
        self.sockets[0].close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError:  # no descriptor, or the client has gone
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if are_too_many(len(self._state.connections) + len(self._handshakes) + 1):
                connection.close()
                continue
            task = self._loop.create_task(self._shake(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake(self, connection: socket.socket) -> None:
        config, state = self._config, self._state
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ValueError):  # no TLS, none that suits, or the client has gone
            await self._loop.connect_accepted_socket(
                lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),
                connection,
                ssl=config.ssl,
                ssl_handshake_timeout=http_protocol.HEAD_SECONDS,
            )
