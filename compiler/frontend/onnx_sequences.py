"""Importers of sequences of tensors, whose lengths and places are known while a model is imported: they vanish."""

from __future__ import annotations

import numpy as np

from ...formats.errors import ModelError
from ..operators.shapes import axis_of
from .onnx_shapes import concatenated, dims_of, integers_of, parts_of
from .onnx_table import importer
from .onnx_values import GraphBuilder, TensorSequence, UnsupportedError, Value


@importer("SequenceEmpty")
def _empty(g: GraphBuilder, *, dtype: int = 1) -> TensorSequence:
    return TensorSequence()


@importer("SequenceConstruct")
def _construct(g: GraphBuilder, *tensors: Value) -> TensorSequence:
    return TensorSequence(tensors)


@importer("SplitToSequence")
def _split(
    g: GraphBuilder, x: Value, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> TensorSequence:
    """Into parts of the sizes that `split` tells, of the one size that it tells, or of one element each."""
    along = axis_of(axis, x.rank)
    length = x.shape[along]
    sizes = (1,) if split is None else dims_of(split, "sizes")
    if split is None or split.rank == 0:
        each = sizes[0]
        if not isinstance(length, int) or not isinstance(each, int):
            raise UnsupportedError("the number of its parts depends on the sizes of the inputs")
        if each < 1:
            raise ModelError(f"parts of {each} elements")
        sizes = tuple(min(each, length - begin) for begin in range(0, length, each))
    parts = parts_of(g, x, axis, sizes) if sizes else ()
    if split is None and not keepdims:
        parts = tuple(g.op("squeeze", part, axes=(along,)) for part in parts)
    return TensorSequence(parts)


@importer("SequenceAt")
def _at(g: GraphBuilder, sequence: TensorSequence, position: Value) -> Value:
    return sequence.tensors[_place(position, len(sequence.tensors), len(sequence.tensors) - 1)]


@importer("SequenceInsert")
def _insert(g: GraphBuilder, sequence: TensorSequence, tensor: Value, position: Value | None = None) -> TensorSequence:
    count = len(sequence.tensors)
    place = count if position is None else _place(position, count, count)
    return TensorSequence((*sequence.tensors[:place], tensor, *sequence.tensors[place:]))


@importer("SequenceErase")
def _erase(g: GraphBuilder, sequence: TensorSequence, position: Value | None = None) -> TensorSequence:
    count = len(sequence.tensors)
    if not count:
        raise ModelError("a tensor of an empty sequence")
    place = count - 1 if position is None else _place(position, count, count - 1)
    return TensorSequence((*sequence.tensors[:place], *sequence.tensors[place + 1 :]))


@importer("SequenceLength")
def _length(g: GraphBuilder, sequence: TensorSequence) -> Value:
    return g.constant(np.int64(len(sequence.tensors)))


@importer("ConcatFromSequence")
def _concat(g: GraphBuilder, sequence: TensorSequence, *, axis: int, new_axis: int = 0) -> Value:
    if not sequence.tensors:
        raise ModelError("the tensors of an empty sequence are joined")
    if new_axis:
        return g.op("stack", *g.aligned(sequence.tensors), axis=axis)
    return concatenated(g, *sequence.tensors, axis=axis)


def _place(position: Value, count: int, last: int) -> int:
    """A place up to the `last` of a sequence of so many tensors, counted from the end if it is negative."""
    (place,) = integers_of(position, "position") or (0,)
    if not -count <= place <= last:
        raise ModelError(f"place {place} of a sequence of {count} tensors")
    return place + count if place < 0 else place
