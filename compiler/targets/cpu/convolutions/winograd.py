"""Winograd convolution of channel-blocked images; `operators/winograd.py` defines the result.

A unit of work is an image, a chunk of its tiles, and blocks of output channels, the last varying fastest. The tiles' inputs
are transformed once a chunk, for all input channels, to scratch: `spectrum` [a x a, tile, channel], as vectors of
16 channels of one element. Then a register tile computes each of the a x a matrix products, tiles by output channels, to
`products` [a x a, tile, block, 16], and these are transformed to pixels, which the epilogue takes line by line. If the window
has one line, or one column, a is 1 along that axis, and the transformation down or across is left out. A signal is an image of
one line.

For a volume, each slice of the result is a convolution of images whose channels are those of all the slices in the
window; slices in the padding are left out of the sums. Likewise, if the window is split into pieces, channels are those of the
image shifted for each piece. Groups of channels count as images.

Tiles of the last line and column overlap the previous ones, or start before an image that is smaller than a
tile; pixels that are done already, or do not exist, are not stored. Tiles of a dilated window, whose pixels are that many
steps apart, interleave.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel, even_pieces
from ..kernels.writer import Writer, estimate, shape_of
from ..operators.winograd import WINDOW_SIZE, Transforms, of_image, of_weights, pieces_of, tiles_along
from ..products.epilogue import Epilogue, Grid
from ..products.tile import (
    VECTOR_BYTES,
    Tile,
    choose,
    chunk_of,
    multiply_add,
    step_cost,
    write_chunks,
    write_start,
    write_step,
)
from ..target import Target

_USUAL_BLOCKS = 2  # of a register tile
# Steps of a chunk of a sum: the output transform amplifies rounding errors, which are least for chunks of about the
# root of the sum's length. A sum of 512 is as accurate in chunks of 32 as of 16, and faster.
_CHUNK, _LONG_SUM = 16, 512


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_winograd, with an elementwise epilogue."""
    found = anchored(definition)
    return None if found is None else lambda: Winograd(found, target).kernel()


def anchored(definition: PrimitiveDefinition) -> Anchored | None:
    """The convolution and its epilogue, if the template takes them."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found) or not found.takes_parameters:
        return None
    sizes = (*definition.values[found.node.inputs[0]].shape[1:], *definition.values[found.number].shape[1:])
    return None if 0 in sizes else found


class Winograd:
    """Writes one convolution. `winograd_raw.py` has another layout of scratch, and other products."""

    def __init__(self, found: Anchored, target: Target) -> None:
        self.found, self.node, self.target = found, found.node, target
        x, weight = (shape_of(found.definition.values[number]) for number in self.node.inputs[:2])
        result = shape_of(found.definition.values[found.number])
        self.is_signal, self.is_volume = len(x) == 4, len(x) == 6
        *depths, self.height, self.width = (1, *x[2:-1]) if self.is_signal else x[2:-1]
        *slices, self.lines, self.columns = (1, *result[2:-1]) if self.is_signal else result[2:-1]
        self.depth, self.slices = dims.product(depths), dims.product(slices)
        self.groups = found.attributes["groups"]
        self.images = dims.product([x[0], self.groups, self.slices])
        self.image_channels = found.attributes["channels"]
        (self.down, self.across), self.channels = self.read_weights(weight)
        self.image_blocks, self.blocks = estimate(x[1]) // self.groups, estimate(weight[0]) // self.groups
        down, self.pieces_across = map(pieces_of, of_image(found.attributes.get("window", (WINDOW_SIZE,))))
        self.pieces = down * self.pieces_across
        self.taps = self.channels // (self.image_channels * self.pieces)  # slices in the window
        self.in_blocks = self.taps * self.pieces * self.image_blocks
        axes = len(x) - 3
        self.front, self.top, self.left = (0, 0, *(found.attributes["pads"] or (0,) * axes)[:axes])[-3:]
        self.area = self.down.inputs * self.across.inputs
        self.steps = of_image(found.attributes.get("dilations") or (1, 1))  # from pixel to pixel of a window, or a tile
        self.tiles = dims.multiply(
            tiles_along(self.lines, self.down.outputs, self.steps[0]),
            tiles_along(self.columns, self.across.outputs, self.steps[1]),
        )
        self.chunk = self._chunk()
        self.share = self._share()
        self.tile = self.choose_tile()

    def read_weights(self, shape: tuple[Dim, ...]) -> tuple[tuple[Transforms, Transforms], int]:
        """Reads the transforms, down and across, and the number of summed channels from the weights' shape."""
        return of_weights([estimate(size) for size in shape], self.found.attributes["window"]), estimate(shape[3])

    def choose_tile(self) -> Tile:
        return choose(self.share, self.blocks, self.target, is_nested=True)

    def _chunk(self) -> int:
        """Tiles that are transformed at once: about as many as fill half of L2."""
        most = max(costs.WINOGRAD_LEAST_CHUNK, self.target.half_l2 // (self.area * self._spectrum_row))
        if not isinstance(self.tiles, int):
            return most
        return math.ceil(self.tiles / math.ceil(self.tiles / most))

    def _share(self) -> int:
        """The same when threads share the work and need several chunks each. A chunk reads all weights: large ones, which
        would come from memory for each, are shared instead."""
        if not isinstance(self.tiles, int) or self._weight_bytes > self.target.l2_bytes:
            return self.chunk
        images = self.images if isinstance(self.images, int) else 1
        block_units = math.ceil(self.blocks / _USUAL_BLOCKS)
        least = math.ceil(self.tiles / self.chunk)
        pieces = even_pieces(math.ceil(self.tiles / costs.WINOGRAD_LEAST_SHARE), least, images * block_units)
        return math.ceil(self.tiles / max(least, pieces))

    @property
    def _weight_bytes(self) -> int:
        return self.area * self.channels * self.blocks * VECTOR_BYTES

    # ---- the layout of a chunk in scratch ----
    #
    # spectrum [a x a, tile, channel], vectors being 16 channels of one element, and products [a x a, tile, block, 16]; rows and
    # planes are an odd number of vectors apart, so that they spread over a cache's sets.

    @property
    def _spectrum_row(self) -> int:
        return (self.in_blocks | 1) * VECTOR_BYTES

    @property
    def _rows(self) -> int:
        """Rows of a plane: whole register tiles. Results of rows beyond the last are not used."""
        return -(-self.chunk // self.tile.rows) * self.tile.rows

    @property
    def _planes_bytes(self) -> tuple[int, int]:
        """Bytes of the spectrum's and of the products' planes."""
        rows = self._rows
        return (rows * (self.in_blocks | 1) | 1) * VECTOR_BYTES, (rows * self.tile.blocks | 1) * VECTOR_BYTES

    @property
    def chunk_bytes(self) -> int:
        """After `spectrum`."""
        return self.area * sum(self._planes_bytes)

    def write_scratch_sizes(self) -> None:
        x_plane, product_plane = self._planes_bytes
        self.write.sizes(x_row=self._spectrum_row, x_plane=x_plane, product_plane=product_plane)

    def write_chunk_places(self) -> None:
        self.write(f"products = spectrum + {self.area} * x_plane")

    # Address of the first element of a `tile`, for a `channel`'s vector or an output's `block`, and distance of the others
    # lie, as text
    spectrum_plane, product_plane = "x_plane", "product_plane"

    @property
    def spectrum_at(self) -> str:
        return f"spectrum + tile * x_row + channel * {VECTOR_BYTES}"

    @property
    def products_at(self) -> str:
        return f"products + (tile * {self.tile.blocks} + block - first_block) * {VECTOR_BYTES}"

    @property
    def _nanoseconds(self) -> float:
        """The estimated time of one tile."""
        transforming = self.area * (self.in_blocks + self.blocks) * costs.TRANSFORM_CYCLES
        return (self.product_cycles + transforming) / costs.GIGAHERTZ

    @property
    def product_cycles(self) -> float:
        """Estimated cycles of one tile's products."""
        steps = self.area * self.channels * self.blocks
        return steps / self.tile.rows / self.tile.blocks * step_cost(self.tile, self.target)

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.found.definition, self.target, self.found.title)
        write.lanes = VECTOR_BYTES // 4
        self._write_sizes()
        place = ["volume", "block", "slice"] if self.is_volume else ["image", "block"]
        if self.groups > 1:
            place[:2] = "member", "(group * blocks + block)"
        pixel = ("column", "0") if self.is_signal else ("line", "column", "0")
        grid = Grid((*place, *pixel), row_axis=len(place) + len(pixel) - 2, block_axis=1, block_step=1)
        self.epilogue = Epilogue(write, self.found, grid)
        (line_step, step), (high, wide) = self.steps, self._extents
        write(f"across = (columns + {wide - 1}) // {wide} * {step}")
        write(f"tiles = (lines + {high - 1}) // {high} * {line_step} * across")
        write("chunk = chunk if parts == 1 else share", "chunks = (tiles + chunk - 1) // chunk")
        write(f"block_units = (blocks + {self.tile.blocks - 1}) // {self.tile.blocks}")
        write.prepare("transformed")
        write.split("images * chunks * block_units", "images * tiles * nanoseconds")
        write(f"row_bytes = width * {VECTOR_BYTES}", "plane_bytes = height * row_bytes")
        self.write_weight_steps()
        self._write_places()
        with write.block("for unit in range(first, last)"):
            self._write_unit()
        tiles = estimate(dims.multiply(self.images, self.tiles))
        return write.kernel(tiles * self._nanoseconds, self._scratch_bytes)

    def _write_sizes(self) -> None:
        write = self.write
        write.inputs(self.node.inputs, "images_at", "weight", "bias")
        write.sizes(images=self.images, groups=self.groups, in_blocks=self.in_blocks, channels=self.channels)
        write.sizes(blocks=self.blocks, height=self.height, width=self.width, lines=self.lines, columns=self.columns)
        write.sizes(pad_top=self.top, pad_left=self.left, chunk=self.chunk, share=self.share)
        write.size("nanoseconds", round(self._nanoseconds))
        self.write_scratch_sizes()
        if self.is_volume:
            write.sizes(slices=self.slices, depth=self.depth, pad_front=self.front, taps=self.taps)
            write.sizes(slice_blocks=self.pieces * self.image_blocks, slice_channels=self.pieces * self.image_channels)
        if self.is_volume or self.pieces > 1:
            write.size("image_blocks", self.image_blocks)

    @property
    def has_bias(self) -> bool:
        return len(self.node.inputs) > 2

    @property
    def _scratch_bytes(self) -> int:
        one_tile = self._line_bytes + self.area * VECTOR_BYTES
        return self.epilogue.buffer_bytes + one_tile + self.chunk_bytes

    @property
    def _line_bytes(self) -> int:
        """Bytes of a line of a tile's input pixels."""
        return ((self.across.inputs - 1) * self.steps[1] + 1) * VECTOR_BYTES

    def _write_places(self) -> None:
        """Defines scratch areas: `zeros` is a tile's line outside the image, `half` a tile after the first of two transforms."""
        write, line_bytes = self.write, self._line_bytes
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        write(f"zeros = scratch + {self.epilogue.buffer_bytes}", f"half = zeros + {line_bytes}")
        write(f"spectrum = half + {self.area * VECTOR_BYTES}")
        self.write_chunk_places()
        with write.block(f"for at in range(0, {line_bytes}, {VECTOR_BYTES})"):
            write("vstore(zeros, at, splat_float32(0.0))")

    def _write_unit(self) -> None:
        write, blocks = self.write, self.tile.blocks
        write("place = unit // block_units", f"first_block = (unit - place * block_units) * {blocks}")
        write("image = place // chunks", "first_tile = (place - image * chunks) * chunk")
        write("count = min(chunk, tiles - first_tile)")
        if self.is_volume:
            write("volume = image // slices", "slice = image - volume * slices")
            write("near = max(pad_front - slice, 0)", "beyond = max(near, min(taps, depth + pad_front - slice))")
            write("summed = (beyond - near) * slice_channels")
        if self.groups > 1:
            whole = "volume" if self.is_volume else "image"
            write(f"member = {whole} // groups", f"group = {whole} - member * groups")
            write("group_weight = weight + group * blocks * w_block")
            if self.has_bias:
                write(f"group_bias = bias + group * blocks * {VECTOR_BYTES}")
        with write.block("if place != transformed"):
            write("transformed = place")
            self._write_input_transform()
        write(f"end_block = min(first_block + {blocks}, blocks)")
        if self.blocks % blocks:
            with write.block(f"if first_block + {blocks} == end_block"):
                self.write_products(self.tile, "first_block")
            with write.block("else"), write.block("for block in range(first_block, end_block)"):
                self.write_products(Tile(self.tile.rows, 1), "block")
        else:
            self.write_products(self.tile, "first_block")
        self._write_output_transform()

    # ---- inputs ----

    def _write_input_transform(self) -> None:
        """Lines and columns outside the image are zeros: for lines, the vectors at `zeros` are read."""
        write = self.write
        channels = "near * slice_blocks, beyond * slice_blocks" if self.is_volume else "in_blocks"
        with write.block(f"for channel in range({channels})"), write.block("for tile in range(count)"):
            self._write_tile_place()
            write("top = line - pad_top", "left = column - pad_left", "plane = channel")
            if self.is_volume:
                write("tap = channel // slice_blocks", "plane = channel - tap * slice_blocks")
            if self.pieces > 1:
                write("piece = plane // image_blocks", f"piece_line = piece // {self.pieces_across}")
                write(f"top += {WINDOW_SIZE * self.steps[0]} * piece_line", "plane -= piece * image_blocks")
                write(f"left += {WINDOW_SIZE * self.steps[1]} * (piece - piece_line * {self.pieces_across})")
            if self.is_volume:
                write("plane = (volume * image_blocks + plane) * depth + slice + tap - pad_front")
            else:
                write(f"plane += image * {'image_blocks' if self.pieces > 1 else 'in_blocks'}")
            write("source = images_at + plane * plane_bytes")
            write(f"source += top * row_bytes + left * {VECTOR_BYTES}")
            for i in range(0, self.down.inputs * self.steps[0], self.steps[0]):
                write(f"line_{i // self.steps[0]} = source + {i} * row_bytes if 0 <= top + {i} < height else zeros")
            write(f"target = {self.spectrum_at}")
            if self.down.is_identity:
                self._write_line_transform()
            else:
                self._write_input_down()
                self._write_input_across()

    def _write_line_transform(self) -> None:
        """The transform of a tile of one line; most of these lie within the image."""
        write, columns, step = self.write, range(self.across.inputs), self.steps[1]
        with write.block(f"if 0 <= left < width - {columns[-1] * step}"):
            loads = [f"vload_float32(line_0, {i * step * VECTOR_BYTES})" for i in columns]
            self.write_transform(self.across.of_input, loads)
            for i in columns:
                write(f"vstore(target, {i} * {self.spectrum_plane}, y_{i})")
        with write.block("else"):
            self._write_input_down()
            self._write_input_across()

    def _write_input_down(self) -> None:
        """The first of the two transforms, along the lines of a tile, to `half`."""
        write, down, across = self.write, self.down, self.across
        at = f"along * {self.steps[1]}" if self.steps[1] > 1 else "along"
        with write.block(f"for along in range({across.inputs})"):
            with write.block(f"if 0 <= left + {at} < width"):
                ahead = f"({at} + {across.outputs}) * {VECTOR_BYTES}"
                write(*(f"prefetch(line_{i}, {ahead})" for i in range(down.inputs)))
                loads = [f"vload_float32(line_{i}, {at} * {VECTOR_BYTES})" for i in range(down.inputs)]
                self.write_transform(down.of_input, loads)
                for i in range(down.inputs):
                    write(f"vstore(half, ({i * across.inputs} + along) * {VECTOR_BYTES}, y_{i})")
            with write.block("else"), write.block(f"for down in range({down.inputs})"):
                write(f"vstore(half, (down * {across.inputs} + along) * {VECTOR_BYTES}, splat_float32(0.0))")

    def _write_input_across(self) -> None:
        """The second transform, along the columns."""
        write, size = self.write, self.across.inputs
        with write.block(f"for down in range({self.down.inputs})"):
            self.write_transform(self.across.of_input, self._half_line())
            for i in range(size):
                write(f"vstore(target, (down * {size} + {i}) * {self.spectrum_plane}, y_{i})")

    def _write_tile_place(self) -> None:
        """The output pixel at which a tile of the chunk begins; and at which it would begin without overlap."""
        write, names = self.write, (("line", "lines"), ("column", "columns"))
        write("tile_line = (first_tile + tile) // across", "tile_column = first_tile + tile - tile_line * across")
        for (name, length), extent, step in zip(names, self._extents, self.steps, strict=True):
            if step == 1:
                write(f"own_{name} = tile_{name} * {extent}", f"{name} = min(own_{name}, {length} - {extent})")
            else:
                write(f"own_{name} = tile_{name} // {step} * {extent}")
                write(f"{name} = min(own_{name}, {length} - {extent}) + tile_{name} % {step}")

    @property
    def _extents(self) -> tuple[int, int]:
        """Lines and columns that interleaved tiles cover together."""
        return self.down.outputs * self.steps[0], self.across.outputs * self.steps[1]

    def _half_line(self) -> list[str]:
        size = self.across.inputs
        return [f"vload_float32(half, (down * {size} + {i}) * {VECTOR_BYTES})" for i in range(size)]

    # ---- products ----

    def write_weight_steps(self) -> None:
        self.write("w_step = 64", "w_plane = channels * w_step", f"w_block = {self.area} * w_plane", "x_step = 4")

    def _planes_ahead(self, tile: Tile) -> int:
        """Prefetch distance of weights, in products: long enough for memory latency."""
        cycles = self.chunk * self.channels * tile.blocks / 2
        return min(math.ceil(costs.PREFETCH_CYCLES / cycles), -(-self.area // 2))

    @property
    def weight(self) -> str:
        """The address of the weights of a unit's group."""
        return "group_weight" if self.groups > 1 else "weight"

    def write_products(self, tile: Tile, block: str) -> None:
        """All matrix products, for the blocks of output channels from `block` on."""
        write, row = self.write, self.tile.blocks * VECTOR_BYTES
        lines = -(-tile.blocks * tile.rows // self.share)  # so that all tiles together prefetch those of the next plane
        summed = "summed" if self.is_volume else "channels"
        write(f"row_tiles = (count + {tile.rows - 1}) // {tile.rows}")
        with write.block(f"for plane in range({self.area})"):
            write(f"w_tile = {self.weight} + {block} * w_block + plane * w_plane")
            next_unit, ahead = f"{self.weight} + ({block} + {tile.blocks}) * w_block", self._planes_ahead(tile)
            place = f" + (plane - {self.area - ahead}) * w_plane" if ahead > 1 else ""
            step = f"{ahead} * w_plane" if ahead > 1 else "w_plane"
            write(f"next_plane = w_tile + {step} if plane < {self.area - ahead} else {next_unit}{place}")
            write("x = spectrum + plane * x_plane")
            if self.is_volume:
                write("w_tile += near * slice_channels * w_step", "x += near * slice_channels * x_step")
            write(f"target = products + plane * product_plane + ({block} - first_block) * {VECTOR_BYTES}")
            with write.block("for tile in range(row_tiles)"):
                write("w = w_tile", f"ahead = next_plane + tile * {lines} % {tile.blocks} * w_block")
                write_start(write, tile)
                chunk = chunk_of(self.channels, most=_CHUNK if self.channels < _LONG_SUM else 2 * _CHUNK)
                with write_chunks(write, tile, summed, chunk) as steps, write.block(f"for step in {steps}"):
                    write_step(write, tile, self.target, lines=lines)
                for i in range(tile.rows):
                    for j in range(tile.blocks):
                        write(f"vstore(target, {i * row + j * VECTOR_BYTES}, {tile.accumulator(i, j)})")
                write(f"x += {tile.rows} * x_row - {summed} * x_step", f"target += {tile.rows * row}")

    # ---- outputs ----

    def _write_output_transform(self) -> None:
        write, down, across = self.write, self.down, self.across
        with write.block("for tile in range(count)"):
            self._write_tile_place()
            write(f"skip = {self._steps_before('column', 1)}", "first_line = line")
            write(f"skipped_lines = {self._steps_before('line', 0)}")
            with write.block("for block in range(first_block, end_block)"):
                write(f"source = {self.products_at}")
                if not down.is_identity:
                    self._write_output_down()
                if self.has_bias:
                    bias = "group_bias" if self.groups > 1 else "bias"
                    write(f"start = vload_float32({bias}, block * {VECTOR_BYTES})")
                if down.is_identity:
                    loads = [f"vload_float32(source, {i} * {self.product_plane})" for i in range(across.inputs)]
                    self._write_output_line(loads)
                    return
                with write.block(f"for down in range(skipped_lines, {down.outputs})"):
                    write(
                        f"line = first_line + down * {self.steps[0]}"
                        if self.steps[0] > 1
                        else "line = first_line + down"
                    )
                    self._write_output_line(self._half_line())

    def _steps_before(self, name: str, axis: int) -> str:
        """The number of a tile's pixels, along an axis, that belong to the previous tile."""
        step = self.steps[axis]
        return f"own_{name} - {name}" if step == 1 else f"(own_{name} - {name} + {step - 1}) // {step}"

    def _write_output_down(self) -> None:
        """The first of the two transforms of a tile, along its lines, to `half`."""
        write, down, size = self.write, self.down, self.across.inputs
        with write.block(f"for along in range({size})"):
            loads = [f"vload_float32(source, ({i * size} + along) * {self.product_plane})" for i in range(down.inputs)]
            self.write_transform(down.of_output, loads)
            for i in range(down.outputs):
                write(f"vstore(half, ({i * size} + along) * {VECTOR_BYTES}, y_{i})")

    def _write_output_line(self, loads: Sequence[str]) -> None:
        """The second transform of a line, and its epilogue."""
        write, tile, step = self.write, Tile(self.across.outputs, 1), self.steps[1]
        if step == 1:
            self.epilogue.begin()
        self.write_transform(self.across.of_output, loads)
        start = " + start" if self.has_bias else ""
        if step == 1:
            write(*(f"{tile.accumulator(i, 0)} = y_{i}{start}" for i in range(tile.rows)))
            is_exact = isinstance(self.columns, int) and self.columns % tile.rows == 0
            self.epilogue.tile(tile, skip="" if is_exact else "skip")
            return
        write("first_column = column")
        for i in range(tile.rows):
            with write.block(f"if {i} >= skip"):
                write(f"column = first_column + {i * step}")
                self.epilogue.begin()
                write(f"{tile.accumulator(0, 0)} = y_{i}{start}")
                self.epilogue.tile(Tile(1, 1))
        write("column = first_column")

    # ---- sums of multiples ----

    def write_transform(self, matrix: np.ndarray, loads: Sequence[str]) -> None:
        """Defines y_0, y_1 … as the matrix times the loaded vectors.

        Points come in pairs p, -p, whose rows or columns differ only in signs: even and odd terms in p are summed
        separately.
        """
        write = self.write
        names = [f"x_{i}" for i in range(len(loads))]
        write(*(f"{name} = {load}" for name, load in zip(names, loads, strict=True)))
        terms = [dict(zip(names, row, strict=True)) for row in matrix.tolist()]
        self._join_columns(terms, matrix)
        done = 0
        while done < len(terms):
            if done + 1 < len(terms) and is_pair(matrix[done], matrix[done + 1]):
                self._write_pair(done, terms)
                done += 2
            else:
                self._write_sum(f"y_{done}", terms[done])
                done += 1

    def _join_columns(self, terms: list[dict[str, float]], matrix: np.ndarray) -> None:
        """Replaces vectors that every row takes with one coefficient, up to its sign, by sums and differences."""
        for column in range(matrix.shape[1] - 1):
            if not is_pair(matrix[:, column], matrix[:, column + 1]):
                continue
            a, b = f"x_{column}", f"x_{column + 1}"
            self.write(f"even_{column} = {a} + {b}", f"odd_{column} = {a} - {b}")
            for row in terms:
                first, second = row.pop(a), row.pop(b)
                row[f"even_{column}" if first == second else f"odd_{column}"] = first

    def _write_pair(self, row: int, terms: list[dict[str, float]]) -> None:
        """Two rows that differ in the signs of the odd terms, as a multiple of a sum, which saves a rounding."""
        write, (first, second) = self.write, terms[row : row + 2]
        self._write_sum("even", {name: value for name, value in first.items() if value == second[name]})
        odd = {name: value for name, value in first.items() if value != second[name]}
        factor = list(odd.values())[-1]
        self._write_sum("odd", {name: value / factor for name, value in odd.items()})
        for place, value in ((row, factor), (row + 1, -factor)):
            write(f"y_{place} = even")
            self._write_multiple(f"y_{place}", "odd", value)

    def _write_sum(self, total: str, terms: dict[str, float]) -> None:
        """Defines a sum of multiples; a term with coefficient 1, if any, goes first."""
        ordered = sorted(((name, value) for name, value in terms.items() if value), key=lambda term: term[1] != 1)
        (name, value), *rest = ordered
        self.write(f"{total} = {name}" if value == 1 else f"{total} = {name} * {constant(value)}")
        for name, value in rest:
            self._write_multiple(total, name, value)

    def _write_multiple(self, total: str, name: str, value: float) -> None:
        """Adds a multiple of a vector to a sum."""
        if abs(value) == 1:
            self.write(f"{total} = {total} {'+' if value > 0 else '-'} {name}")
        else:
            self.write(multiply_add(total, name, constant(value), self.target))


def constant(value: float) -> str:
    return f"splat_float32({value})"


def is_pair(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two rows differ only in signs, in some places but not in all."""
    same, opposite = (a == b) & (a != 0), (a == -b) & (a != 0)
    return bool(same.any() and opposite.any() and (abs(a) == abs(b)).all())
