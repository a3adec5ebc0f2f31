"""TVM's and DLPack's element types: a code, bits and lanes, and the text that names them.

    void | bool[xLANES] | (int | uint | float | bfloat | complex | handle | e4m3_float | e5m2_float)[BITS][xLANES]

Without bits, a type has 32, a handle 64, the two small floats 8. Treadle's own element types are the table in `dtypes.py`; these
are for TVM's files and names.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .dtypes import DType
from .messages.errors import FormatError, MissingPackageError


class DataTypeCode:
    """The codes of kinds. 6 and 7 are TVM's up to 0.19; DLPack has truth values at 6 since."""

    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    BFLOAT = 4
    COMPLEX = 5
    E4M3Float = 6
    E5M2Float = 7


_KINDS = {  # kind → code, bits where the text has none
    "int": (DataTypeCode.INT, 32),
    "uint": (DataTypeCode.UINT, 32),
    "float": (DataTypeCode.FLOAT, 32),
    "handle": (DataTypeCode.HANDLE, 64),
    "bfloat": (DataTypeCode.BFLOAT, 16),
    "complex": (DataTypeCode.COMPLEX, 64),
    "e4m3_float": (DataTypeCode.E4M3Float, 8),
    "e5m2_float": (DataTypeCode.E5M2Float, 8),
}
_NAMES = {code: kind for kind, (code, _) in _KINDS.items()}
_TEXT = re.compile(r"([a-z]\w*?)(\d*)(?:x(\d+))?", re.ASCII)
_MOST_BITS, _MOST_LANES = (1 << 8) - 1, (1 << 16) - 1  # what a byte and two hold


class DataType:
    """An element type. Made of its text, a NumPy dtype or type, or another of these; equal where code, bits and lanes are, and
    to its own text."""

    __slots__ = ("bits", "lanes", "type_code")

    def __init__(self, type_str: Any) -> None:
        """Raises FormatError, a ValueError, for text that names no type."""
        self.type_code, self.bits, self.lanes = _parsed(_text(type_str))

    @staticmethod
    def of(code: int, bits: int, lanes: int = 1) -> DataType:
        """The type of DLPack's three numbers."""
        made = DataType.__new__(DataType)
        made.type_code, made.bits, made.lanes = code, bits, lanes
        return made

    def itemsize(self) -> int:
        """Bytes of an element, all its lanes."""
        return (self.bits + 7) // 8 * self.lanes

    def with_lanes(self, lanes: int) -> DataType:
        """The same kind and bits, with other lanes."""
        return DataType.of(self.type_code, self.bits, lanes)

    @property
    def numpy(self) -> np.dtype:
        """NumPy's dtype. Raises FormatError where it has none."""
        if self.lanes == 1 and (self.type_code, self.bits) == (DataTypeCode.BFLOAT, 16):
            return bfloat16()
        try:
            if self.lanes == 1:
                return np.dtype(str(self))
        except TypeError:
            pass
        raise FormatError(f"NumPy has no element type {self}")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):  # its own text
            return str(self) == other
        return isinstance(other, DataType) and self._key == other._key

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.type_code, self.bits, self.lanes

    def __str__(self) -> str:
        if self.bits == 0 and self.lanes == 0:
            return "void"
        if (self.type_code, self.bits, self.lanes) == (DataTypeCode.UINT, 1, 1):
            return "bool"
        name = _NAMES.get(self.type_code, f"custom[{self.type_code}]")
        return f"{name}{self.bits}" + (f"x{self.lanes}" if self.lanes != 1 else "")

    __repr__ = __str__

    def __reduce__(self) -> tuple:
        return DataType.of, self._key


def bfloat16() -> np.dtype:
    """NumPy's bfloat16, which is ml_dtypes'. Raises FormatError where that package is not installed."""
    try:
        return DType.bfloat16.numpy
    except MissingPackageError as error:
        raise FormatError(error.message) from None


def _text(value: Any) -> str:
    if isinstance(value, (str, DataType)):
        return str(value)
    try:
        return np.dtype(getattr(value, "numpy", value)).name
    except TypeError:
        raise FormatError(
            f"Do not know how to handle type {value!r}: expected a type's name, or a NumPy dtype"
        ) from None


def _parsed(text: str) -> tuple[int, int, int]:
    if text in ("", "void"):
        return DataTypeCode.HANDLE, 0, 0
    found = _TEXT.fullmatch(text)
    kind, bits, lanes = found.groups() if found else ("", "", "")
    if kind == "bool" and not bits:
        kind, bits = "uint", "1"
    if kind not in _KINDS:
        raise FormatError(
            f"Do not know how to handle type {text!r}: expected bool, void, or one of {', '.join(_KINDS)}"
        )
    code, usual = _KINDS[kind]
    width, count = (int(digits) if len(digits) < 10 else 0 for digits in (bits or str(usual), lanes or "1"))
    if not 1 <= width <= _MOST_BITS or not 1 <= count <= _MOST_LANES:
        raise FormatError(f"type {text!r}: bits are 1 to {_MOST_BITS}, lanes 1 to {_MOST_LANES}")
    return code, width, count
