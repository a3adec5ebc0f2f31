"""Importer of what puts an image together from blocks, which may overlap: Col2Im, PyTorch's `fold`."""

from __future__ import annotations

import functools
import math

from ...formats import dims
from ...formats.dims import Dim
from ...formats.errors import ModelError
from .onnx_shapes import dims_of, integers_of
from .onnx_table import importer
from .onnx_values import GraphBuilder, Value


@importer("Col2Im")
def _col2im(
    g: GraphBuilder,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: tuple[int, ...] = (),
    pads: tuple[int, ...] = (),
    strides: tuple[int, ...] = (),
) -> Value:
    """Blocks of an image, one a column, are put back where they were; where they overlap, their elements are summed."""
    image, block = dims_of(image_shape, "image shape"), integers_of(block_shape, "block shape") or ()
    rank = len(image)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * (2 * rank)
    if x.rank != 3 or {len(block), len(dilations), len(strides), len(pads) // 2} != {rank}:
        raise ModelError(
            f"an input of rank 3, and sizes of as many axes as the image has, are needed, but {x.type} came"
        )
    if min(*block, *dilations, *strides) < 1 or min(pads) < 0:
        raise ModelError(f"blocks {block}, dilations {dilations}, strides {strides} and pads {pads} cannot be")
    starts, ends = pads[:rank], pads[rank:]
    spans = [dilation * (size - 1) + 1 for size, dilation in zip(block, dilations, strict=True)]
    counts = [
        dims.add(dims.floordiv(dims.add(size, start + end - span), stride), 1)
        for size, start, end, span, stride in zip(image, starts, ends, spans, strides, strict=True)
    ]
    outer = (x.shape[0], dims.floordiv(x.shape[1], math.prod(block)))
    x = g.op("reshape", x, shape=(*outer, *block, *counts))
    pairs = [axis for place in range(rank) for axis in (2 + rank + place, 2 + place)]
    x = g.op("permute_dims", x, axes=(0, 1, *pairs))
    for place in reversed(range(rank)):
        x = _overlapped(g, x, 2 + 2 * place, dilations[place], strides[place])
    for place in range(rank):
        x = _cut(g, x, 2 + place, starts[place], image[place])
    return x


def _overlapped(g: GraphBuilder, x: Value, axis: int, dilation: int, stride: int) -> Value:
    """One axis instead of two, of blocks and of the elements of each, which are so far apart; so are the blocks. Blocks are cut
    into pieces that do not overlap: the first ones of all blocks are a row, the second ones another, a stride behind it …"""
    count, size = x.shape[axis : axis + 2]
    assert isinstance(size, int)
    if dilation > 1:
        x = g.op("reshape", x, shape=(*x.shape[: axis + 2], 1, *x.shape[axis + 2 :]))
        x = _padded(g, x, axis + 2, 0, dilation - 1)
        size *= dilation
        x = g.op("reshape", x, shape=(*x.shape[: axis + 1], size, *x.shape[axis + 3 :]))
    pieces = -(-size // stride)
    x = _padded(g, x, axis + 1, 0, pieces * stride - size)
    rows = []
    for i in range(pieces):
        piece = x
        if pieces > 1:
            piece = g.op("slice", x, starts=(i * stride,), ends=((i + 1) * stride,), axes=(axis + 1,))
        row = g.op("reshape", piece, shape=(*x.shape[:axis], dims.multiply(count, stride), *x.shape[axis + 2 :]))
        rows.append(_padded(g, row, axis, i * stride, (pieces - 1 - i) * stride))
    return functools.reduce(lambda a, b: g.op("add", a, b), rows)


def _cut(g: GraphBuilder, x: Value, axis: int, start: int, size: Dim) -> Value:
    """So many elements along an axis, zeros where there are no more."""
    end = dims.add(size, start)
    missing = dims.add(end, dims.multiply(-1, x.shape[axis]))
    if not isinstance(missing, int) or missing > 0:
        x = _padded(g, x, axis, 0, dims.maximum(missing, 0))
    return x if x.shape[axis] == size else g.op("slice", x, starts=(start,), ends=(end,), axes=(axis,))


def _padded(g: GraphBuilder, x: Value, axis: int, before: Dim, behind: Dim) -> Value:
    if before == behind == 0:
        return x
    zeros = (0,) * (x.rank - 1 - axis)
    return g.op("pad", x, pads=(*(0,) * axis, before, *zeros, *(0,) * axis, behind, *zeros))
