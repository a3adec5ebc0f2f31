"""Numbers in Relay's text: `3`, `-1i64`, `0.5f`, `1e-05f16`, `inff`, `True`; each says its element type."""

from __future__ import annotations

import re

import numpy as np

SUFFIXES = {
    "float16": "f16",
    "float32": "f",
    "float64": "f64",
    "int16": "i16",
    "int32": "",
    "int64": "i64",
}  # the types that have a form as text; `bool` has words
DIGITS = 400  # of one number: more than any float64 has

NUMBER = re.compile(r"(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(inf|nan)(?=f\d*\b))(?:([fi])(\d*))?(?![A-Za-z0-9_])")


def has_text(dtype: str) -> bool:
    """Whether a scalar of the type is written as a number."""
    return dtype == "bool" or dtype in SUFFIXES


def scalar_text(value: np.ndarray) -> str:
    """A scalar; reading it gives the same bits (of NaN the same kind)."""
    dtype = value.dtype.name
    if dtype == "bool":
        return str(bool(value))
    if value.dtype.kind == "i":
        return f"{int(value)}{SUFFIXES[dtype]}"
    return float_text(value.item(), value.dtype.type) + SUFFIXES[dtype]


def float_text(value: float, kind: type = np.float64) -> str:
    """The shortest text that reads back as the same number of that kind: six digits where they do, as in TVM."""
    short = f"{float(value):g}"
    return short if kind(short) == value or value != value else str(kind(value))


def read_scalar(text: str, negative: bool = False) -> np.ndarray:
    """The number that a text stands for. Raises ValueError, whose message says why."""
    found = NUMBER.fullmatch(text)
    if found is None or len(text) > DIGITS:
        raise ValueError(f"{text[:40]!r} is not a number of at most {DIGITS} digits")
    digits, word, kind, width = found.groups()
    if kind == "f" or word or not digits.isdigit():
        return _float(float(word or digits) * (-1 if negative else 1), text, kind, width)
    return _int(int(digits) * (-1 if negative else 1), text, width)


def _float(value: float, text: str, kind: str | None, width: str) -> np.ndarray:
    name = f"float{width or 32}"
    if kind == "i" or name not in SUFFIXES:
        raise ValueError(f"{text!r}: the widths of floats are 16, 32 and 64")
    dtype = np.dtype(name)
    greatest = np.finfo(dtype).max  # whose shortest text may be a greater float64
    if abs(value) != float("inf") and abs(value) > max(float(greatest), float(str(greatest))):
        raise ValueError(f"{text!r} is not representable as {name}")
    return np.array(value, dtype)


def _int(value: int, text: str, width: str) -> np.ndarray:
    """Without a width, what 32 bits do not hold has 64."""
    names = [f"int{width}"] if width else ["int32", "int64"]
    if names[0] not in SUFFIXES:
        raise ValueError(f"{text!r}: the widths of integers are 16, 32 and 64")
    for name in names:
        limits = np.iinfo(name)
        if limits.min <= value <= limits.max:
            return np.array(value, name)
    raise ValueError(f"{text!r} is not representable as {names[-1]}")


def read_number(text: str, negative: bool = False) -> int | float:
    """The number among attributes that a text stands for: of a float all digits count. Raises ValueError."""
    found = NUMBER.fullmatch(text)
    if found is None or len(text) > DIGITS or not (found[2] or found[3] == "f" or not found[1].isdigit()):
        return int(read_scalar(text, negative))
    return float(found[2] or found[1]) * (-1 if negative else 1)
