"""The connection to a device of another process or host: a session at its server, over gRPC, which is imported when a connection
is made."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.messages.errors import (
    BudgetExceededError,
    CancelledError,
    FileError,
    FormatError,
    MissingPackageError,
    RemoteError,
)
from ..formats.starting import Thread
from ..vm.budgets import CancelToken
from ..vm.device import Device
from .values import plain
from .wire import CHUNK, SERVICE, SESSION_BYTES, SESSION_KEY, VERSION, error_of_wire, pack, unpack

_GRACE = 10.0  # seconds that an answer has on the way, beyond the time of the call
_CLOSING = 2.0  # seconds that the server has to hear that a session is over
_RELEASES = 4096  # handles let go of with one request
_PINGS = 4  # in the time after which a silent session is over
_sessions = itertools.count(1)


class Connection:
    """A session at a server. Threads may use it at once."""

    def __init__(
        self,
        device: Callable[[Connection], Device],
        address: str,
        token: str | None,
        tls: bool | str | os.PathLike,
        timeout: float,
        pair: tuple | None,
    ) -> None:
        self.address, self._timeout = address, timeout
        self._device = device
        self._grpc, channel = _channel(address, tls, pair)
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._call = channel.unary_unary(f"/{SERVICE}/Call")
        self._put = channel.stream_unary(f"/{SERVICE}/Put")
        self._get = channel.unary_stream(f"/{SERVICE}/Get")
        self._released: deque[int] = deque()
        self.shared: weakref.WeakValueDictionary[bytes, Any] = weakref.WeakValueDictionary()  # handles, by digests
        self.session = b""
        self.number = next(_sessions)  # as devices tell it
        try:
            found, _ = self._answer(self._call, pack({"do": "open", "version": VERSION}), timeout)
            session, idle = found.get("session"), found.get("idle")
            if not isinstance(session, bytes) or len(session) != SESSION_BYTES or not isinstance(idle, (int, float)):
                raise RemoteError(f"{address}: what answers there is no remote device of Treadle's")
        except BaseException:
            channel.close()
            raise
        self.session = session
        stop = threading.Event()
        self._end = weakref.finalize(self, _end, self._call, channel, session, self._metadata, stop)
        beat = Thread(target=_beat, args=(weakref.ref(self), stop, idle / _PINGS), name="treadle-remote", daemon=True)
        beat.start()

    @property
    def device(self) -> Device:
        """The device that it connects to."""
        return self._device(self)

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it; the server may be gone all the same."""
        return self._end.alive

    def close(self) -> None:
        """Ends the session: the server frees what it held."""
        self._end()

    def release(self, handle: int) -> None:
        """Lets go of a value, with the next request. May be called from finalizers."""
        self._released.append(handle)

    def ask(
        self,
        header: dict[str, Any],
        parts: list[Any] | None = None,
        seconds: float | None = None,
        cancel: CancelToken | None = None,
    ) -> tuple[dict[str, Any], memoryview]:
        """Sends a request and waits for its answer. Raises what the server raised, RemoteError, CancelledError,
        BudgetExceededError."""
        frame = pack(self._with_session(header), parts or ())
        return self._answer(self._call, frame, None if seconds is None else seconds + _GRACE, cancel)

    def upload(self, header: dict[str, Any], data: memoryview) -> dict[str, Any]:
        """Sends bytes in chunks."""
        first = pack(self._with_session({**header, "size": len(data)}))  # an error in the iterator would be gRPC's

        def chunks() -> Iterator[bytes]:
            yield first
            for start in range(0, len(data), CHUNK):
                yield bytes(data[start : start + CHUNK])

        return self._answer(self._put, chunks(), None, metadata=((SESSION_KEY, self.session),))[0]

    def upload_array(self, array: np.ndarray) -> int:
        """The handle of a copy of an array at the server."""
        array, name = plain(array)
        data = array.reshape(-1).view(np.uint8).data
        return self.upload({"dtype": name, "shape": list(array.shape)}, data)["handle"]

    def download(self, what: dict[str, Any]) -> bytearray:
        """The bytes of a tensor or file."""
        data, size = bytearray(), -1
        with self._errors(None):
            for chunk in self._get(pack(self._with_session(what)), metadata=self._metadata):
                if size < 0:
                    found = self._header(chunk)[0].get("size")
                    size = found if type(found) is int else 0
                    continue
                data += chunk
                if len(data) > size:
                    break
        if len(data) != size:
            raise RemoteError(f"{self.address}: got {len(data)} bytes of {size}")
        return data

    def _with_session(self, header: dict[str, Any]) -> dict[str, Any]:
        if not self.is_open:
            raise RemoteError(f"{self.address}: this connection is closed")
        released: list[int] = []
        with contextlib.suppress(IndexError):
            while len(released) < _RELEASES:
                released.append(self._released.popleft())
        return {**header, "session": self.session, "release": released}

    def _answer(
        self, method: Any, request: Any, timeout: float | None, cancel: CancelToken | None = None, metadata: tuple = ()
    ) -> tuple[dict[str, Any], memoryview]:
        with self._errors(cancel):
            future = method.future(request, timeout=timeout, metadata=(*self._metadata, *metadata))
            if cancel is None:
                frame = future.result()
            else:
                key = id(future)
                cancel.attach(key, future.cancel)
                try:
                    if cancel.cancelled:
                        future.cancel()
                    frame = future.result()
                finally:
                    cancel.detach(key)
        return self._header(frame)

    def _header(self, frame: bytes) -> tuple[dict[str, Any], memoryview]:
        try:
            header, data = unpack(frame)
        except FormatError as error:
            raise RemoteError(f"{self.address}: {error.message}") from None
        if "error" in header:
            raise error_of_wire(header["error"])
        return header, data

    @contextlib.contextmanager
    def _errors(self, cancel: CancelToken | None) -> Iterator[None]:
        """gRPC's errors as ours."""
        grpc = self._grpc
        try:
            yield
        except grpc.FutureCancelledError:
            raise CancelledError("the call was cancelled") from None
        except grpc.RpcError as error:
            code, text = error.code(), error.details()
            if cancel is not None and cancel.cancelled:
                raise CancelledError("the call was cancelled") from None
            if code is grpc.StatusCode.DEADLINE_EXCEEDED and self.session:
                raise BudgetExceededError(f"{self.address} did not answer in time", budget="seconds") from None
            raise RemoteError(f"{self.address}: {_ADVICE.get(code.name, code.name)}: {text}") from None
        except ValueError as error:  # gRPC's, of a channel that was closed meanwhile
            if "closed" not in str(error):
                raise
            raise RemoteError(f"{self.address}: this connection is closed") from None


_ADVICE = {
    "UNAVAILABLE": "the connection is lost, or there is no server",
    "UNAUTHENTICATED": "the server wants a token: treadle.remote(…, token=…)",
    "UNIMPLEMENTED": "the server has no remote device: treadle serve --remote",
    "DEADLINE_EXCEEDED": "the server does not answer",
}


def _channel(address: str, tls: bool | str | os.PathLike, pair: tuple | None) -> tuple[Any, Any]:
    """gRPC and a channel."""
    try:
        import grpc
    except ImportError:
        raise MissingPackageError("treadle.remote needs grpcio: pip install 'treadle[serve]'") from None
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ]
    if tls is False or tls is None:
        return grpc, grpc.insecure_channel(address, options)
    root = None if tls is True else _read(tls)
    certificate, key = (_read(pair[0]), _read(pair[1])) if pair else (None, None)
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    return grpc, grpc.secure_channel(address, credentials, options)


def _read(path: Any) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError.of(error, "cannot read a certificate or key") from None


def _beat(connection: weakref.ref[Connection], stop: threading.Event, interval: float) -> None:
    """Lets the server know that the session is in use, as long as the connection is."""
    while not stop.wait(interval):
        found = connection()
        if found is None:
            return
        with contextlib.suppress(Exception):  # the next call will see
            found.ask({"do": "ping"}, seconds=interval)
        del found


def _end(call: Any, channel: Any, session: bytes, metadata: Any, stop: threading.Event) -> None:
    stop.set()
    with contextlib.suppress(Exception):  # the server may be gone
        call(pack({"do": "close", "session": session}), timeout=_CLOSING, metadata=metadata)
    channel.close()
