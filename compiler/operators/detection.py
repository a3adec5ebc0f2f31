"""Operators of object detectors: selection of boxes, and pooling of regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.types import UNKNOWN, TensorType
from .creation import counted
from .shapes import FLOAT32, INT64, match_dim, mismatch, require, require_rank
from .table import Attribute, Fusion, Kind, register

_FLOATS = frozenset({DType.float32, DType.float64})


def _infer_best(inputs: Sequence[TensorType], centred: bool, room: Dim) -> TensorType:
    boxes, scores, most, overlap, least = inputs
    for value in (boxes, scores, overlap, least):
        require(value, FLOAT32)
    require(most, INT64)
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
    """[low y, low x, high y, high x] of each: boxes are centres and sizes, or any two opposite corners."""
    if centred:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2])
    y, x, other_y, other_x = boxes.T
    pairs = (y, other_y), (x, other_x)
    return np.stack([*(np.minimum(*pair) for pair in pairs), *(np.maximum(*pair) for pair in pairs)])


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of each with the box; 0 for boxes without area."""
    low, high = np.maximum(box[:2, None], others[:2]), np.minimum(box[2:, None], others[2:])
    shared = np.prod(np.maximum(high - low, 0), axis=0)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[2:] - others[:2], axis=0)
    is_box = (area > 0) & (areas > 0)
    return np.where(is_box, shared / np.where(is_box, area + areas - shared, 1), 0)


def _infer_listed(inputs: Sequence[TensorType]) -> TensorType:
    (best,) = inputs
    require(best, INT64)
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
    "the numbers of the boxes [N, B, 4] with scores [N, C, B] above the least, the best first, at most `room` in each class,  "
    "that overlap no better one by more than that share; behind them -1",
    attributes={
        "centred": Attribute(Kind.BOOL, "boxes are x, y, width, height, x and y of the centre", False),
        "room": Attribute(Kind.DIM, "the most numbers for a class"),
    },
)


def _infer_counted(inputs: Sequence[TensorType], count: Dim) -> TensorType:
    return TensorType(DType.int64, (count, *_infer_listed(inputs).shape[1:]))


# fmt: off
register("counted_boxes", "best", _infer_counted, lambda best, count: counted(_listed(best), 0, count), Fusion.OPAQUE,
         "listed_boxes, where it is known how many there are",
         attributes={"count": Attribute(Kind.DIM, "of the numbers that are not negative")})
register("listed_boxes", "best", _infer_listed, _listed, Fusion.OPAQUE,
         "[image, class, box] of the numbers that best_boxes gives", data_dependent=True)
# fmt: on


# ---- regions ----


def _infer_roi_align(inputs: Sequence[TensorType], size: tuple[int, int], **_: object) -> TensorType:
    x, rois, images = inputs
    require(x, _FLOATS)
    require(images, INT64)
    require_rank(x, 4, "x [N, H, W, C]")
    require_rank(rois, 2, "regions [R, 4]")
    require_rank(images, 1, "numbers of images [R]")
    if rois.dtype is not x.dtype or rois.shape[1] != 4 or len(size) != 2 or min(size) < 0:
        raise mismatch(f"regions [R, 4] of type {x.dtype.name}, and two sizes", rois)
    return TensorType(x.dtype, (match_dim(rois.shape[0], images.shape[0]), *size, x.shape[3]))


def _roi_align(
    x: np.ndarray,
    rois: np.ndarray,
    images: np.ndarray,
    size: tuple[int, int],
    samples: int,
    scale: float,
    half_pixel: bool,
    mode: str,
) -> np.ndarray:
    result = np.zeros((len(rois), *size, x.shape[3]), x.dtype)
    places = rois * x.dtype.type(scale) - x.dtype.type(0.5 if half_pixel else 0)
    for number, (left, top, right, bottom) in enumerate(places):
        if not 0 <= images[number] < len(x) or not x.shape[1] * x.shape[2]:
            raise IndexOutOfRangeError(f"image {images[number]} of {len(x)} of {x.shape[1]}x{x.shape[2]} pixels")
        down = _looked_at(top, bottom, size[0], x.shape[1], samples, half_pixel)
        across = _looked_at(left, right, size[1], x.shape[2], samples, half_pixel)
        if result[number].size and down[0].shape[1] and across[0].shape[1]:
            result[number] = _pooled(x[images[number]], down, across, mode)
    return result


_Places = tuple[np.ndarray, np.ndarray]  # pixels before and after each sample [bins, samples, 2], and their weights


def _looked_at(begin: np.floating, end: np.floating, bins: int, length: int, samples: int, half_pixel: bool) -> _Places:
    """The samples along an axis of an image, evenly spread over each bin; those far outside have weight 0."""
    number = begin.dtype.type
    extent = end - begin if half_pixel else np.maximum(end - begin, number(1))
    each = extent / number(bins)
    count = samples or int(np.clip(np.nan_to_num(np.ceil(each)), 0, MOST_SAMPLES))
    inside = (np.arange(count, dtype=number) + number(0.5)) * each / number(max(count, 1))
    places = (begin + np.arange(bins, dtype=number) * each)[:, None] + inside
    is_near = (places >= -1) & (places <= length)
    places = np.clip(np.where(is_near, places, 0), 0, length - 1)
    before = places.astype(np.int64)
    share = places - before.astype(number)
    pixels = np.stack([before, np.minimum(before + 1, length - 1)], -1)
    return pixels, np.stack([is_near * (1 - share), is_near * share], -1).astype(number)


def _pooled(image: np.ndarray, down: _Places, across: _Places, mode: str) -> np.ndarray:
    """The mean or maximum of a bin's samples, each interpolated from four pixels; or the maximum of the weighted pixels."""
    pixels, weights = (
        (each[:, None, :, None, :, None], other[None, :, None, :, None, :])
        for each, other in zip(down, across, strict=True)
    )
    products = image[pixels] * (weights[0] * weights[1])[..., None]  # [down, across, places …, before or after …, C]
    if mode == "max":  # as ONNX defines it
        return products.max((2, 3, 4, 5))
    values = products.sum((4, 5))
    return values.mean((2, 3)) if mode == "avg" else values.max((2, 3))


MOST_SAMPLES = 4096  # samples of a bin along an axis

# fmt: off
register("roi_align", "x rois images", _infer_roi_align, _roi_align, Fusion.OPAQUE,
         "[R, *size, C]: of each region [x, y, x, y] of an image of x [N, H, W, C], parted into bins, what lies in each",
         attributes={"size": Attribute(Kind.INTS, "bins down and across"),
                     "samples": Attribute(Kind.INT, "places of a bin along an axis that are looked at; 0: one a pixel", 0),
                     "scale": Attribute(Kind.FLOAT, "of a region's numbers to pixels", 1.0),
                     "half_pixel": Attribute(Kind.BOOL, "pixels have their places in their middle", False),
                     "mode": Attribute(Kind.STRING, "what is taken of the places", "avg", ("avg", "max", "max_of_places"))})
# fmt: on


def _infer_max_of_regions(inputs: Sequence[TensorType], size: tuple[int, int], **_: object) -> TensorType:
    x, rois = inputs
    require(x, _FLOATS)
    require_rank(x, 4, "x [N, C, H, W]")
    require_rank(rois, 2, "regions [R, 5]")
    if rois.dtype is not x.dtype or rois.shape[1] != 5 or len(size) != 2 or min(size) < 1:
        raise mismatch(f"regions [R, 5] of type {x.dtype.name}, and two sizes of at least 1", rois)
    return TensorType(x.dtype, (rois.shape[0], x.shape[1], *size))


def _max_of_regions(x: np.ndarray, rois: np.ndarray, size: tuple[int, int], scale: float) -> np.ndarray:
    result = np.zeros((len(rois), x.shape[1], *size), x.dtype)
    for region, (image, left, top, right, bottom) in zip(result, rois, strict=True):
        if not 0 <= image < len(x):
            raise IndexOutOfRangeError(f"image {image} of {len(x)}")
        down = _pixels_of_bins(top, bottom, size[0], x.shape[2], scale)
        across = _pixels_of_bins(left, right, size[1], x.shape[3], scale)
        for y, (first, last) in enumerate(down):
            for z, (begin, end) in enumerate(across):
                if first < last and begin < end:
                    region[:, y, z] = x[int(image), :, first:last, begin:end].max((1, 2))
    return result


def _pixels_of_bins(begin: np.floating, end: np.floating, bins: int, length: int, scale: float) -> np.ndarray:
    """The first pixel of each bin along an axis, and the one after its last: [bins, 2]. Halves of pixels are rounded away from
    zero, and neighbouring bins share the pixels between them."""
    number = begin.dtype.type
    ends = np.array([begin, end]) * number(scale)
    ends = np.clip(np.nan_to_num(np.trunc(ends + np.copysign(number(0.5), ends))), -_FAR, _FAR).astype(np.int64)
    each = number(max(ends[1] - ends[0] + 1, 1)) / number(bins)
    count = np.arange(bins + 1, dtype=number) * each
    pixels = np.stack([np.floor(count[:-1]), np.ceil(count[1:])], 1).astype(np.int64) + ends[0]
    return np.clip(pixels, 0, length)


_FAR = 1 << 31  # pixels, more than an image has along an axis

register(
    "max_of_regions",
    "x rois",
    _infer_max_of_regions,
    _max_of_regions,
    Fusion.OPAQUE,
    "[R, C, *size]: of each region [image, x, y, x, y] of x [N, C, H, W], parted into bins of whole pixels, the greatest in "
    "each; 0 in bins outside",
    attributes={
        "size": Attribute(Kind.INTS, "bins down and across"),
        "scale": Attribute(Kind.FLOAT, "of a region's numbers to pixels", 1.0),
    },
)
