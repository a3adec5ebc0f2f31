"""Sorting, and the first few."""

from __future__ import annotations

from typing import Any

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ..ty import dtype_name
from .dynamic import sizes_of
from .table import Tensor, as_dims, axis_of, behind, operator, shape_of, type_of


def _sorted(data: Expression, axis: int, ascending: bool) -> tuple[Expression, Expression]:
    data, shape = shape_of(data)
    values, places = op.top_k(data, k=shape[axis_of(data, axis)], axis=axis_of(data, axis), largest=not ascending)
    return values, places


@operator("sort")
def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Expression:
    """The elements along an axis in order."""
    return _sorted(data, axis, bool(is_ascend))[0]


@operator("argsort")
def argsort(data: Tensor, axis: int = -1, is_ascend: bool = True, dtype: str = "int32") -> Expression:
    """The places of the elements along an axis in their order."""
    return op.cast(_sorted(data, axis, bool(is_ascend))[1], dtype=dtype_name(dtype))


def _count(bound: dict[str, Any]) -> int | None:
    return 2 if bound["ret_type"] == "both" else None


@operator("topk", results=_count)  # type: ignore[arg-type]
def topk(
    data: Tensor, k: Any = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int32"
) -> Expression:
    """The k first elements along an axis in order, the largest first; their places; or both. Below 1, k is all."""
    along = axis_of(data, axis)
    known = as_dims(k)
    if known is None:
        wide, size = op.cast(k, dtype="int64"), op.take(op.shape(data), programs.constant(along), axis=0)
        waits, known = sizes_of(op.reshape(op.where(op.less(wide, programs.constant(1)), size, wide), shape=(1,)))
        values, places = _few(data, waits, known[0], along, bool(is_ascend))
    else:
        count = known[0]
        if isinstance(count, int) and count < 1:
            data, shape = shape_of(data)
            count = shape[along]
        values, places = op.top_k(data, k=count, axis=along, largest=not is_ascend)
    places = op.cast(places, dtype=dtype_name(dtype))
    return {"values": values, "indices": places}.get(ret_type, programs.tuple_(values, places))


def _few(data: Expression, waits: list[Expression], count: Any, axis: int, ascending: bool) -> list[Expression]:
    values, places = _sorted(data, axis, ascending)
    ones = behind("broadcast_to", programs.constant(1), waits, shape=(count,))
    first = op.cumulative_sum(ones, axis=0, exclusive=True)
    return [op.take(each, first, axis=axis) for each in (values, places)]


@operator("searchsorted")
def searchsorted(sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: str = "int32") -> Expression:
    """Where values would go into sequences that are sorted: how many elements are less, or, `right`, not greater."""
    before = op.less_equal if right else op.less
    rank = len(type_of(sorted_sequence).shape)
    wide = op.expand_dims(values, axes=(len(type_of(values).shape),))
    sequence = op.expand_dims(sorted_sequence, axes=(rank - 1,)) if rank > 1 else sorted_sequence
    return op.sum(op.cast(before(sequence, wide), dtype=dtype_name(dtype)), axes=(-1,))
