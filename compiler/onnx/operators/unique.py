"""Importer of Unique: the elements of x, or its slices along an axis, each once."""

from __future__ import annotations

from ....formats import dims
from ....formats.dtypes import DType
from ...operators.shapes import axis_of
from ..sizes_of_run import numbered, whole_number
from ..table import importer
from ..values import GraphBuilder, Value


@importer("Unique")
def _unique(g: GraphBuilder, x: Value, *, axis: int | None = None, sorted: int = 1) -> tuple[Value, ...]:
    return unique(g, x, axis=axis, sorted=sorted)[: g.output_count]


def unique(g: GraphBuilder, x: Value, *, axis: int | None = None, sorted: int = 1) -> tuple[Value, Value, Value, Value]:
    """The slices, where each one first occurs, which of them each slice of x is, and how often each occurs.

    Rows are put in order; where one differs from that before it, a new one begins. With `sorted` = 0 they stand as they first
    occurs."""
    kind = x.dtype
    if kind is DType.bool or not kind.is_numpys:
        x = g.op("cast", x, dtype=DType.uint8 if kind is DType.bool else DType.float32)
    along = 0 if axis is None else axis_of(axis, x.rank)
    order_of_axes = (along, *(place for place in range(x.rank) if place != along))
    rows = (
        g.op("reshape", x, shape=(dims.product(x.shape),))
        if axis is None
        else g.op("permute_dims", x, axes=order_of_axes)
    )
    inner = rows.shape[1:]
    count = rows.shape[0]
    flat = rows if axis is None else g.op("reshape", rows, shape=(count, dims.product(inner)))
    is_vector = all(dim == 1 for dim in flat.shape[1:])
    order = (
        g.ops("top_k", g.op("reshape", flat, shape=(count,)), k=count, axis=0, largest=False)[1]
        if is_vector
        else g.op("lexicographic_order", flat)
    )
    ordered = g.op("take", flat, order, axis=0)
    begins = _begins(g, ordered)
    group = g.op(
        "subtract", g.op("cumulative_sum", g.op("cast", begins, dtype=DType.int64), axis=0), whole_number(g, 1)
    )
    found = g.op("nonzero", begins)
    firsts = g.op("reshape", found, shape=found.shape[1:])
    number = firsts.shape[0]
    values, places = g.op("take", ordered, firsts, axis=0), g.op("take", order, firsts, axis=0)
    behind = g.op("slice", firsts, starts=(1,), ends=(number,))
    last = g.op("full", shape=(dims.minimum(number, 1),), value=0, dtype=DType.int64)
    ends = g.op("concat", behind, g.op("add", last, whole_number(g, count)), axis=0)
    counts = g.op("subtract", g.checked(ends, (number,)), firsts)
    inverse = g.op("put_along_axis", g.op("full", shape=(count,), value=0, dtype=DType.int64), order, group, axis=0)
    if not sorted:
        again = g.ops("top_k", places, k=number, axis=0, largest=False)[1]
        values, places, counts = (g.op("take", each, again, axis=0) for each in (values, places, counts))
        moved = g.op("put_along_axis", numbered(g, number), again, numbered(g, number), axis=0)
        inverse = g.op("take", moved, inverse, axis=0)
    if axis is not None:
        values = g.op("reshape", values, shape=(number, *inner))
        values = g.op("permute_dims", values, axes=tuple(map(order_of_axes.index, range(x.rank))))
    values = g.op("cast", values, dtype=kind) if kind is not values.dtype else values
    return values, places, inverse, counts


def _begins(g: GraphBuilder, rows: Value) -> Value:
    """Which rows differ from those before them; the first one does. A NaN is as another one."""
    count = rows.shape[0]
    this = g.op("slice", rows, starts=(1,), ends=(count,))
    before = g.op("slice", rows, starts=(0,), ends=(dims.maximum(dims.add(count, -1), 0),))
    before = g.checked(before, this.shape)
    differs = g.op("not_equal", this, before)
    if rows.dtype.is_float:
        both = g.op("logical_and", g.op("isnan", this), g.op("isnan", before))
        differs = g.op("logical_and", differs, g.op("logical_not", both))
    differs = g.op("any", differs, axes=(1,)) if rows.rank > 1 else differs
    first = g.op("full", shape=(dims.minimum(count, 1),), value=True, dtype=DType.bool)
    return g.checked(g.op("concat", first, differs, axis=0), (count,))
