"""The sizes of a convolution, as its templates see them: windows along its axes, images in lines and columns of pixels, and
channels in blocks. They are known, or estimates of sizes known only at run time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .....formats.dims import Dim
from ....operators.shapes import integer
from ....operators.windows import Axis, axes
from ..kernels.anchor import Anchored
from ..kernels.kernel import require_few
from ..kernels.writer import estimate, shape_of
from ..operators.packing import NarrowGroups
from ..products.precision import FLOAT32, Precision
from ..products.tile import BLOCK, VECTOR_BYTES, chunk_of
from ..target import Target
from .narrow_groups import narrow_groups

MET = 4096  # most unrolled pairs of window position and pixel in a tile


@dataclass(frozen=True)
class Window:
    """The window of a convolution along one axis, its numbers known."""

    size: int
    stride: int
    dilation: int
    begin: int
    end: int

    @staticmethod
    def of(axis: Axis) -> Window:
        return Window(integer(axis.size), axis.stride, axis.dilation, integer(axis.begin), integer(axis.end))

    @property
    def extent(self) -> int:
        """The pixels from its first to its last."""
        return (self.size - 1) * self.dilation + 1

    def sizes(self, axis: str, way: str, side: str) -> dict[str, Dim]:
        """Its numbers by the names that texts have for them."""
        names = f"window_{axis}", f"stride_{way}", f"dilation_{way}", f"pad_{side}"
        return dict(zip(names, (self.size, self.stride, self.dilation, self.begin), strict=True))

    def reach(self, pixels: int) -> int:
        """The extent of input pixels that `pixels` neighbouring outputs read."""
        return (pixels - 1) * self.stride + self.extent

    def uses(self, pixels: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """The input pixels that `pixels` neighbouring outputs read, counted from the first of their extent:
        each with the outputs that use it, and the window position of each. They are unrolled."""
        require_few(pixels * self.size, MET, "places of a window")
        met: dict[int, list[tuple[int, int]]] = {}
        for place in range(self.size):
            for pixel in range(pixels):
                met.setdefault(pixel * self.stride + place * self.dilation, []).append((pixel, place))
        return sorted(met.items())


@dataclass(frozen=True)
class Pile:
    """The third spatial axis, of a volume."""

    depth: int
    slices: int  # of the output
    window: Window


@dataclass(frozen=True)
class Problem:
    """The sizes of a convolution. Lengths are in pixels, channels in blocks, or planes where the input is planar."""

    is_planar: bool
    batch: Dim
    groups: int
    channels: int  # input blocks (planes) of a group
    last: int  # channels of the last input block
    blocks: int  # output blocks of a group
    height: int
    width: int
    lines: int  # of the output
    columns: int
    window: tuple[Window, Window]
    pile: Pile | None  # of a volume
    is_summed: bool = False  # vectors are blocks of input channels, and a block of the result is one channel
    narrow: NarrowGroups | None = None  # each block of the result then counts as a group
    precision: Precision = FLOAT32
    words: int = 0  # words of neighbouring channels in a block, if a step of the sum takes one: see `integer.py`

    def on(self, target: Target) -> Precision:
        """Its precision on that CPU."""
        return self.precision.on(target, self.is_whole)

    @property
    def is_whole(self) -> bool:
        """Whether all words of a pixel count, and those of neighbouring window positions lie side by side."""
        has_words = self.words > 0 and self.last == BLOCK and 4 * self.words == self.pixel
        return has_words and self.narrow is None and self.window[1].dilation == 1

    @property
    def slices(self) -> int:
        """Of the output."""
        return self.pile.slices if self.pile else 1

    @property
    def deep(self) -> int:
        """Slices of the window."""
        return self.pile.window.size if self.pile else 1

    @property
    def pixel(self) -> int:
        """Bytes from a pixel of the input to the next one."""
        return self.precision.stored[0].itemsize * (1 if self.is_planar else BLOCK)

    @property
    def reach(self) -> int:
        """The pixels of an input row that the windows of an output row need, padding included."""
        axis = self.window[1]
        return (self.columns - 1) * axis.stride + axis.extent

    @property
    def is_staged(self) -> bool:
        axis = self.window[1]
        return axis.begin > 0 or self.reach - axis.begin > self.width

    @property
    def steps(self) -> int:
        """The length of a sum."""
        return self.channels * self._block_steps

    @property
    def _block_steps(self) -> int:
        """Steps of the sum over one block of input channels (or plane)."""
        channels = 1 if self.is_planar or self.is_summed else self.words or BLOCK
        return channels * self.deep * self.window[0].size * self.window[1].size

    @property
    def chunk(self) -> int:
        """Input blocks (planes) of a chunk of the sum; 0 if the sum is short."""
        return 0 if self.precision.is_exact else chunk_of(self.channels, self._block_steps)

    @property
    def pixels(self) -> int:
        """Pixels of an output image, or of a slice of it."""
        return self.lines * self.columns

    @property
    def moves_more_pixels(self) -> bool:
        """Whether the image and the result are larger than the weights. A thread should then keep a part of all channels, which
        it has written itself: cores without a shared cache would otherwise exchange half of either."""
        image = self.channels * self.deep * self.height * self.width * self.pixel
        return image + self.blocks * self.pixels * VECTOR_BYTES >= self.blocks * self.steps * VECTOR_BYTES

    @property
    def is_within(self) -> bool:
        """Whether windows have one line, of the image."""
        down = self.window[0]
        return (down.size, down.begin, down.end) == (1, 0, 0)

    @property
    def is_pointwise(self) -> bool:
        """Whether input and output pixels correspond one to one."""
        windows = (*self.window, self.pile.window) if self.pile else self.window
        return all((a.size, a.stride, a.begin, a.end) == (1, 1, 0, 0) for a in windows)

    def as_one_row(self) -> Problem:
        """The same pixels side by side."""
        width = self.slices * self.height * self.width
        return replace(self, pile=None, height=1, width=width, lines=1, columns=self.slices * self.pixels)


def problem_of(found: Anchored) -> Problem | None:
    """The sizes of a convolution whose operands are parameters; None if they are not known."""
    problem = estimated_problem(found)
    x, result = (shape_of(found.definition.values[number]) for number in (found.node.inputs[0], found.number))
    is_known = all(isinstance(size, int) and size for size in (*x[1:], *result[1:]))
    return problem if is_known else None


def estimated_problem(found: Anchored) -> Problem | None:
    """The same with estimates of lengths known only at run time; None if other sizes are unknown."""
    definition, node, attributes = found.definition, found.node, found.attributes
    precision = Precision.of(found)
    if not found.takes_parameters or precision is None:
        return None
    x, weight = (shape_of(definition.params[number]) for number in node.inputs[:2])
    result = shape_of(node.results[0])
    spatial = len(result) - 3
    if spatial > 3:
        return None
    windows = axes(weight[2 : 2 + spatial], attributes["strides"], attributes["pads"], attributes["dilations"])
    pads = [pad for axis in windows for pad in (axis.begin, axis.end)]
    if not all(isinstance(size, int) for size in (x[1], *weight, *pads)) or 0 in weight:
        return None
    groups, channels = attributes.get("groups", 1), attributes.get("channels", BLOCK)
    narrow = narrow_groups(attributes)
    if narrow is not None:
        groups, channels = narrow.blocks, narrow.width * BLOCK
    known = [
        (max(1, estimate(size)), max(1, estimate(outputs)), Window.of(axis))
        for size, outputs, axis in zip(x[2 : 2 + spatial], result[2:-1], windows, strict=True)
    ]
    if spatial == 1:
        known.insert(0, (1, 1, Window(1, 1, 1, 0, 0)))
    *pile, (height, lines, vertical), (width, columns, horizontal) = known
    return Problem(
        is_planar=node.operator == "conv_planar",
        is_summed=node.operator == "conv_to_few",
        batch=x[0],
        groups=groups,
        channels=integer(weight[1]),
        last=channels - (math.ceil(channels / BLOCK) - 1) * BLOCK,
        blocks=integer(weight[0]) // groups,
        height=height,
        width=width,
        lines=lines,
        columns=columns,
        window=(vertical, horizontal),
        pile=Pile(*pile[0]) if pile else None,
        narrow=None if narrow is None or narrow.are_even else narrow,
        precision=precision,
    )
