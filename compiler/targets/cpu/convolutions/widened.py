"""Convolutions of 8-bit integers on CPUs with an instruction for sums of 16-bit products, and none for those of bytes.

The image is widened to 16 bits as it is copied, and a tile's weights once for all of its unit. In the copies, all channels of a
pixel lie side by side, so that the sum over a row of the window is one long loop.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import even_pieces
from ..products.precision import BYTES, WORDS
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, choose, step_cost, write_start, write_step
from ..products.widened import HALVES, write_halves
from ..target import Target
from .blocked import ScaledConv
from .sizes import Problem

_LEAST_PIXELS = 16  # of an image for which its weights are widened: less would take as long as the sums
# Winograd's algorithm along an axis: taps, pixels of a tile of the result, and those of the image that it needs
_TAPS, _OUTPUTS, _INPUTS = 3, 4, 6
_AREA = _INPUTS**2
_SUMMED = 7  # blocks of channels: sums of 7 * 16 * 9 products of bytes are less than 2^25
_NINTH = pow(9, -1, 1 << 32)
_TWOS = (3, 2, 1, 1)  # powers of two in 24, 12, 6 and 6
_WIDE_BYTES = 2 * BLOCK  # of 16 channels, widened
_MANY = 128  # steps of a pixel: 512 bytes


def takes_widened(problem: Problem, target: Target) -> bool:
    """Whether widening takes less time than what it saves."""
    is_image = problem.pile is None and problem.pixels >= _LEAST_PIXELS
    return is_image and problem.precision == BYTES and bool(target.dot_words)


class WidenedConv(ScaledConv):
    """Variables of its text beside those of `Conv`: `kept`, the block whose weights are in scratch first, or -1. The problem's
    words hold four channels, as those in memory; steps of the sum take two."""

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.words = problem.words
        last = min(self.words, math.ceil(problem.last / BYTES.each))  # words of the last block that count
        self.steps = HALVES * ((problem.channels - 1) * self.words + last)  # for one window position
        super().__init__(found, problem, target)
        self.tile = replace(self.tile, precision=WORDS)

    @property
    def is_staged(self) -> bool:
        return True

    @property
    def pixel(self) -> int:
        """A line more than its words where they are many: neighbours are then in different sets of L1."""
        return 4 * self.steps + (costs.LINE_BYTES if self.steps >= _MANY else 0)

    @property
    def stage_bytes(self) -> int:
        return self.stage_row * self._stage_lines

    @property
    def tap_bytes(self) -> int:
        return self.steps * VECTOR_BYTES

    @property
    def weight_lines(self) -> str:
        return "window_height"

    @property
    def weight_bytes(self) -> int:
        down, across = self.problem.window
        return self.tile.blocks * down.size * across.size * self.tap_bytes

    @property
    def line_bytes(self) -> int:
        return self.problem.width * self.problem.window[0].stride * self.pixel

    def write_stage_sizes(self) -> None:
        self.write.sizes(reach=self._stage_reach, x_line=self.stage_row)
        self.write("kept = -1")

    def write_lines(self) -> None:
        """The last channels first: what is stored beyond those that count is then the next pixel's first ones."""
        write = self.write
        with write.block("for later in range(channels)"):
            write("channel = channels - 1 - later", "from_plane = origin + channel * plane_bytes")
            with write.block("for line in range(first_line, end_line)"):
                write("source = from_plane + line * row_bytes")
                write(f"target = stage + (line - first_line) * x_line + channel * {4 * HALVES * self.words}")
                self._write_zeros("min(margin, reach)")
                with write.block("for column in range(copied)"):
                    wide = f"convert_uint16(vload_uint8(source, column * {BLOCK}))"
                    write(f"vstore(target, (margin + column) * {self.pixel}, {wide})")
                self._write_zeros("margin + copied, reach")

    def _write_zeros(self, columns: str) -> None:
        with self.write.block(f"for column in range({columns})"):
            self.write(f"vstore(target, column * {self.pixel}, splat_uint16(0))")

    def write_weights(self, tile: Tile) -> None:
        write, words = self.write, self.words
        write(f"w_tile = stage + {self.stage_bytes + VECTOR_BYTES}")
        with write.block("if group * blocks + block != kept"):
            write("kept = group * blocks + block", "taps = window_height * window_width")
            write(f"source = weight + kept * channels * taps * {words * VECTOR_BYTES}")
            with write.block(f"for run in range({tile.blocks} * channels * taps)"):
                write("of_channel = run // taps", "of_block = of_channel // channels")
                write(f"target = w_tile + of_block * w_block + (run - of_channel * taps) * {self.tap_bytes}")
                write(
                    "channel = of_channel - of_block * channels",
                    f"target += channel * {HALVES * words * VECTOR_BYTES}",
                )
                write(f"count = min((last_channels + {BYTES.each - 1}) // {BYTES.each}, {words})")
                write(f"count = count if channel == channels - 1 else {words}")
                with write.block("for at in range(count)"):
                    write(f"prefetch(source, {costs.PREFETCH_BYTES} + at * {VECTOR_BYTES})")
                    write_halves(write, "source", "target", "at")
                write(f"source += {words * VECTOR_BYTES}")

    def write_sums(self, tile: Tile, is_masked: bool = False) -> None:
        write = self.write
        write_start(write, tile, self.bias)
        with write.block("for tap in range(first_tap, end_tap)"):
            write("w = w_tile + tap * w_line", "x_tap = x_tile + tap * dilation_down * x_line")
            self._write_row(tile, "x_tap")

    def _write_row(self, tile: Tile, start: str) -> None:
        """The part of the sum over a row of the window."""
        write = self.write
        if self.problem.window[1].dilation == 1 and self.pixel == 4 * self.steps:  # pixels without gaps
            write(f"x = {start}")
            with write.block(f"for step in range(window_width * {self.steps})"):
                write_step(write, tile, self.target, lines=0)
            return
        with write.block("for tap_across in range(window_width)"):
            write(f"x = {start} + tap_across * dilation_across * {self.pixel}")
            with write.block(f"for step in range(hidden({self.steps}))"):
                write_step(write, tile, self.target, lines=0)


class WidenedWinograd(WidenedConv):
    """Likewise, with a window of 3x3: tiles of 4x4 pixels by 36 products instead of 144, of transforms of 16 bits
    (Winograd's F(4, 3) of the points 0, 1, -1, 2, -2 and infinity; `operators/winograd.py` explains it).

    Weights are transformed by integers, without the divisors 4, -6, -6, 24, 24 and 1 of the six products along an axis, so that
    the result comes out as a multiple, of at most 576, modulo 2^32. It is exact: to divide by 9 is to multiply by its
    inverse, and sums over `_SUMMED` blocks of channels are so small that 64 times one is below 2^31.

    The problem is one line of such tiles, of which a register tile takes some side by side. Variables of its text beside those of
    `Conv`: `place_at` counts these tiles, `line` and `column` are pixels of the result. Scratch: the tiles' transforms [register
    tile, 36, row, channel], transformed weights of a part of the channels [36, step], their products [36, row], and
    the results [register tile, row, 4, 4], all in vectors.
    """

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.image = problem
        self.wide = math.ceil(problem.columns / _OUTPUTS)
        count = math.ceil(problem.lines / _OUTPUTS) * self.wide
        parts = math.ceil(problem.channels / _SUMMED)
        self.summed = math.ceil(problem.channels / parts)
        super().__init__(found, replace(problem, lines=1, columns=count), target)

    @staticmethod
    def takes(problem: Problem) -> bool:
        is_dense = all((a.size, a.stride, a.dilation) == (_TAPS, 1, 1) for a in problem.window)
        return is_dense and min(problem.lines, problem.columns) >= _OUTPUTS and problem.channels > 1

    def choose_tile(self) -> Tile:
        return choose(self.problem.columns, 1, self.target, is_nested=True)

    def choose_band(self) -> int:
        """Register tiles whose transforms take half of L2."""
        problem = self.problem
        images = problem.batch if isinstance(problem.batch, int) else 1
        least = math.ceil(self.across / max(1, self.target.half_l2 // self._tile_bytes))
        bands = even_pieces(self.across, least, max(1, images * problem.groups * problem.blocks))
        return math.ceil(self.across / bands)

    @property
    def nanoseconds(self) -> float:
        problem = self.problem
        tiles = problem.groups * self.across * problem.blocks
        steps = _AREA * HALVES * problem.channels * self.words
        elements = problem.groups * problem.blocks * self.image.pixels * BLOCK
        return tiles * steps * step_cost(self.tile, self.target) / costs.GIGAHERTZ + elements * self.epilogue_cost

    # ---- scratch ----

    @property
    def pixel(self) -> int:
        """Bytes of the channels of one element of a tile's transform."""
        return _WIDE_BYTES * self.problem.channels

    @property
    def _tile_bytes(self) -> int:
        return _AREA * self.tile.rows * self.pixel

    @property
    def stage_bytes(self) -> int:
        return self.band * self._tile_bytes

    @property
    def _sum_bytes(self) -> int:
        """Of one element of a register tile's products."""
        return self.tile.rows * VECTOR_BYTES

    @property
    def _scratch(self) -> dict[str, int]:
        """The bytes of each area behind the transforms."""
        return {
            "w_tile": _AREA * self.summed * HALVES * self.words * VECTOR_BYTES,
            "sums": _AREA * self._sum_bytes,
            "results": self.band * self.tile.rows * _OUTPUTS**2 * VECTOR_BYTES,
            "half": _AREA * VECTOR_BYTES,
            "zeros": _INPUTS * BLOCK,
        }

    @property
    def weight_bytes(self) -> int:
        return sum(self._scratch.values())

    def write_stage_sizes(self) -> None:
        write, image = self.write, self.image
        write.sizes(result_lines=image.lines, result_columns=image.columns, wide=self.wide)

    # ---- the image ----

    def write_stage(self) -> None:
        write = self.write
        at = self.stage_bytes + VECTOR_BYTES
        for name, size in self._scratch.items():
            write(f"{name} = stage + {at}")
            at += size
        write("band_tile = first_tile")
        with write.block("if place != staged"):
            write("staged = place", *(f"vstore(zeros, {i * BLOCK}, splat_uint8(0))" for i in range(_INPUTS)))
            rows = self.tile.rows
            with write.block(f"for place_at in range(first_tile * {rows}, min(last_tile * {rows}, columns))"):
                self._write_place()
                write("top = line - pad_top", "left = column - pad_left")
                write(f"target_tile = stage + (place_at // {rows} - first_tile) * {self._tile_bytes}")
                write(f"target_tile += place_at % {rows} * {self.pixel}")
                with write.block("for channel in range(channels)"):
                    self._write_transform()

    def _write_place(self) -> None:
        """Defines the pixel at which a tile begins: the last ones overlap those before."""
        self.write("tile_line = place_at // wide")
        self.write(f"line = min(tile_line * {_OUTPUTS}, result_lines - {_OUTPUTS})")
        self.write(f"column = min((place_at - tile_line * wide) * {_OUTPUTS}, result_columns - {_OUTPUTS})")

    def _write_transform(self) -> None:
        """The transform of a tile's pixels, of one block of channels: along columns, then along lines."""
        write = self.write
        write(f"source = origin + channel * plane_bytes + top * row_bytes + left * {BLOCK}")
        for i in range(_INPUTS):
            write(f"line_{i} = source + {i} * row_bytes if 0 <= top + {i} < height else zeros")
        with write.block(f"for along in range({_INPUTS})"):
            with write.block("if 0 <= left + along < width"):
                for i in range(_INPUTS):
                    write(f"d{i} = convert_uint16(vload_uint8(line_{i}, along * {BLOCK}))")
                self._write_inputs(f"half, {{}} * {_INPUTS * _WIDE_BYTES} + along * {_WIDE_BYTES}")
            with write.block("else"):
                for i in range(_INPUTS):
                    write(f"vstore(half, {i * _INPUTS * _WIDE_BYTES} + along * {_WIDE_BYTES}, splat_uint16(0))")
        plane = self.tile.rows * self.pixel
        with write.block(f"for down in range({_INPUTS})"):
            for i in range(_INPUTS):
                write(f"d{i} = vload_uint16(half, down * {_INPUTS * _WIDE_BYTES} + {i * _WIDE_BYTES})")
            write(f"target = target_tile + down * {_INPUTS * plane} + channel * {_WIDE_BYTES}")
            self._write_inputs(f"target, {{}} * {plane}")

    def _write_inputs(self, place: str) -> None:
        """Stores six sums of six numbers, which are at most ten times as large."""
        self.write(
            "near = d4 - d2", "far = d3 - d1", "twice = far + far", "even = d4 - (d2 << 2)", "odd = d3 - (d1 << 2)"
        )
        values = ("near + ((d0 - d2) << 2)", "even + odd", "even - odd", "near + twice", "near - twice")
        for i, value in enumerate((*values, "d5 - d3 - (far << 2)")):
            self.write(f"vstore({place.format(i)}, {value})")

    # ---- weights ----

    def write_weights(self, tile: Tile) -> None:
        """Transforms the weights of `summed` blocks of channels from `begin` on. Until the end, a lane holds two channels as one
        number, a + 65536 b."""
        write, vectors = self.write, self.words * VECTOR_BYTES
        write(f"w_plane = summed * {HALVES * vectors}")
        with write.block("for channel in range(summed)"), write.block(f"for at in range({self.words})"):
            write(f"source = weight + ((group * blocks + block) * channels + begin + channel) * {_TAPS**2 * vectors}")
            write(
                f"source += at * {VECTOR_BYTES}",
                f"target = w_tile + (channel * {self.words} + at) * {HALVES * VECTOR_BYTES}",
            )
            write(*(f"prefetch(source, {costs.PREFETCH_BYTES} + {tap * vectors})" for tap in range(_TAPS**2)))
            for half in range(HALVES):
                with write.block(f"for across_tap in range({_TAPS})"):
                    for row in range(_TAPS):
                        write(f"four = vload_int32(source, across_tap * {vectors} + {row * _TAPS * vectors})")
                        low, high = f"(four << {24 - 16 * half}) >> 24", f"(four << {16 - 16 * half}) >> 24"
                        write(f"g{row} = ({low}) + (({high}) << 16)")
                    for i, value in enumerate(self._weight_sums()):
                        write(f"vstore(half, {i * _TAPS * VECTOR_BYTES} + across_tap * {VECTOR_BYTES}, {value})")
                with write.block(f"for down in range({_INPUTS})"):
                    for i in range(_TAPS):
                        write(f"g{i} = vload_int32(half, down * {_TAPS * VECTOR_BYTES} + {i * VECTOR_BYTES})")
                    for i, value in enumerate(self._weight_sums()):
                        place = f"target, (down * {_INPUTS} + {i}) * w_plane + {half * VECTOR_BYTES}"
                        write(f"vstore({place}, (({value}) + 32768) ^ 32768)")

    def _weight_sums(self) -> tuple[str, ...]:
        """Text of six sums of g0, g1 and g2, which are at most seven times as large."""
        self.write("ends = g0 + g2", "more = g0 + (g2 << 2)", "mid = g1 + g1")
        return "g0", "ends + g1", "ends - g1", "more + mid", "more - mid", "g2"

    # ---- products and results ----

    def write_tiles(self, tile: Tile) -> None:
        write, rows = self.write, tile.rows
        with write.block(f"for begin in range(0, channels, {self.summed})"):
            write(f"summed = min({self.summed}, channels - begin)")
            self.write_weights(tile)
            with write.block("for tile in range(first_tile, last_tile)"):
                write(f"x_tile = stage + (tile - band_tile) * {self._tile_bytes} + begin * {_WIDE_BYTES}")
                with write.block(f"for at in range({_AREA})"):
                    write_start(write, tile)
                    write(f"x = x_tile + at * {rows * self.pixel}", "w = w_tile + at * w_plane")
                    with write.block(f"for step in range(summed * {HALVES * self.words})"):
                        write_step(write, tile, self.target, lines=0)
                    for i in range(rows):
                        write(f"vstore(sums, at * {self._sum_bytes} + {i * VECTOR_BYTES}, {tile.accumulator(i, 0)})")
                with write.block(f"for row in range({rows})"):
                    self._write_outputs()
        in_tile = f"for row in range(min({rows}, columns - tile * {rows}))"
        with write.block("for tile in range(first_tile, last_tile)"), write.block(in_tile):
            self._write_pixels()

    def _write_outputs(self) -> None:
        """Adds the sums of a tile's pixels to the results, or begins them."""
        write = self.write
        write(f"result = results + ((tile - band_tile) * {self.tile.rows} + row) * {_OUTPUTS**2 * VECTOR_BYTES}")
        with write.block(f"for along in range({_INPUTS})"):
            for i in range(_INPUTS):
                place = f"({i * _INPUTS} + along) * {self._sum_bytes} + row * {VECTOR_BYTES}"
                write(f"m{i} = vload_int32(sums, {place})")
            for i, value in enumerate(self._output_sums()):
                write(f"vstore(half, {i * _INPUTS * VECTOR_BYTES} + along * {VECTOR_BYTES}, {value})")
        for down in range(_OUTPUTS):
            for i in range(_INPUTS):
                write(f"m{i} = vload_int32(half, {(down * _INPUTS + i) * VECTOR_BYTES})")
            for i, value in enumerate(self._output_sums()):
                write(f"y{i} = (({value}) * {_NINTH}) >> {_TWOS[down] + _TWOS[i]}")
            with write.block("if begin"):
                for i in range(_OUTPUTS):
                    write(f"y{i} = y{i} + vload_int32(result, {(down * _OUTPUTS + i) * VECTOR_BYTES})")
            for i in range(_OUTPUTS):
                write(f"vstore(result, {(down * _OUTPUTS + i) * VECTOR_BYTES}, y{i})")

    def _output_sums(self) -> tuple[str, ...]:
        """Text of four sums of six products: 24, 12, 6 and 6 times a result."""
        write = self.write
        write("ends = m1 + m2", "less = m1 - m2", "most = m3 + m4", "least = m3 - m4")
        write("begun = m0 - ends", "begun = begun + begun + m0", "beside = m5 + m5 + m5 + least")
        return "begun + begun + most", "least - less - less", "most - ends", "beside + beside - less"

    def _write_pixels(self) -> None:
        """The epilogue of a tile's pixels, line by line."""
        write = self.write
        write(f"place_at = tile * {self.tile.rows} + row")
        self._write_place()
        write(f"skip = (place_at - tile_line * wide) * {_OUTPUTS} - column", "from_line = line")
        write(f"result = results + ((tile - band_tile) * {self.tile.rows} + row) * {_OUTPUTS**2 * VECTOR_BYTES}")
        with write.block(f"for down in range(tile_line * {_OUTPUTS} - from_line, {_OUTPUTS})"):
            write("line = from_line + down", f"pixels = result + down * {_OUTPUTS * VECTOR_BYTES}")
            self.epilogue.begin()
            tile = replace(self.tile, rows=_OUTPUTS)
            start = ""
            if self.bias:
                write(f"added = vload_int32(bias, (group * blocks + block) * {VECTOR_BYTES})")
                start = " + added"
            for i in range(_OUTPUTS):
                write(f"{tile.accumulator(i, 0)} = vload_int32(pixels, {i * VECTOR_BYTES}){start}")
            self.epilogue.tile(self.write_result(tile), skip="skip" if self.image.columns % _OUTPUTS else "")
