"""im2col convolution of channel-blocked images whose sizes are known only at run time, or with more than three spatial axes: what
`blocked.py` and `symbolic.py` do not take.

The window of every output pixel is gathered into a row of a matrix ("im2col"), in the order of the packed weights;
the convolution is then a matrix product. Pixels are counted through all spatial axes, so that a register tile does not
care where a line ends. If windows are single adjacent pixels, the image itself is that matrix.

The work is cut into units: an image, a group, a band of tiles, and blocks of output channels, the last varying fastest. A
band's rows, as many as half of L2 holds, are gathered once, to scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.windows import axes
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..products.epilogue import Epilogue, Grid, ignores_lines
from ..products.tile import (
    BLOCK,
    SYMBOLIC_ROWS,
    VECTOR_BYTES,
    Tile,
    choose,
    chunk_of,
    step_cost,
    symbolic_tiles,
    write_blocks,
    write_chunks,
    write_start,
    write_step,
)
from ..target import Target
from .narrow_groups import narrow_groups, write_channel_band, write_channel_band_sizes, write_exactly, write_mask
from .sliding import Sliding

_MOST_TILES = 64  # tiles of a band, where rows are short or not gathered


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_blocked and conv_planar, with an elementwise epilogue."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found) or not ignores_lines(found) or not found.takes_parameters:
        return None
    convolution = _Convolution(found, target)
    return convolution.kernel if convolution.is_possible else None


class _Convolution:
    """Writes one convolution. Variables are those of `Sliding`, and `pixels` of the result; channels are blocks of those of
    a group, or planes."""

    def __init__(self, found: Anchored, target: Target) -> None:
        self.found, self.node, self.target = found, found.node, target
        self.is_planar = self.node.operator == "conv_planar"
        x, weight = (shape_of(found.definition.values[number]) for number in self.node.inputs[:2])
        result = shape_of(found.definition.values[found.number])
        attributes = found.attributes
        self.image, self.weight = x, weight
        end = len(weight) - (1 if self.is_planar else 2)
        windows = axes(weight[2:end], *(attributes[name] for name in ("strides", "pads", "dilations")))
        self.sliding = Sliding(windows, x[2:] if self.is_planar else x[2:-1], result[2:-1])
        self.narrow = narrow_groups(attributes)
        self.groups = self.narrow.blocks if self.narrow else attributes.get("groups", 1)
        self.pixels = dims.product(result[2:-1])
        self.channels = estimate(weight[1])
        self.last = 1 if self.is_planar else self._last_channels(attributes["channels"])
        self.blocks = estimate(weight[0]) // self.groups
        self.taps = math.prod(estimate(size) for size in weight[2:end])
        self.tiles = self._choose_tiles()
        self.band = self._band()

    def _last_channels(self, channels: int) -> int:
        """Channels of the last block of a group, or of the image if groups are narrow."""
        if self.narrow:
            return self.narrow.count * self.narrow.channels - (self.narrow.image_blocks - 1) * BLOCK
        return channels - (self.channels - 1) * BLOCK

    @property
    def is_possible(self) -> bool:
        """Whether the sizes of the weights are known; pads may be known only at run time."""
        return all(isinstance(size, int) and size for size in self.weight)

    @property
    def is_gathered(self) -> bool:
        windows = self.sliding.windows
        return self.is_planar or any((w.size, w.stride, w.begin, w.end) != (1, 1, 0, 0) for w in windows)

    @property
    def depth(self) -> int:
        """The length of a sum, including zeros beyond the last channel."""
        return self.channels * self.taps * (1 if self.is_planar else BLOCK)

    @property
    def _row(self) -> int:
        """Bytes between gathered rows: an odd number of vectors, which spreads rows over the cache's sets, and
        at least one more than the row has, for the overrun of its last vector."""
        return (-(-self.depth // BLOCK) + 1 | 1) * VECTOR_BYTES

    def _choose_tiles(self) -> list[Tile]:
        """The single tile for a known number of pixels; else tiles of decreasing size, the first fitting of which is taken."""
        if isinstance(self.pixels, int):
            return [choose(max(1, self.pixels), self.blocks, self.target)]
        return symbolic_tiles(SYMBOLIC_ROWS, min(2, self.blocks), self.target)

    def _band(self) -> int:
        row = self._row if self.is_gathered else self.channels * VECTOR_BYTES
        return min(_MOST_TILES, max(1, self.target.half_l2 // (row * self.tiles[0].rows)))

    @property
    def _nanoseconds(self) -> float:
        """The estimated time of one pixel of one block of the result, in all groups."""
        tile = self.tiles[0]
        return self.groups * self.depth * step_cost(tile, self.target) / tile.rows / tile.blocks / costs.GIGAHERTZ

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.found.definition, self.target, f"{self.found.title}, by im2col")
        write.lanes = BLOCK
        self._write_sizes()
        axis = len(self.sliding.windows) + 1
        between = ("0",) * (len(self.sliding.windows) - 1)
        grid = Grid(("image", "(group * blocks + block)", *between, "row", "0"), axis, 1, 1)
        self.epilogue = Epilogue(write, self.found, grid)
        write(f"tile_rows = {self._by_pixels()}", "tiles = (pixels + tile_rows - 1) // tile_rows")
        write("bands = (tiles + band - 1) // band", f"block_units = (blocks + {self._width - 1}) // {self._width}")
        if self.is_gathered:
            write.prepare("gathered")
        write.split("images * groups * bands * block_units", "images * pixels * blocks * picoseconds // 1000")
        write("plane = " + " * ".join(f"n{axis}" for axis in self.sliding.axes))
        write(f"w_step = {VECTOR_BYTES}", "w_block = depth * w_step", "x_step = 4")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        if self.is_gathered:
            write(f"matrix = scratch + {self.epilogue.buffer_bytes}")
            write.size("x_row", self._row)
        else:
            write(f"x_row = {VECTOR_BYTES}")
        with write.block("for unit in range(first, last)"):
            self._write_unit()
        pixels = estimate(dims.multiply(self.image[0], self.pixels)) * self.blocks
        return write.kernel(pixels * self._nanoseconds, self._scratch_bytes)

    @property
    def _scratch_bytes(self) -> int:
        rows = self.band * self.tiles[0].rows * self._row if self.is_gathered else 0
        return self.epilogue.buffer_bytes + rows

    @property
    def _width(self) -> int:
        return self.tiles[0].blocks

    def _write_sizes(self) -> None:
        write = self.write
        write.inputs(self.node.inputs, "images_at", "weight", "bias")
        write.sizes(images=self.image[0], pixels=self.pixels, groups=self.groups, channels=self.channels)
        write.sizes(last_channels=self.last, blocks=self.blocks, taps=self.taps, depth=self.depth, band=self.band)
        write.size("picoseconds", round(self._nanoseconds * 1000))
        if self.narrow:
            write_channel_band_sizes(write, self.narrow)
        self.sliding.write_sizes(write)

    def _by_pixels(self) -> str:
        """The rows of the tile that fits the pixels, as an expression."""
        *others, text = [str(tile.rows) for tile in self.tiles]
        for rows in reversed(others):
            text = f"{rows} if pixels >= {rows} else {text}"
        return text

    def _write_unit(self) -> None:
        write = self.write
        write("place = unit // block_units", f"block = (unit - place * block_units) * {self._width}")
        write("image_group = place // bands", "first_tile = (place - image_group * bands) * band")
        write("last_tile = min(first_tile + band, tiles)")
        write("image = image_group // groups", "group = image_group - image * groups")
        if self.narrow:
            write_channel_band(write)
            write(f"last_channels = min(image_channels - (image_block + channels - 1) * {BLOCK}, {BLOCK})")
            write(f"origin = images_at + (image * image_blocks + image_block) * plane * {self._pixel}")
        else:
            write(f"origin = images_at + image_group * channels * plane * {self._pixel}")
        write("base = min(first_tile * tile_rows, pixels - tile_rows)")
        if self.is_gathered:
            with write.block("if place != gathered"):
                write("gathered = place")
                self._write_rows()
        for number, tile in enumerate(self.tiles):
            if len(self.tiles) == 1:
                write_blocks(write, self.blocks, tile, self._write_tiles)
            else:
                with write.block(f"{'if' if number == 0 else 'elif'} tile_rows == {tile.rows}"):
                    write_blocks(write, self.blocks, tile, self._write_tiles)

    @property
    def _pixel(self) -> int:
        """Bytes from one pixel of the image to the next."""
        return 4 if self.is_planar else VECTOR_BYTES

    # ---- gathering ----

    def _write_rows(self) -> None:
        """The windows of the band's pixels, with zeros for padding."""
        write, sliding = self.write, self.sliding
        with write.block("for row in range(base, min(last_tile * tile_rows, pixels))"):
            write("target = matrix + (row - base) * x_row")
            rest = "row"
            for axis in reversed(sliding.axes[1:]):
                write(f"rest{axis} = {rest} // m{axis}", f"o{axis} = {rest} - rest{axis} * m{axis}")
                rest = f"rest{axis}"
            write(f"o0 = {rest}")
            for axis in sliding.axes:
                sliding.write_range(write, axis)
            inside = " + ".join(f"low{axis} + k{axis} - high{axis}" for axis in sliding.axes)
            with write.block(f"if {inside} > 0"), write.block(f"for at in range(0, depth * 4, {VECTOR_BYTES})"):
                write("vstore(target, at, splat_float32(0.0))")
            self._write_planar_row() if self.is_planar else self._write_blocked_row()

    def _tap(self, among: Sequence[int]) -> str:
        """The index of a window position, on some of the axes."""
        text = ""
        for axis in among:
            text = f"({text}) * k{axis} + tap{axis}" if text else f"tap{axis}"
        return text

    def _write_blocked_row(self) -> None:
        write, sliding = self.write, self.sliding
        with sliding.loops(write, sliding.axes):
            write(f"source = origin + ({sliding.place(sliding.axes)}) * {VECTOR_BYTES}")
            write(f"at = target + ({self._tap(sliding.axes)}) * {VECTOR_BYTES}")
            with write.block(f"for channel in range({'channels - 1' if self.last < BLOCK else 'channels'})"):
                write("vstore(at, 0, vload_float32(source, 0))")
                write(f"source += plane * {VECTOR_BYTES}", f"at += taps * {VECTOR_BYTES}")
            if self.last < BLOCK:  # beyond the last channel there may be NaN
                write("vstore(at, 0, vload_float32(source, 0, last_channels))")

    def _write_planar_row(self) -> None:
        """One element per tap: those of a line of the window are adjacent, unless it is dilated."""
        write, sliding, last = self.write, self.sliding, self.sliding.last
        outer = sliding.axes[:-1]
        with write.block("for channel in range(channels)"), sliding.loops(write, outer):
            line, tap = sliding.place(outer) or "0", self._tap(outer) or "0"
            write(f"source = origin + (channel * plane + ({line}) * n{last} + y{last}) * 4")
            write(f"at = target + (channel * taps + ({tap}) * k{last}) * 4")
            if sliding.windows[last].dilation == 1:
                with write.block(f"for tap in range(low{last}, high{last}, {BLOCK})"):
                    write(f"count = min({BLOCK}, high{last} - tap)")
                    write("vstore(at, tap * 4, vload_float32(source, tap * 4, count), count)")
                return
            with write.block(f"for tap in range(low{last}, high{last})"):
                write(f"store_float32(at, tap * 4, load_float32(source, tap * dilation{last} * 4))")

    # ---- products ----

    def _write_tiles(self, tile: Tile) -> None:
        write, has_bias = self.write, len(self.node.inputs) > 2
        with write.block("for tile in range(first_tile, last_tile)"):
            write(f"row = min(tile * {tile.rows}, pixels - {tile.rows})", f"skip = tile * {tile.rows} - row")
            self.epilogue.begin()
            write("w_tile = weight + (group * blocks + block) * w_block")
            write(f"ahead = w_tile + ({tile.blocks} + tile % {tile.blocks}) * w_block")
            if has_bias:
                write(f"bias_tile = bias + (group * blocks + block) * {VECTOR_BYTES}")
            if self.narrow:
                write_exactly(write, tile, partial(self._write_sum, tile))
            else:
                self._write_sum(tile)
            exact = isinstance(self.pixels, int) and self.pixels % tile.rows == 0
            self.epilogue.tile(tile, skip="" if exact else "skip")

    def _write_sum(self, tile: Tile, is_masked: bool = False) -> None:
        """`is_masked`: sums only channels of the same group, for narrow groups."""
        write, has_rest = self.write, self.last < BLOCK
        write_start(write, tile, "bias_tile" if len(self.node.inputs) > 2 else "")
        write("w = w_tile")
        if self.is_gathered:
            write("x = matrix + (row - base) * x_row")
            with write_chunks(write, tile, "depth", chunk_of(self.depth)) as steps, write.block(f"for step in {steps}"):
                channel = f"step // (taps * {BLOCK}) * {BLOCK} + step % {BLOCK}"
                write_step(write, tile, self.target, mask=write_mask(write, channel) if is_masked else "")
            return
        chunk = chunk_of(self.channels, BLOCK)
        with write_chunks(write, tile, "channels", chunk) as channels, write.block(f"for channel in {channels}"):
            write(f"x = origin + (channel * plane + row) * {VECTOR_BYTES}")
            if has_rest:
                write(f"inner = last_channels if channel == channels - 1 else {BLOCK}")
            with write.block(f"for step in range({'inner' if has_rest else BLOCK})"):
                mask = write_mask(write, f"channel * {BLOCK} + step") if is_masked else ""
                write_step(write, tile, self.target, mask=mask)
