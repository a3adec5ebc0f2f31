"""Convolutions of signals and images whose lengths are known only at run time: of planar ones of few channels, as the first ones
of a network are, those of groups that make a block of channels each, and those of 8-bit integers (`integer.py`). To gather
their windows (`im2col.py`) takes as long as they do themselves.

All is as in `blocked.py` but for bands, which are chosen at run time: as many lines, or tiles of a part of them, as fit into
scratch, whose size the text knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import shape_of
from ..products.epilogue import Epilogue, ignores_lines
from ..products.tile import SYMBOLIC_ROWS, VECTOR_BYTES, Tile, symbolic_tiles, write_blocks
from ..target import Target
from .blocked import Conv
from .sizes import Problem, estimated_problem

_MOST_ROOM = 1 << 16  # bytes for what a band needs


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_planar and conv_blocked, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = estimated_problem(found) if found else None
    if found is None or problem is None or problem.pile or not Epilogue.takes(found):
        return None
    if not problem.is_planar and (problem.blocks > 1 or all(window.size == 1 for window in problem.window)):
        return None
    return lambda: SymbolicConv(found, problem, target).kernel()


class SymbolicConv(Conv):
    """Variables of its text beside those of `Conv`: `piece`, the tiles side by side that a band has at most, and `stretch`,
    its lines at most."""

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.found = found
        tiles = symbolic_tiles(SYMBOLIC_ROWS, min(2, problem.blocks), target)
        self.tiles = [replace(tile, precision=problem.on(target)) for tile in tiles]
        super().__init__(found, problem, target)

    def choose_tile(self) -> Tile:
        return self.tiles[0]

    def choose_band(self) -> int:
        return 0  # a run does

    @property
    def is_uneven(self) -> bool:
        return True  # as far as is known

    @property
    def is_staged(self) -> bool:
        return True

    def lengths(self) -> dict[str, Dim]:
        image = shape_of(self.found.definition.values[self.node.inputs[0]])
        image, result = image[2 : None if self.problem.is_planar else -1], shape_of(self.node.results[0])[2:-1]
        if len(image) == 1 or (self.problem.is_pointwise and ignores_lines(self.found)):
            image, result = (1, dims.product(image)), (1, dims.product(result))
        return dict(zip(("height", "width", "lines", "columns"), (*image, *result), strict=True))

    @property
    def _picoseconds(self) -> int:
        """The estimated time of a pixel of the result."""
        return math.ceil(1000 * self.nanoseconds / self.problem.pixels)

    @property
    def stage_bytes(self) -> int:
        """At least the lines that a window needs for one tile."""
        down, across = self.problem.window
        line = ((self.tile.rows - 1) * across.stride + across.extent) * self.problem.pixel + 2 * VECTOR_BYTES
        return max(_MOST_ROOM, self.problem.channels * down.extent * line)

    def write_stage_sizes(self) -> None:
        self.write.sizes(room=self.stage_bytes)

    def write_bands(self) -> None:
        write, pixel = self.write, self.problem.pixel
        *others, rows = [str(tile.rows) for tile in self.tiles]
        for each in reversed(others):
            rows = f"{each} if columns >= {each} else {rows}"
        write.size("picoseconds", self._picoseconds)
        write("nanoseconds = lines * columns * picoseconds // 1000", f"tile_rows = {rows}")
        write("across = (columns + tile_rows - 1) // tile_rows")
        write("extent_down = (window_height - 1) * dilation_down + 1")
        write("extent_across = (window_width - 1) * dilation_across + 1")
        write(f"widest = (room // (channels * extent_down) - {2 * VECTOR_BYTES}) // {pixel}")
        write("piece = max((widest - extent_across) // stride_across // tile_rows, 1)")
        write("pieces = (across + piece - 1) // piece", "piece = (across + pieces - 1) // max(pieces, 1)")
        write("reach = (piece * tile_rows - 1) * stride_across + extent_across")
        write(f"x_line = (reach * {pixel} + {2 * VECTOR_BYTES - 1}) // {VECTOR_BYTES} * {VECTOR_BYTES}")
        write("staged_lines = room // (channels * x_line)", "x_plane = staged_lines * x_line")
        write("stretch = min((staged_lines - extent_down) // stride_down + 1, lines)")
        write("bands = (lines + stretch - 1) // max(stretch, 1) * pieces", "unit_tiles = stretch * piece")

    def write_band(self) -> None:
        write = self.write
        write("part_of_lines = number // pieces", "part_of_line = number - part_of_lines * pieces")
        write("first_row = part_of_lines * stretch", "end_row = min(first_row + stretch, lines)")
        write("first_along = part_of_line * piece", "end_along = min(first_along + piece, across)")
        write("first_tile = 0", "last_tile = (end_row - first_row) * (end_along - first_along)")

    def write_stage(self) -> None:
        write = self.write
        write("first_line = max(first_row * stride_down - pad_top, 0)")
        write("end_line = min((end_row - 1) * stride_down - pad_top + extent_down, height)")
        write("left = min(first_along * tile_rows, columns - tile_rows) * stride_across - pad_left")
        self.write_part()

    def write_blocks(self) -> None:
        for number, tile in enumerate(self.tiles):
            with self.write.block(f"{'elif' if number else 'if'} tile_rows == {tile.rows}"):
                write_blocks(self.write, self.problem.blocks, tile, self.write_tiles)

    def write_first(self) -> None:
        write = self.write
        write("down = first_tile // (end_along - first_along)", "line = first_row + down")
        write("along = first_along + first_tile - down * (end_along - first_along)")

    def write_next(self, tile: Tile) -> None:
        write = self.write
        write("along += 1")
        with write.block("if along == end_along"):
            write("along = first_along", "line += 1")

    def has_rest(self, tile: Tile) -> bool:
        return tile.rows > 1
