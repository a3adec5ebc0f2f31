"""From an ONNX file to its protobuf message, whose large weights protobuf does not see: it would copy them twice.

    model     field 7 graph, the fields of several are those of one
    graph     field 5 initializer, repeated
    tensor    field 2 data_type, 9 raw_data, 14 data_location

These are the only messages that are looked into (https://protobuf.dev/programming-guides/encoding). Bytes that are not well
formed go to protobuf as they are, and it says what is wrong.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from ...formats.container import named, open_ending
from ...formats.messages.errors import FileError, ModelError
from ...formats.messages.file_kinds import HEAD_BYTES, is_text, kind_of, told

if TYPE_CHECKING:
    import onnx

ModelSource = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, "onnx.ModelProto"]

_GRAPH, _INITIALIZER, _DATA_TYPE, _RAW_DATA, _DATA_LOCATION = 7, 5, 2, 9, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_PLAIN_TYPES = frozenset(range(1, 8)) | {10, 11, 12, 13}  # whose raw data are the elements, as they lie in memory
_LARGE_BYTES = 1 << 12


@dataclass(frozen=True)
class ModelFile:
    """A model, the folder in which its external data may lie (None for a model that is not a file), and the raw data of
    initializers of its graph that are not in the message, by position."""

    model: onnx.ModelProto
    folder: Path | None = None
    weights: dict[int, np.ndarray] = field(default_factory=dict)
    nbytes: int = 0  # of the model, external data aside


def read_model(source: ModelSource) -> ModelFile:
    """Raises ModelError for bytes that are not an ONNX model, FileError for a file that cannot be read."""
    import onnx
    from google.protobuf.message import DecodeError

    if isinstance(source, onnx.ModelProto):
        return ModelFile(source, nbytes=source.ByteSize())
    path = None if isinstance(source, (bytes, bytearray, memoryview)) else Path(named(source, "model"))
    name = "the model" if path is None else str(path)
    try:
        whole = np.frombuffer(bytes(source), np.uint8) if path is None else _mapped(path)  # type: ignore[arg-type]
    except OSError as error:
        raise FileError.of(error, f"the model {name} cannot be read") from None
    head = whole[:HEAD_BYTES].tobytes()
    kind = kind_of(head)
    content, weights = without_weights(whole)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        if kind and kind.name == "onnx":
            raise ModelError(
                f"{name} begins as an ONNX model does, but its {whole.nbytes} bytes are incomplete; was all of it copied?"
            ) from None
        raise ModelError(f"{name} is not an ONNX model: {told(head) if kind or is_text(head) else error}") from None
    if not model.opset_import or not model.HasField("graph"):
        reason = told(head) if kind and kind.name != "onnx" else "it has no graph or no opset version"
        raise ModelError(f"{name} is not an ONNX model: {reason}")
    return ModelFile(model, None if path is None else path.parent, weights, whole.nbytes)


def _mapped(path: Path) -> np.ndarray:
    """The bytes of a file, on its own pages."""
    with open(named(path), "rb", opener=open_ending) as file:
        try:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except (ValueError, OSError):  # it is empty, or a pipe
            return np.frombuffer(file.read(), np.uint8)


def without_weights(content: np.ndarray) -> tuple[bytes, dict[int, np.ndarray]]:
    """The bytes of a model without the raw data of large initializers; and these, views of `content`, by position."""
    if sys.byteorder != "little":
        return content.tobytes(), {}
    weights: dict[int, np.ndarray] = {}
    data = memoryview(content)  # type: ignore[arg-type]
    try:
        message = b"".join(_model(data, lambda position, raw: weights.update({position: content[raw.body : raw.end]})))
    except _MalformedError:
        return content.tobytes(), {}
    return message, weights


class _MalformedError(Exception):
    """Bytes that are not a protobuf message, or one with groups, which ONNX has none of."""


class _Field(NamedTuple):
    number: int
    wire: int
    start: int  # of its tag
    body: int  # of what it holds
    end: int


def _model(data: memoryview, found: Callable[[int, _Field], object]) -> Iterator[bytes | memoryview]:
    """The message without large raw data. `found` is told of these, and the positions of their initializers."""
    positions = itertools.count()

    def graph(whole: _Field) -> Iterator[bytes | memoryview]:
        for part in _fields(data, whole.body, whole.end):
            if (part.number, part.wire) == (_INITIALIZER, _BYTES):
                yield from initializer(part, next(positions))
            else:
                yield data[part.start : part.end]

    def initializer(tensor: _Field, position: int) -> Iterator[bytes | memoryview]:
        raw = _raw_data(data, tensor)
        if raw is None:
            yield data[tensor.start : tensor.end]
        else:
            found(position, raw)
            yield from _framed(_INITIALIZER, [data[tensor.body : raw.start], data[raw.end : tensor.end]])

    for part in _fields(data, 0, len(data)):
        if (part.number, part.wire) == (_GRAPH, _BYTES):
            yield from _framed(_GRAPH, list(graph(part)))
        else:
            yield data[part.start : part.end]


def _raw_data(data: memoryview, tensor: _Field) -> _Field | None:
    """The field of a tensor's elements, if they are many, and it has no other."""
    found: dict[int, _Field] = {}
    for part in _fields(data, tensor.body, tensor.end):
        if part.number in found or part.number == _DATA_LOCATION:
            return None
        if part.number in (_DATA_TYPE, _RAW_DATA):
            found[part.number] = part
    kind, raw = found.get(_DATA_TYPE), found.get(_RAW_DATA)
    if kind is None or raw is None or raw.wire != _BYTES or raw.end - raw.body < _LARGE_BYTES:
        return None
    return raw if kind.wire == _VARINT and _varint(data, kind.body, kind.end)[0] in _PLAIN_TYPES else None


def _framed(number: int, pieces: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The pieces as one field."""
    yield _encoded(number << 3 | _BYTES) + _encoded(sum(map(len, pieces)))
    yield from pieces


def _encoded(value: int) -> bytes:
    """A varint: seven bits a byte, the lowest first, and a bit that says whether another one follows."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message. Raises _MalformedError."""
    while at < end:
        start = at
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        body = at
        if wire == _VARINT:
            _, at = _varint(data, at, end)
        elif wire == _BYTES:
            size, body = _varint(data, at, end)
            at = body + size
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _MalformedError
        if at > end or number == 0:
            raise _MalformedError
        yield _Field(number, wire, start, body, at)


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends. Raises _MalformedError."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _MalformedError
