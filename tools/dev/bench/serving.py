"""The server's overhead over a model's own time: `treadle bench serve`.

1 KB goes in and comes out, over one connection that stays open, as bytes. Beside our server stand ones that do nothing: uvicorn
with an application, and gRPC with a method, that echo their input; so what Treadle adds can be told from what these take. The
clients are a socket for HTTP, and gRPC's own with a message that is made already.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....native import processes

_ELEMENTS = 256  # float32: 1 KB
_CALLS = 200  # a turn


def measure_serve(repeat: int) -> dict[str, Any]:
    """Median microseconds: of the model alone, of a request over HTTP and gRPC, and of one to servers that do nothing."""
    import numpy as np

    from .... import Module, VirtualMachine, compile, function, load, op, var

    x = var("x", (1, _ELEMENTS))
    row = np.random.default_rng(0).standard_normal((1, _ELEMENTS)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "model.trdl"
        compile(Module(main=function([x], op.relu(x))), progress=False).export_library(path)
        call = VirtualMachine(load(path))["main"]
        ports = stack.enter_context(served(folder))
        idle = stack.enter_context(_process(_IDLE_SERVERS))
        clients = {
            "model": lambda: call(row),
            "http": stack.enter_context(http_client(ports["HTTP"], row)),
            "grpc": stack.enter_context(grpc_client(ports["gRPC"], row)),
            "idle_http": stack.enter_context(http_client(idle["HTTP"], row)),
            "idle_grpc": stack.enter_context(grpc_client(idle["gRPC"], row)),
        }
        times: dict[str, list[float]] = {name: [] for name in clients}
        for turn in range(repeat + 1):
            for name, client in clients.items():
                found = _timed(client)
                times[name] += found if turn else []  # the first is to get warm
    medians = {f"{name}_us": statistics.median(each) * 1e6 for name, each in times.items()}
    over = {f"{name}_over_model_us": medians[f"{name}_us"] - medians["model_us"] for name in ("http", "grpc")}
    return medians | over


def _timed(call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def served(folder: str | Path, threads: int | None = None) -> contextlib.AbstractContextManager[dict[str, int]]:
    """A server of this folder, whose calls use `threads` threads, and what `_process` says of it."""
    environment = os.environ | ({"TREADLE_NUM_THREADS": str(threads)} if threads else {})
    arguments = ("serve", folder, "--http-port", "0", "--grpc-port", "0")
    return _process(processes.module("treadle"), *arguments, env=environment)


@contextlib.contextmanager
def _process(code: str, *arguments: object, **options: Any) -> Iterator[dict[str, int]]:
    """A child that runs this code, and says on which ports it listens: `HTTP on HOST:PORT`. Its number is added as `pid`."""
    child = processes.start(code, *arguments, stderr=processes.PIPE, text=True, **options)
    assert child.stderr is not None
    ports: dict[str, int] = {}
    try:
        while len(ports) < 2:
            line = child.stderr.readline()
            if not line:
                raise RuntimeError(f"the server has ended: {child.wait()}")
            for name in ("HTTP", "gRPC"):
                if f"{name} on " in line:
                    ports[name] = int(line.rsplit(":", 1)[1])
        yield ports | {"pid": child.pid}
    finally:
        child.terminate()
        child.wait()
        child.stderr.close()


@contextlib.contextmanager
def http_client(port: int, row: Any) -> Iterator[Callable[[], bytes]]:
    """A call that asks for these rows over a connection that stays open, and gives the answer's body."""
    tensor = {"name": "x", "shape": list(row.shape), "datatype": "FP32", "parameters": {"binary_data_size": row.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body = head + row.tobytes()
    lines = [
        "POST /v2/models/model/infer HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        f"Inference-Header-Content-Length: {len(head)}",
    ]
    request = "\r\n".join([*lines, "\r\n"]).encode() + body
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call() -> bytes:
            connection.sendall(request)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += received(connection)
            head, _, rest = answer.partition(b"\r\n\r\n")
            at = head.lower().index(b"content-length:", head.lower().index(b"\r\n"))
            while head.lower()[at - 1 : at] == b"-":  # that of the JSON
                at = head.lower().index(b"content-length:", at + 1)
            length = int(head[at:].split(b"\r\n")[0].split(b":")[1])
            while len(rest) < length:
                rest += received(connection)
            return rest

        yield call


def received(connection: socket.socket) -> bytes:
    """The next bytes. Raises ConnectionError if the server has closed, as it does after some seconds without a request."""
    if not (data := connection.recv(1 << 16)):
        raise ConnectionError("the server has closed the connection")
    return data


@contextlib.contextmanager
def grpc_client(port: int, row: Any) -> Iterator[Callable[[], bytes]]:
    """The same over gRPC; the answer is the message's bytes."""
    import grpc

    from ....serve.grpc_messages import SERVICE, message

    tensor = {"name": "x", "datatype": "FP32", "shape": row.shape}
    request = message("ModelInferRequest")(model_name="model", inputs=[tensor], raw_input_contents=[row.tobytes()])
    data = request.SerializeToString()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        yield lambda: infer(data)


_IDLE_SERVERS = """
import sys
from concurrent import futures
import grpc, uvicorn

async def app(scope, receive, send):
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})

method = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers(
    (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": method}),)
)
print(f"gRPC on 127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", file=sys.stderr, flush=True)
server.start()
config = uvicorn.Config(app, port=0, log_level="error", access_log=False, lifespan="off")
socket = config.bind_socket()
socket.listen()  # who reads the next line may ask at once
print(f"HTTP on 127.0.0.1:{socket.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(config).run([socket])
"""
