"""The types of values whose length, presence or rank is known only at run time, and the narrowest one that holds two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.dtypes import DType
from ...formats.host_values import MOST_RANKS, OPTIONAL, RANKED, SEQUENCE
from ...formats.messages.errors import DTypeError
from ...formats.types import UNKNOWN, DataType, DataTypeDefinition, ShapeDim, TensorType, Type, TypeVariable
from .tensors import element_type
from .values import AnyRank, HeldSequence, Imported, Maps, OptionalTensor, UnsupportedError, Value

if TYPE_CHECKING:
    import onnx

NOTHING = TypeVariable("a")  # the type of what is never there
RANKS = tuple(range(MOST_RANKS))


def of_rank(dtype: DType, rank: int) -> TensorType:
    return TensorType(dtype, (UNKNOWN,) * rank)


def of_any_rank(dtype: DType) -> DataType:
    return DataType(RANKED.name, tuple(of_rank(dtype, rank) for rank in RANKS))


def sequence_of(element: Type) -> DataType:
    return DataType(SEQUENCE.name, (element,))


def optional_of(type_: Type) -> DataType:
    return DataType(OPTIONAL.name, (type_,))


def is_of(type_: Type | None, definition: DataTypeDefinition) -> bool:
    return isinstance(type_, DataType) and type_.name == definition.name


def declared_type(info: onnx.TypeProto) -> Type:
    """The data type that values of a type of the standard are; tensors are of any rank. Raises UnsupportedError for others."""
    kind = info.WhichOneof("value")
    if kind == "tensor_type":
        return _declared_tensor(info.tensor_type)
    inner = getattr(info, kind).elem_type if kind in ("sequence_type", "optional_type") else None
    if inner is None:
        raise UnsupportedError(
            f"inputs that are a {(kind or 'nothing').removesuffix('_type')} of such are not supported"
        )
    if kind == "optional_type":
        return optional_of(
            _declared_tensor(inner.tensor_type) if inner.HasField("tensor_type") else declared_type(inner)
        )
    if not inner.HasField("tensor_type"):
        raise UnsupportedError("a sequence whose elements are not tensors")
    element = _declared_tensor(inner.tensor_type)
    return sequence_of(of_rank(element.dtype, element.rank) if isinstance(element, TensorType) else element)


def _declared_tensor(tensor: onnx.TypeProto.Tensor) -> Type:
    try:
        dtype = element_type(tensor.elem_type)
    except DTypeError as error:
        raise UnsupportedError(error.message) from None
    if not tensor.HasField("shape"):
        return of_any_rank(dtype)
    shape: list[ShapeDim] = [dim.dim_value if dim.HasField("dim_value") else UNKNOWN for dim in tensor.shape.dim]
    return TensorType(dtype, tuple(shape))


def type_of(value: Imported) -> Type:
    """The narrowest type that holds a value. Raises UnsupportedError for maps."""
    if isinstance(value, Value):
        return value.type
    if isinstance(value, AnyRank):
        return of_any_rank(value.dtype)
    if isinstance(value, HeldSequence):
        return sequence_of(value.element)
    if isinstance(value, OptionalTensor):
        return optional_of(NOTHING if value.type is None else value.type)
    if isinstance(value, Maps):
        raise UnsupportedError("a map stands where one of two values would be chosen")
    element: Type = NOTHING
    for tensor in value.tensors:
        own = of_rank(tensor.dtype, tensor.rank) if isinstance(tensor, Value) else of_any_rank(tensor.dtype)
        element = joined(element, own)
    return sequence_of(element)


def joined(a: Type, b: Type) -> Type:
    """The narrowest type that holds what either does. Raises UnsupportedError where there is none."""
    if a == b or b == NOTHING:
        return a
    if a == NOTHING:
        return b
    if is_of(a, OPTIONAL) or is_of(b, OPTIONAL):
        return optional_of(joined(*(content_of(type_) if is_of(type_, OPTIONAL) else type_ for type_ in (a, b))))
    if is_of(a, SEQUENCE) and is_of(b, SEQUENCE):
        return sequence_of(joined(content_of(a), content_of(b)))
    if is_of(a, SEQUENCE) or is_of(b, SEQUENCE) or dtype_of(a) is not dtype_of(b):
        raise UnsupportedError(f"its branches give {a} and {b}")
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.rank != b.rank:
        return of_any_rank(dtype_of(a))
    shape: list[ShapeDim] = [x if x == y else UNKNOWN for x, y in zip(a.shape, b.shape, strict=True)]
    return TensorType(a.dtype, tuple(shape))


def is_open(type_: Type) -> bool:
    """Whether it says nothing of what a value of it would hold."""
    return type_ == NOTHING or (isinstance(type_, DataType) and is_open(type_.arguments[0]))


def settled(type_: Type) -> Type:
    """A type of which values can be made: what is never there is a number."""
    if type_ == NOTHING:
        return of_rank(DType.float32, 0)
    if is_of(type_, SEQUENCE):
        return sequence_of(settled(content_of(type_)))
    return optional_of(settled(content_of(type_))) if is_of(type_, OPTIONAL) else type_


def content_of(type_: Type) -> Type:
    assert isinstance(type_, DataType)
    return type_.arguments[0]


def dtype_of(type_: Type) -> DType:
    """Of a tensor's type."""
    type_ = content_of(type_) if isinstance(type_, DataType) else type_
    assert isinstance(type_, TensorType)
    return type_.dtype
