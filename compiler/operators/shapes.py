"""Shared parts of the operators' inference functions: element types, broadcasting, axes, arithmetic on dimensions.

Every check raises InferenceError with what was expected and what was given. A dimension that is UNKNOWN makes what is computed
from it UNKNOWN; two dimensions that are not known to be equal (`n` and `m`, `n` and 4) do not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...formats import dims
from ...formats.dims import Atom, Dim, SymbolicDim, Variable
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.types import UNKNOWN, ShapeDim, TensorType

Shape = tuple[ShapeDim, ...]

FLOAT = frozenset(dtype for dtype in DType if dtype.is_float)
STRING = frozenset({DType.string})
INTEGER = frozenset(dtype for dtype in DType if dtype.is_integer)
SIGNED = FLOAT | frozenset(dtype for dtype in INTEGER if dtype.is_signed)
NUMERIC = FLOAT | INTEGER
BOOL = frozenset({DType.bool})
FLOAT32 = frozenset({DType.float32})
INT64 = frozenset({DType.int64})
ANY = frozenset(DType)
INDEX = frozenset({DType.int32, DType.int64})

_KIND_NAMES = {
    FLOAT: "a float tensor",
    INTEGER: "an integer tensor",
    NUMERIC: "a numeric tensor",
    BOOL: "a bool tensor",
}
_KIND_NAMES |= {SIGNED: "a signed numeric tensor", INDEX: "a tensor of int32 or int64", ANY: "a tensor"}

_PRODUCT_TERMS = 64  # an element count of more terms than this is not compared: the work would be unbounded


def mismatch(expected: object, got: object) -> InferenceError:
    """The one form of these messages."""
    return InferenceError(f"expected {expected}, got {got}")


def text(shape: Iterable[ShapeDim]) -> str:
    """A shape as messages show it."""
    return f"[{', '.join(map(str, shape))}]"


# ---- element types and ranks ----


def require(type_: TensorType, kinds: frozenset[DType]) -> None:
    """Requires an element type of `kinds`."""
    if type_.dtype not in kinds:
        raise mismatch(_KIND_NAMES.get(kinds) or " or ".join(sorted(kind.name for kind in kinds)), type_)


def same_dtype(inputs: Sequence[TensorType], kinds: frozenset[DType] = ANY) -> DType:
    """The common element type of all inputs, which must be of `kinds`."""
    for type_ in inputs:
        require(type_, kinds)
        if type_.dtype is not inputs[0].dtype:
            raise mismatch("tensors of one element type", " and ".join(map(str, inputs)))
    return inputs[0].dtype


def require_value(value: float | None, dtype: DType) -> None:
    """Requires a number that the element type can represent; float types take every number, strings none."""
    if dtype.is_string:
        raise mismatch("an element type of numbers", dtype.name)
    if value is None or dtype.is_float:
        return
    low, high = dtype.bounds
    if not low <= value <= high or value != int(value):
        raise mismatch(f"a number of type {dtype.name}", value)


def require_rank(type_: TensorType, rank: int, what: str = "a tensor") -> None:
    if type_.rank != rank:
        raise mismatch(f"{what} of rank {rank}", type_)


# ---- dimensions ----


def lift(function: Callable[..., Dim], *operands: ShapeDim) -> ShapeDim:
    """The function of dimensions; UNKNOWN if one of them is."""
    return UNKNOWN if any(dim is UNKNOWN for dim in operands) else function(*operands)


def ceildiv(size: ShapeDim, part: int) -> ShapeDim:
    """The number of parts of `part` elements that hold a dimension."""
    return lift(lambda size: dims.ceildiv(size, part), size)


def is_unknown(dim: ShapeDim) -> bool:
    return dim is UNKNOWN


def integer(dim: ShapeDim) -> int:
    """The dimension of an existing tensor."""
    assert isinstance(dim, int)
    return dim


def never_equal(a: ShapeDim, b: ShapeDim) -> bool:
    """Whether the dimensions differ for all values of their variables."""
    difference = lift(lambda a, b: dims.add(a, dims.multiply(b, -1)), a, b)
    return isinstance(difference, int) and difference != 0


def is_nonnegative(dim: Dim) -> bool:
    """Whether `dim` is not negative for all values of its variables, which are never negative."""
    if isinstance(dim, int):
        return dim >= 0
    return all(factor > 0 and all(map(_is_nonnegative_atom, atoms)) for atoms, factor in dim.terms)


def _is_nonnegative_atom(atom: Atom) -> bool:
    if isinstance(atom, Variable):
        return True
    signs = is_nonnegative(atom.left), is_nonnegative(atom.right)
    return any(signs) if atom.operator == "max" else all(signs)


def minimum(a: Dim, b: Dim) -> Dim:
    """min(a, b), simplified for non-negative variables."""
    if is_nonnegative(dims.add(b, dims.multiply(a, -1))):
        return a
    return b if is_nonnegative(dims.add(a, dims.multiply(b, -1))) else dims.minimum(a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """max(a, b), simplified for non-negative variables."""
    return dims.add(dims.add(a, b), dims.multiply(minimum(a, b), -1)) if minimum(a, b) in (a, b) else dims.maximum(a, b)


_OF_SIZES = {**dims.OPERATORS, "min": minimum, "max": maximum}


def substitute(dim: Any, values: Mapping[str, Dim]) -> Any:
    """A dimension with others in place of names, simplified by the knowledge that variables are not negative."""
    return lift(lambda dim: dims.substitute(dim, values, _OF_SIZES), dim)


def match_dim(a: ShapeDim, b: ShapeDim) -> ShapeDim:
    """The common dimension; UNKNOWN matches any. Raises InferenceError if they may differ."""
    if a is UNKNOWN or a == b:
        return b
    if b is UNKNOWN:
        return a
    raise mismatch(f"dimension {a}", b)


def broadcast_dim(a: ShapeDim, b: ShapeDim) -> ShapeDim:
    """NumPy's rule for one axis: 1 gives way. UNKNOWN may be 1, so against a dimension other than an integer it stays."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if a is UNKNOWN:
        return b if isinstance(b, int) else UNKNOWN
    if b is UNKNOWN:
        return a if isinstance(a, int) else UNKNOWN
    raise mismatch(f"dimension {a} or 1", b)


def broadcast(*shapes: Shape) -> Shape:
    """The shape that all shapes broadcast to, by NumPy's rule."""
    rank = max(map(len, shapes), default=0)
    result: list[ShapeDim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            try:
                result[axis] = broadcast_dim(result[axis], dim)
            except InferenceError:
                raise mismatch("shapes that broadcast", " and ".join(map(text, shapes))) from None
    return tuple(result)


def element_count(shape: Iterable[ShapeDim]) -> ShapeDim:
    """The product of the dimensions; UNKNOWN also where it would be a polynomial of very many terms."""
    count: ShapeDim = 1
    for dim in shape:
        count = lift(dims.multiply, count, dim)
        if isinstance(count, SymbolicDim) and len(count.terms) > _PRODUCT_TERMS:
            return UNKNOWN
    return count


# ---- axes ----


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise mismatch(f"an axis from {-rank} to {rank - 1}" if rank else "no axis of a scalar", axis)
    return axis % rank


def axes_of(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes counted from the front, sorted; all of them for None. One axis twice is an error."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(axis_of(axis, rank) for axis in axes)
    if len(set(found)) < len(found):
        raise mismatch("different axes", text(axes))
    return tuple(found)


def replace_axis(shape: Shape, axis: int, *dimensions: ShapeDim) -> Shape:
    """The shape with one axis replaced by other dimensions."""
    return (*shape[:axis], *dimensions, *shape[axis + 1 :])
