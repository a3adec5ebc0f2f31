"""Clients over gRPC that mean harm: none holds the others up, and each gets an error that has a name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
import grpc
from treadle.rpc.wire import SERVICE as SERVICE_OF_REMOTE
from treadle.serve import grpc_calls
from treadle.serve.errors import BadRequestError
from treadle.serve.grpc_messages import message

X = np.ones((2, 8), np.float32)
SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "MESSAGE_SECONDS": 0.5,
        "READ_SECONDS": 0.5,
        "IDLE_SECONDS": 0.2,
        "SWEEP_SECONDS": 0.05,
    }.items():
        monkeypatch.setattr(grpc_calls, name, value)


@pytest.fixture
def connect() -> Iterator[Callable[..., Any]]:
    channels = []

    def begin(server: Any, **options: int) -> Any:
        settings = [
            ("grpc.use_local_subchannel_pool", 1),
            *((f"grpc.{name}", value) for name, value in options.items()),
        ]
        channels.append(grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", settings))
        return channels[-1]

    yield begin
    for each in channels:
        each.close()


def request(x: np.ndarray = X, **fields: Any) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    made = message("ModelInferRequest")(model_name="rows", inputs=[tensor], raw_input_contents=[x.tobytes()], **fields)
    return made.SerializeToString()


def is_live(channel: Any) -> bool:
    return channel.unary_unary(SERVICE + "ServerLive")(b"", timeout=20) == b"\x08\x01"


def never(count: int = 0) -> Iterator[bytes]:
    """So many requests, and then none for a long time."""
    for _ in range(count):
        yield request()
    threading.Event().wait(120)


def eventually(ask: Callable[[], Any]) -> Any:
    """The answer, once the server has room."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return ask()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            time.sleep(0.1)
    raise AssertionError("the server has no room")


def code(call: Any) -> Any:
    return call.exception(timeout=30).code()


def test_calls_without_a_message_end(
    folder: Path, start: Callable[..., Any], bounds: None, connect: Callable[..., Any]
):
    server = start()
    calls = [connect(server).stream_unary(SERVICE + "ModelInfer").future(never()) for _ in range(4) for _ in range(20)]
    assert is_live(connect(server))
    assert {code(each) for each in calls} == {grpc.StatusCode.CANCELLED}


def test_streams_that_say_nothing_give_way(
    folder: Path, start: Callable[..., Any], bounds: None, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(grpc_calls, "STREAMS", 3)
    server = start()
    channel = connect(server)
    open_stream = channel.stream_stream(SERVICE + "ModelStreamInfer")
    idle = [open_stream(never(1)) for _ in range(3)]
    for each in idle:
        next(each)
    with pytest.raises(grpc.RpcError) as raised:
        next(open_stream(never(1)))
    assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    time.sleep(0.5)
    assert next(open_stream(never(1)))
    assert is_live(channel)


def test_answers_that_nobody_takes_end(
    folder: Path, start: Callable[..., Any], bounds: None, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(grpc_calls, "STREAMS", 1)
    server = start()
    large = request(np.zeros((400_000, 8), np.float32))

    def many() -> Iterator[bytes]:
        for _ in range(50):
            yield large

    unread = connect(server, max_receive_message_length=-1).stream_stream(SERVICE + "ModelStreamInfer")(many())
    open_stream = connect(server).stream_stream(SERVICE + "ModelStreamInfer")
    assert eventually(lambda: next(open_stream(iter([request()]))))
    unread.cancel()


def test_bytes_that_are_no_message_are_an_invalid_argument(folder: Path, start: Callable[..., Any], connect: Any):
    channel = connect(start())
    with pytest.raises(grpc.RpcError, match="the message is not a ModelInferRequest") as raised:
        channel.unary_unary(SERVICE + "ModelInfer")(b"\xff" * 10, timeout=20)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    answer = next(channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([b"\xff" * 10]), timeout=20))
    assert b"not a ModelInferRequest" in answer


def test_a_call_that_ends_without_a_message_is_an_invalid_argument(folder: Path, start: Any, connect: Any):
    with pytest.raises(grpc.RpcError, match="no message"):
        connect(start()).stream_unary(SERVICE + "ModelInfer")(iter(()), timeout=20)


@pytest.mark.parametrize("part", [b"\x2a\x00", b"\x3a\x00", b"\x2a\x02\x22\x00"], ids=["inputs", "raw", "parameters"])
def test_a_message_of_very_many_parts_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch, part: bytes):
    monkeypatch.setattr(grpc_calls, "MAX_STRUCTURE", 100_000)
    with pytest.raises(BadRequestError, match="besides raw_input_contents"):
        grpc_calls.read(message("ModelInferRequest"), part * 100_000)
    large = request(np.zeros((100_000, 8), np.float32))
    assert grpc_calls.read(message("ModelInferRequest"), large).model_name == "rows"


def test_names_in_errors_fit_gRPC_s_headers(folder: Path, start: Callable[..., Any], connect: Callable[..., Any]):
    with pytest.raises(grpc.RpcError) as raised:
        connect(start()).unary_unary(SERVICE + "ModelInfer")(request(model_version="1" * 100_000), timeout=20)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("seconds", [1e-6, 1e9])
def test_deadlines_may_be_very_near_or_far(folder: Path, start: Callable[..., Any], connect: Any, seconds: float):
    call = connect(start()).unary_unary(SERVICE + "ModelInfer").future(request(), timeout=seconds)
    assert call.exception(30) is None or (call.code(), seconds) == (grpc.StatusCode.DEADLINE_EXCEEDED, 1e-6)


def test_a_timeout_of_any_size_is_taken(folder: Path, start: Callable[..., Any], connect: Callable[..., Any]):
    call = connect(start()).unary_unary(SERVICE + "ModelInfer")
    made = message("ModelInferRequest").FromString(request())
    made.parameters["sequence_id"].int64_param = 1
    made.parameters["sequence_start"].bool_param = True
    made.parameters["timeout"].int64_param = (1 << 62) - 1
    assert call(made.SerializeToString(), timeout=20)
    assert call(made.SerializeToString(), timeout=20)


def test_a_server_ends_though_streams_are_open(folder: Path, start: Callable[..., Any], connect: Callable[..., Any]):
    server = start(drain=1.0)
    stream = connect(server).stream_stream(SERVICE + "ModelStreamInfer")(never(1))
    next(stream)
    call = connect(server).stream_unary(SERVICE + "ModelInfer").future(never())
    begin = time.monotonic()
    server.stop()
    assert call.exception(timeout=30) is not None
    with pytest.raises(grpc.RpcError):
        next(stream)
    assert time.monotonic() - begin < 25


def test_the_bytes_of_all_messages_are_bounded(start, folder, connect):
    from treadle.serve.http_app import HttpLimits

    server = start(limits=HttpLimits(max_body=1 << 20, max_bodies=1))
    channel, large = connect(server), np.ones((20_000, 8), np.float32)
    ask = channel.unary_unary(SERVICE + "ModelInfer")
    with server._calls._room.held(800_000):  # as if another call held them
        with pytest.raises(grpc.RpcError) as raised:
            ask(request(large), timeout=20)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "do not fit: try again later" in raised.value.details()
        stream = channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([request(large)]), timeout=20)
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ask(request(), timeout=20)  # a small one is answered
    for _ in range(10):  # the room of each is given back
        assert ask(request(large), timeout=20)
        assert list(channel.stream_stream(SERVICE + "ModelStreamInfer")(iter([request(large)] * 3), timeout=20))
    assert server._calls._room._left == 1 << 20


@pytest.mark.usefixtures("bounds")
def test_a_remote_call_does_not_wait_for_its_message_for_ever(start, folder, connect):
    from treadle.rpc.server.sessions import RemoteLimits

    server = start(remote=RemoteLimits())
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(20)
        yield from ()

    call = connect(server).stream_unary("/" + SERVICE_OF_REMOTE + "/Call").future(never())
    try:
        with pytest.raises(grpc.RpcError) as raised:
            call.result(10)
        assert raised.value.code() is grpc.StatusCode.CANCELLED
    finally:
        over.set()
