"""What detectors do with the boxes that they have found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.types import UNKNOWN, TensorType
from .shapes import match_dim, mismatch, require, require_rank
from .table import Attribute, Fusion, Kind, register

_FLOAT32, _INT64 = frozenset({DType.float32}), frozenset({DType.int64})


def _infer_best(inputs: Sequence[TensorType], centred: bool, room: Dim) -> TensorType:
    boxes, scores, most, overlap, least = inputs
    for value in (boxes, scores, overlap, least):
        require(value, _FLOAT32)
    require(most, _INT64)
    require_rank(boxes, 3, "boxes [N, B, 4]")
    require_rank(scores, 3, "scores [N, C, B]")
    if boxes.shape[2] != 4 or any(value.rank for value in (most, overlap, least)):
        raise mismatch("boxes [N, B, 4] and three numbers", boxes)
    match_dim(boxes.shape[0], scores.shape[0])
    match_dim(boxes.shape[1], scores.shape[2])
    return TensorType(DType.int64, (*scores.shape[:2], room))


def _best(
    boxes: np.ndarray,
    scores: np.ndarray,
    most: np.ndarray,
    overlap: np.ndarray,
    least: np.ndarray,
    centred: bool,
    room: int,
) -> np.ndarray:
    best = np.full((*scores.shape[:2], room), -1, np.int64)
    for image, kind in np.ndindex(*scores.shape[:2]):
        kept = _kept(boxes[image], scores[image, kind], min(int(most), room), overlap, least, centred)
        for place, box in enumerate(kept):
            best[image, kind, place] = box
    return best


def _kept(
    boxes: np.ndarray, scores: np.ndarray, most: int, overlap: np.ndarray, least: np.ndarray, centred: bool
) -> Iterator[int]:
    """The best box, the best of those that do not overlap it much, and so on."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > least]
    corners = _corners(boxes[order], centred)
    alive = np.ones(len(order), np.bool_)
    for place, box in enumerate(order):
        if most <= 0:
            return
        if alive[place]:
            yield int(box)
            most -= 1
            alive[place:] &= ~(_overlaps(corners[:, place], corners[:, place:]) > overlap)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """[low y, low x, high y, high x] of each: boxes are centres and sizes, or any two corners that face each other."""
    if centred:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2])
    y, x, other_y, other_x = boxes.T
    pairs = (y, other_y), (x, other_x)
    return np.stack([*(np.minimum(*pair) for pair in pairs), *(np.maximum(*pair) for pair in pairs)])


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area that each shares with the box, as a share of what both cover; 0 for boxes of no area."""
    low, high = np.maximum(box[:2, None], others[:2]), np.minimum(box[2:, None], others[2:])
    shared = np.prod(np.maximum(high - low, 0), axis=0)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[2:] - others[:2], axis=0)
    is_box = (area > 0) & (areas > 0)
    return np.where(is_box, shared / np.where(is_box, area + areas - shared, 1), 0)


def _infer_listed(inputs: Sequence[TensorType]) -> TensorType:
    (best,) = inputs
    require(best, _INT64)
    require_rank(best, 3, "boxes' numbers [N, C, B]")
    return TensorType(DType.int64, (UNKNOWN, 3))


def _listed(best: np.ndarray) -> np.ndarray:
    places = np.argwhere(best >= 0)
    places[:, 2] = best[best >= 0]
    return places.astype(np.int64, copy=False)


register(
    "best_boxes",
    "boxes scores most overlap least",
    _infer_best,
    _best,
    Fusion.OPAQUE,
    "the numbers of the boxes [N, B, 4] with the best scores [N, C, B] above the least, the best first, so many a class at most, "
    "that overlap no better one by more than that share; behind them -1",
    attributes={
        "centred": Attribute(Kind.BOOL, "boxes are x, y, width, height, x and y of the centre", False),
        "room": Attribute(Kind.DIM, "so many numbers a class at most"),
    },
)
register(
    "listed_boxes",
    "best",
    _infer_listed,
    _listed,
    Fusion.OPAQUE,
    "[image, class, box] of the numbers that best_boxes gives",
    data_dependent=True,
)
