"""A server in this process, on ports that the system chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import models


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`start(**settings)` serves the folder `tmp_path / "models"`; all servers are stopped at the end."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    pytest.importorskip("grpc")
    from treadle.serve.server import Server, ServerConfig

    running = []

    def begin(log: Any = None, *, tracer_provider: Any = None, **settings: Any) -> Server:
        (tmp_path / "models").mkdir(exist_ok=True)
        defaults = {"folder": tmp_path / "models", "http_port": 0, "grpc_port": 0, "poll": 0.05, "drain": 5.0}
        server = Server(ServerConfig(**{**defaults, **settings}), log, tracer_provider)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        end = time.monotonic() + 60
        while (server.http_port is None or server.grpc_port is None) and time.monotonic() < end:
            assert thread.is_alive()
            time.sleep(0.005)
        return server

    yield begin
    for server, thread in running:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that is served, with the models `rows` and `mixed`."""
    path = tmp_path / "models"
    path.mkdir()
    return models.folder(path, rows=models.rows(), mixed=models.mixed())
