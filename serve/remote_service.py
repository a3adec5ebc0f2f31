"""The remote device over gRPC: clients' executables are verified and called here, their results kept here until asked for.

Three methods: `Call` (a frame in, a frame out), `Put` (an upload in chunks), `Get` (a download in chunks). A frame's header says
what is to be done; see `vm/remote_wire.py`. What goes wrong is an answer with an error's class and text.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
import numpy as np

from ..formats.dtypes import DType
from ..formats.errors import (
    ArgumentError,
    BudgetExceededError,
    CancelledError,
    ExecutionError,
    FormatError,
    OutOfMemoryError,
    RemoteLimitError,
    TreadleError,
    UnknownFunctionError,
)
from ..formats.executable import Executable, load
from ..vm.benchmark import measure
from ..vm.budgets import DEFAULT_DEPTH, CancelToken
from ..vm.machine import VirtualMachine
from ..vm.remote_values import Reader, Writer, array_of, read_type
from ..vm.remote_wire import CHUNK, SERVICE, VERSION, error_to_wire, pack, unpack
from ..vm.tensor import Tensor
from ..vm.values import Closure, DataValue
from .access import AccessLog, Tokens
from .remote_sessions import Executables, RemoteLimits, Session, Sessions, alone, size_of

_COOLDOWN = 10_000  # milliseconds between two repeats of a measurement, at most
_NAME = 1024  # characters


class RemoteMethods:
    """The methods of the service."""

    name = SERVICE

    def __init__(self, limits: RemoteLimits, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """`functions` are what clients may call besides, by name: nothing bounds these but themselves."""
        self.limits = limits
        self._functions = dict(functions or {})
        self.sessions = Sessions(limits)
        self.executables = Executables(limits)
        self._calls = threading.BoundedSemaphore(limits.calls)
        self._transfers = threading.BoundedSemaphore(limits.transfers)
        self._short: dict[str, Callable[[Session, dict[str, Any]], dict[str, Any]]] = {
            "ping": lambda session, header: {},
            "close": self._close,
            "files": lambda session, header: {"files": session.files()},
            "remove": _remove,
            "has_function": lambda session, header: {"has": header.get("name") in list(self._functions)},
        }
        self._long: dict[str, Callable[[_Work], dict[str, Any]]] = {
            "machine": self._machine,
            "function": self._function,
            "call": _call,
            "closure": _closure,
            "fields": _fields,
            "set_input": _set_input,
            "invoke_stateful": _invoke_stateful,
            "get_outputs": _get_outputs,
            "save_function": _save_function,
            "saved": _saved,
            "profile": _profile,
            "time": _time,
        }

    def close(self) -> None:
        """Ends all sessions."""
        self.sessions.close_all()

    # ---- the three methods ----

    def Call(self, frame: bytes, context: grpc.ServicerContext) -> bytes:
        parts: list[Any] = []
        try:
            header, data = unpack(frame)
            what = header.get("do")
            if what == "open":
                return pack(self._open(header))
            session = self.sessions.get(header.get("session"))
            _release(session, header)
            if isinstance(what, str) and what in self._short:
                return pack(self._short[what](session, header))
            if not isinstance(what, str) or what not in self._long:
                raise FormatError(f"a message asks for {what!r:.40}, which this server does not know")
            with self._turn(self._calls, "calls"), _running(session, context) as token:
                work = _Work(session, header, data, context, token)
                answer = self._long[what](work)
                parts = work.parts
            return pack(answer, parts)
        except Exception as error:
            return pack({"error": error_to_wire(_named(error))})

    def Put(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            with self._turn(self._transfers, "transfers"), self._in_time(context):
                header, _ = unpack(next(chunks, b""))
                session = self.sessions.get(header.get("session"))
                _release(session, header)
                with _running(session, context):
                    return pack(self._put(session, header, chunks))
        except Exception as error:
            return pack({"error": error_to_wire(_named(error))})

    def _put(self, session: Session, header: dict[str, Any], chunks: Iterator[bytes]) -> dict[str, Any]:
        size = header.get("size")
        if type(size) is not int or size < 0:
            raise FormatError("a message's size: expected a number of bytes")
        if header.get("kind") == "executable":
            if size > self.limits.executable_bytes:
                raise RemoteLimitError(
                    f"an executable of {size} bytes; this server takes {self.limits.executable_bytes}"
                )
            with _reserved(session, size):
                whole = bytes(_joined(chunks, size))
                self.executables.add(whole, load(whole, constants={}))  # from nowhere: no file of this host
            return {}
        if header.get("kind") == "file":
            name = header.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= _NAME:
                raise ArgumentError(f"a file has a name of {_NAME} characters at most")
            with _reserved(session, size):
                whole = bytes(_joined(chunks, size))
            session.put_file(name, whole)
            return {}
        dtype, shape = read_type(header.get("dtype"), header.get("shape"))
        if math.prod(shape) * dtype.itemsize != size:
            raise FormatError(f"an upload of {dtype}{list(shape)} says that it has {size} bytes")
        with _reserved(session, size):
            array = array_of(_joined(chunks, size), dtype, shape)
        return {"handle": session.keep(Tensor(array))}

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
            with self._turn(self._transfers, "transfers"), _running(session, context), self._in_time(context):
                yield pack({"size": len(data)})
                for start in range(0, len(data), CHUNK):
                    yield bytes(data[start : start + CHUNK])
        except Exception as error:
            yield pack({"error": error_to_wire(_named(error))})

    # ---- sessions and machines ----

    def _open(self, header: dict[str, Any]) -> dict[str, Any]:
        if header.get("version") != VERSION:
            raise FormatError(f"the client speaks version {header.get('version')!r:.20}, this server {VERSION}")
        return {"session": self.sessions.open().id, "idle": self.limits.idle, "version": VERSION}

    def _close(self, session: Session, header: dict[str, Any]) -> dict[str, Any]:
        self.sessions.close(session)
        return {}

    def _machine(self, work: _Work) -> dict[str, Any]:
        header, limits = work.header, self.limits
        digest, proof = header.get("digest"), header.get("proof")
        if not isinstance(digest, bytes) or not isinstance(proof, bytes):
            raise FormatError("a machine is made of an executable's digest, and a proof that one has it")
        found = self.executables.find(digest, work.session.id, proof)
        if found is None:
            return {"missing": True}
        size, executable = found
        kernels, memory = header.get("kernels", "build"), header.get("memory", "pooled")
        if kernels not in ("build", "cached") or memory not in ("pooled", "naive"):
            raise ArgumentError('expected kernels "build" or "cached", memory_cfg "pooled" or "naive"')
        seconds = work.number("max_build_seconds")
        with _reserved(work.session, size):
            machine = VirtualMachine(
                executable,
                memory_cfg=memory,
                kernels=kernels,
                **work.budget(),
                max_build_seconds=limits.build_seconds if seconds is None else min(seconds, limits.build_seconds),
            )
        return {"handle": work.session.keep(_Machine(machine, executable), size)}

    def _function(self, work: _Work) -> dict[str, Any]:
        found = self._functions.get(work.name())
        if found is None:
            raise UnknownFunctionError(f"the server's owner has registered no function {work.name()!r}")
        arguments = [Tensor(each) if isinstance(each, np.ndarray) else each for each in work.arguments()]
        result = found(*arguments)
        if isinstance(result, (bool, int, float, np.ndarray, np.generic)):
            result = Tensor(np.array(result))
        return work.answer(result)

    # ---- bounds ----

    @contextlib.contextmanager
    def _turn(self, places: threading.BoundedSemaphore, what: str) -> Iterator[None]:
        """One of those that run at once. Raises RemoteLimitError where there are as many as may be."""
        if not places.acquire(blocking=False):
            raise RemoteLimitError(f"the server has {getattr(self.limits, what)} {what}, its most; try again later")
        try:
            yield
        finally:
            places.release()

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


class _Machine:
    """A machine of a session, and what the last stateful calls gave."""

    def __init__(self, machine: VirtualMachine, executable: Executable) -> None:
        self.machine, self.executable = machine, executable
        self.outputs: dict[str, Any] = {}


class _Work:
    """One request that works with values."""

    def __init__(
        self, session: Session, header: dict[str, Any], data: memoryview, context: Any, token: CancelToken
    ) -> None:
        self.session, self.header, self.token = session, header, token
        self.parts: list[Any] = []
        remaining = context.time_remaining()
        self._seconds = session.limits.seconds if remaining is None else min(session.limits.seconds, remaining)
        self._reader = Reader(header.get("values", []), data, self._special)
        self._inline = session.limits.inline

    # ---- what came ----

    def machine(self) -> tuple[int, _Machine]:
        handle = self.header.get("machine")
        return handle, self.session.get(handle, _Machine)  # type: ignore[return-value]

    def name(self, key: str = "function") -> str:
        name = self.header.get(key)
        if not isinstance(name, str) or len(name) > _NAME:
            raise ArgumentError(f"{key}: expected a name of {_NAME} characters at most")
        return name

    def arguments(self) -> list[Any]:
        return self._reader.take_all(self.header.get("args", []))

    def number(self, key: str) -> Any:
        """A number that is not negative, or None. Raises ArgumentError."""
        value = self.header.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0):
            raise ArgumentError(f"{key}={value!r:.40}: expected a number that is not negative, or None")
        return value

    def budget(self) -> dict[str, Any]:
        """The client's bounds, and no more than the server's."""
        limits = self.session.limits
        most = {
            "max_steps": limits.steps,
            "max_seconds": max(0.0, self._seconds),
            "max_memory": limits.memory,
            "max_depth": DEFAULT_DEPTH,
        }
        wanted = {key: self.number(key) for key in most}
        return {key: _least(wanted[key], most[key]) for key in most}

    def _special(self, node: list[Any]) -> Any:
        if node[0] == "handle" and len(node) == 2:
            return self.session.get(node[1], (Tensor, DataValue, Closure))
        raise FormatError(f"a message's values: there is no kind {node[0]!r:.40}")

    # ---- what goes ----

    def answer(self, value: Any, inside: int | None = None) -> dict[str, Any]:
        """An answer with a value. Tensors that are not small, and values of the machine's heap, stay here."""
        made: list[int] = []

        def special(each: Any) -> list[Any] | None:
            node = self._kept(each, inside)
            if node is not None and node[0] in ("remote", "value", "closure"):
                made.append(node[1])
            return node

        writer = Writer(special)
        try:
            result = writer.add(value)
            packed = {"values": writer.nodes, "result": result}
            pack(packed)  # is it too large?
        except BaseException:
            for handle in made:
                self.session.release(handle)
            raise
        self.parts = writer.parts
        return packed

    def _kept(self, value: Any, inside: int | None) -> list[Any] | None:
        if isinstance(value, Tensor):
            array = value.array
            if array.nbytes <= self._inline:
                self._inline -= array.nbytes
                return None
            handle = self.session.keep(Tensor(alone(array)))
            return ["remote", handle, DType.of(array.dtype).name, list(array.shape)]
        if isinstance(value, DataValue) and value.native is not None:
            return ["value", self.session.keep(value, inside=inside), value.tag, value.constructor, value.type_name]
        if isinstance(value, Closure):
            return ["closure", self.session.keep(value, inside=inside), value.name]
        return None


# ---- what is done ----


def _call(work: _Work) -> dict[str, Any]:
    _, each = work.machine()
    args = None if work.header.get("args") is None else work.arguments()
    return work.answer(each.machine.call(work.name(), args, **work.budget(), cancel=work.token))


def _closure(work: _Work) -> dict[str, Any]:
    _, each = work.machine()
    closure = work.session.get(work.header.get("closure"), Closure)
    return work.answer(each.machine.call(closure, work.arguments(), **work.budget(), cancel=work.token))


def _fields(work: _Work) -> dict[str, Any]:
    handle = work.header.get("value")
    return work.answer(tuple(work.session.get(handle, DataValue).fields), handle)


def _set_input(work: _Work) -> dict[str, Any]:
    handle, each = work.machine()
    name, args = work.name(), work.arguments()
    _require_function(each.machine, name)
    work.session.keep_named(handle, "input", name, size_of(args, work.session.limits.bytes))
    each.machine.set_input(name, *args)
    return {}


def _invoke_stateful(work: _Work) -> dict[str, Any]:
    handle, each = work.machine()
    name = work.name()
    _require_function(each.machine, name)
    each.outputs.pop(name, None)  # a call that fails has no result
    result = each.machine.call(name, None, **work.budget(), cancel=work.token)
    work.session.keep_named(handle, "output", name, size_of(result, work.session.limits.bytes))
    each.outputs[name] = _own(result)
    return {}


def _get_outputs(work: _Work) -> dict[str, Any]:
    _, each = work.machine()
    name, index = work.name(), work.header.get("index")
    _require_function(each.machine, name)
    if name not in each.outputs:
        raise ArgumentError(f"{name}: there is no output; call invoke_stateful({name!r}) first")
    value = each.outputs[name]
    if index is None:
        return work.answer(value)
    parts = value if isinstance(value, tuple) else (value,)
    if type(index) is not int or not 0 <= index < len(parts):
        raise ArgumentError(f"{name}: output {index!r:.40} is asked for, there are {len(parts)}")
    return work.answer(parts[index])


def _save_function(work: _Work) -> dict[str, Any]:
    handle, each = work.machine()
    name, saved, args = work.name(), work.name("saved"), work.arguments()
    _require_function(each.machine, name)
    work.session.keep_named(handle, "saved", saved, size_of(args, work.session.limits.bytes))
    each.machine.save_function(name, saved, *args)
    return {}


def _saved(work: _Work) -> dict[str, Any]:
    _, each = work.machine()
    return work.answer(each.machine[work.name("saved")]())


def _profile(work: _Work) -> dict[str, Any]:
    _, each = work.machine()
    profile = each.machine.profile(work.name(), *work.arguments())
    rows = [[row.primitive, row.node, row.calls, row.seconds] for row in profile.rows]
    return {"report": profile.json(), "rows": rows}


def _time(work: _Work) -> dict[str, Any]:
    """Measures calls, all together within the time of one."""
    _, each = work.machine()
    name, budget = work.name(), work.budget()
    args = None if work.header.get("args") is None else work.arguments()
    end = time.monotonic() + budget["max_seconds"]
    options = {key: work.number(key) for key in ("number", "repeat", "min_repeat_ms", "cooldown_interval_ms")}
    given = {key: value for key, value in options.items() if value is not None}
    if given.get("cooldown_interval_ms", 0) > _COOLDOWN:
        raise ArgumentError(f"cooldown_interval_ms={given['cooldown_interval_ms']!r}: expected {_COOLDOWN} at most")

    def run() -> None:
        budget["max_seconds"] = left = end - time.monotonic()
        if left <= 0:
            raise BudgetExceededError("the measurement takes longer than a call may", budget="seconds")
        each.machine.call(name, args, **budget, cancel=work.token)

    return {"results": list(measure(run, **given).results)}


# ---- inside ----


def _own(value: Any) -> Any:
    """The value, where no tensor of it is a part of something larger."""
    if isinstance(value, tuple):
        return tuple(map(_own, value))
    return Tensor(alone(value.array)) if isinstance(value, Tensor) else value


def _named(error: Exception) -> TreadleError:
    """What a client is told: of faults of ours, their class and text, no trace."""
    if isinstance(error, TreadleError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemoryError("the server has no memory for it")
    return ExecutionError(f"the server failed: {type(error).__name__}: {str(error)[:200]}")


def _release(session: Session, header: dict[str, Any]) -> None:
    released = header.get("release", [])
    if not isinstance(released, list) or any(type(each) is not int for each in released):
        raise FormatError("a message's release: expected a list of handles")
    for handle in released:
        session.release(handle)


def _remove(session: Session, header: dict[str, Any]) -> dict[str, Any]:
    session.remove_file(header.get("name"))
    return {}


def _require_function(machine: VirtualMachine, name: str) -> None:
    machine.get_function_params(name)  # raises UnknownFunctionError


def _least(wanted: Any, most: Any) -> Any:
    if wanted is None or most is None:
        return most if wanted is None else wanted
    return min(wanted, most)


def _joined(chunks: Iterator[bytes], size: int) -> bytearray:
    """The bytes of an upload; memory is taken as they come. Raises FormatError."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > size:
            break
    if len(data) != size:
        raise FormatError(f"an upload said that it has {size} bytes, {len(data)} came")
    return data


@contextlib.contextmanager
def _reserved(session: Session, size: int) -> Iterator[None]:
    session.reserve(size)
    try:
        yield
    finally:
        session.unreserve(size)


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
    tokens: Tokens | None,
    log: AccessLog | None,
    once: Callable[..., Any],
    streamed: Callable[..., Any],
) -> dict[str, Any]:
    """gRPC's handlers of the methods; `once` and `streamed` wrap those that answer once, or with a stream."""
    return {
        "Call": grpc.unary_unary_rpc_method_handler(once("Remote.Call", methods.Call, tokens, log)),
        "Put": grpc.stream_unary_rpc_method_handler(once("Remote.Put", methods.Put, tokens, log)),
        "Get": grpc.unary_stream_rpc_method_handler(streamed("Remote.Get", methods.Get, tokens, log)),
    }
