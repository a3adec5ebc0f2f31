"""The types of values, shared by the IR, the signatures in an executable, and the verifier.

float32[n, 4]        a tensor; a dimension is an integer, an expression over variables, or ? (not known)
float32[n, 4]@gpu0   a tensor that lies on another device of the program than the host
(float32[], int64[]) a tuple
List[float32[]]      a data type of the module, with its arguments
fn(float32[2]) -> float32[2]
a                    a type variable (in generic data types and functions; never in an executable)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Union

from . import dims, limits
from .dims import Dim
from .dtypes import DType
from .messages.calling import Suggesting, public_class, told
from .messages.errors import ArgumentError, ShapeError


class _Unknown:
    """The one dimension that nothing is known of."""

    def __repr__(self) -> str:
        return "?"

    __str__ = __repr__


UNKNOWN = _Unknown()
ShapeDim = Union[int, dims.SymbolicDim, _Unknown]


@public_class
@dataclass(frozen=True)
class TensorType(Suggesting):
    """The type of a tensor; sizes that are strings are symbolic: `TensorType("float32", ("n", 4))`. `device` is the name of one
    of the program's devices, "" for the host."""

    dtype: DType
    shape: tuple[ShapeDim, ...] = ()
    device: str = field(default="", hash=False)

    def __post_init__(self) -> None:
        """Converts a user's convenient arguments; Treadle's own have the right types already."""
        if self.dtype.__class__ is not DType or self.shape.__class__ is not tuple or str in map(type, self.shape):
            made = tensor(self.dtype, self.shape)
            object.__setattr__(self, "dtype", made.dtype)
            object.__setattr__(self, "shape", made.shape)
        if self.device.__class__ is not str:
            raise ArgumentError(f"a tensor type: device: expected a name, or '' for the host, got {told(self.device)}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of a static tensor. Raises ValueError for another."""
        if not self.is_static:
            raise ValueError(f"{self} has no static size")
        return int(dims.element_count(self.shape)) * self.dtype.itemsize  # type: ignore[arg-type]

    def with_shape(self, shape: tuple[ShapeDim, ...]) -> TensorType:
        """The type of a tensor of another shape in the same place."""
        return TensorType(self.dtype, shape, self.device)

    def on(self, device: str) -> TensorType:
        """The type of the same tensor on a device, "" for the host."""
        same = device.__class__ is str and device == self.device
        return self if same else TensorType(self.dtype, self.shape, device)

    def __str__(self) -> str:
        place = f"@{self.device}" if self.device else ""
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]{place}"


def size_problem(type_: TensorType) -> str:
    """The problem of a shape whose extents or bytes could overflow; "" if there is none. Unknown and symbolic
    dimensions count as 1."""
    if len(type_.shape) > limits.RANK:
        return f"has rank {type_.rank}; at most {limits.RANK} is allowed"
    known = [dim for dim in type_.shape if isinstance(dim, int)]
    if any(not 0 <= dim <= limits.DIMENSION for dim in known):
        return f"has a dimension outside of 0 … {limits.DIMENSION}"
    # zeros count as 1: the product of the others must not overflow either, where a kernel computes strides
    if math.prod(max(dim, 1) for dim in known) * type_.dtype.itemsize > limits.DIMENSION:
        return f"has more than {limits.DIMENSION} bytes"
    return ""


@dataclass(frozen=True)
class TupleType:
    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))}{',' if len(self.fields) == 1 else ''})"


@dataclass(frozen=True)
class FunctionType:
    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"fn({', '.join(map(str, self.params))}) -> {self.result}"


@dataclass(frozen=True)
class DataType:
    """A use of a data type: its name and type arguments. Its constructors are in the module's (executable's) table; while a
    program is built, before there is a module, the type itself knows them."""

    name: str
    arguments: tuple[Type, ...] = ()
    definition: DataTypeDefinition | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.arguments))}]" if self.arguments else self.name


@dataclass(frozen=True)
class TypeVariable:
    name: str

    def __str__(self) -> str:
        return self.name


Type = Union[TensorType, TupleType, FunctionType, DataType, TypeVariable]


@dataclass(frozen=True)
class Constructor:
    """A constructor of a data type; its tag is its position in the definition."""

    name: str
    fields: tuple[Type, ...]


@dataclass(frozen=True)
class DataTypeDefinition:
    """`data List[a] = Nil | Cons(a, List[a])`."""

    name: str
    parameters: tuple[str, ...]
    constructors: tuple[Constructor, ...]

    def __str__(self) -> str:
        head = self.name + (f"[{', '.join(self.parameters)}]" if self.parameters else "")
        bodies = (c.name + (f"({', '.join(map(str, c.fields))})" if c.fields else "") for c in self.constructors)
        return f"data {head} = {' | '.join(bodies)}"


def tensor(dtype: object, shape: tuple | list = ()) -> TensorType:
    """A tensor type of what its parts may be written as: names and NumPy's types, and any sequence of sizes.

    Raises DTypeError, ShapeError.
    """
    if not isinstance(shape, (tuple, list)):
        raise ShapeError(f"a tensor type: shape: expected sizes and names of sizes, as ('n', 4), got {shape!r}")
    return TensorType(
        DType.of(dtype),  # type: ignore[arg-type]
        tuple(UNKNOWN if dim == "?" else dims.parse(dim) if isinstance(dim, str) else dim for dim in shape),
    )


def parts(type_: Type) -> tuple[Type, ...]:
    """The component types: a tuple's fields, a function's parameters and result, a data type's arguments."""
    if isinstance(type_, TupleType):
        return type_.fields
    if isinstance(type_, FunctionType):
        return *type_.params, type_.result
    return type_.arguments if isinstance(type_, DataType) else ()


def types_in(type_: Type) -> Iterator[Type]:
    """A type, and all that it is made of."""
    yield type_
    for part in parts(type_):
        yield from types_in(part)


def map_types(type_: Type, leaf: Callable[[Type], Type]) -> Type:
    """`type_` with its tensor types and type variables replaced by what `leaf` gives for them."""
    if isinstance(type_, TupleType):
        return TupleType(tuple(map_types(part, leaf) for part in type_.fields))
    if isinstance(type_, FunctionType):
        return FunctionType(tuple(map_types(part, leaf) for part in type_.params), map_types(type_.result, leaf))
    if isinstance(type_, DataType):
        return DataType(type_.name, tuple(map_types(part, leaf) for part in type_.arguments))
    return leaf(type_)


def placed_as(type_: Type, other: Type) -> Type:
    """`type_`, with its tensors where a value of another type has them."""
    if isinstance(type_, TensorType) and isinstance(other, TensorType):
        return type_.on(other.device)
    if isinstance(type_, TupleType) and isinstance(other, TupleType):
        return TupleType(tuple(map(placed_as, type_.fields, other.fields)))
    return type_


def replace_dims(type_: Type, change: Callable[[dims.SymbolicDim], ShapeDim]) -> Type:
    """`type_` with symbolic dimensions replaced."""

    def leaf(part: Type) -> Type:
        if not isinstance(part, TensorType):
            return part
        return part.with_shape(tuple(change(d) if isinstance(d, dims.SymbolicDim) else d for d in part.shape))

    return map_types(type_, leaf)


def substitute_dims(type_: Type, values: dict[str, Dim]) -> Type:
    """`type_` with dimension variables replaced."""
    return replace_dims(type_, lambda dim: dims.substitute(dim, values))


def erase_dims(type_: Type) -> Type:
    """`type_` with every symbolic dimension unknown: what a value's type says outside of the function it is in."""
    return replace_dims(type_, lambda _: UNKNOWN)
