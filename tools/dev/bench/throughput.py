"""Requests a second under load: `treadle bench throughput`, against LitServe and MLServer around onnxruntime on the same cores.

A model, 1, 8 or 64 clients that each ask again when they are answered, batching on or off: all servers are started at once, and
measured in turns, so that what else the machine does meets them alike. One process plays all clients. Each server is asked in
the way that costs it the least: ours over HTTP with tensors as bytes, MLServer over gRPC, where alone it takes bytes; LitServe,
which reads JSON, with base64. Rivals run in environments of their own, which `make throughput` makes.

    requests_per_second, p50_ms, p99_ms          of each server; ratio: ours to the best rival, of requests, and of p99
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import queue
import random
import selectors
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ....formats.messages.errors import TreadleError
from ....native import processes

CLIENTS = (1, 8, 64)
MODELS = ("mlp", "minilm", "resnet50")
_LARGEST_BATCH = 32  # rows of a merged call
_DELAY = 0.002  # seconds that a batch waits for more, for all servers the same
_TURNS = 2
_WARM = 1  # requests of each client that are not counted
_START_SECONDS = 120.0
_RIVALS = {"litserve": "rivals/lit_server.py", "mlserver": "rivals/ml_server.py"}  # programs in tools/rivals
Request = tuple[bytes, Any]  # what is sent, and a function that reads the first output from an answer's head and body


def add_options(bench: argparse.ArgumentParser) -> None:
    """The options of `treadle bench throughput`."""
    bench.add_argument("--seconds", type=float, default=2.0, metavar="S", help="throughput: of a turn (default: 2)")
    bench.add_argument(
        "--environments", type=Path, default=Path(".venv"), metavar="FOLDER", help="throughput: where rivals are"
    )


def throughput_command(options: argparse.Namespace) -> int:
    """Measures, and prints a line of JSON for each model, number of clients and batching."""
    names = options.only.split(",") if isinstance(options.only, str) else options.only or MODELS
    for name in names:
        for is_merged in (True, False):
            for row in measure(name, is_merged, options.seconds, options.environments):
                print(json.dumps(row), flush=True)
    return 0


def measure(name: str, is_merged: bool, seconds: float, environments: Path) -> Iterator[dict[str, Any]]:
    """The rows of one model, as clients are more and more. Servers whose environment is not there are left out."""
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as stack:
        folder = Path(text)
        model, feeds = _prepare(name, folder, is_merged)
        port = stack.enter_context(served(folder / "models"))["HTTP"]
        servers: dict[str, _Clients] = {"treadle": _HttpClients(port, open_inference(feeds))}
        for rival in _RIVALS:
            python = environments / f"{rival}-rival" / "bin" / "python"
            if python.exists():
                batch = _LARGEST_BATCH if is_merged else 1
                port = stack.enter_context(_rival(python, rival, model, _free_ports(), batch))
                if rival == "mlserver":
                    servers[rival] = stack.enter_context(GrpcClients(port + 1, feeds))
                else:
                    servers[rival] = _HttpClients(port, _lit(feeds))
        _check_alike(servers)
        for clients in CLIENTS:
            times: dict[str, list[float]] = {server: [] for server in servers}
            spent = dict.fromkeys(servers, 0.0)
            for _ in range(_TURNS):
                for server, each in servers.items():
                    found, took = each.load(clients, seconds)
                    times[server] += found
                    spent[server] += took
            yield _row(name, clients, is_merged, times, spent)


def _row(
    name: str, clients: int, is_merged: bool, times: Mapping[str, list[float]], spent: Mapping[str, float]
) -> dict[str, Any]:
    found = {
        server: {
            "requests_per_second": round(len(each) / spent[server], 1),
            "p50_ms": round(statistics.median(each) * 1e3, 3),
            "p99_ms": round(float(np.quantile(each, 0.99)) * 1e3, 3),
        }
        for server, each in times.items()
    }
    row: dict[str, Any] = {"model": name, "clients": clients, "batching": is_merged, **found}
    rivals = [each for server, each in found.items() if server != "treadle"]
    if rivals:
        best, least = (max(each["requests_per_second"] for each in rivals), min(each["p99_ms"] for each in rivals))
        row["requests_ratio"] = round(found["treadle"]["requests_per_second"] / best, 2)
        row["p99_ratio"] = round(found["treadle"]["p99_ms"] / least, 2)
    return row


# ---- models ----


def _prepare(name: str, folder: Path, is_merged: bool) -> tuple[Path, dict[str, np.ndarray]]:
    """The model as ONNX and as an executable in folder/models, and what is asked of it: one row."""
    import onnx

    from .... import compile
    from ..zoo.bert import bert
    from ..zoo.catalogue import Entry, inputs
    from ..zoo.mlp import mlp
    from ..zoo.resnet import resnet

    entries = {
        "mlp": Entry("mlp", partial(mlp, batch="b"), {"b": 1}),
        "minilm": Entry("minilm", partial(bert, 6, 384, 12, vocabulary=5000, batch="b", length=64), {"b": 1}),
        "resnet50": Entry("resnet50", partial(resnet, 50, batch="b"), {"b": 1}),
    }
    if name not in entries:
        raise TreadleError(f"throughput of {name!r} is not measured; there are {', '.join(entries)}")
    built = entries[name].build()
    path = folder / "model.onnx"
    onnx.save(built, path)
    models = folder / "models"
    models.mkdir()
    compile(built, progress=False).export_library(models / "model.trdl")
    config = {"max_batch": _LARGEST_BATCH, "max_delay": _DELAY} if is_merged else {"batching": False}
    (models / "model.json").write_text(json.dumps(config | {"max_queue": 1024}))
    return path, inputs(entries[name], built)


# ---- servers ----


def served(folder: Path) -> contextlib.AbstractContextManager[dict[str, int]]:
    """A server of this folder, and its ports by protocol."""
    return listening(processes.module("treadle"), "serve", folder, "--http-port", "0", "--grpc-port", "0")


@contextlib.contextmanager
def listening(code: str, *arguments: object) -> Iterator[dict[str, int]]:
    """A child that runs this code, and says on which ports it listens: `HTTP on HOST:PORT`, and `gRPC on …`."""
    child = processes.start(code, *arguments, stderr=processes.PIPE, text=True)
    assert child.stderr is not None
    ports: dict[str, int] = {}
    try:
        while len(ports) < 2:
            line = child.stderr.readline()
            if not line:
                raise TreadleError(f"the server has ended: {child.wait()}")
            ports |= {name: int(line.rsplit(":", 1)[1]) for name in ("HTTP", "gRPC") if f"{name} on " in line}
        yield ports
    finally:
        _end(child)


@contextlib.contextmanager
def _rival(python: Path, rival: str, model: Path, port: int, batch: int) -> Iterator[int]:
    command = [
        str(python.absolute()),
        str(Path(__file__).parent / "rivals" / _RIVALS[rival]),
        str(model),
        str(port),
        str(batch),
    ]
    with open(model.parent / f"{rival}.log", "w+b") as log:
        child = processes.start_program(command, stdout=log, stderr=log, cwd=model.parent, start_new_session=True)
        try:
            end = time.monotonic() + _START_SECONDS
            while not _is_ready(port, "/health" if rival == "litserve" else "/v2/models/model/ready"):
                if child.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise TreadleError(f"{rival} has not started:\n{log.read()[-2000:].decode(errors='replace')}")
                time.sleep(0.1)
            yield port
        finally:
            _end(child)
            with contextlib.suppress(ProcessLookupError):  # LitServe leaves processes of its own behind
                os.killpg(child.pid, signal.SIGKILL)


def _end(child: processes.Process) -> None:
    """Ends a server that this started."""
    child.terminate()
    try:
        child.wait(20)
    except processes.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stderr is not None:
        child.stderr.close()


def _free_ports(count: int = 3) -> int:
    """The first of some in a row that are free, below those that the system gives to clients."""
    for first in random.sample(range(20_000, 32_000, count), 100):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise TreadleError("no ports are free between 20000 and 32000")


def _is_ready(port: int, path: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(64).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


# ---- what is asked ----


def _post(path: str, body: bytes, *headers: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join([*lines, "\r\n"]).encode() + body


_TYPES = {"f4": "FP32", "i8": "INT64"}


def open_inference(feeds: Mapping[str, np.ndarray]) -> Request:
    """The Open Inference Protocol's, with tensors as bytes."""
    tensors = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": _TYPES[array.dtype.str[1:]],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in feeds.items()
    ]
    head = json.dumps({"inputs": tensors, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([head, *(array.tobytes() for array in feeds.values())])
    headers = ("Content-Type: application/octet-stream", f"Inference-Header-Content-Length: {len(head)}")

    def read(head: bytes, body: bytes) -> np.ndarray:
        size = _header(head, b"inference-header-content-length")
        first = json.loads(body[:size])["outputs"][0]
        return np.frombuffer(body, np.float32, first["parameters"]["binary_data_size"] // 4, size)

    return _post("/v2/models/model/infer", body, *headers), read


def _lit(feeds: Mapping[str, np.ndarray]) -> Request:
    values = {
        name: {"shape": array.shape, "dtype": array.dtype.str, "data": base64.b64encode(array.tobytes()).decode()}
        for name, array in feeds.items()
    }

    def read(_: bytes, body: bytes) -> np.ndarray:
        return np.frombuffer(base64.b64decode(next(iter(json.loads(body).values()))["data"]), np.float32)

    return _post("/predict", json.dumps(values).encode(), "Content-Type: application/json"), read


def _first_of_proto(answer: Any) -> np.ndarray:
    """The first output of a ModelInferResponse."""
    if answer.raw_output_contents:
        return np.frombuffer(answer.raw_output_contents[0], np.float32)
    return np.array(answer.outputs[0].contents.fp32_contents, np.float32)


def _check_alike(servers: Mapping[str, _Clients]) -> None:
    """Raises TreadleError unless all servers give the same, but for rounding."""
    expected: np.ndarray | None = None
    for name, clients in servers.items():
        found = clients.first()
        if expected is None:
            expected = found
        elif found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-2, atol=1e-3):
            raise TreadleError(f"{name} computes something else: largest difference {np.abs(found - expected).max()}")


# ---- clients ----


class HttpClient:
    """One connection, with one request under way at a time."""

    def __init__(self, port: int, request: bytes) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), 60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self.head = self.body = self.status = b""
        self.since = 0.0

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def call(self) -> bytes:
        """Asks, and gives the answer's body. Raises TreadleError."""
        self.ask()
        while not self.hear():
            pass
        return self.body

    def ask(self) -> None:
        self._parts: list[bytes] = []
        self._missing: int | None = None
        self.since = time.perf_counter()
        self.connection.sendall(self._request)

    def hear(self) -> bool:
        """Takes what has come; whether it is the whole answer."""
        data = self.connection.recv(1 << 20)
        if not data:
            raise TreadleError("the server has closed the connection")
        if self._missing is None:
            data = b"".join((*self._parts, data))
            self.head, end, data = data.partition(b"\r\n\r\n")
            if not end:
                self._parts = [self.head]
                return False
            self._parts, self.status = [], self.head.split(b" ", 2)[1]
            self._missing = _header(self.head, b"content-length")
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return False
        self.body = b"".join(self._parts)
        if self.status != b"200":
            raise TreadleError(f"a request is answered with {self.status!r}: {self.body[:200]!r}")
        return True


def _header(head: bytes, name: bytes) -> int:
    """The number of a header; 0 where there is none."""
    _, found, rest = head.lower().partition(b"\r\n" + name + b":")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


class _Clients(Protocol):
    """Ways to ask one server."""

    def first(self) -> np.ndarray:
        """The first output of one request. Raises TreadleError."""

    def load(self, clients: int, seconds: float) -> tuple[list[float], float]:
        """The time of each request of `clients` clients, and how long that took in all. Raises TreadleError."""


class _HttpClients:
    def __init__(self, port: int, request: Request) -> None:
        self._port, (self._request, self._read) = port, request

    def first(self) -> np.ndarray:
        with HttpClient(self._port, self._request) as client:
            body = client.call()
            return self._read(client.head, body)

    def load(self, clients: int, seconds: float) -> tuple[list[float], float]:
        watch = _Watch(clients, seconds)
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            for _ in range(clients):
                client = stack.enter_context(HttpClient(self._port, self._request))
                selector.register(client.connection, selectors.EVENT_READ, client)
                client.ask()
            while not watch.is_over:
                for key, _ in selector.select(60):
                    if key.data.hear():
                        watch.answered(key.data.since)
                        key.data.ask()
        return watch.times, watch.spent


class GrpcClients:
    """Clients of gRPC in one process: each answer is awaited by a callback, which wakes the thread that asks again."""

    def __init__(self, port: int, feeds: Mapping[str, np.ndarray]) -> None:
        import grpc

        from ....serve.grpc_messages import SERVICE, message

        inputs = [
            {"name": name, "datatype": _TYPES[array.dtype.str[1:]], "shape": array.shape}
            for name, array in feeds.items()
        ]
        raw = [array.tobytes() for array in feeds.values()]
        request = message("ModelInferRequest")(model_name="model", inputs=inputs, raw_input_contents=raw)
        self._request, self._response = request.SerializeToString(), message("ModelInferResponse")
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_receive_message_length", -1)])
        self._infer = self._channel.unary_unary(f"/{SERVICE}/ModelInfer")

    def __enter__(self) -> GrpcClients:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self) -> bytes:
        """Asks once, and gives the answer."""
        return self._infer(self._request, timeout=60, wait_for_ready=True)

    def first(self) -> np.ndarray:
        return _first_of_proto(self._response.FromString(self.call()))

    def load(self, clients: int, seconds: float) -> tuple[list[float], float]:
        watch = _Watch(clients, seconds)
        answers: queue.SimpleQueue[tuple[float, Any]] = queue.SimpleQueue()

        def ask() -> None:
            since = time.perf_counter()
            self._infer.future(self._request, timeout=60).add_done_callback(lambda each: answers.put((since, each)))

        for _ in range(clients):
            ask()
        while not watch.is_over:
            since, answer = answers.get(timeout=60)
            answer.result()
            watch.answered(since)
            ask()
        for _ in range(clients):  # what is under way must not burden the next
            answers.get(timeout=60)
        return watch.times, watch.spent


class _Watch:
    """The times of a turn, without those of the first requests. It ends with a whole round of the clients, since many may be
    answered at once, by a call that lasts as long as a turn."""

    def __init__(self, clients: int, seconds: float) -> None:
        self._clients, self._warm, self._seconds, self._start = clients, clients * _WARM, seconds, time.perf_counter()
        self.times: list[float] = []
        self.spent = 0.0

    def answered(self, since: float) -> None:
        now = time.perf_counter()
        if self._warm:
            self._warm -= 1
            self._start = now
        elif not self.is_over:
            self.times.append(now - since)
            self.spent = now - self._start

    @property
    def is_over(self) -> bool:
        return bool(self.times) and self.spent >= self._seconds and len(self.times) % self._clients == 0
