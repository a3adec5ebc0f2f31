"""The protocol over gRPC, and Triton's own clients over both transports."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import models

grpc = pytest.importorskip("grpc")
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture
def clients(folder: Path, start: Callable[..., Any]) -> list[tuple[Any, Any]]:
    """Triton's modules for both transports, and a client of each."""
    modules = [pytest.importorskip("tritonclient.http"), pytest.importorskip("tritonclient.grpc")]
    server = start(shared_memory=True)
    ports = [server.http_port, server.grpc_port]
    return [
        (module, module.InferenceServerClient(f"127.0.0.1:{port}")) for module, port in zip(modules, ports, strict=True)
    ]


def inputs(module: Any, x: np.ndarray = X) -> list[Any]:
    value = module.InferInput("x", x.shape, "FP32")
    value.set_data_from_numpy(x)
    return [value]


def test_the_messages_are_the_protocol_s():
    service = pytest.importorskip("tritonclient.grpc.service_pb2")
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    from treadle.serve.grpc_messages import TABLE, _rows, message

    def theirs(name: str) -> Any:
        first, *rest = name.split(".")
        found = service.DESCRIPTOR.message_types_by_name.get(first) or config.DESCRIPTOR.message_types_by_name[first]
        for part in rest:
            found = found.nested_types_by_name[part]
        return found

    for name in _rows(TABLE):
        for field in message(name).DESCRIPTOR.fields:
            other = theirs(name).fields_by_name[field.name]
            assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)


def test_triton_s_clients_see_what_there_is(clients: list[tuple[Any, Any]]):
    for module, client in clients:
        as_json = {} if "http" in module.__name__ else {"as_json": True}
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("rows")
        assert not client.is_model_ready("nope")
        assert client.get_server_metadata(**as_json)["name"] == "treadle"
        assert client.get_model_metadata("rows", **as_json)["outputs"][0]["name"] == "relu"
        config = client.get_model_config("rows", **as_json)
        assert config.get("config", config)["max_batch_size"] == 32
        client.unload_model("mixed")
        client.load_model("mixed", config='{"max_queue": 3}')
        index = client.get_model_repository_index(**as_json)
        assert {each["name"] for each in (index if isinstance(index, list) else index["models"])} == {"rows", "mixed"}
        client.infer("rows", inputs(module))
        stats = client.get_inference_statistics("rows", **as_json)["model_stats"][0]
        assert int(stats["inference_stats"]["success"]["count"]) >= 1


def test_triton_s_clients_infer(clients: list[tuple[Any, Any]]):
    for module, client in clients:
        result = client.infer("rows", inputs(module), request_id="7", outputs=[module.InferRequestedOutput("relu")])
        np.testing.assert_allclose(result.as_numpy("relu"), models.expected(X), rtol=1e-5)
        with pytest.raises(module.InferenceServerException, match="no model 'nope'"):
            client.infer("nope", inputs(module))
        with pytest.raises(module.InferenceServerException, match="expected FP32"):
            client.infer("rows", inputs(module, X[:, :7].copy()))


def test_triton_s_clients_infer_asynchronously(clients: list[tuple[Any, Any]]):
    (http, http_client), (rpc, rpc_client) = clients
    pending = [http_client.async_infer("rows", inputs(http)) for _ in range(4)]
    for each in pending:
        np.testing.assert_allclose(each.get_result().as_numpy("relu"), models.expected(X), rtol=1e-5)
    answers: queue.Queue = queue.Queue()
    for _ in range(4):
        rpc_client.async_infer("rows", inputs(rpc), lambda result, error: answers.put((result, error)))
    for _ in range(4):
        result, error = answers.get(timeout=20)
        assert error is None
        np.testing.assert_allclose(result.as_numpy("relu"), models.expected(X), rtol=1e-5)


def test_a_stream_has_one_answer_for_each_request(clients: list[tuple[Any, Any]]):
    module, client = clients[1]
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(6):
        client.async_stream_infer("nope" if number == 3 else "rows", inputs(module, X * number), request_id=str(number))
    for number in range(6):
        result, error = answers.get(timeout=20)
        if number == 3:
            assert "no model 'nope'" in str(error)
        else:
            assert result.get_response().id == str(number)
            np.testing.assert_allclose(result.as_numpy("relu"), models.expected(X * number), rtol=1e-5)
    client.stop_stream()


def test_triton_s_shared_memory(clients: list[tuple[Any, Any]]):
    memory = pytest.importorskip("tritonclient.utils.shared_memory")
    for module, client in clients:
        region = memory.create_shared_memory_region("in", "/treadle_test", X.nbytes + 48)
        try:
            memory.set_shared_memory_region(region, [X])
            client.register_system_shared_memory("r", "/treadle_test", X.nbytes + 48)
            value = module.InferInput("x", X.shape, "FP32")
            value.set_shared_memory("r", X.nbytes)
            wanted = module.InferRequestedOutput("relu")
            wanted.set_shared_memory("r", 48, X.nbytes)
            client.infer("rows", [value], outputs=[wanted])
            result = memory.get_contents_as_numpy(region, np.float32, (3, 4), X.nbytes)
            np.testing.assert_allclose(result, models.expected(X), rtol=1e-5)
            client.unregister_system_shared_memory("r")
        finally:
            memory.destroy_shared_memory_region(region)


@pytest.fixture
def call(folder: Path, start: Callable[..., Any]) -> Callable[..., Any]:
    """`call(request, timeout)` over gRPC, of a dictionary."""
    from treadle.serve.grpc_messages import SERVICE, message

    models.folder(folder, slow=models.slow())
    channel = grpc.insecure_channel(f"127.0.0.1:{start().grpc_port}")
    infer = channel.unary_unary(
        f"/{SERVICE}/ModelInfer",
        request_serializer=lambda each: each.SerializeToString(),
        response_deserializer=message("ModelInferResponse").FromString,
    )
    return lambda timeout=20.0, **fields: infer(message("ModelInferRequest")(**fields), timeout=timeout)


def refused(call: Callable[..., Any], code: Any, **fields: Any) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        call(**fields)
    assert raised.value.code() is code, raised.value
    return raised.value.details()


def test_a_truth_value_is_no_timeout(call: Callable[..., Any]):
    fields = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3, 8]}], "raw_input_contents": [X.tobytes()]}
    parameters = {"timeout": {"bool_param": True}}
    details = refused(call, grpc.StatusCode.INVALID_ARGUMENT, model_name="rows", parameters=parameters, **fields)
    assert "timeout" in details


def test_typed_contents_are_taken(call: Callable[..., Any]):
    tensor = {"name": "x", "datatype": "FP32", "shape": [3, 8], "contents": {"fp32_contents": X.reshape(-1).tolist()}}
    answer = call(model_name="rows", inputs=[tensor])
    result = np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(3, 4)
    np.testing.assert_allclose(result, models.expected(X), rtol=1e-5)


def test_what_does_not_fit_is_an_invalid_argument(call: Callable[..., Any]):
    code = grpc.StatusCode.INVALID_ARGUMENT
    tensor = {"name": "x", "datatype": "FP32", "shape": [3, 8]}
    assert "no contents" in refused(call, code, model_name="rows", inputs=[tensor])
    assert "96 bytes" in refused(call, code, model_name="rows", inputs=[tensor], raw_input_contents=[b"1234"])
    two = [X.tobytes()] * 2
    assert "more than the inputs" in refused(call, code, model_name="rows", inputs=[tensor], raw_input_contents=two)
    assert "comes twice" in refused(call, code, model_name="rows", inputs=[tensor] * 2, raw_input_contents=two)
    wide = {**tensor, "shape": [-1, 8]}
    assert "its shape" in refused(call, code, model_name="rows", inputs=[wide], raw_input_contents=[b""])
    short = {**tensor, "contents": {"fp32_contents": [1.0]}}
    assert "has 24 elements" in refused(call, code, model_name="rows", inputs=[short])
    large = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [300]}}
    assert "INT8 holds -128 to 127" in refused(call, code, model_name="rows", inputs=[large])


def test_a_deadline_ends_the_call_and_the_server_lives_on(call: Callable[..., Any]):
    one = {"name": "x", "datatype": "FP32", "shape": [1]}
    begin = time.monotonic()
    refused(
        call,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        model_name="slow",
        inputs=[one],
        raw_input_contents=[np.ones(1, np.float32).tobytes()],
        timeout=0.3,
    )
    assert time.monotonic() - begin < 5
    tensor = {"name": "x", "datatype": "FP32", "shape": [3, 8]}
    assert call(model_name="rows", inputs=[tensor], raw_input_contents=[X.tobytes()]).outputs[0].name == "relu"


def test_tls_and_tokens_over_grpc(folder: Path, start: Callable[..., Any], tmp_path: Path):
    import subprocess

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    extra = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(f"{command} {extra}".split(), check=True, capture_output=True)
    (tmp_path / "tokens").write_text("secret\n")
    module = pytest.importorskip("tritonclient.grpc")
    server = start(certificate=str(certificate), key=str(key), tokens=str(tmp_path / "tokens"))
    client = module.InferenceServerClient(f"localhost:{server.grpc_port}", ssl=True, root_certificates=str(certificate))
    assert client.is_server_ready()
    with pytest.raises(module.InferenceServerException, match="Bearer TOKEN"):
        client.infer("rows", inputs(module))
    client.infer("rows", inputs(module), headers={"authorization": "Bearer secret"})


def test_clients_without_a_certificate_are_turned_away(folder: Path, start: Callable[..., Any], tmp_path: Path):
    import ssl
    import subprocess
    import urllib.error
    import urllib.request

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    extra = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(f"{command} {extra}".split(), check=True, capture_output=True)
    server = start(certificate=str(certificate), key=str(key), client_ca=str(certificate))
    url = f"https://localhost:{server.http_port}/v2/health/live"
    context = ssl.create_default_context(cafile=str(certificate))
    with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)):
        urllib.request.urlopen(url, context=context, timeout=20)
    context.load_cert_chain(certificate, key)
    assert urllib.request.urlopen(url, context=context, timeout=20).status == 200
