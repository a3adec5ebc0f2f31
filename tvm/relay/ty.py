"""Relay's types, and the way between them and Treadle's.

Dimensions are integers, symbolic ones (`te.var("n")`, a dimension of Treadle's), or `Any()`. Types are equal by structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from ...formats import types
from ...formats.dims import SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import CheckError, DTypeError
from ..modules.containers import Object
from ..tir import Any, IntImm

_USUAL = {"uint1": "bool", "int": "int32", "uint": "uint32", "float": "float32"}  # TVM's widths, which are not NumPy's
_VECTOR = re.compile(r"(u?int|float|bfloat)\d{1,3}x\d{1,4}")

Dim = Union[int, SymbolicDim, Any]


class TypeKind:
    """What a type variable stands for."""

    Type, ShapeVar, BaseType, Constraint, AdtHandle, TypeData = 0, 1, 2, 4, 5, 6


class Type(Object):
    """Any type of Relay."""

    span = None

    def __str__(self) -> str:
        return text_of(self)


def _dim(dim: object) -> Dim:
    if isinstance(dim, (SymbolicDim, Any)):
        return dim
    try:
        return IntImm("int32", int(dim))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise CheckError(f"expected a dimension, an integer, a size or Any(), got {dim!r}") from None


@dataclass(frozen=True)
class TensorType(Type):
    """A tensor: its shape and its element type's name."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        shape = self.shape if isinstance(self.shape, (tuple, list)) else (self.shape,)
        object.__setattr__(self, "shape", tuple(map(_dim, shape)))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape, as integers. Raises TypeError if a dimension is not known."""
        if not all(isinstance(dim, int) for dim in self.shape):
            raise TypeError(f"the shape of {self} is not known before the program runs")
        return tuple(int(dim) for dim in self.shape)  # type: ignore[arg-type]


@dataclass(frozen=True)
class TupleType(Type):
    fields: tuple[Type, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))


@dataclass(frozen=True)
class TypeVar(Type):
    """A type variable of a generic function or data type."""

    name_hint: str
    kind: int = TypeKind.Type


@dataclass(frozen=True)
class GlobalTypeVar(Type):
    """A data type of the module, by name."""

    name_hint: str
    kind: int = TypeKind.AdtHandle

    @property
    def name(self) -> str:
        return self.name_hint

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


@dataclass(frozen=True)
class TypeCall(Type):
    """A data type with its arguments: `List[int32]`."""

    func: Type
    args: tuple[Type, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))


@dataclass(frozen=True, eq=False)
class FuncType(Type):
    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "arg_types", tuple(self.arg_types))
        object.__setattr__(self, "type_params", tuple(self.type_params or ()))
        object.__setattr__(self, "type_constraints", tuple(self.type_constraints or ()))

    def __eq__(self, other: object) -> bool:
        """Whether both are the same but for the names of type variables."""
        return isinstance(other, FuncType) and self._numbered() == other._numbered()

    def __hash__(self) -> int:
        return hash(self._numbered())

    def _numbered(self) -> tuple:
        """The parts, type variables numbered as they come."""
        numbers: dict[str, int] = {}
        own = {variable.name_hint for variable in self.type_params}

        def of(type_: object) -> object:
            if isinstance(type_, TypeVar) and type_.name_hint in own:
                return numbers.setdefault(type_.name_hint, len(numbers))
            if isinstance(type_, FuncType):
                return ("function", *map(of, type_.arg_types), of(type_.ret_type))
            if isinstance(type_, TypeCall):
                return ("call", of(type_.func), *map(of, type_.args))
            if isinstance(type_, TupleType):
                return ("tuple", *map(of, type_.fields))
            return type_

        kinds = tuple(variable.kind for variable in self.type_params)
        return (*map(of, self.arg_types), of(self.ret_type), kinds)


@dataclass(frozen=True, eq=False)
class TypeRelation(Type):
    """A relation between types, as TVM's operators have it; Treadle's operators have rules of their own."""

    func: object
    args: tuple[Type, ...]
    num_inputs: int
    attrs: object = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))


class IncompleteType(Type):
    """A type that inference is to find."""

    def __init__(self, kind: int = TypeKind.Type) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return "IncompleteType()"

    __str__ = __repr__


def text_of(type_: Type, dim_text: Callable[[SymbolicDim], str] = str) -> str:
    """A type as Relay's text has it; `dim_text` gives that of symbolic dimensions."""

    def several(types_: Sequence[Type]) -> str:
        return ", ".join(text_of(each, dim_text) for each in types_)

    if isinstance(type_, TensorType):
        if not type_.shape:
            return type_.dtype
        shape = (dim_text(dim) if isinstance(dim, SymbolicDim) else str(dim) for dim in type_.shape)
        return f"Tensor[({', '.join(shape)}), {type_.dtype}]"
    if isinstance(type_, TupleType):
        return f"({several(type_.fields)}{',' if len(type_.fields) == 1 else ''})"
    if isinstance(type_, TypeCall):
        return f"{type_.func}[{several(type_.args)}]" if type_.args else str(type_.func)
    if isinstance(type_, FuncType):
        own = f"[{several(type_.type_params)}]" if type_.type_params else ""
        return f"fn {own}({several(type_.arg_types)}) -> {text_of(type_.ret_type, dim_text)}"
    return type_.name_hint if isinstance(type_, (TypeVar, GlobalTypeVar)) else "_"


def scalar_type(dtype: str) -> TensorType:
    """The type of a tensor of rank 0."""
    return TensorType((), dtype)


def dtype_name(dtype: object) -> str:
    """The name of an element type: NumPy's, where it has one. Vectors (`int8x4`) have a name alone. Raises DTypeError."""
    if isinstance(dtype, str) and dtype in _USUAL:
        return _USUAL[dtype]
    if isinstance(dtype, str) and _VECTOR.fullmatch(dtype):
        return dtype
    return DType.of(dtype if isinstance(dtype, DType) else str(dtype) if not isinstance(dtype, type) else dtype).name


def to_type(type_: Type | None) -> types.Type | None:
    """Treadle's type for one of Relay's; None for one that inference is to find."""
    if type_ is None or isinstance(type_, IncompleteType):
        return None
    if isinstance(type_, TensorType):
        if _VECTOR.fullmatch(type_.dtype):
            raise DTypeError(f"{type_}: tensors here have no elements that are vectors")
        shape = (
            types.UNKNOWN if isinstance(d, Any) else d if isinstance(d, SymbolicDim) else int(d) for d in type_.shape
        )
        return types.TensorType(DType[type_.dtype], tuple(shape))
    if isinstance(type_, TupleType):
        fields = _known(type_.fields)
        return None if fields is None else types.TupleType(fields)
    if isinstance(type_, FuncType):
        parts = _known((*type_.arg_types, type_.ret_type))
        return None if parts is None else types.FunctionType(parts[:-1], parts[-1])
    if isinstance(type_, TypeCall) and isinstance(type_.func, GlobalTypeVar):
        arguments = _known(type_.args)
        return None if arguments is None else types.DataType(type_.func.name_hint, arguments)
    if isinstance(type_, GlobalTypeVar):
        return types.DataType(type_.name_hint)
    if isinstance(type_, TypeVar):
        return types.TypeVariable(type_.name_hint)
    raise TypeError(f"{type_!r} is not a type that Treadle has")


def is_known(type_: Type | None) -> bool:
    """Whether nothing is left for inference to find."""
    if type_ is None or isinstance(type_, IncompleteType):
        return False
    if isinstance(type_, (TupleType, FuncType, TypeCall)):
        parts = type_.fields if isinstance(type_, TupleType) else type_.args if isinstance(type_, TypeCall) else ()
        parts = (*type_.arg_types, type_.ret_type) if isinstance(type_, FuncType) else parts
        return all(map(is_known, parts))
    return True


def _known(several: Sequence[Type]) -> tuple[types.Type, ...] | None:
    made = [to_type(each) for each in several]
    return None if None in made else tuple(made)  # type: ignore[arg-type]


def from_type(type_: types.Type) -> Type:
    """Relay's type for one of Treadle's."""
    if isinstance(type_, types.TensorType):
        shape: tuple[object, ...] = tuple(Any() if dim is types.UNKNOWN else dim for dim in type_.shape)
        return TensorType(shape, type_.dtype.name)  # type: ignore[arg-type]
    if isinstance(type_, types.TupleType):
        return TupleType(tuple(map(from_type, type_.fields)))
    if isinstance(type_, types.FunctionType):
        return FuncType(tuple(map(from_type, type_.params)), from_type(type_.result))
    if isinstance(type_, types.DataType):
        return TypeCall(GlobalTypeVar(type_.name), tuple(map(from_type, type_.arguments)))
    return TypeVar(type_.name)
