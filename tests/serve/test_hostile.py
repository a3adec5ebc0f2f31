"""Requests that are mutated at random: each is answered, or refused by a named error, at once.

TREADLE_HOSTILE_REQUESTS says how many of each kind are tried.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
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


@pytest.fixture
def service(tmp_path: Path) -> Service:
    repository = Repository(models.folder(tmp_path, rows=models.rows(), mixed=models.mixed()))
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
            path = rng.choice(("/v2/models/rows/infer", "/v2/models/rows/versions/1/infer", "/v2/models/%00/infer"))
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

    def add_callback(self, _: Any) -> None:
        pass


@pytest.mark.timeout(600 + COUNT // 10)
def test_mutated_requests_over_grpc(service: Service, request: pytest.FixtureRequest):
    pytest.importorskip("grpc")
    from google.protobuf.message import DecodeError
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
    seeds = [each.SerializeToString() for each in (right, typed, shared)]
    for _ in range(COUNT):
        data = damaged(rng.choice(seeds), rng)
        start = time.process_time()
        try:
            methods.ModelInfer(message("ModelInferRequest").FromString(data), Context())
            codes["OK"] += 1
        except DecodeError:
            codes["no message"] += 1
        except Exception as error:
            codes[as_serve_error(error).grpc] += 1
            if as_serve_error(error).grpc == "INTERNAL":
                raise
        assert time.process_time() - start < SECONDS
    print(dict(codes))
    assert codes["OK"] > COUNT / 100
