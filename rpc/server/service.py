"""The remote device over gRPC: clients' executables are verified and called here, their results kept here until asked for.

Three methods: `Call` (a frame in, a frame out), `Put` (an upload in chunks), `Get` (a download in chunks). A frame's header says
what is to be done; see `rpc/wire.py`. What goes wrong is an answer with an error's class and text.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np

from ...formats.constants import aligned_copy
from ...formats.executable import load
from ...formats.messages.errors import (
    ArgumentError,
    CancelledError,
    ExecutionError,
    FormatError,
    OutOfMemoryError,
    RemoteError,
    RemoteLimitError,
    TreadleError,
)
from ...serve.access import AccessLog, Tokens
from ...serve.errors import OverloadedError, UnavailableError, let_go
from ...serve.grpc_calls import Calls
from ...serve.scheduler import Scheduler
from ...vm.budgets import CancelToken
from ...vm.machine import VirtualMachine
from ...vm.tensor import Tensor
from ..values import array_of, read_type
from ..wire import CHUNK, NAME, SERVICE, SESSION_KEY, VERSION, Steps, error_to_wire, pack, unpack
from .functions import Functions
from .sessions import Executables, RemoteLimits, Session, Sessions
from .turns import Places, in_turn
from .work import WORK, HeldFunction, HeldMachine, SentTensor, Work


class RemoteMethods:
    """The methods of the service."""

    name = SERVICE

    def __init__(
        self, limits: RemoteLimits, functions: Mapping[str, Any] | None = None, scheduler: Scheduler | None = None
    ) -> None:
        """`functions` are what clients may call besides, by name, and their programs import: see `functions.py`. The
        sessions' calls take turns in `scheduler`, with whatever else does."""
        self.limits = limits
        self._functions = Functions(functions or {})
        self._scheduler = scheduler or Scheduler()
        self.sessions = Sessions(limits)
        self.executables = Executables(limits)
        self._calls = Places(limits.calls, "calls")
        self._transfers = Places(limits.transfers, "transfers")
        self._short: dict[str, Callable[[Session, dict[str, Any]], dict[str, Any]]] = {
            "ping": lambda session, header: {},
            "close": self._close,
            "files": lambda session, header: {"files": session.files()},
            "remove": _remove,
            "has_function": lambda session, header: {"has": header.get("name") in self._functions},
        }
        self._long: dict[str, Callable[[Work], dict[str, Any]]] = {
            **WORK,
            "machine": self._machine,
            "function": self._function,
        }

    def close(self) -> None:
        """Ends all sessions."""
        self.sessions.close_all()

    # ---- the three methods ----

    def Call(self, frame: bytes, context: grpc.ServicerContext) -> bytes:
        parts: list[Any] = []
        try:
            steps = Steps()
            header, data = unpack(frame, steps)
            what = header.get("do")
            if what == "open":
                return pack(self._open(header))
            session = self.sessions.get(header.get("session"))
            _release(session, header)
            if isinstance(what, str) and what in self._short:
                return pack(self._short[what](session, header))
            if not isinstance(what, str) or what not in self._long:
                raise FormatError(f"a message asks for {what!r:.40}, which this server does not know")
            with self._calls.turn(session), _running(session, context) as token:
                work = Work(session, header, data, context.time_remaining(), token, steps)
                task, seconds = self._long[what], work.budget()["max_seconds"] if what in WORK else work.seconds()
                answer = in_turn(self._scheduler, session.line, token, seconds, lambda: _with_memory(task, work))
                parts = work.parts
            return pack(answer, parts)
        except Exception as error:
            return pack({"error": _told(error)})

    def Put(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            session = self.sessions.get(dict(context.invocation_metadata()).get(SESSION_KEY))
            with self._transfers.turn(session), _running(session, context), self._in_time(context):
                header, _ = unpack(next(chunks, b""))
                _release(session, header)
                return pack(self._put(session, header, chunks))
        except Exception as error:
            return pack({"error": _told(error)})

    def _put(self, session: Session, header: dict[str, Any], chunks: Iterator[bytes]) -> dict[str, Any]:
        size = header.get("size")
        if type(size) is not int or size < 0:
            raise FormatError("a message's size: expected a number of bytes")
        if header.get("kind") == "executable":
            if size > self.limits.executable_bytes:
                raise RemoteLimitError(
                    f"an executable of {size} bytes; this server takes {self.limits.executable_bytes}"
                )
            with session.reserved(size):
                whole = bytes(_joined(chunks, size))
                self.executables.add(whole, load(whole, constants={}))  # from nowhere: no file of this host
            return {}
        if header.get("kind") == "file":
            name = header.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= NAME:
                raise ArgumentError(f"a file has a name of {NAME} characters at most")
            with session.reserved(size):
                whole = bytes(_joined(chunks, size))
            session.put_file(name, whole)
            return {}
        dtype, shape = read_type(header.get("dtype"), header.get("shape"))
        if math.prod(shape) * dtype.itemsize != size:
            raise FormatError(f"an upload of {dtype}{list(shape)} says that it has {size} bytes")
        with session.reserved(size):
            array = array_of(_joined(chunks, size), dtype, shape)
        return {"handle": session.keep(SentTensor(array))}

    def Get(self, frame: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            header, _ = unpack(frame)
            session = self.sessions.get(header.get("session"))
            _release(session, header)
            if "file" in header:
                data = memoryview(session.file(header["file"]))
            else:
                array = np.ascontiguousarray(session.get(header.get("handle"), Tensor).array)
                data = array.reshape(-1).view(np.uint8).data
            with self._transfers.turn(session), _running(session, context), self._in_time(context):
                yield pack({"size": len(data)})
                for start in range(0, len(data), CHUNK):
                    yield bytes(data[start : start + CHUNK])
        except Exception as error:
            yield pack({"error": _told(error)})

    # ---- sessions and machines ----

    def _open(self, header: dict[str, Any]) -> dict[str, Any]:
        if header.get("version") != VERSION:
            raise FormatError(f"the client speaks version {header.get('version')!r:.20}, this server {VERSION}")
        return {"session": self.sessions.open().id, "idle": self.limits.idle, "version": VERSION}

    def _close(self, session: Session, header: dict[str, Any]) -> dict[str, Any]:
        self.sessions.close(session)
        return {}

    def _machine(self, work: Work) -> dict[str, Any]:
        header, limits = work.header, self.limits
        digest, proof = header.get("digest"), header.get("proof")
        if not isinstance(digest, bytes) or not isinstance(proof, bytes):
            raise FormatError("a machine is made of an executable's digest, and a proof that one has it")
        found = self.executables.find(digest, work.session.id, proof)
        if found is None:
            return {"missing": True}
        size, executable = found
        kernels, memory = header.get("kernels", "build"), header.get("memory", "pooled")
        seconds = header.get("max_build_seconds")
        if seconds is None or (isinstance(seconds, (int, float)) and seconds > limits.build_seconds):
            seconds = limits.build_seconds
        with work.session.reserved(size):
            machine = VirtualMachine(
                executable,
                memory_cfg=memory,
                imports=self._functions.imports(executable.program),
                kernels=kernels,
                **work.budget(),
                max_build_seconds=seconds,  # what is not a number, the machine refuses, and so with the others
            )
        return {"handle": work.session.keep(HeldMachine(machine), size)}

    def _function(self, work: Work) -> dict[str, Any]:
        held = work.header.get("held")
        function = self._functions.find(work.name()) if held is None else work.session.get(held, HeldFunction).function
        arguments = [Tensor(each) if isinstance(each, np.ndarray) else each for each in work.arguments()]
        try:
            result = function(*arguments)
        except TreadleError:
            raise
        except Exception as error:  # the owner's
            raise ExecutionError(f"the function raised {type(error).__name__}: {str(error)[:2000]}") from error
        return work.answer(_copied(result))

    # ---- bounds ----

    @contextlib.contextmanager
    def _in_time(self, context: grpc.ServicerContext) -> Iterator[None]:
        """A transfer that takes too long is broken off: its client may not read, or not write."""
        timer = threading.Timer(self.limits.transfer_seconds, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _told(error: Exception) -> dict[str, Any]:
    """The description of an answered error for a client."""
    told = error_to_wire(_named(error))
    let_go(error)
    return told


def _named(error: Exception) -> TreadleError:
    """The error that a client gets: of internal faults, their class and text, no trace."""
    if isinstance(error, TreadleError):
        return error
    if isinstance(error, OverloadedError):
        return RemoteLimitError(str(error))
    if isinstance(error, UnavailableError):
        return RemoteError(str(error))
    if isinstance(error, MemoryError):
        return OutOfMemoryError("the server has no memory for it")
    return ExecutionError(f"the server failed: {type(error).__name__}: {str(error)[:200]}")


def _copied(result: Any) -> Any:
    """The result of an owner's function, copied to tensors outside of the owner's memory."""
    if isinstance(result, (tuple, list)):
        return tuple(map(_copied, result))
    if isinstance(result, (Tensor, np.ndarray, np.generic)):
        return Tensor(aligned_copy(np.asarray(result)))
    return result


def _release(session: Session, header: dict[str, Any]) -> None:
    released = header.get("release", [])
    if not isinstance(released, list) or any(type(each) is not int for each in released):
        raise FormatError("a message's release: expected a list of handles")
    for handle in released:
        session.release(handle)


def _remove(session: Session, header: dict[str, Any]) -> dict[str, Any]:
    session.remove_file(header.get("name"))
    return {}


def _joined(chunks: Iterator[bytes], size: int) -> bytearray:
    """The bytes of an upload; memory is taken as they come. Raises FormatError."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > size:
            break
    if len(data) != size:
        raise FormatError(f"an upload said that it has {size} bytes, got {len(data)}")
    return data


def _with_memory(task: Callable[[Work], dict[str, Any]], work: Work) -> dict[str, Any]:
    """Does what takes memory of the host's: no more than is left by what else is held and runs."""
    with work.session.total.lent(work.session.limits.memory) as work.memory:
        return task(work)


@contextlib.contextmanager
def _running(session: Session, context: grpc.ServicerContext) -> Iterator[CancelToken]:
    """A request of a session runs: a client that goes away, or a session that ends, stops it."""
    token = session.begin()
    try:
        if not context.add_callback(token.cancel):
            raise CancelledError("the client has gone")
        yield token
    finally:
        session.end(token)


def remote_handlers(
    methods: RemoteMethods,
    calls: Calls,
    tokens: Tokens | None,
    log: AccessLog | None,
    once: Callable[..., Any],
    streamed: Callable[..., Any],
) -> dict[str, Any]:
    """gRPC's handlers of the methods; `once` and `streamed` wrap those that answer once, or with a stream."""
    return {
        "Call": grpc.stream_unary_rpc_method_handler(
            calls.unary(once("Remote.Call", methods.Call, tokens, log), is_plain=True)
        ),
        "Put": grpc.stream_unary_rpc_method_handler(once("Remote.Put", methods.Put, tokens, log)),
        "Get": grpc.unary_stream_rpc_method_handler(streamed("Remote.Get", methods.Get, tokens, log)),
    }
