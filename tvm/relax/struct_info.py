"""What Relax knows of a value: struct infos. Those of tensors, tuples and functions stand for Treadle's types (`type_of`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.messages.errors import ArgumentError, CheckError
from ...formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type
from .node import Node
from .ty import DynTensorType, FuncType, ObjectType, PrimType, ShapeType
from .ty import TupleType as RelaxTupleType

__all__ = [
    *("FuncStructInfo", "ObjectStructInfo", "PrimStructInfo", "ShapeExpr", "ShapeStructInfo", "StructInfo"),
    *("TensorStructInfo", "TupleStructInfo"),
]


class StructInfo(Node):
    """The common base. Calling one gives itself, so that `R.Object` and `R.Object()` are one."""

    fields_of: ClassVar[tuple[str, ...]] = ()  # what `of_fields` takes

    def __call__(self) -> StructInfo:
        return self

    @classmethod
    def of_fields(cls, *values: Any) -> Any:
        """The struct info of these fields, as JSON has them."""
        return cls(*values)


def size(value: Any) -> Any:
    """A dimension: an integer, or a symbolic one. Raises CheckError for anything else."""
    made = dims.named(value) if isinstance(value, str) else value
    if not isinstance(made, dims.SymbolicDim):
        if isinstance(made, bool) or not hasattr(made, "__index__"):
            raise CheckError(f"a shape has integers and symbolic sizes, got {value!r}")
        return int(made)
    return made


class ShapeExpr(tuple, Node):
    """The sizes of a tensor: integers, and symbolic dimensions."""

    def __new__(cls, values: Iterable[Any], span: object = None) -> ShapeExpr:
        return super().__new__(cls, tuple(map(size, values)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and not -len(self) <= index < len(self):
            raise IndexError(f"ShapeExpr index out of range: {index} of {len(self)}")
        return tuple.__getitem__(self, index)

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(self)

    @property
    def struct_info(self) -> ShapeStructInfo:
        return ShapeStructInfo(self)

    struct_info_ = struct_info

    @property
    def checked_type(self) -> ShapeType:
        return ShapeType(len(self))


def _several(owner: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (tuple, list)):
        raise CheckError(f"{owner}: expected a list, got {values!r}")
    return tuple(values)


@dataclass(frozen=True)
class ObjectStructInfo(StructInfo):
    """Of a value nothing is known."""

    span: object = field(default=None, compare=False)

    checked_type = ObjectType()


@dataclass(frozen=True)
class PrimStructInfo(StructInfo):
    """A number: its element type, and its value where that is known."""

    dtype: str
    value: Any = None

    fields_of = ("dtype", "value")

    def __init__(self, dtype: Any = None, value: Any = None, span: object = None) -> None:
        """Raises CheckError for what is neither an element type nor a number."""
        is_value = dtype is not None and not isinstance(dtype, str)  # TVM takes either as the first argument
        value = dtype if is_value else value
        if isinstance(value, (list, tuple)):
            raise CheckError(f"PrimStructInfo: expected a number or an element type, got {value!r}")
        known = "bool" if isinstance(value, (bool, Condition)) else "float64" if isinstance(value, float) else "int64"
        given = str(getattr(value, "dtype", known)) if value is not None else dtype
        object.__setattr__(self, "dtype", given or "int64")
        object.__setattr__(self, "value", value)

    @property
    def checked_type(self) -> PrimType:
        return PrimType(self.dtype)


@dataclass(frozen=True)
class Condition(Node):
    """A comparison of sizes, which is known when the program runs."""

    operator: str
    left: Any
    right: Any

    dtype = "bool"

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class ShapeStructInfo(StructInfo):
    """A shape: its sizes, or only how many they are (-1: not known)."""

    values: ShapeExpr | None
    ndim: int

    fields_of = ("values", "ndim")

    @classmethod
    def of_fields(cls, values: Any, ndim: int) -> ShapeStructInfo:
        return cls(values, ndim if values is None else -1)

    def __init__(self, values: Sequence[Any] | None = None, ndim: int = -1, span: object = None) -> None:
        """Raises CheckError for anything but a list of sizes, and for one and `ndim`."""
        if values is not None and ndim != -1:
            raise CheckError(f"ShapeStructInfo: got {len(values)} sizes and ndim {ndim}; give one of them")
        object.__setattr__(self, "values", None if values is None else ShapeExpr(_several("ShapeStructInfo", values)))
        object.__setattr__(self, "ndim", ndim if values is None else len(values))

    @property
    def checked_type(self) -> ShapeType:
        return ShapeType(self.ndim)


@dataclass(frozen=True)
class TensorStructInfo(StructInfo):
    """A tensor: its shape (None where not all sizes are known), element type ("": not known) and rank."""

    shape: Any
    dtype: str
    ndim: int
    vdevice: object = None
    sizes: tuple[Any, ...] | None = None  # those that are known where others are not (`UNKNOWN`)

    fields_of = ("dtype", "ndim", "vdevice", "written")

    @property
    def written(self) -> Any:
        """The sizes as text has them, or the variable that holds them."""
        return self.shape if self.sizes is None else tuple("?" if each is UNKNOWN else each for each in self.sizes)

    @classmethod
    def of_fields(cls, dtype: str, ndim: int, vdevice: Any, written: Any) -> TensorStructInfo:
        return cls(written, dtype, vdevice, ndim=ndim if written is None else -1)

    def __init__(
        self,
        shape: Any = None,
        dtype: str | None = "float32",
        vdevice: object = None,
        span: object = None,
        *,
        ndim: int = -1,
    ) -> None:
        """`shape` is sizes, or a variable that holds a shape. Raises CheckError for a shape and `ndim`, DTypeError."""
        if isinstance(shape, ShapeStructInfo):
            shape, ndim = shape.values, shape.ndim
        if shape is not None and ndim != -1:
            raise CheckError(f"TensorStructInfo: the shape has {len(shape)} sizes, but ndim is {ndim}; leave ndim out")
        if isinstance(ndim, bool) or not isinstance(ndim, int) or ndim < -1:
            raise CheckError(f"TensorStructInfo: ndim: expected a number from -1 on, got {ndim!r}")
        dtype = "" if dtype in (None, "void") else str(dtype)
        if dtype:
            DType.of(dtype)
        sizes = None
        if isinstance(shape, (tuple, list)):
            sizes = tuple(each if each is UNKNOWN else UNKNOWN if each == "?" else size(each) for each in shape)
            ndim = len(sizes)
            shape = None if UNKNOWN in sizes else ShapeExpr(sizes)
            sizes = None if sizes and set(sizes) == {UNKNOWN} else sizes
        elif shape is not None:
            info = getattr(shape, "struct_info", None)
            if not isinstance(info, ShapeStructInfo):
                raise CheckError(f"TensorStructInfo: shape: expected sizes, or a variable of a shape, got {shape!r}")
            ndim = info.ndim
        for name, value in zip(self.__dataclass_fields__, (shape, dtype, ndim, vdevice, sizes), strict=True):
            object.__setattr__(self, name, value)

    @property
    def checked_type(self) -> DynTensorType:
        return DynTensorType(self.ndim, self.dtype)


@dataclass(frozen=True)
class TupleStructInfo(StructInfo):
    """A tuple."""

    fields: tuple[StructInfo, ...]

    fields_of = ("fields",)

    def __init__(self, fields: Sequence[StructInfo], span: object = None) -> None:
        made = tuple(map(struct_info_of, _several("TupleStructInfo", fields)))
        object.__setattr__(self, "fields", made)

    def __iter__(self) -> Iterator[StructInfo]:
        return iter(self.fields)

    @property
    def checked_type(self) -> RelaxTupleType:
        return RelaxTupleType([each.checked_type for each in self.fields])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class FuncStructInfo(StructInfo):
    """A function: those of its parameters, and of its result."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True
    derive_func: Any = None

    fields_of = ("params", "ret", "purity")

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

    @property
    def checked_type(self) -> FuncType:
        params = [each.checked_type for each in self.params or ()]  # type: ignore[attr-defined]
        return FuncType(params, self.ret.checked_type)  # type: ignore[attr-defined]


def struct_info_of(value: StructInfo | Type | None) -> StructInfo:
    """What Relax says of a type of Treadle's; a struct info is itself."""
    if isinstance(value, StructInfo):
        return value
    if isinstance(value, TensorType):
        return TensorStructInfo(value.shape, value.dtype.name)
    if isinstance(value, TupleType):
        return TupleStructInfo(value.fields)  # type: ignore[arg-type]
    if isinstance(value, FunctionType):
        return FuncStructInfo(value.params, value.result)  # type: ignore[arg-type]
    return ObjectStructInfo()


def known_type(value: Any) -> Type | None:
    """Treadle's type of a struct info; None where no type says as little."""
    if isinstance(value, TensorStructInfo):
        known = value.dtype and value.ndim >= 0
        return TensorType(DType.of(value.dtype), value.sizes or (UNKNOWN,) * value.ndim) if known else None
    if isinstance(value, TupleStructInfo):
        fields = tuple(map(known_type, value.fields))
        return None if None in fields else TupleType(fields)  # type: ignore[arg-type]
    if isinstance(value, FuncStructInfo) and value.params is not None:
        params, result = tuple(map(known_type, value.params)), known_type(value.ret)
        return None if None in (*params, result) else FunctionType(params, result)  # type: ignore[arg-type]
    return None


def type_of(value: Any) -> Any:
    """Treadle's type of a struct info; anything else is returned as it is. Raises ArgumentError where no type says it."""
    if not isinstance(value, StructInfo):
        return value
    type_ = known_type(value)
    if type_ is None:
        raise ArgumentError(f"{value}: expected a shape or ndim, and an element type; Treadle's tensors have these")
    return type_


def map_sizes(info: Any, change: Callable[[Any], Any]) -> Any:
    """The struct info with its symbolic sizes replaced; where one becomes `UNKNOWN`, the rank is left."""
    if isinstance(info, TensorStructInfo) and info.sizes is not None:
        made = tuple(change(each) if isinstance(each, dims.SymbolicDim) else each for each in info.sizes)
        return TensorStructInfo(made, info.dtype, info.vdevice)
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        made = tuple(change(each) if isinstance(each, dims.SymbolicDim) else each for each in info.values)
        return ShapeStructInfo(ndim=info.ndim) if UNKNOWN in made else ShapeStructInfo(made)
    if isinstance(info, PrimStructInfo) and isinstance(info.value, dims.SymbolicDim):
        value = change(info.value)
        return PrimStructInfo(info.dtype) if value is UNKNOWN else PrimStructInfo(value=value)
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([map_sizes(each, change) for each in info.fields])
    return info


def sizes_in(info: Any) -> Iterator[Any]:
    """The sizes that a struct info names, in order."""
    if isinstance(info, TensorStructInfo):
        yield from (each for each in info.sizes or () if each is not UNKNOWN)
    elif isinstance(info, ShapeStructInfo):
        yield from info.values or ()
    elif isinstance(info, PrimStructInfo):
        if info.value is not None:
            yield info.value
    elif isinstance(info, TupleStructInfo):
        for each in info.fields:
            yield from sizes_in(each)
    elif isinstance(info, FuncStructInfo):
        for each in (*(info.params or ()), info.ret):
            yield from sizes_in(each)


def defined_names(infos: Iterable[Any]) -> set[str]:
    """The names of sizes that stand alone in struct infos, which define them."""
    return {str(each) for info in infos for each in sizes_in(info) if dims.is_variable(each)}


def erased(info: Any, names: set[str]) -> Any:
    """The struct info without sizes that are not made of these names."""
    return map_sizes(info, lambda each: each if set(dims.variables(each)) <= names else UNKNOWN)


def bind_sizes(declared: Sequence[Any], given: Sequence[Any]) -> Mapping[str, Any]:
    """What names of sizes of declared struct infos are in those that are given."""
    found: dict[str, Any] = {}
    for mine, other in zip(declared, given, strict=False):
        pairs = zip(sizes_in(mine), sizes_in(other), strict=False) if type(mine) is type(other) else ()
        found.update((str(a), b) for a, b in pairs if dims.is_variable(a))
    return found


def is_base_of(base: Any, derived: Any) -> bool:
    """Whether whatever fits `derived` fits `base`."""
    if isinstance(base, ObjectStructInfo):
        return True
    if type(base) is not type(derived):
        return False
    if isinstance(base, TensorStructInfo):
        return (
            base.dtype in ("", derived.dtype)
            and base.ndim in (-1, derived.ndim)
            and (base.shape is None or base.shape == derived.shape)
        )
    if isinstance(base, ShapeStructInfo):
        return base.ndim in (-1, derived.ndim) and base.values in (None, derived.values)
    if isinstance(base, PrimStructInfo):
        return base.dtype == derived.dtype and base.value in (None, derived.value)
    if isinstance(base, TupleStructInfo):
        pairs = zip(base.fields, derived.fields, strict=False)
        return len(base.fields) == len(derived.fields) and all(is_base_of(a, b) for a, b in pairs)
    if base.params is not None and (derived.params is None or len(base.params) != len(derived.params)):
        return False
    pairs = zip(base.params or (), derived.params or (), strict=False)
    return all(is_base_of(b, a) for a, b in pairs) and is_base_of(base.ret, derived.ret)
