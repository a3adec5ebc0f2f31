"""Enemies of the whole process: what would take all its descriptors, threads or memory, or keep it from ending."""

from __future__ import annotations

import contextlib
import gc
import gzip
import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models
from .test_http import Client, binary

pytest.importorskip("uvicorn")
pytest.importorskip("grpc")
import grpc
from treadle.serve import descriptors, grpc_calls, http_app, http_protocol, http_tensors
from treadle.serve import repository as repositories
from treadle.serve.config import ModelConfig
from treadle.serve.errors import OverloadedError
from treadle.serve.grpc_calls import Shares
from treadle.serve.grpc_messages import message
from treadle.serve.http_app import HttpLimits
from treadle.serve.http_body import Room
from treadle.serve.sequences import Sequences
from treadle.serve.shared_memory import Regions

X = np.ones((2, 8), np.float32)
INFER = "/inference.GRPCInferenceService/ModelInfer"


def connected(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 20) for _ in range(count)]


def request(model: str = "rows", x: np.ndarray = X) -> bytes:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    return message("ModelInferRequest")(
        model_name=model, inputs=[tensor], raw_input_contents=[x.tobytes()]
    ).SerializeToString()


@contextlib.contextmanager
def channel_to(server: Any) -> Iterator[Any]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options) as channel:
        yield channel


def code(call: Any) -> Any:
    error = call.exception(timeout=30)
    return None if error is None else error.code()


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- descriptors ----


def test_clients_of_both_transports_leave_descriptors_to_the_process(monkeypatch: pytest.MonkeyPatch):
    for files in (64, 256, 1024, 20_000):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        http_most = descriptors.most_connections()
        assert http_most * 5 // 4 + http_most // 2 + descriptors.most_regions() + 24 <= files


def served(folder: Path, *options: str, files: int) -> tuple[subprocess.Popen, dict[str, int]]:
    """A server in a process of its own with a limit of descriptors, and its ports."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, in the tests' own children too

    command = [sys.executable, "-m", "treadle", "serve", str(folder), "--http-port", "0", "--grpc-port", "0", *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=limit, cwd=folder)
    assert child.stderr is not None
    ports: dict[str, int] = {}
    while len(ports) < 2:
        line = child.stderr.readline()
        assert line, "the server has ended"
        if found := re.search(r"(HTTP|gRPC) on \S+:(\d+)", line):
            ports[found[1]] = int(found[2])
    return child, ports


def test_idle_clients_and_few_descriptors(folder: Path):
    """With 64 descriptors: 60 clients of each transport say nothing, and a file is replaced."""
    child, ports = served(folder, files=64)
    assert child.stderr is not None
    try:
        idle = connected(ports["gRPC"], 60) + connected(ports["HTTP"], 60)
        models.mixed().export_library(folder / "other.trdl")
        lines = iter(child.stderr.readline, "")
        assert any("loaded other" in line for line in lines)
        for each in idle:
            each.close()
        until(lambda: _status(ports["HTTP"]) == 200)
        child.send_signal(signal.SIGHUP)  # a terminal that closes: it drains, and ends
        assert child.wait(30) == 0
        assert "Finished server process" in child.stderr.read()
    finally:
        child.kill()
        child.stderr.close()


def _status(port: int) -> int:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return Client(port).infer("rows", X)[0]
    return 0


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, str]:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", "key.pem", "-out", "certificate.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *subject]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    return {"certificate": str(tmp_path / "certificate.pem"), "key": str(tmp_path / "key.pem")}


def test_handshakes_that_are_silent_count_and_end(
    folder: Path, start: Callable[..., Any], tls: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(descriptors, "MAX_CONNECTIONS", 8)
    server = start(**tls)
    trusted = ssl.create_default_context(cafile=tls["certificate"])

    def status() -> int:
        connection = http.client.HTTPSConnection("localhost", server.http_port, context=trusted, timeout=20)
        try:
            body, length = binary(X, parameters={"binary_data_output": True})
            connection.request("POST", "/v2/models/rows/infer", body, {"Inference-Header-Content-Length": length})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    assert status() == 200
    silent = connected(server.http_port, 40)
    for each in silent[:3]:
        each.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
    begin = time.monotonic()
    until(lambda: status() == 0)  # there are as many as may be
    until(lambda: status() == 200)
    assert time.monotonic() - begin < 15
    for each in silent:
        with contextlib.suppress(ConnectionError):
            assert each.recv(1) == b""
        each.close()


# ---- messages ----


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_bounded_together(folder: Path, start: Callable[..., Any], compression: Any):
    server = start(limits=HttpLimits(max_body=1 << 20, max_bodies=2))
    with channel_to(server) as channel:
        ask = channel.unary_unary(INFER)
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        zeros = np.zeros((30_000, 8), np.float32)
        assert ask(request(x=zeros), timeout=20, compression=compression)
        (answer,) = stream(iter([request(x=zeros)]), timeout=20, compression=compression)
        assert not message("ModelStreamInferResponse").FromString(answer).error_message
        bomb = ask.future(bytes(100 << 20), timeout=20, compression=compression)
        assert code(bomb) is grpc.StatusCode.INVALID_ARGUMENT
        assert "more than 1048576 bytes" in bomb.details()
        with server._calls._room.held(3 << 19):
            assert code(ask.future(bytes(1 << 19), timeout=20, compression=compression)) is (
                grpc.StatusCode.RESOURCE_EXHAUSTED
            )
        until(lambda: server._calls._room._left == 2 << 20)


@pytest.mark.parametrize("data", [b"\x1f\x8b", b"\x1f\x8b" * 50_000, b"\x78\x9c" * 10])
def test_what_begins_as_if_it_were_compressed(folder: Path, start: Callable[..., Any], data: bytes):
    with channel_to(start()) as channel:
        assert code(channel.unary_unary(INFER).future(data, timeout=20)) is grpc.StatusCode.INVALID_ARGUMENT


def test_messages_that_come_slowly_give_way_to_others(
    folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    for name, value in {"SLOW_SECONDS": 0.2, "MOST_SLOW": 2, "SWEEP_SECONDS": 0.05}.items():
        monkeypatch.setattr(grpc_calls, name, value)
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(30)
        yield from ()

    with channel_to(start()) as channel:
        try:
            calls = []
            for _ in range(5):
                calls.append(channel.stream_unary(INFER).future(never()))
                time.sleep(0.1)
            assert {code(each) for each in calls[:3]} == {grpc.StatusCode.CANCELLED}
            assert not any(each.done() for each in calls[3:])
        finally:
            over.set()


def test_answers_that_are_not_taken_count(folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    server = start(limits=HttpLimits(max_body=8 << 20, max_bodies=2))
    x = np.zeros((200_000, 8), np.float32)  # 6.4 MB, and 3.2 MB come back
    body, length = binary(x, parameters={"binary_data_output": True})
    head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    unread = []
    for _ in range(5):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.http_port))
        connection.sendall(f"{head}Inference-Header-Content-Length: {length}\r\n\r\n".encode() + body)
        unread.append(connection)
        time.sleep(0.1)
    statuses = [each.recv(12) for each in unread]
    assert statuses[0] == b"HTTP/1.1 200"
    assert statuses[-1] == b"HTTP/1.1 429"
    for each in unread:
        each.close()
    headers = {"Inference_Header_Content_Length": length}
    until(lambda: Client(server.http_port).ask("POST", "/v2/models/rows/infer", body, **headers)[0] == 200)


def test_large_answers_are_whole(folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_app, "PIECE", 1000)
    server = start()
    x = np.random.default_rng(0).standard_normal((10_000, 8)).astype(np.float32)
    body, length = binary(x, parameters={"binary_data_output": True})
    for encoding in ("identity", "gzip"):
        client = Client(server.http_port)
        headers = {"Inference_Header_Content_Length": length, "Accept_Encoding": encoding}
        status, content, fields = client.ask("POST", "/v2/models/rows/infer", body, **headers)
        assert status == 200
        if encoding == "gzip":
            content = gzip.decompress(content)
        result = np.frombuffer(content[int(fields["inference-header-content-length"]) :], np.float32)
        np.testing.assert_allclose(result.reshape(-1, 4), models.expected(x), rtol=1e-4, atol=1e-5)
        assert client.infer("rows", X)[0] == 200  # the connection goes on


def test_an_answer_that_is_too_much_for_json_is_refused(
    folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_tensors, "MAX_LISTED", 100)
    client = Client(start().http_port)
    status, answer, _ = client.infer("rows", np.ones((26, 8), np.float32))
    assert status == 413
    assert "ask for bytes" in answer["error"]
    assert Client(client.connection.port).infer("rows", np.ones((25, 8), np.float32))[0] == 200


def test_tensors_in_shared_memory_are_bounded_together():
    room = Room(1000)
    regions = Regions(True, room)
    memory = SharedMemory(create=True, size=4096)
    try:
        regions.register("r", memory.name, 0, 4096)
        held = regions.read("r", 0, 900).data
        with pytest.raises(OverloadedError, match="do not fit"):
            regions.read("r", 0, 200)
        del held
        assert len(regions.read("r", 0, 1000)) == 1000
        with pytest.raises(OverloadedError):
            regions.read("r", 0, 4096)
        assert room._left == 1000
    finally:
        regions.close()
        memory.close()
        memory.unlink()


# ---- threads ----


def test_each_holds_at_most_half_of_what_others_leave():
    shares, held = Shares(100), {}
    for name in "abcdefgh":
        with contextlib.suppress(OverloadedError):
            while True:
                shares.take(name)
                held[name] = held.get(name, 0) + 1
    assert list(held.values()) == [50, 25, 12, 6, 3, 2, 1, 1]
    for _ in range(50):
        shares.give("a")
    for _ in range(25):
        shares.take("z")


def test_models_that_loop_for_ever_leave_threads_to_others(
    folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    from treadle.serve import server as servers

    monkeypatch.setattr(servers, "_GRPC_THREADS", grpc_calls.STREAMS + 16)
    models.folder(folder, **{f"slow{number}": models.slow(1 << 40) for number in range(4)})
    server = start()
    one = np.ones(1, np.float32)
    with channel_to(server) as channel:
        ask = channel.unary_unary(INFER)
        calls = [ask.future(request(f"slow{number}", one), timeout=60) for number in range(4) for _ in range(20)]
        until(lambda: sum(each.done() for each in calls) >= 60)
        for _ in range(5):
            assert ask(request(), timeout=20)
        assert {code(each) for each in calls if each.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert sum(not each.done() for each in calls) >= 4
        for each in calls:
            each.cancel()


def test_who_has_models_loaded_again_and_again_holds_nobody_up(
    folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(repositories, "_MOST_ASKING", 3)
    server = start(poll=60.0)
    with server.repository._loading, channel_to(server) as channel:
        load = channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        asked = message("RepositoryModelLoadRequest")(model_name="rows").SerializeToString()
        storm = [load.future(asked, timeout=20) for _ in range(30)]
        until(lambda: sum(each.done() for each in storm) >= 27)
        assert {code(each) for each in storm if each.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        client = Client(server.http_port)
        assert client.ask("POST", "/v2/repository/models/rows/load", {})[0] == 429
        assert client.infer("rows", X)[0] == 200
    until(lambda: Client(server.http_port).ask("POST", "/v2/repository/models/rows/load", {})[0] == 200)


def test_a_request_of_a_sequence_takes_as_long_among_very_many():
    def seconds(others: int) -> float:
        sequences = Sequences(ModelConfig(max_sequences=1 << 20))
        for number in range(others + 1):
            sequences.find(number + 1, True)
        start = time.thread_time()
        for _ in range(300):
            sequences.find(1, False)
        return time.thread_time() - start

    assert min(seconds(20_000) for _ in range(3)) < 20 * min(seconds(10) for _ in range(3))


# ---- the end ----


def test_a_server_that_loads_ends_when_it_is_told_to(folder: Path, monkeypatch: pytest.MonkeyPatch):
    from treadle.serve.server import Server, ServerConfig

    begun, over = threading.Event(), threading.Event()
    server = Server(ServerConfig(folder, http_port=0, grpc_port=0))

    def load() -> None:
        begun.set()
        over.wait(60)

    monkeypatch.setattr(server.repository, "refresh", load)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert begun.wait(20)
    server.stop()
    thread.join(20)
    over.set()
    assert not thread.is_alive()


def test_what_a_folder_fails_with_is_raised_at_the_start(folder: Path):
    from treadle.errors import FileError
    from treadle.serve.server import Server, ServerConfig

    server = Server(ServerConfig(folder, http_port=0, grpc_port=0))
    for each in folder.iterdir():
        each.unlink()
    os.rmdir(folder)
    with pytest.raises(FileError):
        server.run()


# ---- one request that two would read differently ----

BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [1] * 8}]}).encode()
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
HIDDEN = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: 0\r\nTransfer-Encoding: chunked", CHUNKED),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 4", CHUNKED),
        (b"Content-Length: %d\r\nContent-Length: 4" % len(BODY), BODY),
        (b"Content-Length: %d, %d" % (len(BODY), len(BODY)), BODY),
        (b"Content-Length: +%d" % len(BODY), BODY),
        (b"Content-Length : %d" % len(BODY), BODY),
        (b"Content-Length: 99999999999999999999999", BODY),
        (b"Transfer-Encoding: identity", BODY),
        (b"Transfer-Encoding: xchunked", CHUNKED),
        (b"Transfer-Encoding: chunked, gzip", CHUNKED),
        (b"Transfer-Encoding: \x0bchunked", CHUNKED),
        (b"Transfer-Encoding:\r\n chunked", CHUNKED),
        (b"X: a\rTransfer-Encoding: chunked", CHUNKED),
        (b"X: a\nTransfer-Encoding: chunked", CHUNKED),
        (b"X: a\0b", BODY),
        (b"Transfer-Encoding: chunked", b"-1\r\n" + BODY),
        (b"Transfer-Encoding: chunked", b"ffffffffffffffffff\r\n" + BODY),
        (b"Transfer-Encoding: chunked", b"%x\n%s\n0\n\n" % (len(BODY), BODY)),
        (b"Transfer-Encoding: chunked", b"%x\r\n%sX\r\n0\r\n\r\n" % (len(BODY), BODY)),
    ],
)
def test_a_body_whose_end_is_not_sure_ends_the_connection(
    folder: Path, start: Callable[..., Any], headers: bytes, body: bytes
):
    (connection,) = connected(start().http_port, 1)
    with connection, contextlib.suppress(ConnectionError):
        connection.sendall(
            b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n\r\n" + body + HIDDEN
        )
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
        assert b"HTTP/1.1 200" not in answer
        assert answer.count(b"HTTP/1.1") <= 1


def test_a_body_that_nobody_reads_is_no_request(folder: Path, start: Callable[..., Any]):
    server = start()
    for head in (b"POST /v2/models/nope/infer", b"POST /v2", b"GET /v2"):
        (connection,) = connected(server.http_port, 1)
        with connection:
            connection.sendall(head + b" HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN)
            time.sleep(0.2)
            assert connection.recv(1 << 16).count(b"HTTP/1.1") == 1


# ---- errors ----

LARGE = 4 << 20  # bytes of a request


def _grpc_failures(server: Any) -> Iterator[Callable[[], Any]]:
    x = np.zeros((LARGE // 32, 8), np.float32)
    data = request(x=x)
    wrong = data[:-1] + b"\x01\x01"
    with channel_to(server) as channel:
        ask = channel.unary_unary(INFER)
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        yield lambda: ask.future(request("nope", x), timeout=20).exception()
        yield lambda: ask.future(wrong, timeout=20).exception()
        yield lambda: ask.future(request("slow", x.reshape(-1)[:1]), timeout=0.05).exception()
        yield lambda: ask.future(request("deep", x), timeout=20).exception()
        yield lambda: list(stream(iter([request("nope", x)]), timeout=20))


def _http_failures(server: Any) -> Iterator[Callable[[], Any]]:
    client = Client(server.http_port)
    x = np.zeros((LARGE // 32, 8), np.float32)
    body, length = binary(x)

    def ask(model: str, **headers: str) -> Callable[[], Any]:
        headers = {"Inference_Header_Content_Length": length, **headers}
        return lambda: client.ask("POST", f"/v2/models/{model}/infer", body, **headers)

    yield ask("nope")
    yield ask("rows", Accept_Encoding="gzip", Request_Timeout="0")
    yield ask("deep")
    yield ask("deep", Request_Timeout="0.000001")


@pytest.mark.parametrize("failures", [_grpc_failures, _http_failures])
def test_a_request_that_failed_holds_no_memory(
    folder: Path, start: Callable[..., Any], failures: Callable[[Any], Iterator[Callable[[], Any]]]
):
    """With Python's collector off: an error and the frames that it came through may hold each other."""
    models.folder(folder, slow=models.slow(), deep=models.rows())
    (folder / "deep.json").write_text('{"max_memory": 1000}')
    server = start()
    gc.collect()
    gc.disable()
    try:
        for fail in failures(server):
            fail()
            tracemalloc.start()
            for _ in range(6):
                fail()
            until(lambda: tracemalloc.get_traced_memory()[0] < 2 * LARGE, 5)
            tracemalloc.stop()
    finally:
        gc.enable()
        tracemalloc.stop()
