"""Importers of sequences of tensors. Those whose lengths and places are known while a model is imported vanish; others are values
of the program (`onnx/held.py`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....formats.dims import Dim, SymbolicDim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ....formats.types import TensorType, TupleType
from ... import effort, ir
from ...operators.shapes import axis_of
from ..held import bound, construct, element_at, erased, held, inserted, joined_tensors, length
from ..held_types import of_rank, sequence_of
from ..table import importer
from ..tensors import element_type
from ..values import KINDS, AnyRank, AnySequence, GraphBuilder, HeldSequence, Imported, TensorSequence, Value, present
from .shapes import concatenated, integers_of, parts_of


@importer("SequenceEmpty")
def _empty(g: GraphBuilder, *, dtype: int = 1) -> TensorSequence:
    return TensorSequence((), element_type(dtype))


@importer("SequenceConstruct")
def _construct(g: GraphBuilder, *tensors: Imported) -> TensorSequence:
    return TensorSequence(tuple(map(_tensor, tensors)))


def _tensor(value: Imported) -> Value | AnyRank:
    if not isinstance(value, (Value, AnyRank)):
        raise ModelError(f"expected a tensor, got a {KINDS[type(value)]}")
    return value


@importer("SplitToSequence")
def _split(g: GraphBuilder, x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1) -> AnySequence:
    """Into parts of the sizes that `split` tells, of the one size that it tells, or of one element each."""
    along = axis_of(axis, x.rank)
    length = x.shape[along]
    if split is None or split.rank == 0:
        (each,) = (1,) if split is None else g.sizes(split, "sizes")
        if not isinstance(length, int) or not isinstance(each, int):
            return _cut(g, x, along, each, split is None and not keepdims)
        if each < 1:
            raise ModelError(f"parts of {each} elements")
        effort.spend(effort.NODE_UNITS * -(-length // each), g.origin)
        sizes: tuple[Dim, ...] = tuple(min(each, length - begin) for begin in range(0, length, each))
    elif not split.type.is_static:
        return _cut_by_sizes(g, x, along, split)
    else:
        sizes = g.sizes(split, "sizes")
    parts = parts_of(g, x, along, sizes) if sizes else ()
    if split is None and not keepdims:
        parts = tuple(g.op("squeeze", part, axes=(along,)) for part in parts)
    return TensorSequence(parts, x.dtype)


def _cut(g: GraphBuilder, x: Value, axis: int, each: Dim, squeeze: bool) -> HeldSequence:
    """Parts of `each` elements along an axis, the last one of what is left."""
    length, size = g.from_dims(x.shape[axis]), g.from_dims(each)
    count = g.op("floor_divide", g.op("subtract", g.op("add", length, size), g.constant(1, DType.int64)), size)

    def bounds(number: Value) -> tuple[Value, Value]:
        begin = g.op("multiply", number, size)
        return begin, g.op("minimum", g.op("add", begin, size), length)

    return _parts(g, x, axis, count, bounds, squeeze)


def _cut_by_sizes(g: GraphBuilder, x: Value, axis: int, split: Value) -> HeldSequence:
    """Parts of sizes whose number is known only at run time. The run fails if one is below 0, or their sum is wrong."""
    if split.rank != 1:
        raise ModelError(f"the sizes of the parts must be a vector, got {split.type}")
    sizes = g.op("cast", split, dtype=DType.int64) if split.dtype is not DType.int64 else split
    (whole,) = g.sizes(g.op("sum", sizes), "sizes")
    x = g.checked(x, (*x.shape[:axis], whole, *x.shape[axis + 1 :]))
    ends = g.op("cumulative_sum", sizes, axis=0)

    def bounds(number: Value) -> tuple[Value, Value]:
        end = g.op("take", ends, number, axis=0)
        (size,) = g.sizes(g.op("take", sizes, number, axis=0), "sizes")
        return g.op("subtract", end, g.from_dims(np.array(size, object))), end

    return _parts(g, x, axis, g.from_dims(np.array(split.shape[0], object)), bounds, False)


def _parts(
    g: GraphBuilder, x: Value, axis: int, count: Value, bounds: Callable[[Value], tuple[Value, Value]], squeeze: bool
) -> HeldSequence:
    """So many parts of x along an axis: a loop from the end, since that is where a list is made from."""
    int64, type_ = TensorType(DType.int64, ()), sequence_of(of_rank(x.dtype, x.rank - squeeze))
    left, made = ir.Var("left", int64), ir.Var("made", type_)
    zero, one = g.constant(0, DType.int64), g.constant(1, DType.int64)
    with g.block() as before:
        is_left = g.atom(g.op("greater", Value(int64, left), zero))
        condition = ir.Block(tuple(before), is_left)
    with g.block() as bindings:
        fewer = g.op("subtract", Value(int64, left), one)
        begin, end = bounds(fewer)
        (first,), (behind,) = g.sizes(begin, "sizes"), g.sizes(end, "sizes")
        part = g.op("slice", x, starts=(first,), ends=(behind,), axes=(axis,))
        if squeeze:
            part = g.op("squeeze", g.checked(part, (*part.shape[:axis], 1, *part.shape[axis + 1 :])), axes=(axis,))
        longer = construct(g, type_, 1, g.atom(part), made)
        next_ = ir.Var("next", TupleType((int64, type_)))
        bindings.append(ir.Binding(next_, ir.MakeTuple((g.atom(fewer), longer)), g.origin))
        body = ir.Block(tuple(bindings), next_)
    initial = (g.atom(count), construct(g, type_, 0))
    last = ir.Var(g.hint, TupleType((int64, type_)))
    g.bindings.append(ir.Binding(last, ir.Loop((left, made), initial, condition, body), g.origin))
    found = bound(g, ir.GetItem(last, 1), type_)
    assert isinstance(found, HeldSequence)
    return found


@importer("SequenceAt")
def _at(g: GraphBuilder, sequence: AnySequence, position: Value) -> Imported:
    if isinstance(sequence, HeldSequence) or not _is_known(position):
        return element_at(g, held(g, sequence), position)
    return sequence.tensors[_place(position, len(sequence.tensors), len(sequence.tensors) - 1)]


@importer("SequenceInsert")
def _insert(g: GraphBuilder, sequence: AnySequence, tensor: Imported, position: Value | None = None) -> AnySequence:
    tensor = _tensor(tensor)
    if isinstance(sequence, HeldSequence) or not _is_known(position):
        return inserted(g, sequence, tensor, position)
    count = len(sequence.tensors)
    place = count if position is None else _place(position, count, count)
    return TensorSequence((*sequence.tensors[:place], tensor, *sequence.tensors[place:]))


@importer("SequenceErase")
def _erase(g: GraphBuilder, sequence: AnySequence, position: Value | None = None) -> AnySequence:
    if isinstance(sequence, HeldSequence) or not _is_known(position):
        return erased(g, held(g, sequence), position)
    count = len(sequence.tensors)
    if not count:
        raise ModelError("a tensor of an empty sequence")
    place = count - 1 if position is None else _place(position, count, count - 1)
    return TensorSequence((*sequence.tensors[:place], *sequence.tensors[place + 1 :]), sequence.dtype)


@importer("SequenceLength")
def _length(g: GraphBuilder, sequence: AnySequence) -> Value:
    if isinstance(sequence, HeldSequence):
        return length(g, sequence)
    return g.constant(np.int64(len(sequence.tensors)))


@importer("ConcatFromSequence")
def _concat(g: GraphBuilder, sequence: AnySequence, *, axis: int, new_axis: int = 0) -> Imported:
    if isinstance(sequence, HeldSequence) or any(isinstance(tensor, AnyRank) for tensor in sequence.tensors):
        return joined_tensors(g, held(g, sequence), axis, bool(new_axis))
    if not sequence.tensors:
        raise ModelError("the tensors of an empty sequence are joined")
    tensors = present(sequence.tensors)
    if new_axis:
        return g.op("stack", *g.same_sizes(tensors, range(tensors[0].rank)), axis=axis)
    return concatenated(g, *tensors, axis=axis)


def _is_known(position: Value | None) -> bool:
    return position is None or (
        position.elements is not None and not isinstance(position.elements.flat[0], SymbolicDim)
    )


def _place(position: Value, count: int, last: int) -> int:
    """A place up to the `last` of a sequence of `count` tensors, counted from the end if it is negative."""
    (place,) = integers_of(position, "position") or (0,)
    if not -count <= place <= last:
        raise ModelError(f"place {place} of a sequence of {count} tensors")
    return place + count if place < 0 else place
