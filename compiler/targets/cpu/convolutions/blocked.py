"""Direct convolution of channel-blocked signals, images and volumes, dense and grouped, and of planar ones of few channels.

A dense convolution is a register tile of pixels of one output row by blocks of output channels; the sum runs over blocks of
input channels, the window, and the channels of a block. Window rows in the padding above and below are left
out. If there is padding at the sides, the image rows that a band of output rows needs are first copied, with
zeros around, to scratch. A 1x1 window of stride 1 sees the image as one long row. A signal is an image
of one row; a volume is a stack of slices, and the sum runs over slices of the window too.

The work is cut into units: an image, a group, a slice, a band of tiles, and blocks of output channels, the last varying
fastest, so that a band's pixels stay in L2 while the weights stream by. Threads share the tiles of all units
evenly: a part that begins or ends within a unit does some of its tiles.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel, even_pieces, require_few
from ..kernels.writer import Writer, estimate
from ..operators.int8 import COLUMN_FACTS
from ..products.epilogue import Epilogue, Grid, ignores_lines
from ..products.precision import FLOAT32
from ..products.tile import (
    BLOCK,
    TALLEST,
    VECTOR_BYTES,
    Tile,
    choose,
    multiply_add,
    step_cost,
    write_ahead,
    write_blocks,
    write_chunks,
    write_ends,
    write_start,
    write_step,
)
from ..target import Target
from .narrow_groups import write_channel_band, write_channel_band_sizes, write_exactly, write_mask
from .sizes import MET, Problem, problem_of

_HALVES = 2  # bands at least, for two threads to have one each


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_blocked and conv_planar, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = problem_of(found) if found else None
    if found is None or problem is None or not Epilogue.takes(found):
        return None
    return lambda: Conv(found, problem, target).kernel()


class Conv:
    """Writes one convolution."""

    line = "line"  # the variable that counts lines of the result

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.write, self.node, self.target = Writer(found.definition, target, found.title), found.node, target
        self.write.lanes = BLOCK
        self.epilogue_cost = found.epilogue.cost
        if problem.is_pointwise and ignores_lines(found):
            problem = problem.as_one_row()
        self.problem = problem
        self.tile = replace(self.choose_tile(), precision=problem.on(target))
        self.across = math.ceil(problem.columns / self.tile.rows)
        self.band = self.choose_band()
        self._write_sizes()
        self.epilogue = Epilogue(self.write, found, self._grid(len(self.node.results[0].shape)))

    def choose_tile(self) -> Tile:
        problem, is_square = self.problem, bool(self.problem.on(self.target).square)
        return choose(problem.columns, problem.blocks, self.target, is_nested=True, is_square=is_square)

    def _grid(self, rank: int) -> Grid:
        """The tiles' grid in a result of that rank."""
        between = ("slice" if self.problem.pile else "0", self.line)[6 - rank :]
        return Grid(("image", "(group * blocks + block)", *between, "column", "0"), rank - 2, 1, 1)

    def choose_band(self) -> int:
        """Tiles of a band: whole rows of them, and about as much input as half of L2 holds."""
        problem, half = self.problem, self.target.half_l2
        if problem.lines == 1:
            row = self.tile.rows * problem.window[1].stride * problem.pixel
            total, each = self.across, problem.channels * problem.deep * row
        else:
            total = problem.lines
            each = self.line_bytes
        images = problem.batch if isinstance(problem.batch, int) else 1
        others = max(1, images * problem.groups * problem.slices * math.ceil(problem.blocks / self.tile.blocks))
        least = math.ceil(total / max(1, half // each))
        if problem.moves_more_pixels:
            least = max(least, min(_HALVES, total))
        bands = even_pieces(total, least, others)
        share = math.ceil(total / bands)
        return share if problem.lines == 1 else share * self.across

    @property
    def line_bytes(self) -> int:
        """Bytes of the image, or of its copy, that a line of the result takes."""
        problem = self.problem
        return problem.channels * problem.deep * problem.width * problem.window[0].stride * problem.pixel

    @property
    def is_uneven(self) -> bool:
        """Whether the last band is smaller than the others."""
        share, total = self.band, self.across
        if self.problem.lines > 1:
            share, total = share // self.across, self.problem.lines
        return math.ceil(total / share) * share > costs.UNEVEN_TILES * total

    @property
    def _stage_lines(self) -> int:
        """Input lines that a band needs."""
        axis = self.problem.window[0]
        lines = (math.ceil(self.band / self.across) - 1) * axis.stride + axis.extent
        return min(lines, self.problem.height)

    @property
    def _stage_reach(self) -> int:
        """The pixels of a staged line; if there is one line, those that a band needs."""
        problem = self.problem
        if problem.lines > 1:
            return problem.reach
        return min(problem.reach, problem.window[1].reach(self.band * self.tile.rows))

    @property
    def stage_row(self) -> int:
        """Bytes of a staged line: whole vectors, and one more, which spreads lines over the cache's sets."""
        return (self._stage_reach * self.pixel + 2 * VECTOR_BYTES - 1) // VECTOR_BYTES * VECTOR_BYTES

    def _write_sizes(self) -> None:
        write, problem = self.write, self.problem
        vertical, horizontal = problem.window
        write.inputs(self.node.inputs, "images_at", "weight", "bias", "channel_facts")
        write.sizes(images=problem.batch, groups=problem.groups, channels=problem.channels, blocks=problem.blocks)
        write.sizes(**self.lengths(), **vertical.sizes("height", "down", "top"))
        write.sizes(**horizontal.sizes("width", "across", "left"), last_channels=problem.last)
        if problem.chunk:
            write.size("chunk", problem.chunk)
        if problem.narrow:
            write_channel_band_sizes(write, problem.narrow)
        if self.is_staged:
            self.write_stage_sizes()
        if problem.pile:
            write.sizes(depth=problem.pile.depth, slices=problem.pile.slices)
            write.sizes(**problem.pile.window.sizes("depth", "deep", "front"))

    def lengths(self) -> dict[str, Dim]:
        problem = self.problem
        return {"height": problem.height, "width": problem.width, "lines": problem.lines, "columns": problem.columns}

    @property
    def is_staged(self) -> bool:
        """Whether a band's part of the image is copied to scratch first."""
        return self.problem.is_staged

    @property
    def stage_bytes(self) -> int:
        """Bytes of scratch for the copy."""
        return self._stage_plane * self.problem.channels

    @property
    def sum_bytes(self) -> int:
        """Bytes of scratch for sums, behind the epilogue's."""
        return 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of scratch after them, for a copy of a tile's weights."""
        return 0

    @property
    def pixel(self) -> int:
        """Bytes from a pixel to the next one, where tiles read them: in the image, or the copy."""
        return self.problem.pixel

    def write_stage_sizes(self) -> None:
        self.write.sizes(reach=self._stage_reach, x_line=self.stage_row, x_plane=self._stage_plane)

    @property
    def _stage_plane(self) -> int:
        """Bytes of a channel in scratch."""
        return self.stage_row * self._stage_lines * self.problem.deep

    @property
    def nanoseconds(self) -> float:
        """The estimated time of one image."""
        problem = self.problem
        planes = problem.groups * problem.slices
        tiles = planes * problem.lines * self.across * math.ceil(problem.blocks / self.tile.blocks)
        elements = planes * problem.blocks * problem.pixels * BLOCK
        return (
            tiles * problem.steps * step_cost(self.tile, self.target) / costs.GIGAHERTZ + elements * self.epilogue_cost
        )

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
        write(f"x_row = stride_across * {self.pixel}")
        write(f"x_step = {self.step}", f"w_step = {VECTOR_BYTES}")
        write(f"w_line = window_width * {self.tap_bytes}", f"w_block = {self.weight_lines} * w_line")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        if self.is_staged:
            write(f"stage = scratch + {self.epilogue.buffer_bytes + self.sum_bytes}")
        self.epilogue.streaming(self.write_units)
        scratch = self.epilogue.buffer_bytes + self.sum_bytes
        if self.is_staged:
            scratch += self.stage_bytes + VECTOR_BYTES + self.weight_bytes
        return write.kernel(estimate(problem.batch) * self.nanoseconds, scratch)

    def write_units(self) -> None:
        with self.write.block("for unit in range(first // unit_tiles, (last + unit_tiles - 1) // unit_tiles)"):
            self.write_unit()

    def write_bands(self) -> None:
        """Defines the number of bands, and the time of an image."""
        write, rows = self.write, self.tile.rows
        write.sizes(band=self.band, nanoseconds=round(self.nanoseconds))
        write(f"across = (columns + {rows - 1}) // {rows}", "tiles = lines * across")
        write("bands = (tiles + band - 1) // band", "unit_tiles = band")

    @property
    def weight_lines(self) -> str:
        """Lines of the weights of one block of outputs."""
        return "channels * window_depth * window_height" if self.problem.pile else "channels * window_height"

    @property
    def step(self) -> str:
        """Bytes of the input from one step of the innermost loop to the next."""
        return "dilation_across * 4" if self.problem.is_planar else "4"

    @property
    def tap_bytes(self) -> int:
        """Bytes of the weights of one window position, for one block of inputs (or plane) and one of outputs."""
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
            write_channel_band(write)
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
        """Copies the band's input, unless the previous unit has, and moves `origin` there. `left` is the first used pixel of each
        line: a band takes a part of a long line."""
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
        """Copies `reach` pixels of each line, from `left` on."""
        write = self.write
        with write.block("if place != staged"):
            write("staged = place", "margin = max(-left, 0)", "skipped = max(left, 0)")
            write("copied = max(min(width - skipped, reach - margin), 0)", f"origin += skipped * {self.problem.pixel}")
            self.write_lines()
        write(f"origin = stage - first_line * x_line - left * {self.pixel}")

    def write_lines(self) -> None:
        """Copies the lines from `first_line` to `end_line` of every channel, `copied` pixels of each."""
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
        """The address of a channel's plane, or slice of it."""
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
            if problem.is_within:
                write("first_tap = 0", "end_tap = window_height")
            else:
                write("first_tap = max(0, (dilation_down - 1 - top) // dilation_down)")
                write("end_tap = min(window_height, (height - top + dilation_down - 1) // dilation_down)")
            self.epilogue.begin()
            self.epilogue.fetch(tile)
            self.write_weights(tile)
            write(f"x_tile = origin + {self._x_place('top', 'column')}")
            self.write_next(tile)
            if len(self.node.inputs) > 2:
                write(f"bias_tile = bias + (group * blocks + block) * {VECTOR_BYTES}")
            if problem.narrow:
                write_exactly(write, tile, partial(self.write_sums, tile))
            else:
                self.write_sums(tile)
            self.write_end(tile)

    def write_end(self, tile: Tile) -> None:
        """What happens to a tile's sums."""
        self.epilogue.tile(self.write_result(tile), skip="skip" if self.has_rest(tile) else "")

    def write_weights(self, tile: Tile) -> None:
        """Defines where the tile's weights are, and those that are prefetched meanwhile."""
        self.write("w_tile = weight + (group * blocks + block) * w_block")
        next_block = f"group * blocks + block + {tile.blocks} + tile % {tile.blocks}"
        self.write(f"ahead = weight + ({next_block}) * w_block")

    def write_first(self) -> None:
        """Defines the position of the band's first tile."""
        self.write("line = first_tile // across", "along = first_tile - line * across")

    def has_rest(self, tile: Tile) -> bool:
        """Whether the last tile of a line may overlap the previous one."""
        return self.problem.columns % tile.rows > 0

    _is_masked = False  # whether the current text masks other groups' channels

    def write_sums(self, tile: Tile, is_masked: bool = False) -> None:
        """`is_masked`: sums only channels of the same group, for narrow groups."""
        write = self.write
        self._is_masked = is_masked
        write_start(write, tile, self.bias)
        chunk = "chunk" if self.problem.chunk else ""
        with write_chunks(write, tile, "channels", chunk) as channels, write.block(f"for channel in {channels}"):
            self._write_inner()
            self.write_channel(tile)
        write_ends(write, tile)

    @property
    def bias(self) -> str:
        """The address of the vectors that sums start with; empty for zeros."""
        return "bias_tile" if len(self.node.inputs) > 2 else ""

    def write_result(self, tile: Tile) -> Tile:
        """Turns the accumulators into the result's tile."""
        return tile

    def _x_place(self, top: str, column: str) -> str:
        """The offset of a tile's first window from `origin`."""
        return f"{top} * x_line + ({column} * stride_across - pad_left) * {self.pixel}"

    def write_next(self, tile: Tile) -> None:
        """Advances to the next tile. The first blocks of outputs read its pixels from memory, the others from
        L2; weights that have not just been copied are prefetched one tile ahead."""
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
        """The active channels of the block, if not all are: those before `inner`, from `outer` on if groups are narrow."""
        write, problem = self.write, self.problem
        if problem.narrow:
            write(
                f"outer = max(band_begin - channel * {BLOCK}, 0)", f"inner = min(band_end - channel * {BLOCK}, {BLOCK})"
            )
        elif not problem.is_planar and problem.last < BLOCK:
            write(f"inner = last_channels if channel == channels - 1 else {BLOCK}")

    def write_channel(self, tile: Tile) -> None:
        """The part of the sum over one block of input channels (or plane)."""
        with self._slices():
            self._write_sum(tile)

    def _write_sum(self, tile: Tile) -> None:
        """The part of the sum over one block of input channels (or plane), in one slice of the window."""
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
        """The part of the sum over a row of the window."""
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
        """Whether each pixel of a row is read once, for all window positions. Tiles of one block would otherwise need one
        load per FMA: L1-bound; wider ones have no registers for the weights of all positions."""
        window = self.problem.window[1]
        has_registers = TALLEST + window.size < self.target.block_registers
        return self.problem.blocks == 1 < window.size and has_registers and not self._is_masked

    def _write_sliding(self, tile: Tile) -> None:
        """The part of the sum over a row of the window, with its weights in registers."""
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
        require_few(window.size, MET, "places of a window")
        taps = range(window.size)
        write_ahead(write, [tap * VECTOR_BYTES for tap in taps], window.size * VECTOR_BYTES)
        write(*(f"w_{tap} = {tile.load(str(tap * self.tap_bytes))}" for tap in taps))
        for at, uses in window.uses(tile.rows):
            write(f"x_{at} = {tile.precision.broadcast(f'x, {at * self.problem.pixel}')}")
            for row, tap in uses:
                write(multiply_add(tile.accumulator(row, 0), f"x_{at}", f"w_{tap}", self.target, tile.precision))

    @property
    def _inner(self) -> str:
        """The active channels of a block, as the limits of a loop."""
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


class ScaledConv(Conv):
    """A convolution whose sums become float32 by the scales of image and weights, if it has them (`operators/int8.py`)."""

    @property
    def _has_facts(self) -> bool:
        return self.node.operator == "conv_int8_blocked"

    @property
    def bias(self) -> str:
        return "" if self._has_facts else super().bias

    def write_result(self, tile: Tile) -> Tile:
        if not self._has_facts:
            return tile
        write, scaled = self.write, replace(tile, precision=FLOAT32, sums="scaled")
        write("scale = splat_float32(load_float32(bias, image * 8))")
        write("zero = splat_float32(load_float32(bias, image * 8 + 4))")
        for j in range(tile.blocks):
            place = f"channel_facts, ((group * blocks + block + {j}) * {COLUMN_FACTS})"
            each = [f"vload_float32({place} * {VECTOR_BYTES} + {at * VECTOR_BYTES})" for at in range(COLUMN_FACTS)]
            write(f"scale_{j} = scale * {each[0]}", f"offset_{j} = {each[2]} - zero * {each[1]} * scale_{j}")
        for i in range(tile.rows):
            for j in range(tile.blocks):
                total = f"convert_float32({tile.accumulator(i, j)}) * scale_{j} + offset_{j}"
                write(f"{scaled.accumulator(i, j)} = {total}")
        return scaled
