"""Constraints by schema, regular expression and grammar: what comes follows them, and an enemy's end."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import numpy as np
import pytest
import treadle
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from treadle.formats.messages.errors import ArgumentError, BudgetExceededError
from treadle.formats.text_model import TextModel
from treadle.text import grammar
from treadle.text.tokens import Tokenizer

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")
SPECIAL = ("<|end|>", "<|other|>")


def byte_level() -> Any:
    """A tokenizer of bytes, of pairs that JSON has, and of two special tokens."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=list(SPECIAL), show_progress=False
    )
    made.train_from_iterator(
        ['{"name": "a\\u00fc", "age": 12, "is": true}, [{"":null}]' * 9, "false é 你好 -1.5e3"], trainer
    )
    return made


def with_fallback() -> Any:
    """One as SentencePiece's, in which what has no token is made of bytes."""
    words = ["▁", "▁a", "a", '"', "{", "}", ":", "▁true", "true", "1", "[", "]", ",", "b", "_"]
    names = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    vocabulary = {name: number for number, name in enumerate(names)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    made.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in ("<unk>", *SPECIAL)])
    decoders = tokenizers.decoders
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def of(made: Any, stops: tuple[int, ...] | None = None) -> Tokenizer:
    stops = (made.token_to_id(SPECIAL[0]),) if stops is None else stops
    return Tokenizer(TextModel("generate", made.to_str().encode(), 0, stops=stops))


@pytest.fixture(scope="module", params=[byte_level, with_fallback])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return of(request.param())


@pytest.fixture(scope="module")
def bytes_tokenizer() -> Tokenizer:
    return of(byte_level())


def written(tokenizer: Tokenizer, mask: Any, seed: int, most: int = 600) -> str:
    """A text of tokens by chance, of those that are allowed; the text ends as soon as it may in one of two cases."""
    draw = np.random.default_rng(seed)
    (end,) = tokenizer.ends
    tokens: list[int] = []
    while len(tokens) < most:
        allowed = np.flatnonzero(mask.allowed())
        token = end if end in allowed and draw.random() < 0.5 else int(draw.choice(allowed))
        if token == end:
            return tokenizer.decode(tokens)
        mask.take(token)
        tokens.append(token)
    assume(False)
    raise AssertionError


def leaves() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string", "maxLength": 5}, {"const": "ü\n"}]),
        st.builds(
            lambda a, b: {"type": "integer", "minimum": min(a, b), "maximum": max(a, b)}, *[st.integers(-999, 999)] * 2
        ),
        st.builds(
            lambda values: {"enum": values},
            st.lists(st.sampled_from(["a", 'b"', 1, None, [1]]), min_size=1, max_size=3),
        ),
        st.just({"type": "string", "pattern": "^[a-c]{1,3}(x|é)$"}),
    )


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b c", "ü", '"', "$x"])
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner),
        st.builds(
            lambda each, count: {
                "type": "object",
                "properties": each,
                "required": list(each)[:count],
                "additionalProperties": False,
            },
            st.dictionaries(names, inner, max_size=3),
            st.integers(0, 3),
        ),
        st.builds(lambda several: {"anyOf": several}, st.lists(inner, min_size=1, max_size=3)),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=st.recursive(leaves(), deeper, max_leaves=6), seed=st.integers(0, 1000))
def test_what_a_schema_allows_is_valid(tokenizer: Tokenizer, schema: Any, seed: int) -> None:
    text = written(tokenizer, grammar.json_schema(tokenizer, schema), seed)
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z]{2,5}",
        r"\d{3}-\d{4}",
        "(ab|c/d)+\n?",
        r"a\/b\\/[^x]",
        "[ü你]{1,4}",
        r"(?i)yes|no",
        ".{0,9}",
        "",
        r"\p{Lu}\w*",
    ],
)
def test_what_an_expression_allows_matches(tokenizer: Tokenizer, pattern: str) -> None:
    python = pattern.replace(r"\p{Lu}", "[A-ZÀ-ÞĀ-῾Ⅰ-\U0001ffff]")
    for seed in range(3):
        assert re.fullmatch(python, written(tokenizer, grammar.regex(tokenizer, pattern), seed))


def test_what_a_grammar_allows_follows_it(tokenizer: Tokenizer) -> None:
    rules = 'start: "(" start ")" start | "x" NUMBER |\nNUMBER: /[0-9]{1,3}/\n# a comment'
    for seed in range(20):
        text = written(tokenizer, grammar.lark(tokenizer, rules), seed)
        while "()" in text or re.search(r"x\d{1,3}", text):
            text = re.sub(r"x\d{1,3}(?!\d)", "", text, count=1).replace("()", "")
        assert text == ""


def test_tokens_are_allowed_exactly_where_their_text_goes_on(tokenizer: Tokenizer) -> None:
    """By a language that a table describes: up to three characters of "a", "{" and the space."""
    pieces, special = tokenizer.pieces()
    mask = grammar.regex(tokenizer, "[a{ ]{1,3}")
    (end,) = tokenizer.ends
    text = b""
    for _ in range(4):
        expected = [
            bool(piece) and number not in special and set(piece) <= set(b"a{ ") and len(text + piece) <= 3
            for number, piece in enumerate(pieces)
        ]
        expected[end] = 1 <= len(text) <= 3
        assert mask.allowed().tolist() == expected
        if len(text) == 3:
            break
        token = pieces.index(b"a")
        mask.take(token)
        text += pieces[token]


def test_pieces_are_what_the_tokenizer_decodes(tokenizer: Tokenizer) -> None:
    pieces, special = tokenizer.pieces()
    plain = [number for number, piece in enumerate(pieces) if piece.isascii() and number not in special]
    whole = [pieces.index(bytes([byte])) for byte in "é你".encode()]
    draw = np.random.default_rng(1)
    for _ in range(50):
        tokens = [*draw.choice(plain, 8).tolist(), *whole, *draw.choice(plain, 8).tolist()]
        assert tokenizer.decode(tokens).encode() == b"".join(pieces[token] for token in tokens)


def test_every_end_of_the_model_is_allowed_where_the_text_is_complete() -> None:
    made = byte_level()
    both = of(made, (1, 0))
    mask = grammar.regex(both, "a?")
    assert mask.allowed()[[0, 1]].all()
    mask.take(made.token_to_id("a"))
    assert np.flatnonzero(mask.allowed()).tolist() == [0, 1]
    mask.take(0)
    assert np.flatnonzero(mask.allowed()).tolist() == [0, 1]
    with pytest.raises(ArgumentError, match="no token ends a text: expected eos_token_id"):
        grammar.regex(of(made, ()), "a")


def test_special_tokens_are_named_in_grammars(bytes_tokenizer: Tokenizer) -> None:
    mask = grammar.lark(bytes_tokenizer, 'start: <|other|> "a"')
    assert np.flatnonzero(mask.allowed()).tolist() == [1]
    mask.take(1)
    assert mask.allowed().sum() == 1


def test_texts_side_by_side_do_not_disturb_each_other(
    bytes_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the process keeps, and a process that ends: a text goes on by its grammar and tokens."""
    masks = [grammar.regex(bytes_tokenizer, f"a{{{count}}}") for count in range(1, 300)]
    process = masks[0]._process
    token = bytes_tokenizer.tokens(["a"]).__next__().ids[0]
    for count, mask in enumerate(masks, 1):
        for _ in range(min(count, 3)):
            mask.take(token)
        if count == 200:
            process.close()
        assert mask.allowed()[bytes_tokenizer.ends].all() == (count <= 3)


def test_a_token_that_is_not_allowed_is_named(bytes_tokenizer: Tokenizer) -> None:
    mask = grammar.regex(bytes_tokenizer, "a")
    mask.take(1)
    with pytest.raises(ArgumentError, match="regex: "):
        mask.allowed()
    with pytest.raises(ArgumentError, match="regex: "):
        mask.allowed()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: grammar.json_schema(t, 3), "json_schema: expected an object, got"),
        (lambda t: grammar.json_schema(t, {"a": object()}), "json_schema: the schema is not JSON"),
        (lambda t: grammar.json_schema(t, {"minimum": float("nan")}), "json_schema: the schema is not JSON"),
        (lambda t: grammar.json_schema(t, "{"), "json_schema: the schema is not JSON"),
        (lambda t: grammar.json_schema(t, "[" * 100_000), "json_schema: the schema is not JSON"),
        (lambda t: grammar.json_schema(t, {"type": "strin"}), "json_schema: .*strin"),
        (lambda t: grammar.json_schema(t, {"$ref": "file:///etc/passwd"}), "json_schema: .*file:///etc/passwd"),
        (lambda t: grammar.json_schema(t, {"$ref": "http://127.0.0.1:1/a"}), "json_schema: .*http"),
        (lambda t: grammar.json_schema(t, {"enum": ["a" * (1 << 18)]}), "json_schema: .* characters; expected at most"),
        (lambda t: grammar.json_schema(t, {"enum": []}), "json_schema: "),
        (lambda t: grammar.json_schema("gpt2", {}), "tokenizer: expected what treadle.text.load gives, got"),
        (lambda t: grammar.regex(t, b"a"), "regex: expected a text, got"),
        (lambda t: grammar.regex(t, "("), "regex: .*unclosed group"),
        (lambda t: grammar.regex(t, "(?=a)"), "regex: "),
        (lambda t: grammar.regex(t, "(" * 9999 + ")" * 9999), "regex: "),
        (lambda t: grammar.regex(t, "a\ud800"), "regex: "),
        (lambda t: grammar.lark(t, ""), "lark: "),
        (lambda t: grammar.lark(t, "start: a"), "lark: .*unknown name"),
        (lambda t: grammar.lark(t, "%import /etc/passwd\nstart: A"), "lark: "),
        (lambda t: grammar.lark(t, '{"grammars": []}'), "lark: "),
        (lambda t: grammar.lark(t, "start: <|nobody|>"), "lark: "),
    ],
)
def test_what_is_no_grammar_is_named(bytes_tokenizer: Tokenizer, call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"(?s){message}"):
        call(bytes_tokenizer)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: grammar.lark(t, "start: a0\n" + "\n".join(f"a{i}: a{i + 1}" for i in range(9999)) + '\na9999: "x"'),
        lambda t: grammar.lark(t, "start: A0\n" + "\n".join(f"A{i}: A{i + 1}" for i in range(9999)) + '\nA9999: "x"'),
        lambda t: grammar.lark(t, "start: A\nA: " + " & ".join(f"/(.*a.{{{i}}}b.*)/" for i in range(1, 30))),
        lambda t: grammar.lark(
            t, "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(40)) + '\nA40: "x"'
        ),
        lambda t: grammar.json_schema(t, {"type": "integer", "multipleOf": 9_999_991}),
    ],
    ids=["rules", "terminals", "intersections", "doubling", "multiples"],
)
def test_grammars_of_an_enemy_end_alone(bytes_tokenizer: Tokenizer, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = grammar.regex(bytes_tokenizer, "[ab]{5}")
    beside.take(int(np.flatnonzero(beside.allowed())[0]))
    monkeypatch.setattr(grammar, "SECONDS", 1.0)
    start = time.monotonic()
    with pytest.raises((BudgetExceededError, ArgumentError), match=r"took more than|too big"):
        call(bytes_tokenizer)
    assert time.monotonic() - start < 30
    start = time.monotonic()
    with pytest.raises((BudgetExceededError, ArgumentError)):
        call(bytes_tokenizer)
    assert time.monotonic() - start < 1.0  # it is not tried again, or fails at once
    monkeypatch.undo()
    assert beside.allowed().any()


def test_repetitions_without_end_are_bounded_as_they_are_written(bytes_tokenizer: Tokenizer) -> None:
    for pattern in ("a{1000000000}", "((a{1000}){1000}){1000}", "(a|b)*a(a|b){40}"):
        with pytest.raises((BudgetExceededError, ArgumentError)):  # noqa: PT012
            mask = grammar.regex(bytes_tokenizer, pattern)
            for _ in range(60):
                mask.take(int(np.flatnonzero(mask.allowed())[0]))
            raise ArgumentError("it goes on")


def test_a_decoder_that_joins_words_is_refused() -> None:
    from treadle.tools.dev.zoo import folders

    wordpiece = Tokenizer(TextModel("generate", folders.tokenizer(300).encode(), 0, stops=(3,)))
    with pytest.raises(ArgumentError, match="decoder"):
        grammar.regex(wordpiece, "a")


def test_it_is_a_mask_of_the_package() -> None:
    assert treadle.text.grammar is grammar
