"""Importers of NonMaxSuppression, RoiAlign and MaxRoiPool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....formats import dims
from ....formats.dtypes import DType
from ...operators.shapes import minimum
from ..table import importer
from ..values import GraphBuilder, Value


@importer("NonMaxSuppression")
def _non_max_suppression(
    g: GraphBuilder,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    overlap: Value | None = None,
    least: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """Left out, the most boxes of a class are none, and no overlap is allowed, as ONNX has it."""
    most = g.constant(0, DType.int64) if most is None else most
    overlap = g.constant(0, DType.float32) if overlap is None else overlap
    least = g.constant(-np.inf, DType.float32) if least is None else least
    if boxes.rank == scores.rank == 3:
        scores = g.checked(scores, (boxes.shape[0], scores.shape[1], boxes.shape[1]))
    numbers = (g.op("reshape", number, shape=()) for number in (most, overlap, least))
    room = boxes.shape[1] if boxes.rank == 3 else 0
    if isinstance(room, int) and most.elements is not None and most.elements.size == 1:
        room = minimum(room, dims.maximum(most.elements.flat[0], 0))
    best = g.op("best_boxes", boxes, scores, *numbers, centred=bool(center_point_box), room=room)
    return g.op("listed_boxes", best)


def _aligned(
    g: GraphBuilder,
    x: Value,
    rois: Value,
    images: Value,
    half_pixel: bool,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    """Regions of x [N, C, H, W], with channels last, where they are neighbours in memory."""
    result = g.op(
        "roi_align",
        g.op("permute_dims", x, axes=(0, 2, 3, 1)),
        rois,
        g.checked(images, rois.shape[:1]),
        size=(output_height, output_width),
        samples=sampling_ratio,
        scale=spatial_scale,
        half_pixel=half_pixel,
        mode=mode,
    )
    return g.op("permute_dims", result, axes=(0, 3, 1, 2))


@importer("RoiAlign", since=16, attributes_of=_aligned)
def _roi_align(
    g: GraphBuilder,
    x: Value,
    rois: Value,
    images: Value,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    **rest: Any,
) -> Value:
    return _aligned(g, x, rois, images, coordinate_transformation_mode == "half_pixel", **rest)


@importer("RoiAlign", attributes_of=_aligned)
def _roi_align_before_16(g: GraphBuilder, x: Value, rois: Value, images: Value, **rest: Any) -> Value:
    return _aligned(g, x, rois, images, False, **rest)


@importer("MaxRoiPool")
def _max_roi_pool(
    g: GraphBuilder, x: Value, rois: Value, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0
) -> Value:
    if x.dtype.itemsize < 4:  # the numbers of regions are not whole in narrow types once they are scaled
        wide = [g.op("cast", value, dtype=DType.float32) for value in (x, rois)]
        return g.op("cast", g.op("max_of_regions", *wide, size=tuple(pooled_shape), scale=spatial_scale), dtype=x.dtype)
    return g.op("max_of_regions", x, rois, size=tuple(pooled_shape), scale=spatial_scale)
