"""Convolutions of 8-bit integers on CPUs with an instruction for sums of 16-bit products, and none for those of bytes.

The image is widened to 16 bits as it is copied, and a tile's weights once for all of its unit. In the copies, all channels of a
pixel lie side by side, so that the sum over a row of the window is one long loop.
"""

from __future__ import annotations

import math
from dataclasses import replace

from .. import costs
from ..kernels.anchor import Anchored
from ..products.precision import BYTES, WORDS
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, write_start, write_step
from ..products.widened import HALVES, write_halves
from ..target import Target
from .blocked import Conv
from .sizes import Problem

_LEAST_PIXELS = 16  # of an image for which its weights are widened: less would take as long as the sums
_TAPS, _PRODUCTS = 3, 4  # of Winograd's algorithm
_MANY = 128  # steps of a pixel: 512 bytes


def takes_widened(problem: Problem, target: Target) -> bool:
    """Whether widening takes less time than what it saves."""
    is_image = problem.pile is None and problem.pixels >= _LEAST_PIXELS
    return is_image and problem.precision == BYTES and bool(target.dot_words)


class WidenedConv(Conv):
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
    """Likewise, with a window of three lines: two lines of the result by four products instead of six, in the copies
    (Winograd's F(2, 3), along one axis). Weights are doubled there, so that all sums are integers; they are exact.

        d0 - d2, d1 + d2, d2 - d1, d1 - d3      of four lines of the image
        2 g0, g0 + g1 + g2, g0 - g1 + g2, 2 g2  of a window's
        m0 + m1 + m2, m1 - m2 - m3              of the products' sums: twice the result

    Variables of its text beside those of `WidenedConv`: `line` counts pairs of the result's lines, `down` lines.
    """

    line = "down"

    def __init__(self, found: Anchored, problem: Problem, target: Target) -> None:
        self.lines = problem.lines
        super().__init__(found, replace(problem, lines=-(-problem.lines // 2)), target)

    @staticmethod
    def takes(problem: Problem) -> bool:
        down, across = problem.window
        is_dense = (down.size, down.stride, down.dilation, across.dilation) == (_TAPS, 1, 1, 1)
        largest = 2 * problem.channels * BLOCK * down.size * across.size * 255 * 128
        return is_dense and problem.lines >= 2 * _TAPS and largest < 1 << 31

    @property
    def line_bytes(self) -> int:
        return _PRODUCTS * self.stage_row

    @property
    def _stage_lines(self) -> int:
        return _PRODUCTS * math.ceil(self.band / self.across)

    @property
    def weight_lines(self) -> str:
        return str(_PRODUCTS)

    @property
    def _transformed_bytes(self) -> int:
        return self.tile.blocks * _PRODUCTS * self.problem.window[1].size * self.tap_bytes

    @property
    def _tile_bytes(self) -> int:
        return self.tile.rows * self.tile.blocks * VECTOR_BYTES

    @property
    def weight_bytes(self) -> int:
        """With the sums of a tile, and a line of zeros."""
        return self._transformed_bytes + _PRODUCTS * self._tile_bytes + self.problem.width * BLOCK

    def write_stage_sizes(self) -> None:
        super().write_stage_sizes()
        self.write.size("result_lines", self.lines)

    def write_stage(self) -> None:
        write = self.write
        write(f"sums = stage + {self.stage_bytes + VECTOR_BYTES + self._transformed_bytes}")
        write("first_pair = first_tile // across", "end_pair = (last_tile - 1) // across + 1")
        with write.block("if place != staged"):
            write("staged = place", "copied = max(min(width, reach - pad_left), 0)")
            write(f"zeros = sums + {_PRODUCTS * self._tile_bytes}")
            with write.block("for column in range(copied)"):
                write(f"vstore(zeros, column * {BLOCK}, splat_uint8(0))")
            with write.block("for later in range(channels)"):
                write("channel = channels - 1 - later", "from_plane = origin + channel * plane_bytes")
                with write.block("for pair in range(first_pair, end_pair)"):
                    self._write_pair()

    def _write_pair(self) -> None:
        """The transformed lines of a pair, in one block of channels."""
        write = self.write
        write("top = 2 * pair - pad_top")
        for i in range(_PRODUCTS):
            is_inside = f"top + {i} >= 0 and top + {i} < height"
            write(f"line_{i} = from_plane + (top + {i}) * row_bytes if {is_inside} else zeros")
        at = f"channel * {4 * HALVES * self.words}"
        write(f"target = stage + (pair - first_pair) * {_PRODUCTS} * x_line + {at}")
        self._write_zeros("pad_left")
        with write.block("for column in range(copied)"):
            for i in range(_PRODUCTS):
                write(f"d{i} = convert_uint16(vload_uint8(line_{i}, column * {BLOCK}))")
            for i, value in enumerate(("d0 - d2", "d1 + d2", "d2 - d1", "d1 - d3")):
                write(f"vstore(target, {i} * x_line + (pad_left + column) * {self.pixel}, {value})")
        self._write_zeros("pad_left + copied, reach")

    def _write_zeros(self, columns: str) -> None:
        with self.write.block(f"for column in range({columns})"):
            for i in range(_PRODUCTS):
                self.write(f"vstore(target, {i} * x_line + column * {self.pixel}, splat_uint16(0))")

    def write_weights(self, tile: Tile) -> None:
        write, vectors = self.write, self.words * VECTOR_BYTES
        write(f"w_tile = stage + {self.stage_bytes + VECTOR_BYTES}")
        with write.block("if group * blocks + block != kept"):
            write(
                "kept = group * blocks + block",
                f"source = weight + kept * channels * {_TAPS} * window_width * {vectors}",
            )
            with write.block(f"for of_channel in range({tile.blocks} * channels)"):
                write("of_block = of_channel // channels", "channel = of_channel - of_block * channels")
                write(f"count = min((last_channels + {BYTES.each - 1}) // {BYTES.each}, {self.words})")
                write(f"count = count if channel == channels - 1 else {self.words}")
                with write.block("for across_tap in range(window_width)"):
                    write(f"target = w_tile + of_block * w_block + across_tap * {self.tap_bytes}")
                    write(f"target += channel * {HALVES * vectors}")
                    with write.block("for at in range(count)"):
                        self._write_transformed()
                    write(f"source += {vectors}")
                write(f"source += {_TAPS - 1} * window_width * {vectors}")

    def _write_transformed(self) -> None:
        """The weights of four channels."""
        write = self.write
        for row in range(_TAPS):
            at = f"{row} * window_width * {self.words * VECTOR_BYTES} + at * {VECTOR_BYTES}"
            write(f"four_{row} = vload_int32(source, {at})")
        for byte in range(BYTES.each):
            write(*(f"g{row} = (four_{row} << {24 - 8 * byte}) >> 24" for row in range(_TAPS)), "ends = g0 + g2")
            for i, value in enumerate(("g0 + g0", "ends + g1", "ends - g1", "g2 + g2")):
                write(f"u_{i}_{byte} = {value}")
        for i in range(_PRODUCTS):
            for half in range(HALVES):
                pair = f"(u_{i}_{2 * half} & 65535) | (u_{i}_{2 * half + 1} << 16)"
                write(f"vstore(target, {i} * w_line + at * {HALVES * VECTOR_BYTES} + {half * VECTOR_BYTES}, {pair})")

    def write_tiles(self, tile: Tile) -> None:
        write = self.write
        self.write_first()
        with write.block("for tile in range(first_tile, last_tile)"):
            write(f"column = min(along * {tile.rows}, columns - {tile.rows})", f"skip = along * {tile.rows} - column")
            self.write_weights(tile)
            write(f"x_tile = stage + (line - first_pair) * {_PRODUCTS} * x_line + column * x_row", "down = 2 * line")
            self.write_next(tile)
            for i in range(_PRODUCTS):
                write_start(write, tile)
                write(f"w = w_tile + {i} * w_line")
                self._write_row(tile, f"x_tile + {i} * x_line")
                for at, total in self._places(tile):
                    write(f"vstore(sums, {i * self._tile_bytes + at}, {total})")
            self._write_line(tile, "m0 + m1 + m2")
            write("down += 1")
            with write.block("if down < result_lines"):
                self._write_line(tile, "m1 - m2 - m3")

    def _places(self, tile: Tile) -> list[tuple[int, str]]:
        places = [(i, j) for i in range(tile.rows) for j in range(tile.blocks)]
        return [((i * tile.blocks + j) * VECTOR_BYTES, tile.accumulator(i, j)) for i, j in places]

    def _write_line(self, tile: Tile, twice: str) -> None:
        """A line of the result, and its epilogue."""
        write = self.write
        write_start(write, tile, f"bias + (group * blocks + block) * {VECTOR_BYTES}" if self.bias else "")
        for at, total in self._places(tile):
            for i in range(_PRODUCTS):
                if f"m{i}" in twice:
                    write(f"m{i} = vload_int32(sums, {i * self._tile_bytes + at})")
            write(f"{total} = {total} + (({twice}) >> 1)")
        self.epilogue.begin()
        self.epilogue.tile(tile, skip="skip" if self.has_rest(tile) else "")
