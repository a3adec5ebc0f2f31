"""What detectors do with boxes: make anchors, move them, keep those that count, and look at what is in them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats.dtypes import DType
from ....formats.messages.errors import InferenceError
from .layouts import transformed
from .table import Tensor, known, like, operator, pair, scalar, shape_of, type_of

_INT64, _FLOAT = DType.int64, DType.float32


def _column(data: Expression, place: int) -> Expression:
    """One element of the last axis, without it."""
    rank = len(type_of(data).shape)
    part = op.slice(data, starts=(place,), ends=(place + 1,), axes=(rank - 1,))
    return op.squeeze(part, axes=(rank - 1,))


def _places(like_: Expression) -> Expression:
    """The number of each column of a matrix, int64, in its shape: any sizes."""
    ones = op.add(op.multiply(op.cast(like_, dtype="int64"), programs.constant(0)), programs.constant(1))
    return op.cumulative_sum(ones, axis=1, exclusive=True)


def _compacted(valid: Expression, data: Expression) -> tuple[Expression, Expression, Expression]:
    """How many of valid [N, A] hold; the rows of data [N, A, …] where they do, first, then -1; and their numbers."""
    ones = op.cast(valid, dtype="int64")
    before = op.cumulative_sum(ones, axis=1, exclusive=True)
    place = _places(valid)
    # the row that each place takes: the stable order of the rows that hold, then of the others
    total = op.sum(ones, axes=(1,), keepdims=True)
    behind = op.subtract(op.add(total, place), before)
    target = op.where(valid, before, behind)
    rows = op.put_along_axis(op.multiply(target, programs.constant(0)), target, place, axis=1)
    kept = op.less(place, total)
    taken = op.gather_nd(data, op.expand_dims(rows, axes=(2,)), batch_axes=1)
    inside = op.expand_dims(kept, axes=tuple(range(2, len(type_of(data).shape)))) if data.type.rank > 2 else kept  # type: ignore[union-attr]
    numbers = op.where(kept, rows, programs.constant(-1))
    count_ = op.cast(op.squeeze(total, axes=(1,)), dtype="int32")
    return count_, op.where(inside, taken, like(data, -1)), op.cast(numbers, dtype="int32")


@operator("vision.get_valid_counts", results=3)
def get_valid_counts(data: Tensor, score_threshold: Any = 0.0, id_index: int = 0, score_index: int = 1) -> Expression:
    """Boxes [N, A, E] whose score is above a threshold: how many, themselves in front of rows of -1, their numbers."""
    data, _ = shape_of(data)
    kind = type_of(data).dtype
    valid = op.greater(_column(data, int(score_index)), op.cast(scalar(score_threshold, kind), dtype=kind))
    if id_index >= 0:
        valid = op.logical_and(valid, op.greater_equal(_column(data, int(id_index)), like(data, 0)))
    return programs.tuple_(*_compacted(valid, data))


@operator("vision.multibox_prior")
def multibox_prior(
    data: Tensor,
    sizes: Any = (1.0,),
    ratios: Any = (1.0,),
    steps: Any = (-1.0, -1.0),
    offsets: Any = (0.5, 0.5),
    clip: bool = False,
) -> Expression:
    """Anchors [1, H · W · kinds, 4] of every place of an image: left, top, right, bottom, 0 to 1."""
    height, width = known("vision.multibox_prior: the image's size", *type_of(data).shape[2:])
    step_y, step_x = (step if step > 0 else 1 / length for step, length in zip(steps, (height, width), strict=True))
    y, x = np.meshgrid(
        (np.arange(height) + offsets[0]) * step_y, (np.arange(width) + offsets[1]) * step_x, indexing="ij"
    )
    square = height / width
    halves = [(size * square / 2, size / 2) for size in sizes]
    halves += [(sizes[0] * square * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]]
    boxes = [np.stack([x - w, y - h, x + w, y + h], axis=-1) for w, h in halves]
    made = np.stack(boxes, axis=2).reshape(1, -1, 4).astype(type_of(data).dtype.numpy)
    return programs.constant(np.clip(made, 0, 1) if clip else made)


@operator("vision.multibox_transform_loc", results=2)
def multibox_transform_loc(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Any = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> Expression:
    """[class, score, box] of each anchor, moved as predicted, those below the threshold left out; and how many are left."""
    n, _, count = type_of(cls_prob).shape
    scores = cls_prob if keep_background else op.slice(cls_prob, starts=(1,), ends=(1 << 40,), axes=(1,))
    best, kind = op.max(scores, axes=(1,)), op.cast(op.argmax(scores, axis=1), dtype=type_of(cls_prob).dtype)
    moved = op.reshape(loc_pred, shape=(n, count, 4))
    made = []
    for axis in (0, 1):
        low, high = _column(anchor, axis), _column(anchor, axis + 2)
        size = op.subtract(high, low)
        middle = op.multiply(op.add(low, high), like(low, 0.5))
        shift = op.multiply(op.multiply(_column(moved, axis), like(low, variances[axis])), size)
        grown = op.multiply(op.exp(op.multiply(_column(moved, axis + 2), like(low, variances[axis + 2]))), size)
        made.append((op.add(middle, shift), op.multiply(grown, like(low, 0.5))))
    sides = [op.subtract(middle, half) for middle, half in made] + [op.add(middle, half) for middle, half in made]
    if clip:
        sides = [op.minimum(op.maximum(side, like(side, 0)), like(side, 1)) for side in sides]
    rows = op.stack(kind, best, *sides, axis=2)
    valid = op.greater_equal(best, like(best, threshold))
    counts, boxes, _ = _compacted(valid, rows)
    return programs.tuple_(boxes, counts)


def _nms_results(bound: dict[str, Any]) -> int | None:
    return 2 if bound["return_indices"] else None


@operator("vision.non_max_suppression", results=_nms_results)  # type: ignore[arg-type]
def non_max_suppression(
    data: Tensor,
    valid_count: Tensor,
    indices: Tensor,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Expression:
    """Boxes [N, A, E] by score, without those that overlap a better one; rows of -1 in their place, or after.

    With `return_indices` the numbers that `indices` has for those that are left, and how many they are.
    """
    kind = type_of(data).dtype
    data, (_, count, _) = shape_of(data)
    places = _places(_column(data, score_index))
    is_in = op.less(places, op.expand_dims(op.cast(valid_count, dtype="int64"), axes=(1,)))
    score = op.where(is_in, _column(data, score_index), like(data, float(np.finfo(kind.numpy).min)))
    order = op.top_k(score, k=count, axis=1)[1]
    rows = op.gather_nd(data, op.expand_dims(order, axes=(2,)), batch_axes=1)
    candidates = op.take_along_axis(is_in, order, axis=1)
    if top_k > 0:
        candidates = op.logical_and(candidates, op.less(places, programs.constant(int(top_k))))
    candidates = op.logical_and(candidates, op.greater(_column(rows, score_index), like(data, 0)))
    if id_index >= 0:
        candidates = op.logical_and(candidates, op.greater_equal(_column(rows, id_index), like(data, 0)))
    most = op.cast(scalar(max_output_size, _INT64), dtype="int64")
    keep = _kept(rows, candidates, most, op.cast(scalar(iou_threshold, kind), dtype=kind), coord_start,
                 -1 if force_suppress else id_index)  # fmt: skip
    if return_indices:
        numbers = op.take_along_axis(op.cast(indices, dtype="int32"), order, axis=1)
        counts, found, _ = _compacted(keep, numbers)
        return programs.tuple_(found, op.expand_dims(counts, axes=(1,)))
    if invalid_to_bottom:
        return _compacted(keep, rows)[1]
    return op.where(op.expand_dims(keep, axes=(2,)), rows, like(data, -1))


def _kept(
    rows: Expression, candidates: Expression, most: Expression, overlap: Expression, first: int, id_index: int
) -> Expression:
    """Which of the rows, the best first, are left: a row takes out those after it that it overlaps."""
    low = [op.minimum(_column(rows, first + axis), _column(rows, first + axis + 2)) for axis in (0, 1)]
    high = [op.maximum(_column(rows, first + axis), _column(rows, first + axis + 2)) for axis in (0, 1)]
    zero = like(rows, 0)
    area = op.multiply(op.subtract(high[0], low[0]), op.subtract(high[1], low[1]))
    kinds = _column(rows, id_index) if id_index >= 0 else None
    places = _places(candidates)

    def own(values: Expression, place: Expression) -> Expression:
        return op.expand_dims(op.take(values, place, axis=1), axes=(1,))

    def step(place: Expression, keep: Expression, number: Expression) -> tuple[Expression, Expression]:
        sides = [
            op.maximum(op.subtract(op.minimum(top, own(top, place)), op.maximum(bottom, own(bottom, place))), zero)
            for bottom, top in zip(low, high, strict=True)
        ]
        shared = op.multiply(sides[0], sides[1])
        together = op.subtract(op.add(area, own(area, place)), shared)
        share = op.where(op.greater(together, zero), op.divide(shared, together), zero)
        out = op.logical_and(op.greater_equal(share, overlap), op.greater(places, place))
        if kinds is not None:
            out = op.logical_and(out, op.equal(kinds, own(kinds, place)))
        full = op.logical_and(op.greater_equal(number, most), op.greater(most, programs.constant(0)))  # [N, 1]
        alive = op.logical_and(own(keep, place), op.logical_not(full))
        here = op.equal(places, place)
        keep = op.logical_and(keep, op.logical_not(op.logical_and(alive, out)))
        keep = op.logical_and(keep, op.logical_or(op.logical_not(here), alive))
        return keep, op.add(number, op.cast(alive, dtype="int64"))

    none = op.multiply(op.sum(op.cast(candidates, dtype="int64"), axes=(1,), keepdims=True), programs.constant(0))
    count = op.take(op.shape(candidates), programs.constant(1), axis=0)
    return programs.for_loop(count, step, [candidates, none])[0]


@operator("vision.all_class_non_max_suppression", results=lambda bound: 2 if bound["output_format"] == "onnx" else 3)
def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> Expression:
    """[image, class, box] of boxes that overlap no better one of their class, in front of rows of 0; and how many."""
    if output_format != "onnx":
        raise NotImplementedError(
            f"vision.all_class_non_max_suppression: output_format {output_format!r}; there is onnx"
        )
    n, classes, count = known("vision.all_class_non_max_suppression: the shapes", *type_of(scores).shape)
    most = op.cast(scalar(max_output_boxes_per_class, _INT64), dtype="int64")
    most = op.where(op.less(most, programs.constant(0)), programs.constant(count), most)
    numbers = [op.cast(scalar(each, _FLOAT), dtype="float32") for each in (iou_threshold, score_threshold)]
    most, *numbers = (op.reshape(each, shape=()) for each in (most, *numbers))
    best = op.best_boxes(boxes, scores, most, *numbers, centred=False, room=count)
    total = n * classes * count
    image, kind, _ = np.indices((n, classes, count))
    columns = [programs.constant(each.reshape(1, total).astype("int64")) for each in (image, kind)]
    flat = op.reshape(best, shape=(1, total))
    rows = op.stack(*columns, flat, axis=2)
    counts, found, _ = _compacted(op.greater_equal(flat, programs.constant(0)), rows)
    found = op.maximum(found, programs.constant(0))
    return programs.tuple_(op.reshape(found, shape=(total, 3)), op.cast(counts, dtype="int64"))


@operator("vision.roi_pool")
def roi_pool(data: Tensor, rois: Tensor, pooled_size: Any, spatial_scale: float, layout: str = "NCHW") -> Expression:
    """The greatest element of each bin of regions [image, x, y, x, y]; 0 of a bin that is empty."""
    data = transformed(data, layout, "NCHW")
    spatial = known("vision.roi_pool: the image's size", *type_of(data).shape[2:])
    low = like(data, float(np.finfo(type_of(data).dtype.numpy).min))
    found = op.take(data, op.cast(_column(rois, 0), dtype="int64"), axis=0)  # [R, C, H, W]
    for axis, (size, length, place) in enumerate(zip(pair(pooled_size, 2), spatial, (2, 1), strict=True)):
        half = like(rois, 0.5)
        start, end = (
            op.floor(op.add(op.multiply(_column(rois, each), like(rois, spatial_scale)), half))
            for each in (place, place + 2)
        )
        span = op.maximum(op.add(op.subtract(end, start), like(rois, 1)), like(rois, 1))
        bins = programs.constant(np.arange(size, dtype="float32"))
        step = op.expand_dims(op.divide(span, like(rois, size)), axes=(1,))
        start = op.expand_dims(start, axes=(1,))
        first = op.add(op.floor(op.multiply(step, bins)), start)
        last = op.add(op.ceil(op.multiply(step, op.add(bins, like(rois, 1)))), start)
        pixels = programs.constant(np.arange(length, dtype="float32"))
        inside = op.logical_and(
            op.greater_equal(pixels, op.expand_dims(first, axes=(2,))), op.less(pixels, op.expand_dims(last, axes=(2,)))
        )  # [R, bins, length]
        if axis == 0:
            wide = op.where(op.expand_dims(inside, axes=(1, 4)), op.expand_dims(found, axes=(2,)), low)
            found = op.max(wide, axes=(3,))  # [R, C, bins, W]
        else:
            wide = op.where(op.expand_dims(inside, axes=(1, 2)), op.expand_dims(found, axes=(3,)), low)
            found = op.max(wide, axes=(4,))
    found = op.where(op.equal(found, low), like(data, 0), found)
    return transformed(found, "NCHW", layout)


@operator("vision.yolo_reorg")
def yolo_reorg(data: Tensor, stride: int) -> Expression:
    """Darknet's layer: neighbours in space as channels, in its order."""
    data, (n, *sizes) = shape_of(data)
    c, h, w = known("vision.yolo_reorg: the image's size", *sizes)
    if c % (stride * stride) or h % stride or w % stride:
        raise InferenceError(f"channels {c} must be a multiple of stride², {h} and {w} of stride {stride}")
    fewer = c // (stride * stride)
    parts = op.reshape(data, shape=(n, fewer, h, stride, w, stride))
    parts = op.permute_dims(parts, axes=(0, 3, 5, 1, 2, 4))
    return op.reshape(parts, shape=(n, c * stride * stride, h // stride, w // stride))
