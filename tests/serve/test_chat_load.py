"""Many clients of a chat at once, streaming, vanishing, while the model is replaced: every token is right, and memory stays."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import treadle
from treadle.tools.dev.zoo import folders

from .test_load import Load, serve

QUESTIONS = ("the value of", "a", "return the first of " * 4, "x = ", "why?", "ü", "a name of a name", "the end")
SETTINGS: tuple[dict[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.1, "top_p": 0.9, "seed": 5}, {"seed": 6})


class ChatLoad(Load):
    """Clients of a served chat."""

    TIMEOUT = 300.0
    KINDS: ClassVar = {"streamed": 50, "whole": 20, "several": 10, "gone": 20}

    def __init__(self, folder: Path, port: int, executable: treadle.Executable) -> None:
        self.begin(folder, port)
        self.executable = executable
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
        generator.engine.close()

    def post(self, connection: http.client.HTTPConnection, request: dict[str, Any]) -> http.client.HTTPResponse:
        connection.request("POST", "/v1/chat/completions", json.dumps(request), {"Content-Type": "application/json"})
        return connection.getresponse()

    def check(self, kind: str, number: int, text: str, tokens: int) -> None:
        self.answers[kind] += 1
        if (text, tokens) != self.expected[number]:
            self.wrong.append(f"{kind} {self.requests[number]}: {(text, tokens)}, expected {self.expected[number]}")

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
        self.check("streamed", number, "".join(deltas), found[-1]["usage"]["completion_tokens"])
        return True

    def whole(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        number = rng.randrange(len(self.requests))
        response = self.post(connection, self.requests[number])
        if not self.refused(response):
            found = json.loads(response.read())
            content = found["choices"][0]["message"]["content"]
            self.check("whole", number, content, found["usage"]["completion_tokens"])
        return True

    def several(self, rng: random.Random, connection: http.client.HTTPConnection) -> bool:
        """Several answers to one question, the likeliest ones."""
        number = rng.randrange(len(QUESTIONS)) * len(SETTINGS)
        response = self.post(connection, self.requests[number] | {"n": 3})
        if not self.refused(response):
            for choice in json.loads(response.read())["choices"]:
                self.check("several", number, choice["message"]["content"], self.expected[number][1])
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
            self.executable.export_library(self.folder / "chat.trdl")
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
    executable.export_library(served / "chat.trdl")
    # with an arena for each thread, what glibc keeps of freed memory grows for long
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    (served / "chat.json").write_text('{"cache_tokens": 20000, "max_queue": 256, "max_seconds": 300}')
    process, port = serve(served)
    try:
        load = ChatLoad(served, port, executable)
        memory = load.run(process, seconds)
        early, late = min(memory[60:120], default=0), min(memory[-60:])
        print(dict(load.answers), f"memory {early >> 20} to {late >> 20} MiB, at most {max(memory) >> 20}")
        assert load.wrong[:5] == []
        for kind in (*load.KINDS, "reload"):
            assert load.answers[kind] > seconds / 5
        if seconds >= 180:
            assert late <= 1.1 * early  # models that were replaced live as long as their answers
    finally:
        process.kill()
