"""Importers of operators that make, move, join and part tensors.

Shapes, axes, pads and similar values are attributes in old opsets and inputs in new ones. Most are known at import, if only as
expressions over the model's dimensions; what a run computes is done by `onnx/sizes_of_run.py`. Where an operator needs to
know them, `integers_of` and `dims_of` say so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of
from .. import sizes_of_run as run_time
from ..sizes_of_run import is_found, is_known
from ..table import importer
from ..values import FOLD_BYTES, GraphBuilder, UnsupportedError, Value, constant, scalar

_INT64_MAX = (1 << 63) - 1


def dims_of(value: Value, what: str) -> tuple[Dim, ...]:
    """The elements of an integer tensor that parameterises an operator. Raises UnsupportedError if known only at run time."""
    if value.elements is None:
        raise UnsupportedError(f"its {what} are computed at run time")
    return tuple(value.elements.flat)


def integers_of(value: Value | None, what: str) -> tuple[int, ...] | None:
    """The same, where dimensions will not do."""
    if value is None:
        return None
    elements = dims_of(value, what)
    if any(isinstance(element, SymbolicDim) for element in elements):
        raise UnsupportedError(f"its {what} depend on the sizes of the inputs")
    return elements  # type: ignore[return-value]


# ---- views ----


@importer("Reshape", since=5)
def _reshape(g: GraphBuilder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    if not is_known(shape):
        return run_time.reshaped(g, x, shape, bool(allowzero))
    return _reshaped(g, x, dims_of(shape, "dimensions"), bool(allowzero))


@importer("Reshape")
def _reshape_before_5(g: GraphBuilder, x: Value, *, shape: tuple[int, ...]) -> Value:
    return _reshaped(g, x, shape, False)


def _reshaped(g: GraphBuilder, x: Value, shape: tuple[Dim, ...], allow_zero: bool) -> Value:
    if not allow_zero and (only := _only_shape(g, x, shape)) is not None:
        return g.checked(run_time.reshaped(g, x, g.from_dims(shape), False), only)
    result: list[Dim] = []
    for axis, dim in enumerate(shape):
        if dim == 0 and not allow_zero:
            if axis >= x.rank:
                raise ModelError(f"Reshape: dimension {axis} must be that of the input, which has rank {x.rank}")
            dim = x.shape[axis]
        result.append(dim)
    if result.count(-1) == 1:
        rest = dims.product(dim for dim in result if dim != -1)
        if rest != 0:
            result[result.index(-1)] = dims.floordiv(dims.product(x.shape), rest)
    return g.op("reshape", x, shape=tuple(result))


def _only_shape(g: GraphBuilder, x: Value, shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The shape that x has whatever a run finds one size of `shape` to be, where it has one: 0 keeps a dimension, and any other
    number must leave as many elements."""
    found = [axis for axis, dim in enumerate(shape) if is_found(g, dim)]
    own, others = [dim for dim in x.shape if isinstance(dim, int)], [dim for dim in shape if isinstance(dim, int)]
    if len(found) != 1 or found[0] >= x.rank or len(own) != x.rank or len(others) != len(shape) - 1:
        return None
    (axis,) = found
    made = (*others[:axis], own[axis], *others[axis:])
    return made if min(others, default=1) > 0 and math.prod(made) == math.prod(own) > 0 else None


@importer("Flatten")
def _flatten(g: GraphBuilder, x: Value, *, axis: int = 1) -> Value:
    axis = axis if axis == x.rank else axis_of(axis, x.rank) if x.rank else 0
    return g.op("reshape", x, shape=(dims.product(x.shape[:axis]), dims.product(x.shape[axis:])))


@importer("Unsqueeze", since=13)
def _unsqueeze(g: GraphBuilder, x: Value, axes: Value) -> Value:
    if not is_known(axes):
        return run_time.with_ones(g, x, axes)
    return g.op("expand_dims", x, axes=integers_of(axes, "axes"))


@importer("Unsqueeze")
def _unsqueeze_before_13(g: GraphBuilder, x: Value, *, axes: tuple[int, ...]) -> Value:
    return g.op("expand_dims", x, axes=axes)


# ---- permutation, repetition ----


@importer("Transpose")
def _transpose(g: GraphBuilder, x: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    return g.op("permute_dims", x, axes=perm)


@importer("Expand")
def _expand(g: GraphBuilder, x: Value, shape: Value) -> Value:
    target = g.written(x, g.sizes(shape, "dimensions"))
    rank = max(x.rank, len(target))
    old: tuple[Dim, ...] = (1,) * (rank - x.rank) + x.shape
    new: tuple[Dim, ...] = (1,) * (rank - len(target)) + target
    for axis, (a, b) in enumerate(zip(old, new, strict=True)):
        if isinstance(a, SymbolicDim) and isinstance(b, int) and b != 1:
            x = g.stretched(x, axis - (rank - x.rank), b)
            old = (*old[:axis], b, *old[axis + 1 :])
        elif isinstance(a, SymbolicDim) and isinstance(b, SymbolicDim) and a != b:
            x = _stretched(g, x, axis - (rank - x.rank), b)
            old = (*old[:axis], x.shape[axis - rank], *old[axis + 1 :])
    result = tuple(b if a == 1 else a for a, b in zip(old, new, strict=True))
    return x if result == x.shape else g.op("broadcast_to", x, shape=result)


def _stretched(g: GraphBuilder, x: Value, axis: int, wanted: SymbolicDim) -> Value:
    """A tensor whose axis has grown to a size known only at run time, of one that has that size, or 1, or keeps its own for 1."""
    own = x.shape[axis]

    def of(size: Dim) -> tuple[Dim, ...]:
        return (*x.shape[:axis], size, *x.shape[axis + 1 :])

    def number(dim: Dim) -> Value:
        return g.from_dims(np.array(dim, object))

    keeps = g.op("logical_or", g.op("equal", number(wanted), number(1)), g.op("equal", number(wanted), number(own)))
    (made,) = g.choose(keeps, lambda: [x], lambda: [g.op("broadcast_to", g.checked(x, of(1)), shape=of(wanted))])
    least, most = dims.minimum(own, wanted), dims.maximum(own, wanted)
    return g.checked(made, of(dims.multiply(most, dims.minimum(least, 1))))  # one of the two, which is not 1, or 0


@importer("Tile", since=6)
def _tile(g: GraphBuilder, x: Value, repeats: Value) -> Value:
    return g.op("tile", x, repetitions=g.sizes(repeats, "repetitions"))


@importer("DepthToSpace")
def _depth_to_space(g: GraphBuilder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _four(x, blocksize)
    depth = dims.floordiv(c, blocksize * blocksize)
    parts: tuple[Dim, ...] = (n, blocksize, blocksize, depth, h, w)
    order = (0, 3, 4, 1, 5, 2)
    if mode == "CRD":
        parts, order = (n, depth, blocksize, blocksize, h, w), (0, 1, 4, 2, 5, 3)
    moved = g.op("permute_dims", g.op("reshape", x, shape=parts), axes=order)
    return g.op("reshape", moved, shape=(n, depth, dims.multiply(h, blocksize), dims.multiply(w, blocksize)))


@importer("SpaceToDepth")
def _space_to_depth(g: GraphBuilder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    n, c, h, w = _four(x, blocksize)
    height, width = dims.floordiv(h, blocksize), dims.floordiv(w, blocksize)
    parts = g.op("reshape", x, shape=(n, c, height, blocksize, width, blocksize))
    moved = g.op("permute_dims", parts, axes=(0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4))
    return g.op("reshape", moved, shape=(n, dims.multiply(c, blocksize * blocksize), height, width))


def _four(x: Value, blocksize: int) -> tuple[Dim, ...]:
    if x.rank != 4 or blocksize < 1:
        raise ModelError(f"expected an input of rank 4 and blocks of at least 1, got {x.type} and {blocksize}")
    return x.shape


# ---- joining, parting ----


@importer("Concat", since=4)
def concatenated(g: GraphBuilder, first: Value, *others: Value, axis: int) -> Value:
    along = axis_of(axis, first.rank)
    tensors = [first, *others]
    if all(tensor.rank == first.rank for tensor in tensors):
        tensors = g.same_sizes(tensors, (place for place in range(first.rank) if place != along))
    return g.joined(tensors, axis)


@importer("Concat")
def _concat_before_4(g: GraphBuilder, first: Value, *others: Value, axis: int = 1) -> Value:
    return g.op("concat", first, *others, axis=axis)


@importer("Split", since=13)
def _split(
    g: GraphBuilder, x: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    if split is not None and split.rank == 1:
        split = g.checked(split, (g.output_count,))
    return parts_of(g, x, axis, None if split is None else g.sizes(split, "sizes"))


@importer("Split")
def _split_before_13(
    g: GraphBuilder, x: Value, sizes: Value | None = None, *, axis: int = 0, split: tuple[int, ...] | None = None
) -> tuple[Value, ...]:
    return parts_of(g, x, axis, split if sizes is None else integers_of(sizes, "sizes"))


def parts_of(g: GraphBuilder, x: Value, axis: int, sizes: tuple[Dim, ...] | None) -> tuple[Value, ...]:
    """x cut into parts of these sizes along an axis, or into as many of about one size as the node has outputs."""
    length, count = x.shape[axis_of(axis, x.rank)], g.output_count
    if sizes is None:
        each = dims.ceildiv(length, count)
        last = dims.add(length, dims.multiply(each, 1 - count))
        sizes = (each,) * (count - 1) + (last,)
    shape = list(x.shape)
    total: Dim = 0
    for size in sizes:
        total = dims.add(total, size)
    shape[axis] = total
    return g.ops("split", g.checked(x, tuple(shape)), axis=axis, sizes=sizes)


# ---- slices, padding, gathering ----


@importer("Slice", since=10)
def _slice(
    g: GraphBuilder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    if not is_known(starts, ends, axes, steps):
        return _sliced_at_run_time(g, x, starts, ends, axes, steps)
    return _sliced(
        g, x, dims_of(starts, "starts"), dims_of(ends, "ends"), integers_of(axes, "axes"), integers_of(steps, "steps")
    )


def _sliced_at_run_time(
    g: GraphBuilder, x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> Value:
    """One axis after the other. All four are equally many: where that is known of one, a run checks the others."""
    counted = [each for each in (starts, ends, axes, steps) if each is not None and each.rank == 1]
    counts = [each.shape for each in counted if each.type.is_static]

    def numbers_of(value: Value, what: str) -> list[Value]:
        asks = bool(counts) and value.rank == 1 and not value.type.is_static
        return run_time.numbers_of(g, g.checked(value, counts[0]) if asks else value, what)

    firsts, lasts = numbers_of(starts, "starts"), numbers_of(ends, "ends")
    if len(firsts) > x.rank:
        raise ModelError(f"Slice: {len(firsts)} bounds for a tensor of rank {x.rank}")
    along = [g.from_dims(axis) for axis in range(len(firsts))] if axes is None else numbers_of(axes, "axes")
    strides = [g.from_dims(1)] * len(firsts) if steps is None else numbers_of(steps, "steps")
    if not len(firsts) == len(lasts) == len(along) == len(strides):
        raise ModelError("Slice: starts, ends, axes and steps are not equally many")
    for first, last, axis, step in zip(firsts, lasts, along, strides, strict=True):
        parts = [first, last, axis, step]
        if is_known(*parts) and all(isinstance(part.elements.item(), int) for part in (axis, step)):  # type: ignore[union-attr]
            start, end, place, stride = (part.elements.item() for part in parts)  # type: ignore[union-attr]
            x = _sliced(g, x, (start,), (end,), (place,), (stride,))
        else:
            x = run_time.sliced(g, x, axis, first, last, step)
    return x


@importer("Slice")
def _slice_before_10(
    g: GraphBuilder, x: Value, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None = None
) -> Value:
    return _sliced(g, x, starts, ends, axes, None)


def _sliced(
    g: GraphBuilder,
    x: Value,
    starts: tuple[Dim, ...],
    ends: tuple[Dim, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Value:
    along = [axis_of(axis, x.rank) for axis in (range(len(starts)) if axes is None else axes)]
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(along) == len(steps):
        raise ModelError("Slice: starts, ends, axes and steps are not equally many")
    first = tuple(_first(start, x.shape[axis], step) for start, axis, step in zip(starts, along, steps, strict=True))
    last = tuple(_bound(end, x.shape[axis], step) for end, axis, step in zip(ends, along, steps, strict=True))
    return g.op("slice", x, starts=first, ends=last, axes=tuple(along), steps=steps)


def _first(start: Dim, length: Dim, step: int) -> Dim:
    """Where a slice begins. A backward one whose start lies before all elements begins at the first; Python has it empty."""
    if step > 0 or not isinstance(start, int) or start >= -1:
        return _bound(start, length, step)
    return 0 if start <= -(1 << 31) else dims.maximum(dims.add(length, start), 0)


def _bound(bound: Dim, length: Dim, step: int) -> Dim:
    """A bound that says the same and is small: exporters write "to the end" as the greatest integers there are."""
    if isinstance(bound, int) and isinstance(length, int):
        return max(min(bound, length), -length - 1)
    if isinstance(bound, int) and bound >= (1 << 31) - 1:
        return length
    if isinstance(bound, int) and bound <= -(1 << 31):
        return 0 if step > 0 else dims.add(dims.multiply(length, -1), -1)
    return bound  # of a symbolic one, the operator tells when it counts from the end: not at 0, nor twice


@importer("Pad", since=11)
def pad(
    g: GraphBuilder,
    x: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Value:
    x, sizes, along = _without_negative_pads(g, x, pads, axes)
    if value is None or mode != "constant":
        return _padded(g, x, sizes, along, mode, 0)
    if value.constant is not None:
        return _padded(g, x, sizes, along, mode, scalar(value.constant, "the padding value"))
    inside = g.op("full", shape=x.shape, value=True, dtype=DType.bool)
    x, inside = (_padded(g, tensor, sizes, along, mode, 0) for tensor in (x, inside))
    return g.op("where", inside, x, g.op("reshape", value, shape=()))


def _without_negative_pads(
    g: GraphBuilder, x: Value, pads: Value, axes: Value | None
) -> tuple[Value, tuple[Dim, ...], tuple[int, ...] | None]:
    """The tensor to pad, the pads, the axes. If pads are known only at run time, negative ones are applied here."""
    if is_known(pads, axes):
        return x, dims_of(pads, "pads"), integers_of(axes, "axes")
    numbers = run_time.numbers_of(g, pads, "pads")
    count = len(numbers) // 2
    if axes is not None and not is_known(axes):
        none = g.constant([0] * x.rank, DType.int64)
        places = g.op("cast", axes, dtype=DType.int64)
        halves = [run_time.vector(g, *half) for half in (numbers[:count], numbers[count:])]
        whole = [g.op("put_along_axis", none, places, half, axis=0) for half in halves]
        numbers = [number for half in whole for number in run_time.numbers_of(g, half, "pads")]
        axes, count = None, x.rank
    chosen = integers_of(axes, "axes")
    along = tuple(range(x.rank)) if chosen is None else tuple(axis_of(axis, x.rank) for axis in chosen)
    if len(numbers) != 2 * len(along):
        raise ModelError(f"Pad: expected {2 * len(along)} pads, got {len(numbers)}")
    zero, one = (g.constant(number, DType.int64) for number in (0, 1))
    for place, axis in enumerate(along):
        if not is_known(numbers[place], numbers[count + place]):
            first, last = (g.op("negative", g.op("minimum", numbers[place + k], zero)) for k in (0, count))
            end = g.op("subtract", run_time.whole_number(g, x.shape[axis]), last)
            x = run_time.sliced(g, x, axis, first, end, one)
    added = [number if is_known(number) else g.op("maximum", number, zero) for number in numbers]
    return x, g.sizes(run_time.vector(g, *added), "pads"), along


@importer("Pad")
def _pad_before_11(
    g: GraphBuilder, x: Value, *, pads: tuple[int, ...], mode: str = "constant", value: float = 0.0
) -> Value:
    return _padded(g, x, pads, None, mode, value)


def _padded(
    g: GraphBuilder, x: Value, pads: tuple[Dim, ...], axes: tuple[int, ...] | None, mode: str, value: Any
) -> Value:
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ModelError(f"mode {mode!r} is not one of ONNX's")
    along = range(x.rank) if axes is None else [axis_of(axis, x.rank) for axis in axes]
    if len(pads) != 2 * len(along):
        raise ModelError(f"Pad: expected {2 * len(along)} pads, got {len(pads)}")
    begins: list[Dim] = [0] * x.rank
    ends: list[Dim] = [0] * x.rank
    for place, axis in enumerate(along):
        begins[axis], ends[axis] = pads[place], pads[len(along) + place]
    cut = [isinstance(pad, int) and pad < 0 for pad in (*begins, *ends)]
    if any(cut):  # a negative pad takes elements away
        starts = tuple(-int(pad) if gone else 0 for pad, gone in zip(begins, cut[: x.rank], strict=True))  # type: ignore[arg-type]
        stops = tuple(
            dims.add(length, pad) if gone else length
            for length, pad, gone in zip(x.shape, ends, cut[x.rank :], strict=True)
        )
        x = g.op("slice", x, starts=starts, ends=stops)
    kept = tuple(0 if gone else pad for pad, gone in zip((*begins, *ends), cut, strict=True))
    if mode == "wrap":
        return _wrapped(g, x, kept[: x.rank], kept[x.rank :])
    return g.op("pad", x, pads=kept, mode=mode, value=value)


def _wrapped(g: GraphBuilder, x: Value, begins: tuple[Dim, ...], ends: tuple[Dim, ...]) -> Value:
    """x, with its own elements repeated around it."""
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin == 0 and end == 0:
            continue
        places = g.op("arange", start=dims.multiply(begin, -1), stop=dims.add(x.shape[axis], end))
        x = g.op("take", x, g.op("remainder", places, run_time.whole_number(g, x.shape[axis])), axis=axis)
    return x


@importer("Gather")
def _gather(g: GraphBuilder, x: Value, indices: Value, *, axis: int = 0) -> Value:
    return g.op("take", x, indices, axis=axis)


@importer("GatherElements")
def _gather_elements(g: GraphBuilder, x: Value, indices: Value, *, axis: int = 0) -> Value:
    along = axis_of(axis, x.rank)
    if indices.rank == x.rank and indices.shape != x.shape:
        # the indices may reach over a part of the other axes
        others = tuple(place for place in range(x.rank) if place != along)
        ends = tuple(indices.shape[place] for place in others)
        x = g.op("slice", x, starts=(0,) * len(others), ends=ends, axes=others)
        x = g.checked(x, tuple(x.shape[i] if i == along else dim for i, dim in enumerate(indices.shape)))
    return g.op("take_along_axis", x, indices, axis=axis)


@importer("Trilu")
def trilu(g: GraphBuilder, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    if x.rank < 2:
        raise ModelError(f"expected matrices, got {x.type}")
    diagonal = run_time.whole_number(g, 0 if k is None else k)
    rows = g.op("arange", stop=x.shape[-2])
    if diagonal.elements is not None:
        first = dims.multiply(diagonal.elements.item(), -1)
        columns = g.op("arange", start=first, stop=dims.add(x.shape[-1], first))
    else:
        columns = g.op("subtract", g.op("arange", stop=x.shape[-1]), diagonal)
    rows = g.op("expand_dims", rows, axes=(1,))
    kept = g.op("less_equal" if upper else "greater_equal", rows, columns)
    return g.op("where", kept, x, g.constant(0, x.dtype))


# ---- creation ----


@importer("Constant")
def _constant(
    g: GraphBuilder,
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
) -> Value:
    if value is None:
        value = sparse_value
    if value is not None:
        return constant(value)
    floats = value_float if value_float is not None else value_floats
    if floats is not None:
        return g.constant(floats, DType.float32)
    integers = value_int if value_int is not None else value_ints
    if integers is None:
        raise ModelError("Constant: no value")
    return g.constant(integers, DType.int64)


@importer("ConstantOfShape")
def _constant_of_shape(g: GraphBuilder, shape: Value, *, value: np.ndarray | None = None) -> Value:
    fill = np.zeros(1, np.float32) if value is None else value
    return g.op("full", shape=g.sizes(shape, "dimensions"), value=scalar(fill, "the value"), dtype=DType.of(fill.dtype))


@importer("Shape")
def _shape(g: GraphBuilder, x: Value, *, start: int = 0, end: int = _INT64_MAX) -> Value:
    return g.from_dims(x.shape[start:end])


@importer("Size")
def _size(g: GraphBuilder, x: Value) -> Value:
    return g.from_dims(dims.product(x.shape))


@importer("Range")
def arrange(g: GraphBuilder, start: Value, limit: Value, delta: Value) -> Value:
    if start.dtype.is_float and all(value.constant is not None for value in (start, limit, delta)):
        return _float_range(g, start, limit, delta)
    if start.dtype.is_float or not is_known(start, limit, delta) or _has_symbols(delta):
        scalars = (g.op("reshape", value, shape=()) for value in (start, limit, delta))
        return run_time.arranged(g, *scalars)
    bounds = [*dims_of(start, "bounds"), *dims_of(limit, "bounds"), *dims_of(delta, "steps")]
    if len(bounds) != 3:
        raise ModelError("Range: start, limit and delta must be scalars")
    return g.op("arange", start=bounds[0], stop=bounds[1], step=bounds[2], dtype=start.dtype)


def _has_symbols(value: Value) -> bool:
    return any(isinstance(element, SymbolicDim) for element in dims_of(value, "elements"))


def _float_range(g: GraphBuilder, *bounds: Value) -> Value:
    first, last, step = (scalar(value.constant, "a bound") for value in bounds if value.constant is not None)
    count = np.ceil(np.float64(last - first) / step) if step else np.inf
    if not np.isfinite(count) or count > FOLD_BYTES:
        raise ModelError(f"Range: {first}, {last}, {step} are not bounds of a tensor that Treadle would make")
    count = max(int(count), 0)
    return g.constant(first + np.arange(count) * step, bounds[0].dtype)


@importer("NonZero")
def _non_zero(g: GraphBuilder, x: Value) -> Value:
    return g.op("nonzero", x)
