"""Pooling over windows of the spatial axes of x [N, C, *spatial]. Over a whole axis, it is a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats.types import TensorType
from .shapes import FLOAT, NUMERIC, integer, mismatch, require
from .table import Attribute, Fusion, Kind, register
from .windows import WINDOW, Axis, axes, padded, result_shape, static_shape, taps
from .work import of_pooling

_POOL = {
    "kernel": Attribute(Kind.INTS, "size of the window, one an axis"),
    **WINDOW,
    "ceil_mode": Attribute(Kind.BOOL, "a last window may stick out at the end", False),
}
_COUNT = {"count_include_pad": Attribute(Kind.BOOL, "padding counts as elements, of value 0", False)}


def _windows(rank: int, kernel: Sequence[int], **window: Any) -> list[Axis]:
    if rank < 3 or len(kernel) != rank - 2:
        raise mismatch(
            "x of shape [N, C, *spatial] and a kernel size for each spatial axis", f"rank {rank}, kernel {kernel}"
        )
    return axes(kernel, **window)


def _infer_max(inputs: Sequence[TensorType], kernel: tuple, ceil_mode: bool, **window: tuple) -> TensorType:
    (x,) = inputs
    require(x, NUMERIC)
    windows = _windows(x.rank, kernel, **window)
    return TensorType(x.dtype, x.shape[:2] + result_shape(x.shape[2:], windows, ceil_mode))


def _infer_average(inputs: Sequence[TensorType], count_include_pad: bool, **attributes: object) -> TensorType:
    require(inputs[0], FLOAT)
    return _infer_max(inputs, **attributes)  # type: ignore[arg-type]


def _max_pool(x: np.ndarray, kernel: tuple, ceil_mode: bool, **window: tuple) -> np.ndarray:
    windows = _windows(x.ndim, kernel, **window)
    counts = static_shape(x.shape[2:], windows, ceil_mode)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    result = np.full(x.shape[:2] + counts, lowest, x.dtype)
    for _, elements in taps(padded(x, windows, counts, lowest), windows, counts):
        result = np.maximum(result, elements)
    return result


def _average_pool(
    x: np.ndarray, kernel: tuple, ceil_mode: bool, count_include_pad: bool, **window: tuple
) -> np.ndarray:
    windows = _windows(x.ndim, kernel, **window)
    counts = static_shape(x.shape[2:], windows, ceil_mode)
    total = np.zeros(x.shape[:2] + counts)
    number = np.zeros(counts)
    weights = np.ones(x.shape[2:])
    if count_include_pad:  # elements beyond the padding, under a window that extends past it, never count
        weights = np.pad(weights, [(integer(axis.begin), integer(axis.end)) for axis in windows], constant_values=1)
        bare = [Axis(axis.size, axis.stride, axis.dilation, 0, 0) for axis in windows]
        weights = padded(weights, bare, counts, 0)
    else:
        weights = padded(weights, windows, counts, 0)
    wide = padded(x.astype(np.float64), windows, counts, 0)
    for (_, elements), (_, counted) in zip(taps(wide, windows, counts), taps(weights, windows, counts), strict=True):
        total += elements
        number += counted
    return (total / number).astype(x.dtype)


# fmt: off
register("max_pool", "x", _infer_max, _max_pool, Fusion.ANCHOR,
         "the greatest element under each window", attributes=_POOL, work=of_pooling)
register("average_pool", "x", _infer_average, _average_pool, Fusion.ANCHOR,
         "the mean of the elements under each window", attributes=_POOL | _COUNT, work=of_pooling)
# fmt: on
