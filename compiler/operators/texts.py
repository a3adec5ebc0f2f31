"""Operators on texts: host operators.

Equality and movement of string tensors are the operators of `elementwise.py` and `movement.py`: equal texts are equal numbers.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from sys import getsizeof
from typing import Any

import numpy as np

from ...formats import limits
from ...formats.dtypes import DType
from ...formats.messages.errors import ExecutionError, InferenceError, LimitError
from ...formats.metering import CHARACTERS, ITEMS, OBJECT, STEPS, Row, look, pay, pieces, spans, step
from ...formats.strings import holder, tensor_of
from ...formats.text_entries import CASES, encoded, in_case
from ...formats.types import UNKNOWN, TensorType
from .recall import Recall, recalled
from .regular_expressions import Pattern, PatternError, find, pattern_problem
from .shapes import NUMERIC, STRING, broadcast, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register

_OPAQUE = Fusion.OPAQUE


class _Tensor:
    """A string tensor that is made piece by piece: an array of millions of Python objects would take long to free."""

    __slots__ = ("_end", "_numbers", "_size", "_texts")

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers: np.ndarray | None = None
        self._end = 0  # of the finished part
        self._texts: list[str] = []  # the pending texts

    def add(self, texts: list[str]) -> None:
        """Appends the texts of a piece."""
        self._texts += texts
        if len(self._texts) >= ITEMS:
            self._flush()

    def _flush(self) -> np.ndarray:
        if self._numbers is None:
            self._numbers = np.empty(self._size, np.uint64)
        end = self._end + len(self._texts)
        self._numbers[self._end : end] = holder().numbers_of(self._texts)
        self._end, self._texts = end, []
        return self._numbers

    def of_shape(self, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor; few texts as they are."""
        return _few(self._texts, shape) if self._numbers is None else tensor_of(self._flush(), shape)


def _few(texts: list[str], shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(len(texts), object)
    made[:] = texts
    return made if len(shape) == 1 else made.reshape(shape)


class _Lines:
    """Lines of texts, as numbers at once: millions of lists would be walked through by the collector of garbage, and let go of in
    one go, while all threads wait."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._length = 0  # of the line that is made
        self._texts: list[str] = []  # that come next
        self._numbers: list[np.ndarray] = []

    def add(self, texts: list[str]) -> None:
        """Puts texts behind those of the line."""
        self._length += len(texts)
        if len(texts) > ITEMS:
            self._flush()
            self._numbers += (holder().numbers_of(texts[span]) for span in spans(len(texts)))
            return
        self._texts += texts
        if len(self._texts) >= ITEMS:
            self._flush()

    def end(self) -> None:
        """Ends a line."""
        self._lengths.append(self._length)
        self._length = 0
        step(_LINE_STEPS)

    def _flush(self) -> None:
        self._numbers.append(holder().numbers_of(self._texts))
        self._texts = []

    @property
    def lengths(self) -> np.ndarray:
        return np.array(self._lengths, np.int64)

    def table(self, shape: tuple[int, ...], pad: str, marks: tuple[str, str] | None = None) -> np.ndarray:
        """A string tensor [*shape, n], with `pad` behind the lines that are shorter than n, and each between two marks."""
        marks = marks if any(self._lengths) else None
        width = max(self._lengths, default=0) + (0 if marks is None else 2)
        if not self._numbers and width * len(self._lengths) <= ITEMS:
            return self._few_lines(shape, width, pad, marks)
        self._flush()
        numbers = np.concatenate(self._numbers)
        self._numbers = []
        all_lengths, first = self.lengths, 0 if marks is None else 1
        made = np.full((len(all_lengths), width), holder().number(pad), np.uint64)
        at = 0
        for span in spans(len(all_lengths), max(1, CHARACTERS // max(width, 1))):
            lengths, piece = all_lengths[span, None], made[span]
            count = int(lengths.sum())
            if len(piece) == 1:
                piece[0, first : first + count] = numbers[at : at + count]
            else:
                columns = np.arange(width)
                piece[(columns >= first) & (columns < first + lengths)] = numbers[at : at + count]
            if marks is not None:
                piece[:, 0] = holder().number(marks[0])
                np.put_along_axis(piece, 1 + lengths, holder().number(marks[1]), 1)
            at += count
        return tensor_of(made.reshape(-1), (*shape, width))

    def _few_lines(self, shape: tuple[int, ...], width: int, pad: str, marks: tuple[str, str] | None) -> np.ndarray:
        made: list[str] = []
        at = 0
        for length in self._lengths:
            line = self._texts[at : at + length]
            line = line if marks is None else [marks[0], *line, marks[1]]
            made += line + [pad] * (width - len(line))
            at += length
        return _few(made, (*shape, width))


_LINE_STEPS = 4


def _each(x: np.ndarray, make: Callable[[str], Any], dtype: Any) -> np.ndarray:
    """An array of numbers computed from texts."""
    made, at = np.empty(x.size, dtype), 0
    for part in pieces(x.reshape(-1)):
        made[at : at + len(part)] = [make(text) for text in part]
        at += len(part)
    return made.reshape(x.shape)


# ---- one text, or two ----


def _infer_concat(inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(same_dtype(inputs, STRING), broadcast(*(type_.shape for type_ in inputs)))


def _concat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.shape != b.shape:
        a, b = np.broadcast_arrays(a, b)
    if (
        a.size <= ITEMS
        and (nbytes := _nbytes(a.reshape(-1).tolist()) + _nbytes(b.reshape(-1).tolist())) <= _PIECE_BYTES
    ):
        pay(nbytes)
        return np.asarray(np.add(a, b), object)
    made = _Tensor(a.size)
    for span in spans(a.size):
        befores, behinds = a.flat[span], b.flat[span]
        nbytes = _nbytes(befores) + _nbytes(behinds)
        if nbytes <= _PIECE_BYTES:
            pay(nbytes)
            made.add(np.add(befores, behinds).tolist())
            continue
        for before, behind in zip(befores, behinds, strict=True):
            _check_length(len(before) + len(behind))
            pay(getsizeof(before) + getsizeof(behind))
            made.add([before + behind])
            step(1 + (len(before) + len(behind)) // _COPIED)
    return made.of_shape(a.shape)


def _nbytes(texts: Row) -> int:
    return sum(map(getsizeof, texts))


_PIECE_BYTES = 1 << 20  # of the texts of a piece
_COPIED = 1 << 9  # characters whose copying takes about as long as a step


def _check_length(characters: int) -> None:
    """Raises LimitError for a text that would be too long."""
    if characters > limits.ELEMENT_BYTES:
        raise LimitError(f"a text of {characters} characters; at most {limits.ELEMENT_BYTES} bytes are allowed")


def _infer_split(inputs: Sequence[TensorType], **_: object) -> tuple[TensorType, TensorType]:
    require(inputs[0], STRING)
    shape = inputs[0].shape
    return TensorType(DType.string, (*shape, UNKNOWN)), TensorType(DType.int64, shape)


def _split(x: np.ndarray, delimiter: str, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    most = None if most is None or most < 0 else most
    lines = _Lines()
    for part in pieces(x.reshape(-1)):
        characters = sum(map(len, part))
        if characters <= CHARACTERS:
            count = sum([text.count(delimiter) for text in part]) if delimiter else characters // 2
            pay(OBJECT * (len(part) + count) + 4 * characters)
            for text in part:
                lines.add(text.split(delimiter or None, -1 if most is None else most))
                lines.end()
        else:  # one long text
            for text in part:
                for parts in _parts(text, delimiter, most):
                    lines.add(parts)
                lines.end()
    return lines.table(x.shape, ""), lines.lengths.reshape(x.shape)


def _parts(text: str, delimiter: str, most: int | None) -> Iterator[list[str]]:
    """As `str.split`, for long texts window by window, whose last part continues in the next."""
    begin = count = 0
    while True:
        if not delimiter and (begin := _next(text, _NO_SPACE, begin)) < 0:
            return
        window = text[begin : begin + CHARACTERS]
        pay(getsizeof(window) + OBJECT * (window.count(delimiter) + 1 if delimiter else len(window) // 2 + 1))
        parts = window.split(delimiter or None, -1 if most is None else most - count)
        is_last = most is not None and count + len(parts) > most
        if not is_last and begin + len(window) == len(text):
            yield parts
            return
        look()
        if not is_last and not delimiter and window[-1].isspace():
            begin += len(window)
        else:
            start = begin + len(window) - len(parts[-1])  # of the last part
            if is_last:
                pay(getsizeof(text))
                parts[-1] = text[start:]
            elif len(parts) > 1:
                begin = start
                parts.pop()
            else:
                end = find(text, delimiter, start) if delimiter else _next(text, _SPACE, start)
                is_last = end < 0
                pay(4 * (len(text) if is_last else end) - 4 * start)
                parts[0] = text[start:] if is_last else text[start:end]
                begin = end + len(delimiter)
        yield parts
        count += len(parts)
        if is_last:
            return


_SPACE, _NO_SPACE = re.compile(r"\s"), re.compile(r"\S")


def _next(text: str, wanted: re.Pattern, begin: int) -> int:
    """The position of the next character that a one-character expression matches, found in pieces; -1 if there is none."""
    while begin < len(text):
        found = wanted.search(text, begin, begin + CHARACTERS)
        if found is not None:
            return found.start()
        begin += CHARACTERS
        look()
    return -1


def _infer_normalized(inputs: Sequence[TensorType], **_: object) -> TensorType:
    x, stopwords = inputs
    same_dtype(inputs, STRING)
    if x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] not in (1, UNKNOWN)) or stopwords.rank != 1:
        raise mismatch("texts [n] or [1, n] and stop words [m]", f"{x} and {stopwords}")
    return TensorType(DType.string, (*x.shape[:-1], UNKNOWN))


def normalized(
    texts: Row, stopwords: Row, case: str, is_case_sensitive: bool, recall: Recall | None = None
) -> list[str]:
    """Texts without stop words, in another case; an empty text if none is left."""
    seen = "none" if is_case_sensitive else "lower"
    left_out: set[str] = recalled(
        recall,
        (stopwords, seen),
        lambda words: 2 * _nbytes(list(words)) + OBJECT * len(words),
        lambda: {word for part in pieces(stopwords) for word in in_case(part, seen)},
    )
    kept: list[str] = []
    for part in pieces(texts):
        if left_out and is_case_sensitive:
            part = [text for text in part if text not in left_out]
        elif left_out:
            part = [text for text, word in zip(part, in_case(part, seen), strict=True) if word not in left_out]
        if case != "none":
            pay(_nbytes(part))
            part = in_case(part, case)
        kept += part
    return kept or [""]


def _normalized(
    x: np.ndarray, stopwords: np.ndarray, case: str, is_case_sensitive: bool, recall: Recall | None = None
) -> np.ndarray:
    kept = normalized(x.reshape(-1), stopwords, case, is_case_sensitive, recall)
    shape = (*x.shape[:-1], len(kept))
    if len(kept) <= ITEMS:
        return _few(kept, shape)
    made = _Tensor(len(kept))
    for span in spans(len(kept)):
        made.add(kept[span])
    return made.of_shape(shape)


# ---- regular expressions ----


def _infer_matched(inputs: Sequence[TensorType], expression: str) -> TensorType:
    require(inputs[0], STRING)
    if problem := pattern_problem(expression):
        raise InferenceError(f"match_texts: {problem}")
    return TensorType(DType.bool, inputs[0].shape)


def _matched(x: np.ndarray, expression: str, recall: Recall | None = None) -> np.ndarray:
    (whole,) = _patterns((expression,), recall)
    return _each(x, whole.is_whole, bool)


def _patterns(expressions: Sequence[str], recall: Recall | None) -> list[Pattern]:
    """Raises PatternError."""
    return recalled(
        recall,
        tuple(expressions),
        lambda patterns: sum(each.nbytes for each in patterns),
        lambda: [Pattern(expression) for expression in expressions],
    )


def _infer_tokens(inputs: Sequence[TensorType], **_: object) -> TensorType:
    x, expressions = inputs
    same_dtype(inputs, STRING)
    if expressions.rank != 1:
        raise mismatch("expressions [n]", expressions)
    return TensorType(DType.string, (*x.shape, UNKNOWN))


def _tokens(
    x: np.ndarray,
    expressions: np.ndarray,
    between: bool,
    least: int,
    marks: bool,
    pad: str,
    recall: Recall | None = None,
) -> np.ndarray:
    """By onnxruntime's `Tokenizer`: marks are put only where some text has a token."""
    try:
        patterns = _patterns(expressions.tolist(), recall)
    except PatternError as error:
        raise ExecutionError(str(error)) from None
    lines = _Lines()
    for part in pieces(x.reshape(-1)):
        for text in part:
            lines.add(_tokens_of(text, patterns, between, least))
            lines.end()
    return lines.table(x.shape, pad, ("\x02", "\x03") if marks else None)


def _tokens_of(text: str, patterns: Sequence[Pattern], between: bool, least: int) -> list[str]:
    if not patterns:
        return _characters(text)
    return _separated(text, patterns, least) if between else _found(text, patterns[0], least)


def _characters(text: str) -> list[str]:
    found: list[str] = []
    for span in spans(len(text), CHARACTERS):
        part = text[span]
        pay(8 * len(part) if part.isascii() else (OBJECT + 4) * len(part))  # those of ASCII are there
        found += part
    return found


def _found(text: str, expression: Pattern, least: int) -> list[str]:
    """The matches of the expression; after a match that is too short, the search resumes at its second character."""
    tokens, begin = [], 0
    while (match := expression.search(text, begin)) is not None:
        if match[1] - match[0] >= least:
            pay(OBJECT + 4 * (match[1] - match[0]))
            tokens.append(text[slice(*match)])
            begin = match[1]
        else:
            begin = match[0] + 1
    return tokens


def _separated(text: str, separators: Sequence[Pattern], least: int) -> list[str]:
    """The parts between separators, applied one after another. An empty separator splits off each character."""
    parts = [text]
    for separator in separators:
        found = []
        for part in parts:
            begin = 0
            while (match := separator.search(part, begin)) is not None:
                pay(OBJECT + 4 * (match[0] - begin))
                found.append(part[begin : match[0]])
                begin = max(match[1], match[0] + 1)
            pay(OBJECT + 4 * (len(part) - begin))
            found.append(part[begin:])
        parts = [part for part in found if len(part) >= least]
    return parts


# ---- hashes ----

_MASK = (1 << 32) - 1


def _infer_hash(inputs: Sequence[TensorType], **_: object) -> TensorType:
    require(inputs[0], STRING)
    return TensorType(DType.int32, inputs[0].shape)


def _hashes(x: np.ndarray, seed: int) -> np.ndarray:
    return _each(x, lambda text: _murmur3(text, seed & _MASK), np.uint32).view(np.int32)


def _murmur3(text: str, seed: int) -> int:
    """MurmurHash3_x86_32, by Austin Appleby (https://github.com/aappleby/smhasher), of the bytes in UTF-8."""
    state, length, rest = seed, 0, b""
    for data in (text.encode(),) if len(text) <= STEPS else encoded(text, STEPS):
        length += len(data)
        data = rest + data
        whole = len(data) // 4 * 4
        for (word,) in _WORD.iter_unpack(data[:whole]):
            word = word * 0xCC9E2D51 & _MASK  # `_mixed`
            state ^= (word << 15 | word >> 17) * 0x1B873593 & _MASK
            state = ((state << 13 | state >> 19) & _MASK) * 5 + 0xE6546B64 & _MASK
        rest = data[whole:]
    if rest:
        state ^= _mixed(int.from_bytes(rest, "little"))
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16


_WORD = struct.Struct("<I")


def _mixed(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    return (word << 15 | word >> 17) * 0x1B873593 & _MASK


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
    flat, made = x.reshape(-1), _Tensor(x.size)
    for span in spans(x.size):
        pay((OBJECT + _DIGITS) * (span.stop - span.start))
        texts = flat[span].astype(str).tolist()
        made.add(texts if x.dtype.kind in "iu" else [_SPECIAL.get(text, text) for text in texts])
    return made.of_shape(x.shape)


_DIGITS = 24  # characters of a number, about
_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _infer_read(inputs: Sequence[TensorType], dtype: DType) -> TensorType:
    require(inputs[0], STRING)
    if not (dtype.is_numpys and dtype is not DType.bool):
        raise InferenceError(f"read_numbers: {dtype.name} is not a type of numbers that NumPy has")
    return TensorType(dtype, inputs[0].shape)


def _read(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats, and integers, which a fraction is cut off of. Raises ExecutionError for other texts and for what does not fit."""
    try:
        numbers = _each(x, lambda text: _number(text, dtype), np.float64 if dtype.is_float else dtype.numpy)
        with np.errstate(over="ignore"):
            return numbers.astype(dtype.numpy)
    except OverflowError as error:
        raise ExecutionError(f"a text is not a {dtype.name}: {error}") from None


_LONGEST = 1 << 12  # characters of a number: Python takes the square of that for integers


def _number(text: str, dtype: DType) -> float | int:
    try:
        if len(text) > _LONGEST:
            raise ExecutionError(f"a text of {len(text)} characters is not a {dtype.name}; at most {_LONGEST} are read")
        if "_" in text or not text.isascii():  # which Python takes
            raise ValueError
        if dtype.is_float:
            return float(text)
        try:
            return int(text)
        except ValueError:
            return math.trunc(float(text))
    except ValueError:
        raise ExecutionError(f"the text {text[:60]!r} is not a {dtype.name}") from None


# fmt: off
register("concat_texts", "a b", _infer_concat, _concat, _OPAQUE, "each text of b behind that of a", takes_texts=True)
register("split_texts", "x", _infer_split, _split, _OPAQUE,
         "the parts of each text along a new axis, as many as the most has, empty texts behind; and how many there are",
         attributes={"delimiter": Attribute(Kind.STRING, "what stands between parts; white space if empty", ""),
                     "most": Attribute(Kind.INT, "how many times a text is split at most; None: as often as possible", None)},
         data_dependent=True, takes_texts=True)
# fmt: on
NORMALISING = {
    "case": Attribute(Kind.STRING, "the case that texts get", "none", choices=tuple(CASES)),
    "is_case_sensitive": Attribute(Kind.BOOL, "whether stop words are told from others by their case", False),
}
# fmt: off
register("normalize_texts", "x stopwords", _infer_normalized, _normalized, _OPAQUE,
         "the texts without stop words, in another case; an empty text if none is left", attributes=NORMALISING,
         data_dependent=True, takes_texts=True, recalls=True)
register("match_texts", "x", _infer_matched, _matched, _OPAQUE,
         "whether a regular expression, of RE2's syntax, matches the whole text",
         attributes={"expression": Attribute(Kind.STRING, "the regular expression")}, takes_texts=True, recalls=True)
# fmt: on
register(
    "tokenize_texts",
    "x expressions",
    _infer_tokens,
    _tokens,
    _OPAQUE,
    "the tokens of each text along a new axis, as many as the most has, by regular expressions (RE2's); by none, characters",
    attributes={
        "between": Attribute(
            Kind.BOOL, "whether tokens lie between what they match, or are what the one matches", False
        ),
        "least": Attribute(Kind.INT, "characters of the shortest tokens that count", 1),
        "marks": Attribute(Kind.BOOL, "whether the tokens stand between the characters 2 and 3", False),
        "pad": Attribute(Kind.STRING, "what is put behind the tokens of shorter texts", ""),
    },
    data_dependent=True,
    takes_texts=True,
    recalls=True,
)
# fmt: off
register("hash_texts", "x", _infer_hash, _hashes, _OPAQUE,
         "MurmurHash3 of each text's bytes in UTF-8", attributes={"seed": Attribute(Kind.INT, "of the hash", 0)},
         takes_texts=True)
register("print_numbers", "x", _infer_print, _printed, _OPAQUE, "numbers as texts", takes_texts=True, takes_bits=True)
register("read_numbers", "x", _infer_read, _read, _OPAQUE,
         "the numbers that texts are", attributes={"dtype": Attribute(Kind.DTYPE, "their element type")},
         takes_texts=True)
# fmt: on
