"""Requests that are mutated at random: each is answered, or refused by a named error, at once.

TREADLE_HOSTILE_REQUESTS says how many of each kind are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models
from .mutations import damaged, mutated

pytest.importorskip("prometheus_client")
from treadle.serve.http_app import HttpApp
from treadle.serve.repository import Repository
from treadle.serve.service import Service
from treadle.serve.shared_memory import Regions

COUNT = int(os.environ.get("TREADLE_HOSTILE_REQUESTS", "1500"))
X = np.arange(16, dtype=np.float32).reshape(2, 8)
SECONDS = 2.0  # of computing, that one may take
VALUES = (
    None, True, False, -1, 0, 1, 2, 1 << 31, 1 << 53, 1 << 63, 1 << 64, -(1 << 63), 1e308, 0.5, "", "x", "..", "INT64", "BOOL",
    "BYTES", "\0", "x" * 10_000, [], {}, [[]], [1] * 16, {"name": "x"}, [None], "relu", [2, 8], [0, 8], [1 << 62, 8],
)  # fmt: skip
PATHS = ("/v2/models/rows/infer", "/v2/models/rows/versions/1/infer", "/v2/models/texts/infer", "/v2/models/%00/infer")
TEXTS = b"".join(len(text).to_bytes(4, "little") + text for text in (b"a", b"", b"bc", b"\xc3\xa9"))


@pytest.fixture
def service(tmp_path: Path) -> Service:
    repository = Repository(models.folder(tmp_path, rows=models.rows(), texts=models.texts()))
    repository.refresh()
    return Service(repository)


def example() -> dict[str, Any]:
    return {
        "id": "1",
        "inputs": [
            {
                "name": "x",
                "shape": [2, 8],
                "datatype": "FP32",
                "data": X.tolist(),
                "parameters": {"binary_data_size": 64},
            }
        ],
        "outputs": [{"name": "relu", "parameters": {"binary_data": True}}],
        "parameters": {"timeout": 1_000_000, "sequence_id": 0, "sequence_start": False, "binary_data_output": False},
    }


async def nothing(*_: Any) -> None:
    raise AssertionError("this page is asked for")


async def ask(app: HttpApp, path: str, body: bytes, headers: dict[str, str], rng: random.Random) -> int:
    """The status of the answer; the body comes in pieces."""
    cut = rng.randrange(len(body) + 1)
    pieces = [(body[:cut], True), (body[cut:], False)] if rng.random() < 0.5 else [(body, False)]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if pieces:
            piece, more = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": more}
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    await app(scope, receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    if sent[0]["status"] != 200:
        assert json.loads(sent[1]["body"])["error"]
    return sent[0]["status"]


@pytest.mark.timeout(600 + COUNT // 10)  # a request takes 2 ms at most on a quiet machine
def test_mutated_requests_over_http(service: Service):
    app, rng, statuses = HttpApp(service, Regions(True), nothing), random.Random(1), Counter()

    async def run() -> None:
        for number in range(COUNT):
            values = example()
            for _ in range(rng.randrange(4)):
                values = mutated(values, VALUES, rng)
            head = json.dumps(values).encode()
            body = damaged(head + X.tobytes(), rng) if rng.random() < 0.5 else head + X.tobytes()
            headers = {"content-length": str(len(body))}
            if rng.random() < 0.9:
                headers["inference-header-content-length"] = str(len(head))
            if rng.random() < 0.1:
                name = rng.choice([*headers, "request-timeout", "content-encoding", "accept-encoding"])
                headers[name] = str(
                    rng.choice(("-1", "0", "1e9", "nan", "gzip", "deflate", "x", 1 << 70, "9" * 5000, "\xb2"))
                )
            path = rng.choice(PATHS)
            start = time.process_time()
            status = await ask(app, path, body, headers, rng)
            assert time.process_time() - start < SECONDS, (number, values)
            assert status in (200, 400, 404, 413, 422, 501, 504), (number, status, values)
            statuses[status] += 1

    asyncio.run(run())
    print(dict(statuses))
    assert statuses[200] > COUNT / 100


class Context:
    """What gRPC hands to a method besides the request."""

    def time_remaining(self) -> None:
        return None

    def add_callback(self, _: Any) -> bool:
        return True  # the client has not gone


@pytest.mark.timeout(600 + COUNT // 10)
def test_mutated_requests_over_grpc(service: Service, request: pytest.FixtureRequest):
    pytest.importorskip("grpc")
    from treadle.serve.errors import as_serve_error
    from treadle.serve.grpc_messages import message
    from treadle.serve.grpc_service import Methods

    regions = Regions(True)
    methods, rng, codes = Methods(service, regions), random.Random(2), Counter()
    memory = SharedMemory(create=True, size=256)
    request.addfinalizer(lambda: (memory.close(), memory.unlink()))
    regions.register("r", memory.name, 0, 256)
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 8]}
    right = message("ModelInferRequest")(model_name="rows", inputs=[tensor], raw_input_contents=[X.tobytes()])
    typed = message("ModelInferRequest")(
        model_name="rows",
        inputs=[{**tensor, "contents": {"fp32_contents": X.reshape(-1).tolist()}}],
        outputs=[{"name": "relu"}],
    )
    typed.parameters["timeout"].int64_param = 1_000_000
    shared = message("ModelInferRequest")(model_name="rows", inputs=[tensor], outputs=[{"name": "relu"}])
    for parameters in (shared.inputs[0].parameters, shared.outputs[0].parameters):
        parameters["shared_memory_region"].string_param = "r"
        parameters["shared_memory_byte_size"].int64_param = 64
        parameters["shared_memory_offset"].int64_param = 64
    texts = message("ModelInferRequest")(
        model_name="texts", inputs=[{"name": "x", "datatype": "BYTES", "shape": [2, 2]}], raw_input_contents=[TEXTS]
    )
    seeds = [each.SerializeToString() for each in (right, typed, shared, texts)]
    for _ in range(COUNT):
        data = damaged(rng.choice(seeds), rng)
        start = time.process_time()
        try:
            methods.infer(data, Context())
            codes["OK"] += 1
        except Exception as error:
            codes[as_serve_error(error).grpc] += 1
            if as_serve_error(error).grpc == "INTERNAL":
                raise
        assert time.process_time() - start < SECONDS
    print(dict(codes))
    assert codes["OK"] > COUNT / 100


# ---- bytes of connections ----


def exchanged(port: int, data: bytes) -> bytes:
    """What the server answers to these bytes, and no more, until it ends the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 30) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(1 << 16):
            answer += piece
    return answer


@pytest.mark.timeout(600 + COUNT // 10)
def test_mutated_bytes_of_http_connections(folder: Path, start: Callable[..., Any]):
    """Two requests, one after the other, at a real port: each answer has a status that is named."""
    pytest.importorskip("httptools")
    server, rng, statuses = start(), random.Random(3), Counter()
    head = json.dumps({"inputs": [example()["inputs"][0] | {"data": []}], "id": "1"}).encode()
    binary = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % (len(head) + 64)
    binary += b"Inference-Header-Content-Length: %d\r\n\r\n" % len(head) + head + X.tobytes()
    listed = json.dumps({"inputs": [{"name": "x", "shape": [2, 8], "datatype": "FP32", "data": X.tolist()}]}).encode()
    chunks = (
        b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    )
    seeds = [
        binary,
        chunks % (len(listed), listed),
        b"GET /v2/models/rows HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ]
    for _ in range(COUNT // 3):
        data = damaged(rng.choice(seeds), rng) + rng.choice(seeds)
        for line in exchanged(server.http_port, data).split(b"HTTP/1.1 ")[1:]:
            statuses[int(line[:3])] += 1
    print(dict(statuses))
    assert set(statuses) <= {100, 200, 400, 404, 405, 413, 422, 499, 501, 503, 504}
    assert statuses[200] > COUNT / 100
    assert exchanged(server.http_port, seeds[0]).startswith(b"HTTP/1.1 200")


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(data).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + data


def fields(**named: str) -> bytes:
    """Header fields of HTTP/2, none of which is indexed."""
    pairs = [(name.replace("__", ":").replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in pairs)


@pytest.mark.timeout(600 + COUNT // 10)
def test_mutated_bytes_of_grpc_connections(folder: Path, start: Callable[..., Any]):
    grpc = pytest.importorskip("grpc")
    from treadle.serve.grpc_messages import message

    server, rng, answered = start(), random.Random(4), 0
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 8]}
    made = message("ModelInferRequest")(model_name="rows", inputs=[tensor], raw_input_contents=[X.tobytes()])
    data = made.SerializeToString()
    path = "/inference.GRPCInferenceService/ModelInfer"
    asked = fields(
        __method="POST", __scheme="http", __path=path, __authority="a", te="trailers", content_type="application/grpc"
    )
    ask = frame(1, 4, 1, asked) + frame(0, 1, 1, b"\0" + len(data).to_bytes(4, "big") + data)
    frames = [frame(4, 0, 0, b""), ask, frame(6, 0, 0, bytes(8)), frame(8, 0, 0, b"\0\0\1\0"), frame(3, 0, 1, bytes(4))]
    for _ in range(COUNT // 30):
        sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
        sent += damaged(ask + b"".join(rng.choice(frames) for _ in range(rng.randrange(4))), rng)
        with socket.create_connection(("127.0.0.1", server.grpc_port), 0.2) as connection:
            answer = b""
            with contextlib.suppress(OSError):  # the frames may want no answer
                connection.sendall(sent)
                while b"grpc-status" not in answer and (piece := connection.recv(1 << 16)):
                    answer += piece
            answered += b"grpc-status" in answer
    assert answered > COUNT / 150
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        assert channel.unary_unary(path)(data, timeout=20)
