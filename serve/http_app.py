"""The protocol over HTTP, as an ASGI application: inference, which must be fast; the rest is in `http_pages.py`.

A call of straight-line code that is usually quick is made by the thread that has parsed the request (`HttpApp.answer_now`),
without ASGI; anything unusual takes the general way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..vm.budgets import CancelToken
from .access import AccessLog, Tokens
from .completions import Completions
from .embeddings import MAX_BODY, Embeddings, refusal
from .errors import (
    BadRequestError,
    ClientGoneError,
    DeadlineError,
    ServeError,
    TooLargeError,
    UnavailableError,
    as_serve_error,
    let_go,
)
from .http_body import MOST_INFLATED, Body, Room, compressed, decompressed, gone
from .http_tensors import Head, is_long, make_request, print_response, read_head
from .json_pieces import SHORT, discard
from .parameters import after
from .service import Call, Request, Response, Service
from .shared_memory import Regions
from .tracing import Span, Tracing

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HEAD_LENGTH = b"inference-header-content-length"
PIECE = 1 << 20  # bytes of an answer that are sent at once, and wait until the client has taken those before
_OPEN_PAGES = ("/", "/v2/health/live", "/v2/health/ready")  # that need no token: they say nothing of the models


@dataclass(frozen=True)
class HttpLimits:
    """Limits of requests: bytes of a body and of its JSON, seconds that it may take to send it; bytes of all bodies at once,
    in bodies of the largest size."""

    max_body: int = 256 << 20
    max_json: int = 16 << 20  # a thread is busy with it for about 100 ns a byte
    body_seconds: float = 30.0
    max_bodies: int = 4


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Headers
    body: bytes


class HttpApp:
    """Answers HTTP requests of one service."""

    def __init__(
        self,
        service: Service,
        regions: Regions,
        pages: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        limits: HttpLimits | None = None,
        tokens: Tokens | None = None,
        log: AccessLog | None = None,
        tracing: Tracing | None = None,
        texts: Embeddings | None = None,
        completions: Completions | None = None,
    ) -> None:
        self._service, self._regions, self._pages = service, regions, pages
        self._limits = limits or HttpLimits()
        self._room = Room(self._limits.max_bodies * self._limits.max_body)
        self._tokens, self._log, self._tracing = tokens, log, tracing
        self._texts, self._completions = texts, completions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        if self._log is not None:
            send = self._log.watched(scope, send)
        path = scope["path"]
        if self._tokens is not None and path not in _OPEN_PAGES:
            try:
                self._tokens.check(_header(scope["headers"], b"authorization"))
            except ServeError as error:
                await self._send(send, _refusal(error))
                return
        if scope["method"] == "POST":
            for texts in (self._texts, self._completions):
                if texts is not None and texts.takes(path):
                    await self._send_texts(send, await self._of_texts(texts, scope, receive))
                    return
        name = _inferred(scope.get("raw_path") or path.encode())
        if name is None or scope["method"] != "POST":
            await self._pages(scope, receive, send)
            return
        try:
            infer = self._infer if self._tracing is None else self._traced
            answer = await infer(scope, receive, *name)
        except Exception as error:
            answer = _refusal(error)
        await self._send(send, answer)

    # ---- inference ----

    def answer_now(self, path: bytes, headers: Headers, body: bytearray, client: str) -> Answer | App | None:
        """The answer to a request that is all there, where the call takes next to no time, or an application that gives it, where
        it is long. None where there is anything unusual: then nothing has been done."""
        if self._tracing is not None:
            return None
        begun = time.perf_counter()
        try:
            found = self._short_call(path, headers, body)
        except Exception:  # it is found again
            return None
        if found is None:
            return None
        call, head = found
        try:
            response = self._service.run_now(call, True)
            if is_long(response, head):
                return self._long_answer(response, head)
            start = time.perf_counter()
            answer = Answer(200, *_joined(*print_response(response, head, self._regions)))
            response.statistics.printed(time.perf_counter() - start)
        except Exception as error:
            answer = _refusal(error)
        if self._log is not None:
            self._log.answered(client, "POST", unquote(path.decode()), begun, answer.status, len(answer.body))
        return answer

    def _short_call(self, path: bytes, headers: Headers, body: bytearray) -> tuple[Call, Head] | None:
        """The call that a request asks for, where it takes next to no time, and has a slot; then it must be made. Raises
        ServeError."""
        fields = {name: value for name, value in headers if name in _FIELDS}
        name = _inferred(path)
        if name is None or b"content-encoding" in fields or fields.get(b"accept-encoding") in _ENCODINGS:
            return None
        service, limits, view = self._service, self._limits, memoryview(body)
        if len(body) > limits.max_body or not self._room.has(len(body)) or service.is_draining:
            return None
        if self._tokens is not None:
            self._tokens.check(_header(headers, b"authorization"))
        head_length = _number(fields, _HEAD_LENGTH)
        if head_length is None:
            head_length = len(body)
        if head_length > min(limits.max_json, SHORT):
            return None
        head = read_head(view[:head_length])
        if head_length + head.binary != len(body):
            return None
        start = time.perf_counter()
        request = make_request(head, view[head_length:], *name, self._regions)
        request.reading = time.perf_counter() - start
        if b"request-timeout" in fields:
            _bound(request, fields[b"request-timeout"])
        if request.sequence is not None:
            return None
        call = service.begin(request)
        return (call, head) if service.is_short(call) else None

    def _long_answer(self, response: Response, head: Head) -> App:
        """An application that prints an answer in another thread, and gives it."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if self._log is not None:
                send = self._log.watched(scope, send)
            try:
                answer = await self._printed(response, head, {})
            except Exception as error:
                answer = _refusal(error)
            await self._send(send, answer)

        return app

    def answering(self, answer: Answer) -> App:
        """An application that gives this answer."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._send(send, answer)

        return app

    async def _send(self, send: Send, answer: Answer) -> None:
        """Sends an answer; the bytes of a large one count until they are taken."""
        body = answer.body
        if len(body) > PIECE:
            try:
                self._room.take(len(body))
            except ServeError as error:
                await self._send(send, _refusal(error))
                return
        start: Message = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
        if len(body) <= PIECE:
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        try:
            await send(start)
            for at in range(0, len(body), PIECE):
                piece, is_last = body[at : at + PIECE], at + PIECE >= len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        finally:
            self._room.give(len(body))

    async def _traced(self, scope: Scope, receive: Receive, model: str, version: str) -> Answer:
        """`_infer` within a span."""
        assert self._tracing is not None
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        span = self._tracing.start(headers, network_protocol_name="http")
        try:
            return await self._infer(scope, receive, model, version, span)
        except Exception as error:
            span.failed(error)
            raise
        finally:
            span.end()

    async def _infer(
        self, scope: Scope, receive: Receive, model: str, version: str, span: Span | None = None
    ) -> Answer:
        fields = {name: value for name, value in scope["headers"] if name in _FIELDS}
        limits = self._limits
        length, head_length = _number(fields, b"content-length"), _number(fields, _HEAD_LENGTH)
        with Body(receive, length, limits.max_body, limits.body_seconds, self._room) as body:
            head, binary = await self._read(body, length, head_length, fields)
            start = time.perf_counter()
            request = await self._request(head, binary, model, version)
            request.reading, request.span = time.perf_counter() - start, span
            if b"request-timeout" in fields:
                _bound(request, fields[b"request-timeout"])
            service = self._service
            if service.is_draining:
                raise UnavailableError("the server stops")
            call = await service.begin_soon(request) if request.sequence is not None else service.begin(request)
            try:
                if service.is_short(call):
                    response = service.run_now(call, True)
                else:
                    response = await self._elsewhere(call, receive)
            finally:
                service.end(call)
            return await self._printed(response, head, fields)

    async def _read(
        self, body: Body, length: int | None, head_length: int | None, fields: dict[bytes, bytes]
    ) -> tuple[Head, memoryview]:
        """The JSON of a request, and the bytes after it. Raises BadRequestError, TooLargeError."""
        limits = self._limits
        encoding = _encoding(fields)
        if (head_length or 0) > limits.max_json:
            raise _too_much_json(limits)
        if encoding == "identity" and head_length is not None:
            head = await _read_head(await body.first(head_length))
            declared = head_length + head.binary
            if length is not None and length != declared:
                raise BadRequestError(f"the body has {length} bytes, its tensors are declared to end at {declared}")
            body.bound(declared)
            binary = memoryview(await body.all())[head_length:]
        else:
            if encoding == "identity":
                if (length or 0) > limits.max_json:
                    raise _too_much_json(limits)
                body.bound(limits.max_json)
            data = await _decompressed(body, encoding, limits.max_body)
            if head_length is None and len(data) > limits.max_json:
                raise _too_much_json(limits)
            view = memoryview(data)
            if head_length is not None and head_length > len(view):
                raise BadRequestError(f"the body has {len(view)} bytes, its JSON is declared to have {head_length}")
            head = await _read_head(view[:head_length])
            binary = view[head_length:] if head_length is not None else view[:0]
        if len(binary) != head.binary:
            raise BadRequestError(f"{len(binary)} bytes follow the JSON, {head.binary} are declared")
        return head, binary

    async def _request(self, head: Head, binary: memoryview, model: str, version: str) -> Request:
        """`make_request`, of a long head in another thread; it is let go there."""
        if not head.is_long:
            return make_request(head, binary, model, version, self._regions)

        def make() -> Request:
            try:
                return make_request(head, binary, model, version, self._regions)
            finally:
                discard(head.values.pop("inputs"))

        return await asyncio.to_thread(make)

    async def _elsewhere(self, call: Call, receive: Receive) -> Response:
        """Has another thread make the call, and watches whether the client still waits for it."""
        service = self._service
        cancel = call.request.cancel = CancelToken()
        future, done = _handed()
        service.submit(call, done)
        try:
            return service.finish(call, await _awaited(future, cancel, call.request.deadline, receive))
        except Exception as error:
            raise service.failed(call, error) from None

    async def _send_texts(self, send: Send, answer: Answer | AsyncIterator[bytes]) -> None:
        """Sends an answer, or the events of a stream, each when the client has taken those before."""
        if isinstance(answer, Answer):
            await self._send(send, answer)
            return
        async with contextlib.aclosing(answer) as events:  # type: ignore[type-var]
            await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _of_texts(
        self, texts: Embeddings | Completions, scope: Scope, receive: Receive
    ) -> Answer | AsyncIterator[bytes]:
        """The answer to a request of texts: JSON, its error, or the events of a stream."""
        fields, limits = {name: value for name, value in scope["headers"] if name in _FIELDS}, self._limits
        limit = min(limits.max_body, MAX_BODY)
        try:
            length = _number(fields, b"content-length")
            with Body(receive, length, limit, limits.body_seconds, self._room) as body:
                data = await _decompressed(body, _encoding(fields), limit)
                timeout = _seconds(fields[b"request-timeout"]) if b"request-timeout" in fields else None
                if isinstance(texts, Completions):
                    found = await texts.answer(scope["path"], data, timeout, receive)
                else:
                    waiting = partial(_awaited, receive=receive)
                    found = await texts.answer(scope["path"], data, timeout, _handed, waiting)
                return Answer(200, *_joined(found, [])) if isinstance(found, bytes) else found
        except Exception as error:
            return _refused(*refusal(error))

    async def _printed(self, response: Response, head: Any, fields: dict[bytes, bytes]) -> Answer:
        start = time.perf_counter()
        if is_long(response, head):
            text, binary = await asyncio.to_thread(print_response, response, head, self._regions)
        else:
            text, binary = print_response(response, head, self._regions)
        response.statistics.printed(time.perf_counter() - start)
        encoding = fields.get(b"accept-encoding", b"").decode("latin-1").strip()
        if encoding not in ("gzip", "deflate"):  # a client that lists several takes what costs the least: none
            return Answer(200, *_joined(text, binary))
        headers, body = _joined(text, binary)
        if len(body) <= PIECE:
            body = compressed(body, encoding)
        else:
            body = await asyncio.to_thread(compressed, body, encoding)
        length = b"content-length", b"%d" % len(body)
        return Answer(200, [*headers[:-1], (b"content-encoding", encoding.encode()), length], body)


def _handed() -> tuple[asyncio.Future, Callable[[Any, Exception | None], None]]:
    """A future, and what gives it a result or an error from any thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future = loop.create_future()

    def set_result(outputs: Any, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(outputs)
            else:
                future.set_exception(error)

    def done(outputs: Any, error: Exception | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            loop.call_soon_threadsafe(set_result, outputs, error)

    return future, done


async def _awaited(future: asyncio.Future, cancel: CancelToken, deadline: float | None, receive: Receive) -> Any:
    """The result of a future, unless the client goes away or the deadline passes; then the work is cancelled. Raises
    ClientGoneError, DeadlineError."""
    watcher = asyncio.ensure_future(gone(receive))
    try:
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        await asyncio.wait((future, watcher), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        cancel.cancel()
        if watcher.done():
            raise ClientGoneError("the client went away")
        raise DeadlineError("the deadline passed")
    finally:
        watcher.cancel()
        future.cancel()  # what comes later is for nobody


async def _read_head(data: memoryview) -> Head:
    """`read_head`, in another thread where that takes long."""
    return read_head(data) if len(data) <= SHORT else await asyncio.to_thread(read_head, data)


def _joined(text: bytes, binary: list[Any]) -> tuple[Headers, bytes]:
    """Headers and body of an answer of JSON and tensors; the last header is the body's length."""
    if not binary:
        return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))], text
    body = b"".join((text, *[array.data for array in binary]))
    return [
        (b"content-type", b"application/octet-stream"),
        (_HEAD_LENGTH, b"%d" % len(text)),
        (b"content-length", b"%d" % len(body)),
    ], body


_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_ENCODINGS = frozenset((b"gzip", b"deflate"))
_FIELDS = frozenset((b"content-length", b"content-encoding", b"accept-encoding", b"request-timeout", _HEAD_LENGTH))


def _inferred(raw: bytes) -> tuple[str, str] | None:
    """Model and version of `/v2/models/NAME[/versions/VERSION]/infer`."""
    parts = raw.decode("latin-1").split("/")
    if len(parts) == 5 and parts[4] == "infer":
        version = ""
    elif len(parts) == 7 and parts[4] == "versions" and parts[6] == "infer":
        version = unquote(parts[5])
    else:
        return None
    return (unquote(parts[3]), version) if parts[1:3] == ["v2", "models"] else None


def _header(headers: Headers, name: bytes) -> str:
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def _encoding(fields: dict[bytes, bytes]) -> str:
    """The name of a body's compression, "identity" for none."""
    return fields.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()


async def _decompressed(body: Body, encoding: str, limit: int) -> bytes | bytearray:
    """All of a body, decompressed; in another thread if that may take longer than a millisecond."""
    data = await body.all()
    if encoding == "identity":
        return data
    most = min(limit, MOST_INFLATED * len(data))
    body.take(most)
    if most > 1 << 20:
        result = await asyncio.to_thread(decompressed, data, encoding, limit)
    else:
        result = decompressed(data, encoding, limit)
    body.take(len(result) - most)
    return result


def _too_much_json(limits: HttpLimits) -> TooLargeError:
    return TooLargeError(
        f"more than {limits.max_json} bytes of JSON; send tensors as bytes behind it (the binary tensor data extension)"
    )


def _number(fields: dict[bytes, bytes], name: bytes) -> int | None:
    text = fields.get(name)
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise BadRequestError(f"{name.decode()}: expected a number of bytes")
    return int(text)


def _bound(request: Request, text: bytes) -> None:
    """Gives a request the deadline of its header, if that is nearer. Raises BadRequestError."""
    request.deadline = min(request.deadline or 1e300, after(_seconds(text)))


def _seconds(text: bytes) -> float:
    """Those of the header. Raises BadRequestError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise BadRequestError("request-timeout: expected a number of seconds")
    return seconds


def _refusal(error: Exception) -> Answer:
    """The answer to a request that has failed."""
    found = as_serve_error(error)
    let_go(error)
    return _refused(found, json.dumps({"error": str(found)}).encode())


def _refused(found: ServeError, body: bytes) -> Answer:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if found.http == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if found.http in (413, 408):  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    return Answer(found.http, headers, body)
