"""Every public method of Triton's four clients: it works, or is refused by an error that says so."""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models

MODULES = ("tritonclient.http", "tritonclient.grpc", "tritonclient.http.aio", "tritonclient.grpc.aio")
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
# A method → its arguments and what its answer says, in any form
WORKS: dict[str, tuple[tuple, str]] = {
    "is_server_live": ((), "True"),
    "is_server_ready": ((), "True"),
    "is_model_ready": (("rows",), "True"),
    "get_server_metadata": ((), "treadle"),
    "get_model_metadata": (("rows",), "relu"),
    "get_model_config": (("rows",), "max_batch_size"),
    "get_model_repository_index": ((), "mixed"),
    "unload_model": (("mixed",), "None"),
    "load_model": (("mixed",), "None"),
    "get_inference_statistics": (("rows",), "inference_stats"),
    "register_system_shared_memory": (("r", "KEY", 128), "None"),
    "get_system_shared_memory_status": ((), "KEY"),
    "unregister_system_shared_memory": (("r",), "None"),
    "get_cuda_shared_memory_status": ((), ""),
    "unregister_cuda_shared_memory": (("r",), "None"),
}
REFUSED: dict[str, tuple] = {
    "register_cuda_shared_memory": ("r", b"aGFuZGxl", 0, 64),
    "get_trace_settings": (),
    "update_trace_settings": ("rows", {}),
    "get_log_settings": (),
    "update_log_settings": ({},),
}
OF_THE_CLIENT = {"close", "plugin", "register_plugin", "unregister_plugin"}  # the server does not hear of them
INFER = {"infer", "async_infer", "async_stream_infer", "start_stream", "stop_stream", "stream_infer"}
INFER |= {"generate_request_body", "parse_response_body"}


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def told(module: Any, server: Any, ask: Callable[[Any], Any]) -> Any:
    """What `ask(client)` gives, of a client that waits or of one that is awaited."""
    port = server.grpc_port if "grpc" in module.__name__ else server.http_port
    if not module.__name__.endswith("aio"):
        client = module.InferenceServerClient(f"127.0.0.1:{port}")
        try:
            return ask(client)
        finally:
            client.close()

    async def run() -> Any:
        async with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
            answer = ask(client)
            return await answer if inspect.isawaitable(answer) else answer

    return asyncio.run(run())


def inputs(module: Any) -> list[Any]:
    value = module.InferInput("x", X.shape, "FP32")
    value.set_data_from_numpy(X)
    return [value]


def check(result: Any) -> None:
    np.testing.assert_allclose(result.as_numpy("relu"), models.expected(X), rtol=1e-5)


def test_each_method_is_in_the_table(module: Any):
    found = {name for name in dir(module.InferenceServerClient) if not name.startswith("_")}
    assert found <= {*WORKS, *REFUSED, *OF_THE_CLIENT, *INFER}


def test_methods_that_work(module: Any, folder: Path, start: Callable[..., Any]):
    server, memory = start(shared_memory=True), SharedMemory(create=True, size=128)
    try:
        for name, (arguments, text) in WORKS.items():
            given = [memory.name if each == "KEY" else each for each in arguments]
            answer = told(module, server, lambda client, name=name, given=given: getattr(client, name)(*given))
            assert (memory.name if text == "KEY" else text) in str(answer), name
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.parametrize("name", REFUSED)
def test_methods_that_are_refused(module: Any, folder: Path, start: Callable[..., Any], name: str):
    error = pytest.importorskip("tritonclient.utils").InferenceServerException
    with pytest.raises(error, match="this server has no such thing"):
        told(module, start(), lambda client: getattr(client, name)(*REFUSED[name]))


def test_inference(module: Any, folder: Path, start: Callable[..., Any]):
    check(told(module, start(), lambda client: client.infer("rows", inputs(module), request_id="1", client_timeout=20)
               if "grpc" in module.__name__ else client.infer("rows", inputs(module), request_id="1")))  # fmt: skip


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_inference(module: Any, folder: Path, start: Callable[..., Any], algorithm: str):
    names = ["compression_algorithm"] if "grpc" in module.__name__ else ["request", "response"]
    given = {name if len(names) == 1 else f"{name}_compression_algorithm": algorithm for name in names}
    check(told(module, start(), lambda client: client.infer("rows", inputs(module), **given)))


def test_bodies_that_the_client_makes_itself(folder: Path, start: Callable[..., Any]):
    import http.client

    module = pytest.importorskip("tritonclient.http")
    client = module.InferenceServerClient
    body, length = client.generate_request_body(inputs(module))
    connection = http.client.HTTPConnection("127.0.0.1", start().http_port, timeout=30)
    headers = {"Inference-Header-Content-Length": str(length)} if length is not None else {}
    connection.request("POST", "/v2/models/rows/infer", body, headers)
    response = connection.getresponse()
    found = response.getheader("Inference-Header-Content-Length")
    check(client.parse_response_body(response.read(), header_length=None if found is None else int(found)))


def test_asynchronous_inference_of_the_clients_that_wait(folder: Path, start: Callable[..., Any]):
    server = start()
    http, grpc = pytest.importorskip("tritonclient.http"), pytest.importorskip("tritonclient.grpc")
    check(told(http, server, lambda client: client.async_infer("rows", inputs(http)).get_result()))
    answers: queue.Queue = queue.Queue()

    def ask(client: Any) -> Any:
        client.async_infer("rows", inputs(grpc), lambda result, error: answers.put((result, error)))
        return answers.get(timeout=30)

    result, error = told(grpc, server, ask)
    assert error is None
    check(result)


def test_streams(folder: Path, start: Callable[..., Any]):
    server = start()
    waits, awaited = pytest.importorskip("tritonclient.grpc"), pytest.importorskip("tritonclient.grpc.aio")
    answers: queue.Queue = queue.Queue()

    def ask(client: Any) -> Any:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("rows", inputs(waits))
        client.async_stream_infer("nope", inputs(waits))
        found = answers.get(timeout=30), answers.get(timeout=30)
        client.stop_stream()
        return found

    first, second = told(waits, server, ask)
    check(first[0])
    assert "no model 'nope'" in str(second[1])

    async def requests() -> Any:
        yield {"model_name": "rows", "inputs": inputs(awaited)}

    async def first_of(client: Any) -> Any:
        async for result, error in client.stream_infer(requests()):
            return result, error

    result, error = told(awaited, server, first_of)
    assert error is None
    check(result)


# ---- the Open Inference Protocol's own example, its names aside ----


def test_the_protocol_s_example(folder: Path, start: Callable[..., Any]):
    """docs/predict-protocol: a request of two tensors by lists, flat and nested, with an id; an answer of one."""
    import treadle
    from treadle import Module, function, op, var

    from .test_http import Client

    first, second = var("input0", (2, 2), "uint32"), var("input1", (3,), "bool")
    executable = treadle.compile(Module(main=function([first, second], op.cast(first, dtype="float32"))))
    models.folder(folder, mymodel=executable)
    client = Client(start().http_port)
    request = {
        "id": "42",
        "inputs": [
            {"name": "input0", "shape": [2, 2], "datatype": "UINT32", "data": [1, 2, 3, 4]},
            {"name": "input1", "shape": [3], "datatype": "BOOL", "data": [True, False, True]},
        ],
    }
    _, metadata, _ = client.ask("GET", "/v2/models/mymodel")
    name = metadata["outputs"][0]["name"]
    request["outputs"] = [{"name": name}]
    status, answer, _ = client.ask("POST", "/v2/models/mymodel/infer", request)
    assert status == 200
    assert answer == {
        "model_name": "mymodel",
        "model_version": "1",
        "id": "42",
        "outputs": [{"name": name, "shape": [2, 2], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}],
    }
    request["inputs"][0]["data"] = [[1, 2], [3, 4]]
    assert client.ask("POST", "/v2/models/mymodel/infer", request)[1] == answer
