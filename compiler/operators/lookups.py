"""Lookups in tables, of texts or of numbers: host operators."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.metering import OBJECT, step
from ...formats.strings import FEW
from ...formats.types import TensorType
from .recall import Recall, recalled
from .shapes import INTEGER, STRING, mismatch, same_dtype
from .table import Attribute, Fusion, Kind, register

_OPAQUE = Fusion.OPAQUE


def _infer_look_up(inputs: Sequence[TensorType]) -> TensorType:
    x, keys, values, default = inputs
    same_dtype((x, keys))
    if keys.rank != 1 or values.rank != 1 or keys.shape != values.shape or default.rank:
        raise mismatch("keys [n], values [n] and a default", f"{keys}, {values} and {default}")
    return TensorType(same_dtype((values, default)), x.shape)


def _looked_up(
    x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: np.ndarray, recall: Recall | None = None
) -> np.ndarray:
    """NaN is equal to NaN here; of equal keys the first one counts."""
    if not len(keys):
        return np.full(x.shape, default, values.dtype)
    if x.dtype == object:
        places = recalled(recall, (keys,), lambda _: 3 * OBJECT * len(keys), lambda: _places(keys))
        at = np.array([places.get(text, -1) for text in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
        return np.where(at >= 0, values[at], default)
    order = recalled(recall, (keys,), lambda _: 2 * keys.nbytes, lambda: np.argsort(keys, kind="stable"))
    found = order[np.minimum(np.searchsorted(keys, x, sorter=order), len(keys) - 1)]
    is_known = keys[found] == x
    if x.dtype.kind == "f":
        is_known |= np.isnan(keys[found]) & np.isnan(x)
    return np.where(is_known, values[found], default)


def _places(keys: np.ndarray) -> dict[Any, int]:
    """The place of each key, the first of equal ones."""
    places: dict[Any, int] = {}
    for at, key in enumerate(keys.tolist()):
        places.setdefault(key, at)
    return places


def _infer_ngrams(inputs: Sequence[TensorType], columns: int, **_: object) -> TensorType:
    x, pool, places = inputs
    same_dtype((x, pool), STRING | INTEGER)
    if x.rank not in (1, 2) or pool.rank != 1 or places.rank != 1 or places.dtype is not DType.int64:
        raise mismatch("x [c] or [b, c], a pool [n] and places [m] of int64", f"{x}, {pool} and {places}")
    return TensorType(DType.float32, (*x.shape[:-1], columns))


def _ngrams(
    x: np.ndarray,
    pool: np.ndarray,
    places: np.ndarray,
    begins: tuple[int, ...],
    least: int,
    most: int,
    skips: int,
    columns: int,
    recall: Recall | None = None,
) -> np.ndarray:
    total = np.zeros((*x.shape[:-1], columns), np.float32)
    spans = _spans(least, min(most, len(begins)), skips, x.shape[-1])
    count = math.prod(x.shape[:-1])  # -1 is not known where there are no tokens
    rows, counts = x.reshape(count, x.shape[-1]), total.reshape(count, columns)
    known_pool = recalled(recall, (pool, begins), lambda each: each.nbytes, lambda: _Pool(pool.copy(), begins))
    if x.size <= FEW and len(pool) <= _FEW_GRAMS:
        _count_few(counts, rows.tolist(), known_pool.grams, places, list(spans))
        return total
    tokens, codes = known_pool.codes
    if not len(tokens) or not rows.size:
        return total
    known = np.minimum(np.searchsorted(tokens, rows), len(tokens) - 1)
    known = np.where(tokens[known] == rows, known, -1)
    for size, distance in spans:
        order, numbers, first = codes[size - 1]
        if not len(order):
            continue
        starts = rows.shape[1] - distance * (size - 1)
        code = np.zeros((len(rows), starts), np.int64)
        for at in range(size):  # exact: what a row may be is numbered anew for each token
            token = known[:, at * distance : at * distance + starts]
            code = _next_code(numbers[at], code, token, len(tokens))
        line, _ = np.nonzero(code >= 0)
        gram = order[code[code >= 0]] + first
        np.add.at(counts, (line, places[gram]), 1)
    return total


def _spans(least: int, most: int, skips: int, length: int) -> Iterator[tuple[int, int]]:
    """The sizes of n-grams in a row, each with the distances between two of their tokens."""
    for size in range(least, min(most, length) + 1):
        for distance in range(1, (skips + 1 if size > 1 else 1) + 1):
            if distance * (size - 1) >= length:
                break
            yield size, distance


_FEW_GRAMS = 1 << 14  # elements of a pool of which a dict is made: a millisecond
_Grams = dict[tuple[Any, ...], int]


class _Pool:
    """A pool of n-grams, as few tokens and as many are looked up in it."""

    def __init__(self, pool: np.ndarray, begins: tuple[int, ...]) -> None:
        self._pool, self._begins = pool, begins
        self.nbytes = 9 * pool.nbytes + 32 * pool.size + (4 * OBJECT * pool.size if len(pool) <= _FEW_GRAMS else 0)

    @cached_property
    def grams(self) -> _Grams:
        return _grams(self._pool.tolist(), self._begins)

    @cached_property
    def codes(self) -> tuple[np.ndarray, _Codes]:
        return _codes(self._pool, self._begins)


def _count_few(
    total: np.ndarray, rows: list[list[Any]], grams: _Grams, places: np.ndarray, spans: list[tuple[int, int]]
) -> None:
    for counts, row in zip(total, rows, strict=True):
        for size, distance in spans:
            reach = distance * (size - 1)
            step(len(row))
            for start in range(len(row) - reach):
                gram = grams.get(tuple(row[start : start + reach + 1 : distance]))
                if gram is not None:
                    counts[places[gram]] += 1


def _grams(pool: list[Any], begins: tuple[int, ...]) -> _Grams:
    """The number of each n-gram of a pool, of equal ones the first's."""
    grams: _Grams = {}
    number = 0
    for size, (begin, end) in enumerate(zip(begins, (*begins[1:], len(pool)), strict=True), 1):
        for at in range(begin, begin + (end - begin) // size * size, size):
            grams.setdefault(tuple(pool[at : at + size]), number)
            number += 1
    return grams


def _next_code(numbers: np.ndarray, code: np.ndarray, token: np.ndarray, count: int) -> np.ndarray:
    """The indices in `numbers`, the known n-grams, of codes extended by a token; -1 if unknown."""
    wanted = code * count + token
    found = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where((code >= 0) & (token >= 0) & (numbers[found] == wanted), found, -1)


_Codes = list[tuple[np.ndarray, list[np.ndarray], int]]


def _codes(pool: np.ndarray, begins: tuple[int, ...]) -> tuple[np.ndarray, _Codes]:
    """The tokens of a pool, sorted; and for each size of n-grams: which n-gram each of the longest beginnings is, the sorted
    beginnings of one, two, … tokens, and the number of the first n-gram."""
    tokens, inverse = np.unique(pool, return_inverse=True)
    codes: _Codes = []
    first = 0
    for size, (begin, end) in enumerate(zip(begins, (*begins[1:], len(pool)), strict=True), 1):
        grams = inverse.reshape(-1)[begin : begin + (end - begin) // size * size].reshape(-1, size)
        code, numbers = np.zeros(len(grams), np.int64), []
        for at in range(size):
            unique, code = np.unique(code * len(tokens) + grams[:, at], return_inverse=True)
            numbers.append(unique)
            code = code.reshape(-1)
        order = np.zeros(len(numbers[-1]), np.int64)
        order[code[::-1]] = np.arange(len(grams))[::-1]  # of equal n-grams the first
        codes.append((order, numbers, first))
        first += len(grams)
    return tokens, codes


# fmt: off
register("look_up", "x keys values default", _infer_look_up, _looked_up, _OPAQUE,
         "the value of each element's key, else the default", takes_objects=True, recalls=True)
register("count_ngrams", "x pool places", _infer_ngrams, _ngrams, _OPAQUE,
         "how often each row of x has each n-gram of the pool, in the columns `places`",
         attributes={"begins": Attribute(Kind.INTS, "where in the pool n-grams of 1, 2, … tokens begin"),
                     "least": Attribute(Kind.INT, "tokens of the shortest n-grams that count"),
                     "most": Attribute(Kind.INT, "tokens of the longest ones"),
                     "skips": Attribute(Kind.INT, "how many tokens may be skipped between two of an n-gram, always as many"),
                     "columns": Attribute(Kind.INT, "of the result")},
         takes_objects=True, recalls=True)
# fmt: on
