"""Operators that move elements: shapes, parts, places."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from ..ty import dtype_name
from .dynamic import broadcast_to_like as _broadcast_to_like
from .dynamic import (
    computed_bounds,
    dims_of,
    full_of,
    known_length,
    repeated_to,
    reshaped_to,
    sizes_of,
    sliced_by,
    squeezed,
    with_ones,
)
from .layouts import transformed
from .reshaping import new_shape, reverse_shape
from .table import (
    Tensor,
    Tensors,
    as_dims,
    as_places,
    axis_of,
    behind,
    cut_to,
    like,
    minus,
    operator,
    operators_in,
    pair,
    rank_of,
    scalar,
    shape_of,
    type_of,
)
from .tensor import filled


@operator("cast")
def cast(data: Tensor, dtype: str) -> Expression:
    """The elements as another type."""
    return op.cast(data, dtype=dtype_name(dtype))


@operator("cast_like")
def cast_like(data: Tensor, dtype_like: Tensor) -> Expression:
    """The elements as the type of another tensor."""
    return op.cast(data, dtype=type_of(dtype_like).dtype)


@operator("reinterpret")
def reinterpret(data: Tensor, dtype: str) -> Expression:
    """The bits of each element as an element type of as many bytes."""
    return op.bitcast(data, dtype=dtype_name(dtype))


@operator("expand_dims")
def expand_dims(data: Tensor, axis: Any, num_newaxis: int = 1) -> Expression:
    """Axes of length 1 in front of an axis."""
    if num_newaxis == 0:
        return data
    known = as_dims(axis)
    if known is None:
        return with_ones(data, axis, num_newaxis)
    (axis,) = known
    first = axis if axis >= 0 or num_newaxis == 1 else axis + rank_of(data) + 1
    return op.expand_dims(data, axes=[first + place for place in range(num_newaxis)])


@operator("transpose")
def transpose(data: Tensor, axes: Any = None) -> Expression:
    """The axes in another order; by default in reverse."""
    if axes is None or len(axes) == 0:
        return op.permute_dims(data)
    return op.permute_dims(data, axes=[axis_of(data, int(axis)) for axis in axes])


@operator("squeeze")
def squeeze(data: Tensor, axis: Any = None) -> Expression:
    """Without axes of length 1: these, or all."""
    known = () if axis is None else as_dims(axis)
    if known is None:
        return squeezed(data, axis)
    axes = [int(each) for each in known]
    if axis is None:
        axes = [place for place, dim in enumerate(type_of(data).shape) if dim == 1]
    return op.squeeze(data, axes=axes) if axes else data


@operator("reshape")
def reshape(data: Tensor, newshape: Any, allowzero: bool = False) -> Expression:
    """The elements in another shape: numbers, of which some have meanings (`reshaping.py`), or a tensor."""
    wanted = as_dims(newshape)
    if wanted is None:
        return reshaped_to(data, newshape)
    rest = [code for code in wanted if isinstance(code, int) and code <= 0]
    if rest in ([], [-1]):
        return op.reshape(data, shape=wanted)  # needs no name for what is not known
    data, shape = shape_of(data)
    return behind("reshape", data, [], shape=new_shape(shape, wanted, bool(allowzero)))


@operator("contrib_reverse_reshape")
def reverse_reshape(data: Tensor, newshape: Any) -> Expression:
    """As reshape, the meanings of numbers counted from the end."""
    data, shape = shape_of(data)
    return op.reshape(data, shape=reverse_shape(shape, as_dims(newshape) or ()))


@operator("reshape_like")
def reshape_like(
    data: Tensor,
    shape_like: Tensor,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> Expression:
    """The elements in the shape of another tensor, or a part of the axes in the shape of a part of its axes."""
    data, own = shape_of(data)
    shape_like, other = shape_of(shape_like)
    end = len(own) if lhs_end is None else lhs_end
    return behind("reshape", data, [shape_like], shape=(*own[:lhs_begin], *other[rhs_begin:rhs_end], *own[end:]))


@operator("argwhere")
def argwhere(condition: Tensor) -> Expression:
    """The places of what is not zero, a row each."""
    return op.cast(op.permute_dims(op.nonzero(condition), axes=(1, 0)), dtype="int32")


_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operator("scatter_elements")
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Expression:
    """`data`, each update put in where its index says along the axis."""
    return op.put_along_axis(
        data, as_places(indices), updates, axis=axis_of(data, axis), reduction=_reduction_of(reduction)
    )


def _reduction_of(name: str) -> str:
    if name not in _REDUCTIONS:
        raise InferenceError(f"reduction {name!r}; there are {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def _places_last(indices: Expression) -> Expression:
    """Relay's places lie along the first axis."""
    return op.permute_dims(as_places(indices), axes=[*range(1, rank_of(indices)), 0])


@operator("scatter_nd")
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Expression:
    """`data`, updates put in at places that the first axis of the indices tells."""
    return op.scatter_nd(data, _places_last(indices), updates, reduction=_reduction_of(mode))


@operator("take")
def take(data: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Expression:
    """The parts of `data` at indices: out of range they are clipped (`clip`), counted round (`wrap`), or an error (`fast`)."""
    if axis is None:
        data, shape = shape_of(data)
        data, axis = op.reshape(data, shape=(dims.product(shape),)), 0
    given, axis = axis, axis_of(data, axis)
    length = type_of(data).shape[axis]
    count = op.take(op.shape(data), programs.constant(axis), axis=0)
    count = programs.constant(length) if isinstance(length, int) else count
    whole = as_places(indices)
    if mode == "clip":
        indices = op.minimum(op.maximum(whole, programs.constant(0)), op.subtract(count, programs.constant(1)))
    elif mode == "wrap":
        indices = op.remainder(whole, count)
    elif mode == "fast":
        indices = whole
    else:
        raise InferenceError(f"mode {mode!r}; there are clip, wrap and fast")
    if not batch_dims:
        return op.take(data, indices, axis=given)
    first = batch_dims % (rank_of(indices) + 1)
    order = [*range(first), axis, *(each for each in range(first, rank_of(data)) if each != axis)]
    found = op.gather_nd(
        op.permute_dims(data, axes=order), op.expand_dims(indices, axes=(rank_of(indices),)), batch_axes=first
    )
    middle = rank_of(indices) - first
    before = axis - first  # axes of `data` between the shared ones and the axis stand after the indices' now
    places = [*range(first), *range(first + middle, first + middle + before), *range(first, first + middle)]
    return op.permute_dims(found, axes=[*places, *range(first + middle + before, rank_of(found))])


@operator("full")
def full(fill_value: Tensor, shape: Any = (), dtype: str = "") -> Expression:
    """A tensor of one value, whose shape is numbers or a tensor."""
    value = op.cast(fill_value, dtype=dtype_name(dtype)) if dtype else fill_value
    return full_of(value, shape)


@operator("full_like")
def full_like(data: Tensor, fill_value: Tensor) -> Expression:
    """A tensor of one value in the shape of another."""
    return filled(data, op.cast(fill_value, dtype=type_of(data).dtype))


def _number(value: Any) -> Any:
    """A number, where it is known now."""
    if isinstance(value, Expression):
        array = getattr(value.atom, "value", None)
        return value if array is None else array.item()
    return value


@operator("arange")
def arange(start: Any, stop: Any = None, step: Any = None, dtype: str = "float32") -> Expression:
    """start, start + step, …, short of stop. With one argument it is the stop."""
    if stop is None:
        start, stop = 0, start
    first, last, by = (_number(each) for each in (start, stop, 1 if step is None else step))
    kind = DType[dtype_name(dtype)]
    if not any(isinstance(each, Expression) for each in (first, last, by)):
        return programs.constant(np.arange(first, last, by, dtype=kind.numpy))
    first, last, by = (op.cast(scalar(each, kind), dtype="float64") for each in (first, last, by))
    count = op.cast(op.ceil(op.divide(op.subtract(last, first), by)), dtype="int64")
    waits, (length,) = sizes_of(op.reshape(op.maximum(count, programs.constant(0)), shape=(1,)))
    ones = behind("broadcast_to", programs.constant(1, "int64"), waits, shape=(length,))
    places = op.cast(op.cumulative_sum(ones, axis=0, exclusive=True), dtype="float64")
    return op.cast(op.add(first, op.multiply(places, by)), dtype=kind)


@operator("meshgrid", results=lambda bound: len(bound["data"]))
def meshgrid(data: Tensors, indexing: str = "ij") -> Expression:
    """Vectors, each over the grid of all."""
    sizes = [shape_of(each)[1][0] if rank_of(each) else 1 for each in data]
    order = list(range(len(data)))
    if indexing == "xy" and len(data) > 1:
        order[:2] = [1, 0]
    shape = [sizes[place] for place in order]
    made = []
    for place, vector in enumerate(data):
        form: list[Any] = [1] * len(data)
        form[order.index(place)] = sizes[place]
        made.append(op.broadcast_to(op.reshape(vector, shape=form), shape=shape))
    return programs.tuple_(*made)


@operator("repeat")
def repeat(data: Tensor, repeats: int, axis: int) -> Expression:
    """Each element so often along an axis."""
    axis = axis_of(data, axis)
    data, shape = shape_of(data)
    wider = op.expand_dims(data, axes=(axis + 1,))
    wider = op.broadcast_to(wider, shape=(*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return op.reshape(wider, shape=(*shape[:axis], dims.multiply(shape[axis], repeats), *shape[axis + 1 :]))


@operator("tile")
def tile(data: Tensor, reps: Any) -> Expression:
    """The tensor side by side along its axes, so often."""
    waits, times = dims_of(reps)
    rank = builtins.max(rank_of(data), len(times))
    if rank_of(data) < rank:
        data = op.expand_dims(data, axes=list(range(rank - rank_of(data))))
    times = (1,) * (rank - len(times)) + tuple(times)
    return behind("tile", data, waits, repetitions=times)


@operator("reverse")
def reverse(data: Tensor, axis: int) -> Expression:
    """An axis from its end to its beginning."""
    last = -(1 << 40)
    return op.slice(data, starts=(-1,), ends=(last,), axes=(axis_of(data, axis),), steps=(-1,))


@operator("where")
def where(condition: Tensor, x: Tensor, y: Tensor) -> Expression:
    """Elements of `x` where the condition is not zero, else of `y`."""
    if type_of(condition).dtype is not DType.bool:
        condition = op.not_equal(condition, like(condition, 0))
    return op.where(condition, x, y)


@operator("broadcast_to")
def broadcast_to(data: Tensor, shape: Any) -> Expression:
    """The tensor, axes of length 1 repeated."""
    return repeated_to(data, shape)


@operator("broadcast_to_like")
def broadcast_to_like(data: Tensor, broadcast_type: Tensor) -> Expression:
    """The tensor in the shape of another."""
    return _broadcast_to_like(data, broadcast_type)


def _collapsed(data: Expression, shape: Sequence[Any]) -> Expression:
    data, own = shape_of(data)
    lead = len(own) - len(shape)
    axes = [*range(lead), *(lead + place for place, dim in enumerate(shape) if dim == 1 and own[lead + place] != 1)]
    summed = op.sum(data, axes=axes, keepdims=True) if axes else data
    return op.squeeze(summed, axes=list(range(lead))) if lead else summed


@operator("collapse_sum_to")
def collapse_sum_to(data: Tensor, shape: Any) -> Expression:
    """The sum over axes that broadcasting to `shape` would repeat."""
    known = as_dims(shape)
    if known is None:
        raise NotImplementedError("collapse_sum_to: the shape must be known")
    return _collapsed(data, known)


@operator("collapse_sum_like")
def collapse_sum_like(data: Tensor, collapse_type: Tensor) -> Expression:
    """The sum over axes that broadcasting to the shape of another tensor would repeat."""
    return _collapsed(data, type_of(collapse_type).shape)


def _parts(bound: dict[str, Any]) -> int:
    sections = bound["indices_or_sections"]
    return int(sections) if isinstance(sections, (int, np.integer)) else len(sections) + 1


@operator("split", results=_parts)
def split(data: Tensor, indices_or_sections: Any, axis: int = 0) -> Expression:
    """A number of equal parts, or parts between indices."""
    given, axis = axis, axis_of(data, axis)
    data, shape = shape_of(data)
    length = shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        count = int(indices_or_sections)
        if isinstance(length, int) and length % count:
            raise InferenceError(f"an axis of {length} cannot be parted into {count} equal parts")
        part = dims.floordiv(length, count)
        places: list[Any] = [*(dims.multiply(part, place) for place in range(count)), length]
    else:
        places = [0, *map(int, indices_or_sections), length]
    bounds = list(itertools.pairwise(places))
    if len(bounds) == 1:
        return programs.tuple_(data)
    if isinstance(length, int):
        return op.split(data, axis=given, sizes=[end - start for start, end in bounds])
    if isinstance(indices_or_sections, (int, np.integer)):  # a run checks
        data = programs.match_shape(data, (*shape[:axis], dims.multiply(part, count), *shape[axis + 1 :]))
        bounds[-1] = (bounds[-1][0], dims.multiply(part, count))
    return op.split(data, axis=axis, sizes=[minus(end, start) for start, end in bounds])


@operator("strided_slice")
def strided_slice(
    data: Tensor, begin: Any, end: Any, strides: Any = None, axes: Any = None, slice_mode: str = "end"
) -> Expression:
    """begin:end:stride along axes, as in Python; with `size`, `end` is how many elements, -1 for all that follow."""
    strides = None if slice_mode == "size" else strides  # they are 1 then
    steps = as_dims([1] if strides is None else strides)
    bounds = [_with_defaults(each) for each in (begin, end)]
    if steps is None or (None in bounds and min(steps, default=1) < 0):
        return sliced_by(data, begin, end, programs.constant(steps) if steps else strides, axes)
    lengths = [
        known_length(value) if known is None else len(known) for known, value in zip(bounds, (begin, end), strict=True)
    ]
    count = max(*lengths, len(steps))
    along = [axis_of(data, int(axis)) for axis in axes] if axes is not None else list(range(count))
    steps = steps * len(along) if len(steps) == 1 else steps + (1,) * (len(along) - len(steps))
    if None in bounds:
        waits, starts, ends = computed_bounds(data, begin, end, along, slice_mode == "size")
        return behind("slice", data, waits, starts=starts, ends=ends, axes=along, steps=steps)
    first, last = (each or () for each in bounds)
    last += (-1 if slice_mode == "size" else _DEFAULT,) * (len(along) - len(last))  # to the end
    first += (_DEFAULT,) * (len(along) - len(first))  # from the beginning
    if slice_mode == "size":
        shape = type_of(data).shape
        last = tuple(
            shape[axis] if size == -1 else dims.add(start, size)
            for axis, start, size in zip(along, first, last, strict=True)
        )
    first = tuple((_LAST if step < 0 else 0) if at == _DEFAULT else at for at, step in zip(first, steps, strict=True))
    last = tuple(
        (-_LAST if step < 0 else _LAST) if at == _DEFAULT else at for at, step in zip(last, steps, strict=True)
    )
    said = {} if strides is None else {"steps": steps}
    if axes is not None:
        said["axes"] = tuple(map(int, axes))
    return behind("slice", data, [], starts=first, ends=last, **said)


def _with_defaults(bounds: Any) -> tuple[Any, ...] | None:
    """Bounds that are known, those that were left out marked; None for those known only at run time."""
    listed = isinstance(bounds, (list, tuple))
    return as_dims([_DEFAULT if each is None else each for each in bounds] if listed else bounds)


_LAST = 1 << 40  # after every end
_DEFAULT = -(1 << 41)  # a bound that was left out


@operator("strided_set")
def strided_set(data: Tensor, v: Tensor, begin: Any, end: Any, strides: Any = None) -> Expression:
    """`data` with a slice of it replaced. Its shape and the bounds must be known."""
    shape = type_of(data).shape
    bounds = [as_dims(each) for each in (begin, end, [1] if strides is None else strides)]
    if not all(isinstance(dim, int) for dim in shape) or None in bounds:
        raise NotImplementedError("strided_set: shape and bounds must be known")
    first, last, steps = bounds
    assert first is not None
    assert last is not None
    assert steps is not None
    steps = steps * len(first) if len(steps) == 1 else steps
    lengths: list[Any] = list(shape)
    axes = [np.arange(dim)[a:b:c] for dim, a, b, c in zip(lengths, first, last, steps)]  # noqa: B905
    axes += [np.arange(dim) for dim in lengths[len(axes) :]]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return op.scatter_nd(data, programs.constant(places), v)


@operator("slice_like")
def slice_like(data: Tensor, shape_like: Tensor, axes: Any = None) -> Expression:
    """The beginning of the tensor, as long as another along these axes, or all."""
    along = [axis_of(data, int(axis)) for axis in (axes or range(rank_of(shape_like)))]
    shape_like, shape = shape_of(shape_like)
    return cut_to(data, {axis: shape[axis] for axis in along}, [shape_like])


@operator("layout_transform")
def layout_transform(data: Tensor, src_layout: str, dst_layout: str) -> Expression:
    """The tensor in another layout: letters in another order, or parts of an axis (`NCHW4c`) as an axis."""
    return transformed(data, src_layout, dst_layout)


@operator("gather")
def gather(data: Tensor, axis: int, indices: Tensor) -> Expression:
    """For each place of the indices the element of `data` there, but along the axis where the index says."""
    given, axis = axis, axis_of(data, axis)
    own, wanted = type_of(data).shape, type_of(indices).shape
    others = [place for place in range(len(own)) if place != axis and own[place] != wanted[place]]
    if others:
        indices, sizes = shape_of(indices)
        starts, steps = [0] * len(others), [1] * len(others)
        ends = [sizes[place] for place in others]
        data = behind("slice", data, [indices], starts=starts, ends=ends, axes=others, steps=steps)
    return op.take_along_axis(data, as_places(indices), axis=given)


@operator("gather_nd")
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0, index_rank: int | None = None) -> Expression:
    """The parts of `data` at places that the first axis of the indices tells."""
    return op.gather_nd(data, _places_last(indices), batch_axes=batch_dims)


@operator("sequence_mask")
def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Expression:
    """What lies after each sequence's length replaced. Sequences lie along `axis`, 0 or 1, batches along the other."""
    data, shape = shape_of(data)
    steps = op.reshape(op.arange(stop=shape[axis]), shape=(-1, 1) if axis == 0 else (1, -1))
    lengths = op.expand_dims(op.cast(valid_length, dtype="int64"), axes=(0,) if axis == 0 else (1,))
    inside = op.less(steps, lengths)
    inside = op.expand_dims(inside, axes=list(range(2, len(shape)))) if len(shape) > 2 else inside
    return op.where(inside, data, like(data, mask_value))


@operator("reverse_sequence")
def reverse_sequence(data: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Expression:
    """Each sequence from its end to its beginning; what lies after it stays."""
    along, batch = axis_of(data, seq_axis), axis_of(data, batch_axis)
    data, shape = shape_of(data)
    form: list[Any] = [1] * len(shape)
    form[along] = shape[along]
    places = op.reshape(op.arange(stop=shape[along]), shape=form)
    form = [1] * len(shape)
    form[batch] = shape[batch]
    longest = op.take(op.shape(data), programs.constant(along), axis=0)
    lengths = op.minimum(op.reshape(op.cast(seq_lengths, dtype="int64"), shape=form), longest)
    turned = op.subtract(op.subtract(lengths, programs.constant(1)), places)
    indices = op.where(op.less(places, lengths), turned, places)
    return op.take_along_axis(data, op.broadcast_to(indices, shape=shape), axis=along)


@operator("one_hot")
def one_hot(indices: Tensor, on_value: Tensor, off_value: Tensor, depth: Any, axis: int, dtype: str) -> Expression:
    """A new axis, `on_value` where the index says."""
    waits, known = dims_of(depth, is_one=True)
    along = rank_of(indices) if axis == -1 else axis
    ones = behind("broadcast_to", programs.constant(1, "int64"), waits, shape=(known[0],))
    places = op.cumulative_sum(ones, axis=0, exclusive=True)
    form = [known[0], *[1] * (rank_of(indices) - along)]
    places = behind("reshape", places, waits, shape=form)
    hot = op.equal(op.expand_dims(op.cast(indices, dtype="int64"), axes=(along,)), places)
    kind = dtype_name(dtype)
    return op.where(hot, op.cast(on_value, dtype=kind), op.cast(off_value, dtype=kind))


@operator("unravel_index")
def unravel_index(indices: Tensor, shape: Tensor) -> Expression:
    """Places in a flat tensor as places in one of this shape, along a new first axis."""
    (count,) = type_of(shape).shape
    if not isinstance(count, int):
        raise NotImplementedError("unravel_index: the rank must be known")
    sizes = op.cast(shape, dtype=type_of(indices).dtype)
    rest, found = indices, []
    for place in reversed(range(count)):
        size = op.take(sizes, programs.constant(place), axis=0)
        found.append(op.remainder(rest, size))
        rest = op.floor_divide(rest, size)
    return op.stack(*found[::-1], axis=0)


@operator("adv_index")
def adv_index(inputs: Tensors) -> Expression:
    """NumPy's advanced indexing by integer tensors, which are broadcast together."""
    data, *indices = inputs
    together = indices[0]
    for each in indices[1:]:
        together = op.add(together, each)
    parts = [op.add(op.subtract(together, together), each) for each in indices]
    return op.gather_nd(data, op.stack(*parts, axis=rank_of(together)))


@operator("cumsum")
def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Expression:
    """The sums of the elements up to each place; of all of them in order where no axis is given."""
    if axis is None:
        data, axis = op.reshape(data, shape=(-1,)), 0
    kind = type_of(data).dtype if not dtype else DType[dtype_name(dtype)]
    if kind is DType.bool:
        kind = DType.int32
    data = data if kind is type_of(data).dtype else op.cast(data, dtype=kind)
    return op.cumulative_sum(data, axis=int(axis), exclusive=bool(exclusive))


@operator("trilu")
def trilu(data: Tensor, k: Any, upper: bool = True) -> Expression:
    """The upper or lower triangle of matrices, with the diagonal `k`; zero elsewhere."""
    data, shape = shape_of(data)
    diagonal = k if isinstance(k, Expression) else programs.constant(int(k))
    rows = op.reshape(op.arange(stop=shape[-2]), shape=(-1, 1))
    columns = op.subtract(op.arange(stop=shape[-1]), op.cast(diagonal, dtype="int64"))
    kept = (op.less_equal if upper else op.greater_equal)(rows, columns)
    return op.where(kept, data, like(data, 0))


@operator("invert_permutation")
def invert_permutation(data: Tensor) -> Expression:
    """The permutation that undoes another."""
    data, shape = shape_of(data)
    places = op.cast(op.arange(stop=shape[0]), dtype=type_of(data).dtype)
    return op.scatter_nd(filled(data, like(data, 0)), op.expand_dims(data, axes=(1,)), places)


@operator("sliding_window")
def sliding_window(data: Tensor, axis: int, window_shape: Any, strides: Any) -> Expression:
    """Windows over the axes from `axis` on: where they start, then what lies in them."""
    axis = axis_of(data, axis)
    window = pair(window_shape, 1)
    steps = pair(strides, len(window))
    shape = type_of(data).shape
    for place, (size, step) in enumerate(zip(window, steps, strict=True)):
        length = shape[axis + place]
        if not isinstance(length, int):
            raise NotImplementedError("sliding_window: the shape must be known")
        starts = np.arange(0, length - size + 1, step)
        # the axis becomes two: starts, and places in a window, which go after what the others have become
        indices = starts[:, None] + np.arange(size)[None]
        data = op.take(data, programs.constant(indices), axis=axis + place)
        rank = rank_of(data)
        moved = axis + place + 1
        data = op.permute_dims(data, axes=[*(a for a in range(rank) if a != moved), moved])
    return data


__all__ = operators_in(globals())
