"""What detectors do with the boxes that they have found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import UNKNOWN, TensorType
from .shapes import match_dim, mismatch, require, require_rank
from .table import Attribute, Fusion, Kind, register

_FLOAT32, _INT64 = frozenset({DType.float32}), frozenset({DType.int64})


def _infer_suppression(inputs: Sequence[TensorType], centred: bool) -> TensorType:
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
    return TensorType(DType.int64, (UNKNOWN, 3))


def _suppression(
    boxes: np.ndarray, scores: np.ndarray, most: np.ndarray, overlap: np.ndarray, least: np.ndarray, centred: bool
) -> np.ndarray:
    found = [
        (image, kind, box)
        for image, of_image in enumerate(scores)
        for kind, of_kind in enumerate(of_image)
        for box in _kept(boxes[image], of_kind, int(most), overlap, least, centred)
    ]
    return np.array(found, np.int64).reshape(len(found), 3)


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


register(
    "non_max_suppression",
    "boxes scores most overlap least",
    _infer_suppression,
    _suppression,
    Fusion.OPAQUE,
    "[image, class, box] of the boxes [N, B, 4] with the best scores [N, C, B] above the least, so many a class at most, that "
    "overlap no better one by more than that share",
    attributes={"centred": Attribute(Kind.BOOL, "boxes are x, y, width, height, x and y of the centre", False)},
    data_dependent=True,
)
