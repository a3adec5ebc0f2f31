"""A device of another process, or of another host: `treadle.remote("host:port")` where `treadle serve --remote` runs.

device = treadle.remote("gpu-less-host:8001", token="…", tls="ca.pem")
machine = treadle.VirtualMachine(treadle.load("model.trdl"), device=device)
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from ..formats.messages.calling import public
from ..formats.messages.errors import ArgumentError, NotPicklableError
from ..vm.device import Device
from .connection import Connection
from .machine import RemoteMachine
from .tensor import RemoteTensor, put


class RemoteDevice(Device):
    """The CPU of a server. Machines that are made for it run there. Closing it frees all that its machines held."""

    connection: Connection

    def __init__(self, connection: Connection) -> None:
        super().__init__("cpu", 0, connection.number)
        object.__setattr__(self, "connection", connection)

    @property
    def machine_class(self) -> type:
        """The class of `VirtualMachine(exe, device=…)`."""
        return RemoteMachine

    @property
    def address(self) -> str:
        return self.connection.address

    def put(self, value: Any) -> RemoteTensor:
        """A copy of a tensor at the server, for calls that are to read it again and again. Raises ArgumentError, DTypeError,
        RemoteLimitError, RemoteError."""
        return put(self.connection, value)

    def sync(self, stream: None = None) -> None:
        """Returns when all work is done, which it is; asks the server, so that a lost connection is seen. Raises RemoteError."""
        self.connection.ask({"do": "ping"})

    def close(self) -> None:
        """Ends the session; what is used of it afterwards raises RemoteError."""
        self.connection.close()

    def __enter__(self) -> RemoteDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError("a connection cannot be pickled; connect again where it is needed")

    def __repr__(self) -> str:
        return f"remote({self.address!r})"


@public
def remote(
    address: str,
    *,
    token: str | None = None,
    tls: bool | str | os.PathLike = False,
    client_certificate: str | os.PathLike | None = None,
    client_key: str | os.PathLike | None = None,
    timeout: float = 20.0,
) -> RemoteDevice:
    """Connects to a server's gRPC port, "host:port", that runs with `--remote`.

    `token` is one of the server's. `tls` is True where its certificate is signed by an authority that this system trusts, or the
    file of the certificate to trust; without it, nothing is encrypted. `client_certificate` and `client_key` are files for
    servers that ask for them. Raises RemoteError when nobody answers within `timeout` seconds, RemoteLimitError,
    MissingPackageError, FileError, ArgumentError.
    """
    host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not port.isdecimal():
        raise ArgumentError(f'remote({address!r}): expected "host:port"')
    if (client_certificate is None) != (client_key is None):
        raise ArgumentError("remote: client_certificate and client_key come together")
    pair = None if client_certificate is None or client_key is None else (client_certificate, client_key)
    return RemoteDevice(Connection(RemoteDevice, address, token, tls, timeout, pair))
