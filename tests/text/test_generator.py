"""Prompts and chats to answers, by a decoder in an executable."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import treadle
from treadle.formats.messages.errors import ArgumentError, CheckpointError
from treadle.text.generator import Piece
from treadle.tools.cli import main
from treadle.tools.dev.zoo.folders import chat

pytest.importorskip("tokenizers")
PROMPT = "the value of"
HELLO = [{"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return treadle.compile(chat(tmp_path_factory.mktemp("folders") / "chat"), progress=False)


@pytest.fixture(scope="module")
def generator(executable: Any) -> Any:
    return treadle.text.load(executable)


def test_an_answer_is_what_the_decoder_makes_of_the_tokens(executable: Any, generator: Any) -> None:
    ids = generator.tokens(PROMPT)
    machine = treadle.VirtualMachine(executable)
    made = list(treadle.generate(machine, ids, max_new_tokens=30, stop=generator.text.stops))
    answer = generator.generate(PROMPT, max_new_tokens=30)
    assert "".join(answer) == answer.text == generator.decode(made)
    assert (answer.finish, answer.tokens, answer.prompt_tokens) == ("length", len(made), len(ids))
    assert generator.generate(ids, max_new_tokens=30).text == answer.text
    pieces = list(generator.generate(PROMPT, max_new_tokens=5, logprobs=2).pieces())
    assert [piece.token and piece.token.id for piece in pieces] == [*made[:5], None]
    assert all(len(piece.token.top) == 2 for piece in pieces[:-1])
    assert isinstance(pieces[0], Piece)


def test_one_file_holds_the_decoder_with_its_tokenizer_and_template(
    executable: Any, generator: Any, tmp_path: Path
) -> None:
    executable.export_library(tmp_path / "chat.trdl")
    other = treadle.text.load(tmp_path / "chat.trdl")
    pytest.importorskip("jinja2")
    assert other.generate(HELLO, max_new_tokens=8).text == generator.generate(HELLO, max_new_tokens=8).text


def test_a_chat_is_its_template(generator: Any) -> None:
    pytest.importorskip("jinja2")
    text = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert generator.chat(HELLO) == text
    assert generator.generate(HELLO, max_new_tokens=9).text == generator.generate(text, max_new_tokens=9).text
    called = {"function": {"name": "f", "arguments": '{"a": 1}'}, "type": "function"}
    given = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [called]}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    rendered = generator.prompt(given, {"tools": tools, "add_generation_prompt": False}).text
    assert rendered.startswith('<|im_start|>system\n{"type": "function"')
    assert rendered.endswith('\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><|im_end|>\n')
    parts = [{"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]}]
    assert generator.prompt(parts).text.startswith("<|im_start|>system\nbe brief<|im_end|>")


def test_an_answer_ends_where_it_is_told(generator: Any) -> None:
    text = generator.generate(PROMPT, max_new_tokens=30).text
    end = text[3:6]
    answer = generator.generate(PROMPT, max_new_tokens=30, stop=["no such text", end])
    assert (answer.text, answer.finish) == (text[: text.index(end)], "stop")
    assert answer.tokens < 30
    ends = generator.generate(PROMPT, max_new_tokens=30, logit_bias={395: 100.0})
    assert (ends.text, ends.finish, ends.tokens) == ("", "stop", 1)
    whole = generator.generate(PROMPT, logit_bias={395: -100.0})
    assert (len(whole.text) > 0, whole.finish, whole.tokens) == (True, "length", 512 - 3)
    answer = generator.generate(PROMPT, max_new_tokens=30)
    next(answer)
    answer.cancel()
    assert len(answer.text) < len(text)
    assert answer.finish == "cancelled"
    cancel = treadle.CancelToken()
    cancel.cancel()
    assert generator.generate(PROMPT, max_new_tokens=30, cancel=cancel).text == ""
    assert generator.generate(PROMPT, max_new_tokens=30, max_seconds=0.0).finish is None


def test_an_answer_that_is_left_ends(generator: Any) -> None:
    before = generator.statistics()["tokens"]
    for _ in generator.generate(PROMPT, logit_bias={395: -100.0}):
        break
    assert generator.generate(PROMPT, max_new_tokens=30).tokens == 0  # not asked for yet
    assert generator.generate(PROMPT, max_new_tokens=30).text
    assert generator.statistics()["tokens"] - before < 40
    assert generator.statistics()["running"] == 0


def test_answers_are_drawn_by_samplers(generator: Any) -> None:
    drawn = [generator.generate(PROMPT, max_new_tokens=12, temperature=1.0, seed=seed).text for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    sampler = treadle.Sampler(temperature=1.0, seed=1)
    assert generator.generate(PROMPT, max_new_tokens=12, sampler=sampler).text == drawn[0]


def test_prompts_that_begin_alike_are_computed_once(executable: Any) -> None:
    generator = treadle.text.load(executable)
    text = "one of the values that are in the list of all " * 4
    first = generator.generate(text + "a", max_new_tokens=4)
    expected = first.text
    again = generator.generate(text + "a", max_new_tokens=4)
    assert again.text == expected
    assert 0 == first.cached_tokens < again.cached_tokens
    assert generator.statistics()["tokens"] == 8


def test_several_answers_at_once_are_those_alone(generator: Any) -> None:
    prompts = [PROMPT, "a", "x = " * 9]
    answers = [generator.generate(each, max_new_tokens=20) for each in prompts]
    found = ["", "", ""]
    while not all(answer.finish for answer in answers):
        for number, answer in enumerate(answers):
            found[number] += next(answer, "")
    assert found == [generator.generate(each, max_new_tokens=20).text for each in prompts]


def test_constraints(generator: Any) -> None:
    pytest.importorskip("llguidance")
    mask = treadle.text.grammar.regex(generator, "[0-9]{3}(-[0-9]{2})?")
    answer = generator.generate(PROMPT, max_new_tokens=20, mask=mask)
    assert answer.text.replace("-", "").isdigit()
    assert answer.finish == "stop"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.generate("a" * 600), "the prompt has 600 tokens; the model takes 512 with the answer"),
        (lambda g: g.generate(""), "the prompt has no tokens"),
        (lambda g: g.generate([1, 400]), "token 400 is none of the tokenizer's"),
        (lambda g: g.generate(None), "expected a text"),
        (lambda g: g.generate("a", stop=[3]), "stop: expected texts"),
        (lambda g: g.generate("a", stop=""), "stop: expected texts"),
        (lambda g: g.generate("a", sampler=treadle.Sampler(), top_k=3), "sampler: expected it alone; top_k"),
        (lambda g: g.generate("a", temperature=-1), "temperature: expected"),
        (lambda g: g.generate("a", max_new_tokens=-1), "max_new_tokens: expected"),
        (lambda g: g.generate([{"role": "user", "content": [{"image": 1}]}]), "expected parts of text"),
    ],
)
def test_what_is_wrong_is_named(generator: Any, call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(generator)


def test_a_column_of_prompts_is_answered_in_order(executable: Any, generator: Any, tmp_path: Path) -> None:
    prompts = [PROMPT, "a", "", "é 日本", "of the"] * 3
    prompts[2::5] = ["x"] * 3
    executable.export_library(tmp_path / "chat.trdl")
    expected = [generator.generate(each, max_new_tokens=6, temperature=0.9, seed=7).text for each in prompts]
    options: dict[str, Any] = {"batch_size": 4, "max_new_tokens": 6, "temperature": 0.9, "seed": 7}
    results = treadle.map_batches(tmp_path / "chat.trdl", prompts, **options, checkpoint=tmp_path / "kept")
    assert results.numpy().tolist() == expected
    again = treadle.map_batches(tmp_path / "chat.trdl", prompts, **options, checkpoint=tmp_path / "kept")
    assert [each for batch in again for each in batch] == expected
    with pytest.raises(CheckpointError, match="answering was"):
        treadle.map_batches(
            tmp_path / "chat.trdl", prompts, **{**options, "seed": 8}, checkpoint=tmp_path / "kept"
        ).numpy()


def test_prompts_of_a_file_are_answered_into_a_file(executable: Any, generator: Any, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    executable.export_library(tmp_path / "chat.trdl")
    (tmp_path / "in.csv").write_text('prompt\n"the value of"\na\n', encoding="utf-8")
    command = ["map", tmp_path / "in.csv", tmp_path / "out.csv", "--model", tmp_path / "chat.trdl"]
    assert main([*map(str, command), "--max-new-tokens", "5", "--chat", "--quiet"]) == 0
    with open(tmp_path / "out.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    asked = [[{"role": "user", "content": each}] for each in (PROMPT, "a")]
    assert header == ["answer"]
    assert [row[0] for row in rows] == [generator.generate(each, max_new_tokens=5).text for each in asked]


def test_options_of_generators_are_theirs_alone() -> None:
    x = treadle.var("x", ("n", 2))
    executable = treadle.compile(treadle.Module(main=treadle.function([x], x + 1)), progress=False)
    with pytest.raises(ArgumentError, match="max_new_tokens: function 'main' makes no texts"):
        treadle.map_batches(executable, np.zeros((2, 2), np.float32), batch_size=1, max_new_tokens=3)
