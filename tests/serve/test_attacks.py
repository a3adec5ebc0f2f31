"""Clients that mean harm: they get errors or nothing, and everybody else an answer."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models
from .test_http import Client, tensor

X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
HEAD = b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bounds of connections, shorter."""
    pytest.importorskip("httptools")
    from treadle.serve import http_protocol

    for name, value in {"HEAD_SECONDS": 0.5, "READ_SECONDS": 0.5, "SWEEP_SECONDS": 0.05}.items():
        monkeypatch.setattr(http_protocol, name, value)
    return http_protocol


@pytest.fixture
def connect() -> Iterator[Callable[[int], socket.socket]]:
    with contextlib.ExitStack() as stack:

        def begin(port: int) -> socket.socket:
            found = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            found.settimeout(30)
            return found

        yield begin


def is_ended(connection: socket.socket) -> bool:
    """True when the server has ended the connection, whatever it says before. Raises TimeoutError where it does not."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


def trickle(connection: socket.socket) -> None:
    """Sends a byte now and then until the connection is over."""
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"a")
            time.sleep(0.1)


def is_served(port: int) -> bool:
    return Client(port).infer("rows", X)[0] == 200


# ---- connections ----


@pytest.mark.parametrize(
    "first", [b"", b"GET /v2 HTTP/1.1\r\nHost", b"\r\n"], ids=["nothing", "half a head", "an empty line"]
)
def test_who_never_ends_a_head_is_sent_away(
    folder: Path, start: Callable[..., Any], protocol: Any, connect: Callable[[int], socket.socket], first: bytes
):
    port = start().http_port
    connection = connect(port)
    connection.sendall(first)
    assert is_ended(connection)
    assert is_served(port)


def test_a_trickle_behind_an_answer_does_not_keep_a_connection(
    folder: Path, start: Callable[..., Any], protocol: Any, connect: Callable[[int], socket.socket]
):
    connection = connect(start().http_port)
    connection.sendall(HEAD + b"Content-Length: 1000\r\nInference-Header-Content-Length: 2000000000\r\n\r\n")
    threading.Thread(target=trickle, args=(connection,)).start()
    assert is_ended(connection)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * (2 << 20),
        b"GET /v2 HTTP/1.1\r\nA: " + b"a" * (2 << 20),
        b"GET /v2 HTTP/1.1\r\n" + b"A: b\r\n" * (1 << 19),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"a" * (2 << 20),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * (1 << 19),
    ],
    ids=["path", "value", "headers", "extension", "trailers"],
)
def test_heads_have_a_bound(
    folder: Path, start: Callable[..., Any], connect: Callable[[int], socket.socket], head: bytes
):
    pytest.importorskip("httptools")
    connection = connect(start().http_port)
    with pytest.raises(ConnectionError):
        connection.sendall(head + b"b" * 100_000_000)


def test_requests_ahead_of_their_answers_have_a_bound(
    folder: Path, start: Callable[..., Any], connect: Callable[[int], socket.socket]
):
    pytest.importorskip("httptools")
    port = start().http_port
    connection = connect(port)
    connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n" * 5000)
    answers = bytearray()
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            answers += piece
    assert answers.count(b"HTTP/1.1 200") < 1000
    assert is_served(port)


def test_what_is_no_request_is_not_answered_before_the_request_ahead_of_it(
    folder: Path, start: Callable[..., Any], connect: Callable[[int], socket.socket]
):
    models.folder(folder, slow=models.slow(20_000_000))
    body = json.dumps({"inputs": [tensor(np.ones(1, np.float32))]}).encode()
    connection = connect(start().http_port)
    head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body + b"nonsense\r\n\r\n")
    assert b"400" not in connection.recv(1 << 16)[:20]


def test_who_does_not_read_its_answer_is_sent_away(
    tmp_path: Path, folder: Path, start: Callable[..., Any], protocol: Any, connect: Callable[[int], socket.socket]
):
    server = start()
    x = np.zeros((1_000_000, 8), np.float32)
    entry = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    lengths = b"Content-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n" % (len(head) + x.nbytes, len(head))
    connection = connect(server.http_port)
    connection.sendall(HEAD + lengths + head + x.tobytes())
    connections = server._http.server_state.connections
    end = time.monotonic() + 30
    while connections and time.monotonic() < end:
        time.sleep(0.02)
    assert not connections


# ---- bodies ----


def test_one_long_text_among_numbers_takes_no_memory(folder: Path, start: Callable[..., Any]):
    client = Client(start().http_port)
    entry = {"name": "x", "shape": [20_000], "datatype": "FP32", "data": [0] * 20_000 + ["x" * 20_000]}
    tracemalloc.start()
    try:
        status, answer, _ = client.ask("POST", "/v2/models/rows/infer", {"inputs": [entry]})
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert status == 400
    assert "got 20001" in answer["error"]


@pytest.mark.parametrize(
    "data", [[True] * 16, ["1"] * 16, [None] * 16, [[1] * 8, [1] * 7], [1 << 2000] * 16, [{}] * 16]
)
def test_data_that_are_no_elements(folder: Path, start: Callable[..., Any], data: list):
    entry = {"name": "x", "shape": [2, 8], "datatype": "FP32", "data": data}
    status, answer, _ = Client(start().http_port).ask("POST", "/v2/models/rows/infer", {"inputs": [entry]})
    assert status == 400
    assert "input 'x'" in answer["error"]


def test_json_has_a_bound_of_its_own(folder: Path, start: Callable[..., Any]):
    from treadle.serve.http_app import HttpLimits

    client = Client(start(limits=HttpLimits(max_json=1000)).http_port)
    body = json.dumps({"inputs": [tensor(X)], "id": "x" * 1000}).encode()
    for data, headers in (
        (body, {}),
        (body, {"Inference_Header_Content_Length": str(len(body))}),
        (gzip.compress(body), {"Content_Encoding": "gzip"}),
        (iter([body]), {}),
    ):
        status, answer, _ = client.ask("POST", "/v2/models/rows/infer", data, **headers)
        assert (status, "1000 bytes" in answer["error"]) == (413, True)
        client.connection.close()


def test_the_bodies_of_all_requests_have_a_bound(
    folder: Path, start: Callable[..., Any], connect: Callable[[int], Any]
):
    from treadle.serve.http_app import HttpLimits

    server = start(limits=HttpLimits(max_body=100_000, max_bodies=2))
    half = HEAD + b"Content-Length: 90000\r\n\r\n" + b"[" * 89_000
    holders = [connect(server.http_port) for _ in range(2)]
    for each in holders:
        each.sendall(half)
    body = json.dumps({"inputs": [tensor(X)], "id": "x" * 40_000}).encode()
    end = time.monotonic() + 20
    while Client(server.http_port).ask("POST", "/v2/models/rows/infer", body)[0] != 429:
        assert time.monotonic() < end
    for each in holders:
        each.close()
    while Client(server.http_port).ask("POST", "/v2/models/rows/infer", body)[0] != 200:
        assert time.monotonic() < end


def test_an_empty_tensor_has_no_huge_sizes(folder: Path, start: Callable[..., Any]):
    entry = {"name": "x", "shape": [1 << 39, 0], "datatype": "FP32", "data": []}
    status, answer, _ = Client(start().http_port).ask("POST", "/v2/models/rows/infer", {"inputs": [entry]})
    assert status == 413
    assert "too many elements" in answer["error"]


def test_an_error_of_python_s_own_is_not_shown(
    folder: Path, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    server = start()
    monkeypatch.setattr(server.service, "begin", lambda _: 1 / 0)
    status, answer, _ = Client(server.http_port).infer("rows", X)
    assert (status, answer["error"]) == (500, "a fault of the server; its log has more")


def test_names_in_errors_are_cut(folder: Path, start: Callable[..., Any]):
    status, answer, _ = Client(start().http_port).infer("rows", X, outputs=[{"name": "x" * 100_000}])
    assert status == 400
    assert len(answer["error"]) < 2000


# ---- sequences ----


def test_who_waits_for_its_sequence_holds_nobody_up(folder: Path, start: Callable[..., Any]):
    models.folder(folder, slow=models.slow())
    (folder / "slow.json").write_text('{"max_seconds": 3}')
    port = start().http_port
    one, statuses = np.ones(1, np.float32), []

    def ask(**parameters: Any) -> None:
        statuses.append(Client(port).infer("slow", one, parameters={"sequence_id": 1, **parameters})[0])

    threads = [
        threading.Thread(target=ask, kwargs={"sequence_start": True}),
        threading.Thread(target=ask, kwargs={"timeout": 20_000_000}),
    ]
    threads[0].start()
    time.sleep(0.5)
    threads[1].start()
    time.sleep(0.5)
    start_of_others = time.monotonic()
    assert is_served(port)
    assert time.monotonic() - start_of_others < 1.5
    for thread in threads:
        thread.join()
    assert statuses == [504, 504]


def test_a_deadline_that_is_practically_never_is_taken(folder: Path, start: Callable[..., Any]):
    client = Client(start().http_port)
    for sequence in ({}, {"sequence_id": 1, "sequence_start": True}):
        for timeout in (1 << 53, (1 << 62) - 1):
            assert client.infer("rows", X, parameters={"timeout": timeout, **sequence})[0] == 200


def test_a_start_that_fails_leaves_no_sequence(folder: Path, start: Callable[..., Any]):
    server = start()
    client = Client(server.http_port)
    for number in range(100):
        parameters = {"sequence_id": number + 1, "sequence_start": True}
        assert client.infer("rows", X[:, :5], parameters=parameters)[0] == 400
    assert len(server.repository.find("rows").sequences["main"]) == 0


def test_what_sequences_keep_is_bounded_together(folder: Path, start: Callable[..., Any]):
    (folder / "rows.json").write_text('{"max_sequence_memory": 1000}')
    server = start()
    client, sequences = Client(server.http_port), server.repository.find("rows").sequences["main"]
    row = np.ones((1, 8), np.float32)  # 32 bytes

    def ask(key: int, rows: int, **parameters: bool) -> int:
        return client.infer("rows", np.repeat(row, rows, 0), parameters={"sequence_id": key, **parameters})[0]

    assert ask(1, 20, sequence_start=True) == 200  # 640 bytes
    assert ask(2, 20, sequence_start=True) == 429
    assert len(sequences) == 1
    assert ask(2, 10, sequence_start=True) == 200
    assert ask(2, 12) == 429  # what it had stays
    assert ask(2, 11) == 200
    assert ask(1, 1) == 200  # it keeps less than before
    assert ask(2, 30) == 200
    assert ask(1, 1, sequence_end=True) == ask(2, 1, sequence_end=True) == 200
    assert ask(3, 31, sequence_start=True) == 200  # nothing is left of the others


def test_a_sequence_whose_state_outgrows_the_bound_ends_by_name(folder: Path, start: Callable[..., Any]):
    models.folder(folder, growing=models.growing())
    (folder / "growing.json").write_text('{"state": {"x": "concat"}, "max_sequence_memory": 1000}')
    server = start()
    client, sequence = Client(server.http_port), {"sequence_id": 1}
    assert client.infer("growing", np.ones(80, np.float32), parameters={**sequence, "sequence_start": True})[0] == 200
    status, answer, _ = client.ask("POST", "/v2/models/growing/infer", {"inputs": [], "parameters": sequence})
    assert status == 429
    assert "max_sequence_memory" in answer["error"]
    assert len(server.repository.find("growing").sequences["main"]) == 0


def test_sequences_expire_though_nobody_asks(folder: Path, start: Callable[..., Any]):
    (folder / "rows.json").write_text('{"sequence_idle": 0.2}')
    server = start()
    assert Client(server.http_port).infer("rows", X, parameters={"sequence_id": 1, "sequence_start": True})[0] == 200
    sequences, end = server.repository.find("rows").sequences["main"], time.monotonic() + 20
    while len(sequences) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(sequences) == 0
