"""Group and instance normalisation of channel-blocked images.

A *span* is the fewest blocks after which a group and a block end together. A unit of the work is a band of the pixels of a span;
the statistics of a span are computed with its first unit, by each thread that has one: lane by lane, in
chunks of pixels that stay in L1: a chunk's mean, then its deviations from it; chunks, and then the channels of a
group, are combined in double precision (Chan, Golub, LeVeque, 1979), without cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..products.epilogue import Epilogue, Grid, ignores_lines
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, multiply_add
from ..target import Target

_CHUNK = 128  # pixels
_UNROLL = 4


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of group_normalization_blocked of two spatial axes, with an elementwise epilogue."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found) or definition.values[found.number].rank != 5:
        return None
    if not ignores_lines(found) or not found.takes_parameters:
        return None
    return lambda: _Group(found, target).kernel()


class _Group:
    """Writes one normalisation."""

    def __init__(self, found: Anchored, target: Target) -> None:
        self.found, self.target, self.node = found, target, found.node
        self.images, self.blocks, *size, _ = shape_of(found.definition.params[self.node.inputs[0]])
        self.pixels = dims.product(size)
        self.channels = found.attributes["channels"]
        self.size = self.channels // found.attributes["groups"]
        self.span = min(math.lcm(self.size, BLOCK) // BLOCK, -(-self.channels // BLOCK))
        self.write = Writer(found.definition, target, found.title)
        self.write.lanes = BLOCK

    @property
    def _band(self) -> int:
        """Pixels of a unit."""
        spans, pixels = -(-self.channels // (self.span * BLOCK)), estimate(self.pixels)
        return max(costs.GROUP_LEAST_BAND, -(-pixels * spans // costs.SOME_UNITS))

    def kernel(self) -> Kernel:
        write, nanoseconds = self.write, costs.GROUP_NORM_NS + self.found.epilogue.cost
        self._write_sizes()
        grid = Grid(("image", "block", "0", "column", "0"), row_axis=3, block_axis=1, block_step=1)
        self.epilogue = Epilogue(write, self.found, grid)
        write("spans = (blocks + span - 1) // span", "bands = (pixels + band - 1) // band")
        cost = round(1000 * BLOCK * nanoseconds)
        write.prepare("known")
        write.split("images * spans * bands", f"images * blocks * pixels * {cost} // 1000")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        write(f"centres = scratch + {self.epilogue.buffer_bytes}", f"squares = centres + span * {2 * VECTOR_BYTES}")
        write(f"means = squares + span * {2 * VECTOR_BYTES}", f"factors = means + span * {VECTOR_BYTES}")
        with write.block("for unit in range(first, last)"):
            write("place = unit // bands", "begin = (unit - place * bands) * band", "end = min(begin + band, pixels)")
            write("image = place // spans", "first_block = (place - image * spans) * span")
            write("count = min(span, blocks - first_block)")
            write(f"images_at = x + (image * blocks + first_block) * pixels * {VECTOR_BYTES}")
            with write.block("if place != known"):
                write("known = place")
                self._write_statistics()
            self._write_elements()
        elements = estimate(dims.product([self.images, self.blocks, self.pixels])) * BLOCK
        return write.kernel(elements * nanoseconds, self.epilogue.buffer_bytes + 6 * self.span * VECTOR_BYTES)

    def _write_sizes(self) -> None:
        write = self.write
        write.inputs(self.node.inputs, "x", "scale", "bias")
        write.sizes(images=self.images, blocks=self.blocks, pixels=self.pixels, channels=self.channels)
        write.sizes(size=self.size, span=self.span, band=self._band)

    # ---- statistics ----

    def _write_statistics(self) -> None:
        """Statistics of all lanes of the span, then of its groups. Beyond the last channel, mean and factor are 0."""
        write = self.write
        with write.block("for number in range(count)"):
            write(f"source = images_at + number * pixels * {VECTOR_BYTES}")
            write("centre = splat_float64(0.0)", "square = splat_float64(0.0)")
            with write.block(f"for start in range(0, pixels, {_CHUNK})"):
                write(f"stop = min(start + {_CHUNK}, pixels)")
                self._write_chunk()
            write(f"vstore(centres, number * {2 * VECTOR_BYTES}, centre)")
            write(f"vstore(squares, number * {2 * VECTOR_BYTES}, square)")
        write(f"present = min(count * {BLOCK}, channels - first_block * {BLOCK})")
        with write.block("for low in range(0, present, size)"):
            self._write_group()
        with write.block(f"for lane in range(present, count * {BLOCK})"):
            write("store_float32(means, lane * 4, 0.0)", "store_float32(factors, lane * 4, 0.0)")

    def _write_chunk(self) -> None:
        """Combines the mean and squared deviations of a chunk's pixels with those of earlier chunks."""
        write = self.write
        write(f"whole = stop - (stop - start) % {_UNROLL}", "length = convert_float64(stop - start)")

        def element(total: str, x: str) -> None:
            write(f"{total} = {total} + {x}")

        self._write_sum(element)
        write("middle = convert_float64(total) / length", "shift = convert_float32(middle)")

        def deviation(total: str, x: str) -> None:
            write(f"gap = {x} - shift", multiply_add(total, "gap", "gap", self.target))

        self._write_sum(deviation)
        write("before = convert_float64(start)", "after = convert_float64(stop)", "step = middle - centre")
        write("centre = centre + step * (length / after)")
        write("square = square + convert_float64(total) + step * step * (before * length / after)")

    def _write_sum(self, add: Callable[[str, str], None]) -> None:
        """Defines `total`, a sum over the pixels of a chunk; `add` writes the addition of one."""
        write, totals = self.write, [f"total_{u}" for u in range(_UNROLL)]
        write(*(f"{total} = splat_float32(0.0)" for total in totals))
        with write.block(f"for pixel in range(start, whole, {_UNROLL})"):
            for u, total in enumerate(totals):
                add(total, f"vload_float32(source, (pixel + {u}) * {VECTOR_BYTES})")
        with write.block("for pixel in range(whole, stop)"):
            add(totals[0], f"vload_float32(source, pixel * {VECTOR_BYTES})")
        write("total = (total_0 + total_1) + (total_2 + total_3)")

    def _write_group(self) -> None:
        write, epsilon = self.write, literal(self.found.attributes["epsilon"], DType.float64)
        write("weight = 0.0", "spread = 0.0")
        with write.block("for lane in range(low, low + size)"):
            write("weight += load_float64(centres, lane * 8)")
        write("weight /= size")
        with write.block("for lane in range(low, low + size)"):
            write("distance = load_float64(centres, lane * 8) - weight")
            write("spread += load_float64(squares, lane * 8) + distance * distance * pixels")
        write(f"factor = 1.0 / sqrt(spread / (size * pixels) + {epsilon})")
        with write.block("for lane in range(low, low + size)"):
            write("store_float32(means, lane * 4, convert_float32(weight))")
            write("store_float32(factors, lane * 4, convert_float32(factor))")

    # ---- elements ----

    def _write_elements(self) -> None:
        write, tile = self.write, Tile(1, 1)
        with write.block("for number in range(count)"):
            write("block = first_block + number", f"source = images_at + number * pixels * {VECTOR_BYTES}")
            write(f"mean = vload_float32(means, number * {VECTOR_BYTES})")
            write(f"slope = vload_float32(factors, number * {VECTOR_BYTES})")
            write(f"slope = slope * vload_float32(scale, block * {VECTOR_BYTES})")
            write(f"start_0 = vload_float32(bias, block * {VECTOR_BYTES})")
            with write.block("for column in range(begin, end)"):
                total = tile.accumulator(0, 0)
                self.epilogue.begin()
                write(f"{total} = start_0", f"centred = vload_float32(source, column * {VECTOR_BYTES}) - mean")
                write(multiply_add(total, "centred", "slope", self.target))
                self.epilogue.tile(tile)
