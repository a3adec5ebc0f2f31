"""Convolutions to a few channels, such as the colours at the end of an image generator.

A vector of output channels would be mostly empty. Here a vector is a block of input channels: a tile is some pixels
by all output channels, and the lanes of its accumulators are added up when the sum is done. All else is as in `blocked.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .....formats.primitive import PrimitiveDefinition
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..products.epilogue import Epilogue
from ..products.tile import BLOCK, TALLEST, VECTOR_BYTES, Tile, write_step
from ..target import Target
from .blocked import Conv
from .sizes import problem_of


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_to_few, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = problem_of(found) if found else None
    if found is None or problem is None or not Epilogue.takes(found):
        return None
    return lambda: _ToFew(found, problem, target).kernel()


class _ToFew(Conv):
    """The blocks of a tile are the output channels, one each."""

    bias = ""  # added to the horizontal sums

    def choose_tile(self) -> Tile:
        columns, outputs = self.problem.columns, self.problem.blocks
        registers = self.target.block_registers
        rows = min(TALLEST, max(registers // outputs - 2, 1))
        return Tile(math.ceil(columns / math.ceil(columns / rows)), outputs)

    @property
    def step(self) -> str:
        return f"dilation_across * {VECTOR_BYTES}"

    @property
    def tap_bytes(self) -> int:
        return VECTOR_BYTES

    def write_taps(self, tile: Tile) -> None:
        write = self.write
        count = ", inner" if self.problem.last < BLOCK else ""
        write("x = x_tap")
        with write.block("for step in range(window_width)"):
            write_step(write, tile, self.target, lines=0, element=f"vload_float32({{}}{count})")

    def write_result(self, tile: Tile) -> Tile:
        for i in range(tile.rows):
            total = f"horizontal_sums({', '.join(tile.accumulator(i, j) for j in range(tile.blocks))})"
            start = "vload_float32(bias, 0) + " if len(self.node.inputs) > 2 else ""
            self.write(f"{tile.accumulator(i, 0)} = {start}{total}")
        return Tile(tile.rows, 1)
