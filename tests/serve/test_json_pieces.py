"""JSON in pieces is JSON: what is read and printed is what Python's `json` reads and prints, and no call of it gets much."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.serve import json_pieces
from treadle.serve.errors import BadRequestError, TooLargeError

from ..timing import soon

TEXTS = st.text(st.sampled_from(["a", '"', "\\", "\n", ",", "[", "]", "}", "é", "\U0001f600", "\ud83d"]), max_size=60)
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | TEXTS
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=12) | st.dictionaries(TEXTS, inner, max_size=4) | st.lists(SCALARS, max_size=40)
    ),
    max_leaves=60,
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "SHORT", 32)


@given(TREES, st.booleans(), st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
def test_what_is_read_is_what_json_reads(tree: Any, is_ascii: bool, separators: tuple[str, str]) -> None:
    text = json.dumps(tree, ensure_ascii=is_ascii, separators=separators)
    if not is_ascii:
        text = text.encode("utf-8", "replace").decode()
    assert repr(json_pieces.loads(text.encode())) == repr(json.loads(text))


@given(TREES, st.data())
def test_what_is_refused_is_what_json_refuses(tree: Any, data: st.DataObject) -> None:
    text = json.dumps(tree)
    at = data.draw(st.integers(0, len(text)))
    text = (
        text[:at]
        + data.draw(st.sampled_from([",", "]", "[", '"', "\\", "}", "0", ""]))
        + text[at + data.draw(st.integers(0, 2)) :]
    )
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(BadRequestError):
            json_pieces.loads(text.encode())
    else:
        assert repr(json_pieces.loads(text.encode())) == repr(expected)


@given(TREES)
def test_what_is_let_go_is_empty(tree: Any) -> None:
    json_pieces.discard(tree)
    assert not tree if isinstance(tree, (list, dict)) else True


@pytest.mark.parametrize(
    "array", [np.arange(10_000.0), np.array(["é" * 9, "", '"'], object), np.zeros((0, 2)), np.ones((2, 2), bool)]
)
def test_what_is_printed_is_what_json_prints(array: np.ndarray) -> None:
    assert json_pieces.listed(array) == json.dumps(array.reshape(-1).tolist())


LONG = {
    "numbers": "[" + "1.5, " * 200_000 + "1]",
    "rows": "[" + "[1, 2.5, 3]," * 40_000 + "[]]",
    "rows of rows": "[" + f"[{'[1, 2.5, 3],' * 10_000}[]]," * 4 + "[]]",
    "texts": "[" + '"a text, of some words",' * 30_000 + '""]',
    "one text": '"' + "\\u00e9\\ud83d\\ude00" * 50_000 + '"',
    "objects": "[" + '{"a": [1], "b": "}"},' * 30_000 + "{}]",
    "blanks": "[" + " " * 1_000_000 + "1]",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_no_piece_is_long(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the longest piece."""
    monkeypatch.setattr(json_pieces, "SHORT", 1 << 16)
    expected, read, longest = json.loads(text), json.loads, 0

    def loads(piece: str) -> Any:
        nonlocal longest
        longest = max(longest, len(piece))
        return read(piece)

    monkeypatch.setattr(json_pieces.json, "loads", loads)
    assert json_pieces.loads(text.encode()) == expected
    assert longest <= (1 << 16) + 2


BAD = {
    "lists": "[" + "[]," * 5_000_000 + "[]]",
    "lists in lists": "[" * 5_000_000,
    "objects": "[" + "{}," * 5_000_000 + "{}]",
    "members": "{" + ",".join(f'"{number}":0' for number in range(200_000)) + "}",
    "an open text": '["' + "\\\\" * 5_000_000,
    "no value": "[" + "0," * 1_000_000 + "]",
    "commas": "[" + "," * 10_000_000,
    "a long number": "[" + "1" * 10_000_000 + "]",
    "quotes": "[" + '"",a' * 1_000_000,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_takes_long_is_refused_soon(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "SHORT", 1 << 16)
    with soon(1.5), pytest.raises((BadRequestError, TooLargeError)):
        json_pieces.loads(text.encode())
