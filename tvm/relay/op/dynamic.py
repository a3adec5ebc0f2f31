"""Shapes that a run computes: what operators do whose shape is a tensor."""

from __future__ import annotations

from typing import Any

from ....compiler import builder
from ....compiler.builder import Expression, op
from ....formats.dims import Dim
from ....formats.errors import InferenceError
from .table import as_dims, behind, fresh_dim, rank_of, shape_of, type_of


def sizes_of(shape: Expression) -> tuple[list[Expression], tuple[Dim, ...]]:
    """A shape that is a tensor, as dimensions; what binds them must come before what uses them (`behind`)."""
    length = type_of(shape).shape
    if len(length) != 1 or not isinstance(length[0], int):
        raise InferenceError("a shape must be a vector of known length")
    waits, made = [], []
    for place in range(length[0]):
        number = op.take(op.cast(shape, dtype="int64"), builder.constant(place), axis=0)
        dim = fresh_dim()
        waits.append(builder.match_shape(op.extent(number), (dim,)))
        made.append(dim)
    return waits, tuple(made)


def full_of(value: Expression, shape: Any) -> Expression:
    """A tensor of one value; the shape is numbers or a tensor."""
    known = as_dims(shape)
    if known is not None:
        return op.broadcast_to(value, shape=known)
    waits, sizes = sizes_of(shape)
    return behind("broadcast_to", value, waits, shape=sizes)


def reshaped_to(data: Expression, shape: Expression) -> Expression:
    """Relay's reshape to a shape that is a tensor: 0 keeps a dimension, -1 takes what is left."""
    count = type_of(shape).shape
    if len(count) != 1 or not isinstance(count[0], int):
        raise InferenceError("a shape must be a vector of known length")
    sizes = op.cast(shape, dtype="int64")
    own = op.shape(data)
    rank, wanted = rank_of(data), count[0]
    if rank < wanted:
        own = op.pad(own, pads=(0, wanted - rank), value=1)
    elif rank > wanted:
        own = op.slice(own, starts=(0,), ends=(wanted,))
    zero, minus = builder.constant(0), builder.constant(-1)
    sizes = op.where(op.equal(sizes, zero), own, sizes)
    open_ = op.equal(sizes, minus)
    known = op.prod(op.where(open_, builder.constant(1), sizes))
    rest = op.floor_divide(op.prod(op.shape(data)), op.maximum(known, builder.constant(1)))
    waits, named = sizes_of(op.where(open_, rest, sizes))
    return behind("reshape", data, waits, shape=named)


def broadcast_to_like(data: Expression, other: Expression) -> Expression:
    """`data` in the shape of `other`."""
    other, shape = shape_of(other)
    return behind("broadcast_to", data, [other], shape=shape)
