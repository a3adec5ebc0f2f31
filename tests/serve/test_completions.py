"""OpenAI's endpoints that generate: whole answers and streams, calls of tools, and what must be refused."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import treadle
from treadle.tools.dev.zoo.folders import chat

from .test_http import Client

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
PLAIN, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = [{"role": "user", "content": "the value of"}]
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": {"type": "object"}}}
    for name in ("weather", "time")
]


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return treadle.compile(chat(tmp_path_factory.mktemp("folders") / "chat"), progress=False)


@pytest.fixture(scope="module")
def generator(executable: Any) -> Any:
    return treadle.text.load(executable)


@pytest.fixture
def server(folder: Path, start: Callable[..., Any], executable: Any) -> Any:
    executable.export_library(folder / "chat.trdl")
    return start()


@pytest.fixture
def client(server: Any) -> Client:
    return Client(server.http_port)


def events(client: Client, path: str, request: dict[str, Any]) -> list[Any]:
    """Those of a stream, without the last one, which says that it is over."""
    status, data, headers = client.ask("POST", path, {**request, "stream": True})
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    found = [each.removeprefix("data: ") for each in data.decode().split("\n\n")]
    assert found[-2:] == ["[DONE]", ""]
    return list(map(json.loads, found[:-2]))


class Token(NamedTuple):
    id: int
    logprob: float | None = None
    top: tuple[Any, ...] = ()


class Scripted:
    """An engine that says what it is told to."""

    def __init__(self, generator: Any, text: str, end: int = 395) -> None:
        self.ids = [*next(generator.tokenizer.tokens([text])).ids.tolist(), end]
        self.submitted: list[Any] = []

    def submit(self, ids: Any, **options: Any) -> Any:
        self.submitted.append((ids, options))
        return Script([*map(Token, self.ids)])

    def statistics(self) -> dict[str, int]:
        return {}


class Script:
    finish, prompt_tokens, cached_tokens = "stop", 3, 2

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = iter(tokens)

    def __next__(self) -> Token:
        return next(self._tokens)

    def cancel(self) -> None:
        pass


def says(server: Any, text: str) -> Scripted:
    texts = server.repository.find("chat").texts
    texts._engine = Scripted(texts, text)
    return texts._engine


# ---- answers ----


def test_completions_of_texts_and_tokens(client: Client, generator: Any) -> None:
    expected = generator.generate("the value of", max_new_tokens=16)
    request = {"model": "chat", "prompt": "the value of", "temperature": 0}
    status, found, _ = client.ask("POST", PLAIN, request)
    assert (status, found["object"], found["model"]) == (200, "text_completion", "chat")
    assert found["choices"] == [
        {"index": 0, "text": expected.text, "logprobs": None, "finish_reason": "length"},
    ]
    assert (found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]) == (3, 16)
    tokens = generator.tokens("the value of")
    several = client.ask("POST", PLAIN, {**request, "prompt": [tokens, tokens[:2]], "n": 2, "max_tokens": 5})[1]
    texts = [each["text"] for each in several["choices"]]
    assert texts[0] == texts[1] == generator.generate(tokens, max_new_tokens=5).text
    assert texts[2] == texts[3] == generator.generate(tokens[:2], max_new_tokens=5).text
    assert several["usage"]["total_tokens"] == 5 + 4 * 5


def test_adapters_are_models_of_their_own(folder: Path, start: Callable[..., Any], tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    treadle.compile(chat(tmp_path / "chat"), adapters=True, progress=False).export_library(folder / "chat.trdl")
    adapter = folder / "adapters" / "poems"
    adapter.mkdir(parents=True)
    draw = np.random.default_rng(1)
    name = "base_model.model.model.layers.0.self_attn.o_proj.lora_{}.weight"
    arrays = {name.format(each): draw.normal(size=size).astype("f") for each, size in (("A", (4, 32)), ("B", (32, 4)))}
    safetensors.save_file(arrays, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 8}))
    (folder / "chat.json").write_text(json.dumps({"adapters": {"poems": "adapters/poems"}}))
    client = Client(start().http_port)
    generator = treadle.text.load(str(folder / "chat.trdl"))
    loaded = treadle.Adapter.load(adapter)
    expected = [generator.generate("the value of", max_new_tokens=16, adapter=each).text for each in (None, loaded)]
    assert expected[0] != expected[1]
    for model, text in zip(("chat", "chat:poems"), expected, strict=True):
        found = client.ask("POST", PLAIN, {"model": model, "prompt": "the value of", "temperature": 0})[1]
        assert (found["choices"][0]["text"], found["model"]) == (text, model)
    assert {"chat", "chat:poems"} <= {each["id"] for each in client.ask("GET", "/v1/models")[1]["data"]}
    assert client.ask("GET", "/v1/models/chat:poems")[1]["id"] == "chat:poems"
    status, found, _ = client.ask("POST", PLAIN, {"model": "chat:laws", "prompt": "a"})
    assert (status, found["error"]["message"]) == (404, "model 'chat' has no adapter 'laws'; it has poems")
    assert client.ask("GET", "/v1/models/chat:laws")[0] == 404


def test_streams_say_the_same(client: Client, generator: Any) -> None:
    request = {"model": "chat", "prompt": ["the value of", "a"], "temperature": 0, "max_tokens": 30, "echo": True}
    whole = client.ask("POST", PLAIN, request)[1]
    found = events(client, PLAIN, {**request, "stream_options": {"include_usage": True}})
    for number, choice in enumerate(whole["choices"]):
        parts = [each for event in found for each in event["choices"] if each["index"] == number]
        assert "".join(each["text"] for each in parts) == choice["text"]
        assert [each["finish_reason"] for each in parts if each["finish_reason"]] == [choice["finish_reason"]]
    assert len({event["id"] for event in found}) == 1
    assert (found[-1]["choices"], found[-1]["usage"]["completion_tokens"]) == ([], 60)
    assert {event["usage"] for event in found[:-1]} == {None}


def test_chats(client: Client, generator: Any) -> None:
    expected = generator.generate(HELLO, max_new_tokens=10)
    request = {"model": "chat", "messages": HELLO, "temperature": 0, "max_completion_tokens": 10}
    found = client.ask("POST", CHAT, request)[1]
    assert found["object"] == "chat.completion"
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    parts = [{"type": "text", "text": "the value"}, {"type": "text", "text": " of"}]
    same = client.ask("POST", CHAT, {**request, "messages": [{"role": "user", "content": parts}]})[1]
    assert same["choices"][0]["message"] == choice["message"]
    streamed = events(client, CHAT, request)
    deltas = [event["choices"][0]["delta"] for event in streamed]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == expected.text
    assert streamed[-1]["choices"][0]["finish_reason"] == "length"


def test_a_seed_tells_the_answers(client: Client) -> None:
    request = {"model": "chat", "prompt": "the", "temperature": 1.2, "top_p": 0.95, "top_k": 50, "n": 3, "seed": 7}
    first, second = (client.ask("POST", PLAIN, request)[1]["choices"] for _ in range(2))
    assert first == second
    assert len({each["text"] for each in first}) > 1
    alone = client.ask("POST", PLAIN, {**request, "n": 1})[1]["choices"]
    assert alone == first[:1]


def test_stops_penalties_and_biases(client: Client, generator: Any) -> None:
    text = generator.generate("the value of", max_new_tokens=16).text
    request = {"model": "chat", "prompt": "the value of", "temperature": 0}
    (choice,) = client.ask("POST", PLAIN, {**request, "stop": [text[4:7], "never"]})[1]["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(text[4:7])], "stop")
    token = generator.tokens("e")[0]
    (choice,) = client.ask("POST", PLAIN, {**request, "logit_bias": {str(token): 100}, "max_tokens": 4})[1]["choices"]
    assert choice["text"] == "eeee"
    change = {"logit_bias": {str(token): 40}, "frequency_penalty": 2.0, "max_tokens": 40}
    assert client.ask("POST", PLAIN, {**request, **change})[1]["choices"][0]["text"] != "e" * 40
    ends = client.ask("POST", PLAIN, {**request, "logit_bias": {"395": 100}})[1]
    assert (ends["choices"][0]["text"], ends["choices"][0]["finish_reason"]) == ("", "stop")


def test_logarithms_of_probabilities(client: Client) -> None:
    request = {"model": "chat", "temperature": 0, "max_tokens": 5}
    (choice,) = client.ask("POST", PLAIN, {**request, "prompt": "the value of", "logprobs": 2})[1]["choices"]
    found = choice["logprobs"]
    assert all(
        max(top.values()) == own < 0 for top, own in zip(found["top_logprobs"], found["token_logprobs"], strict=True)
    )
    assert len(found["tokens"]) == len(found["text_offset"]) == 5
    ask = {**request, "messages": HELLO, "logprobs": True, "top_logprobs": 3}
    (choice,) = client.ask("POST", CHAT, ask)[1]["choices"]
    found = choice["logprobs"]["content"]
    assert [len(each["top_logprobs"]) for each in found] == [3] * 5
    assert (
        bytes(each for entry in found for each in entry["bytes"]).decode(errors="replace")
        == choice["message"]["content"]
    )
    streamed = [event["choices"][0]["logprobs"] for event in events(client, CHAT, ask)]
    assert [each for part in streamed if part for each in part["content"]] == found


def test_calls_of_tools_and_thoughts(server: Any, client: Client) -> None:
    call = {"name": "weather", "arguments": {"city": "Basel"}}
    engine = says(server, f"<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{json.dumps(call)}\n</tool_call>")
    request = {"model": "chat", "messages": HELLO, "tools": TOOLS}
    (choice,) = client.ask("POST", CHAT, request)[1]["choices"]
    message = choice["message"]
    assert (message["content"], message["reasoning_content"], choice["finish_reason"]) == (
        "I look.",
        "\nhm\n",
        "tool_calls",
    )
    (made,) = message["tool_calls"]
    assert (made["type"], made["function"]["name"]) == ("function", "weather")
    assert json.loads(made["function"]["arguments"]) == {"city": "Basel"}
    deltas = [event["choices"][0]["delta"] for event in events(client, CHAT, request)]
    assert [each["tool_calls"][0]["function"] for each in deltas if "tool_calls" in each] == [made["function"]]
    assert "".join(each.get("reasoning_content", "") for each in deltas) == "\nhm\n"
    # the answer of the tool goes back
    answer = {"role": "tool", "tool_call_id": made["id"], "content": "rain"}
    says(server, "It rains.")
    followed = client.ask("POST", CHAT, {**request, "messages": [*HELLO, message, answer]})[1]
    assert followed["choices"][0]["message"]["content"] == "It rains."
    assert followed["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    # without tools the same text is text
    says(server, "<tool_call>{}</tool_call>")
    plain = client.ask("POST", CHAT, {"model": "chat", "messages": HELLO})[1]["choices"][0]
    assert (plain["message"]["content"], plain["finish_reason"]) == ("<tool_call>{}</tool_call>", "stop")
    assert engine.submitted[0][1]["stop"] == [395]


def test_answers_of_a_schema(server: Any, client: Client) -> None:
    pytest.importorskip("llguidance")
    kind = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
    kind["additionalProperties"] = False
    ask = {"model": "chat", "messages": HELLO, "temperature": 1, "seed": 1, "max_tokens": 60, "n": 3}
    format_ = {"type": "json_schema", "json_schema": {"name": "a", "schema": kind}}
    for choice in client.ask("POST", CHAT, {**ask, "response_format": format_})[1]["choices"]:
        assert choice["finish_reason"] == "stop"
        assert json.loads(choice["message"]["content"])["n"] in range(10)
    tools = [{"type": "function", "function": {"name": name, "parameters": kind}} for name in ("weather", "time")]
    chosen = {"type": "function", "function": {"name": "time"}}
    for choice_of, names in ((chosen, {"time"}), ("required", {"weather", "time"})):
        request = {**ask, "tools": tools, "tool_choice": choice_of, "logit_bias": {"395": 20}}
        for choice in client.ask("POST", CHAT, request)[1]["choices"]:
            (call,) = choice["message"]["tool_calls"]
            assert (call["function"]["name"] in names, choice["finish_reason"]) == (True, "tool_calls")
            assert json.loads(call["function"]["arguments"])["n"] in range(10)
    (choice,) = client.ask("POST", CHAT, {**ask, "n": 1, "response_format": {"type": "json_object"}})[1]["choices"]
    assert choice["message"]["content"].lstrip().startswith("{")
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "none"}}}
    assert client.ask("POST", CHAT, {**ask, "response_format": schema})[0] == 400


def test_metrics_count_tokens(client: Client) -> None:
    for _ in range(2):
        request = {"model": "chat", "prompt": "the value of " * 12, "max_tokens": 5, "temperature": 0}
        client.ask("POST", PLAIN, request)
    text = client.ask("GET", "/metrics")[1].decode()
    assert 'treadle_generated_tokens_total{model="chat"} 10.0' in text
    assert 'treadle_requests_total{code="OK",function="completions",model="chat"} 2.0' in text
    assert 'treadle_first_token_seconds_count{model="chat"} 2.0' in text
    assert 'treadle_texts_waiting{model="chat"} 0.0' in text
    (cached,) = [line for line in text.splitlines() if line.startswith("treadle_cached_tokens_total")]
    assert float(cached.split()[-1]) > 0


# ---- what must be refused ----

BAD_PROMPTS = [None, [], [1, "a"], [True], 3, [[]], {"a": 1}]
BAD = [
    ({"n": 0}, "n: expected an integer from 1 to 32"),
    ({"n": 33}, "n: expected an integer"),
    ({"n": True}, "n: expected an integer"),
    ({"prompt": ["a"] * 12, "n": 3}, "at most 32 answers"),
    ({"best_of": 3}, "best_of: 3; expected n, 1"),
    ({"suffix": "a"}, "suffix"),
    ({"max_tokens": -1}, "max_tokens: expected an integer"),
    ({"max_tokens": 1 << 99}, "max_tokens: expected an integer"),
    ({"temperature": "hot"}, "temperature: expected a number"),
    ({"temperature": float("nan")}, "temperature: expected a number"),
    ({"temperature": float("inf")}, "temperature: expected a number"),
    ({"top_p": 2}, "top_p: expected a number from 0 to 1"),
    ({"top_k": 0.5}, "top_k: expected an integer"),
    ({"min_p": -1}, "min_p: expected a number"),
    ({"presence_penalty": 3}, "presence_penalty: expected a number from -2 to 2"),
    ({"seed": 0.5}, "seed: expected an integer"),
    ({"logprobs": 21}, "logprobs: expected an integer from 0 to 20"),
    ({"logprobs": 1, "echo": True}, "echo: "),
    ({"logprobs": 20, "n": 32, "max_tokens": 4096}, "logprobs: at most 131072 are given at once"),
    ({"stop": ""}, "stop: expected a text"),
    ({"stop": [1]}, "stop: expected a text"),
    ({"stop": ["a"] * 17}, "stop: 17 texts; at most 16"),
    ({"stop": "a" * 1001}, "stop: expected a text"),
    ({"logit_bias": {"400": 1}}, "logit_bias: '400'"),
    ({"logit_bias": {"²": 1}}, "logit_bias: "),
    ({"logit_bias": {"1": 101}}, "logit_bias: '1'"),
    ({"logit_bias": [1]}, "logit_bias: expected an object"),
    ({"stream_options": 1}, "stream_options: expected an object"),
    ({"prompt": [1, 400]}, "token 400 is none of the tokenizer's"),
    ({"prompt": "a" * 600}, "the model takes 512 with the answer"),
    ({"prompt": ""}, "the prompt has no tokens"),
    *(({"prompt": each}, "prompt") for each in BAD_PROMPTS),
]  # fmt: skip
BAD_CHATS = [
    ({"messages": []}, "messages: expected a list"),
    ({"messages": "a"}, "messages: expected a list"),
    ({"messages": [{"content": "a"}]}, "messages: expected a list"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "expected parts of text"),
    ({"tools": {"a": 1}}, "tools: expected a list"),
    ({"tools": [{"type": "function"}]}, "tools: expected"),
    ({"tools": TOOLS * 65}, "tools: expected a list of at most 128"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice: expected"),
    ({"tools": TOOLS, "tool_choice": 3}, "tool_choice: expected"),
    ({"response_format": {"type": "yaml"}}, "response_format: expected text, json_object or json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}, "response_format: json_schema"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs: expected"),
    ({"chat_template_kwargs": 3}, "chat_template_kwargs: expected an object"),
    ({"messages": [{"role": "user", "content": "a\ud800"}]}, ""),
]


def test_what_is_wrong_is_named(client: Client) -> None:
    for path, base, cases in (
        (PLAIN, {"model": "chat", "prompt": "a"}, BAD),
        (CHAT, {"model": "chat", "messages": HELLO}, BAD_CHATS),
    ):
        for change, message in cases:
            for is_streamed in (False, True):
                status, found, _ = client.ask("POST", path, {**base, **change, "stream": is_streamed})
                assert status == 400, (change, found)
                assert message in found["error"]["message"], (change, found)
    assert client.ask("POST", PLAIN, {"model": "rows", "prompt": "a"})[0] == 501
    assert client.ask("POST", PLAIN, {"model": "nope", "prompt": "a"})[0] == 404
    assert client.ask("POST", PLAIN, {"prompt": "a"})[0] == 400
    assert client.ask("POST", PLAIN, b"[1]")[0] == 400
    assert client.ask("GET", CHAT)[0] == 404
    deep = b'{"model": "chat", "messages": [{"role": "user", "content": "a", "x": %s}]}' % (b"[" * 900 + b"]" * 900)
    assert client.ask("POST", CHAT, deep)[0] in (200, 400)
    kwargs = {"prompt": 1, "messages": [], "template": 3, "text": 4}
    assert client.ask("POST", CHAT, {"model": "chat", "messages": HELLO, "chat_template_kwargs": kwargs})[0] == 200
    assert client.ask("POST", "/v1/embeddings", {"model": "chat", "input": "a"})[0] == 404
    assert client.ask("POST", PLAIN, {"model": "chat", "prompt": "a"})[0] == 200


def test_requests_of_any_values_are_answered_or_refused_by_name(client: Client) -> None:
    odd = [
        None,
        True,
        False,
        0,
        1,
        -1,
        1 << 70,
        0.5,
        -1e300,
        "",
        "a",
        "\0",
        "\ud800",
        [],
        [1],
        ["a"],
        [[]],
        {},
        {"a": 1},
    ]
    odd += [
        [None] * 3,
        {"type": "json_schema"},
        {"type": "function", "function": {"name": "\ud800"}},
        [{"role": "user"}],
    ]
    odd += [
        [{"role": "tool", "tool_calls": [3, {"function": {"arguments": "{"}}], "content": None}],
        "none",
        "required",
    ]
    names = sorted(
        {name for change, _ in BAD + BAD_CHATS for name in change} | {"stream", "max_completion_tokens", "user"}
    )
    rng = random.Random(1)
    for number in range(200):
        path, base = rng.choice([(PLAIN, {"prompt": "a"}), (CHAT, {"messages": HELLO})])
        given = {name: rng.choice(odd) for name in rng.sample(names, rng.randrange(1, 5))}
        request = {"model": "chat", "max_tokens": 3, **base, **given}
        status, found, _ = client.ask("POST", path, request)
        assert status in (200, 400), (number, request, found)
        if status == 400:
            assert found["error"]["message"]


def test_answers_have_bounds(folder: Path, start: Callable[..., Any], executable: Any) -> None:
    executable.export_library(folder / "chat.trdl")
    (folder / "chat.json").write_text(json.dumps({"max_new_tokens": 7, "max_queue": 4}))
    server = start()
    client = Client(server.http_port)
    ask = {"model": "chat", "prompt": "a", "max_tokens": 1000, "logit_bias": {"395": -100}}
    assert client.ask("POST", PLAIN, ask)[1]["usage"]["completion_tokens"] == 7
    assert client.ask("POST", PLAIN, {**ask, "n": 5})[0] == 400
    seats = server.repository.find("chat").seats
    seats.take(3)
    status, found, _ = client.ask("POST", PLAIN, {**ask, "n": 2})
    assert (status, "3 answers are made or wait already" in found["error"]["message"]) == (429, True)
    assert client.ask("POST", PLAIN, ask)[0] == 200
    seats.give(3)
    assert client.ask("POST", PLAIN, {**ask, "n": 4})[0] == 200
    client = Client(server.http_port)
    status, found, _ = client.ask("POST", PLAIN, json.dumps(ask).encode(), request_timeout="0")
    assert status == 504, found


def test_an_error_amid_a_stream_is_an_event(server: Any, client: Client) -> None:
    engine = says(server, "a few words")
    engine.ids.insert(2, 1 << 40)  # of which the tokenizer makes nothing
    status, data, _ = client.ask("POST", PLAIN, {"model": "chat", "prompt": "a", "stream": True})
    assert status == 200
    last = data.decode().split("\n\n")[-2].removeprefix("data: ")
    assert json.loads(last)["error"]["message"]
    assert client.ask("POST", PLAIN, {"model": "chat", "prompt": "a"})[0] == 400


@pytest.mark.parametrize("is_streamed", [False, True])
def test_clients_that_vanish_end_their_answers(server: Any, is_streamed: bool) -> None:
    model = server.repository.find("chat")
    request = {"model": "chat", "prompt": "the", "max_tokens": 500, "n": 4, "stream": is_streamed}
    body = json.dumps({**request, "logit_bias": {"395": -100}}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
            connection.sendall(head + body)
            if is_streamed:
                connection.recv(100)
            else:
                time.sleep(0.02)
    deadline = time.monotonic() + 30
    while model.seats._left < model.config.max_queue and time.monotonic() < deadline:
        time.sleep(0.01)
    assert model.seats._left == model.config.max_queue
    made = model.texts.statistics()["tokens"]
    assert made < 4 * 4 * 500
    assert Client(server.http_port).ask("POST", PLAIN, {"model": "chat", "prompt": "a"})[0] == 200


def test_a_client_that_reads_nothing_loses_its_connection(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.serve import http_protocol

    made = http_protocol.Connection.connection_made

    def connection_made(self: Any, transport: Any) -> None:  # the system keeps a few tokens, not megabytes of them
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(self, transport)

    monkeypatch.setattr(http_protocol.Connection, "connection_made", connection_made)
    monkeypatch.setattr(http_protocol, "READ_SECONDS", 0.3)
    model = server.repository.find("chat")
    request = {"model": "chat", "prompt": "the", "max_tokens": 500, "n": 32, "stream": True, "logprobs": 7}
    body = json.dumps({**request, "logit_bias": {"395": -100}}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.http_port))
        connection.sendall(
            b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (PLAIN.encode(), len(body)) + body
        )
        deadline = time.monotonic() + 60
        while model.seats._left == model.config.max_queue and time.monotonic() < deadline:
            time.sleep(0.001)
        while model.seats._left < model.config.max_queue and time.monotonic() < deadline:
            time.sleep(0.01)
    assert model.seats._left == model.config.max_queue
    counted = 'treadle_requests_total{code="CANCELLED",function="completions",model="chat"} 1.0'
    while counted not in (text := Client(server.http_port).ask("GET", "/metrics")[1].decode()):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)


def test_of_a_replaced_model_nothing_is_kept(server: Any, client: Client, folder: Path, executable: Any) -> None:
    request = {"model": "chat", "prompt": "the value of " * 12, "max_tokens": 5}
    assert client.ask("POST", PLAIN, request)[0] == 200
    assert len(events(client, PLAIN, request)) > 1
    before = server.repository.find("chat")
    kept = [*map(weakref.ref, (before, before.machine, before.texts.engine, before.texts.engine._contexts))]
    gc.disable()  # which would only come late
    try:
        del before
        executable.export_library(folder / "chat.trdl")
        deadline = time.monotonic() + 60
        while any(each() is not None for each in kept):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        gc.enable()
    assert client.ask("POST", PLAIN, request)[0] == 200


def test_many_clients_get_the_answers_that_they_get_alone(server: Any, generator: Any) -> None:
    prompts = ["the value of", "a", "return the first of " * 4, "x = "]
    expected = {each: generator.generate(each, max_new_tokens=12).text for each in prompts}
    wrong: list[Any] = []

    def ask(first: int) -> None:
        client = Client(server.http_port)
        for number in range(4):
            prompt = prompts[(first + number) % 4]
            request = {"model": "chat", "prompt": prompt, "temperature": 0, "max_tokens": 12}
            if number % 2:
                found = "".join(event["choices"][0]["text"] for event in events(client, PLAIN, request))
            else:
                found = client.ask("POST", PLAIN, request)[1]["choices"][0]["text"]
            if found != expected[prompt]:
                wrong.append((prompt, found))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


# ---- the clients of others ----


def test_the_stock_client_of_openai_works_unchanged(server: Any, generator: Any) -> None:
    openai = pytest.importorskip("openai")
    expected = generator.generate(HELLO, max_new_tokens=8).text
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.http_port}/v1", api_key="none", max_retries=0) as client:
        ask = {"model": "chat", "messages": HELLO, "temperature": 0, "max_tokens": 8}
        found = client.chat.completions.create(**ask)
        assert found.choices[0].message.content == expected
        assert found.usage.completion_tokens == 8
        stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
        *parts, last = list(stream)
        assert "".join(each.choices[0].delta.content or "" for each in parts) == expected
        assert last.usage.total_tokens == found.usage.total_tokens
        plain = client.completions.create(model="chat", prompt="the value of", temperature=0, max_tokens=4, logprobs=1)
        assert len(plain.choices[0].logprobs.tokens) == 4
        says(server, '<tool_call>{"name": "time", "arguments": {}}</tool_call>')
        (call,) = client.chat.completions.create(**ask, tools=TOOLS).choices[0].message.tool_calls
        assert (call.function.name, call.function.arguments) == ("time", "{}")
        with client.chat.completions.stream(**ask, tools=TOOLS) as stream:
            assert stream.get_final_completion().choices[0].message.tool_calls[0].function.name == "time"
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(**{**ask, "temperature": 1000})
        engine = says(server, "a few words")
        engine.ids.insert(2, 1 << 40)
        with pytest.raises(openai.APIError):
            list(client.completions.create(model="chat", prompt="a", stream=True))


def test_the_stock_client_of_langchain_works_unchanged(server: Any, generator: Any) -> None:
    langchain = pytest.importorskip("langchain_openai")
    expected = generator.generate(HELLO, max_new_tokens=8).text
    url = f"http://127.0.0.1:{server.http_port}/v1"
    model = langchain.ChatOpenAI(model="chat", base_url=url, api_key="none", temperature=0, max_tokens=8, max_retries=0)
    found = model.invoke("the value of")
    assert (found.content, found.usage_metadata["output_tokens"]) == (expected, 8)
    assert "".join(each.content for each in model.stream("the value of")) == expected
    says(server, '<tool_call>{"name": "weather", "arguments": {"city": "Basel"}}</tool_call>')
    (call,) = model.bind_tools(TOOLS).invoke("how is it?").tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Basel"})
    schema = {"title": "Digit", "type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"]}
    if importlib.util.find_spec("llguidance"):
        server.repository.find("chat").texts._engine = None
        for method in ("json_schema", "function_calling"):
            asked = langchain.ChatOpenAI(model="chat", base_url=url, api_key="none", seed=1, max_tokens=200)
            found = asked.with_structured_output({**schema, "additionalProperties": False}, method=method).invoke(
                "one?"
            )
            assert found["n"] in (1, 2, 3)
