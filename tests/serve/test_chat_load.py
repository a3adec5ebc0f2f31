"""Many clients of a chat and of an encoder at once, streaming, calling tools, vanishing, while models are replaced: every token
and every vector is right, and memory stays."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
import treadle
from treadle.tools.dev.zoo import folders

from .test_load import Load, serve

QUESTIONS = ("the value of", "a", "return the first of " * 4, "x = ", "why?", "ü", "a name of a name", "the end")
SETTINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.1, "top_p": 0.9, "seed": 5}, {"seed": 6})
DIGIT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["n"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": DIGIT}} for name in ("weather", "time")]


class ChatLoad(Load):
    """Clients of a served chat."""

    TIMEOUT = 300.0
    KINDS: ClassVar = {"streamed": 45, "whole": 15, "several": 8, "embedded": 12, "gone": 20}

    def __init__(self, folder: Path, port: int, executable: treadle.Executable, encoder: treadle.Executable) -> None:
        self.begin(folder, port)
        self.executables = {"chat": executable, "encoder": encoder}
        self.vectors = treadle.text.load(encoder).encode(list(QUESTIONS)).tolist()
        generator = treadle.text.load(executable)
        self.requests = [
            {"model": "chat", "messages": [{"role": "user", "content": each}], "max_tokens": 24, **settings}
            for each in QUESTIONS
            for settings in SETTINGS
        ]
        self.expected = []
        for each in self.requests:
            sampler = treadle.Sampler(**{"temperature": 1.0, **{n: each[n] for n in SETTINGS[1] if n in each}})
            answer = generator.generate(each["messages"], max_new_tokens=24, sampler=sampler)
            self.expected.append((answer.text, answer.tokens))
        if find_spec("llguidance") is not None:
            self.KINDS = {**self.KINDS, "called": 8, "formatted": 8}
            self.called_answers = [self._called(generator, question) for question in QUESTIONS]
            self.formatted_answers = [self._formatted(generator, question) for question in QUESTIONS]
        generator.engine.close()

    def _formatted(self, generator: Any, question: str) -> tuple[str, int]:
        mask = treadle.text.grammar.json_schema(generator, DIGIT)
        asked = [{"role": "user", "content": question}]
        answer = generator.generate(asked, max_new_tokens=60, mask=mask, temperature=1.0, seed=2)
        return answer.text, answer.tokens

    def _called(self, generator: Any, question: str) -> tuple[str, int]:
        """A call of `time`, with its tools in the template."""
        call = {"name": {"const": "time"}, "arguments": DIGIT}
        schema = {"type": "object", "properties": call, "required": [*call], "additionalProperties": False}
        flexible = {"x-guidance": {"whitespace_flexible": False}}
        mask = treadle.text.grammar.json_schema(generator, {"anyOf": [schema], **flexible})
        asked = [{"role": "user", "content": question}]
        template = {"tools": TOOLS[1:]}
        answer = generator.generate(asked, max_new_tokens=60, mask=mask, template=template, temperature=1.0, seed=2)
        return json.dumps(json.loads(answer.text)["arguments"]), answer.tokens

    def post(
        self, connection: http.client.HTTPConnection, request: dict[str, Any], path: str = "/v1/chat/completions"
    ) -> http.client.HTTPResponse:
        connection.request("POST", path, json.dumps(request), {"Content-Type": "application/json"})
        return connection.getresponse()

    def check(self, kind: str, request: Any, found: Any, expected: Any) -> None:
        self.answers[kind] += 1
        if found != expected:
            self.wrong.append(f"{kind} {request}: {found}, expected {expected}")

    def refused(self, response: http.client.HTTPResponse) -> bool:
        """Whether it is no answer: where too many wait, the server stops, or a busy machine renders a template too late."""
        if response.status == 200:
            return False
        self.answers[str(response.status)] += 1
        data = response.read()
        if response.status not in (429, 503) and not (response.status == 504 and b"the chat template took" in data):
            self.wrong.append(f"{response.status}: {data[:200]!r}")
        return True

    # ---- what clients do ----

    def streamed(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        number = rng.randrange(len(self.requests))
        usage = {"stream": True, "stream_options": {"include_usage": True}}
        response = self.post(connection, self.requests[number] | usage)
        if self.refused(response):
            return True
        events = [each.removeprefix("data: ") for each in response.read().decode().split("\n\n")]
        if events[-2:] != ["[DONE]", ""]:
            if not self.is_stopping:
                self.wrong.append(f"a stream ends with {events[-2:]}")
            return False
        found = list(map(json.loads, events[:-2]))
        deltas = [choice["delta"].get("content") or "" for each in found for choice in each.get("choices", ())]
        answer = "".join(deltas), found[-1]["usage"]["completion_tokens"]
        self.check("streamed", self.requests[number], answer, self.expected[number])
        return True

    def whole(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        number = rng.randrange(len(self.requests))
        response = self.post(connection, self.requests[number])
        if not self.refused(response):
            found = json.loads(response.read())
            content = found["choices"][0]["message"]["content"]
            answer = content, found["usage"]["completion_tokens"]
            self.check("whole", self.requests[number], answer, self.expected[number])
        return True

    def several(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        """Several answers to one question, the likeliest ones."""
        number = rng.randrange(len(QUESTIONS)) * len(SETTINGS)
        response = self.post(connection, self.requests[number] | {"n": 3})
        if not self.refused(response):
            for choice in json.loads(response.read())["choices"]:
                self.check("several", self.requests[number], choice["message"]["content"], self.expected[number][0])
        return True

    def called(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        chosen = {"type": "function", "function": {"name": "time"}}
        return self._constrained("called", rng, connection, {"tools": TOOLS, "tool_choice": chosen})

    def formatted(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        format_ = {"type": "json_schema", "json_schema": {"name": "a", "schema": DIGIT}}
        return self._constrained("formatted", rng, connection, {"response_format": format_})

    def _constrained(
        self, kind: str, rng: random.Random, connection: http.client.HTTPConnection, settings: dict[str, Any]
    ) -> bool:
        number = rng.randrange(len(QUESTIONS))
        asked = [{"role": "user", "content": QUESTIONS[number]}]
        request = {"model": "chat", "messages": asked, "max_tokens": 60, "temperature": 1.0, "seed": 2, **settings}
        response = self.post(connection, request)
        if not self.refused(response):
            found = json.loads(response.read())
            message = found["choices"][0]["message"]
            calls = [
                (each["function"]["name"], each["function"]["arguments"]) for each in message.get("tool_calls", ())
            ]
            text = message["content"] if kind == "formatted" else dict(calls).get("time")
            expected = getattr(self, f"{kind}_answers")[number]
            self.check(kind, request, (text, found["usage"]["completion_tokens"]), expected)
        return True

    def embedded(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        numbers = rng.choices(range(len(QUESTIONS)), k=rng.randrange(1, 5))
        request = {"model": "encoder", "input": [QUESTIONS[number] for number in numbers]}
        response = self.post(connection, request, "/v1/embeddings")
        if not self.refused(response):
            rows = [each["embedding"] for each in json.loads(response.read())["data"]]
            self.check("embedded", request, rows, [self.vectors[number] for number in numbers])
        return True

    def gone(self, rng: random.Random, _: http.client.HTTPConnection) -> bool:
        """Closes its connection while it is answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.TIMEOUT)
        long = {"stream": rng.random() < 0.7, "max_tokens": 100, "n": rng.randrange(1, 4), "temperature": 1.0}
        try:
            response = self.post(connection, rng.choice(self.requests) | long) if rng.random() < 0.5 else None
            if response is None:
                body = json.dumps(rng.choice(self.requests) | long).encode()
                connection.putrequest("POST", "/v1/chat/completions")
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body[: rng.randrange(len(body) + 1)])
                time.sleep(rng.uniform(0, 0.05))
            elif not self.refused(response):
                response.read(rng.randrange(1, 400))
        finally:
            connection.close()
        self.answers["gone"] += 1
        return False  # the other connection may have been idle for too long

    # ---- what the owner does ----

    def reload(self) -> None:
        while not self.is_over.wait(2.0):
            for name, executable in self.executables.items():
                executable.export_library(self.folder / f"{name}.trdl")
            self.answers["reload"] += 1


@pytest.mark.serial
@pytest.mark.timeout(1200)
def test_64_clients_of_a_chat_that_is_replaced_get_every_token_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TREADLE_LOAD_SECONDS says for how long; of runs of three minutes the least memory in the last is that in the second."""
    for name in ("uvicorn", "starlette", "grpc", "tokenizers", "jinja2"):
        pytest.importorskip(name)
    seconds = float(os.environ.get("TREADLE_LOAD_SECONDS", "10"))
    executable = treadle.compile(folders.chat(tmp_path / "model"), progress=False)
    served = tmp_path / "models"
    served.mkdir()
    encoder = treadle.compile(folders.write(tmp_path / "encoder"), progress=False)
    executable.export_library(served / "chat.trdl")
    encoder.export_library(served / "encoder.trdl")
    # with an arena for each thread, what glibc keeps of freed memory grows for long
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    (served / "chat.json").write_text('{"cache_tokens": 20000, "max_queue": 256, "max_seconds": 300}')
    process, port = serve(served)
    try:
        load = ChatLoad(served, port, executable, encoder)
        memory = load.run(process, seconds)
        early, late = min(memory[60:120], default=0), min(memory[-60:])
        minutes = [each >> 20 for each in memory[59::60]]
        print(dict(load.answers), f"memory {early >> 20} to {late >> 20} MiB, at most {max(memory) >> 20}; {minutes}")
        assert load.wrong[:5] == []
        for kind in (*load.KINDS, "reload"):
            assert load.answers[kind] > seconds / 5
        if seconds >= 180:
            assert late <= 1.1 * early  # models that were replaced live as long as their answers
    finally:
        process.kill()
