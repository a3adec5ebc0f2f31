"""Resampling along one axis. Images are resized along one axis after the other: all modes are separable.

Element o of the result is at `coordinate(o)` between the elements of x; its value is made from the elements around it:
the nearest one, two by linear interpolation, or four by a cubic. Elements outside x count as its first or last one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...formats.dims import Dim
from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.types import TensorType
from .shapes import FLOAT, axis_of, mismatch, replace_axis, require
from .table import Attribute, Fusion, Kind, register

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "align_corners",
    "asymmetric",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_SCALES = 1e-6, 1e6


def _infer_resize(
    inputs: Sequence[TensorType], axis: int, size: Dim, mode: str, scale: float | None, cubic: float, **_: object
) -> TensorType:
    (x,) = inputs
    along = axis_of(axis, x.rank)
    if mode != "nearest":
        require(x, FLOAT)
    if scale is not None and not _SCALES[0] <= scale <= _SCALES[1]:
        raise mismatch(f"a scale from {_SCALES[0]} to {_SCALES[1]}", scale)
    if not abs(cubic) <= _SCALES[1]:
        raise mismatch(f"a coefficient of at most {_SCALES[1]}", cubic)
    if x.shape[along] == 0 and size != 0:
        raise mismatch(f"elements along axis {along}", x)
    return TensorType(x.dtype, replace_axis(x.shape, along, size))


def _coordinates(length: int, size: int, scale: float | None, coordinates: str) -> np.ndarray:
    """The coordinates of the result's elements in x."""
    places = np.arange(size, dtype=np.float64)
    numerator, denominator = (length, size) if scale is None else (1, scale)
    if coordinates == "align_corners":
        whole = size if scale is None else scale * length  # size of the result before truncation to an integer
        return places * (length - 1) / (whole - 1 if size > 1 else 1)
    if coordinates == "asymmetric":
        return places * numerator / denominator
    if coordinates == "pytorch_half_pixel" and size == 1:
        return places
    if coordinates == "tf_half_pixel_for_nn":  # start of x's elements: rounded down
        return (places + 0.5) * numerator / denominator
    shift = -0.5
    if coordinates == "half_pixel_symmetric" and scale is not None:
        shift += length / 2 * (1 - size / (scale * length))
    return (places + 0.5) * numerator / denominator + shift


def _nearest(x: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "round_prefer_floor":
        return np.ceil(x - 0.5)
    return {"round_prefer_ceil": np.floor(x + 0.5), "floor": np.floor(x), "ceil": np.ceil(x)}[rounding]


def _cubic_weights(fraction: np.ndarray, a: float) -> np.ndarray:
    """The weights of the four elements around a position, by Keys' cubic."""
    distance = np.stack([fraction + 1, fraction, 1 - fraction, 2 - fraction])
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)


def _resize(
    x: np.ndarray,
    axis: int,
    size: int,
    mode: str,
    scale: float | None,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude_outside: bool,
) -> np.ndarray:
    length = x.shape[axis]
    if size and not length:
        raise IndexOutOfRangeError("resize: an axis without elements has none to repeat")
    places = _coordinates(length, size, scale, coordinates)
    if mode == "nearest":
        index = np.clip(_nearest(places, rounding), 0, length - 1).astype(np.int64)
        return np.take(x, index, axis)
    first = np.floor(places)
    fraction = places - first
    weights = np.stack([1 - fraction, fraction]) if mode == "linear" else _cubic_weights(fraction, cubic)
    indices = first + np.arange(len(weights))[:, None] - (len(weights) // 2 - 1)
    if exclude_outside and mode == "cubic":
        weights = np.where((indices >= 0) & (indices < length), weights, 0)
        weights = weights / weights.sum(0)
    inside = np.clip(indices, 0, length - 1).astype(np.int64)
    shape = [-1 if at == axis % x.ndim else 1 for at in range(x.ndim)]
    taken = (
        np.take(x.astype(np.float64), index, axis) * w.reshape(shape) for index, w in zip(inside, weights, strict=True)
    )
    return np.asarray(sum(taken)).astype(x.dtype)


register(
    "resize",
    "x",
    _infer_resize,
    _resize,
    Fusion.MOVEMENT,
    "x with an axis of another size, its elements interpolated",
    attributes={
        "axis": Attribute(Kind.INT, "along which"),
        "size": Attribute(Kind.DIM, "of the axis in the result"),
        "mode": Attribute(Kind.STRING, "how elements are interpolated", "nearest", tuple(TAPS)),
        "scale": Attribute(Kind.FLOAT, "elements of the result for each of x; None: by the sizes", None),
        "coordinates": Attribute(Kind.STRING, "where the result's elements lie in x", "half_pixel", COORDINATES),
        "rounding": Attribute(Kind.STRING, "which is the nearest", "round_prefer_floor", ROUNDINGS),
        "cubic": Attribute(Kind.FLOAT, "the coefficient of the cubic curve", -0.75),
        "exclude_outside": Attribute(Kind.BOOL, "elements beside x have no weight in the cubic curve", False),
    },
    scratch=200,  # places, weights and indices of four taps, as float64 and int64
)
