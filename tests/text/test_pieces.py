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


def test_texts_of_tokens_are_those_of_the_library() -> None:
    """Of plain decoders, which are computed here, and of others."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models
    from treadle.text.tokens import Tokenizer

    raw = [f"<0x{each:02X}>" for each in (0x61, 0xC3, 0xA9, 0xE6, 0x97, 0xA5, 0x80, 0xFF)]
    words = ["▁", "▁a", "▁▁b", "c", "##d", "é", "Ġx", "Ãĥ", "©", " ", "  e ", "<s>", "日", *raw]
    strip, replace = decoders.Strip(" ", 1, 0), decoders.Replace("▁", " ")
    plain = [
        None,
        decoders.ByteLevel(),
        decoders.Metaspace(),
        decoders.Metaspace(prepend_scheme="never"),
        decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip]),
        decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Sequence([decoders.ByteFallback(), decoders.Strip(" ", 2, 0), decoders.Replace("aa", "a")]),
    ]
    others = [
        decoders.WordPiece(),
        decoders.Strip(" ", 0, 1),
        decoders.BPEDecoder("e"),
        decoders.Replace("c", "d" * 99),
    ]
    rng = random.Random(1)
    for decoder in [*plain, *others]:
        names = words if decoder in others else ["", *words]  # the library's Strip fails on a token of no characters
        made = Library(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="c"))
        made.add_special_tokens(["<s>"])
        if decoder is not None:
            made.decoder = decoder
        tokenizer = Tokenizer(TextModel(GENERATE, made.to_str().encode(), 0))
        assert (tokenizer._joined is None) == (decoder in others)
        for _ in range(100):
            ids = [rng.randrange(len(names) + 1) for _ in range(rng.randrange(9))]
            for skips in (True, False):
                assert tokenizer.decode(ids, skips) == made.decode(ids, skip_special_tokens=skips), (decoder, ids)


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
