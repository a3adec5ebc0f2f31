"""Data movement: operators whose result's elements are elements of the inputs, at other positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...formats import dims, limits
from ...formats.dims import Dim
from ...formats.messages.errors import IndexOutOfRangeError, ShapeError
from ...formats.types import UNKNOWN, ShapeDim, TensorType
from .shapes import (
    INDEX,
    axes_of,
    axis_of,
    broadcast,
    element_count,
    is_nonnegative,
    lift,
    match_dim,
    maximum,
    minimum,
    mismatch,
    never_equal,
    replace_axis,
    require,
    require_rank,
    require_value,
    same_dtype,
    text,
)
from .table import Attribute, Fusion, Kind, register

_AXIS = Attribute(Kind.INT, "along which", 0)
_AXES = Attribute(Kind.INTS, "which axes")
_SHAPE = Attribute(Kind.DIMS, "of the result")

LEAST_PADDED = {"constant": 0, "edge": 1, "reflect": 2}  # mode of `pad` → least elements of a padded axis

# ---- views ----


def _infer_reshape(inputs: Sequence[TensorType], shape: tuple[Dim, ...]) -> TensorType:
    (x,) = inputs
    if shape.count(-1) > 1 or any(isinstance(dim, int) and dim < -1 for dim in shape):
        raise mismatch("dimensions of which at most one is -1", text(shape))
    count, known = element_count(x.shape), element_count(dim for dim in shape if dim != -1)
    rest: ShapeDim = UNKNOWN if known == 0 else lift(dims.floordiv, count, known)
    result = tuple(rest if dim == -1 else dim for dim in shape)
    inexact = isinstance(count, int) and isinstance(known, int) and known and count % known
    if (-1 in shape and (inexact or known == 0)) or (-1 not in shape and never_equal(count, known)):
        raise mismatch(f"a shape of {count} elements for {x}", text(shape))
    return TensorType(x.dtype, result)


def _infer_expand_dims(inputs: Sequence[TensorType], axes: Sequence[int]) -> TensorType:
    (x,) = inputs
    new = axes_of(axes, x.rank + len(axes))
    old = iter(x.shape)
    return TensorType(x.dtype, tuple(1 if axis in new else next(old) for axis in range(x.rank + len(axes))))


def _infer_squeeze(inputs: Sequence[TensorType], axes: Sequence[int]) -> TensorType:
    (x,) = inputs
    gone = axes_of(axes, x.rank)
    for axis in gone:
        if x.shape[axis] not in (1, UNKNOWN):
            raise mismatch(f"size 1 on axis {axis}", x)
    return TensorType(x.dtype, tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone))


# ---- permutation, repetition ----


def _infer_permute(inputs: Sequence[TensorType], axes: Sequence[int] | None) -> TensorType:
    (x,) = inputs
    order = tuple(reversed(range(x.rank))) if axes is None else tuple(axis_of(axis, x.rank) for axis in axes)
    if sorted(order) != list(range(x.rank)):
        raise mismatch(f"each axis of {x} once", text(order))
    return TensorType(x.dtype, tuple(x.shape[axis] for axis in order))


def _infer_broadcast_to(inputs: Sequence[TensorType], shape: tuple[Dim, ...]) -> TensorType:
    (x,) = inputs
    reached = broadcast(x.shape, shape)
    if len(reached) != len(shape) or any(r not in (d, UNKNOWN) for d, r in zip(shape, reached, strict=True)):
        raise mismatch(f"a shape that {x} broadcasts to", text(shape))
    return TensorType(x.dtype, shape)


def _infer_tile(inputs: Sequence[TensorType], repetitions: tuple[Dim, ...]) -> TensorType:
    (x,) = inputs
    if len(repetitions) != x.rank:
        raise mismatch(f"{x.rank} repetitions for {x}", text(repetitions))
    return TensorType(x.dtype, tuple(map(_times, x.shape, repetitions)))


def _times(dim: ShapeDim, repetitions: Dim) -> ShapeDim:
    return lift(dims.multiply, dim, repetitions)


def _infer_depth_to_space(inputs: Sequence[TensorType], blocks: Sequence[int]) -> TensorType:
    (x,) = inputs
    count = math.prod(blocks)
    if not blocks or min(blocks) < 1 or x.rank < 2 + len(blocks):
        raise mismatch(f"blocks of at least 1, on at most {max(x.rank - 2, 0)} axes of {x}", text(blocks))
    channels = x.shape[1]
    if isinstance(channels, int) and channels % count:
        raise mismatch(f"channels that {count} divides", x)
    spatial = map(_times, x.shape[2:], blocks)
    depth = lift(lambda channels: dims.floordiv(channels, count), channels)
    return TensorType(x.dtype, (x.shape[0], depth, *spatial, *x.shape[2 + len(blocks) :]))


def space_axes(rank: int, count: int) -> tuple[int, ...]:
    """The permutation of x's axes, the second split into `count` blocks and a depth, that moves blocks into space."""
    interleaved = [axis for i in range(count) for axis in (count + 2 + i, 1 + i)]
    return (0, count + 1, *interleaved, *range(2 * count + 2, rank + count))


def _depth_to_space(x: np.ndarray, blocks: tuple[int, ...]) -> np.ndarray:
    count = len(blocks)
    depth = x.shape[1] // math.prod(blocks)
    parted = x.reshape(x.shape[0], *blocks, depth, *x.shape[2:]).transpose(space_axes(x.ndim, count))
    spatial = [size * block for size, block in zip(x.shape[2 : 2 + count], blocks, strict=True)]
    return parted.reshape(x.shape[0], depth, *spatial, *x.shape[2 + count :])


# ---- joining, splitting ----


def _infer_concat(inputs: Sequence[TensorType], axis: int) -> TensorType:
    if not inputs:
        raise mismatch("at least one tensor", "none")
    first = inputs[0]
    along = axis_of(axis, first.rank)
    shape = list(first.shape)
    for other in inputs[1:]:
        if other.rank != first.rank:
            raise mismatch(f"tensors of rank {first.rank}", other)
        for place, dim in enumerate(other.shape):
            if place == along:
                shape[place] = lift(dims.add, shape[place], dim)
            elif never_equal(shape[place], dim) or (UNKNOWN not in (shape[place], dim) and shape[place] != dim):
                raise mismatch(f"tensors of one shape but for axis {along}", f"{first} and {other}")
            else:
                shape[place] = match_dim(shape[place], dim)
    return TensorType(same_dtype(inputs), tuple(shape))


def _infer_stack(inputs: Sequence[TensorType], axis: int) -> TensorType:
    if not inputs:
        raise mismatch("at least one tensor", "none")
    along = axis_of(axis, inputs[0].rank + 1)
    return _infer_concat([_infer_expand_dims([type_], (along,)) for type_ in inputs], along)


def _infer_split(inputs: Sequence[TensorType], axis: int, sizes: tuple[Dim, ...]) -> tuple[TensorType, ...]:
    (x,) = inputs
    along = axis_of(axis, x.rank)
    total: Dim = 0
    for size in sizes:
        total = dims.add(total, size)
    if not sizes or (x.shape[along] is not UNKNOWN and total != x.shape[along]):
        raise mismatch(f"sizes that sum to {x.shape[along]}, axis {along} of {x}", text(sizes))
    return tuple(TensorType(x.dtype, replace_axis(x.shape, along, size)) for size in sizes)


def _split(x: np.ndarray, axis: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise IndexOutOfRangeError(f"split sizes {sizes} do not part an axis of {x.shape[axis]} elements")
    return tuple(np.split(x, np.cumsum(sizes[:-1]), axis))


# ---- slices, padding ----


def placed(bound: Dim, length: Dim) -> Dim:
    """A bound of a slice of `length` elements, counted from the front. One below 0 counts from the end, also if only the
    values of variables decide."""
    if isinstance(bound, int) and abs(bound) >= limits.DIMENSION:  # as models write "to the end" and "to the start"
        return length if bound > 0 else -1
    if is_nonnegative(bound):
        return bound
    is_negative = maximum(minimum(dims.multiply(bound, -1), 1), 0)  # 1 or 0
    return dims.add(bound, dims.multiply(length, is_negative))


def _sliced(length: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The number of elements that `start:end:step` selects of `length`, as in Python."""
    if step > 0:
        distance = dims.add(minimum(placed(end, length), length), dims.multiply(maximum(placed(start, length), 0), -1))
    else:
        first, last = minimum(placed(start, length), dims.add(length, -1)), maximum(placed(end, length), -1)
        distance = dims.add(first, dims.multiply(last, -1))
    return maximum(dims.ceildiv(distance, abs(step)), 0)


def _infer_slice(
    inputs: Sequence[TensorType],
    starts: tuple[Dim, ...],
    ends: tuple[Dim, ...],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> TensorType:
    (x,) = inputs
    over = range(len(starts)) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(over) == len(steps):
        raise mismatch(
            "as many ends, axes and steps as starts", f"{len(ends)}, {len(over)}, {len(steps)}, {len(starts)}"
        )
    axes_of(tuple(over), x.rank)
    shape = list(x.shape)
    for start, end, axis, step in zip(starts, ends, over, steps, strict=True):
        if step == 0:
            raise mismatch("a step other than 0", step)
        shape[axis] = lift(_sliced, shape[axis], start, end, step)
    return TensorType(x.dtype, tuple(shape))


def _slice(
    x: np.ndarray,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> np.ndarray:
    picks = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(starts)) if axes is None else axes):
        step = 1 if steps is None else steps[i]
        # -1 as the end of a backward slice is the last element, in Python; a bound below -length is before the first
        picks[axis] = slice(starts[i], ends[i], step)
    return x[tuple(picks)]


def _infer_pad(inputs: Sequence[TensorType], pads: tuple[Dim, ...], mode: str, value: float) -> TensorType:
    (x,) = inputs
    require_value(value, x.dtype)
    if len(pads) != 2 * x.rank or any(isinstance(pad, int) and pad < 0 for pad in pads):
        raise mismatch(f"{2 * x.rank} pads of at least 0 for {x}", text(pads))
    for dim, begin, end in zip(x.shape, pads[: x.rank], pads[x.rank :], strict=True):
        least = LEAST_PADDED[mode]
        if isinstance(dim, int) and dim < least and (begin != 0 or end != 0):
            raise mismatch(f"at least {least} elements along an axis to pad by mode {mode!r}", x)
    both = map(dims.add, pads[: x.rank], pads[x.rank :])
    return TensorType(x.dtype, tuple(lift(dims.add, dim, more) for dim, more in zip(x.shape, both, strict=True)))


def _pad(x: np.ndarray, pads: tuple[int, ...], mode: str, value: float) -> np.ndarray:
    if min(pads, default=0) < 0:
        raise IndexOutOfRangeError(f"a tensor cannot be padded by {min(pads)} elements")
    if not pads:  # NumPy refuses to pad a scalar by nothing
        return x
    widths = list(zip(pads[: x.ndim], pads[x.ndim :], strict=True))
    if mode != "constant":
        return np.pad(x, widths, mode=mode)  # type: ignore[call-overload]
    return np.pad(x, widths, constant_values=np.asarray(value).astype(x.dtype))


# ---- replacing ----


def _infer_put_slice(inputs: Sequence[TensorType], start: Dim, axis: int) -> TensorType:
    x, part = inputs
    same_dtype(inputs)
    require_rank(part, x.rank)
    along = axis_of(axis, x.rank)
    for place, (want, got) in enumerate(zip(x.shape, part.shape, strict=True)):
        if place != along:
            match_dim(want, got)
    rest = lift(unfilled, x.shape[along], part.shape[along], start)
    if any(isinstance(least, int) and least < 0 for least in (start, rest)):
        raise mismatch(f"elements from {start} on of axis {along} of {x}", part)
    return x


def unfilled(length: Dim, count: Dim, start: Dim) -> Dim:
    """The number of elements behind `count` of them from `start` on."""
    return dims.add(length, dims.multiply(dims.add(start, count), -1))


def _put_slice(x: np.ndarray, part: np.ndarray, start: int, axis: int) -> np.ndarray:
    if start < 0 or unfilled(x.shape[axis], part.shape[axis], start) < 0:
        raise ShapeError(f"{part.shape[axis]} elements from {start} on are not within {x.shape[axis]}")
    result = x.copy()
    np.moveaxis(result, axis, 0)[start : start + part.shape[axis]] = np.moveaxis(part, axis, 0)
    return result


# ---- gathering ----


def from_front(indices: np.ndarray, length: int, axis: int | None = None) -> np.ndarray:
    """The indices, counted from the front. Raises IndexOutOfRangeError, which names the axis if given."""
    wrong = (indices < -length) | (indices >= length)
    if wrong.any():
        which = "" if axis is None else f", axis {axis}"
        found = f"index {indices[wrong].flat[0]} is out of range for an axis of {length} elements{which}"
        raise IndexOutOfRangeError(found)
    return np.where(indices < 0, indices + length, indices)


def _infer_take(inputs: Sequence[TensorType], axis: int) -> TensorType:
    x, indices = inputs
    require(indices, INDEX)
    return TensorType(x.dtype, replace_axis(x.shape, axis_of(axis, x.rank), *indices.shape))


def _take(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    return np.take(x, from_front(indices, x.shape[axis], axis % x.ndim), axis)


def _infer_take_along(inputs: Sequence[TensorType], axis: int) -> TensorType:
    x, indices = inputs
    require(indices, INDEX)
    along = axis_of(axis, x.rank)
    if indices.rank != x.rank:
        raise mismatch(f"indices of rank {x.rank}", indices)
    for place, (dim, got) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if place != along:
            match_dim(dim, got)
    return TensorType(x.dtype, indices.shape)


def _take_along(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    return np.take_along_axis(x, from_front(indices, x.shape[axis], axis % x.ndim), axis)


# ---- the table ----

_MOVE, _VIEW = Fusion.MOVEMENT, Fusion.VIEW


def _reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.reshape(x, shape)


# fmt: off
register("reshape", "x", _infer_reshape, _reshape, _VIEW,
         "the same elements, in row-major order, in another shape; -1 stands for the size that remains",
         attributes={"shape": _SHAPE})
register("expand_dims", "x", _infer_expand_dims, lambda x, axes: np.expand_dims(x, axes), _VIEW,
         "axes of size 1 put in, at these places of the result", attributes={"axes": _AXES})
register("squeeze", "x", _infer_squeeze, lambda x, axes: np.squeeze(x, axes), _VIEW,
         "axes of size 1 taken out", attributes={"axes": _AXES})
register("permute_dims", "x", _infer_permute, lambda x, axes: np.transpose(x, axes), _MOVE,
         "the axes in another order: axis i of the result is axis axes[i] of x",
         attributes={"axes": Attribute(Kind.INTS, "the order; None: reversed", None)})
register("depth_to_space", "x", _infer_depth_to_space, _depth_to_space, _MOVE,
         "x [N, blocks … · C, *spatial, …] with the blocks of channels side by side in space: [N, C, *(spatial · blocks), …]",
         attributes={"blocks": Attribute(Kind.INTS, "how many lie side by side, for each of the first spatial axes")})
register("broadcast_to", "x", _infer_broadcast_to, lambda x, shape: np.broadcast_to(x, shape), _MOVE,
         "axes of size 1, and missing ones in front, repeated", attributes={"shape": _SHAPE})
register("tile", "x", _infer_tile, lambda x, repetitions: np.tile(x, repetitions), _MOVE,
         "x side by side along each axis", attributes={"repetitions": Attribute(Kind.DIMS, "how often, for each axis")})
register("concat", "*tensors", _infer_concat, lambda *tensors, axis: np.concatenate(tensors, axis), _MOVE,
         "tensors joined along an axis", attributes={"axis": _AXIS})
register("stack", "*tensors", _infer_stack, lambda *tensors, axis: np.stack(tensors, axis), _MOVE,
         "tensors of one shape joined along a new axis", attributes={"axis": _AXIS})
register("split", "x", _infer_split, _split, _MOVE,
         "x parted along an axis: a result for each size",
         attributes={"axis": _AXIS, "sizes": Attribute(Kind.DIMS, "of the parts; they sum to the axis")})
register("slice", "x", _infer_slice, _slice, _MOVE,
         "start:end:step along some axes, as in Python",
         attributes={"starts": Attribute(Kind.DIMS, "first element, for each axis"),
                     "ends": Attribute(Kind.DIMS, "bound that is not reached"),
                     "axes": Attribute(Kind.INTS, "which axes; None: the first ones", None),
                     "steps": Attribute(Kind.INTS, "not 0; None: 1", None)})
register("put_slice", "x part", _infer_put_slice, _put_slice, _MOVE,
         "x with part in place of its elements from start on along an axis; where x lies, if nothing else holds it",
         attributes={"start": Attribute(Kind.DIM, "the first place"), "axis": _AXIS}, in_place=True)
register("pad", "x", _infer_pad, _pad, _MOVE,
         "elements added around x",
         attributes={"pads": Attribute(Kind.DIMS, "how many at the beginning of each axis, then at the end of each"),
                     "mode": Attribute(Kind.STRING, "what they are", "constant", tuple(LEAST_PADDED)),
                     "value": Attribute(Kind.NUMBER, "for mode constant", 0.0)})
register("take", "x indices", _infer_take, _take, _MOVE,
         "the slices of x at the indices along an axis; a negative index counts from the end",
         attributes={"axis": _AXIS})
register("take_along_axis", "x indices", _infer_take_along, _take_along, _MOVE,
         "for each place of indices the element of x at that place, but for the axis, where the index says",
         attributes={"axis": Attribute(Kind.INT, "along which", -1)})
register("breakpoint", "x", lambda inputs: inputs[0], np.copy, Fusion.OPAQUE,
         "x; a debugger stops here (`treadle.debug.breakpoint`), and nothing else happens",
         takes_bits=True, varies=True)
# fmt: on
