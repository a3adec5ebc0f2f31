"""Tokens to text while they are made: characters whose bytes are several tokens, and texts that end answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from treadle.formats.text_model import GENERATE, TextModel
from treadle.text.pieces import Pieces, Until

pytest.importorskip("tokenizers")
TEXTS = [
    "",
    "a",
    "héllo wörld",
    "日本語 text",
    "👩‍👩‍👧 family",
    "tabs\tand\n\nlines  of spaces ",
    "<tool_call>{}</tool_call>",
]


@pytest.fixture(scope="module")
def bytes_and_pairs() -> Any:
    from treadle.text.tokens import Tokenizer
    from treadle.tools.dev.zoo.folders import byte_tokenizer

    return Tokenizer(TextModel(GENERATE, byte_tokenizer(400).encode(), 0))


@pytest.fixture(scope="module")
def sentence_pieces() -> Any:
    """As SentencePiece makes it: words begin with ▁, unknown characters are bytes."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers
    from treadle.text.tokens import Tokenizer

    words = ["<unk>", "</s>", *(f"<0x{each:02X}>" for each in range(256)), "▁", "▁a", "▁the", "b", "c", "▁of", "x"]
    made = Library(models.BPE({word: at for at, word in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    made.add_special_tokens(["</s>"])
    return Tokenizer(TextModel(GENERATE, made.to_str().encode(), 0))


def read(tokenizer: Any, ids: list[int], before: tuple[int, ...] = ()) -> list[str]:
    pieces = Pieces(tokenizer, before)
    return [*(pieces.take(each) for each in ids), pieces.end()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_together_the_text(
    bytes_and_pairs: Any, sentence_pieces: Any, text: str
) -> None:
    for tokenizer in (bytes_and_pairs, sentence_pieces):
        ids = next(tokenizer.tokens([text])).ids.tolist()
        pieces = read(tokenizer, ids)
        assert "".join(pieces) == tokenizer.decode(ids) == text
        assert "�" not in "".join(pieces)


def test_tokens_of_any_kind_give_what_they_give_at_once(bytes_and_pairs: Any) -> None:
    rng = random.Random(1)
    for _ in range(100):
        ids = [rng.randrange(400) for _ in range(40)]
        assert "".join(read(bytes_and_pairs, ids)) == bytes_and_pairs.decode(ids)


def test_bytes_that_are_no_characters_do_not_wait_for_ever(sentence_pieces: Any) -> None:
    number = sentence_pieces.token("<0x80>")
    pieces = Pieces(sentence_pieces)
    assert any(pieces.take(number) for _ in range(20))
    assert len(pieces._window) < 20


def test_a_text_behind_a_prompt_keeps_its_first_space(sentence_pieces: Any) -> None:
    the, a = sentence_pieces.token("▁the"), sentence_pieces.token("▁a")
    assert "".join(read(sentence_pieces, [a])) == "a"
    assert "".join(read(sentence_pieces, [a], (the,))) == " a"
    assert sentence_pieces.text_of(a) == " a"


def test_bytes_of_tokens(bytes_and_pairs: Any, sentence_pieces: Any) -> None:
    for tokenizer in (bytes_and_pairs, sentence_pieces):
        ids = next(tokenizer.tokens(["日本 語"])).ids.tolist()
        assert b"".join(map(tokenizer.bytes_of, ids)).decode().strip() == "日本 語"


@pytest.mark.parametrize(
    ("ends", "text", "expected", "rest"),
    [
        (["stop"], "a st op stop it", "a st op ", " it"),
        (["aab"], "aaab", "a", ""),
        (["\n\n", "END"], "one\ntwo\n\nEND", "one\ntwo", "END"),
        (["ab", "abc"], "xabcd", "x", "d"),
        (["never"], "nev", "nev", None),
        ([], "all", "all", None),
    ],
)
def test_a_text_ends_before_the_first_of_its_ends(ends: list[str], text: str, expected: str, rest: str | None) -> None:
    for size in (1, 2, 3, len(text)):
        until = Until(ends)
        found, at = "", 0
        while at < len(text) and until.rest is None:
            found += until.take(text[at : at + size])
            at += size
        assert found + until.end() == expected
        assert (until.rest is None) == (rest is None)
        if size == len(text):
            assert until.rest == rest
