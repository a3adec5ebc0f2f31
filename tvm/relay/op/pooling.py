"""`relay.nn`: pooling over one, two and three axes, by windows, over all places, or to a size of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from .convolution import LETTERS
from .convolution import window as window_of
from .layouts import transformed
from .table import Tensor, known, operator, pair, type_of


def _pool(
    kind: str, data: Expression, count: int, window: tuple, layouts: tuple[str, str], ceil_mode: bool, **attributes: Any
) -> Expression:
    """Pooling by a window: its size, strides, dilation and padding."""
    plain, (size, strides, dilation, padding) = f"NC{LETTERS[count]}", window
    row = f"nn.{'max' if kind == 'max_pool' else 'avg'}_pool{count}d"
    result = getattr(op, kind)(
        transformed(data, layouts[0], plain),
        kernel=pair(size, count),
        ceil_mode=bool(ceil_mode),
        **attributes,
        **window_of(row, count, strides=strides, padding=padding, dilation=dilation),
    )
    return transformed(result, plain, layouts[1] or layouts[0])


def _max(count: int) -> Callable[..., Any]:
    ones, zeros, plain = (1,) * count, (0,) * count, f"NC{LETTERS[count]}"

    @operator(f"nn.max_pool{count}d", summary="The greatest element under each window.")
    def pooled(
        data: Tensor,
        pool_size: Any = ones,
        strides: Any = ones,
        dilation: Any = ones,
        padding: Any = zeros,
        layout: str = plain,
        out_layout: str = "",
        ceil_mode: bool = False,
    ) -> Expression:
        window = pool_size, strides, dilation, padding
        return _pool("max_pool", data, count, window, (layout, out_layout), ceil_mode)

    return pooled


def _average(count: int) -> Callable[..., Any]:
    ones, zeros, plain = (1,) * count, (0,) * count, f"NC{LETTERS[count]}"

    @operator(f"nn.avg_pool{count}d", summary="The mean of the elements under each window.")
    def pooled(
        data: Tensor,
        pool_size: Any = ones,
        strides: Any = ones,
        dilation: Any = ones,
        padding: Any = zeros,
        layout: str = plain,
        out_layout: str = "",
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Expression:
        window, counted = (pool_size, strides, dilation, padding), {"count_include_pad": bool(count_include_pad)}
        own = type_of(data).dtype
        wide = data if own.is_float else op.cast(data, dtype="float64")  # the mean of integers is cut off
        made = _pool("average_pool", wide, count, window, (layout, out_layout), ceil_mode, **counted)
        return made if own.is_float else op.cast(made, dtype=own)

    return pooled


max_pool1d, max_pool2d, max_pool3d = map(_max, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_average, (1, 2, 3))


def _adaptive(kind: str, count: int, fixed: bool) -> Callable[..., Any]:
    """Pooling to a size of the result, or, `fixed`, to 1."""
    layout_, reduce = f"NC{LETTERS[count]}", op.mean if kind == "avg" else op.max

    def pooled(data: Expression, output_size: Any, layout: str, out_layout: str) -> Expression:
        data = transformed(data, layout, layout_)
        shape = type_of(data).shape[2:]
        sizes = (None,) * count if output_size is None or output_size == () else pair(output_size, count)
        dtype = type_of(data).dtype
        is_whole = (
            kind == "avg" and not dtype.is_float
        )  # integers: the mean of a window is cut off once, not axis by axis
        data, counts = (op.cast(data, dtype="int64"), programs.constant(1)) if is_whole else (data, None)
        for axis, (length, size) in enumerate(zip(shape, sizes, strict=True), 2):
            wanted = length if size is None and output_size is not None else size
            data = _pooled_along(data, axis, length, wanted, op.sum if is_whole else reduce)
            if counts is not None:
                counts = op.multiply(counts, _counts(length, wanted, count + 1 - axis))
        if counts is not None:
            data = op.cast(op.divide(data, counts), dtype=dtype)
        return transformed(data, layout_, out_layout or layout)

    if fixed:

        @operator(f"nn.global_{kind}_pool{count}d", summary="Pooling over all places.")
        def whole(data: Tensor, layout: str = layout_, out_layout: str = "") -> Expression:
            return pooled(data, 1, layout, out_layout)

        return whole

    @operator(f"nn.adaptive_{kind}_pool{count}d", summary="Pooling over all places, or to a size of the result.")
    def to_size(data: Tensor, output_size: Any = None, layout: str = layout_, out_layout: str = "") -> Expression:
        return pooled(data, output_size, layout, out_layout)

    return to_size


def _windows(length: int, size: int) -> list[tuple[int, int]]:
    """Where the windows of each result begin and end."""
    return [(place * length // size, -(-(place + 1) * length // size)) for place in range(size)]


def _counts(length: Any, size: Any, behind: int) -> Expression:
    """The number of elements of each window along an axis that has `behind` axes after it."""
    if size is None or size == length:
        return programs.constant(1)
    (length,) = known("adaptive pooling of integers: the shape", length)
    counts = np.array([end - start for start, end in _windows(length, size)])
    return programs.constant(counts.reshape(-1, *(1,) * behind))


def _pooled_along(data: Expression, axis: int, length: Any, size: Any, reduce: Any) -> Expression:
    if size is None or size == length:
        return data
    if size == 1:
        return reduce(data, axes=(axis,), keepdims=True)
    if not isinstance(length, int):
        raise NotImplementedError("adaptive pooling to a size needs a shape that is known")
    parts = []
    for start, end in _windows(length, size):
        part = op.slice(data, starts=(start,), ends=(end,), axes=(axis,), steps=(1,))
        parts.append(reduce(part, axes=(axis,), keepdims=True))
    return op.concat(*parts, axis=axis)


global_max_pool1d, global_max_pool2d, global_max_pool3d = (_adaptive("max", count, True) for count in (1, 2, 3))
global_avg_pool1d, global_avg_pool2d, global_avg_pool3d = (_adaptive("avg", count, True) for count in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive("max", count, False) for count in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_adaptive("avg", count, False) for count in (1, 2, 3))
