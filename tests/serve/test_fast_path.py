"""What keeps the way of a small request short."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treadle.formats.dtypes import DType
from treadle.serve.config import ModelConfig
from treadle.serve.errors import BadRequestError
from treadle.serve.model import Model
from treadle.serve.shared_memory import Regions

from . import models

ROW = np.ones((1, 8), np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    models.folder(tmp_path, rows=models.rows())
    return Model("rows", 1, tmp_path / "rows.trdl", ModelConfig())


@pytest.mark.parametrize("dtype", [each for each in DType if each not in (DType.bool, DType.string)])
def test_sent_elements_have_numpys_own_type(dtype: DType):
    pytest.importorskip("prometheus_client")
    from treadle.serve.http_tensors import elements

    sent = np.arange(4).astype(dtype.numpy)
    found = elements("x", memoryview(sent.astype(dtype.numpy.newbyteorder("<")).tobytes()), dtype, (2, 2))
    assert found.dtype is sent.dtype
    assert found.tobytes() == sent.tobytes()


def test_a_call_that_was_held_up_makes_no_model_slow(model: Model):
    endpoint = model.endpoint("main")
    for _ in range(10):
        endpoint._note([ROW], 20e-6)
    endpoint._note([ROW], 0.5)
    assert endpoint.is_short([ROW])


def test_calls_that_become_slow_are_found_slow(model: Model):
    endpoint = model.endpoint("main")
    endpoint._note([ROW], 20e-6)
    for _ in range(20):
        endpoint._note([ROW], 1e-3)
    assert not endpoint.is_short([ROW])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio takes another loop since 3.11")
def test_the_server_runs_on_uvicorns_loop():
    uvicorn, uvloop = pytest.importorskip("uvicorn"), pytest.importorskip("uvloop")
    import asyncio

    from treadle.serve.server import _run

    found = []

    async def main() -> None:
        found.append(asyncio.get_running_loop())

    _run(main(), uvicorn.Config(main).get_loop_factory())
    assert isinstance(found[0], uvloop.Loop)


def head(**parameters: object) -> bytes:
    entry = {"name": "x", "shape": [1, 8], "datatype": "FP32", "parameters": {"binary_data_size": 32}}
    return json.dumps({"inputs": [entry], "parameters": parameters}).encode()


def test_the_same_head_is_read_once_and_its_bytes_each_time():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    regions = Regions(False)
    for value in (1, 2, 3):
        found = http_tensors.read_head(head(binary_data_output=True))
        sent = np.full((1, 8), value, np.float32)
        request = http_tensors.make_request(found, memoryview(sent.tobytes()), "rows", "", regions)
        np.testing.assert_array_equal(request.inputs["x"], sent)
    assert http_tensors.read_head(head(binary_data_output=True)) is found


def test_a_known_head_starts_a_new_timeout():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    data = memoryview(bytes(32))
    first, second = (
        http_tensors.make_request(http_tensors.read_head(head(timeout=1000)), data, "rows", "", Regions(False))
        for _ in range(2)
    )
    assert first.deadline is not None
    assert second.deadline is not None
    assert second.deadline > first.deadline


def test_heads_that_are_remembered_are_bounded():
    pytest.importorskip("prometheus_client")
    from treadle.serve import http_tensors

    for number in range(1000):
        http_tensors.read_head(head(number=number))
    http_tensors.read_head(head(text="a" * 2000))
    assert len(http_tensors._known_heads) <= 256
    assert max(map(len, http_tensors._known_heads)) <= 1024


def test_inputs_that_were_found_right_once_are_right_of_that_type_and_shape_alone(model: Model):
    endpoint = model.endpoint("main")
    endpoint.arguments({"x": ROW})
    for wrong in (ROW.astype(np.float64), ROW[:, :7], ROW[0]):
        with pytest.raises(BadRequestError, match="expected FP32"):
            endpoint.arguments({"x": wrong})
    with pytest.raises(BadRequestError, match="no input 'y'"):
        endpoint.arguments({"x": ROW, "y": ROW})
    with pytest.raises(BadRequestError, match="'x' is missing"):
        endpoint.arguments({})


# ---- requests that are all there ----


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known calls are short on a busy machine, too."""
    monkeypatch.setattr("treadle.serve.endpoint.SHORT_SECONDS", 1.0)  # as many as unknown ones are taken to last


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, short: None) -> list[bytes]:
    """The paths of requests that got a task of their own."""
    pytest.importorskip("httptools")
    pytest.importorskip("starlette")
    from treadle.serve.http_protocol import Connection

    found: list[bytes] = []
    usual = Connection._start_asgi_task

    def start(self: Any, cycle: Any, app: Any) -> None:
        found.append(cycle.scope["raw_path"])
        usual(self, cycle, app)

    monkeypatch.setattr(Connection, "_start_asgi_task", start)
    return found


ROWS = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)


def message_of(headers: bytes = b"", **values: Any) -> bytes:
    entry = {"name": "x", "shape": [2, 8], "datatype": "FP32", "parameters": {"binary_data_size": ROWS.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}, **values}).encode()
    lengths = b"Content-Length: %d\r\nInference-Header-Content-Length: %d\r\n" % (len(head) + ROWS.nbytes, len(head))
    return b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\n" + lengths + headers + b"\r\n" + head + ROWS.tobytes()


class Raw:
    """A connection on which bytes are sent, in pieces, and answers are read."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.file = self.socket.makefile("rb")

    def send(self, *pieces: bytes) -> Raw:
        for piece in pieces:
            self.socket.sendall(piece)
            time.sleep(0.05 * (len(pieces) > 1))
        return self

    def answer(self) -> tuple[bytes, list[bytes], bytes]:
        """Status, headers but for the date, and body."""
        status, headers, length = self.file.readline()[9:12], [], 0
        while (line := self.file.readline().strip()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            if not line.startswith(b"date:"):
                headers.append(line)
        return status, headers, self.file.read(length)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def port(tmp_path: Path, start: Callable[..., Any], short: None) -> int:
    (tmp_path / "models").mkdir()
    models.folder(tmp_path / "models", rows=models.rows(), mixed=models.mixed())
    server = start()
    with Raw(server.http_port) as raw:
        for _ in range(3):  # from then on the call is known to be short
            raw.send(message_of()).answer()
    return server.http_port


def test_a_request_that_is_all_there_gets_no_task(port: int, tasks: list[bytes]):
    with Raw(port) as raw:
        answers = [raw.send(message_of()).answer() for _ in range(3)]
    assert tasks == []
    assert all(each == answers[0] for each in answers)
    np.testing.assert_allclose(
        np.frombuffer(answers[0][2][-32:], np.float32).reshape(2, 4), models.expected(ROWS), rtol=1e-5
    )


@pytest.mark.parametrize("cut", [1, 40, -64, -1])
def test_one_that_comes_in_pieces_gets_the_same_answer(port: int, tasks: list[bytes], cut: int):
    data = message_of()
    with Raw(port) as raw:
        expected = raw.send(data).answer()
        assert tasks == []
        assert raw.send(data[:cut], data[cut:]).answer() == expected
    assert len(tasks) == (cut < 0)


@pytest.mark.parametrize(
    ("headers", "values", "status"),
    [
        (b"Accept-Encoding: gzip\r\n", {}, b"200"),
        (b"Request-Timeout: x\r\n", {}, b"400"),
        (b"Expect: 100-continue\r\n", {}, b"100"),
        (b"Connection: close\r\n", {}, b"200"),
        (b"", {"parameters": {"sequence_id": 3, "sequence_start": True}}, b"200"),
        (b"", {"outputs": [{"name": "nope"}]}, b"400"),
        (b"", {"inputs": []}, b"400"),
    ],
)
def test_what_is_unusual_is_answered_as_ever(
    port: int, tasks: list[bytes], headers: bytes, values: dict[str, Any], status: bytes
):
    with Raw(port) as raw:
        assert raw.send(message_of(headers, **values)).answer()[0] == status
    assert len(tasks) == 1


def test_requests_that_are_sent_together_are_answered_in_their_order(port: int):
    listed = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}]}).encode()
    other = b"POST /v2/models/mixed/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(listed) + listed
    with Raw(port) as raw:
        raw.send(b"".join([message_of(id="1"), other, message_of(id="2"), message_of(id="3"), other]))
        bodies = [raw.answer()[2] for _ in range(5)]
    assert [b"mixed" in body for body in bodies] == [False, True, False, False, True]
    assert [json.loads(bodies[at][:-32])["id"] for at in (0, 2, 3)] == ["1", "2", "3"]


def test_a_token_is_asked_for_there_too(tmp_path: Path, start: Callable[..., Any], tasks: list[bytes]):
    (tmp_path / "models").mkdir()
    models.folder(tmp_path / "models", rows=models.rows())
    (tmp_path / "tokens").write_text("secret\n")
    with Raw(start(tokens=str(tmp_path / "tokens")).http_port) as raw:
        right = message_of(b"Authorization: Bearer secret\r\n")
        for _ in range(4):
            assert raw.send(right).answer()[0] == b"200"
        tasks.clear()
        assert raw.send(right).answer()[0] == b"200"
        assert tasks == []
        assert raw.send(message_of()).answer()[0] == b"401"
        assert raw.send(message_of(b"Authorization: Bearer other\r\n")).answer()[0] == b"401"


def test_a_deadline_and_an_access_log_are_kept_there_too(tmp_path: Path, start: Callable[..., Any], tasks: list[bytes]):
    (tmp_path / "models").mkdir()
    models.folder(tmp_path / "models", rows=models.rows())
    log = io.StringIO()
    with Raw(start(log).http_port) as raw:
        for _ in range(4):
            answer = raw.send(message_of(b"Request-Timeout: 5\r\n")).answer()
        count = len(tasks)
        assert raw.send(message_of(b"Request-Timeout: 5\r\n")).answer() == answer
    assert len(tasks) == count < 5
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {tuple(line) for line in lines} == {
        ("time", "transport", "client", "method", "path", "seconds", "status", "bytes")
    }
    assert {(line["client"], line["path"], line["status"], line["bytes"]) for line in lines} == {
        ("127.0.0.1", "/v2/models/rows/infer", 200, len(answer[2]))
    }


def test_a_large_answer_waits_for_its_client(port: int, tasks: list[bytes], monkeypatch: pytest.MonkeyPatch):
    from treadle.serve import http_app, http_protocol

    for module in (http_app, http_protocol):
        monkeypatch.setattr(module, "PIECE", 100)
    with Raw(port) as raw:
        status, _, body = raw.send(message_of()).answer()
    assert (status, len(tasks)) == (b"200", 1)
    np.testing.assert_allclose(np.frombuffer(body[-32:], np.float32).reshape(2, 4), models.expected(ROWS), rtol=1e-5)


def test_a_call_that_fails_there_is_an_error_by_name(port: int, monkeypatch: pytest.MonkeyPatch):
    from treadle.serve.endpoint import Endpoint

    monkeypatch.setattr(Endpoint, "run_short", lambda *_: 1 / 0)
    with Raw(port) as raw:
        status, _, body = raw.send(message_of()).answer()
        assert (status, json.loads(body)["error"]) == (b"500", "a fault of the server; its log has more")
        monkeypatch.undo()
        assert raw.send(message_of()).answer()[0] == b"200"
