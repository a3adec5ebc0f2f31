"""Depthwise convolution of channel-blocked images, each channel by itself or in groups of 2, 4 or 8: a block of channels is a
vector, and so is each of its weights. Each channel of a group is broadcast in turn to all lanes of its group.

A unit of the work is one output row of one block, made in tiles of neighbouring pixels. Threads that share a large image take
a half of all its blocks each, as in the convolutions before and after it. For each row of the window, a tile
reads every input vector once and adds it to all pixels whose windows contain it: the row of the window is
unrolled, its weights are in registers. Vectors outside the image are read from a vector of zeros. Pixels of 8-bit integers
are converted to floats when read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import integer
from ....operators.windows import axes
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel, require_few
from ..kernels.writer import Writer, estimate, shape_of
from ..operators.blocked import WIDEST_DEPTHWISE
from ..products.epilogue import Epilogue, Grid
from ..products.precision import Precision
from ..products.tile import BLOCK, TALLEST, VECTOR_BYTES, Tile, multiply_add, times
from ..target import Target
from .sizes import MET, Window

_STEPS = 160  # of a tile's row of the window at most, unless the window alone is wider


@dataclass(frozen=True)
class _Problem:
    """The sizes of a convolution: channels in blocks, lengths in pixels, of the input and of the result."""

    batch: Dim
    blocks: int
    members: int  # channels of a group
    height: Dim
    width: Dim
    lines: Dim
    columns: Dim
    window: tuple[Window, Window]

    @property
    def over(self) -> int:
        """The most pixels by which windows extend beyond the right border."""
        axis = self.window[1]
        if not isinstance(self.columns, int) or not isinstance(self.width, int):
            return axis.end
        return max((self.columns - 1) * axis.stride + axis.extent - axis.begin - self.width, 0)


def _problem_of(found: Anchored) -> _Problem | None:
    """The sizes of a convolution whose operands are parameters; None if it has not two spatial axes, or its window is not
    known, or too wide."""
    definition, node, attributes = found.definition, found.node, found.attributes
    if not found.takes_parameters:
        return None
    x, weight = (shape_of(definition.params[number]) for number in node.inputs[:2])
    result = shape_of(node.results[0])
    if len(result) != 5:
        return None
    window = axes(weight[2:4], attributes["strides"], attributes["pads"], attributes["dilations"])
    known = [number for axis in window for number in (axis.size, axis.begin, axis.end)]
    if not all(isinstance(number, int) for number in (*known, x[1])):
        return None
    members = integer(weight[1])
    if members * integer(weight[3]) > WIDEST_DEPTHWISE:
        return None
    down, across = map(Window.of, window)
    return _Problem(x[0], integer(x[1]), members, x[2], x[3], result[2], result[3], (down, across))


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_depthwise, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = _problem_of(found) if found else None
    precision = Precision.of(found) if found else None
    if found is None or problem is None or precision is None or not Epilogue.takes(found):
        return None
    return lambda: _Depthwise(found, problem, precision, target).kernel()


class _Depthwise:
    """Writes one convolution."""

    def __init__(self, found: Anchored, problem: _Problem, precision: Precision, target: Target) -> None:
        self.write, self.node, self.target = Writer(found.definition, target, found.title), found.node, target
        self.write.lanes = BLOCK
        self.epilogue_cost = found.epilogue.cost
        self.problem, self.window = problem, problem.window[1]
        self.dtype = precision.stored[0]
        self.zero = found.attributes["zero"]
        self.pixel = BLOCK * self.dtype.itemsize  # in bytes
        self.tile = Tile(_pixels(problem, target), 1, precision)
        self._write_sizes()
        grid = Grid(("image", "block", "line", "column", "0"), row_axis=3, block_axis=1, block_step=1)
        self.epilogue = Epilogue(self.write, found, grid)

    def _write_sizes(self) -> None:
        write, problem = self.write, self.problem
        write.inputs(self.node.inputs, "images_at", "weight", "bias")
        write.sizes(images=problem.batch, blocks=problem.blocks, height=problem.height, width=problem.width)
        write.sizes(lines=problem.lines, columns=problem.columns, **problem.window[0].sizes("height", "down", "top"))
        write.sizes(pad_left=self.window.begin, picoseconds=round(self._nanoseconds * 1000))
        if self.zero:
            write.size("word_zero", self.zero)

    @property
    def _nanoseconds(self) -> float:
        """The estimated time of one output vector."""
        down, across = self.problem.window
        return self.problem.members * down.size * across.size / costs.DEPTHWISE_STEPS + BLOCK * self.epilogue_cost

    def _uncertain(self, tile: Tile) -> Sequence[int]:
        """The input pixels of a tile, counted from its left end, that may lie outside the image."""
        reach = self.window.reach(tile.rows)
        require_few(reach, MET, "pixels that a tile reaches")
        return [at for at in range(reach) if at < self.window.begin or at >= reach - self.problem.over]

    def kernel(self) -> Kernel:
        write = self.write
        write(f"row_bytes = width * {self.pixel}", "plane_bytes = height * row_bytes")
        write(f"w_row = {self.window.size * VECTOR_BYTES}", "window_bytes = window_height * w_row")
        write("bands = 1", "band = lines")
        with write.block(f"if parts > 1 and lines * columns >= {costs.DEPTHWISE_LARGE}"):
            write("bands = 2", "band = (lines + 1) // 2")
        write.split("images * bands * blocks * band", "images * blocks * lines * columns * picoseconds // 1000")
        write("tap_row = dilation_down * row_bytes")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        write(f"zeros = scratch + {self.epilogue.buffer_bytes}")
        if self.zero:
            write("zero = splat_float32(word_zero)")
        write(f"vstore(zeros, 0, splat_{self.dtype.name}({'word_zero' if self.zero else '0'}))")
        self.epilogue.streaming(self._write_lines)
        problem = self.problem
        pixels = dims.product([problem.batch, problem.blocks, problem.lines, problem.columns])
        return write.kernel(estimate(pixels) * self._nanoseconds, self.epilogue.buffer_bytes + VECTOR_BYTES)

    def _write_lines(self) -> None:
        write = self.write
        write("place = first // band", "row = first - place * band", "group = place // blocks")
        write("block = place - group * blocks", "image = group // bands", "number = group - image * bands")
        with write.block("for unit in range(first, last)"):
            write("line = number * band + row")
            with write.block("if line < lines"):
                self._write_line()
            write("row += 1")
            with write.block("if row == band"):
                write("row = 0", "block += 1")
                with write.block("if block == blocks"):
                    write("block = 0", "number += 1")
                    with write.block("if number == bands"):
                        write("number = 0", "image += 1")

    def _write_line(self) -> None:
        write, problem = self.write, self.problem
        write("top = line * stride_down - pad_top")
        if problem.window[0].dilation == 1:
            write("first_tap = max(0, -top)", "end_tap = min(window_height, height - top)")
        else:
            write("first_tap = max(0, (dilation_down - 1 - top) // dilation_down)")
            write("end_tap = min(window_height, (height - top + dilation_down - 1) // dilation_down)")
        write("x_line = images_at + (image * blocks + block) * plane_bytes + top * row_bytes + first_tap * tap_row")
        of_block = times(problem.members, "window_bytes")
        write(f"w_line = weight + block * {of_block} + first_tap * w_row")
        start = f"vload_float32(bias, block * {VECTOR_BYTES})" if len(self.node.inputs) > 2 else "splat_float32(0.0)"
        write(f"start = {start}")
        if isinstance(problem.columns, int):
            self._write_tiles(self.tile)
            return
        with write.block(f"if columns >= {self.tile.rows}"):
            self._write_tiles(self.tile)
        with write.block("else"):
            self._write_tiles(replace(self.tile, rows=1))

    def _write_tiles(self, tile: Tile) -> None:
        """A line at least as long as a tile. The last tile overlaps the previous one."""
        write, pixels, columns = self.write, tile.rows, self.problem.columns
        has_rest = columns % pixels > 0 if isinstance(columns, int) else pixels > 1
        with write.block(f"for along in range(0, columns, {pixels})"):
            write(f"column = min(along, columns - {pixels})" if has_rest else "column = along")
            write(f"left = column * {self.window.stride} - pad_left", f"x_tile = x_line + left * {self.pixel}")
            write("w = w_line")
            self.epilogue.begin()
            write(*(f"{tile.accumulator(i, 0)} = start" for i in range(pixels)))
            self._write_window(tile)
            if has_rest:
                write("skip = along - column")
            self.epilogue.tile(tile, skip="skip" if has_rest else "")

    def _write_window(self, tile: Tile) -> None:
        """The sums of a tile, without bounds checks if all pixels lie inside."""
        uncertain, columns = self._uncertain(tile), self.problem.columns
        if not uncertain or (isinstance(columns, int) and columns <= 2 * tile.rows):
            self._write_taps(tile, uncertain)
            return
        with self.write.block(f"if left >= 0 and left + {self.window.reach(tile.rows)} <= width"):
            self._write_taps(tile, ())
        with self.write.block("else"):
            self._write_taps(tile, uncertain)

    def _write_taps(self, tile: Tile, uncertain: Sequence[int]) -> None:
        write, window = self.write, self.window
        for at in uncertain:
            is_inside = f"if 0 <= left + {at} < width else"
            write(f"x_{at} = x_tile + {at * self.pixel} {is_inside} zeros", f"row_{at} = tap_row {is_inside} 0")
        with write.block("for tap in range(first_tap, end_tap)"):
            for member in range(self.problem.members):
                behind = f"{times(member, 'window_bytes')} + " if member else ""
                require_few(window.size, MET, "places of a window")
                for tap in range(window.size):
                    write(f"w_{tap} = {tile.load(f'{behind}{tap * VECTOR_BYTES}')}")
                for at, uses in window.uses(tile.rows):
                    place = f"x_{at}, 0" if at in uncertain else f"x_tile, {at * self.pixel}"
                    self._write_pixel(tile, uses, place, member)
            write("x_tile += tap_row", "w += w_row", *(f"x_{at} += row_{at}" for at in uncertain))

    def _write_pixel(self, tile: Tile, uses: Sequence[tuple[int, int]], place: str, member: int) -> None:
        """Adds a channel of each group of an input pixel, times its weights, to its sums."""
        count, loaded = self.problem.members, self._loaded(place)
        self.write(f"x = repeated_{member}_of_{count}({loaded})" if count > 1 else f"x = {loaded}")
        for pixel, tap in uses:
            self.write(multiply_add(tile.accumulator(pixel, 0), "x", f"w_{tap}", self.target, tile.precision))

    def _loaded(self, place: str) -> str:
        """Loads a pixel's vector. Integers less their zero point are exact in float32, and so are sums of their products."""
        return self.tile.precision.vector(place, operand=0) + (" - zero" if self.zero else "")


def _pixels(problem: _Problem, target: Target) -> int:
    """Pixels of a tile: as many as fit into registers, in as few tiles as possible."""
    registers = target.block_registers
    members = problem.members
    steps = max(_STEPS // (members * problem.window[1].size), costs.DEPTHWISE_LEAST_TILE if members > 1 else 2)
    most = min(TALLEST, max(registers - 3, 1), steps)
    if not isinstance(problem.columns, int):
        return most
    columns = max(problem.columns, 1)
    return math.ceil(columns / math.ceil(columns / most))
