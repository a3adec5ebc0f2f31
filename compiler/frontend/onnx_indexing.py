"""Importers of operators that look up, put in place, sort and sum up along an axis; and of Einstein's summation."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

from ...formats import dims
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.errors import ModelError
from ..operators.shapes import axis_of
from .onnx_run_time import along_axis, numbered, whole_number
from .onnx_table import importer
from .onnx_tensors import element_type
from .onnx_values import GraphBuilder, Value


def _register_running(name: str, operator: str) -> None:
    @importer(name)
    def imported(g: GraphBuilder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
        if axis.shape not in ((), (1,)):
            raise ModelError(f"{name}: one axis is needed, but {axis.type} came")
        options = {"exclusive": bool(exclusive), "reverse": bool(reverse)}
        return along_axis(g, x, axis, lambda x, axis: g.op(operator, x, axis=axis, **options))


_register_running("CumSum", "cumulative_sum")
_register_running("CumProd", "cumulative_prod")


@importer("TopK", since=10)
def _top_k(
    g: GraphBuilder, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, ...]:
    counts = g.sizes(k, "numbers of elements")
    if len(counts) != 1:
        raise ModelError("TopK: one number of elements is needed")
    return _best(g, x, counts[0], axis, bool(largest), bool(sorted))


@importer("TopK")
def _top_k_before_10(g: GraphBuilder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    return _best(g, x, k, axis)


def _best(g: GraphBuilder, x: Value, k: Dim, axis: int, largest: bool = True, sorted: bool = True) -> tuple[Value, ...]:
    """The k greatest or least elements along an axis, and their places."""
    if k == 1 and largest:  # argmax too takes the first of equal elements, and NaN as the greatest
        place = g.op("argmax", x, axis=axis, keepdims=True)
        return g.op("take_along_axis", x, place, axis=axis), place
    return g.ops("top_k", x, k=k, axis=axis, largest=largest, sorted=sorted)


@importer("GatherND")
def _gather_nd(g: GraphBuilder, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    if 0 < batch_dims <= min(x.rank, indices.rank):
        x, indices = g.same_sizes((x, indices), range(batch_dims))
    return g.op("gather_nd", x, indices, batch_axes=batch_dims)


@importer("ScatterND")
def _scatter_nd(g: GraphBuilder, x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    depth = indices.shape[-1] if indices.rank else None
    if isinstance(depth, int) and updates.rank == indices.rank - 1 + x.rank - depth:
        updates = g.checked(updates, (*indices.shape[:-1], *x.shape[depth:]))
    return g.op("scatter_nd", x, indices, updates, reduction=reduction)


@importer("TensorScatter")
def _tensor_scatter(
    g: GraphBuilder, x: Value, updates: Value, starts: Value | None = None, *, axis: int = -2, mode: str = "linear"
) -> Value:
    """A cache, updates put in along an axis: of each row of the batch from its own place on. A circular one goes on at 0."""
    along = axis_of(axis, x.rank)
    if mode not in ("linear", "circular") or along == 0 or updates.rank != x.rank:
        raise ModelError(f"TensorScatter: mode {mode!r}, axis {axis} of {x.type} and {updates.type}")
    updates = g.checked(updates, (*x.shape[:along], updates.shape[along], *x.shape[along + 1 :]))
    steps = numbered(g, updates.shape[along])
    if starts is not None:
        first = g.op("expand_dims", g.op("cast", starts, dtype=DType.int64), axes=(1,))
        steps = g.op("add", g.checked(first, (x.shape[0], 1)), steps)
        steps = g.op("remainder", steps, whole_number(g, x.shape[along])) if mode == "circular" else steps
        steps = g.op("expand_dims", steps, axes=tuple(range(1, along)))
    steps = g.op("expand_dims", steps, axes=tuple(range(steps.rank, steps.rank + x.rank - along - 1)))
    places = g.op("broadcast_to", steps, shape=updates.shape)
    return g.op("put_along_axis", x, places, updates, axis=along)


@importer("Det")
def _det(g: GraphBuilder, x: Value) -> Value:
    return g.op("determinant", x)


@importer("ScatterElements", "Scatter")
def _scatter_elements(
    g: GraphBuilder, x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    if updates.rank == indices.rank:
        updates = g.checked(updates, indices.shape)
    return g.op("put_along_axis", x, indices, updates, axis=axis, reduction=reduction)


@importer("Compress", since=9)
def _compress(g: GraphBuilder, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    """The elements along an axis, or of all of x, for which a condition is told and true."""
    if axis is None:
        x, axis = g.op("reshape", x, shape=(dims.product(x.shape),)), 0
    places = g.op("nonzero", condition)
    return g.op("take", x, g.op("reshape", places, shape=places.shape[1:]), axis=axis)


@importer("ReverseSequence")
def _reverse_sequence(g: GraphBuilder, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0) -> Value:
    """The first steps of each sequence, as many as it has, from its last one to its first."""
    if x.rank < 2 or {batch_axis, time_axis} != {0, 1} or lengths.rank != 1:
        raise ModelError(f"sequences along the first two axes and a length for each are needed, but {x.type} came")
    steps = g.op("expand_dims", g.op("arange", stop=x.shape[time_axis]), axes=(batch_axis,))
    count = g.op("expand_dims", g.op("cast", lengths, dtype=DType.int64), axes=(time_axis,))
    last = g.op("subtract", count, g.constant(1, DType.int64))
    places = g.broadcast("where", g.broadcast("less", steps, count), g.broadcast("subtract", last, steps), steps)
    places = g.checked(places, x.shape[:2])
    whole = g.op("broadcast_to", g.op("expand_dims", places, axes=tuple(range(2, x.rank))), shape=x.shape)
    return g.op("take_along_axis", x, whole, axis=time_axis)


@importer("OneHot")
def _one_hot(g: GraphBuilder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """A negative index counts from the end; one that is out of range is nowhere hot."""
    (count,) = g.sizes(depth, "depths")
    rank = indices.rank + 1
    along = axis_of(axis, rank)
    whole = g.op("cast", indices, dtype=DType.int64)
    length = g.from_dims(count) if isinstance(count, int) else g.op("reshape", g.from_dims([count]), shape=())
    behind = g.op("add", whole, length)
    whole = g.op("where", g.op("less", whole, g.constant(0, DType.int64)), behind, whole)
    places = g.op("reshape", g.op("arange", stop=count), shape=(count, *(1,) * (rank - along - 1)))
    hot = g.op("equal", g.op("expand_dims", whole, axes=(along,)), places)
    off, on = (g.op("reshape", part, shape=()) for part in g.ops("split", values, axis=0, sizes=(1, 1)))
    return g.op("where", hot, on, off)


@importer("EyeLike")
def _eye_like(g: GraphBuilder, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    if x.rank != 2:
        raise ModelError(f"a matrix is needed, but {x.type} came")
    rows = g.op("expand_dims", g.op("arange", stop=x.shape[0]), axes=(1,))
    columns = g.op("arange", start=-k, stop=dims.add(x.shape[1], -k))
    kind = x.dtype if dtype is None else element_type(dtype)
    return g.op("cast", g.op("equal", rows, columns), dtype=kind)


# ---- Einstein's summation ----


@importer("Einsum")
def _einsum(g: GraphBuilder, *operands: Value, equation: str) -> Value:
    """A product of matrices at a time, from left to right: what is summed is summed as soon as nothing else needs it."""
    terms, result = _parsed(equation, [operand.rank for operand in operands])
    operands, terms = zip(*map(functools.partial(_without_diagonals, g), operands, terms), strict=True)  # type: ignore[assignment]
    value, labels = operands[0], terms[0]
    for number, operand in enumerate(operands[1:], 1):
        needed = set(result).union(*terms[number + 1 :])
        value, labels = _contracted(g, value, labels, operand, terms[number], needed)
    value, labels = _summed(g, value, labels, set(result))
    return _permuted(g, value, labels, result)


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The labels of the operands' axes, and of the result's. Axes under an ellipsis get labels that are no letters."""
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise ModelError(f"Einsum: {equation!r} names {len(terms)} operands, but {len(ranks)} came")
    hidden = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    ellipsis = "".join(chr(0x2460 + i) for i in range(max(hidden, 0)))
    for place, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        before, dots, behind = term.partition("...")
        missing = rank - len(before) - len(behind)
        if missing < 0 or (missing and not dots):
            raise ModelError(f"Einsum: {term!r} of {equation!r} does not fit an operand of rank {rank}")
        terms[place] = before + ellipsis[len(ellipsis) - missing :] + behind if missing else before + behind
    if arrow:
        return terms, output.replace("...", ellipsis)
    counts = Counter("".join(terms))
    letters = sorted(label for label, count in counts.items() if count == 1 and label not in ellipsis)
    return terms, ellipsis + "".join(letters)


def _without_diagonals(g: GraphBuilder, value: Value, labels: str) -> tuple[Value, str]:
    """What a label that is there twice, or more often, leaves: the elements at the same place of these axes."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            others = [axis for axis in range(value.rank) if axis not in (first, second)]
            size = value.shape[first]
            value = g.checked(value, (*value.shape[:second], size, *value.shape[second + 1 :]))
            moved = g.op("permute_dims", value, axes=(*others, first, second))
            flat = g.op("reshape", moved, shape=(*moved.shape[:-2], dims.multiply(size, size)))
            places = g.op("multiply", numbered(g, size), whole_number(g, dims.add(size, 1)))
            value = g.op("take", flat, places, axis=-1)
            labels = "".join(labels[axis] for axis in others) + label
    return value, labels


def _summed(g: GraphBuilder, value: Value, labels: str, needed: set[str]) -> tuple[Value, str]:
    """Without the axes that nothing needs."""
    gone = tuple(axis for axis, label in enumerate(labels) if label not in needed)
    if not gone:
        return value, labels
    return g.op("sum", value, axes=gone), "".join(label for label in labels if label in needed)


def _permuted(g: GraphBuilder, value: Value, labels: str, wanted: str) -> Value:
    if sorted(labels) != sorted(wanted):
        raise ModelError(f"Einsum: the result's axes {wanted!r} are not those that are left, {labels!r}")
    order = tuple(labels.index(label) for label in wanted)
    return value if order == tuple(range(len(order))) else g.op("permute_dims", value, axes=order)


def _contracted(g: GraphBuilder, a: Value, of_a: str, b: Value, of_b: str, needed: set[str]) -> tuple[Value, str]:
    """Two operands as a product of matrices [batch …, rows, depth] and [batch …, depth, columns]."""
    a, of_a = _summed(g, a, of_a, needed | set(of_b))
    b, of_b = _summed(g, b, of_b, needed | set(of_a))
    batch = "".join(label for label in of_a if label in of_b and label in needed)
    depth = "".join(label for label in of_a if label in of_b and label not in needed)
    rows = "".join(label for label in of_a if label not in of_b)
    columns = "".join(label for label in of_b if label not in of_a)
    sizes = dict(zip(of_a, a.shape, strict=True))
    b = g.checked(b, tuple(_joint(sizes.get(label, dim), dim) for label, dim in zip(of_b, b.shape, strict=True)))
    for label, dim in zip(of_b, b.shape, strict=True):
        sizes[label] = dim if sizes.get(label, 1) == 1 else sizes[label]
    labels = batch + rows + columns

    def parted(value: Value, own: str, *parts: str) -> Value:
        """The operand with its axes in order, those of each part as one."""
        moved = _permuted(g, value, own, batch + "".join(parts))
        shape = dict(zip(own, value.shape, strict=True))
        merged = [dims.product(shape[label] for label in part) for part in parts]
        return g.op("reshape", moved, shape=(*(shape[label] for label in batch), *merged))

    if depth:
        product = g.op("matmul", parted(a, of_a, rows, depth), parted(b, of_b, depth, columns))
    else:
        product = g.op("multiply", parted(a, of_a, rows, ""), parted(b, of_b, "", columns))
    return g.op("reshape", product, shape=tuple(sizes[label] for label in labels)), labels


def _joint(a: Dim, b: Dim) -> Dim:
    """What a dimension is that should be another: 1 is repeated."""
    return b if a == 1 or b == 1 else a
