"""Counts of a vocabulary's n-grams in texts as bytes, without creating a text for each token.

`tokenize_texts` and `count_ngrams` are fused into one walk over bytes in UTF-8, by tables that
`cpu/text_tables.py` makes of a regular expression and a vocabulary:

    table     shape           what
    moves     [states, 256]   by the next byte: one more than the next state, times two (0 or 1: none), plus whether a match
                              ends before the byte. The first byte of a character stands for it, and byte 128, which starts no
                              character, for the end of the text. A match begins in one of the first four states (see `BEFORE`).
    tokens    [slots, 4]      a hash table of tokens: hash, first byte in `letters`, bytes (0: an empty slot), number
    letters   [bytes]         of all tokens
    edges     [slots, 4]      a hash table of n-grams, read from their last token: node, the token before, the node that these are
                              together; -1 in an empty slot. The node of one token is its number.
    columns   [nodes]         of the result, in which a node's n-gram is counted; -1 if it is not

States and slots are powers of two, and taken modulo these, so that nothing outside of the tables is read; what
points out of `letters`, `columns` or the result is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np

from .....formats.dtypes import DType
from .....formats.messages.errors import IndexOutOfRangeError
from .....formats.text_entries import bytes_of
from .....formats.types import UNKNOWN, TensorType
from ....operators.shapes import STRING, mismatch, same_dtype
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.texts import NORMALISING, normalized

END = 128  # the byte that stands for the end of a text
_WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
_MASK = (1 << 64) - 1


class BEFORE(IntEnum):
    """The state in which a match begins, by the character before it."""

    NOTHING = 0
    NEW_LINE = 1
    WORD = 2
    OTHER = 3


def state_behind(byte: int) -> int:
    """The state in which a match begins after a byte."""
    if byte == ord("\n"):
        return BEFORE.NEW_LINE
    return BEFORE.WORD if byte in _WORD else BEFORE.OTHER


# FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/)
HASH_START, HASH_FACTOR = 0xCBF29CE484222325, 0x100000001B3
EDGE_FACTORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F


def token_hash(token: bytes) -> int:
    """A token's hash, 31 bits of which the lowest name its slot."""
    state = HASH_START
    for byte in token:
        state = (state ^ byte) * HASH_FACTOR & _MASK
    return (state ^ state >> 32) & 0x7FFFFFFF


def edge_hash(node: int, token: int) -> int:
    """The hash of a node and the token before, 31 bits of which the lowest name its slot."""
    state = (node * EDGE_FACTORS[0] + token * EDGE_FACTORS[1]) & _MASK
    return state >> 32 & 0x7FFFFFFF


# ---- texts as bytes ----


def _infer_bytes(inputs: Sequence[TensorType], **_: object) -> tuple[TensorType, TensorType]:
    same_dtype(inputs, STRING)
    if any(type_.rank != 1 for type_ in inputs):
        raise mismatch("texts [n] and stop words [m]", " and ".join(map(str, inputs)))
    count = inputs[0].shape[0] if len(inputs) == 1 else UNKNOWN
    return TensorType(DType.uint8, (UNKNOWN,)), TensorType(DType.int64, (count,))


def _bytes(
    x: np.ndarray, stopwords: np.ndarray | None = None, *, case: str, is_case_sensitive: bool
) -> tuple[np.ndarray, np.ndarray]:
    if stopwords is None:
        return bytes_of(x, case)
    return bytes_of(normalized(x, stopwords, case, is_case_sensitive), "none")


# ---- counting ----


def _infer_counts(inputs: Sequence[TensorType], width: int, most: int, skips: int, **_: object) -> TensorType:
    ends, moves, tokens, edges = inputs[1], inputs[2], inputs[3], inputs[5]
    expected = (DType.uint8, DType.int64, DType.int32, DType.int32, DType.uint8, DType.int32, DType.int32)
    if tuple(type_.dtype for type_ in inputs) != expected or [type_.rank for type_ in inputs] != [1, 1, 2, 2, 1, 2, 1]:
        raise mismatch("bytes, ends of texts, and five tables", ", ".join(map(str, inputs)))
    for table, columns_of in ((moves, 256), (tokens, 4), (edges, 4)):
        if table.shape[1] != columns_of or (isinstance(table.shape[0], int) and not _is_power(table.shape[0])):
            raise mismatch(f"a table [n, {columns_of}], with n a power of two", table)
    if width < 1 or not 1 <= most <= MOST_TOKENS or not 0 <= skips <= MOST_TOKENS:
        raise mismatch(f"a column at least, and up to {MOST_TOKENS} tokens", f"{width}, {most} and {skips}")
    return TensorType(DType.float32, (ends.shape[0], width))


MOST_TOKENS = 64  # most tokens of an n-gram, and of those skipped between two of it


def _is_power(number: int) -> bool:
    return number > 0 and number & number - 1 == 0


def _counts(
    text: np.ndarray,
    ends: np.ndarray,
    moves: np.ndarray,
    tokens: np.ndarray,
    letters: np.ndarray,
    edges: np.ndarray,
    columns: np.ndarray,
    **attributes: int,
) -> np.ndarray:
    width, most, skips = (attributes[name] for name in ("width", "most", "skips"))
    total = np.zeros((len(ends), width), np.float32)
    whole, begin = text.tobytes(), 0
    for row, end in enumerate(ends.tolist()):
        if not 0 <= begin <= end <= len(whole):
            raise IndexOutOfRangeError(f"count_text_ngrams: a text from byte {begin} to {end} of {len(whole)}")
        found = [_number(token, tokens, letters) for token in _tokens(whole[begin:end], moves, attributes["least"])]
        for node in _nodes(found, edges, most, skips):
            if node >= len(columns) or columns[node] >= width:
                raise IndexOutOfRangeError(f"count_text_ngrams: node {node} of {len(columns)}, or its column, is none")
            if columns[node] >= 0:
                total[row, columns[node]] += 1
        begin = end
    return total


def _entries(table: np.ndarray, hashed: int) -> Iterator[list[int]]:
    """The slots of a hash table where an entry may be, in probing order."""
    for slot in range(hashed, hashed + len(table)):
        yield table[slot % len(table)].tolist()


def _number(token: bytes, tokens: np.ndarray, letters: np.ndarray) -> int:
    """The number of a token; a negative one if unknown."""
    hashed = token_hash(token)
    for its_hash, first, length, number in _entries(tokens, hashed):
        if length == 0:
            return -1
        if (its_hash, length) == (hashed, len(token)):
            if not 0 <= first <= len(letters) - length:
                raise IndexOutOfRangeError(
                    f"count_text_ngrams: a token of {length} bytes from {first} on of {len(letters)}"
                )
            if letters[first : first + length].tobytes() == token:
                return int(number)
    return -1


def _joined(node: int, before: int, edges: np.ndarray) -> int:
    """The node of an n-gram extended by the token before; a negative number if there is none."""
    for its_node, its_token, to, _ in _entries(edges, edge_hash(node, before)) if before >= 0 else ():
        if its_node < 0:
            return -1
        if (its_node, its_token) == (node, before):
            return int(to)
    return -1


def _tokens(text: bytes, moves: np.ndarray, least: int) -> list[bytes]:
    """The matches, the longest at each place; after a match that is too short, the search resumes at its second character."""
    found, begin = [], 0
    while begin < len(text):
        end, characters = _longest(text, begin, moves)
        if characters >= least:
            found.append(text[begin:end])
            begin = end
        else:
            begin = _next(text, begin)
    return found


def _longest(text: bytes, begin: int, moves: np.ndarray) -> tuple[int, int]:
    """The end of the longest match that begins there, and its number of characters; 0 if there is none."""
    state = state_behind(text[begin - 1]) if begin else BEFORE.NOTHING
    best, at, characters = (begin, 0), begin, 0
    while True:
        move = int(moves[state % len(moves), text[at] if at < len(text) else END])
        if move & 1:
            best = at, characters
        if move < 2 or at == len(text):
            return best
        state, at, characters = (move >> 1) - 1, _next(text, at), characters + 1


def _next(text: bytes, at: int) -> int:
    """The start of the next character."""
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def _nodes(tokens: list[int], edges: np.ndarray, most: int, skips: int) -> list[int]:
    """The nodes of all n-grams, from their last token."""
    found = []
    for last, token in enumerate(tokens):
        if token < 0:
            continue
        found.append(token)
        for step in range(1, skips + 2):
            node = token
            for at in range(last - step, max(last - step * most, -1), -step):
                node = _joined(node, tokens[at], edges)
                if node < 0:
                    break
                found.append(node)
    return found


register(
    "text_bytes",
    "x stopwords?",
    _infer_bytes,
    _bytes,
    Fusion.OPAQUE,
    "the bytes of texts in UTF-8, one text behind the other, and where each ends; with stop words, as normalize_texts has them",
    attributes=NORMALISING,
    data_dependent=True,
    takes_texts=True,
)
register(
    "count_text_ngrams",
    "text ends moves tokens letters edges columns",
    _infer_counts,
    _counts,
    Fusion.OPAQUE,
    "how often each text, of those whose bytes end at `ends`, has each n-gram of tables; operators/text_counts.py tells of these",
    attributes={
        "width": Attribute(Kind.INT, "columns of the result"),
        "least": Attribute(Kind.INT, "characters of the shortest tokens that count", 1),
        "most": Attribute(Kind.INT, "tokens of the longest n-grams", 1),
        "skips": Attribute(Kind.INT, "how many tokens may be skipped between two of an n-gram, always as many", 0),
    },
)
