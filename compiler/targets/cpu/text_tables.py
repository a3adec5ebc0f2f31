"""The tables of `count_text_ngrams`, of a regular expression and a vocabulary: see `operators/text_counts.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...operators.regular_expressions import Pattern, States
from .operators.text_counts import BEFORE, END, edge_hash, token_hash

_MOST_STATES = 256
_ANY_OTHER = "\u0100"  # stands for all non-ASCII characters
_FIRST_BYTES = range(0xC0, 0x100)  # of these characters
_COLUMNS = [*range(128), END, *_FIRST_BYTES]
_BEFORE = {BEFORE.NOTHING: "", BEFORE.NEW_LINE: "\n", BEFORE.WORD: "a", BEFORE.OTHER: " "}


def moves_of_pattern(expression: str) -> np.ndarray | None:
    """The table of an expression's matches; None if it distinguishes non-ASCII characters, or has too
    many states. Raises PatternError."""
    automaton = Pattern(expression)
    if not automaton.takes_others_alike:
        return None
    return _moves(automaton)


def moves_of_characters() -> np.ndarray:
    """The table of single characters."""
    return _of_runs(frozenset(), is_single=True)


def moves_between(separators: Sequence[str]) -> np.ndarray | None:
    """The table of the parts between separators; None unless each is a set of single characters."""
    found: set[int] = set()
    for separator in separators:
        moves = moves_of_pattern(separator)
        single = None if moves is None else _single_characters(moves)
        if single is None:
            return None
        found |= single
    return _of_runs(frozenset(found), is_single=False)


def _of_runs(separators: frozenset[int], is_single: bool) -> np.ndarray:
    """The longest runs, or single ones, of characters whose first bytes are not separators."""
    moves = np.zeros((8, 256), np.int32)
    inside = len(BEFORE)
    taken = [byte for byte in (*range(128), *_FIRST_BYTES) if byte not in separators]
    moves[: inside + (0 if is_single else 1), taken] = (inside + 1) << 1
    moves[inside] |= 1
    return moves


def _single_characters(moves: np.ndarray) -> set[int] | None:
    """The first bytes of the characters that a table matches, one at a time, whatever stands around; else None."""
    if np.any(moves[1 : len(BEFORE)] != moves[0]) or np.any(moves[0] & 1):
        return None
    found = set()
    for byte in np.flatnonzero(moves[0]).tolist():
        if np.any(moves[(int(moves[0, byte]) >> 1) - 1, _COLUMNS] != 1):  # a match, and no way on
            return None
        found.add(byte)
    return found


def _moves(automaton: Pattern) -> np.ndarray | None:
    """The table of an automaton, whose states are found from those in which a match begins."""
    states = [automaton.start(char) for char in _BEFORE.values()]
    columns = [*((chr(code), code) for code in range(128)), ("", END), (_ANY_OTHER, _FIRST_BYTES[0])]
    numbers: dict[States, int] = {}
    rows: list[np.ndarray] = []
    while len(rows) < len(states):
        if len(states) > _MOST_STATES:
            return None
        row = np.zeros(256, np.int32)
        for char, column in columns:
            is_match, behind = automaton.step(states[len(rows)], char)
            row[column] = int(is_match)
            if behind is not None:
                if behind not in numbers:
                    numbers[behind] = len(states)
                    states.append(behind)
                row[column] |= (numbers[behind] + 1) << 1
        row[_FIRST_BYTES] = row[_FIRST_BYTES[0]]
        rows.append(row)
    table = np.zeros((_power_of_two(len(rows)), 256), np.int32)
    table[: len(rows)] = rows
    return table


# ---- the vocabulary ----


class Vocabulary(NamedTuple):
    """The tables of n-grams."""

    tokens: np.ndarray
    letters: np.ndarray
    edges: np.ndarray
    columns: np.ndarray


def vocabulary(ngrams: Sequence[tuple[Sequence[str], int]]) -> Vocabulary:
    """The tables of n-grams with their columns; of equal ones the first counts."""
    numbers = {
        token: number for number, token in enumerate(dict.fromkeys(token for each, _ in ngrams for token in each))
    }
    columns = [-1] * len(numbers)
    edges: dict[tuple[int, int], int] = {}
    for tokens, column in ngrams:
        *before, last = (numbers[token] for token in tokens)
        node = last
        for token in reversed(before):
            if (node, token) not in edges:
                edges[node, token] = len(columns)
                columns.append(-1)
            node = edges[node, token]
        if columns[node] < 0:
            columns[node] = column
    return Vocabulary(*_token_table(list(numbers)), _edge_table(edges), np.array(columns, np.int32))


def _token_table(tokens: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    table = np.zeros((_power_of_two(2 * len(tokens)), 4), np.int32)
    encoded = [token.encode() for token in tokens]
    taken = [False] * len(table)
    first = 0
    for number, token in enumerate(encoded):
        if token:  # an empty one is never found
            hashed = token_hash(token)
            table[_free(taken, hashed)] = hashed, first, len(token), number
        first += len(token)
    return table, np.frombuffer(b"".join(encoded), np.uint8)


def _edge_table(edges: dict[tuple[int, int], int]) -> np.ndarray:
    table = np.full((_power_of_two(2 * len(edges)), 4), -1, np.int32)
    taken = [False] * len(table)
    for (node, token), to in edges.items():
        table[_free(taken, edge_hash(node, token))] = node, token, to, 0
    return table


def _free(taken: list[bool], hashed: int) -> int:
    """Takes the first free slot for a hash."""
    slot = hashed % len(taken)
    while taken[slot]:
        slot = (slot + 1) % len(taken)
    taken[slot] = True
    return slot


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
