"""Importers of what pooling tells of places: the indices of the greatest elements, and MaxUnpool, which puts them back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..sizes_of_run import numbered, whole_number
from ..table import importer
from ..values import GraphBuilder, Value


def places_of_greatest(
    g: GraphBuilder,
    x: Value,
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[Dim] | None,
    dilations: Sequence[int] | None,
    by_columns: bool,
) -> Value:
    """Of each window of x [N, C, *spatial], of which there are `sizes`, where in all of x its greatest element lies; each plane
    is counted `by_columns`, or else by rows."""
    count, spatial = len(kernel), x.shape[2:]
    strides, dilations, pads = strides or (1,) * count, dilations or (1,) * count, pads or (0,) * (2 * count)
    least = -np.inf if x.dtype.is_float else x.dtype.bounds[0]
    taken, inside, places = x, None, None
    steps = _steps(spatial, by_columns)
    for axis, size in enumerate(sizes):
        rows = g.op("multiply", numbered(g, size), whole_number(g, strides[axis]))
        rows = g.op("subtract", g.op("expand_dims", rows, axes=(1,)), whole_number(g, pads[axis]))
        rows = g.op("add", rows, g.constant(np.arange(kernel[axis]) * dilations[axis], DType.int64))
        last = whole_number(g, dims.add(spatial[axis], -1))
        kept = g.op("minimum", g.op("maximum", rows, whole_number(g, 0)), last)
        taken = g.op("take", taken, kept, axis=2 + 2 * axis)
        shape: list[Dim] = [1] * (2 * count)
        shape[axis], shape[count + axis] = size, kernel[axis]
        rows, is_in = (g.op("reshape", each, shape=tuple(shape)) for each in (rows, g.op("equal", rows, kept)))
        part = g.op("multiply", rows, whole_number(g, steps[axis]))
        places = part if places is None else g.op("add", places, part)
        inside = is_in if inside is None else g.op("logical_and", inside, is_in)
    assert places is not None
    assert inside is not None
    order = (0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2))
    windows = g.op("permute_dims", taken, axes=order)
    windows = g.op("where", inside, windows, g.constant(least, x.dtype))
    elements = int(np.prod(kernel))
    chosen = g.op("argmax", g.op("reshape", windows, shape=(*x.shape[:2], *sizes, elements)), axis=-1, keepdims=True)
    table = g.op("reshape", places, shape=(1, 1, *sizes, elements))
    table = g.op("broadcast_to", table, shape=(*x.shape[:2], *sizes, elements))
    found = g.op("reshape", g.op("take_along_axis", table, chosen, axis=-1), shape=(*x.shape[:2], *sizes))
    planes = numbered(g, dims.product(x.shape[:2]))
    planes = g.op("multiply", planes, whole_number(g, dims.product(spatial)))
    return g.op("add", found, g.op("reshape", planes, shape=(*x.shape[:2], *(1,) * count)))


def _steps(spatial: Sequence[Dim], by_columns: bool) -> list[Dim]:
    """From an element to its neighbour along each axis."""
    if by_columns:
        return [dims.product(spatial[:axis]) for axis in range(len(spatial))]
    return [dims.product(spatial[axis + 1 :]) for axis in range(len(spatial))]


@importer("MaxUnpool")
def _max_unpool(
    g: GraphBuilder,
    x: Value,
    indices: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """The elements of x where MaxPool found them, in a tensor of the size that it may have pooled, among zeros. A larger shape
    that is told has more zeros after each axis."""
    count = len(kernel_shape)
    strides, pads = strides or (1,) * count, pads or (0,) * (2 * count)
    if x.rank != 2 + count or {len(strides), len(pads) // 2} != {count}:
        raise ModelError(f"a kernel of {count} axes does not suit {x.type}")
    spatial = [
        dims.add(dims.multiply(dims.add(size, -1), strides[axis]), kernel_shape[axis] - pads[axis] - pads[count + axis])
        for axis, size in enumerate(x.shape[2:])
    ]
    shape = (*x.shape[:2], *spatial)
    empty = g.op("full", shape=(dims.product(shape),), value=0, dtype=x.dtype)
    flat = dims.product(x.shape)
    indices = g.checked(indices, x.shape)
    places, elements = (g.op("reshape", each, shape=(flat,)) for each in (indices, x))
    whole = g.op("reshape", g.op("put_along_axis", empty, places, elements, axis=0), shape=shape)
    if output_shape is None:
        return whole
    wanted = g.sizes(output_shape, "sizes")
    if len(wanted) != x.rank:
        raise ModelError(f"MaxUnpool: expected a shape of {x.rank} sizes, got {len(wanted)}")
    more = tuple(dims.add(size, dims.multiply(own, -1)) for size, own in zip(wanted, shape, strict=True))
    return g.checked(g.op("pad", whole, pads=(*(0,) * x.rank, *more)), wanted)
