"""The clients that measure servers."""

from __future__ import annotations

import socket
import threading

import pytest
from treadle.errors import TreadleError
from treadle.tools.dev.bench.throughput import HttpClient


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
def test_a_connection_that_the_server_closes_is_an_error(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(sent)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with (
            HttpClient(server.getsockname()[1], b"GET / HTTP/1.1\r\n\r\n") as client,
            pytest.raises(TreadleError, match="the server has closed the connection"),
        ):
            client.call()
        thread.join()
