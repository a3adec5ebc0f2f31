"""How long a client may keep a thread of gRPC's server waiting: for its message, for the next one of a stream, and until it has
taken an answer. gRPC itself bounds none of that unless the client sets a deadline.

Messages that are compressed are inflated here, not by gRPC, which would do so for all clients at once, in any memory.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from ..formats.starting import Thread
from .errors import BadRequestError, OverloadedError, ServeError, let_go
from .http_body import MOST_INFLATED, Room, decompressed

MESSAGE_SECONDS = 15.0  # from a call's start to its message
SLOW_SECONDS = 1.0  # after which a call that waits for its message is slow: gRPC keeps what has come of it
MOST_SLOW = 16  # slow calls at once: what they have sent has no other bound
READ_SECONDS = 60.0  # in which a client must have taken an answer
IDLE_SECONDS = 60.0  # a stream that has waited for its client for so long gives way to a new one
STREAMS = 64  # at once; each holds a thread
SWEEP_SECONDS = 1.0  # between two looks at all calls
_SMALL = 4 << 10  # bytes of an answer that may lie about: a connection has no more than a few hundred of them
SCANNED = 64 << 10  # bytes of a message from which on it is looked at before it is read, and counted
# bytes of a message but for raw_input_contents: what is made of them takes up to 50 times as many
MAX_STRUCTURE = 16 << 20


# How compressed messages begin, and none of the protocol's does: it has no field of these numbers and types
_ENCODINGS = {b"\x1f\x8b": "gzip"} | {bytes((0x78, second)): "deflate" for second in (0x01, 0x5E, 0x9C, 0xDA)}


class Shares:
    """Shares of the server's threads: each takes at most half of those that no other holds, so that some are left for
    the next."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, name: str) -> None:
        """One more thread for a model. Raises OverloadedError; else `give` follows."""
        with self._lock:
            held = self._held[name]
            left = self._most - self._held.total() + held
            if held >= max(1, left // 2):
                raise OverloadedError(f"{name[:60]}: {held} calls wait or run already; try again later")
            self._held[name] += 1

    def give(self, name: str) -> None:
        """The inverse."""
        with self._lock:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]


class Watched:
    """A call that has not ended."""

    __slots__ = ("bound", "context", "is_idle", "since")

    def __init__(self, context: grpc.ServicerContext, seconds: float | None = None) -> None:
        self.context = context
        self.waits(seconds)

    def waits(self, seconds: float | None, is_idle: bool = False) -> None:
        """From now on the client may keep us waiting for so long; `is_idle`, until another stream needs the place."""
        self.since, self.bound, self.is_idle = time.monotonic(), seconds, is_idle

    def works(self) -> None:
        """It is not the client that is waited for."""
        self.waits(None)


class Calls:
    """The calls of one server that have not ended."""

    def __init__(self, room: Room, most: int) -> None:
        """`room` is for the bytes of all messages that are worked on, and of answers that are not taken yet; small ones are not
        counted. A message that is compressed stands for at most `most` bytes."""
        self._room, self._most = room, most
        self._lock = threading.Lock()  # of deciding which stream gives way
        self._silent: set[Watched] = set()  # that wait for their message
        self._calls: set[Watched] = set()
        self._streams: set[Watched] = set()
        self._is_over = threading.Event()

    def start(self) -> None:
        """Watches, in a thread of its own, until `stop`."""
        Thread(target=self._watch, name="treadle-grpc-calls", daemon=True).start()

    def stop(self) -> None:
        """Ends the watching."""
        self._is_over.set()

    def unary(
        self, handle: Callable[[bytes, grpc.ServicerContext], bytes], is_plain: bool = False
    ) -> Callable[..., bytes]:
        """A handler of streams that takes one message: so it is called before the message has come, and can be timed. With
        `is_plain`, no message is compressed."""

        def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            watched = Watched(context, MESSAGE_SECONDS)
            self._silent.add(watched)  # with no lock and no callback: these take longer than a small model
            try:
                data = next(requests, None)
            finally:
                self._silent.discard(watched)
            if data is None:
                return context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
            try:
                if len(data) <= SCANNED and (is_plain or data[:2] not in _ENCODINGS):
                    printed = handle(data, context)
                else:
                    with self._held(data, is_plain) as whole:
                        printed = handle(whole, context)
                if len(printed) > SCANNED:
                    self._keep(len(printed), context)
            except ServeError as error:
                let_go(error)
                return context.abort(getattr(grpc.StatusCode, error.grpc), str(error))
            if len(printed) > _SMALL:
                self._begin(Watched(context, READ_SECONDS), self._calls)
            return printed

        return answer

    def stream(
        self, requests: Iterator[Any], context: grpc.ServicerContext, method: Callable[..., Any]
    ) -> Iterator[Any]:
        """The answers of a method that takes a stream and gives one. Raises OverloadedError."""
        self._make_room()
        watched = Watched(context)
        self._begin(watched, self._streams)

        def noted() -> Iterator[Any]:
            watched.waits(None, is_idle=True)
            for each in requests:
                watched.works()
                with self._held(each) as whole:
                    yield whole

        for each in method(noted(), context):
            watched.waits(READ_SECONDS)
            with self._counted(each.ByteSize()):
                yield each
            watched.waits(None, is_idle=True)

    @contextlib.contextmanager
    def _held(self, data: bytes, is_plain: bool = False) -> Iterator[bytes]:
        """A message, inflated, whose bytes are counted within this. Raises OverloadedError, BadRequestError, TooLargeError."""
        encoding = None if is_plain else _ENCODINGS.get(data[:2])
        if encoding is not None:
            with self._room.held(min(self._most, MOST_INFLATED * len(data))):
                data = decompressed(data, encoding, self._most)
        with self._counted(len(data)):
            yield data

    @contextlib.contextmanager
    def _counted(self, count: int) -> Iterator[None]:
        with self._room.held(count) if count > SCANNED else contextlib.nullcontext():
            yield

    def _keep(self, count: int, context: grpc.ServicerContext) -> None:
        """Counts an answer's bytes until the call has ended. Raises OverloadedError."""
        self._room.take(count)
        if not context.add_callback(lambda: self._room.give(count)):
            self._room.give(count)

    def sweep(self, now: float) -> None:
        """Ends the calls whose clients take too long."""
        silent = list(self._silent)
        for each in (*silent, *list(self._calls), *list(self._streams)):
            if each.bound is not None and now - each.since > each.bound:
                each.context.cancel()
        slow = sorted((each for each in silent if now - each.since > SLOW_SECONDS), key=lambda each: each.since)
        for each in slow[: max(0, len(slow) - MOST_SLOW)]:
            each.context.cancel()

    def _begin(self, watched: Watched, calls: set[Watched]) -> None:
        """Watches a call until gRPC says that it has ended."""
        calls.add(watched)
        if not watched.context.add_callback(lambda: calls.discard(watched)):
            calls.discard(watched)

    def _make_room(self) -> None:
        with self._lock:
            if len(self._streams) < STREAMS:
                return
            idle = [each for each in self._streams if each.is_idle]
            oldest = min(idle, key=lambda each: each.since, default=None)
            if oldest is None or time.monotonic() - oldest.since < IDLE_SECONDS:
                raise OverloadedError(f"{STREAMS} streams are open already; try again later")
            self._streams.discard(oldest)
        oldest.context.cancel()

    def _watch(self) -> None:
        while not self._is_over.wait(SWEEP_SECONDS):
            self.sweep(time.monotonic())


def read(kind: Any, data: bytes) -> Any:
    """The message in these bytes. Raises BadRequestError."""
    if len(data) > SCANNED:
        check_structure(data)
    try:
        return kind.FromString(data)
    except Exception as error:  # protobuf's DecodeError
        raise BadRequestError(f"the message is not a {kind.DESCRIPTOR.name}: {error}") from None


def check_structure(data: bytes) -> None:
    """Raises BadRequestError for a message with more than a bound of bytes that are not those of raw tensors: protobuf would make
    many times as many of them."""
    at, structure = 0, 0
    while at < len(data):
        start = at
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            _, at = _number(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        elif kind == 2:
            size, at = _number(data, at)
            at += size
            if key >> 3 == _RAW and size >= _LARGE:
                start = at
        else:
            return  # what this cannot be, protobuf says
        structure += at - start
        if structure > MAX_STRUCTURE:
            raise BadRequestError(
                f"more than {MAX_STRUCTURE} bytes besides raw_input_contents; send the elements of tensors in there"
            )


_RAW = 7  # the field raw_input_contents, of ModelInferRequest
_LARGE = 1024  # bytes of a raw tensor that takes next to no memory besides


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The variable-length integer at a place, and where it ends."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            break
    return value, at
