"""Functions of texts that have a twin of bytes, as the metadata name them.

    "text_entries": "main lower - upper1"

A name, then a word for each parameter: what becomes of its texts, or "-" where it stays as it is. A parameter of texts is two of
the twin's: their bytes in UTF-8, one after the other, and where each ends. The words are the case that texts get, with 1 after
it where no texts count as an empty one. Metadata are nobody's promise: a machine looks at the types of both functions; what the
twin computes is the program's own affair.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .dtypes import DType
from .metering import CHARACTERS, Row, pay, rows, spans
from .program import Function, Program
from .types import UNKNOWN, TensorType

NOTE = "text_entries"  # the metadata's key
SUFFIX = ".of_bytes"  # of the twin's name


def _lower(text: str) -> str:
    if len(text) <= CHARACTERS:
        return text.lower()
    return "".join([_lower_part(text, span.start, span.stop) for span in spans(len(text), CHARACTERS)])


def _lower_part(text: str, begin: int, end: int) -> str:
    part = text[begin:end]
    if _SIGMA not in part:
        return part.lower()
    first, last = _told_from(text, begin - 1, -1), _told_from(text, end, 1) + 1
    lower, before, behind = text[first:last].lower(), text[first:begin].lower(), text[end:last].lower()
    return lower[len(before) : len(lower) - len(behind)]


_SIGMA = "\u03a3"  # the one letter whose lower case depends on what stands around it: on the next letters, if any


def _told_from(text: str, at: int, by: int) -> int:
    """The place of the character that decides, from a place on; marks and punctuation do not."""
    first = at
    while 0 <= at < len(text) and abs(at - first) < CHARACTERS:
        if unicodedata.category(text[at]) not in _UNDECIDED:
            return at
        at += by
    return max(0, min(at, len(text)))


_UNDECIDED = frozenset({"Mn", "Me", "Cf", "Lm", "Sk", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"})


def _upper(text: str) -> str:
    if len(text) <= CHARACTERS:
        return text.upper()
    return "".join([text[span].upper() for span in spans(len(text), CHARACTERS)])


_SHORT_CASES: dict[str, Callable[[str], str]] = {"none": str, "lower": str.lower, "upper": str.upper}
CASES: dict[str, Callable[[str], str]] = {"none": str, "lower": _lower, "upper": _upper}


class TextParameter(NamedTuple):
    """The encoding of the texts of one parameter."""

    case: str
    is_never_empty: bool  # no texts count as an empty one


class TextEntry(NamedTuple):
    function: str
    parameters: tuple[TextParameter | None, ...]


def note(entries: Sequence[TextEntry]) -> dict[str, str]:
    """The metadata about them."""
    lines = [" ".join([entry.function, *map(_word, entry.parameters)]) for entry in entries]
    return {NOTE: "\n".join(lines)} if lines else {}


def _word(parameter: TextParameter | None) -> str:
    return "-" if parameter is None else parameter.case + "1" * parameter.is_never_empty


def entry_of(program: Program, number: int) -> tuple[int, tuple[TextParameter | None, ...]] | None:
    """The number of a function's twin, and what becomes of its parameters, if the types of both agree."""
    function = program.functions[number]
    for line in program.metadata.get(NOTE, "").split("\n"):
        name, *words = line.split(" ")
        if name != function.name or any(word != "-" and word.removesuffix("1") not in CASES for word in words):
            continue
        parameters = tuple(
            None if word == "-" else TextParameter(word.removesuffix("1"), word.endswith("1")) for word in words
        )
        for twin, each in enumerate(program.functions):
            if each.name == name + SUFFIX and _agree(function, each, parameters):
                return twin, parameters
    return None


def _agree(function: Function, twin: Function, parameters: Sequence[TextParameter | None]) -> bool:
    """Whether the twin takes what the function takes, as bytes, and gives the same type."""
    if len(parameters) != len(function.type.params) or twin.type.result != function.type.result:
        return False
    types = list(function.type.params)
    names = [
        str(dim) for type_ in types if isinstance(type_, TensorType) for dim in type_.shape if not isinstance(dim, int)
    ]
    expected: list[object] = []
    given = list(twin.type.params)
    for type_, parameter in zip(types, parameters, strict=True):
        if parameter is None:
            expected.append(type_)
            continue
        if not isinstance(type_, TensorType) or not type_.dtype.is_string or len(given) < len(expected) + 2:
            return False
        ends = given[len(expected) + 1]
        # a size that parameters share is compared by the twin, or not at all
        if not isinstance(ends, TensorType) or any(
            dim is UNKNOWN or (names.count(str(dim)) > 1 and ends.shape != (dim,))
            for dim in type_.shape
            if not isinstance(dim, int)
        ):
            return False
        count = UNKNOWN if parameter.is_never_empty else next((dim for dim in ends.shape if dim is not UNKNOWN), None)
        if count is None or (count is not UNKNOWN and count not in type_.shape):
            return False
        expected += [TensorType(DType.uint8, (UNKNOWN,)), TensorType(DType.int64, (count,))]
    return expected == given


def in_case(texts: Row, case: str) -> list[str]:
    """The texts of a piece in another case."""
    is_one_long = len(texts) == 1 and len(texts[0]) > CHARACTERS
    return list(map(CASES[case] if is_one_long else _SHORT_CASES[case], texts))


def encoded(text: str, most: int = CHARACTERS) -> Iterator[bytes]:
    """The bytes of a text in UTF-8, encoded in pieces. Raises UnicodeEncodeError for lone surrogates."""
    for span in spans(len(text), most):
        yield text[span].encode()


def bytes_of(texts: Row, case: str) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of texts in another case, in UTF-8, one text after the other, and where each ends. Raises TypeError for what is
    no text, UnicodeEncodeError for lone surrogates."""
    if len(texts) <= _FEW and sum(map(len, texts)) <= CHARACTERS:
        whole, ends = _bytes_of_few(texts, case)
        return np.frombuffer(whole, np.uint8), np.array(ends, np.int64)
    pieces: list[bytes] = []
    places, end = np.empty(len(texts), np.int64), 0
    for span in rows(texts):
        for at, text in enumerate(texts[span], span.start):
            for piece in encoded(CASES[case](text)):
                pay(len(piece))
                pieces.append(piece)
                end += len(piece)
            places[at] = end
    return np.frombuffer(b"".join(pieces), np.uint8), places


_FEW = 1 << 10


def _bytes_of_few(texts: Row, case: str) -> tuple[bytes, list[int]]:
    if case != "none":
        texts = list(map(_SHORT_CASES[case], texts))
    whole = "".join(texts)
    made = whole.encode()
    sizes = map(len, texts) if len(made) == len(whole) else (len(text.encode()) for text in texts)
    return made, list(itertools.accumulate(sizes))
