"""Importer of what puts an image together from blocks, which may overlap: Col2Im, PyTorch's `fold`."""

from __future__ import annotations

from ...formats.errors import ModelError
from ..operators.windows import axes, result_shape
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
    counts = result_shape(image, axes(block, strides, pads, dilations))
    apart = g.op("reshape", x, shape=(*x.shape[:2], *counts))
    steps = {"strides": strides, "dilations": dilations, "starts": pads[:rank]}
    return g.op("col2im", apart, shape=image, kernel=block, **steps)
