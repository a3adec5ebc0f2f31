"""Texts (BYTES) over both transports: as the protocol has them, and never as the numbers that they are in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle import errors
from treadle.formats import strings

from . import models
from .test_http import Client

TEXTS = ["a", "", "é\0", "x" * 300]
TWICE = [2 * text for text in TEXTS]
ENTRY = {"name": "x", "shape": [2, 2], "datatype": "BYTES"}


def packed(texts: list[str]) -> bytes:
    return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)


@pytest.fixture
def server(folder: Path, start: Callable[..., Any]) -> Any:
    models.folder(folder, texts=models.texts())
    return start(shared_memory=True)


@pytest.fixture
def client(server: Any) -> Client:
    return Client(server.http_port)


def ask(client: Client, entry: dict[str, Any], data: bytes = b"", **fields: Any) -> tuple[int, Any, dict[str, str]]:
    head = json.dumps({"inputs": [entry], **fields}).encode()
    length = {"Inference_Header_Content_Length": str(len(head))} if data else {}
    return client.ask("POST", "/v2/models/texts/infer", head + data, **length)


def test_texts_as_json(client: Client):
    assert client.ask("GET", "/v2/models/texts")[1]["inputs"] == [{"name": "x", "datatype": "BYTES", "shape": [-1, 2]}]
    assert client.ask("GET", "/v2/models/texts/config")[1]["input"][0]["data_type"] == "TYPE_STRING"
    status, answer, _ = ask(client, {**ENTRY, "data": TEXTS})
    assert status == 200
    assert answer["outputs"][0] == {**ENTRY, "name": answer["outputs"][0]["name"], "data": TWICE}


def test_texts_as_bytes(client: Client):
    data = packed(TEXTS)
    entry = {**ENTRY, "parameters": {"binary_data_size": len(data)}}
    for _ in range(2):  # the second time the JSON is known
        status, content, fields = ask(client, entry, data, parameters={"binary_data_output": True})
        assert status == 200
        at = int(fields["inference-header-content-length"])
        assert json.loads(content[:at])["outputs"][0]["parameters"] == {"binary_data_size": len(packed(TWICE))}
        assert content[at:] == packed(TWICE)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0", "end within text 0 of 4"),
        (packed(TEXTS)[:-1], "end within text 3 of 4"),
        (packed(TEXTS) + b"\0", "1 bytes are behind the last"),
        (packed(["a"] * 3) + b"\1\0\0\0\xff", "text 3 is not UTF-8"),
        (packed(["a"] * 3) + b"\xff\xff\xff\xff", "end within text 3"),
        (np.arange(4, dtype=np.uint64).tobytes(), ""),
    ],
)
def test_bytes_that_are_no_texts(client: Client, data: bytes, message: str):
    status, answer, _ = ask(client, {**ENTRY, "parameters": {"binary_data_size": len(data)}}, data)
    assert status == 400
    assert message in answer["error"]


@pytest.mark.parametrize(
    "data", [[1, 2, 3, 4], ["a", "b", "c", None], ["a", "b", "c", "\ud800"], ["a"], [["a"], ["b", "c"]]]
)
def test_json_that_is_no_texts(client: Client, data: list):
    status, answer, _ = ask(client, {**ENTRY, "data": data})
    assert status == 400
    assert "input 'x'" in answer["error"]


def test_more_texts_than_a_tensor_may_have(client: Client):
    status, answer, _ = ask(client, {**ENTRY, "shape": [1 << 20, 2], "parameters": {"binary_data_size": 4}}, b"\0" * 4)
    assert status == 413
    assert "at most" in answer["error"]


def test_a_number_of_another_client_s_text_is_no_text(server: Any, client: Client):
    held = strings.Texts()
    number = held.number("another client's secret")
    data = np.full(4, number, np.uint64).tobytes()
    status, answer, _ = ask(client, {**ENTRY, "parameters": {"binary_data_size": len(data)}}, data)
    assert status == 400
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize("datatype", ["", "FP8", "text", None, 3])
def test_element_types_that_have_no_name(client: Client, datatype: Any):
    status, answer, _ = ask(client, {**ENTRY, "datatype": datatype, "data": [0] * 4})
    assert status == 400
    assert "no datatype" in answer["error"]


def test_texts_in_shared_memory(server: Any, client: Client):
    data, result = packed(TEXTS), packed(TWICE)
    memory = SharedMemory(create=True, size=4096)
    try:
        memory.buf[: len(data)] = data
        server.regions.register("r", memory.name, 0, 4096)
        inside = {"shared_memory_region": "r", "shared_memory_byte_size": len(data)}
        name = client.ask("GET", "/v2/models/texts")[1]["outputs"][0]["name"]
        wanted = {"shared_memory_region": "r", "shared_memory_byte_size": 2000, "shared_memory_offset": 2000}
        outputs = [{"name": name, "parameters": wanted}]
        status, answer, _ = ask(client, {**ENTRY, "parameters": inside}, outputs=outputs)
        assert status == 200
        assert answer["outputs"][0]["parameters"]["shared_memory_byte_size"] == len(result)
        assert bytes(memory.buf[2000 : 2000 + len(result)]) == result
    finally:
        server.regions.close()
        memory.close()
        memory.unlink()


def test_texts_over_grpc(server: Any):
    grpc = pytest.importorskip("grpc")
    from treadle.serve.grpc_messages import message

    data = packed(TEXTS)
    made = message("ModelInferRequest")
    raw = made(model_name="texts", inputs=[ENTRY], raw_input_contents=[data])
    typed = made(
        model_name="texts", inputs=[{**ENTRY, "contents": {"bytes_contents": [text.encode() for text in TEXTS]}}]
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for request in (raw, typed):
            answer = message("ModelInferResponse").FromString(call(request.SerializeToString(), timeout=20))
            assert answer.raw_output_contents[0] == packed(TWICE)
            assert answer.outputs[0].datatype == "BYTES"


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_triton_s_clients_send_texts(server: Any, kind: str, is_binary: bool):
    module = pytest.importorskip(f"tritonclient.{kind}")
    if kind == "grpc" and not is_binary:
        pytest.skip("over gRPC the client has one way")
    port = server.http_port if kind == "http" else server.grpc_port
    array = np.array([text.encode() for text in TEXTS], object).reshape(2, 2)
    tensor = module.InferInput("x", [2, 2], "BYTES")
    tensor.set_data_from_numpy(array, **({"binary_data": is_binary} if kind == "http" else {}))
    result = module.InferenceServerClient(f"127.0.0.1:{port}").infer("texts", [tensor])
    output = result.get_response()["outputs"][0]["name"] if kind == "http" else result.get_response().outputs[0].name
    found = [each if isinstance(each, bytes) else each.encode() for each in result.as_numpy(output).reshape(-1)]
    assert found == [text.encode() for text in TWICE]


def test_texts_are_merged_and_kept_by_sequences(server: Any, client: Client):
    model = server.repository.find("texts")
    assert model.merged == {"main"}
    sequence = {"sequence_id": 1, "sequence_start": True}
    assert ask(client, {**ENTRY, "data": TEXTS}, parameters=sequence)[0] == 200
    assert model.sequences["main"]._bytes == len(packed(TEXTS))


def test_a_remote_device_takes_no_numbers_of_texts(start: Callable[..., Any]):
    from treadle.rpc.server.sessions import RemoteLimits

    server = start(remote=RemoteLimits())
    held = strings.Texts()
    data = np.full(2, held.number("another session's secret"), np.uint64).tobytes()
    with treadle.remote(f"127.0.0.1:{server.grpc_port}") as device:
        machine = treadle.VirtualMachine(models.texts(), device=device)
        asked = {"do": "call", "machine": machine._owner.number, "function": "main", "args": [0]}
        with pytest.raises(errors.FormatError, match="texts do not travel"):
            device.connection.ask({**asked, "values": [["tensor", "string", [1, 2]]]}, [data])
        with pytest.raises(errors.FormatError, match="texts do not travel"):
            device.connection.upload({"dtype": "string", "shape": [1, 2]}, memoryview(data))
