"""Winograd 3x3 convolution of images of few tiles, with weights transformed on the fly.

Weights are raw, [block, channels / 16, 3, 3, 16, 16]: transformed ones would be four times as large, and reading them from
memory would take longer than multiplying by them, above all for two threads.

A bundle is as many tiles as fit into registers: the sums of one line of their products, 6 times 4 vectors. For 16 channels
at a time, and for each line, a step transforms the window of one channel to the 6 vectors of the line, in registers, and
multiplies them with the elements of all tiles. Elements are stored in order of use: `spectrum` [bundle,
channels / 16, line, column, tile, 16], `products` [bundle, line, column, tile, 16].

Lines of opposite points, p and -p, are sums and differences of the same vectors: the first one stores what the
second one starts with. Meanwhile the windows of the next 16 channels are prefetched, mostly in the lines with the
least work.

If registers hold a line's sums for only one or two tiles, windows of some channels are transformed to L1, and reused
for all tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.kernel import Kernel
from ..operators.winograd import RAW_OUTPUTS, WINDOW_SIZE, Transforms, raw_rows, raw_taps, transforms
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, multiply_add, tiles
from ..target import Target
from .winograd import Winograd, anchored, constant, is_pair

_TAP_BYTES = BLOCK * VECTOR_BYTES  # bytes of the weights of one window pixel, for a block of channels
_WINDOW_BYTES = WINDOW_SIZE**2 * _TAP_BYTES
_AHEAD = (3, 1, 2, 1, 2, 0)  # vectors of weights that a step of each line asks for, those of one channel together
_STEPS = 8  # channels whose windows are transformed to L1


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_winograd_raw, with an elementwise epilogue."""
    found = anchored(definition)
    template = _WinogradRaw if raw_rows(target.block_registers) else _FewRegisters
    return None if found is None else lambda: template(found, target).kernel()


class _WinogradRaw(Winograd):
    def read_weights(self, shape: tuple[Dim, ...]) -> tuple[tuple[Transforms, Transforms], int]:
        both = transforms(RAW_OUTPUTS).unscaled()
        return (both, both), raw_taps(shape, self.image_channels) * self.image_channels

    def choose_tile(self) -> Tile:
        most = raw_rows(self.target.block_registers) or max(
            tile.rows for tile in tiles(self.target) if tile.blocks == 1
        )
        return Tile(min(self.chunk, most), 1)

    @property
    def product_cycles(self) -> float:
        windows = self.channels * self.blocks
        return windows * (costs.RAW_TRANSFORM_CYCLES / self.tile.rows + self.area * costs.RAW_PRODUCT_CYCLES)

    # ---- layout ----

    @property
    def _bundle_bytes(self) -> int:
        """Bytes of 16 channels, or of a block of products."""
        return self.area * self._element_bytes

    @property
    def _element_bytes(self) -> int:
        return self.tile.rows * VECTOR_BYTES

    @property
    def weight_bytes(self) -> int:
        """Bytes of transformed weights in scratch."""
        return WINDOW_SIZE * _TAP_BYTES

    @property
    def chunk_bytes(self) -> int:
        bundles = -(-self.chunk // self.tile.rows)
        return self.weight_bytes + bundles * (self.in_blocks + 1) * self._bundle_bytes

    def write_scratch_sizes(self) -> None:
        pass

    def write_chunk_places(self) -> None:
        rows = self.tile.rows
        self.write(
            "opposite = spectrum", f"spectrum += {self.weight_bytes}", f"x_bundle = in_blocks * {self._bundle_bytes}"
        )
        self.write(f"products = spectrum + (chunk + {rows - 1}) // {rows} * x_bundle")

    @property
    def spectrum_at(self) -> str:
        rows, row = self.tile.rows, VECTOR_BYTES
        return f"spectrum + tile // {rows} * x_bundle + channel * {self._bundle_bytes} + tile % {rows} * {row}"

    @property
    def products_at(self) -> str:
        return f"products + tile // {self.tile.rows} * {self._bundle_bytes} + tile % {self.tile.rows} * {VECTOR_BYTES}"

    @property
    def spectrum_plane(self) -> str:  # type: ignore[override]
        return str(self._element_bytes)

    product_plane = spectrum_plane

    # ---- products ----

    def write_weight_steps(self) -> None:
        self.write(f"w_block = in_blocks * {_WINDOW_BYTES}")

    def write_products(self, tile: Tile, block: str) -> None:
        write, rows = self.write, tile.rows
        write(f"bundles = (count + {rows - 1}) // {rows}", "begin = 0", "end = in_blocks")
        if self.is_volume:
            write("begin = near * image_blocks", "end = beyond * image_blocks")
        if self.zeros:
            with write.block(f"for at in range(0, {self.zeros}, {VECTOR_BYTES})"):
                write(f"vstore(products, at, {tile.zero})")
        with write.block("for channel in range(begin, end)"):
            write(f"windows = {self.weight} + {block} * w_block + channel * {_WINDOW_BYTES}")
            write(f"steps = min({BLOCK}, channels - channel * {BLOCK})")
            self._write_channels(tile)

    @property
    def zeros(self) -> str:
        """Bytes of products that start as zero: those of a slice without channels."""
        return f"0 if begin < end else bundles * {self._bundle_bytes}" if self.is_volume else ""

    def _write_channels(self, tile: Tile) -> None:
        """Adds the products of up to 16 channels."""
        write, size = self.write, self.across.inputs
        with write.block("for bundle in range(bundles)"):
            write(f"x_line = spectrum + bundle * x_bundle + channel * {self._bundle_bytes}")
            write(f"target = products + bundle * {self._bundle_bytes}", f"ahead = windows + {_WINDOW_BYTES}")
            for line in range(size):
                self._write_line(tile, line)
                write(f"x_line += {size * self._element_bytes}", f"target += {size * self._element_bytes}")

    def _write_line(self, tile: Tile, line: int) -> None:
        """Adds the products of 16 channels to a line."""
        write = self.write
        places = [(column, row) for column in range(self.across.inputs) for row in range(tile.rows)]
        offsets = [column * self._element_bytes + row * VECTOR_BYTES for column, row in places]
        sums = [tile.accumulator(column, row) for column, row in places]
        write(*(f"{total} = {tile.zero}" for total in sums), "x = x_line", "w = windows", "put = opposite")
        with write.block("for step in range(steps)"):
            write(*(f"prefetch(ahead, {i * VECTOR_BYTES})" for i in range(_AHEAD[line])))
            write(f"ahead += {_AHEAD[line] * VECTOR_BYTES}")
            self.write_transform(self.across.of_weights, self._write_down(line))
            for (column, _), total, offset in zip(places, sums, offsets, strict=True):
                write(f"element = splat_float32(load_float32(x, {offset}))")
                write(multiply_add(total, "element", f"y_{column}", self.target))
            write("x += 4", f"w += {VECTOR_BYTES}", f"put += {WINDOW_SIZE * VECTOR_BYTES}")
        with write.block("if channel > begin"):
            write(
                *(f"{total} = {total} + vload_float32(target, {at})" for total, at in zip(sums, offsets, strict=True))
            )
        write(*(f"vstore(target, {at}, {total})" for total, at in zip(sums, offsets, strict=True)))

    def _write_down(self, line: int) -> Sequence[str]:
        """One line of the windows transformed down their columns: the names of its vectors."""
        write, of_weights = self.write, self.down.of_weights
        first, second, third = of_weights[line]
        names = [f"down_{column}" for column in range(WINDOW_SIZE)]
        for column, name in enumerate(names):
            taps = [f"vload_float32(w, {(tap * WINDOW_SIZE + column) * _TAP_BYTES})" for tap in range(WINDOW_SIZE)]
            place = f"put, {column * VECTOR_BYTES}"
            if not second:  # of the points 0 and infinity
                write(f"{name} = {taps[0] if first else taps[2]}")
            elif is_pair(of_weights[line], of_weights[line - 1]):
                write(f"{name} = vload_float32({place})")
            else:
                write(f"even = {taps[0]}", f"odd = {taps[1]}")
                write(multiply_add("even", taps[2], constant(third), self.target))
                write(multiply_add(name, "odd", constant(second), self.target, total="even"))
                write(multiply_add("other", "odd", constant(-second), self.target, total="even"))
                write(f"vstore({place}, other)")
        return names


class _FewRegisters(_WinogradRaw):
    """Windows of some channels are transformed to `ready` [line, column, channel, 16]."""

    @property
    def product_cycles(self) -> float:
        registers = VECTOR_BYTES // self.target.vector_bytes
        return registers * super().product_cycles

    @property
    def weight_bytes(self) -> int:
        return WINDOW_SIZE * VECTOR_BYTES + self.area * _STEPS * VECTOR_BYTES

    @property
    def zeros(self) -> str:
        return f"bundles * {self._bundle_bytes}"

    def _write_channels(self, tile: Tile) -> None:
        write = self.write
        with write.block(f"for step in range(0, steps, {_STEPS})"):
            write(f"these = min({_STEPS}, steps - step)")
            self._write_windows()
            with write.block("for bundle in range(bundles)"):
                write(f"x_element = spectrum + bundle * x_bundle + channel * {self._bundle_bytes} + 4 * step")
                write(f"target = products + bundle * {self._bundle_bytes}", "w_element = ready")
                with write.block(f"for element in range({self.area})"):
                    self._write_element(tile)

    def _write_windows(self) -> None:
        """Transforms the windows of `these` channels from `step` on, and prefetches the next 16 channels'."""
        write = self.write
        write(f"ready = opposite + {WINDOW_SIZE * VECTOR_BYTES}")
        write(f"w = windows + step * {VECTOR_BYTES}", "put = opposite", "y = ready")
        with write.block("for turn in range(these)"):
            write(*(f"prefetch(w, {_WINDOW_BYTES + tap * _TAP_BYTES})" for tap in range(WINDOW_SIZE**2)))
            for line in range(self.down.inputs):
                self.write_transform(self.across.of_weights, self._write_down(line))
                at = line * self.across.inputs
                write(*(f"vstore(y, {(at + i) * _STEPS * VECTOR_BYTES}, y_{i})" for i in range(self.across.inputs)))
            write(f"w += {VECTOR_BYTES}", f"y += {VECTOR_BYTES}")

    def _write_element(self, tile: Tile) -> None:
        """Adds the products of those channels to an element of a bundle's tiles. Their sum starts at zero: one long sum of all
        channels has twice the error."""
        write, sums = self.write, [tile.accumulator(row, 0) for row in range(tile.rows)]
        places = [row * VECTOR_BYTES for row in range(tile.rows)]
        write(*(f"{total} = {tile.zero}" for total in sums))
        write("x = x_element", "w = w_element")
        with write.block("for turn in range(these)"):
            write("w_0 = vload_float32(w, 0)")
            for total, at in zip(sums, places, strict=True):
                write(f"element_0 = splat_float32(load_float32(x, {at}))")
                write(multiply_add(total, "element_0", "w_0", self.target))
            write("x += 4", f"w += {VECTOR_BYTES}")
        write(
            *(
                f"vstore(target, {at}, {total} + vload_float32(target, {at}))"
                for total, at in zip(sums, places, strict=True)
            )
        )
        write(f"x_element += {self._element_bytes}", f"target += {self._element_bytes}")
        write(f"w_element += {_STEPS * VECTOR_BYTES}")
