"""Sparse tensors as coordinates: indices [N, rank], values [N], and a shape."""

from __future__ import annotations

from typing import Any

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ..expr import Tuple
from .dynamic import sizes_of
from .table import Tensor, as_dims, behind, minus, operator, shape_of, type_of


@operator("sparse_reshape", results=2)
def sparse_reshape(sparse_indices: Tensor, prev_shape: Tensor, new_shape: Tensor) -> Expression:
    """The indices of the same elements in another shape, in which -1 takes what is left; and that shape."""
    kind, one, open_ = type_of(sparse_indices).dtype, programs.constant(1), programs.constant(-1)
    indices, (_, rank) = shape_of(op.cast(sparse_indices, dtype="int64"))
    old, wanted = (op.cast(each, dtype="int64") for each in (prev_shape, new_shape))
    if type_of(old).shape != (rank,):
        old = programs.match_shape(old, (rank,))
    told = op.where(op.equal(wanted, open_), one, wanted)
    rest = op.floor_divide(op.prod(old), op.maximum(op.prod(told), one))
    new, (count,) = shape_of(op.where(op.equal(wanted, open_), rest, wanted))
    flat = op.sum(
        op.multiply(indices, op.cumulative_prod(old, axis=0, exclusive=True, reverse=True)), axes=(1,), keepdims=True
    )
    # along the first axis there is no end
    is_first = op.equal(op.arange(stop=count), programs.constant(0))
    whole = op.where(
        is_first, programs.constant(1 << 62), op.maximum(op.cumulative_prod(new, axis=0, reverse=True), one)
    )
    part = op.maximum(op.cumulative_prod(new, axis=0, exclusive=True, reverse=True), one)
    found = op.floor_divide(op.remainder(flat, whole), part)
    return programs.tuple_(op.cast(found, dtype=kind), op.cast(new, dtype=type_of(new_shape).dtype))


@operator("sparse_fill_empty_rows", results=3)
def _filled(sparse_indices: Tensor, sparse_values: Tensor, dense_shape: Tensor, default_value: Tensor) -> Expression:
    """Indices and values, a default in the first column of each row that had none, row by row; and which these were."""
    indices, (count, rank) = shape_of(sparse_indices)
    kind = type_of(indices).dtype
    known = as_dims(dense_shape)
    waits: list[Expression] = []
    if known is None:
        waits, known = sizes_of(op.take(dense_shape, programs.constant([0]), axis=0))
    rows = known[0]
    own = op.cast(op.take(indices, programs.constant(0), axis=1), dtype="int64")
    ones = op.broadcast_to(programs.constant(1), shape=(count,))
    zeros = behind("broadcast_to", programs.constant(0), waits, shape=(rows,))
    many = op.scatter_nd(zeros, op.expand_dims(own, axes=(1,)), ones, reduction="add")
    is_empty = op.equal(many, programs.constant(0))
    every = op.cumulative_sum(
        op.add(op.multiply(many, programs.constant(0)), programs.constant(1)), axis=0, exclusive=True
    )
    first = op.expand_dims(op.cast(every, dtype=kind), axes=(1,))
    first = behind("pad", first, [indices], pads=(0, 0, 0, minus(rank, 1)))
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
