"""Importers of operators that look up, put in place, sort and sum up along an axis; and of Einstein's summation."""

from __future__ import annotations

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...builder.einsum import einsum, parsed
from ...operators.shapes import axis_of
from ..sizes_of_run import along_axis, numbered, whole_number
from ..table import importer
from ..tensors import element_type
from ..values import GraphBuilder, LengthError, Value


def _register_running(name: str, operator: str) -> None:
    @importer(name)
    def imported(g: GraphBuilder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
        if axis.shape not in ((), (1,)):
            raise ModelError(f"{name}: expected one axis, got {axis.type}")
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
def gather_nd(g: GraphBuilder, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    if 0 < batch_dims <= min(x.rank, indices.rank):
        x, indices = g.same_sizes((x, indices), range(batch_dims))
    if indices.rank and not isinstance(indices.shape[-1], int):
        raise LengthError(indices, "indices of each place")
    return g.op("gather_nd", x, indices, batch_axes=batch_dims)


@importer("ScatterND")
def _scatter_nd(g: GraphBuilder, x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    depth = indices.shape[-1] if indices.rank else None
    if depth is not None and not isinstance(depth, int) and (told := indices.rank - 1 + x.rank - updates.rank) >= 0:
        depth, indices = told, g.checked(indices, (*indices.shape[:-1], told))
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
        raise ModelError(f"expected sequences along the first two axes and a length for each, got {x.type}")
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
        raise ModelError(f"expected a matrix, got {x.type}")
    rows = g.op("expand_dims", g.op("arange", stop=x.shape[0]), axes=(1,))
    columns = g.op("arange", start=-k, stop=dims.add(x.shape[1], -k))
    kind = x.dtype if dtype is None else element_type(dtype)
    return g.op("cast", g.op("equal", rows, columns), dtype=kind)


# ---- Einstein's summation ----


@importer("Einsum")
def _einsum(g: GraphBuilder, *operands: Value, equation: str) -> Value:
    terms, _ = parsed(equation, [operand.rank for operand in operands])
    return einsum(g, g.meeting(operands, terms), equation)
