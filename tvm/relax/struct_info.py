"""What Relax knows of a value: struct infos. Each stands for one of Treadle's types, which `type_of` gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.messages.errors import ArgumentError
from ...formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type
from ..modules.containers import Object

__all__ = [
    *("FuncStructInfo", "ObjectStructInfo", "PrimStructInfo", "ShapeExpr", "ShapeStructInfo", "StructInfo"),
    *("TensorStructInfo", "TupleStructInfo"),
]


class StructInfo(Object):
    """The common base."""


class ShapeExpr(tuple, Object):
    """The sizes of a tensor: integers, and symbolic dimensions."""

    def __new__(cls, values: Sequence[Any], span: object = None) -> ShapeExpr:
        return super().__new__(cls, (dims.named(each) if isinstance(each, str) else each for each in values))

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(self)

    @property
    def struct_info(self) -> ShapeStructInfo:
        return ShapeStructInfo(self)


@dataclass(frozen=True)
class ObjectStructInfo(StructInfo):
    """Of a value nothing is known."""

    span: object = None


@dataclass(frozen=True)
class PrimStructInfo(StructInfo):
    """A number: its element type, and its value where that is known."""

    dtype: str
    value: Any = None

    def __init__(self, dtype: Any = None, value: Any = None, span: object = None) -> None:
        is_value = dtype is not None and not isinstance(dtype, str)  # TVM takes either as the first argument
        value = dtype if is_value else value
        object.__setattr__(self, "dtype", str(getattr(value, "dtype", "int64")) if is_value else (dtype or "int64"))
        object.__setattr__(self, "value", value)


@dataclass(frozen=True)
class ShapeStructInfo(StructInfo):
    """A shape: its sizes, or only how many they are (-1: not known)."""

    values: ShapeExpr | None
    ndim: int

    def __init__(self, values: Sequence[Any] | None = None, ndim: int = -1, span: object = None) -> None:
        object.__setattr__(self, "values", None if values is None else ShapeExpr(values))
        object.__setattr__(self, "ndim", ndim if values is None else len(values))


@dataclass(frozen=True)
class TensorStructInfo(StructInfo):
    """A tensor: its shape (None where not all sizes are known), element type and rank."""

    shape: ShapeExpr | None
    dtype: str
    ndim: int
    vdevice: object
    _type: TensorType | None  # with the sizes that are known where others are not

    def __init__(
        self,
        shape: Sequence[Any] | None = None,
        dtype: str | None = "float32",
        vdevice: object = None,
        span: object = None,
        *,
        ndim: int = -1,
    ) -> None:
        """Raises ArgumentError for a shape and another `ndim`, and for an element type that does not exist."""
        if isinstance(shape, ShapeStructInfo):
            shape, ndim = shape.values, shape.ndim
        if shape is not None and ndim not in (-1, len(shape)):
            raise ArgumentError(
                f"TensorStructInfo: the shape has {len(shape)} sizes, but ndim is {ndim}; leave ndim out"
            )
        known = None
        if shape is not None or ndim >= 0:
            known = TensorType(DType.of(dtype or "float32"), (UNKNOWN,) * ndim if shape is None else tuple(shape))
        self._set(known, dtype or "", vdevice)

    def _set(self, known: TensorType | None, dtype: str, vdevice: object) -> None:
        has_shape = known is not None and not any(dim is UNKNOWN for dim in known.shape)
        fields = {
            "shape": ShapeExpr(known.shape) if known is not None and has_shape else None,
            "dtype": str(dtype),
            "ndim": -1 if known is None else known.rank,
            "vdevice": vdevice,
            "_type": known,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_type(cls, known: TensorType) -> TensorStructInfo:
        """That of a type of Treadle's, with the sizes of which nothing is known."""
        made = cls.__new__(cls)
        made._set(known, known.dtype.name, None)
        return made


@dataclass(frozen=True)
class TupleStructInfo(StructInfo):
    """A tuple."""

    fields: tuple[StructInfo, ...]

    def __init__(self, fields: Sequence[StructInfo], span: object = None) -> None:
        object.__setattr__(self, "fields", tuple(map(struct_info_of, fields)))

    def __iter__(self) -> Iterator[StructInfo]:
        return iter(self.fields)


@dataclass(frozen=True)
class FuncStructInfo(StructInfo):
    """A function: those of its parameters, and of its result."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool

    def __init__(
        self, params: Sequence[StructInfo] | None, ret: StructInfo, purity: bool = True, span: object = None
    ) -> None:
        made = None if params is None else tuple(map(struct_info_of, params))
        for name, value in {"params": made, "ret": struct_info_of(ret), "purity": purity}.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def opaque_func(
        *, ret: StructInfo | None = None, derive_func: Callable[..., Any] | None = None, purity: bool = False
    ) -> FuncStructInfo:
        """Of a function nothing but its result is known."""
        return FuncStructInfo(None, ret or ObjectStructInfo(), purity)


def struct_info_of(value: StructInfo | Type | None) -> StructInfo:
    """What Relax says of a type of Treadle's; a struct info is itself."""
    if isinstance(value, StructInfo):
        return value
    if isinstance(value, TensorType):
        return TensorStructInfo.of_type(value)
    if isinstance(value, TupleType):
        return TupleStructInfo(value.fields)  # type: ignore[arg-type]
    if isinstance(value, FunctionType):
        return FuncStructInfo(value.params, value.result)  # type: ignore[arg-type]
    return ObjectStructInfo()


def type_of(value: Any) -> Any:
    """Treadle's type of a struct info; anything else is returned as it is. Raises ArgumentError where no type says it."""
    if isinstance(value, TensorStructInfo):
        if value._type is None:
            raise ArgumentError("TensorStructInfo: expected a shape or ndim; Treadle's tensors have a rank")
        return value._type
    if isinstance(value, TupleStructInfo):
        return TupleType(tuple(map(type_of, value.fields)))
    if isinstance(value, FuncStructInfo) and value.params is not None:
        return FunctionType(tuple(map(type_of, value.params)), type_of(value.ret))
    if isinstance(value, PrimStructInfo):
        return TensorType(DType.of(value.dtype), ())
    if isinstance(value, ShapeStructInfo) and value.ndim >= 0:
        return TensorType(DType.int64, (value.ndim,))
    if isinstance(value, StructInfo):
        raise ArgumentError(f"{type(value).__name__}: expected what has a type of its own; nothing is known of it")
    return value
