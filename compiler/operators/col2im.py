"""col2im: images accumulated from windows that may overlap, the rest of a transposed convolution after its product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.types import TensorType
from .shapes import NUMERIC, integer, lift, mismatch, require, text
from .table import Attribute, Fusion, Kind, register
from .windows import WINDOW, axes, taps
from .work import each_input


def _infer(
    inputs: Sequence[TensorType],
    shape: tuple[Dim, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    starts: tuple[int, ...] | None,
) -> TensorType:
    (x,) = inputs
    require(x, NUMERIC)
    count, room = len(kernel), math.prod(kernel)
    axes(kernel, strides, None, dilations)
    starts = starts or (0,) * count
    if count < 1 or x.rank != count + 2 or {len(shape), len(starts)} != {count} or min(starts) < 0:
        raise mismatch(
            "x [N, M * elements of a window, *windows], and a size and a start of at least 0 for each axis", x
        )
    if isinstance(x.shape[1], int) and x.shape[1] % room:
        raise mismatch(f"channels that {room} divides", x)
    if any(isinstance(size, int) and size < 0 for size in shape):
        raise mismatch("sizes of at least 0", text(shape))
    return TensorType(x.dtype, (x.shape[0], lift(lambda size: dims.floordiv(size, room), x.shape[1]), *shape))


def _col2im(
    x: np.ndarray,
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    starts: tuple[int, ...] | None,
) -> np.ndarray:
    windows, counts = axes(kernel, strides, None, dilations), x.shape[2:]
    starts = starts or (0,) * len(kernel)
    reach = [(count - 1) * axis.stride + integer(axis.extent) for count, axis in zip(counts, windows, strict=True)]
    ends = [start + size for start, size in zip(starts, shape, strict=True)]
    apart: Any = x.reshape(x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *counts)
    dtype = np.float64 if x.dtype.kind == "f" else x.dtype
    whole = [max(both) for both in zip(reach, ends, strict=True)]
    canvas: Any = np.zeros((*apart.shape[:2], *whole), dtype)
    for place, target in taps(canvas, windows, counts):  # each target is a view of the canvas
        target += apart[(slice(None), slice(None), *place)]
    return np.asarray(canvas[(..., *map(slice, starts, ends))]).astype(x.dtype)


register(
    "col2im",
    "x",
    _infer,
    _col2im,
    Fusion.ANCHOR,
    "x [N, M * elements of a window, *windows]: each window's elements are added to an image [N, M, *shape] where it lies",
    attributes={
        "shape": Attribute(Kind.DIMS, "sizes of the image's axes"),
        "kernel": Attribute(Kind.INTS, "size of the window, one an axis"),
        "starts": Attribute(
            Kind.INTS, "where the image begins behind the first window's beginning, one an axis; None: 0", None
        ),
        **{name: WINDOW[name] for name in ("strides", "dilations")},
    },
    work=each_input(1),
)
