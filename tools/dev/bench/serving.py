"""The server's overhead over a model's own time: `treadle bench serve`.

1 KB goes in and comes out, over one connection that stays open, as bytes. Beside our server stand ones that do nothing: uvicorn
with an application, and gRPC with a method, that echo their input; so what Treadle adds can be told from what these take. The
clients are a socket for HTTP, and gRPC's own with a message that is made already.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .throughput import GrpcClients, HttpClient, listening, open_inference, served

_ELEMENTS = 256  # float32: 1 KB
_CALLS = 200  # a turn


def measure_serve(repeat: int) -> dict[str, Any]:
    """Median microseconds: of the model alone, of a request over HTTP and gRPC, and of one to servers that do nothing."""
    from .... import Module, VirtualMachine, compile, function, load, op, var

    x = var("x", (1, _ELEMENTS))
    row = np.random.default_rng(0).standard_normal((1, _ELEMENTS)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder) / "model.trdl"
        compile(Module(main=function([x], op.relu(x))), progress=False).export_library(path)
        call = VirtualMachine(load(path))["main"]
        clients: dict[str, Callable[[], object]] = {"model": lambda: call(row)}
        servers = {"": served(Path(folder)), "idle_": listening(_IDLE_SERVERS)}
        for name, server in servers.items():
            ports = stack.enter_context(server)
            http = HttpClient(ports["HTTP"], open_inference({"x": row})[0])
            clients[f"{name}http"] = stack.enter_context(http).call
            clients[f"{name}grpc"] = stack.enter_context(GrpcClients(ports["gRPC"], {"x": row})).call
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
