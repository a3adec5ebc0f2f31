"""Element types: one table. Codes are part of the file format and never change meaning."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from .errors import DTypeError
from .names import near


@dataclass(frozen=True)
class _Row:
    code: int
    kind: str  # bool, int, uint, float
    bits: int


class DType(Enum):
    """The element type of a tensor. `DType.float32.name` is "float32", also NumPy's name for it.

    One is equal to what NumPy's dtype is equal to: `np.float32`, `np.dtype("float32")`, `"float32"`, of which the dtype has the
    same hash.
    """

    bool = _Row(1, "bool", 8)
    int8 = _Row(2, "int", 8)
    int16 = _Row(3, "int", 16)
    int32 = _Row(4, "int", 32)
    int64 = _Row(5, "int", 64)
    uint8 = _Row(6, "uint", 8)
    uint16 = _Row(7, "uint", 16)
    uint32 = _Row(8, "uint", 32)
    uint64 = _Row(9, "uint", 64)
    float16 = _Row(10, "float", 16)
    float32 = _Row(11, "float", 32)
    float64 = _Row(12, "float", 64)

    def __init__(self, row: _Row) -> None:
        self._numpy = np.dtype(row.kind if row.kind == "bool" else f"{row.kind}{row.bits}")
        self._hash = hash(self._numpy)

    def __eq__(self, other: object) -> "bool":  # type: ignore[valid-type]
        if isinstance(other, DType):
            return self is other
        if not isinstance(other, (np.dtype, type, str)):  # np.dtype(None) is float64
            return NotImplemented
        try:
            return self._numpy == other
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self._hash

    @property
    def code(self) -> int:
        return self.value.code

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.value.bits // 8

    @property
    def is_float(self) -> "bool":  # type: ignore[valid-type]
        return self.value.kind == "float"

    @property
    def is_integer(self) -> "bool":  # type: ignore[valid-type]
        """True for signed and unsigned integers, not for bool."""
        return self.value.kind in ("int", "uint")

    @property
    def numpy(self) -> np.dtype:
        return self._numpy

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype, which `np.dtype(…)` asks for by this name."""
        return self._numpy

    def __repr__(self) -> str:
        return self.name

    @staticmethod
    def of(value: "npt.DTypeLike | DType") -> "DType":
        """The DType of a NumPy dtype, its name, or a scalar type. Raises DTypeError for any other.

        Byte order is not part of a DType: a big-endian array has the same one, and is converted on entry.
        """
        if isinstance(value, DType):
            return value
        if isinstance(value, np.dtype) and value in _BY_NUMPY:
            return _BY_NUMPY[value]
        try:
            return DType[np.dtype(value).name]
        except (
            KeyError,
            TypeError,
            ValueError,
            SyntaxError,
            OverflowError,
        ):  # NumPy reads texts with a parser of its own
            known = ", ".join(dtype.name for dtype in DType)
            raise DTypeError(
                f"no tensor element type {value!r}; Treadle has {known}{near(value, DType.__members__)}"
            ) from None

    @classmethod
    def _missing_(cls, value: object) -> "DType":
        """`DType("float32")`. Raises DTypeError."""
        return cls.of(value)  # type: ignore[arg-type]

    @staticmethod
    def from_code(code: int) -> "DType":
        """Raises DTypeError for a code that no DType has."""
        try:
            return _BY_CODE[code]
        except KeyError:
            raise DTypeError(f"unknown element type code {code}") from None


_BY_CODE = {dtype.code: dtype for dtype in DType}
_BY_NUMPY = {ours.numpy: ours for ours in DType}  # a dtype's name takes NumPy some microseconds
