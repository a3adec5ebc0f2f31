"""The endpoints of OpenAI and Cohere for models of texts, and what must be refused."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.tools.dev.zoo.folders import with_head, write

from .test_http import Client

pytest.importorskip("tokenizers")
TEXTS = ["a sentence", "another, longer one of the kind", "third"]


@pytest.fixture(scope="module")
def executables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = tmp_path_factory.mktemp("folders")
    ranks = {"architecture": "BertForSequenceClassification", "id2label": {"0": "L"}}
    classes = {"architecture": ranks["architecture"], "id2label": {"0": "bad", "1": "good", "2": "other"}}
    folders = {
        "minilm": write(made / "minilm"),
        "ranks": write(made / "ranks", with_head(1), **ranks),
        "classes": write(made / "classes", with_head(3), **classes),
    }
    return {name: treadle.compile(folder, progress=False) for name, folder in folders.items()}


@pytest.fixture
def server(folder: Path, start: Callable[..., Any], executables: dict[str, Any]) -> Any:
    for name, executable in executables.items():
        executable.export_library(folder / f"{name}.trdl")
    return start()


@pytest.fixture
def client(server: Any) -> Client:
    return Client(server.http_port)


def test_vectors_in_both_formats(client: Client, executables: dict[str, Any]) -> None:
    encoder = treadle.text.load(executables["minilm"])
    expected = encoder.encode(TEXTS)
    status, found, _ = client.ask("POST", "/v1/embeddings", {"model": "minilm", "input": TEXTS})
    assert (status, found["object"], found["model"]) == (200, "list", "minilm")
    assert [each["index"] for each in found["data"]] == [0, 1, 2]
    assert (np.array([each["embedding"] for each in found["data"]], np.float32) == expected).all()
    count = sum(map(len, encoder.tokens(TEXTS)))
    assert found["usage"] == {"prompt_tokens": count, "total_tokens": count}
    request = {"model": "minilm", "input": encoder.tokens(TEXTS), "encoding_format": "base64"}
    data = client.ask("POST", "/v1/embeddings", request)[1]["data"]
    assert b"".join(base64.b64decode(each["embedding"]) for each in data) == expected.tobytes()


def test_one_text_one_list_of_tokens_and_fewer_dimensions(client: Client, executables: dict[str, Any]) -> None:
    encoder = treadle.text.load(executables["minilm"])
    for given in (TEXTS[0], encoder.tokens(TEXTS[0])):
        _, found, _ = client.ask("POST", "/v1/embeddings", {"model": "minilm", "input": given, "dimensions": 8})
        (each,) = found["data"]
        expected = encoder.encode(TEXTS[0])[:8]
        np.testing.assert_allclose(each["embedding"], expected / np.linalg.norm(expected), rtol=1e-5)


def test_reranking(client: Client, executables: dict[str, Any]) -> None:
    scores = treadle.text.load(executables["ranks"]).score("which", TEXTS)
    request = {"model": "ranks", "query": "which", "documents": [*TEXTS[:2], {"text": TEXTS[2]}], "top_n": 2}
    _, found, _ = client.ask("POST", "/v1/rerank", {**request, "return_documents": True})
    order = np.argsort(-scores)[:2].tolist()
    assert [each["index"] for each in found["results"]] == order
    assert [np.float32(each["relevance_score"]) for each in found["results"]] == scores[order].tolist()
    assert found["results"][0]["document"] == {"text": TEXTS[order[0]]}


def test_classes_as_vllm_gives_them(client: Client, executables: dict[str, Any]) -> None:
    classifier = treadle.text.load(executables["classes"])
    expected = classifier.classify(TEXTS)
    for path in ("/classify", "/v1/classify"):
        status, found, _ = client.ask("POST", path, {"model": "classes", "input": TEXTS})
        assert (status, found["object"], found["model"]) == (200, "list", "classes")
        assert [np.float32(each["probs"]).tolist() for each in found["data"]] == expected.tolist()
        assert [each["label"] for each in found["data"]] == [classifier.labels[at] for at in expected.argmax(axis=1)]
        assert [(each["index"], each["num_classes"]) for each in found["data"]] == [(0, 3), (1, 3), (2, 3)]
        assert found["usage"]["prompt_tokens"] == sum(map(len, classifier.tokens(TEXTS)))
    text = client.ask("GET", "/metrics")[1].decode()
    assert 'treadle_requests_total{code="OK",function="classify",model="classes"} 2.0' in text


def test_classes_as_text_embeddings_inference_gives_them(client: Client, executables: dict[str, Any]) -> None:
    classifier = treadle.text.load(executables["classes"])
    pair = (TEXTS[0], TEXTS[1])

    def expected(text: Any) -> list[dict[str, Any]]:
        (row,) = classifier.classify([text])
        found = [{"score": float(each), "label": name} for each, name in zip(row, classifier.labels, strict=True)]
        return sorted(found, key=lambda each: -each["score"])

    for inputs, wanted in (
        (TEXTS[0], expected(TEXTS[0])),
        ([TEXTS[0]], expected(TEXTS[0])),
        (list(pair), expected(pair)),
        ([[TEXTS[0]], list(pair)], [expected(TEXTS[0]), expected(pair)]),
    ):
        assert client.ask("POST", "/predict", {"inputs": inputs})[:2] == (200, wanted)
    assert client.ask("POST", "/predict", {"inputs": "a", "model": "classes"})[0] == 200
    for body, status, message in (
        ({"inputs": []}, 400, "inputs: expected a text"),
        ({"inputs": [["a", "b", "c"]]}, 400, "inputs: expected a text"),
        ({"inputs": [["a"], "b", 3]}, 400, "inputs: expected a text"),
        ({}, 400, "inputs: expected a text"),
        ({"inputs": "a", "raw_scores": True}, 400, "raw_scores"),
        ({"inputs": "a", "model": "minilm"}, 404, "model 'minilm' is for embed, not for classes"),
    ):
        got, found, _ = client.ask("POST", "/predict", body)
        assert (got, message in found["error"]["message"]) == (status, True), found


def test_a_tokenizer_that_hangs_keeps_no_other_model(
    client: Client, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, over = server.repository.find("classes").texts.tokenizer, threading.Event()
    monkeypatch.setattr(type(hanging), "tokens", _waiting(hanging, over, type(hanging).tokens))
    asking = [
        threading.Thread(target=Client(server.http_port).ask, args=("POST", "/predict", {"inputs": "a"}))
        for _ in range(40)
    ]
    for each in asking:
        each.start()
    try:
        for _ in range(3):
            assert client.ask("POST", "/v1/embeddings", {"model": "minilm", "input": "a"})[0] == 200
    finally:
        over.set()
    for each in asking:
        each.join()


def _waiting(hanging: Any, over: threading.Event, tokens: Callable[..., Any]) -> Callable[..., Any]:
    def found(self: Any, *given: Any, **options: Any) -> Any:
        if self is hanging:
            over.wait(60)
        return tokens(self, *given, **options)

    return found


def test_models_and_metrics(client: Client) -> None:
    client.ask("POST", "/v1/embeddings", {"model": "minilm", "input": TEXTS})
    models = client.ask("GET", "/v1/models")[1]
    assert (models["object"], [each["id"] for each in models["data"]]) == (
        "list",
        ["classes", "minilm", "mixed", "ranks", "rows"],
    )
    assert client.ask("GET", "/v1/models/minilm")[1]["owned_by"] == "treadle"
    assert client.ask("GET", "/v1/models/nope")[0] == 404
    text = client.ask("GET", "/metrics")[1].decode()
    assert 'treadle_requests_total{code="OK",function="embeddings",model="minilm"} 1.0' in text
    assert 'treadle_tokens_total{model="minilm"}' in text


BAD = [
    ({}, 400, "model: expected the name"),
    ({"model": "nope", "input": "a"}, 404, "no model 'nope'"),
    ({"model": "rows", "input": "a"}, 501, "model 'rows' takes no texts: it has no tokenizer"),
    ({"model": "ranks", "input": "a"}, 404, "model 'ranks' is for score, not for embeddings"),
    ({"model": "minilm"}, 400, "input: expected a text"),
    ({"model": "minilm", "input": []}, 400, "input: expected a text"),
    ({"model": "minilm", "input": [1, "a"]}, 400, "input: expected a text"),
    ({"model": "minilm", "input": [True]}, 400, "input: expected a text"),
    ({"model": "minilm", "input": [[1, 300]]}, 400, "token 300 is none of the tokenizer's"),
    ({"model": "minilm", "input": [[1 << 80]]}, 400, "token"),
    ({"model": "minilm", "input": [[5] * 65]}, 400, "65 tokens; the model takes at most 64"),
    ({"model": "minilm", "input": ["a"] * 2049}, 400, "2049 texts; at most 2048"),
    ({"model": "minilm", "input": "a\ud800"}, 400, ""),
    ({"model": "minilm", "input": "a", "encoding_format": "x"}, 400, "encoding_format: expected float or base64"),
    ({"model": "minilm", "input": "a", "dimensions": 33}, 400, "dimensions: 33; the model's vectors have 32"),
    ({"model": "minilm", "input": "a", "dimensions": 0}, 400, "dimensions: expected an integer from 1 on"),
]


@pytest.mark.parametrize(("body", "status", "message"), BAD)
def test_what_is_wrong_is_named_as_openai_does(client: Client, body: dict[str, Any], status: int, message: str) -> None:
    got, found, _ = client.ask("POST", "/v1/embeddings", body)
    assert got == status
    assert message in found["error"]["message"]
    assert found["error"]["type"]


def test_bounds_of_bodies_time_and_place(client: Client, server: Any) -> None:
    status, found, _ = client.ask("POST", "/v1/embeddings", b"{", content_length=str(9 << 20))
    assert (status, "at most 8388608" in found["error"]["message"]) == (413, True)
    body = json.dumps({"model": "minilm", "input": TEXTS}).encode()
    client = Client(server.http_port)
    assert client.ask("POST", "/v1/embeddings", gzip.compress(body), content_encoding="gzip")[0] == 200
    assert client.ask("POST", "/v1/embeddings", body, content_encoding="identity")[0] == 200
    assert client.ask("POST", "/v1/embeddings", gzip.compress(b" " * (9 << 20)), content_encoding="gzip")[0] == 413
    client = Client(server.http_port)
    assert client.ask("POST", "/v1/embeddings", body, request_timeout="0")[0] == 504
    assert client.ask("POST", "/v1/embeddings", b"[1]")[0] == 400
    assert client.ask("POST", "/v1/embeddings", b"{")[0] == 400
    assert client.ask("GET", "/v1/embeddings")[0] == 404
    assert client.ask("POST", "/v1/embeddings", body)[0] == 200


def test_clients_that_vanish_have_their_work_cancelled(server: Any) -> None:
    words = "several words that make tokens of their own " * 8
    body = json.dumps({"model": "minilm", "input": [words] * 2048}).encode()
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
            connection.sendall(head + body)
            time.sleep(0.05)
    deadline = time.monotonic() + 30
    while server.service.scheduler.running() + server.service.scheduler.waiting() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.service.scheduler.running() == 0
    assert Client(server.http_port).ask("POST", "/v1/embeddings", {"model": "minilm", "input": "a"})[0] == 200


def test_the_stock_client_of_openai_works_unchanged(server: Any, executables: dict[str, Any]) -> None:
    openai = pytest.importorskip("openai")
    expected = treadle.text.load(executables["minilm"]).encode(TEXTS)
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.http_port}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="minilm", input=TEXTS)
        assert (np.array([each.embedding for each in found.data], np.float32) == expected).all()
        assert found.usage.total_tokens > 0
        assert "minilm" in [each.id for each in client.models.list()]
        with pytest.raises(openai.NotFoundError, match="no model 'nope'"):
            client.embeddings.create(model="nope", input="a")
        with pytest.raises(openai.BadRequestError, match="dimensions"):
            client.embeddings.create(model="minilm", input="a", dimensions=99)


def test_many_clients_at_once_get_the_same_vectors(server: Any, executables: dict[str, Any]) -> None:
    expected = treadle.text.load(executables["minilm"]).encode(TEXTS)
    wrong: list[Any] = []

    def ask() -> None:
        client = Client(server.http_port)
        for _ in range(5):
            status, found, _ = client.ask("POST", "/v1/embeddings", {"model": "minilm", "input": TEXTS})
            got = np.array([each["embedding"] for each in found["data"]], np.float32) if status == 200 else found
            if status != 200 or not (got == expected).all():
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_texts_of_one_length_of_several_clients_are_one_call(
    folder: Path, start: Callable[..., Any], executables: dict[str, Any]
) -> None:
    executables["minilm"].export_library(folder / "minilm.trdl")
    (folder / "minilm.json").write_text('{"max_delay": 1.0, "max_batch": 4}')
    server = start()
    encoder = server.repository.find("minilm").texts
    sizes: list[tuple[int, int]] = []
    call = encoder._call
    encoder._call = lambda batch, *bounds: sizes.append((len(batch), len(batch[0].ids))) or call(batch, *bounds)
    asked = [[f"a {word}"] for word in ("b", "c", "d")] + [["e f"]]
    assert len({len(encoder.tokens(each[0])) for each in asked}) == 1
    expected = [treadle.text.load(executables["minilm"]).encode(each) for each in asked]
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        given = {"model": "minilm", "input": asked[number], "dimensions": 99 if number == 3 else None}
        found[number] = Client(server.http_port).ask("POST", "/v1/embeddings", given)[:2]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sizes[0][0] == 4  # then each alone, since one asks for what there is not
    assert (found[3][0], "dimensions: 99" in found[3][1]["error"]["message"]) == (400, True)
    for number in range(3):
        assert np.float32(found[number][1]["data"][0]["embedding"]).tolist() == expected[number][0].tolist()
