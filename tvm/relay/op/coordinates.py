"""Sparse tensors as coordinates: indices [N, rank], values [N], and a shape."""

from __future__ import annotations

from typing import Any

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats.messages.errors import InferenceError
from ..expr import Tuple
from .dynamic import sizes_of
from .table import Tensor, as_dims, behind, operator, shape_of, type_of


def _numbers(shape: Expression, what: str) -> list[Expression]:
    """The elements of a shape, int64 scalars."""
    length = type_of(shape).shape
    if len(length) != 1 or not isinstance(length[0], int):
        raise InferenceError(f"{what} must be a vector of known length, got {type_of(shape)}")
    wide = op.cast(shape, dtype="int64")
    return [op.take(wide, programs.constant(place), axis=0) for place in range(length[0])]


def _product(numbers: list[Expression]) -> Expression:
    product = programs.constant(1)
    for number in numbers:
        product = op.multiply(product, number)
    return product


@operator("sparse_reshape", results=2)
def sparse_reshape(sparse_indices: Tensor, prev_shape: Tensor, new_shape: Tensor) -> Expression:
    """The indices of the same elements in another shape, in which -1 takes what is left; and that shape."""
    kind, one, open_ = type_of(sparse_indices).dtype, programs.constant(1), programs.constant(-1)
    old, wanted = _numbers(prev_shape, "prev_shape"), _numbers(new_shape, "new_shape")
    if type_of(sparse_indices).shape[1:] != (len(old),):
        raise InferenceError(f"expected indices [N, {len(old)}], got {type_of(sparse_indices)}")
    told = [op.where(op.equal(size, open_), one, size) for size in wanted]
    rest = op.floor_divide(_product(old), op.maximum(_product(told), one))
    new = [op.where(op.equal(size, open_), rest, size) for size in wanted]
    indices = op.cast(sparse_indices, dtype="int64")
    flat = op.multiply(op.sum(indices, axes=(1,)), programs.constant(0))
    for axis, size in enumerate(old):
        flat = op.add(op.multiply(flat, size), op.take(indices, programs.constant(axis), axis=1))
    places = []
    for size in reversed(new):
        size = op.maximum(size, one)  # of none there are no elements
        places.append(op.remainder(flat, size))
        flat = op.floor_divide(flat, size)
    found = op.cast(op.stack(*reversed(places), axis=1), dtype=kind)
    return programs.tuple_(found, op.cast(op.stack(*new, axis=0), dtype=type_of(new_shape).dtype))


@operator("sparse_fill_empty_rows", results=3)
def _filled(sparse_indices: Tensor, sparse_values: Tensor, dense_shape: Tensor, default_value: Tensor) -> Expression:
    """Indices and values, a default in the first column of each row that had none, row by row; and which these were."""
    indices, (count, rank) = shape_of(sparse_indices)
    kind = type_of(indices).dtype
    known = as_dims(dense_shape)
    waits: list[Expression] = []
    if known is None:
        sizes = op.slice(op.cast(dense_shape, dtype="int64"), starts=(0,), ends=(1,), axes=(0,))
        waits, known = sizes_of(sizes)
    rows = known[0]
    own = op.cast(op.take(indices, programs.constant(0), axis=1), dtype="int64")
    ones = op.broadcast_to(programs.constant(1), shape=(count,))
    zeros = behind("broadcast_to", programs.constant(0), waits, shape=(rows,))
    many = op.scatter_nd(zeros, op.expand_dims(own, axes=(1,)), ones, reduction="add")
    is_empty = op.equal(many, programs.constant(0))
    every = op.cumulative_sum(
        op.add(op.multiply(many, programs.constant(0)), programs.constant(1)), axis=0, exclusive=True
    )
    first = op.pad(op.expand_dims(op.cast(every, dtype=kind), axes=(1,)), pads=(0, 0, 0, rank - 1))
    value = op.cast(op.reshape(default_value, shape=(1,)), dtype=type_of(sparse_values).dtype)
    defaults = behind("broadcast_to", value, waits, shape=(rows,))
    # all rows after the elements, in the order of their rows, without those that are not empty
    row = op.concat(own, every, axis=0)
    kept = op.concat(op.equal(ones, programs.constant(1)), is_empty, axis=0)
    row, (whole,) = shape_of(row)
    order = op.top_k(row, k=whole, axis=0, largest=False)[1]
    places = op.squeeze(op.nonzero(op.take(kept, order, axis=0)), axes=(0,))
    taken = op.take(order, places, axis=0)
    found = [op.take(op.concat(*both, axis=0), taken, axis=0) for both in ((indices, first), (sparse_values, defaults))]
    return programs.tuple_(*found, is_empty)


def sparse_fill_empty_rows(sparse_indices: Any, sparse_values: Any, dense_shape: Any, default_value: Any) -> Tuple:
    """Indices [?, rank] and values [?] with `default_value` in the first column of each row that had no element, row by row;
    and which rows these were, bool [rows]."""
    return Tuple(list(_filled(sparse_indices, sparse_values, dense_shape, default_value)))
