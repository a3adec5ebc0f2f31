"""The protocol over HTTP, as its own text gives it, and what must be refused."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treadle.formats.messages.errors import FileError

from . import models

X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.connection.request(method, path, data, {name.replace("_", "-"): value for name, value in headers.items()})
        response = self.connection.getresponse()
        content = response.read()
        fields = {name.lower(): value for name, value in response.getheaders()}
        is_json = fields.get("content-type") == "application/json" and content and "content-encoding" not in fields
        return response.status, json.loads(content) if is_json else content, fields

    def infer(self, model: str, x: np.ndarray, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        return self.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor(x)], **fields})


def tensor(x: np.ndarray, name: str = "x", datatype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "shape": list(x.shape), "datatype": datatype, "data": x.tolist()}


def binary(x: np.ndarray, size: int | None = None, **fields: Any) -> tuple[bytes, str]:
    """A body with the tensor's bytes after the JSON, and the JSON's length."""
    entry = {"name": "x", "shape": list(x.shape), "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": x.nbytes if size is None else size}
    head = json.dumps({"inputs": [entry], **fields}).encode()
    return head + x.tobytes(), str(len(head))


@pytest.fixture
def client(folder: Path, start: Callable[..., Any]) -> Client:
    return Client(start().http_port)


def test_health_and_metadata(client: Client):
    assert client.ask("GET", "/v2/health/live")[0] == 200
    assert client.ask("GET", "/v2/health/ready")[0] == 200
    assert client.ask("GET", "/v2/models/rows/ready")[0] == 200
    assert client.ask("GET", "/v2/models/nope/ready")[0] == 503
    assert client.ask("GET", "/v2")[1]["name"] == "treadle"
    status, metadata, _ = client.ask("GET", "/v2/models/rows/versions/1")
    assert status == 200
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]
    assert metadata["outputs"] == [{"name": "relu", "datatype": "FP32", "shape": [-1, 4]}]
    assert client.ask("GET", "/v2/models/rows/config")[1]["max_batch_size"] == 32
    assert client.ask("GET", "/v2/models/mixed/config")[1]["max_batch_size"] == 0
    assert client.ask("GET", "/v2/nothing")[0] == 404
    assert client.ask("GET", "/v2/models/rows/")[0] == 404


def test_tensors_as_json(client: Client):
    status, answer, _ = client.infer("rows", X, id="42")
    assert status == 200
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("42", "rows", "1")
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("relu", "FP32", [3, 4])
    np.testing.assert_allclose(np.reshape(output["data"], (3, 4)), models.expected(X), rtol=1e-5)
    flat = {"inputs": [{**tensor(X), "data": X.reshape(-1).tolist()}]}
    assert client.ask("POST", "/v2/models/rows/versions/1/infer", flat)[1]["outputs"] == answer["outputs"]


def test_tensors_as_bytes(client: Client):
    body, length = binary(X, outputs=[{"name": "relu", "parameters": {"binary_data": True}}])
    status, content, fields = client.ask("POST", "/v2/models/rows/infer", body, Inference_Header_Content_Length=length)
    assert status == 200
    at = int(fields["inference-header-content-length"])
    assert json.loads(content[:at])["outputs"][0]["parameters"] == {"binary_data_size": 48}
    result = np.frombuffer(content[at:], np.float32).reshape(3, 4)
    np.testing.assert_allclose(result, models.expected(X), rtol=1e-5)
    body, length = binary(X, parameters={"binary_data_output": True})
    again = client.ask("POST", "/v2/models/rows/infer", body, Inference_Header_Content_Length=length)[1]
    assert again[-48:] == content[at:]


def test_compressed_bodies(client: Client):
    body, length = binary(X)
    headers = {"Content_Encoding": "gzip", "Accept_Encoding": "gzip", "Inference_Header_Content_Length": length}
    status, content, fields = client.ask("POST", "/v2/models/rows/infer", gzip.compress(body), **headers)
    assert (status, fields["content-encoding"]) == (200, "gzip")
    assert json.loads(gzip.decompress(content))["outputs"][0]["shape"] == [3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": []}, "input 'x' is missing"),
        ({"inputs": [tensor(X), tensor(X)]}, "comes twice"),
        ({"inputs": [tensor(X, "y")]}, "no input 'y'; the model has 'x'"),
        ({"inputs": [tensor(X[:, :7])]}, "expected FP32 \\[n, 8\\]"),
        ({"inputs": [{**tensor(X), "datatype": "INT32"}]}, "not elements of INT32"),
        ({"inputs": [{**tensor(X), "datatype": "FP64"}]}, "expected FP32"),
        ({"inputs": [{**tensor(X), "datatype": "BYTES"}]}, "its data are not texts"),
        ({"inputs": [{**tensor(X), "datatype": "STRING"}]}, "no datatype 'STRING'"),
        ({"inputs": [{**tensor(X), "shape": [3, 9]}]}, "has 27 elements, got 24"),
        ({"inputs": [{**tensor(X), "shape": [-3, 8]}]}, "not a list of at most"),
        ({"inputs": [{**tensor(X), "shape": [1 << 40, 1 << 40]}]}, "elements"),
        ({"inputs": [{**tensor(X), "data": None}]}, "no data"),
        ({"inputs": [{**tensor(X), "data": [["a"] * 8] * 3}]}, "not elements of FP32"),
        ({"inputs": [{**tensor(X), "data": [[1], [1, 2]]}]}, "different lengths"),
        ({"inputs": {}}, "expected a list"),
        ({"inputs": [tensor(X)], "outputs": [{"name": "z"}]}, "no output 'z'"),
        ({"inputs": [tensor(X)], "parameters": {"timeout": -1}}, "timeout"),
        ({"inputs": [tensor(X)], "parameters": 3}, "expected an object"),
        ({"inputs": [tensor(X)], "parameters": {"sequence_id": 7}}, "is not open"),
    ],
)
def test_what_does_not_fit_is_said(client: Client, change: dict[str, Any], message: str):
    status, answer, _ = client.ask("POST", "/v2/models/rows/infer", change)
    assert status in (400, 413)
    assert re.search(message, answer["error"]), answer


def test_bodies_that_are_no_requests(client: Client):
    for body in (b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"inputs": [1]}'):
        assert client.ask("POST", "/v2/models/rows/infer", body)[0] == 400
    assert client.infer("nope", X)[0] == 404
    assert client.infer("..%2Frows", X)[0] == 404


@pytest.mark.parametrize("size", [0, 95, 97, 1 << 60])
def test_bytes_that_are_not_as_many_as_declared(client: Client, size: int):
    body, length = binary(X, size)
    assert client.ask("POST", "/v2/models/rows/infer", body, Inference_Header_Content_Length=length)[0] == 400


def test_a_body_larger_than_its_tensors_is_refused_before_it_is_read(folder: Path, start: Callable[..., Any]):
    body, length = binary(X)
    with socket.create_connection(("127.0.0.1", start().http_port)) as connection:
        head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nInference-Header-Content-Length: {length}\r\n"
        connection.sendall(f"{head}Content-Length: 100000000\r\n\r\n".encode() + body)
        connection.settimeout(20)
        assert b"400 Bad Request" in connection.recv(1 << 16)


def test_a_body_larger_than_may_be_is_refused_before_it_is_read(folder: Path, start: Callable[..., Any]):
    from treadle.serve.http_app import HttpLimits

    port = start(limits=HttpLimits(max_body=1000)).http_port
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n")
        connection.settimeout(20)
        assert b"413" in connection.recv(1 << 16)
    bomb = gzip.compress(bytes(1 << 20))
    assert Client(port).ask("POST", "/v2/models/rows/infer", bomb, Content_Encoding="gzip")[0] == 413


def test_a_body_that_does_not_come_ends_the_request(folder: Path, start: Callable[..., Any]):
    from treadle.serve.http_app import HttpLimits

    port = start(limits=HttpLimits(body_seconds=0.2)).http_port
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        connection.settimeout(20)
        assert b"499" in connection.recv(1 << 16)


def test_a_deadline_ends_a_call(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow())
    client = Client(start().http_port)
    begin = time.monotonic()
    status, answer, _ = client.infer("slow", np.ones(1, np.float32), parameters={"timeout": 200_000})
    assert status == 504, answer
    body = json.dumps({"inputs": [tensor(np.ones(1, np.float32))]}).encode()
    assert client.ask("POST", "/v2/models/slow/infer", body, Request_Timeout="0.2")[0] == 504
    assert time.monotonic() - begin < 5
    assert client.infer("rows", X)[0] == 200


def test_a_client_that_goes_away_ends_its_call(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow())
    server = start()
    body = json.dumps({"inputs": [tensor(np.ones(1, np.float32))]}).encode()
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        end = time.monotonic() + 20
        while not server.service.scheduler.running() and time.monotonic() < end:
            time.sleep(0.01)
        assert server.service.scheduler.running() == 1
    while server.service.scheduler.running() and time.monotonic() < end:
        time.sleep(0.01)
    assert server.service.scheduler.running() == 0


def test_a_full_queue_answers_at_once_and_other_models_are_served(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow())
    (folder / "slow.json").write_text('{"max_queue": 1, "max_seconds": 3, "instances": 1}')
    server = start()
    port, one, answers = server.http_port, np.ones(1, np.float32), []
    threads = [
        threading.Thread(target=lambda: answers.append(Client(port).infer("slow", one)[0]), daemon=True)
        for _ in range(4)
    ]
    begin = time.monotonic()
    threads[0].start()
    while not server.service.scheduler.running() and time.monotonic() < begin + 3:
        time.sleep(0.01)
    for thread in threads[1:]:
        thread.start()
    while len(answers) < 2 and time.monotonic() < begin + 3:
        time.sleep(0.01)
    assert Client(port).infer("rows", X)[0] == 200
    assert time.monotonic() - begin < 3
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == [429, 429, 504, 504]


def test_limits_of_a_model(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow())
    (folder / "slow.json").write_text('{"max_steps": 1000}')
    (folder / "rows.json").write_text('{"max_memory": 100000}')
    client = Client(start().http_port)
    assert client.infer("slow", np.ones(1, np.float32))[0] == 422
    assert client.infer("rows", X)[0] == 200
    assert client.infer("rows", np.ones((9000, 8), np.float32))[0] == 422
    assert client.infer("rows", X)[0] == 200


def test_sequences_keep_what_is_not_given(folder: Path, start: Callable[..., Any]):
    models.folder(folder, counter=models.counter())
    (folder / "counter.json").write_text('{"state": {"total": "add"}, "max_sequences": 1, "sequence_idle": 0.5}')
    client = Client(start().http_port)

    def ask(key: Any, *tensors: dict[str, Any], **parameters: bool) -> tuple[int, Any]:
        body = {"inputs": list(tensors), "parameters": {"sequence_id": key, **parameters}}
        status, answer, _ = client.ask("POST", "/v2/models/counter/infer", body)
        return status, answer["outputs"][0]["data"] if status == 200 else answer["error"]

    zero, one = np.zeros(2, np.float32), np.ones(2, np.float32)
    assert ask("a", tensor(one), sequence_start=True)[0] == 400  # the state is not given yet
    assert ask("a", tensor(one), tensor(zero, "total"), sequence_start=True) == (200, [1, 1])
    assert ask("a") == (200, [2, 2])
    assert ask("a", tensor(one + one)) == (200, [4, 4])
    assert ask("b", tensor(one), tensor(zero, "total"), sequence_start=True)[0] == 429
    assert ask("a", sequence_end=True) == (200, [6, 6])
    assert ask("a")[0] == 400
    assert ask(7, tensor(one), tensor(zero, "total"), sequence_start=True)[0] == 200
    time.sleep(0.6)
    assert "not open" in ask(7)[1]


def test_the_repository_over_http(folder: Path, start: Callable[..., Any]):
    client = Client(start(is_explicit=True).http_port)
    assert client.infer("rows", X)[0] == 404
    assert (
        client.ask("POST", "/v2/repository/models/rows/load", {"parameters": {"config": '{"max_queue": 5}'}})[0] == 200
    )
    assert client.infer("rows", X)[0] == 200
    index = {each["name"]: each["state"] for each in client.ask("POST", "/v2/repository/index")[1]}
    assert index == {"rows": "READY", "mixed": "UNAVAILABLE"}
    assert len(client.ask("POST", "/v2/repository/index", {"ready": True})[1]) == 1
    assert client.ask("POST", "/v2/repository/models/rows/unload", {})[0] == 200
    assert client.infer("rows", X)[0] == 404
    assert client.ask("POST", "/v2/repository/models/..%2fx/load", {})[0] == 404
    assert client.ask("POST", "/v2/repository/models/rows/load", {"parameters": {"file:1/m": "AA=="}})[0] == 501


def test_statistics_and_metrics(client: Client):
    for _ in range(3):
        client.infer("rows", X)
    client.infer("rows", X[:, :1])
    (counted,) = client.ask("GET", "/v2/models/rows/stats")[1]["model_stats"]
    assert (counted["inference_count"], counted["execution_count"]) == (9, 3)
    assert counted["inference_stats"]["success"]["count"] == 3
    text = client.ask("GET", "/metrics")[1].decode()
    assert 'treadle_requests_total{code="OK",function="main",model="rows"} 3.0' in text


def test_tokens_and_the_access_log(folder: Path, start: Callable[..., Any], tmp_path: Path):
    (tmp_path / "tokens").write_text("secret\nother\n")
    log = io.StringIO()
    client = Client(start(log, tokens=str(tmp_path / "tokens")).http_port)
    assert client.ask("GET", "/v2/health/ready")[0] == 200
    assert client.infer("rows", X)[0] == 401
    assert client.ask("GET", "/metrics")[0] == 401
    assert client.ask("GET", "/v2", Authorization="Bearer nope")[0] == 401
    assert client.ask("GET", "/v2", Authorization="Bearer other")[0] == 200
    while len(log.getvalue().splitlines()) < 5:  # a line is written after the answer
        time.sleep(0.01)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["status"] for line in lines] == [200, 401, 401, 401, 200]
    assert "secret" not in log.getvalue()


def test_shared_memory_is_read_and_written(folder: Path, start: Callable[..., Any]):
    from multiprocessing.shared_memory import SharedMemory

    client = Client(start(shared_memory=True).http_port)
    memory = SharedMemory(create=True, size=256)
    try:
        memory.buf[: X.nbytes] = X.tobytes()
        region = "/v2/systemsharedmemory/region/r"
        assert client.ask("POST", f"{region}/register", {"key": memory.name, "offset": 0, "byte_size": 256})[0] == 200
        assert client.ask("GET", f"{region}/status")[1][0]["byte_size"] == 256
        place = {"shared_memory_region": "r", "shared_memory_byte_size": X.nbytes}
        entry = {"name": "x", "shape": [3, 8], "datatype": "FP32", "parameters": place}
        out = {"shared_memory_region": "r", "shared_memory_offset": 128, "shared_memory_byte_size": 48}
        wanted = {"inputs": [entry], "outputs": [{"name": "relu", "parameters": out}]}
        status, answer, _ = client.ask("POST", "/v2/models/rows/infer", wanted)
        assert status == 200, answer
        result = np.frombuffer(bytes(memory.buf[128:176]), np.float32).reshape(3, 4)
        np.testing.assert_allclose(result, models.expected(X), rtol=1e-5)
        out["shared_memory_offset"] = 250
        assert client.ask("POST", "/v2/models/rows/infer", wanted)[0] == 400
        for key in ("../etc/passwd", "/etc/passwd", "", "a/b"):
            body = {"key": key, "offset": 0, "byte_size": 1}
            assert client.ask("POST", "/v2/systemsharedmemory/region/s/register", body)[0] == 400
        assert client.ask("POST", "/v2/systemsharedmemory/unregister", {})[0] == 200
        assert client.ask("POST", "/v2/models/rows/infer", wanted)[0] == 404
    finally:
        memory.close()
        memory.unlink()


def test_shared_memory_is_off_unless_it_is_turned_on(client: Client):
    body = {"key": "x", "offset": 0, "byte_size": 1}
    assert client.ask("POST", "/v2/systemsharedmemory/region/r/register", body)[0] == 501


def test_a_client_that_would_rather_speak_http2_is_answered(folder: Path, start: Callable[..., Any]):
    """As Java's do."""
    client = Client(start().http_port)
    wish = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
    for _ in range(2):
        body = json.dumps({"inputs": [tensor(X)], "id": "\r\nupgrade:"}).encode()
        status, answer, _ = client.ask("POST", "/v2/models/rows/infer", body, **wish)
        assert (status, answer["id"]) == (200, "\r\nupgrade:")
        assert client.ask("GET", "/v2", **wish)[0] == 200


def test_that_wish_may_come_in_pieces(folder: Path, start: Callable[..., Any]):
    body = json.dumps({"inputs": [tensor(X)]}).encode()
    head = f"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    port = start().http_port
    for cut in range(head.index(b"\r\nUpgrade"), head.index(b"h2c")):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in (head[:cut], head[cut:] + body):
                connection.sendall(part)
                time.sleep(0.02)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200"), cut


def test_each_function_says_whether_it_is_merged_and_why(client: Client, folder: Path):
    digest = hashlib.sha256((folder / "rows.trdl").read_bytes()).hexdigest()
    for model, begins in (
        ("rows", "merged: a row's result is the same"),
        ("mixed", "not merged: a row's result depends"),
    ):
        config = client.ask("GET", f"/v2/models/{model}/config")[1]["parameters"]
        metadata = client.ask("GET", f"/v2/models/{model}")[1]["properties"]
        (counted,) = client.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"]
        (shown,) = [each for each in client.ask("GET", "/overview")[1]["functions"] if each["name"] == model]
        told = {config["batching"]["string_value"], metadata["batching"], counted["batching"], shown["batching"]}
        assert len(told) == 1
        assert told.pop().startswith(begins)
        if model == "rows":
            assert config["sha256"]["string_value"] == metadata["sha256"] == shown["sha256"] == digest


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_port_that_is_taken_is_told_before_anything_is_loaded(folder: Path, transport: str, monkeypatch: Any):
    pytest.importorskip("uvicorn")
    from treadle.serve.server import Server, ServerConfig

    monkeypatch.setattr("treadle.serve.repository.Model", lambda *_: pytest.fail("loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = {"http_port": 0, "grpc_port": 0, f"{transport}_port": port}
        server = Server(ServerConfig(folder=folder, **ports))
        with pytest.raises(
            FileError, match=rf"cannot listen on 127.0.0.1:{port}: .*; --{transport}-port N takes another"
        ):
            server.run()


def test_a_server_that_stops_finishes_what_runs(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow(3_000_000))
    server = start()
    answers: list[int] = []
    one = np.ones(1, np.float32)
    thread = threading.Thread(target=lambda: answers.append(Client(server.http_port).infer("slow", one)[0]))
    thread.start()
    end = time.monotonic() + 20
    while not server.service.scheduler.running() and time.monotonic() < end:
        time.sleep(0.005)
    server.stop()
    assert not server.service.is_ready
    thread.join(30)
    assert answers == [200]


def test_elements_are_little_endian_on_the_wire(client: Client):
    head = json.dumps(
        {"inputs": [{"name": "y", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}
    ).encode()
    body = head + struct.pack("<ff", 1.5, -2.0)
    answer = client.ask("POST", "/v2/models/rows%3Adouble/infer", body, Inference_Header_Content_Length=str(len(head)))
    assert answer[1]["outputs"][0]["data"] == [3.0, -4.0]
