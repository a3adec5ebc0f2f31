"""Chats as values: forked, saved, resumed elsewhere, and killed at any moment."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
import treadle
from treadle.decode.sampling import Sampler
from treadle.formats import session as files
from treadle.formats.messages.errors import ArgumentError, ChecksumError, FormatError
from treadle.native import processes
from treadle.tools.dev.zoo import folders

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
SAMPLER = Sampler(1.1, top_p=0.95, seed=5, presence_penalty=0.2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    treadle.compile(folders.chat(folder / "model"), progress=False).export_library(folder / "chat.trdl")
    return folder / "chat.trdl"


@pytest.fixture(scope="module")
def generator(path: Path) -> Any:
    return treadle.text.load(path)


def test_a_chat_is_its_messages(generator: Any):
    chat = generator.session(sampler=SAMPLER)
    answer = chat.ask("the value of", max_new_tokens=20)
    pieces = list(answer)
    assert chat.messages == [
        {"role": "user", "content": "the value of"},
        {"role": "assistant", "content": "".join(pieces)},
    ]
    expected = generator.generate(chat.messages[:1], max_new_tokens=20, sampler=SAMPLER).text
    assert answer.text == "".join(pieces) == expected
    assert chat.session.tokens[: answer.prompt_tokens].tolist() == list(generator.prompt(chat.messages[:1]).ids)
    more = chat.ask({"role": "user", "content": "a name"}, max_new_tokens=20)
    assert more.text == chat.messages[-1]["content"]
    assert more.cached_tokens >= answer.prompt_tokens
    left = chat.ask("not waited for", max_new_tokens=20)
    next(left)
    assert [each["role"] for each in chat.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert chat.generate(max_new_tokens=3).text == chat.messages[-1]["content"]


def test_forks_and_resumed_chats_go_on_alike(generator: Any, path: Path, tmp_path: Path):
    chat = generator.session([{"role": "system", "content": "be short"}], sampler=SAMPLER)
    list(chat.ask("the value of", max_new_tokens=15))
    file = chat.save(tmp_path)
    again = [chat.fork(), treadle.text.resume(file, generator), treadle.text.resume(file.read_bytes(), path)]
    expected = chat.ask("a name", max_new_tokens=15).text
    assert [each.ask("a name", max_new_tokens=15).text for each in again] == [expected] * 3
    assert {each.session.saved().digest for each in again} == {chat.session.saved().digest}
    other = treadle.text.resume(file, generator).fork(Sampler(1.1, seed=6))
    assert other.ask("a name", max_new_tokens=15).text != expected


def test_what_is_no_chat_is_refused_by_name(generator: Any, path: Path, tmp_path: Path):
    chat = generator.session()
    for wrong in (3, {"content": "a"}, {"role": "user", "content": {1, 2}}):
        with pytest.raises(ArgumentError, match=r"^chat: "):
            chat.append(wrong)
    with pytest.raises(ArgumentError, match="seed is a Sampler's own"):
        generator.session(sampler=SAMPLER, seed=3)
    tokens = generator.engine.session([1, 2, 3])
    for data in (b"", b"[]", b'{"messages": 1, "template": {}}', b'{"messages": [1], "template": {}}', b"[" * 10**5):
        saved = b"".join(files.encode(tokens.saved(data)))
        with pytest.raises((FormatError, ArgumentError), match=r"holds no chat|expected messages"):
            treadle.text.resume(saved, generator)
    encoder = treadle.text.load(folders.write(tmp_path / "minilm"))
    with pytest.raises(ArgumentError, match="expected a Generator, which makes texts, got"):
        treadle.text.resume(saved, encoder)
    other = treadle.text.load(folders.chat(tmp_path / "other", seed=1))
    with pytest.raises(ArgumentError, match="is a session of another model"):
        treadle.text.resume(chat.save(tmp_path), other)
    damaged = bytearray(chat.save(tmp_path).read_bytes())
    damaged[-1] ^= 1
    with pytest.raises(ChecksumError):
        treadle.text.resume(bytes(damaged), generator)


# Says how many answers there are, then answers each line of standard input with a line, and saves the chat before.
SERVED = """
import json, os, sys, treadle
from treadle.decode.sampling import Sampler
from treadle.text import template
template.SECONDS = 60.0  # of a busy machine's
model, file = sys.argv[1:]
generator = treadle.text.load(model)
if os.path.exists(file):
    chat = treadle.text.resume(file, generator)
else:
    chat = generator.session(sampler=Sampler(1.1, top_p=0.95, seed=5, presence_penalty=0.2))
print(json.dumps(len(chat.messages) // 2), flush=True)
for line in sys.stdin:
    answer = chat.ask(json.loads(line), max_new_tokens=12).text
    chat.save(file)
    print(json.dumps([answer, chat.session.tokens.tolist()]), flush=True)
"""
QUESTIONS = ["the value of", "a name", "ü?", "", "what is", "a list of", "return the", "<|im_end|>", "why", "the end"]


class Killed:
    """Served chats that are killed at moments drawn from a seed, and go on in another process each time."""

    def __init__(self, model: Path, folder: Path, seed: int) -> None:
        self.model, self.folder, self.random = model, folder, random.Random(seed)
        self.chats: list[dict[int, Any]] = [{}]  # the answers that were given, by number, of each chat
        self.known = 0  # answers of the newest chat that were saved

    def kill(self) -> None:
        """Begins a process, asks it, and ends it at any moment."""
        if self.known >= len(QUESTIONS):
            self.chats.append({})
            self.known = 0
        file, pipes = self.folder / f"{len(self.chats)}.trses", {"stdin": processes.PIPE, "stdout": processes.PIPE}
        process = processes.start(SERVED, self.model, file, **pipes, text=True, bufsize=1)
        try:
            self.known = json.loads(process.stdout.readline())
            assert self.known > max(self.chats[-1], default=-1), "an answer that was given is not saved"
            while self.known < len(QUESTIONS):
                process.stdin.write(json.dumps(QUESTIONS[self.known]) + "\n")
                if self.random.random() < 0.4:
                    time.sleep(self.random.uniform(0, 0.03))
                    break
                self.chats[-1][self.known] = json.loads(process.stdout.readline())
                self.known += 1
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def uninterrupted(generator: Any) -> dict[int, Any]:
    chat = generator.session(sampler=SAMPLER)
    answers = (chat.ask(question, max_new_tokens=12).text for question in QUESTIONS)
    return {number: [answer, chat.session.tokens.tolist()] for number, answer in enumerate(answers)}


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.thorough)])
def test_chats_that_are_killed_at_any_moment_lose_nothing_that_was_saved(
    generator: Any, path: Path, tmp_path: Path, kills: int
):
    killed, expected = Killed(path, tmp_path, kills), uninterrupted(generator)
    for _ in range(kills):
        killed.kill()
    assert sum(map(len, killed.chats)) > kills // 3
    for answers in killed.chats:
        assert answers == {number: expected[number] for number in answers}
