"""Loops of windows that slide over the spatial axes of an image, for pooling and direct convolution."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from .....formats.dims import Dim
from ....operators.windows import Axis
from ..kernels.writer import Writer


class Sliding:
    """Variables of axis k: n its size, m that of the result, k that of the window, o the current window's position in the
    result, y its start in the image, low and high the range of its taps that lie in the image."""

    def __init__(self, windows: Sequence[Axis], image: Sequence[Dim], result: Sequence[Dim]) -> None:
        self.windows, self.image, self.result = windows, image, result  # sizes of the axes that have a window
        self.axes = range(len(windows))
        self.last = len(windows) - 1

    def write_sizes(self, write: Writer) -> None:
        for axis, window in enumerate(self.windows):
            write.size(f"n{axis}", self.image[axis])
            write.size(f"m{axis}", self.result[axis])
            for name, dim in (
                ("k", window.size),
                ("stride", window.stride),
                ("begin", window.begin),
                ("end", window.end),
            ):
                write.size(f"{name}{axis}", dim)  # type: ignore[arg-type]
            if window.dilation != 1:
                write.size(f"dilation{axis}", window.dilation)

    def write_range(self, write: Writer, axis: int) -> None:
        """The range of taps of the window at o that lie in the image."""
        write(f"y{axis} = o{axis} * stride{axis} - begin{axis}")
        write(f"low{axis} = {self.taps_below(axis, f'max(-y{axis}, 0)')}")
        write(f"high{axis} = min(k{axis}, {self.taps_below(axis, f'n{axis} - y{axis}')})")

    def dilated(self, axis: int, text: str) -> str:
        return text if self.windows[axis].dilation == 1 else f"{text} * dilation{axis}"

    def taps_below(self, axis: int, room: str) -> str:
        """The number of taps before an element that is `room` after the first tap."""
        dilation = f"dilation{axis}"
        return room if self.windows[axis].dilation == 1 else f"({room} + {dilation} - 1) // {dilation}"

    @contextlib.contextmanager
    def loops(self, write: Writer, axes: Sequence[int]) -> Iterator[None]:
        """Loops over the taps that lie in the image, on some of the axes."""
        with contextlib.ExitStack() as stack:
            for axis in axes:
                stack.enter_context(write.block(f"for tap{axis} in range(low{axis}, high{axis})"))
            yield

    def place(self, axes: Sequence[int]) -> str:
        """The position of the tap on some of the axes, in elements of the image."""
        text = ""
        for axis in axes:
            at = f"y{axis} + {self.dilated(axis, f'tap{axis}')}"
            text = f"({text}) * n{axis} + {at}" if text else at
        return text
