"""`tvm.rpc` without a network: a session of this process, under the names that remote ones have.

A server made here can be connected to from here. What is on another host is not reached; `connect` says so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..formats.errors import ArgumentError
from ..vm.device import Device, device
from ..vm.registry import PackedFunc
from .error import RPCError
from .runtime.module import Module, load_module
from .runtime.ndarray import cpu
from .runtime.registry import get_global_func

_FIRST_PORT = 9190
_ports = itertools.count(_FIRST_PORT)
_servers: dict[int, Server] = {}


class RPCSession:
    """Files and functions of a server, which is this process. Files lie in a folder of the session's own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-session-")

    def get_function(self, name: str) -> PackedFunc:
        """A registered function. Raises UnknownGlobalFunctionError."""
        found = get_global_func(name)
        assert found is not None
        return found

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """A device of the server."""
        return device(dev_type, dev_id)

    def cpu(self, dev_id: int = 0) -> Device:
        """The server's CPU."""
        return cpu(dev_id)

    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        """Puts a file, or bytes under the name `target`, into the session's folder."""
        if isinstance(data, (bytes, bytearray)):
            if not target:
                raise ArgumentError("upload: bytes need a target, the name that they will have")
            self._path(target).write_bytes(data)
        else:
            shutil.copyfile(data, self._path(target or os.path.basename(data)))

    def download(self, path: str) -> bytearray:
        """The bytes of a file of the session's folder."""
        return bytearray(self._path(path).read_bytes())

    def remove(self, path: str) -> None:
        """Removes a file of the session's folder."""
        self._path(path).unlink()

    def listdir(self, path: str = "") -> list[str]:
        """The files of the session's folder."""
        return sorted(os.listdir(self._folder.name))

    def load_module(self, path: str) -> Module:
        """The module in a file of the session's folder."""
        return load_module(self._path(os.path.basename(path)))

    def _path(self, name: str) -> Path:
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise ArgumentError(f"{name!r}: a session has plain names of files, without folders")
        return Path(self._folder.name) / name


class LocalSession(RPCSession):
    """A session of this process."""


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


def connect(url: str, port: int, key: str = "", session_timeout: int = 0, **options: Any) -> RPCSession:
    """A session of a server of this process. Raises RPCError for any other: there is no network here."""
    if port not in _servers:
        raise RPCError(f"connect({url!r}, {port}): there is no such server in this process, and others are not reached")
    return LocalSession()
