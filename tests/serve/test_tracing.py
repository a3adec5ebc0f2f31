"""Spans of OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models
from .test_http import Client

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
X = np.zeros((3, 8), np.float32)


@pytest.fixture
def provider() -> Any:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    made = sdk.TracerProvider()
    made.exporter = InMemorySpanExporter()
    made.add_span_processor(SimpleSpanProcessor(made.exporter))
    return made


def spans(provider: Any) -> list[Any]:
    return list(provider.exporter.get_finished_spans())


def check(span: Any, **attributes: Any) -> None:
    """A server's span within the caller's trace, of 3 rows of the model "rows"."""
    assert (span.name, span.kind.name) == ("infer rows", "SERVER")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    said = {"treadle.model": "rows", "treadle.version": 1, "treadle.function": "main", "treadle.rows": 3}
    assert {**span.attributes, **said, **attributes} == dict(span.attributes)
    assert 0 <= span.attributes["treadle.queue_seconds"] < 20
    assert 0 < span.attributes["treadle.compute_seconds"] < 20


def test_a_request_over_http_is_a_span(folder: Path, start: Callable[..., Any], provider: Any):
    client = Client(start(tracer_provider=provider).http_port)
    body = {"inputs": [{"name": "x", "shape": [3, 8], "datatype": "FP32", "data": X.tolist()}]}
    for _ in range(5):  # in another thread at first, then where it was read
        assert client.ask("POST", "/v2/models/rows/infer", body, traceparent=TRACEPARENT)[0] == 200
    found = spans(provider)
    assert len(found) == 5
    for span in found:
        check(span, **{"network.protocol.name": "http"})


def test_a_request_over_grpc_is_a_span(folder: Path, start: Callable[..., Any], provider: Any):
    import grpc
    from treadle.serve.grpc_messages import SERVICE, message

    request = message("ModelInferRequest")(
        model_name="rows",
        inputs=[{"name": "x", "datatype": "FP32", "shape": X.shape}],
        raw_input_contents=[X.tobytes()],
    )
    with grpc.insecure_channel(f"127.0.0.1:{start(tracer_provider=provider).grpc_port}") as channel:
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        infer(request.SerializeToString(), metadata=[("traceparent", TRACEPARENT), ("some-bin", b"\0")])
    (span,) = spans(provider)
    check(span, **{"network.protocol.name": "grpc"})


def test_errors_are_in_their_spans(folder: Path, start: Callable[..., Any], provider: Any):
    models.folder(folder, slow=models.slow())
    client = Client(start(tracer_provider=provider).http_port)
    assert client.infer("nothing", X)[0] == 404
    assert client.infer("rows", X[:, :1])[0] == 400
    assert client.infer("slow", np.ones(1, np.float32), parameters={"timeout": 100_000})[0] == 504
    missing, wrong, late = spans(provider)
    assert (missing.name, missing.attributes["error.type"], missing.status.is_ok) == ("infer", "NOT_FOUND", True)
    assert wrong.attributes["error.type"] == "INVALID_ARGUMENT"
    assert (late.name, late.attributes["error.type"]) == ("infer slow", "DEADLINE_EXCEEDED")
    assert not late.status.is_ok
    assert late.parent is None


def test_the_provider_of_the_process_is_found(provider: Any, monkeypatch: pytest.MonkeyPatch):
    from opentelemetry import trace
    from treadle.serve.tracing import Tracing

    assert Tracing.found() is None
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    tracing = Tracing.found()
    assert tracing is not None
    tracing.start([]).end()
    assert len(spans(provider)) == 1


def test_nothing_is_imported_unless_a_provider_is_there(folder: Path):
    pytest.importorskip("uvicorn")
    code = f"""
import sys
from treadle.serve.server import Server, ServerConfig
server = Server(ServerConfig({str(folder)!r}))
print(server.tracing, [name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "None []"
