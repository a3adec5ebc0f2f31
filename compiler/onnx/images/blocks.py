"""Importer of what puts an image together from blocks, which may overlap: Col2Im, PyTorch's `fold`."""

from __future__ import annotations

from collections.abc import Sequence

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.windows import axes, result_shape
from ..operators.shapes import dims_of, integers_of
from ..sizes_of_run import is_known, numbered, whole_number
from ..table import importer
from ..values import GraphBuilder, Value


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
    if not is_known(image_shape, block_shape):
        return _summed_at_places(g, x, image_shape, block_shape, dilations, pads, strides)
    image, block = dims_of(image_shape, "image shape"), integers_of(block_shape, "block shape") or ()
    rank = len(image)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * (2 * rank)
    if x.rank != 3 or {len(block), len(dilations), len(strides), len(pads) // 2} != {rank}:
        raise ModelError(f"expected an input of rank 3, and one size for each axis of the image, got {x.type}")
    if min(*block, *dilations, *strides) < 1 or min(pads) < 0:
        raise ModelError(f"blocks {block}, dilations {dilations}, strides {strides} and pads {pads} cannot be")
    counts = result_shape(image, axes(block, strides, pads, dilations))
    apart = g.op("reshape", x, shape=(*x.shape[:2], *counts))
    steps = {"strides": strides, "dilations": dilations, "starts": pads[:rank]}
    return g.op("col2im", apart, shape=image, kernel=block, **steps)


def _summed_at_places(
    g: GraphBuilder,
    x: Value,
    image_shape: Value,
    block_shape: Value,
    dilations: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
) -> Value:
    """The same with sizes known only at run time: each element is added in its place or, outside the image, in a spare one."""
    image, block = g.sizes(image_shape, "sizes"), g.sizes(block_shape, "sizes")
    rank = len(image)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * (2 * rank)
    if x.rank != 3 or {len(block), len(dilations), len(strides), len(pads) // 2} != {rank}:
        raise ModelError(f"expected an input of rank 3, and one size for each axis of the image, got {x.type}")
    reach = [dims.add(dims.multiply(dims.add(size, -1), step), 1) for size, step in zip(block, dilations, strict=True)]
    counts = [
        dims.add(
            dims.floordiv(dims.add(dims.add(size, pads[k] + pads[k + rank]), dims.multiply(reach[k], -1)), strides[k]),
            1,
        )
        for k, size in enumerate(image)
    ]
    elements, columns = dims.product(block), dims.product(counts)
    channels = dims.floordiv(x.shape[1], elements)
    places = inside = None
    for k, size in enumerate(image):
        own = _places(g, block[k], counts[k], dilations[k], strides[k], pads[k])
        shape: list[Dim] = [1] * (2 * rank)
        shape[k], shape[k + rank] = block[k], counts[k]
        own = g.op("reshape", own, shape=tuple(shape))
        long = whole_number(g, size)
        is_in = g.op("logical_and", g.op("greater_equal", own, g.constant(0, DType.int64)), g.op("less", own, long))
        places = own if places is None else g.op("add", g.op("multiply", places, long), own)
        inside = is_in if inside is None else g.op("logical_and", inside, is_in)
    assert places is not None
    assert inside is not None
    behind = dims.product(image)
    places = g.op("where", inside, places, whole_number(g, behind))
    planes, flat = dims.multiply(x.shape[0], channels), dims.multiply(elements, columns)
    places = g.op("broadcast_to", g.op("reshape", places, shape=(1, flat)), shape=(planes, flat))
    room = g.op("full", shape=(planes, dims.add(behind, 1)), value=0, dtype=x.dtype)
    summed = g.op("put_along_axis", room, places, g.op("reshape", x, shape=(planes, flat)), axis=1, reduction="add")
    summed = g.checked(g.op("slice", summed, starts=(0,), ends=(behind,), axes=(1,)), (planes, behind))
    return g.op("reshape", summed, shape=(x.shape[0], channels, *image))


def _places(g: GraphBuilder, block: Dim, count: Dim, dilation: int, stride: int, pad: int) -> Value:
    """Where along an axis of the image the elements of the blocks lie: [block, count]."""
    inner = g.op("multiply", numbered(g, block), g.constant(dilation, DType.int64))
    outer = g.op("multiply", numbered(g, count), g.constant(stride, DType.int64))
    outer = g.op("subtract", outer, g.constant(pad, DType.int64))
    return g.op("add", g.op("expand_dims", inner, axes=(1,)), outer)
