"""Shapes that a run computes: what operators do whose shape is a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import dims
from ....formats.dims import Dim
from ....formats.messages.errors import InferenceError
from .table import as_dims, axis_of, behind, fresh_dim, rank_of, shape_of, type_of


def sizes_of(shape: Expression) -> tuple[list[Expression], tuple[Dim, ...]]:
    """A shape that is a tensor, as dimensions; what binds them must come before what uses them (`behind`)."""
    length = type_of(shape).shape
    if len(length) != 1 or not isinstance(length[0], int):
        raise InferenceError("a shape must be a vector of known length")
    waits, made = [], []
    for place in range(length[0]):
        number = op.take(op.cast(shape, dtype="int64"), programs.constant(place), axis=0)
        dim = fresh_dim()
        waits.append(programs.match_shape(op.extent(number), (dim,)))
        made.append(dim)
    return waits, tuple(made)


def dims_of(shape: Any, is_one: bool = False) -> tuple[list[Expression], tuple[Any, ...]]:
    """A shape of numbers or a tensor, or, `is_one`, a size: what binds its dimensions, and these (`sizes_of`)."""
    known = as_dims(shape)
    if known is not None:
        return [], known
    return sizes_of(op.reshape(shape, shape=(1,)) if is_one else shape)


def full_of(value: Expression, shape: Any) -> Expression:
    """A tensor of one value; the shape is numbers or a tensor."""
    waits, sizes = dims_of(shape)
    return behind("broadcast_to", value, waits, shape=sizes) if waits else op.broadcast_to(value, shape=sizes)


def repeated_to(data: Expression, shape: Any) -> Expression:
    """A tensor whose axes of length 1 are repeated. Where these are known only at run time, an axis is read at all places, or
    always at the first one."""
    waits, sizes = dims_of(shape)
    data, own = shape_of(data)
    made = list(sizes)
    for axis, length in enumerate(own, len(sizes) - len(own)):
        if isinstance(length, int):
            if length != 1 and axis >= 0:
                made[axis] = length
        elif axis >= 0 and length != sizes[axis]:
            ones = behind("broadcast_to", programs.constant(1), waits, shape=(sizes[axis],))
            along = axis - len(sizes) + len(own)
            size = op.take(op.shape(data), programs.constant(along), axis=0)
            moves = op.cast(op.not_equal(size, programs.constant(1)), dtype="int64")
            data = op.take(data, op.multiply(op.cumulative_sum(ones, axis=0, exclusive=True), moves), axis=along)
    result = behind("broadcast_to", data, waits, shape=made)
    return programs.match_shape(result, sizes) if waits else result


def squeezed(data: Expression, axes: Expression) -> Expression:
    """Without axes of length 1 that are known only at run time."""
    rank = rank_of(data)
    (count,) = type_of(axes).shape or (1,)
    if not isinstance(count, int) or count > rank:
        raise InferenceError(f"the axes must be a vector of known length, of at most {rank}, got {type_of(axes)}")
    ones = programs.constant(np.ones(count, np.int64))
    listed = op.reshape(op.cast(axes, dtype="int64"), shape=(count,))
    gone = op.put_along_axis(programs.constant(np.zeros(rank, np.int64)), listed, ones, axis=0)
    keys = op.add(op.multiply(gone, programs.constant(rank)), programs.constant(np.arange(rank)))
    kept = op.slice(op.top_k(keys, k=rank, axis=0, largest=False)[1], starts=(0,), ends=(rank - count,), axes=(0,))
    waits, named = sizes_of(op.take(op.shape(data), kept, axis=0))
    return behind("reshape", data, waits, shape=named)


def with_ones(data: Expression, axis: Expression, count: int) -> Expression:
    """`count` axes of length 1 in front of an axis that is known only at run time."""
    rank = rank_of(data)
    places, wide = programs.constant(np.arange(rank + count)), op.cast(op.reshape(axis, shape=()), dtype="int64")
    first = op.where(op.less(wide, programs.constant(0)), op.add(wide, programs.constant(rank + 1)), wide)
    behind_it = op.subtract(places, programs.constant(count))
    own = op.where(op.less(places, first), places, behind_it)
    own = op.minimum(op.maximum(own, programs.constant(0)), programs.constant(max(rank - 1, 0)))
    sizes = op.take(op.shape(data), own, axis=0) if rank else places
    is_new = op.logical_and(op.greater_equal(places, first), op.less(behind_it, first))
    waits, named = sizes_of(op.where(is_new, programs.constant(1), sizes))
    return behind("reshape", data, waits, shape=named)


def enlarged(data: Expression, axes: Sequence[int], scales: Sequence[Any]) -> tuple[list[Expression], list[Dim]]:
    """The lengths of axes times scales, rounded. If one of the scales is known only at run time, so are all
    lengths; what binds them."""
    data, shape = shape_of(data)
    pairs = [(shape[axis], scale) for axis, scale in zip(axes, scales, strict=True)]
    if not any(
        isinstance(scale, Expression) or not (isinstance(dim, int) or float(scale).is_integer()) for dim, scale in pairs
    ):
        return [], [
            round(dim * float(scale)) if isinstance(dim, int) else dims.multiply(dim, int(scale))
            for dim, scale in pairs
        ]
    sizes = op.cast(op.take(op.shape(data), programs.constant(list(axes)), axis=0), dtype="float64")
    factors = [op.cast(programs.expression(each), dtype="float64") for each in scales]
    made = op.round(op.multiply(sizes, op.stack(*(op.reshape(each, shape=()) for each in factors), axis=0)))
    waits, named = sizes_of(op.cast(made, dtype="int64"))
    return waits, list(named)


def reshaped_to(data: Expression, shape: Expression) -> Expression:
    """Relay's reshape to a shape that is a tensor: 0 keeps a dimension, -1 takes what is left, -3 merges two."""
    count = type_of(shape).shape
    if len(count) != 1 or not isinstance(count[0], int):
        raise InferenceError("a shape must be a vector of known length")
    sizes = op.cast(shape, dtype="int64")
    codes = {code: programs.constant(code) for code in (-3, -1, 0, 1, 2)}
    merges = op.equal(sizes, codes[-3])
    places = op.cumulative_sum(op.where(merges, codes[2], codes[1]), axis=0, exclusive=True)
    own = op.pad(op.shape(data), pads=(0, 2 * count[0]), value=1)
    first, second = op.take(own, places, axis=0), op.take(own, op.add(places, codes[1]), axis=0)
    sizes = op.where(op.equal(sizes, codes[0]), first, op.where(merges, op.multiply(first, second), sizes))
    open_ = op.equal(sizes, codes[-1])
    known = op.prod(op.where(open_, codes[1], sizes))
    rest = op.floor_divide(op.prod(op.shape(data)), op.maximum(known, codes[1]))
    waits, named = sizes_of(op.where(open_, rest, sizes))
    return behind("reshape", data, waits, shape=named)


def broadcast_to_like(data: Expression, other: Expression) -> Expression:
    """`data` in the shape of `other`."""
    other, shape = shape_of(other)
    return behind("broadcast_to", data, [other], shape=shape)


def sliced_by(data: Expression, begin: Any, end: Any, strides: Expression, axes: Any) -> Expression:
    """A slice with strides known only at run time: as Python's, but a stride of 0 takes nothing."""
    firsts, lasts, steps = map(_scalars, (begin, end, strides))
    zero, one = programs.constant(0), programs.constant(1)
    count = max(len(firsts), len(lasts), len(steps)) if axes is None else len(axes)
    steps = steps * count if len(steps) == 1 else steps + [one] * (count - len(steps))
    sizes = op.shape(data)
    for place, step in enumerate(steps):
        axis = place if axes is None else axis_of(data, int(axes[place]))
        size = op.take(sizes, programs.constant(axis), axis=0)
        is_back = op.less(step, zero)
        lowest = op.where(is_back, programs.constant(-1), zero)
        highest = op.where(is_back, op.subtract(size, one), size)
        first, last = (
            op.minimum(op.maximum(op.where(op.less(at, zero), op.add(at, size), at), lowest), highest)
            if (at := ats[place] if place < len(ats) else None) is not None
            else default
            for ats, default in (
                (firsts, op.where(is_back, highest, lowest)),
                (lasts, op.where(is_back, lowest, highest)),
            )
        )
        span = op.where(is_back, op.subtract(first, last), op.subtract(last, first))
        wide = op.abs(step)
        rounds = op.floor_divide(op.add(span, op.subtract(wide, one)), op.maximum(wide, one))
        length = op.where(op.equal(step, zero), zero, op.maximum(rounds, zero))
        waits, dims_ = sizes_of(op.reshape(length, shape=(1,)))
        ones = behind("broadcast_to", one, waits, shape=dims_)
        places = op.add(first, op.multiply(op.cumulative_sum(ones, axis=0, exclusive=True), step))
        data = op.take(data, places, axis=axis)
    return data


def computed_bounds(
    data: Expression, begin: Any, end: Any, axes: Sequence[int], is_size: bool
) -> tuple[list[Expression], list[Dim], list[Dim]]:
    """Bounds along axes, some of them known only at run time, as Python has them: negative ones count from the end, and none lies
    outside. `is_size`: `end` says how many elements, below 0 all that follow. What binds them, firsts and lasts."""
    firsts, lasts = _scalars(begin), _scalars(end)
    zero, sizes = programs.constant(0), op.shape(data)
    waits: list[Expression] = []
    made: tuple[list[Dim], list[Dim]] = ([], [])
    for place, axis in enumerate(axes):
        size = op.take(sizes, programs.constant(axis), axis=0)
        first = firsts[place] if place < len(firsts) and firsts[place] is not None else zero
        last = lasts[place] if place < len(lasts) and lasts[place] is not None else None
        first = op.maximum(op.where(op.less(first, zero), op.add(first, size), first), zero)
        if last is None:
            last = size
        else:
            following, from_end = (op.add(first, last), size) if is_size else (last, op.add(last, size))
            last = op.maximum(op.where(op.less(last, zero), from_end, following), zero)
        for bound, several in zip((first, last), made, strict=True):
            waiting, bound_dims = sizes_of(op.reshape(op.minimum(bound, size), shape=(1,)))
            waits += waiting
            several += bound_dims
    return waits, *made


def known_length(vector: Expression) -> int:
    """How many elements a vector has. Raises InferenceError where that is not known."""
    length = type_of(vector).shape
    if len(length) != 1 or not isinstance(length[0], int):
        raise InferenceError("bounds and strides of a slice must be vectors of known length")
    return length[0]


def _scalars(numbers: Any) -> list[Any]:
    """The elements of a vector of known length, int64 scalars; None where there are none."""
    known = as_dims(numbers) if isinstance(numbers, Expression) else numbers
    if known is not None:
        return [None if each is None else programs.expression(each) for each in known]
    wide = op.cast(numbers, dtype="int64")
    return [op.take(wide, programs.constant(place), axis=0) for place in range(known_length(numbers))]
