"""The arithmetic of sliding windows that convolutions and pooling share: a window along each spatial axis.

`pads` are as ONNX has them: one for each axis at its beginning, then one for each at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ...formats.types import ShapeDim
from .shapes import Shape, integer, lift, minimum, mismatch, text
from .table import Attribute, Kind

WINDOW = {
    "strides": Attribute(Kind.INTS, "steps of the window, one an axis; None: 1", None),
    "pads": Attribute(Kind.DIMS, "elements added at the beginnings, then at the ends of the axes; None: 0", None),
    "dilations": Attribute(Kind.INTS, "steps between the elements of a window, one an axis; None: 1", None),
}
GROUPS = {"groups": Attribute(Kind.INT, "parts of the channels that do not mix", 1)}


@dataclass(frozen=True)
class Axis:
    """The window along one axis."""

    size: ShapeDim  # of the window, in elements
    stride: int
    dilation: int
    begin: Dim
    end: Dim

    @property
    def extent(self) -> ShapeDim:
        """The elements from the first to the last of a window."""
        return lift(lambda size: dims.add(dims.multiply(dims.add(size, -1), self.dilation), 1), self.size)

    def count(self, length: ShapeDim, ceil_mode: bool = False) -> ShapeDim:
        """The number of windows on an axis of `length` elements.

        With `ceil_mode` a last window may stick out, if it begins on an element or before the first one.
        """

        def windows(length: Dim, extent: Dim) -> Dim:
            padded = dims.add(dims.add(length, self.begin), self.end)
            room = dims.add(padded, dims.multiply(extent, -1))
            if isinstance(room, int) and room < -1 and not ceil_mode:
                raise mismatch(f"at most {padded} elements in a window, as many as the padded axis has", extent)
            if not ceil_mode:
                return dims.add(dims.floordiv(room, self.stride), 1)
            starts = dims.ceildiv(dims.add(length, self.begin), self.stride)
            return minimum(dims.add(dims.ceildiv(room, self.stride), 1), starts)

        return lift(windows, length, self.extent)


def axes(
    size: Sequence[ShapeDim], strides: Sequence[int] | None, pads: Sequence[Dim] | None, dilations: Sequence[int] | None
) -> list[Axis]:
    """The windows along all spatial axes, checked."""
    rank = len(size)
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    pads = pads or (0,) * (2 * rank)
    for name, values, expected in (
        ("strides", strides, rank),
        ("dilations", dilations, rank),
        ("pads", pads, 2 * rank),
    ):
        if len(values) != expected:
            raise mismatch(f"{expected} {name}", text(values))
        least = 0 if name == "pads" else 1
        if any(isinstance(value, int) and value < least for value in values):
            raise mismatch(f"{name} of at least {least}", text(values))
    if any(isinstance(dim, int) and dim < 1 for dim in size):
        raise mismatch("a window of at least 1 along each axis", text(size))
    return [Axis(*values) for values in zip(size, strides, dilations, pads[:rank], pads[rank:], strict=True)]


def static_shape(spatial: Shape, windows: Sequence[Axis], ceil_mode: bool = False) -> tuple[int, ...]:
    """`result_shape` where all dimensions are integers."""
    return tuple(map(integer, result_shape(spatial, windows, ceil_mode)))


def result_shape(spatial: Shape, windows: Sequence[Axis], ceil_mode: bool = False) -> Shape:
    """The number of windows along each axis."""
    return tuple(axis.count(length, ceil_mode) for axis, length in zip(windows, spatial, strict=True))


def padded(x: np.ndarray, windows: Sequence[Axis], counts: Sequence[int], fill: Any) -> np.ndarray:
    """x with its padding, and with as much more at the ends as windows that stick out need."""
    widths: list[tuple[int, int]] = [(0, 0)] * (x.ndim - len(windows))
    for axis, length, count in zip(windows, x.shape[-len(windows) :], counts, strict=True):
        begin, reach = integer(axis.begin), (count - 1) * axis.stride + integer(axis.extent)
        widths.append((begin, max(integer(axis.end), reach - length - begin)))
    return np.pad(x, widths, constant_values=fill)


def taps(x: Any, windows: Sequence[Axis], counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """For each place in the window: its index, and the elements of the padded x that it meets, one a window."""
    for place in product(*(range(integer(axis.size)) for axis in windows)):
        steps = [
            slice(at * axis.dilation, at * axis.dilation + count * axis.stride, axis.stride)
            for at, axis, count in zip(place, windows, counts, strict=True)
        ]
        yield place, x[(..., *steps)]
