"""What a model declares of its inputs: element types, sizes and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...formats import dims
from ...formats.messages.errors import DTypeError, ModelError, ParseError, UnsupportedOperatorError
from ...formats.types import UNKNOWN, ShapeDim, TensorType, size_problem
from . import importers  # noqa: F401  (it registers them)
from .tensors import element_type

if TYPE_CHECKING:
    import onnx


Shapes = Mapping[str, Any]


def is_of_known_rank(info: onnx.ValueInfoProto, shapes: Shapes) -> bool:
    """Whether an input is a tensor of a rank that the model, or the caller, says; others are data of the program."""
    return info.type.HasField("tensor_type") and (info.type.tensor_type.HasField("shape") or info.name in shapes)


def declared_of(info: onnx.ValueInfoProto, given: Sequence[int | str] | None) -> tuple[Any, list[int | str]]:
    """The element type and the dimensions of an input, as numbers and names; "" where it says nothing."""
    if not info.type.HasField("tensor_type"):
        raise UnsupportedOperatorError(
            f"input {info.name!r} is not a tensor; only tensors are supported",
            [("input", info.name, "is not a tensor")],
        )
    tensor = info.type.tensor_type
    try:
        dtype = element_type(tensor.elem_type)
    except DTypeError as error:
        raise UnsupportedOperatorError(
            f"input {info.name!r}: {error.message}", [("input", info.name, error.message)]
        ) from None
    if given is not None:
        return dtype, list(given)
    dimensions = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    return dtype, ["" if _says_nothing(dim) else dim for dim in dimensions]


def _says_nothing(dim: int | str) -> bool:
    """Whether it is an exporter's way to say that a size is not known: -1, None, or a text without a letter or digit ("?", "*").
    Two of them are not one, as two of the same name are."""
    if isinstance(dim, int):
        return dim < 0
    return dim in ("-1", "None") or not any(character.isalnum() for character in dim)


def check_size(name: str, type_: TensorType) -> None:
    """Raises ModelError for an input that no executable can have."""
    if problem := size_problem(type_):
        raise ModelError(f"input {name!r}, {type_}, {problem}")


def parsed_dim(dim: int | str) -> ShapeDim:
    """A dimension that is a number or an expression ("2*n"); UNKNOWN for any other text."""
    if isinstance(dim, int):
        return dim
    try:
        return dims.parse(dim) if dim else UNKNOWN
    except ParseError:
        return UNKNOWN
