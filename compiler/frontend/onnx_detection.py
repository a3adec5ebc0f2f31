"""The importer of NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ..operators.shapes import minimum
from .onnx_table import importer
from .onnx_values import GraphBuilder, Value


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
    if most.elements is not None and most.elements.size == 1:
        room = minimum(room, dims.maximum(most.elements.flat[0], 0))
    best = g.op("best_boxes", boxes, scores, *numbers, centred=bool(center_point_box), room=room)
    return g.op("listed_boxes", best)
