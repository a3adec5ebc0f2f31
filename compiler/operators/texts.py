"""Operators on texts, and on what is looked up among few: host operators.

Equality and movement of string tensors are the operators of `elementwise.py` and `movement.py`: equal texts are equal numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.errors import ExecutionError, InferenceError
from ...formats.types import UNKNOWN, TensorType
from .shapes import INTEGER, NUMERIC, broadcast, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register

STRING = frozenset({DType.string})
_OPAQUE = Fusion.OPAQUE


def _texts(shape: tuple[int, ...], texts: Sequence[str]) -> np.ndarray:
    """An array of texts: NumPy would take them for lists of characters."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


# ---- one text, or two ----


def _infer_concat(inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(same_dtype(inputs, STRING), broadcast(*(type_.shape for type_ in inputs)))


def _concat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.add(a, b), object)


def _infer_split(inputs: Sequence[TensorType], **_: object) -> tuple[TensorType, TensorType]:
    require(inputs[0], STRING)
    shape = inputs[0].shape
    return TensorType(DType.string, (*shape, UNKNOWN)), TensorType(DType.int64, shape)


def _split(x: np.ndarray, delimiter: str, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    parts = [text.split(delimiter or None, -1 if most is None else most) for text in x.reshape(-1)]
    width = max(map(len, parts), default=0)
    filled = [text for line in parts for text in (*line, *[""] * (width - len(line)))]
    return _texts((*x.shape, width), filled), np.array([len(line) for line in parts], np.int64).reshape(x.shape)


def _infer_normalized(inputs: Sequence[TensorType], **_: object) -> TensorType:
    x, stopwords = inputs
    same_dtype(inputs, STRING)
    if x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] not in (1, UNKNOWN)) or stopwords.rank != 1:
        raise mismatch("texts [n] or [1, n] and stop words [m]", f"{x} and {stopwords}")
    return TensorType(DType.string, (*x.shape[:-1], UNKNOWN))


_CASES: dict[str, Callable[[str], str]] = {"none": str, "lower": str.lower, "upper": str.upper}


def _normalized(x: np.ndarray, stopwords: np.ndarray, case: str, is_case_sensitive: bool) -> np.ndarray:
    seen = str if is_case_sensitive else str.lower
    left_out = set(map(seen, stopwords))
    kept = [_CASES[case](text) for text in x.reshape(-1) if seen(text) not in left_out] or [""]
    return _texts((*x.shape[:-1], len(kept)), kept)


# ---- numbers ----


def _infer_print(inputs: Sequence[TensorType]) -> TensorType:
    require(inputs[0], NUMERIC | {DType.bool})
    return TensorType(DType.string, inputs[0].shape)


def _printed(x: np.ndarray) -> np.ndarray:
    """Floats by the fewest digits that tell them apart, NaN and infinities as the standard has them; truth values as 1 and 0.
    Numbers of types that NumPy lacks are printed as those of the type in which they are computed."""
    dtype = DType.of(x.dtype)
    if dtype is DType.bool:
        x = x.astype(np.uint8)
    elif not dtype.is_numpys:
        x = x.astype(dtype.computed.numpy)
    texts = x.astype(str).reshape(-1).tolist()
    if x.dtype.kind not in "iu":
        texts = [_SPECIAL.get(text, text) for text in texts]
    return _texts(x.shape, texts)


_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _infer_read(inputs: Sequence[TensorType], dtype: DType) -> TensorType:
    require(inputs[0], STRING)
    if not (dtype.is_numpys and dtype is not DType.bool):
        raise InferenceError(f"read_numbers: {dtype.name} is no type of numbers that NumPy has")
    return TensorType(dtype, inputs[0].shape)


def _read(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats, and integers, which a fraction is cut off of. Raises ExecutionError for other texts and for what does not fit."""
    try:
        numbers = [_number(text, dtype) for text in x.reshape(-1)]
        return np.array(numbers, np.float64 if dtype.is_float else dtype.numpy).astype(dtype.numpy).reshape(x.shape)
    except OverflowError as error:
        raise ExecutionError(f"a text is no {dtype.name}: {error}") from None


def _number(text: str, dtype: DType) -> float | int:
    try:
        if "_" in text or not text.isascii():  # which Python takes
            raise ValueError
        if dtype.is_float:
            return float(text)
        try:
            return int(text)
        except ValueError:
            return math.trunc(float(text))
    except ValueError:
        raise ExecutionError(f"the text {text[:60]!r} is no {dtype.name}") from None


# ---- what is looked up ----


def _infer_look_up(inputs: Sequence[TensorType]) -> TensorType:
    x, keys, values, default = inputs
    same_dtype((x, keys))
    if keys.rank != 1 or values.rank != 1 or keys.shape != values.shape or default.rank:
        raise mismatch("keys [n], values [n] and a default", f"{keys}, {values} and {default}")
    return TensorType(same_dtype((values, default)), x.shape)


def _looked_up(x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> np.ndarray:
    """NaN is equal to NaN here; of equal keys the first one counts."""
    if not len(keys):
        return np.full(x.shape, default, values.dtype)
    order = _order(keys.tobytes(), keys.dtype)
    found = order[np.minimum(np.searchsorted(keys, x, sorter=order), len(keys) - 1)]
    is_known = keys[found] == x
    if x.dtype.kind == "f":
        is_known |= np.isnan(keys[found]) & np.isnan(x)
    return np.where(is_known, values[found], default)


@functools.lru_cache(maxsize=32)
def _order(content: bytes, dtype: np.dtype) -> np.ndarray:
    return np.argsort(np.frombuffer(content, dtype), kind="stable")


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
) -> np.ndarray:
    tokens, codes = _codes(pool.tobytes(), pool.dtype, begins)
    rows = x.reshape(-1, x.shape[-1])
    total = np.zeros((len(rows), columns), np.float32)
    if not len(tokens) or not rows.size:
        return total.reshape((*x.shape[:-1], columns))
    known = np.minimum(np.searchsorted(tokens, rows), len(tokens) - 1)
    known = np.where(tokens[known] == rows, known, -1)
    ends = rows.shape[1]
    for size in range(least, min(most, len(codes)) + 1):
        order, numbers, first = codes[size - 1]
        if not len(order):
            continue
        for step in range(1, (skips + 1 if size > 1 else 1) + 1):
            starts = ends - step * (size - 1)
            if starts <= 0:
                break
            code = np.zeros((len(rows), starts), np.int64)
            for at in range(size):  # exact: what a row may be is numbered anew for each token
                token = known[:, at * step : at * step + starts]
                code = _next_code(numbers[at], code, token, len(tokens))
            line, _ = np.nonzero(code >= 0)
            gram = order[code[code >= 0]] + first
            np.add.at(total, (line, places[gram]), 1)
    return total.reshape((*x.shape[:-1], columns))


def _next_code(numbers: np.ndarray, code: np.ndarray, token: np.ndarray, count: int) -> np.ndarray:
    """Of beginnings and the tokens behind them the places among `numbers`, the beginnings that there are; -1 for none."""
    wanted = code * count + token
    found = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where((code >= 0) & (token >= 0) & (numbers[found] == wanted), found, -1)


_Codes = list[tuple[np.ndarray, list[np.ndarray], int]]


@functools.lru_cache(maxsize=16)
def _codes(content: bytes, dtype: np.dtype, begins: tuple[int, ...]) -> tuple[np.ndarray, _Codes]:
    """The tokens of a pool, sorted; and for each size of n-grams: which n-gram each of the longest beginnings is, the sorted
    beginnings of one, two, … tokens, and the number of the first n-gram."""
    pool = np.frombuffer(content, dtype)
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


register("concat_texts", "a b", _infer_concat, _concat, _OPAQUE, "each text of b behind that of a", takes_texts=True)
register(
    "split_texts",
    "x",
    _infer_split,
    _split,
    _OPAQUE,
    "the parts of each text along a new axis, as many as the most has, empty texts behind; and how many there are",
    attributes={
        "delimiter": Attribute(Kind.STRING, "what stands between parts; white space if empty", ""),
        "most": Attribute(Kind.INT, "how many times a text is split at most; None: as often as possible", None),
    },
    data_dependent=True,
    takes_texts=True,
)
register(
    "normalize_texts",
    "x stopwords",
    _infer_normalized,
    _normalized,
    _OPAQUE,
    "the texts without stop words, in another case; an empty text if none is left",
    attributes={
        "case": Attribute(Kind.STRING, "the case that texts get", "none", choices=tuple(_CASES)),
        "is_case_sensitive": Attribute(Kind.BOOL, "whether stop words are told from others by their case", False),
    },
    data_dependent=True,
    takes_texts=True,
)
register("print_numbers", "x", _infer_print, _printed, _OPAQUE, "numbers as texts", takes_texts=True, takes_bits=True)
register(
    "read_numbers",
    "x",
    _infer_read,
    _read,
    _OPAQUE,
    "the numbers that texts are",
    attributes={"dtype": Attribute(Kind.DTYPE, "their element type")},
    takes_texts=True,
)
register(
    "look_up",
    "x keys values default",
    _infer_look_up,
    _looked_up,
    _OPAQUE,
    "the value of each element's key, else the default",
)
register(
    "count_ngrams",
    "x pool places",
    _infer_ngrams,
    _ngrams,
    _OPAQUE,
    "how often each row of x has each n-gram of the pool, in the columns `places`",
    attributes={
        "begins": Attribute(Kind.INTS, "where in the pool n-grams of 1, 2, … tokens begin"),
        "least": Attribute(Kind.INT, "tokens of the shortest n-grams that count"),
        "most": Attribute(Kind.INT, "tokens of the longest ones"),
        "skips": Attribute(Kind.INT, "how many tokens may be skipped between two of an n-gram, always as many"),
        "columns": Attribute(Kind.INT, "of the result"),
    },
)
