"""Servers that are connected to from this process alone: they open no port. `treadle serve --remote` serves others."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from typing import Any

_FIRST_PORT = 9190
_ports = itertools.count(_FIRST_PORT)
_servers: dict[int, Server] = {}


class Server:
    """What `connect` finds, in this process: a host and a port that are names."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, port_end: int = 0, key: str = "", **options: Any
    ) -> None:
        self.host, self.port, self.key = host, next(_ports), key
        _servers[self.port] = self

    def terminate(self) -> None:
        """Nobody finds it any more."""
        _servers.pop(self.port, None)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.terminate()


def is_here(port: int) -> bool:
    """Whether a server of this process has that port."""
    return port in _servers


def _server_env(load_library: Sequence[str], work_path: str | None = None) -> Any:
    """The folder of a session that is not made yet; libraries of native code are not loaded."""
    return tempfile.TemporaryDirectory(prefix="treadle-session-", dir=work_path)
