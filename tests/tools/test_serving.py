"""The clients that measure servers."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from treadle.tools.dev.bench.serving import http_client


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
            http_client(server.getsockname()[1], np.zeros((1, 4), np.float32)) as call,
            pytest.raises(ConnectionError, match="the server has closed the connection"),
        ):
            call()
        thread.join()
