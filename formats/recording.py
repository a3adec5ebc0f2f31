"""Recordings: what calls of a program were given from outside, so that they can be made again elsewhere, to the bit.

A recording is a container (`container.py`) of another kind of sections than an executable: it names the program by a digest, and
holds of each call the arguments, the numbers that were drawn, what imports gave, in order, and a digest of the result. Values are
trees, flat: parts stand before what they are part of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple, Union

import numpy as np

from . import container, limits, strings
from .codec import Allowance, Choice, Integer, Sequence, Text, record
from .constants import constant_pieces, constant_type, split_constants
from .dtypes import DType
from .messages.errors import FormatError
from .schema import TENSOR_TYPE, TEXT
from .types import TensorType

SUFFIX = ".trrec"
MOST_CALLS = 100_000
_DIGEST = re.compile(r"[0-9a-f]{64}|")


class TensorPart(NamedTuple):
    """A tensor: its number among those of the recording."""

    tensor: int


class RecordPart(NamedTuple):
    """A tuple, or a value of a data type, which has a name and a tag then: the numbers of its fields among the values before."""

    type: str
    tag: int
    fields: tuple[int, ...]


Part = Union[TensorPart, RecordPart]


class StoredNote(NamedTuple):
    """What an import gave or raised, or a primitive drew: numbers of values."""

    source: str
    values: tuple[int, ...]
    error: str


class StoredCall(NamedTuple):
    """A call: numbers of its arguments, what it was given on the way, and the digest of its result, "" where it failed."""

    function: str
    arguments: tuple[int, ...]
    notes: tuple[StoredNote, ...]
    result: str
    error: str


@dataclass
class Recording:
    """The contents of a recording. `left_out` counts calls for which it had no room."""

    program: str  # SHA-256 of what decides about results: `debug/recording.py`
    file: str  # where the program was read from, "" if nowhere
    target: str  # the CPU that it ran on
    calls: list[StoredCall] = field(default_factory=list)
    values: list[Part] = field(default_factory=list)
    tensors: list[np.ndarray] = field(default_factory=list)
    left_out: int = 0


_NUMBER = Integer(0, limits.TABLE_SCALARS)
_NUMBERS = Sequence(_NUMBER, limits.TABLE_SCALARS)
_NOTE = record(StoredNote, source=TEXT, values=_NUMBERS, error=TEXT)
_CALL = record(
    StoredCall,
    function=TEXT,
    arguments=Sequence(_NUMBER, limits.PARAMETERS),
    notes=Sequence(_NOTE, limits.TABLE_SCALARS),
    result=Text(64),
    error=TEXT,
)
_PART = Choice("value", 1)
_PART.options.update(
    {
        0: (TensorPart, record(TensorPart, tensor=_NUMBER)),
        1: (RecordPart, record(RecordPart, type=TEXT, tag=Integer(0, limits.CONSTRUCTORS), fields=_NUMBERS)),
    }
)
_HEAD = record(Recording, program=Text(64), file=TEXT, target=TEXT)
CODECS = {
    "recording": _HEAD,
    "calls": Sequence(_CALL, MOST_CALLS),
    "left_out": Integer(),
    "values": Sequence(_PART, limits.TABLE_SCALARS),
    "tensor_types": Sequence(TENSOR_TYPE, limits.TABLE_SCALARS),
    "texts": Sequence(TEXT, limits.STRINGS),
}
_SECTIONS = frozenset({*CODECS, "elements"})


def save(recording: Recording, path: str | os.PathLike) -> None:
    """Writes a recording. Raises FileError, LimitError."""
    container.save(path, encode(recording))


def encode(recording: Recording) -> list[container.Buffer]:
    """The pieces of the file. Raises LimitError."""
    tensors, texts = strings.indexed(recording.tensors)
    rows = {
        "recording": recording,
        "calls": recording.calls,
        "left_out": recording.left_out,
        "values": recording.values,
        "tensor_types": list(map(_type, recording.tensors)),
        "texts": texts,
    }
    allowance = Allowance()
    contents: dict[str, list[container.Buffer]] = {
        name: [codec.encode(rows[name], name, allowance)] for name, codec in CODECS.items()
    }
    contents["elements"] = constant_pieces(tensors)
    return container.layout(contents, dict.fromkeys(contents, True))


def _type(array: np.ndarray) -> TensorType:
    return TensorType(DType.string, array.shape) if array.dtype == object else constant_type(array)


def load(source: container.Source) -> Recording:
    """The recording in a file or bytes, all of it checked. Raises FormatError (VersionError, ChecksumError, LimitError) and
    FileError."""
    opened = container.Container(source, _SECTIONS, mapped=False)
    opened.require(sorted(_SECTIONS))
    allowance = Allowance()
    rows = {name: codec.decode(opened.contents[name], name, allowance=allowance) for name, codec in CODECS.items()}
    made: Recording = rows["recording"]
    made.calls, made.values, made.left_out = list(rows["calls"]), list(rows["values"]), rows["left_out"]
    _check(made, len(rows["tensor_types"]))
    texts = strings.Texts()
    numbers = np.array([texts.number(text) for text in rows["texts"]], np.uint64)
    arrays = split_constants(rows["tensor_types"], opened.contents["elements"], numbers)
    made.tensors = [strings.to_texts(array) for array in arrays]
    return made


def _check(found: Recording, tensors: int) -> None:
    """Numbers are of what is there, and values are trees: a part of two values could be one of a million copies."""
    used: set[int] = set()

    def use(numbers: SequenceOf[int], below: int, section: str) -> None:
        for number in numbers:
            if number >= below:
                raise FormatError(f"value {number} of {below} that are known there", section=section)
            if number in used:
                raise FormatError(f"value {number} stands in two places", section=section)
            used.add(number)

    for at, part in enumerate(found.values):
        if isinstance(part, RecordPart):
            use(part.fields, at, "values")
        elif part.tensor >= tensors:
            raise FormatError(f"value {at} is tensor {part.tensor} of {tensors}", section="values")
    for call in found.calls:
        use(call.arguments, len(found.values), "calls")
        for note in call.notes:
            use(note.values, len(found.values), "calls")
        if not _DIGEST.fullmatch(call.result):
            raise FormatError(f"{call.result!r} is not a digest", section="calls")
    if not _DIGEST.fullmatch(found.program):
        raise FormatError(f"{found.program!r} is not a digest", section="recording")
