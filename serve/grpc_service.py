"""The protocol over gRPC: its methods, on the same service as HTTP's.

Calls are made in the threads of gRPC's own server, each in the thread that has read the request: what must wait, waits there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from typing import Any

import grpc
import numpy as np

from ..formats.dtypes import DType
from ..formats.metering import spans
from ..vm.budgets import CancelToken
from .access import AccessLog, Tokens
from .datatypes import NAMES, dtype_of, element_type
from .descriptions import model_config, model_statistics, repository_index
from .descriptors import most_connections
from .errors import BadRequestError, NotImplementedHereError, ServeError, UnavailableError, as_serve_error, let_go
from .grpc_calls import Calls, Shares, read
from .grpc_messages import SERVICE, message
from .grpc_plain import PlainMessages
from .http_tensors import check_size, elements, read_shape
from .parameters import after, options, text, whole
from .service import Request, Response, Service
from .shared_memory import Regions
from .texts import is_texts, of_bytes, packed
from .tracing import Span, Tracing

_CONTENTS = {  # the typed field of each element type; smaller integers travel in larger ones
    DType.bool: "bool_contents",
    DType.int8: "int_contents",
    DType.int16: "int_contents",
    DType.int32: "int_contents",
    DType.int64: "int64_contents",
    DType.uint8: "uint_contents",
    DType.uint16: "uint_contents",
    DType.uint32: "uint_contents",
    DType.uint64: "uint64_contents",
    DType.float32: "fp32_contents",
    DType.float64: "fp64_contents",
    DType.string: "bytes_contents",
}


class Methods:
    """The methods of the service, by their names."""

    def __init__(
        self, service: Service, regions: Regions, tracing: Tracing | None = None, shares: Shares | None = None
    ) -> None:
        """Calls that may take long hold threads of `shares`, by the names of their models."""
        self._service, self._regions, self._tracing = service, regions, tracing
        self._shares = shares or Shares(1 << 30)
        self._plain, self._kind = PlainMessages(), message("ModelInferRequest")
        self._response, self._streamed = message("ModelInferResponse"), message("ModelStreamInferResponse")

    # ---- inference ----

    def ModelInfer(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._infer(request, context)

    def infer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        """`ModelInfer` of the bytes of messages, which are read only where they are not known."""
        known = None if self._tracing is not None else self._plain.find(data)
        if known is None:
            request = read(self._kind, data)
            answer = self._infer(request, context).SerializeToString()
            self._plain.learn(data, request)
            return answer
        start = time.perf_counter()
        found = known.request(data)
        found.reading = time.perf_counter() - start
        response = self._responded(found, context)
        start = time.perf_counter()
        answer = self._plain.printed(known, response, lambda: self._print(response, read(self._kind, data)))
        response.statistics.printed(time.perf_counter() - start)
        return answer

    def ModelStreamInfer(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        """One answer for each request, in their order; what goes wrong with one is its answer, and ends no stream."""
        cancel = _cancelled_with(context)
        kind = message("ModelInferRequest")
        for data in requests:
            identity = ""
            try:
                request = read(kind, data)
                identity = request.id
                yield self._streamed(infer_response=self._infer(request, context, cancel))
            except Exception as error:
                answer = self._streamed(error_message=str(as_serve_error(error)))
                let_go(error)
                answer.infer_response.id = identity
                yield answer

    def _infer(self, message: Any, context: grpc.ServicerContext, cancel: CancelToken | None = None) -> Any:
        if self._tracing is None:
            return self._answer(message, context, cancel, None)
        span = self._tracing.start(context.invocation_metadata() or (), network_protocol_name="grpc")
        try:
            return self._answer(message, context, cancel, span)
        except Exception as error:
            span.failed(error)
            raise
        finally:
            span.end()

    def _answer(
        self, message: Any, context: grpc.ServicerContext, cancel: CancelToken | None, span: Span | None
    ) -> Any:
        start = time.perf_counter()
        request = self._request(message)
        request.reading, request.span = time.perf_counter() - start, span
        response = self._responded(request, context, cancel)
        start = time.perf_counter()
        answer = self._print(response, message)
        response.statistics.printed(time.perf_counter() - start)
        return answer

    def _responded(
        self, request: Request, context: grpc.ServicerContext, cancel: CancelToken | None = None
    ) -> Response:
        """Calls. Raises ServeError."""
        if self._service.is_draining:
            raise UnavailableError("the server stops")

        taken = ""

        def bound(request: Request) -> None:
            nonlocal taken
            if not taken:
                name = request.model.partition(":")[0]
                self._shares.take(name)
                taken = name
            remaining = context.time_remaining()
            if remaining is not None:
                request.deadline = min(request.deadline or 1e300, after(remaining))
            request.cancel = cancel or _cancelled_with(context)

        try:
            return self._service.infer(request, bound)
        finally:
            if taken:
                self._shares.give(taken)

    def _request(self, message: Any) -> Request:
        parameters = _parameters(message.parameters)
        raw, inputs = message.raw_input_contents, {}
        places = iter(range(len(raw)))
        for each in message.inputs:
            if each.name in inputs:
                raise BadRequestError(f"input {each.name!r} comes twice")
            inputs[each.name] = self._tensor(each, raw, places)
        if next(places, None) is not None:
            raise BadRequestError(f"raw_input_contents has {len(raw)} tensors, more than the inputs that lie there")
        return Request(
            message.model_name,
            inputs,
            message.model_version,
            message.id,
            tuple(each.name for each in message.outputs),
            *options(parameters),
        )

    def _tensor(self, entry: Any, raw: Any, places: Iterator[int]) -> np.ndarray:
        name = entry.name
        dtype, shape = dtype_of(entry.datatype, name), read_shape(list(entry.shape), name)
        parameters = _parameters(entry.parameters) if entry.parameters else {}
        if "shared_memory_region" in parameters:
            place = _place(parameters)
            check_size(name, dtype, shape, place[2])
            return elements(name, self._regions.read(*place).data, dtype, shape)
        if entry.HasField("contents"):
            return _typed(name, entry.contents, dtype, shape)
        number = next(places, None)
        if number is None:
            raise BadRequestError(f"input {name!r}: it has no contents")
        data = raw[number]
        check_size(name, dtype, shape, len(data))
        return elements(name, memoryview(data), dtype, shape)

    def _print(self, response: Response, request: Any) -> Any:
        answer = self._response(model_name=response.model, model_version=response.version, id=response.id)
        wanted = {each.name: each for each in request.outputs}
        for name, array in response.outputs.items():
            output = answer.outputs.add(name=name, datatype=NAMES[element_type(array)], shape=array.shape)
            if is_texts(array):
                array = np.frombuffer(packed(array), np.uint8)
            parameters = _parameters(wanted[name].parameters) if name in wanted and wanted[name].parameters else {}
            if parameters.get("classification"):
                raise NotImplementedHereError("outputs cannot be classified here: take the scores")
            if "shared_memory_region" in parameters:
                region, offset, size = _place(parameters)
                self._regions.write(region, offset, size, array)
                output.parameters["shared_memory_region"].string_param = region
                output.parameters["shared_memory_byte_size"].int64_param = array.nbytes
                output.parameters["shared_memory_offset"].int64_param = offset
            else:
                answer.raw_output_contents.append(array.tobytes())
        return answer

    # ---- health and metadata ----

    def ServerLive(self, *_: Any) -> Any:
        return message("ServerLiveResponse")(live=self._service.is_live)

    def ServerReady(self, *_: Any) -> Any:
        return message("ServerReadyResponse")(ready=self._service.is_ready)

    def ModelReady(self, request: Any, _: Any) -> Any:
        return message("ModelReadyResponse")(ready=self._service.is_model_ready(request.name, request.version))

    def ServerMetadata(self, *_: Any) -> Any:
        return message("ServerMetadataResponse")(**self._service.server_metadata())

    def ModelMetadata(self, request: Any, _: Any) -> Any:
        found = self._service.model_metadata(request.name, request.version)
        del found["properties"]  # for which Triton's message has no field; that of the configuration has
        return message("ModelMetadataResponse")(**found)

    def ModelConfig(self, request: Any, _: Any) -> Any:
        found = self._service.repository.endpoint(request.name, request.version)
        return message("ModelConfigResponse")(config=model_config(*found))

    def ModelStatistics(self, request: Any, _: Any) -> Any:
        rows = model_statistics(self._service.repository, request.name, request.version)
        for row in rows:
            del row["batching"]  # likewise
        return message("ModelStatisticsResponse")(model_stats=rows)

    # ---- the repository ----

    def RepositoryIndex(self, request: Any, _: Any) -> Any:
        return message("RepositoryIndexResponse")(models=repository_index(self._service.repository, request.ready))

    def RepositoryModelLoad(self, request: Any, _: Any) -> Any:
        repository = self._service.repository
        repository.load(request.model_name, repository.config_of(_parameters(request.parameters)))
        return message("RepositoryModelLoadResponse")()

    def RepositoryModelUnload(self, request: Any, _: Any) -> Any:
        self._service.repository.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    # ---- shared memory ----

    def SystemSharedMemoryStatus(self, request: Any, _: Any) -> Any:
        answer = message("SystemSharedMemoryStatusResponse")()
        for each in self._regions.status(request.name):
            status = answer.regions[each.name]
            status.name, status.key, status.offset, status.byte_size = each.name, each.key, each.offset, each.size
        return answer

    def SystemSharedMemoryRegister(self, request: Any, _: Any) -> Any:
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return message("SystemSharedMemoryRegisterResponse")()

    def SystemSharedMemoryUnregister(self, request: Any, _: Any) -> Any:
        self._regions.unregister(request.name)
        return message("SystemSharedMemoryUnregisterResponse")()

    def CudaSharedMemoryUnregister(self, *_: Any) -> Any:  # of what cannot have been registered
        return message("CudaSharedMemoryUnregisterResponse")()

    def CudaSharedMemoryStatus(self, *_: Any) -> Any:
        return message("CudaSharedMemoryStatusResponse")()


# What Triton's clients may ask for and a processor has not, or this server does not set while it runs
_REFUSED = ("CudaSharedMemoryRegister", "TraceSetting", "LogSettings")
_NAMES = [name for name in vars(Methods) if name[0].isupper()]
_OPEN = ("ServerLive", "ServerReady")  # that need no token


def make_server(
    methods: Methods,
    *,
    max_body: int,
    threads: int,
    calls: Calls,
    tokens: Tokens | None = None,
    log: AccessLog | None = None,
    remote: Any = None,
) -> grpc.Server:
    """gRPC's server with these methods; no port is open yet. What more than `threads` clients ask at once is refused."""
    handlers = {}
    for name in _NAMES:
        if name == "ModelStreamInfer":
            handlers[name] = grpc.stream_stream_rpc_method_handler(
                _streamed(name, partial(calls.stream, method=methods.ModelStreamInfer), tokens, log),
                response_serializer=lambda answer: answer.SerializeToString(),
            )
        else:
            method = methods.infer if name == "ModelInfer" else _reading(name, getattr(methods, name))
            handler = _answered(name, method, None if name in _OPEN else tokens, log)
            handlers[name] = grpc.stream_unary_rpc_method_handler(calls.unary(handler))
    for name in _REFUSED:
        handlers[name] = grpc.stream_unary_rpc_method_handler(calls.unary(_answered(name, _refuse(name), tokens, log)))
    options = [
        ("grpc.max_receive_message_length", max_body),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.per_message_decompression", 0),  # it has no bound of all messages; see grpc_calls.py
        ("grpc.max_concurrent_streams", threads),
        ("grpc.max_allowed_incoming_connections", most_connections() // 2),
        ("grpc.server_handshake_timeout_ms", 15_000),
        ("grpc.max_connection_idle_ms", 60_000),  # a connection of which nothing is asked; clients open another
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # clients may ask whether the connection still is
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
    server = grpc.server(
        futures.ThreadPoolExecutor(threads, "treadle-grpc"), options=options, maximum_concurrent_rpcs=threads
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if remote is not None:
        from ..rpc.server.service import remote_handlers

        handlers = remote_handlers(remote, calls, tokens, log, _answered, _streamed)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(remote.name, handlers),))
    return server


def _refuse(name: str) -> Callable[..., bytes]:
    def refuse(*_: Any) -> bytes:
        raise NotImplementedHereError(f"{name}: this server has no such thing")

    return refuse


def _reading(name: str, method: Callable[..., Any]) -> Callable[[bytes, grpc.ServicerContext], Any]:
    """A method that takes and gives the bytes of its messages."""
    kind = message(f"{name}Request")
    return lambda data, context: method(read(kind, data), context).SerializeToString()


def _answered(
    name: str, method: Callable[..., Any], tokens: Tokens | None, log: AccessLog | None
) -> Callable[[Any, grpc.ServicerContext], Any]:
    """A method whose errors are gRPC's."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        start, code = time.perf_counter(), "OK"
        try:
            _check_token(tokens, context)
            return method(request, context)
        except Exception as error:
            found = as_serve_error(error)
            code = found.grpc
            let_go(error)
            context.abort(getattr(grpc.StatusCode, code), str(found))
        finally:
            _write(log, name, context, code, start)

    return answer


def _streamed(
    name: str, method: Callable[..., Iterator[Any]], tokens: Tokens | None, log: AccessLog | None
) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
    def answer(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        start = time.perf_counter()
        code = "CANCELLED"  # unless it comes to its end
        try:
            _check_token(tokens, context)
            yield from method(requests, context)
            code = "OK"
        except ServeError as error:
            code = error.grpc
            let_go(error)
            context.abort(getattr(grpc.StatusCode, code), str(error))
        finally:
            _write(log, name, context, code, start)

    return answer


def _write(log: AccessLog | None, name: str, context: grpc.ServicerContext, code: str, start: float) -> None:
    """The line of a call in the access log, if there is one; `start` is by `time.perf_counter`."""
    if log is not None:
        seconds = time.perf_counter() - start
        log.write(transport="grpc", client=context.peer(), method=name, status=code, seconds=seconds)


def _cancelled_with(context: grpc.ServicerContext) -> CancelToken:
    """A token for the calls that end when the client goes away."""
    cancel = CancelToken()
    if not context.add_callback(cancel.cancel):
        cancel.cancel()  # it has gone already
    return cancel


def _check_token(tokens: Tokens | None, context: grpc.ServicerContext) -> None:
    if tokens is not None:
        found = dict(context.invocation_metadata()).get("authorization", "")
        tokens.check(found if isinstance(found, str) else "")


def _parameters(entries: Any) -> dict[str, Any]:
    """A map of parameters as Python's values."""
    values = {}
    for name, entry in entries.items():
        kind = entry.WhichOneof("parameter_choice")
        values[name] = None if kind is None else getattr(entry, kind)
    return values


def _place(parameters: dict[str, Any]) -> tuple[str, int, int]:
    """Region, offset and size of a tensor in shared memory. Raises BadRequestError."""
    return (
        text(parameters["shared_memory_region"], "shared_memory_region"),
        whole(parameters.get("shared_memory_offset", 0), "shared_memory_offset"),
        whole(parameters.get("shared_memory_byte_size", 0), "shared_memory_byte_size"),
    )


def _typed(name: str, contents: Any, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    field = _CONTENTS.get(dtype)
    if field is None:
        raise BadRequestError(f"input {name!r}: {NAMES[dtype]} is sent in raw_input_contents")
    values = getattr(contents, field)
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if len(values) != count:
        raise BadRequestError(f"input {name!r}: {list(shape)} has {count} elements, {field} has {len(values)}")
    if dtype is DType.string:
        return of_bytes(name, values, shape)
    got = np.empty(count, np.dtype(f"{dtype.numpy.kind}8") if dtype.is_integer else dtype.numpy)
    for piece in spans(count):  # other clients' threads wait for each
        got[piece] = values[piece]
    if dtype.is_integer and count:
        least, greatest = dtype.bounds
        if int(got.min()) < least or int(got.max()) > greatest:
            raise BadRequestError(f"input {name!r}: {NAMES[dtype]} holds {least} to {greatest}")
    return got.astype(dtype.numpy).reshape(shape)


__all__ = ["Methods", "ServeError", "make_server"]
