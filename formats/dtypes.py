"""Element types: one table. Codes are part of the file format and never change meaning.

A row says all that is known of a type: files, text, ONNX, protocols, NumPy's arrays, the reference evaluator and kernels are
derived from it. Types that NumPy lacks are those of the package `ml_dtypes`: arrays have its types, in memory an element is a
byte or two. Nothing imports the package before there is such an array.

An element of a string tensor is the number of a text (`strings.py`): memory, files and kernels move numbers, and only operators
that are about texts, and users, see these.
"""

import os
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .messages.choices import Choices
from .messages.errors import DTypeError, MissingPackageError
from .messages.names import near


@dataclass(frozen=True)
class FloatFormat:
    """The bits of a float narrower than float32: a sign, exponent bits, mantissa bits. All of these are codes without the sign.

    What is beyond `greatest` becomes `overflow`, a NaN becomes `nan`; finite numbers have codes up to `greatest`.
    """

    exponent: int
    mantissa: int
    bias: int
    greatest: int
    overflow: int
    nan: int
    has_sign: bool = True
    has_negative_zero: bool = True  # without one, the code of the sign alone is the only NaN


@dataclass(frozen=True)
class _Row:
    code: int
    kind: str  # bool, int, uint, float, string
    bits: int  # that a value has; in memory it has whole bytes
    onnx: int  # TensorProto.DataType
    protocol: str = ""  # its name in the Open Inference Protocol
    computed: str = ""  # the type in which it is computed, each result being rounded to its own; "" for its own
    format: FloatFormat | None = None  # of a type that NumPy lacks


# The numbers of texts are this process's own. No .npy file, buffer, pickle or array interface can name this field, so that an
# array that has it was made here, by `strings.py`.
_TEXT_FIELD = f"text_{os.urandom(8).hex()}"


class DType(Enum, metaclass=Choices):
    """The element type of a tensor. `DType.float32.name` is "float32", also NumPy's or ml_dtypes' name for it.

    One is equal to what NumPy's dtype is equal to: `np.float32`, `np.dtype("float32")`, `"float32"`, of which the dtype has the
    same hash; the types of ml_dtypes, which may not be there, have another.
    """

    bool = _Row(1, "bool", 8, 9, "BOOL")
    int8 = _Row(2, "int", 8, 3, "INT8")
    int16 = _Row(3, "int", 16, 5, "INT16")
    int32 = _Row(4, "int", 32, 6, "INT32")
    int64 = _Row(5, "int", 64, 7, "INT64")
    uint8 = _Row(6, "uint", 8, 2, "UINT8")
    uint16 = _Row(7, "uint", 16, 4, "UINT16")
    uint32 = _Row(8, "uint", 32, 12, "UINT32")
    uint64 = _Row(9, "uint", 64, 13, "UINT64")
    float16 = _Row(10, "float", 16, 10, "FP16", computed="float32")
    float32 = _Row(11, "float", 32, 1, "FP32")
    float64 = _Row(12, "float", 64, 11, "FP64")
    bfloat16 = _Row(13, "float", 16, 16, "BF16", "float32", FloatFormat(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0))
    float8_e4m3fn = _Row(14, "float", 8, 17, "", "float32", FloatFormat(4, 3, 7, 0x7E, 0x7F, 0x7F))
    float8_e4m3fnuz = _Row(
        15, "float", 8, 18, "", "float32", FloatFormat(4, 3, 8, 0x7F, 0x80, 0x80, has_negative_zero=False)
    )
    float8_e5m2 = _Row(16, "float", 8, 19, "", "float32", FloatFormat(5, 2, 15, 0x7B, 0x7C, 0x7E))
    float8_e5m2fnuz = _Row(
        17, "float", 8, 20, "", "float32", FloatFormat(5, 2, 16, 0x7F, 0x80, 0x80, has_negative_zero=False)
    )
    float8_e8m0fnu = _Row(18, "float", 8, 24, "", "float32", FloatFormat(8, 0, 127, 0xFE, 0xFF, 0xFF, has_sign=False))
    float4_e2m1fn = _Row(19, "float", 4, 23, "", "float32", FloatFormat(2, 1, 1, 0x7, 0x7, 0x8))
    int4 = _Row(20, "int", 4, 22, computed="int8")
    uint4 = _Row(21, "uint", 4, 21, computed="uint8")
    int2 = _Row(22, "int", 2, 26, computed="int8")
    uint2 = _Row(23, "uint", 2, 25, computed="uint8")
    string = _Row(24, "string", 64, 8, "BYTES")

    def __init__(self, row: _Row) -> None:
        self._numpy: np.dtype | None = np.dtype([(_TEXT_FIELD, np.uint64)]) if row.kind == "string" else None
        if row.format is None and row.bits >= 8 and row.kind != "string":
            self._numpy = np.dtype(row.kind if row.kind == "bool" else f"{row.kind}{row.bits}")
        self._is_numpys = self._numpy is not None and row.kind != "string"
        self._hash = hash(self._numpy or row)

    def __eq__(self, other: object) -> "bool":  # type: ignore[valid-type]
        if isinstance(other, DType):
            return self is other
        if not isinstance(other, (np.dtype, type, str)):  # np.dtype(None) is float64
            return NotImplemented
        try:
            if not self._is_numpys:
                return self.name == (other if isinstance(other, str) else np.dtype(other).name)
            return self._numpy == other
        except TypeError:
            return False

    def __hash__(self) -> int:
        """NumPy's, of what it has. The hashes of ml_dtypes' types are not asked for: they would import the package."""
        return self._hash

    @property
    def code(self) -> int:
        return self.value.code

    @cached_property
    def itemsize(self) -> int:
        """Bytes an element takes in memory and files, one at least."""
        return max(1, self.value.bits // 8)

    @property
    def is_float(self) -> "bool":  # type: ignore[valid-type]
        return self.value.kind == "float"

    @property
    def is_integer(self) -> "bool":  # type: ignore[valid-type]
        """True for signed and unsigned integers, not for bool."""
        return self.value.kind in ("int", "uint")

    @property
    def is_string(self) -> "bool":  # type: ignore[valid-type]
        return self.value.kind == "string"

    @property
    def is_signed(self) -> "bool":  # type: ignore[valid-type]
        """True for what may be negative: signed integers and floats."""
        return self.value.kind in ("int", "float") and (self.format is None or self.format.has_sign)

    @property
    def protocol(self) -> str:
        """The Open Inference Protocol's name; of types that the protocol lacks, our own in capitals."""
        return self.value.protocol or self.name.upper()

    @cached_property
    def computed(self) -> "DType":
        """The type in which kernels and the reference evaluator compute, itself where it is that of registers and NumPy."""
        return DType[self.value.computed] if self.value.computed else self

    @property
    def format(self) -> FloatFormat | None:
        """The bits of a float that NumPy lacks."""
        return self.value.format

    @property
    def is_numpys(self) -> "bool":  # type: ignore[valid-type]
        """Whether NumPy has it, without ml_dtypes."""
        return self._is_numpys

    @property
    def numpy(self) -> np.dtype:
        """NumPy's dtype of the elements in memory. Raises MissingPackageError for a type of ml_dtypes where that package is not
        installed."""
        if self._numpy is None:
            try:
                import ml_dtypes

                self._numpy = np.dtype(getattr(ml_dtypes, self.name))
            except (ImportError, AttributeError):
                raise MissingPackageError(
                    f"arrays of {self.name} have a type of the package ml_dtypes: pip install 'ml_dtypes>=0.5.4'"
                ) from None
            _BY_NUMPY[self._numpy] = self
        return self._numpy

    @property
    def users(self) -> np.dtype:
        """The dtype of arrays that users get: that of memory, but for texts, which are Python's."""
        return np.dtype(object) if self.is_string else self.numpy

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype, which `np.dtype(…)` asks for by this name."""
        return self.users

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest finite value: integers of integer types, floats of floats."""
        if self.value.kind == "bool":
            return 0, 1
        if self.is_integer:
            bits = self.value.bits
            return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.value.kind == "int" else (0, (1 << bits) - 1)
        if self.format is None:
            greatest = float(np.finfo(self.numpy).max)
        else:
            exponent, mantissa = divmod(self.format.greatest, 1 << self.format.mantissa)
            greatest = (1 + mantissa / (1 << self.format.mantissa)) * 2.0 ** (exponent - self.format.bias)
        if self.format is not None and not self.format.has_sign:
            return 2.0**-self.format.bias, greatest
        return -greatest, greatest

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
        if isinstance(value, str) and value in DType.__members__:
            return DType[value]
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
                f"no tensor element type {value!r}; Treadle has {known}{DType.instead_of(value)}"
            ) from None

    @staticmethod
    def instead_of(name: object) -> str:
        """`; did you mean float16?`, the end of a message about an unknown element type."""
        meant = _OTHER_NAMES.get(name.lower().removeprefix("torch.")) if isinstance(name, str) else None
        return f"; did you mean {meant}?" if meant else near(name, DType.__members__)

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

    @staticmethod
    def from_onnx(code: int) -> "DType":
        """The type of an ONNX TensorProto.DataType. Raises DTypeError for one that Treadle does not have."""
        try:
            return _BY_ONNX[code]
        except KeyError:
            raise DTypeError(f"tensors of ONNX's element type {code} are not supported") from None


_OTHER_NAMES = {  # of the element types, at other places; those that NumPy knows, as i4 for 4 bytes, have its meaning
    other: meant
    for meant, others in {
        "float16": "fp16 f16 half",
        "bfloat16": "bf16 brainfloat",
        "float32": "fp32 f32 single",
        "float64": "fp64 f64 double",
        "float8_e4m3fn or float8_e5m2": "fp8 float8 e4m3 e5m2 float8_e4m3",
        "float4_e2m1fn": "fp4 float4 nf4",
        "int8": "qint8",
        "uint8": "quint8",
        "int16": "i16 short",
        "int32": "i32",
        "int64": "i64 long",
        "int4 or uint4": "q4 int4x2",
        "bool": "boolean",
        "string": "str text object",
    }.items()
    for other in others.split()
}


_BY_CODE = {dtype.code: dtype for dtype in DType}
_BY_ONNX = {dtype.value.onnx: dtype for dtype in DType}
# a dtype's name takes NumPy some microseconds
_BY_NUMPY = {ours.numpy: ours for ours in DType if ours.is_numpys or ours.is_string}
