"""Depthwise convolution of channel-blocked images: a block of channels is a vector, and so is each of its weights.

A unit of the work is one output row of one block. Pixels whose windows lie inside the row are computed some at a time, so
that several sums are under way at once; those at the sides, one by one with a shorter window.
"""

from __future__ import annotations

import math

from ...formats.primitive import PrimitiveDefinition
from .anchor import Anchored
from .conv import GIGAHERTZ, Problem, problem_of
from .epilogue import Epilogue, Grid
from .kernel import Kernel
from .target import Target
from .tile import BLOCK, VECTOR_BYTES, Tile, multiply_add
from .writer import Writer, estimate

_TILES = range(6, 11)  # pixels at a time: enough to hide the latency of multiply-adds


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The template of conv_depthwise, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = problem_of(found) if found else None
    if found is None or problem is None or not Epilogue.takes(found):
        return None
    return _Depthwise(found, problem, target).kernel()


class _Depthwise:
    """Writes one convolution."""

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.write, self.node, self.target = Writer(found.definition, target, found.title), found.node, target
        self.write.lanes = BLOCK
        self.problem = problem
        self._write_sizes()
        grid = Grid(("image", "block", "line", "column", "0"), row_axis=3, block_axis=1, block_step=1)
        self.epilogue = Epilogue(self.write, found, grid)

    @property
    def _inside(self) -> tuple[int, int]:
        """The output columns whose windows touch no padding: the first, and the one behind the last."""
        axis = self.problem.window[1]
        low = min(math.ceil(axis.begin / axis.stride), self.problem.columns)
        high = (self.problem.width + axis.begin - axis.extent) // axis.stride + 1
        return low, min(max(high, low), self.problem.columns)

    @property
    def _pixels(self) -> int:
        """Pixels of a tile; 1 if so few lie inside that there are no tiles."""
        low, high = self._inside
        possible = [pixels for pixels in (*_TILES, high - low) if 1 <= pixels <= min(high - low, max(_TILES))]
        return min(possible, key=lambda pixels: math.ceil((high - low) / pixels) * (pixels + 1), default=1)

    def _write_sizes(self) -> None:
        write, problem = self.write, self.problem
        vertical, horizontal = problem.window
        low, high = self._inside
        write.input("images_at", self.node.inputs[0])
        write.input("weight", self.node.inputs[1])
        if len(self.node.inputs) > 2:
            write.input("bias", self.node.inputs[2])
        write.size("images", problem.batch)
        for name, size in (
            ("blocks", problem.blocks),
            ("height", problem.height),
            ("width", problem.width),
            ("lines", problem.lines),
            ("columns", problem.columns),
            ("low", low),
            ("high", high),
            ("window_height", vertical.size),
            ("stride_down", vertical.stride),
            ("dilation_down", vertical.dilation),
            ("pad_top", vertical.begin),
            ("window_width", horizontal.size),
            ("stride_across", horizontal.stride),
            ("dilation_across", horizontal.dilation),
            ("pad_left", horizontal.begin),
            ("nanoseconds", round(self._nanoseconds)),
        ):
            write.size(name, size)

    @property
    def _nanoseconds(self) -> float:
        """The estimated time of one image."""
        problem = self.problem
        return problem.blocks * problem.pixels * problem.steps / BLOCK * 0.7 / GIGAHERTZ

    def kernel(self) -> Kernel:
        write = self.write
        write(f"row_bytes = width * {VECTOR_BYTES}", "plane_bytes = height * row_bytes")
        write(f"window_bytes = window_height * window_width * {VECTOR_BYTES}")
        write.split("images * blocks * lines", "images * nanoseconds")
        write(f"x_row = stride_across * {VECTOR_BYTES}", f"x_step = dilation_across * {VECTOR_BYTES}")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        with write.block("for unit in range(first, last)"):
            write("plane = unit // lines", "line = unit - plane * lines")
            write("image = plane // blocks", "block = plane - image * blocks")
            write("top = line * stride_down - pad_top")
            write("first_tap = max(0, (dilation_down - 1 - top) // dilation_down)")
            write("end_tap = min(window_height, (height - top + dilation_down - 1) // dilation_down)")
            write("x_line = images_at + plane * plane_bytes + top * row_bytes")
            self._write_inside()
            self._write_sides()
        return write.kernel(estimate(self.problem.batch) * self._nanoseconds, self.epilogue.buffer_bytes)

    def _write_inside(self) -> None:
        write, tile = self.write, Tile(self._pixels, 1)
        low, high = self._inside
        with write.block(f"for along in range(low, high, {tile.rows})"):
            write(f"column = min(along, high - {tile.rows})", "skip = along - column")
            write(f"x_tile = x_line + (column * stride_across - pad_left) * {VECTOR_BYTES}")
            self._write_start(tile)
            with write.block("for tap in range(first_tap, end_tap)"):
                write("x = x_tile + tap * dilation_down * row_bytes")
                write(f"w = weight + block * window_bytes + tap * window_width * {VECTOR_BYTES}")
                with write.block("for step in range(window_width)"):
                    self._write_step(tile)
                    write("x += x_step", f"w += {VECTOR_BYTES}")
            self.epilogue.tile(tile, skip="skip" if (high - low) % tile.rows else "")

    def _write_sides(self) -> None:
        write, tile = self.write, Tile(1, 1)
        with write.block("for along in range(low + columns - high)"):
            write("column = along if along < low else high + along - low")
            write("left = column * stride_across - pad_left")
            write("first_across = max(0, (dilation_across - 1 - left) // dilation_across)")
            write("end_across = min(window_width, (width - left + dilation_across - 1) // dilation_across)")
            self._write_start(tile)
            with write.block("for tap in range(first_tap, end_tap)"):
                write(f"x_tap = x_line + tap * dilation_down * row_bytes + left * {VECTOR_BYTES}")
                write(f"w_tap = weight + block * window_bytes + tap * window_width * {VECTOR_BYTES}")
                with write.block("for across in range(first_across, end_across)"):
                    write("x = x_tap + across * x_step", f"w = w_tap + across * {VECTOR_BYTES}")
                    self._write_step(tile)
            self.epilogue.tile(tile)

    def _write_start(self, tile: Tile) -> None:
        write = self.write
        start = f"vload_float32(bias, block * {VECTOR_BYTES})" if len(self.node.inputs) > 2 else "splat_float32(0.0)"
        self.epilogue.begin()
        write(f"start = {start}", *(f"{tile.accumulator(i, 0)} = start" for i in range(tile.rows)))

    def _write_step(self, tile: Tile) -> None:
        self.write("w_0 = vload_float32(w, 0)")
        for i in range(tile.rows):
            total = tile.accumulator(i, 0)
            self.write(f"x_{i} = vload_float32(x, {i} * x_row)", multiply_add(total, f"x_{i}", "w_0", self.target))
