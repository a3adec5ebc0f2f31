"""The protocol's BYTES: texts, each after its length, four bytes, little-endian.

In this process the elements of string tensors are numbers (`formats/strings.py`). No number comes from a client or goes to one:
it would be another's text.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .errors import BadRequestError, TooLargeError

MAX_TEXTS = 1 << 20  # of a tensor: as Python's objects they take up to 20 times their encoded size
_LENGTH = struct.Struct("<I")


def is_texts(array: np.ndarray) -> bool:
    """Whether an array is of texts; others are of numbers."""
    return array.dtype.kind == "O"


def nbytes(array: np.ndarray) -> int:
    """Bytes that an array takes, with its texts."""
    return packed_size(array) if is_texts(array) else array.nbytes


def packed_size(array: np.ndarray) -> int:
    """Bytes that texts take on the wire."""
    return sum(_LENGTH.size + len(text.encode()) for text in array.reshape(-1).tolist())


def packed(array: np.ndarray) -> bytes:
    """Texts as they travel."""
    parts: list[bytes] = []
    for text in array.reshape(-1).tolist():
        data = text.encode()
        parts += _LENGTH.pack(len(data)), data
    return b"".join(parts)


def unpacked(name: str, data: memoryview, shape: tuple[int, ...], count: int) -> np.ndarray:
    """The inverse, of all the bytes. Raises BadRequestError, TooLargeError."""
    check_count(name, count)
    found: list[str] = []
    at = 0
    while len(found) < count:
        if at + _LENGTH.size > len(data):
            raise BadRequestError(f"input {name!r}: its bytes end within text {len(found)} of {count}")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size > len(data) - at:
            raise BadRequestError(f"input {name!r}: its bytes end within text {len(found)} of {count}")
        found.append(_text(name, bytes(data[at : at + size]), len(found)))
        at += size
    if at != len(data):
        raise BadRequestError(f"input {name!r}: {len(data) - at} bytes are behind the last of {count} texts")
    return _array(found, shape)


def of_bytes(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Texts that come one by one, as bytes. Raises BadRequestError, TooLargeError."""
    check_count(name, len(values))
    return _array([_text(name, data, number) for number, data in enumerate(values)], shape)


def of_json(name: str, values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Texts of JSON. Raises BadRequestError, TooLargeError."""
    check_count(name, len(values))
    for number, text in enumerate(values):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadRequestError(f"input {name!r}: text {number} has lone surrogates, which UTF-8 has not") from None
    return _array(values, shape)


def check_count(name: str, count: int) -> None:
    """Raises TooLargeError for more texts than a tensor may have."""
    if count > MAX_TEXTS:
        raise TooLargeError(f"input {name!r}: {count} texts; at most {MAX_TEXTS} are taken")


def _text(name: str, data: bytes, number: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequestError(f"input {name!r}: text {number} is not UTF-8") from None


def _array(texts: list[str], shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(len(texts), object)
    made[:] = texts
    return made.reshape(shape)
