"""Sessions of this process, and of servers that run `treadle serve --remote`."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ...formats.messages.errors import (
    ArgumentError,
    MissingPackageError,
    RemoteError,
    TreadleError,
    UnknownGlobalFunctionError,
)
from ...rpc.device import RemoteDevice, remote
from ...rpc.tensor import call_registered, has_function
from ...vm.device import Device, device
from ..error import RPCError
from ..modules.registry import Imports, PackedFunc
from ..runtime.module import Module, load_module, system_lib
from ..runtime.ndarray import as_ndarray, cpu
from ..runtime.registry import get_global_func
from .server import is_here


class RPCSession:
    """Files and functions of a server, which is this process. Files lie in a folder of the session's own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="treadle-session-")

    def get_function(self, name: str) -> PackedFunc:
        """A registered function; what it raises that is not our error is an RPCError. Raises UnknownGlobalFunctionError."""
        found: Any = get_global_func(name)

        def call(*args: Any) -> Any:
            try:
                return found(*args)
            except TreadleError:
                raise
            except Exception as error:
                raise RPCError(f"{name}: {type(error).__name__}: {error}") from error

        return PackedFunc(call)

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

    def load_module(self, path: str, *, imports: Imports = ()) -> Module:
        """The module in a file of the session's folder; `imports` are as those of `runtime.load_module`."""
        return load_module(self._path(os.path.basename(path)), imports=imports)

    def system_lib(self) -> Module:
        """The functions that are linked into the server's program."""
        return system_lib()

    def _path(self, name: str) -> Path:
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise ArgumentError(f"{name!r}: a session has plain names of files, without folders")
        return Path(self._folder.name) / name


class LocalSession(RPCSession):
    """A session of this process, whose functions are those that are registered."""

    def get_function(self, name: str) -> PackedFunc:
        """A registered function. Raises UnknownGlobalFunctionError."""
        found = get_global_func(name)
        assert found is not None
        return found


class RemoteSession(RPCSession):
    """A session at a server: files lie in its memory, programs run there. See `treadle.remote`."""

    def __init__(self, remote: RemoteDevice) -> None:
        self._device, self._connection = remote, remote.connection

    def get_function(self, name: str) -> PackedFunc:
        """A function that the server's owner has registered. Raises UnknownGlobalFunctionError."""
        if not has_function(self._connection, name):
            raise UnknownGlobalFunctionError(f"the server's owner has registered no function {name!r}")
        return PackedFunc(lambda *args: call_registered(self._connection, name, args, as_ndarray))

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """The server's CPU. Raises ArgumentError for anything else."""
        if dev_id != 0 or device(dev_type).kind != "cpu":
            raise ArgumentError(f"device({dev_type!r}, {dev_id}): the server has cpu(0) alone")
        return self._device

    def cpu(self, dev_id: int = 0) -> Device:
        """The server's CPU."""
        return self.device("cpu", dev_id)

    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        """Puts a file, or bytes under the name `target`, into the session."""
        if isinstance(data, (bytes, bytearray)):
            if not target:
                raise ArgumentError("upload: bytes need a target, the name that they will have")
            content = bytes(data)
        else:
            content, target = Path(data).read_bytes(), target or os.path.basename(data)
        self._connection.upload({"kind": "file", "name": target}, memoryview(content))

    def download(self, path: str) -> bytearray:
        """The bytes of a file of the session."""
        return self._connection.download({"file": path})

    def remove(self, path: str) -> None:
        """Removes a file of the session."""
        self._connection.ask({"do": "remove", "name": path})

    def listdir(self, path: str = "") -> list[str]:
        """The files of the session."""
        return list(self._connection.ask({"do": "files"})[0].get("files", ()))

    def load_module(self, path: str, *, imports: Imports = ()) -> Module:
        """The module in a file of the session. What it holds of native code is left out; machines of it for `cpu()` run at the
        server, its own functions here."""
        with tempfile.TemporaryDirectory(prefix="treadle-session-") as folder:
            local = Path(folder) / os.path.basename(path)
            local.write_bytes(self.download(path))
            return load_module(local, imports=imports)

    def system_lib(self) -> Module:
        """A module without functions: `get_function` has those of the server's owner."""
        return Module()

    def close(self) -> None:
        """Ends the session: the server frees what it held."""
        self._device.close()


def connect(url: str, port: int, key: str = "", session_timeout: int = 0, **options: Any) -> RPCSession:
    """A session of a server of this process, or of one that runs `treadle serve --remote` at this host and gRPC port: then `key`
    is one of its tokens, and `session_timeout` the seconds that it may take to answer first (0: 20); `tls` is as `treadle.remote`
    has it. Raises RPCError where there is none."""
    if "session_constructor_args" in options:
        raise RPCError(
            f"connect({url!r}, {port}): a server here starts no session elsewhere; connect to that one itself"
        )
    if is_here(port):
        return RPCSession()
    tls = options.get("tls", False)
    try:
        return RemoteSession(remote(f"{url}:{port}", token=key or None, tls=tls, timeout=session_timeout or 20))
    except (RemoteError, MissingPackageError) as error:
        raise RPCError(f"connect({url!r}, {port}): there is no such server in this process, and {error}") from error
