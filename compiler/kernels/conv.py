"""Convolutions of channel-blocked signals, images and volumes, dense and grouped, and of planar ones of few channels.

A dense convolution is a register tile of pixels of one output row by blocks of output channels; the sum runs over blocks of
input channels, the window, and the channels of a block. Rows that the window meets in the padding above and below are left
out. Where it meets padding at the sides, the rows of an image that one band of output rows needs are first copied, with
zeros around, to the scratch memory. A 1x1 window that meets every pixel sees the image as one long row. A signal is an image
of one row; a volume is a pile of slices, and the sum runs over slices of the window too.

The work is cut into units: an image, a group, a slice, a band of tiles, and blocks of output channels, the last varying
fastest, so that a band's pixels stay in the second cache while the weights stream by. Threads share the tiles of all units
evenly: a part that begins or ends within a unit does some of its tiles.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...formats.dims import Dim
from ...formats.primitive import PrimitiveDefinition
from ..operators.packing import NarrowGroups
from ..operators.shapes import integer
from ..operators.windows import Axis, axes
from .anchor import Anchored
from .epilogue import Epilogue, Grid, ignores_lines
from .kernel import Kernel, even_pieces
from .target import Target
from .tile import (
    BLOCK,
    TALLEST,
    VECTOR_BYTES,
    Tile,
    choose,
    chunk_of,
    multiply_add,
    step_cost,
    write_ahead,
    write_blocks,
    write_chunks,
    write_start,
    write_step,
)
from .variants import decide, nearby
from .writer import Writer, estimate, shape_of

GIGAHERTZ = 4.0  # of the machine that estimates are for
_HALVES = 2  # bands at least, for two threads to have one each
_EVEN = 1.02  # times its share is what the largest band may have


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

    def reach(self, pixels: int) -> int:
        """The pixels of the image that so many neighbouring ones of the result are made of, from the first to the last."""
        return (pixels - 1) * self.stride + self.extent

    def uses(self, at: int, pixels: int) -> list[tuple[int, int]]:
        """Which of so many neighbouring pixels of the result are made of the image's pixel `at` of their reach: each with the
        place of the window that meets it."""
        starts = ((at - place * self.dilation, place) for place in range(self.size))
        met = ((start // self.stride, place) for start, place in starts if start >= 0 and start % self.stride == 0)
        return [(pixel, place) for pixel, place in met if pixel < pixels]


@dataclass(frozen=True)
class Pile:
    """The third axis, of a volume."""

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
    narrow: NarrowGroups | None = None  # then each block of the result counts as a group
    words: int = 0  # of four channels that a block has, where they are of 8 bits: see `conv_integer.py`

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
        return 4 if self.is_planar else BLOCK if self.words else VECTOR_BYTES

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
        """The part of it that one block of input channels (or plane) gives."""
        channels = 1 if self.is_planar or self.is_summed else self.words or BLOCK
        return channels * self.deep * self.window[0].size * self.window[1].size

    @property
    def chunk(self) -> int:
        """Input blocks (planes) that are summed up apart from the others; 0 if the sum is short."""
        return 0 if self.words else chunk_of(self.channels, self._block_steps)

    @property
    def pixels(self) -> int:
        """Of an output image, or of a slice of it."""
        return self.lines * self.columns

    @property
    def moves_more_pixels(self) -> bool:
        """Whether the image and the result are larger than the weights. A thread should then have a part of all channels, which
        it has made itself and takes again: cores that do not share a cache would send each other half of either."""
        image = self.channels * self.deep * self.height * self.width * self.pixel
        return image + self.blocks * self.pixels * VECTOR_BYTES >= self.blocks * self.steps * VECTOR_BYTES

    @property
    def is_pointwise(self) -> bool:
        """True if input and output pixels correspond one to one."""
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
    """The same where lengths that only a run can tell are estimates; None if others are not known."""
    definition, node, attributes = found.definition, found.node, found.attributes
    if not found.takes_parameters:
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
    )


def narrow_groups(attributes: dict[str, Any]) -> NarrowGroups | None:
    """The groups of a convolution that has some which do not begin with a block."""
    sizes = [attributes.get(name, 0) for name in ("groups", "channels", "outputs")]
    return NarrowGroups(*sizes) if sizes[-1] else None


def write_band_sizes(write: Writer, narrow: NarrowGroups) -> None:
    """The words that `write_band` needs."""
    write.sizes(
        image_channels=narrow.count * narrow.channels,
        image_blocks=narrow.image_blocks,
        group_channels=narrow.channels,
        group_outputs=narrow.outputs,
        outputs=narrow.count * narrow.outputs,
    )


def write_band(write: Writer) -> None:
    """Defines `image_block`, the first one that has weights for the block number `group` of the result, and which channels from
    there on count: `band_begin` to `band_end`."""
    write(f"lowest = group * {BLOCK} // group_outputs * group_channels")
    write(f"image_block = min(lowest // {BLOCK}, image_blocks - channels)")
    write(f"band_begin = lowest - image_block * {BLOCK}", f"highest = min(group * {BLOCK} + {BLOCK}, outputs) - 1")
    write(f"band_end = (highest // group_outputs + 1) * group_channels - image_block * {BLOCK}")


def write_mask(write: Writer, channel: str) -> str:
    """Defines which lanes of the block number `group` of the result are of the same group as a channel, counted from those of
    `image_block`; the name of that mask."""
    write(f"lane = (image_block * {BLOCK} + {channel}) // group_channels * group_outputs - group * {BLOCK}")
    write("of_group = inside(lane + group_outputs) & ~inside(lane)")
    return "of_group"


def write_exactly(write: Writer, tile: Tile, write_sums: Callable[[bool], None]) -> None:
    """The sums of narrow groups: first with the zeros between groups. What is no number may come from another group's infinity,
    times such a zero. Where there is one, all is done again: `write_sums(True)` leaves out what is not of the group."""
    write_sums(False)
    sums = [tile.accumulator(i, j) for i in range(tile.rows) for j in range(tile.blocks)]
    with write.block(f"if any_lane({' | '.join(f'isnan({each})' for each in sums)})"):
        write_sums(True)


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_blocked and conv_planar, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = problem_of(found) if found else None
    if found is None or problem is None or not Epilogue.takes(found):
        return None
    return lambda: Conv(found, problem, target).kernel()


class Conv:
    """Writes one convolution."""

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.write, self.node, self.target = Writer(found.definition, target, found.title), found.node, target
        self.write.lanes = BLOCK
        self.epilogue_cost = found.epilogue.cost
        if problem.is_pointwise and ignores_lines(found):
            problem = problem.as_one_row()
        self.problem = problem
        self.tile = self.choose_tile()
        self.across = math.ceil(problem.columns / self.tile.rows)
        self.band = self.choose_band()
        self._write_sizes()
        self.epilogue = Epilogue(self.write, found, self._grid(len(self.node.results[0].shape)))

    def choose_tile(self) -> Tile:
        return choose(self.problem.columns, self.problem.blocks, self.target, is_nested=True)

    def _grid(self, rank: int) -> Grid:
        """Where tiles lie in a result of that rank."""
        between = ("slice" if self.problem.pile else "0", "line")[6 - rank :]
        return Grid(("image", "(group * blocks + block)", *between, "column", "0"), rank - 2, 1, 1)

    def choose_band(self) -> int:
        """Tiles of a band: whole rows of them, and about as much input as half of the second cache holds."""
        problem, half = self.problem, self.target.l2_bytes // 2
        if problem.lines == 1:
            row = self.tile.rows * problem.window[1].stride * problem.pixel
            total, each = self.across, problem.channels * problem.deep * row
        else:
            total = problem.lines
            each = problem.channels * problem.deep * problem.width * problem.window[0].stride * problem.pixel
        images = problem.batch if isinstance(problem.batch, int) else 1
        others = max(1, images * problem.groups * problem.slices * math.ceil(problem.blocks / self.tile.blocks))
        least = math.ceil(total / max(1, half // each))
        if problem.moves_more_pixels:
            least = max(least, min(_HALVES, total))
        bands = even_pieces(total, least, others)
        bands = decide("bands", bands, nearby(bands))
        share = math.ceil(total / bands)
        return share if problem.lines == 1 else share * self.across

    @property
    def is_uneven(self) -> bool:
        """Whether the last band is smaller than the others."""
        share, total = self.band, self.across
        if self.problem.lines > 1:
            share, total = share // self.across, self.problem.lines
        return math.ceil(total / share) * share > _EVEN * total

    @property
    def _stage_lines(self) -> int:
        """Input lines that a band needs."""
        axis = self.problem.window[0]
        lines = (math.ceil(self.band / self.across) - 1) * axis.stride + axis.extent
        return min(lines, self.problem.height)

    @property
    def _stage_reach(self) -> int:
        """The pixels of a line in the scratch memory: where there is one line, those that a band needs."""
        problem = self.problem
        if problem.lines > 1:
            return problem.reach
        return min(problem.reach, problem.window[1].reach(self.band * self.tile.rows))

    @property
    def _stage_row(self) -> int:
        """The bytes of that: whole vectors, and one more, which spreads lines over the cache's sets."""
        return (self._stage_reach * self.problem.pixel + 2 * VECTOR_BYTES - 1) // VECTOR_BYTES * VECTOR_BYTES

    def _write_sizes(self) -> None:
        write, problem = self.write, self.problem
        vertical, horizontal = problem.window
        write.inputs(self.node.inputs, "images_at", "weight", "bias")
        write.sizes(
            images=problem.batch,
            groups=problem.groups,
            channels=problem.channels,
            blocks=problem.blocks,
            **self.lengths(),
            window_height=vertical.size,
            stride_down=vertical.stride,
            dilation_down=vertical.dilation,
            pad_top=vertical.begin,
            window_width=horizontal.size,
            stride_across=horizontal.stride,
            dilation_across=horizontal.dilation,
            pad_left=horizontal.begin,
            last_channels=problem.last,
        )
        if problem.chunk:
            write.size("chunk", problem.chunk)
        if problem.narrow:
            write_band_sizes(write, problem.narrow)
        if self.is_staged:
            self.write_stage_sizes()
        if problem.pile:
            axis = problem.pile.window
            write.sizes(
                depth=problem.pile.depth,
                slices=problem.pile.slices,
                window_depth=axis.size,
                stride_deep=axis.stride,
                dilation_deep=axis.dilation,
                pad_front=axis.begin,
            )

    def lengths(self) -> dict[str, Dim]:
        problem = self.problem
        return {
            "height": problem.height,
            "width": problem.width,
            "lines": problem.lines,
            "columns": problem.columns,
        }

    @property
    def is_staged(self) -> bool:
        """Whether what a band needs of the image is copied first."""
        return self.problem.is_staged

    @property
    def stage_bytes(self) -> int:
        """Of the scratch memory, for the copy."""
        return self._stage_plane * self.problem.channels

    def write_stage_sizes(self) -> None:
        self.write.sizes(reach=self._stage_reach, x_line=self._stage_row, x_plane=self._stage_plane)

    @property
    def _stage_plane(self) -> int:
        """Bytes of what a channel needs in the scratch memory."""
        return self._stage_row * self._stage_lines * self.problem.deep

    @property
    def nanoseconds(self) -> float:
        """The estimated time of one image."""
        problem = self.problem
        planes = problem.groups * problem.slices
        tiles = planes * problem.lines * self.across * math.ceil(problem.blocks / self.tile.blocks)
        elements = planes * problem.blocks * problem.pixels * BLOCK
        return tiles * problem.steps * step_cost(self.tile) / GIGAHERTZ + elements * self.epilogue_cost

    def kernel(self) -> Kernel:
        write, problem, tile = self.write, self.problem, self.tile
        write(f"row_bytes = width * {problem.pixel}")
        if problem.pile:
            write("slice_bytes = height * row_bytes", "plane_bytes = depth * slice_bytes")
        else:
            write("plane_bytes = height * row_bytes")
        write(f"block_units = (blocks + {tile.blocks - 1}) // {tile.blocks}")
        self.write_bands()
        if self.is_staged:
            write.prepare("staged")
        elif self.asks_ahead:
            write.prepare("brought")
        slices = "slices * " if problem.pile else ""
        units = f"images * groups * {slices}bands * block_units"
        write.split_evenly(units, "unit_tiles", "images * nanoseconds", self.is_uneven)
        write(f"x_row = stride_across * {problem.pixel}")
        write(f"x_step = {self.step}", f"w_step = {VECTOR_BYTES}")
        write(f"w_line = window_width * {self.tap_bytes}", f"w_block = channels * {self._window_lines} * w_line")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        if self.is_staged:
            write(f"stage = scratch + {self.epilogue.buffer_bytes}")
        self.epilogue.streaming(self._write_units)
        scratch = self.epilogue.buffer_bytes
        if self.is_staged:
            scratch += self.stage_bytes + VECTOR_BYTES
        return write.kernel(estimate(problem.batch) * self.nanoseconds, scratch)

    def _write_units(self) -> None:
        with self.write.block("for unit in range(first // unit_tiles, (last + unit_tiles - 1) // unit_tiles)"):
            self.write_unit()

    def write_bands(self) -> None:
        """Defines how many bands there are, and the time that an image takes."""
        write, rows = self.write, self.tile.rows
        write.sizes(band=self.band, nanoseconds=round(self.nanoseconds))
        write(f"across = (columns + {rows - 1}) // {rows}", "tiles = lines * across")
        write("bands = (tiles + band - 1) // band", "unit_tiles = band")

    @property
    def _window_lines(self) -> str:
        return "window_depth * window_height" if self.problem.pile else "window_height"

    @property
    def step(self) -> str:
        """Bytes of the input from one step of the innermost loop to the next."""
        return "dilation_across * 4" if self.problem.is_planar else "4"

    @property
    def tap_bytes(self) -> int:
        """Bytes of the weights of one place of the window, for one block of inputs (or plane) and one of outputs."""
        return VECTOR_BYTES if self.problem.is_planar else BLOCK * VECTOR_BYTES

    def write_unit(self) -> None:
        write = self.write
        plane = "plane" if self.problem.pile else "image_group"
        write("place = unit // block_units", f"block = (unit - place * block_units) * {self.tile.blocks}")
        if self.asks_ahead:
            write("is_new = place != brought", "brought = place")  # to this thread
        write(f"{plane} = place // bands", f"number = place - {plane} * bands")
        self.write_band()
        if self.problem.pile:
            write("image_group = plane // slices", "slice = plane - image_group * slices")
            write("front = slice * stride_deep - pad_front")
            write("first_slice = max(0, (dilation_deep - 1 - front) // dilation_deep)")
            write("end_slice = min(window_depth, (depth - front + dilation_deep - 1) // dilation_deep)")
        write("image = image_group // groups", "group = image_group - image * groups")
        if self.problem.narrow:
            write_band(write)
            write("origin = images_at + (image * image_blocks + image_block) * plane_bytes")
        else:
            write("origin = images_at + image_group * channels * plane_bytes")
        if self.problem.pile:
            write("origin += front * slice_bytes")
        if self.is_staged:
            self.write_stage()
        else:
            write("x_line = row_bytes", "x_plane = plane_bytes")
            if self.problem.pile:
                write("x_slice = dilation_deep * slice_bytes")
        write("unit_begin = unit * unit_tiles", "last_tile = min(last_tile, first_tile + last - unit_begin)")
        write("first_tile += max(first - unit_begin, 0)")
        self.write_blocks()

    def write_band(self) -> None:
        """Defines the tiles of a band."""
        self.write("first_tile = number * band", "last_tile = min(first_tile + band, tiles)")

    def write_blocks(self) -> None:
        """The tiles of a unit."""
        write_blocks(self.write, self.problem.blocks, self.tile, self.write_tiles)

    def write_stage(self) -> None:
        """Copies what the band needs, if the unit before has not, and moves `origin` there. `left` is the first pixel of each
        line that it needs: of a long line, a band takes a part."""
        write, rows = self.write, self.tile.rows
        write("first_line = max(first_tile // across * stride_down - pad_top, 0)")
        write("end_line = (last_tile - 1) // across * stride_down - pad_top + (window_height - 1) * dilation_down + 1")
        write("end_line = min(end_line, height)")
        begin = f"min(first_tile * {rows}, columns - {rows}) * stride_across" if self.problem.lines == 1 else "0"
        write(f"left = {begin} - pad_left")
        if self.problem.pile:
            write("x_slice = x_plane // window_depth")
        self.write_part()

    def write_part(self) -> None:
        """The copy of the part of the lines that is `reach` pixels long, from `left` on."""
        write, pixel = self.write, self.problem.pixel
        with write.block("if place != staged"):
            write("staged = place", "margin = max(-left, 0)", "skipped = max(left, 0)")
            write("copied = max(min(width - skipped, reach - margin), 0)", f"origin += skipped * {pixel}")
            self.write_lines()
        write(f"origin = stage - first_line * x_line - left * {pixel}")

    def write_lines(self) -> None:
        """Copies the lines from `first_line` to `end_line` of every channel, of each as much as is `copied`."""
        write = self.write
        with write.block("for channel in range(channels)"), self._slices():
            write(f"from_plane = origin + {self._at('plane_bytes', 'dilation_deep * slice_bytes')}")
            write(f"to_plane = stage + {self._at('x_plane', 'x_slice')}")
            with write.block("for line in range(first_line, end_line)"):
                write("source = from_plane + line * row_bytes", "target = to_plane + (line - first_line) * x_line")
                self.write_copy()

    def _slices(self) -> contextlib.AbstractContextManager[None]:
        """A loop over the window's slices that lie in the volume; none for an image."""
        head = "for deep in range(first_slice, end_slice)"
        return self.write.block(head) if self.problem.pile else contextlib.nullcontext()

    def _at(self, plane: str, along: str) -> str:
        """The place of a channel's plane, or slice of it."""
        return f"channel * {plane} + deep * {along}" if self.problem.pile else f"channel * {plane}"

    def write_copy(self) -> None:
        """One line: zeros for its margin, then its pixels."""
        write = self.write
        if self.problem.is_planar:
            with write.block(f"for at in range(0, x_line, {VECTOR_BYTES})"):
                write("vstore(target, at, splat_float32(0.0))")
            write("target += margin * 4", f"whole = copied // {BLOCK} * {BLOCK}")
            with write.block(f"for at in range(0, whole * 4, {VECTOR_BYTES})"):
                write("vstore(target, at, vload_float32(source, at))")
            with write.block("if whole < copied"):
                write("rest = vload_float32(source, whole * 4, copied - whole)")
                write("vstore(target, whole * 4, rest, copied - whole)")
            return
        with write.block("for column in range(min(margin, reach))"):
            write(f"vstore(target, column * {VECTOR_BYTES}, splat_float32(0.0))")
        write(f"inside = target + margin * {VECTOR_BYTES}")
        with write.block("for column in range(copied)"):
            write(f"vstore(inside, column * {VECTOR_BYTES}, vload_float32(source, column * {VECTOR_BYTES}))")
        with write.block("for column in range(margin + copied, reach)"):
            write(f"vstore(target, column * {VECTOR_BYTES}, splat_float32(0.0))")

    def write_tiles(self, tile: Tile) -> None:
        """The tiles of the band, for the blocks of output channels from `block` on."""
        write, problem = self.write, self.problem
        self.write_first()
        with write.block("for tile in range(first_tile, last_tile)"):
            write(f"column = min(along * {tile.rows}, columns - {tile.rows})", f"skip = along * {tile.rows} - column")
            write("top = line * stride_down - pad_top")
            write("first_tap = max(0, (dilation_down - 1 - top) // dilation_down)")
            write("end_tap = min(window_height, (height - top + dilation_down - 1) // dilation_down)")
            self.epilogue.begin()
            self.epilogue.fetch(tile)
            write("w_tile = weight + (group * blocks + block) * w_block")
            next_block = f"group * blocks + block + {tile.blocks} + tile % {tile.blocks}"
            write(f"ahead = weight + ({next_block}) * w_block")
            write(f"x_tile = origin + {self._x_place('top', 'column')}")
            self.write_next(tile)
            if len(self.node.inputs) > 2:
                write(f"bias_tile = bias + (group * blocks + block) * {VECTOR_BYTES}")
            if problem.narrow:
                write_exactly(write, tile, partial(self._write_sums, tile))
            else:
                self._write_sums(tile)
            self.epilogue.tile(self.write_result(tile), skip="skip" if self.has_rest(tile) else "")

    def write_first(self) -> None:
        """Defines the place of the band's first tile."""
        self.write("line = first_tile // across", "along = first_tile - line * across")

    def has_rest(self, tile: Tile) -> bool:
        """Whether the last tile of a line may overlap the one before it."""
        return self.problem.columns % tile.rows > 0

    _is_masked = False  # whether what is written leaves out other groups' channels

    def _write_sums(self, tile: Tile, is_masked: bool = False) -> None:
        """`is_masked`: only of what is of the same group, where groups are narrow."""
        write = self.write
        self._is_masked = is_masked
        write_start(write, tile, self.bias)
        chunk = "chunk" if self.problem.chunk else ""
        with write_chunks(write, tile, "channels", chunk) as channels, write.block(f"for channel in {channels}"):
            self._write_inner()
            with self._slices():
                self._write_sum(tile)

    @property
    def bias(self) -> str:
        """Where the vectors are that sums start with; empty for zeros."""
        return "bias_tile" if len(self.node.inputs) > 2 else ""

    def write_result(self, tile: Tile) -> Tile:
        """Makes the accumulators those of the tile of the result that it gives."""
        return tile

    def _x_place(self, top: str, column: str) -> str:
        """Where the first window of a tile lies, behind `origin`."""
        return f"{top} * x_line + ({column} * stride_across - pad_left) * {self.problem.pixel}"

    def write_next(self, tile: Tile) -> None:
        """Goes on to the place of the next tile. The first blocks of outputs take its pixels from afar, the others from the
        second cache: where they have not been copied just now, they are asked for a tile ahead."""
        write = self.write
        write("along += 1")
        with write.block("if along == across"):
            write("along = 0", "line += 1")
        if self.asks_ahead:
            write(f"next_column = min(along * {tile.rows}, columns - {tile.rows})")
            write(f"x_next = origin + {self._x_place('(line * stride_down - pad_top)', 'next_column')} - x_tile")

    @property
    def asks_ahead(self) -> bool:
        return not self.is_staged and not self.problem.is_planar

    def _write_inner(self) -> None:
        """Which channels of the block count, where not all do: those before `inner`, from `outer` on if groups are narrow."""
        write, problem = self.write, self.problem
        if problem.narrow:
            write(
                f"outer = max(band_begin - channel * {BLOCK}, 0)", f"inner = min(band_end - channel * {BLOCK}, {BLOCK})"
            )
        elif not problem.is_planar and problem.last < BLOCK:
            write(f"inner = last_channels if channel == channels - 1 else {BLOCK}")

    def _write_sum(self, tile: Tile) -> None:
        """The part of the sum that one block of input channels (or plane) gives, in one slice of the window."""
        write = self.write
        line = "(channel * window_depth + deep) * window_height" if self.problem.pile else "channel * window_height"
        write(f"x_window = x_tile + {self._at('x_plane', 'x_slice')}")
        if self.asks_ahead:
            with write.block("if is_new"), write.block(f"for i in range({tile.rows})"):
                write("prefetch(x_window + x_next, i * x_row)")
        with write.block("for tap in range(first_tap, end_tap)"):
            write(f"w = w_tile + ({line} + tap) * w_line", "x_tap = x_window + tap * dilation_down * x_line")
            self.write_taps(tile)

    def write_taps(self, tile: Tile) -> None:
        """The part of the sum that a row of the window gives."""
        write = self.write
        if self._slides:
            self._write_sliding(tile)
            return
        if self.problem.is_planar:
            write("x = x_tap")
            with write.block("for step in range(window_width)"):
                write_step(write, tile, self.target)
            return
        with write.block("for tap_across in range(window_width)"):
            write(f"x = x_tap + tap_across * dilation_across * {VECTOR_BYTES}")
            self._write_block_of_channels(tile)

    @property
    def _slides(self) -> bool:
        """Whether each pixel of a row is read once, for all places of the window that meet it. Tiles of one block read as much as
        they compute otherwise, and wait for the first cache; wider ones have no registers for the weights of all places."""
        window = self.problem.window[1]
        has_registers = TALLEST + window.size < self.target.block_registers
        return self.problem.blocks == 1 < window.size and has_registers and not self._is_masked

    def _write_sliding(self, tile: Tile) -> None:
        """The part of the sum that a row of the window gives, whose vectors stay in registers."""
        write = self.write
        write("x = x_tap")
        if self.problem.is_planar:
            self._write_sliding_step(tile)
            return
        if self.problem.narrow:
            write("x += outer * x_step", "w += outer * w_step")
        with write.block(f"for step in range({self._inner})"):
            self._write_sliding_step(tile)
            write("x += x_step", "w += w_step")

    def _write_sliding_step(self, tile: Tile) -> None:
        write, window = self.write, self.problem.window[1]
        taps = range(window.size)
        write_ahead(write, [tap * VECTOR_BYTES for tap in taps], window.size * VECTOR_BYTES)
        write(*(f"w_{tap} = {tile.load(str(tap * self.tap_bytes))}" for tap in taps))
        for at in range(window.reach(tile.rows)):
            if uses := window.uses(at, tile.rows):
                write(f"x_{at} = splat_float32(load_float32(x, {at * self.problem.pixel}))")
            for row, tap in uses:
                write(multiply_add(tile.accumulator(row, 0), f"x_{at}", f"w_{tap}", self.target))

    @property
    def _inner(self) -> str:
        """Which channels of a block count, as the limits of a loop."""
        return "outer, inner" if self.problem.narrow else "inner" if self.problem.last < BLOCK else str(BLOCK)

    def _write_block_of_channels(self, tile: Tile) -> None:
        write, problem = self.write, self.problem
        if problem.narrow:
            write(f"w_next = w + {BLOCK * VECTOR_BYTES}", "x += outer * x_step", "w += outer * w_step")
        with write.block(f"for step in range({self._inner})"):
            mask = write_mask(write, f"channel * {BLOCK} + step") if self._is_masked else ""
            write_step(write, tile, self.target, mask=mask)
        if problem.narrow:
            write("w = w_next")
        elif problem.last < BLOCK:
            write(f"w += ({BLOCK} - inner) * {VECTOR_BYTES}")
