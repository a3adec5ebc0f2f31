"""Convolutions of 8-bit integers on CPUs with an instruction for sums of 16-bit products, and none for those of bytes.

The image is widened to 16 bits as it is copied, and a tile's weights once for all of its unit. In the copies, all channels of a
pixel lie side by side, so that the sum over a row of the window is one long loop.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..kernels.anchor import Anchored
from ..products.precision import BYTES, WORDS
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, write_start, write_step
from ..target import Target
from .blocked import Conv
from .sizes import Problem

_LEAST_PIXELS = 16  # of an image for which its weights are widened: less would take as long as the sums
_HALVES = 2  # words of two channels that a word of four becomes


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
        self.steps = _HALVES * ((problem.channels - 1) * self.words + last)  # for one window position
        super().__init__(found, problem, target)
        self.tile = replace(self.tile, precision=WORDS)

    @property
    def is_staged(self) -> bool:
        return True

    @property
    def pixel(self) -> int:
        return 4 * self.steps

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
                write(f"target = stage + (line - first_line) * x_line + channel * {4 * _HALVES * self.words}")
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
                    f"target += channel * {_HALVES * words * VECTOR_BYTES}",
                )
                write(f"count = min((last_channels + {BYTES.each - 1}) // {BYTES.each}, {words})")
                write(f"count = count if channel == channels - 1 else {words}")
                with write.block("for at in range(count)"):
                    write(f"four = vload_int32(source, at * {VECTOR_BYTES})")
                    write("low = (((four << 24) >> 24) & 65535) | (((four << 16) >> 24) << 16)")
                    write("high = (((four << 8) >> 24) & 65535) | ((four >> 24) << 16)")
                    write(f"vstore(target, at * {_HALVES * VECTOR_BYTES}, low)")
                    write(f"vstore(target, at * {_HALVES * VECTOR_BYTES} + {VECTOR_BYTES}, high)")
                write(f"source += {words * VECTOR_BYTES}")

    def _write_sums(self, tile: Tile, is_masked: bool = False) -> None:
        write = self.write
        write_start(write, tile, self.bias)
        with write.block("for tap in range(first_tap, end_tap)"):
            write("w = w_tile + tap * w_line", "x_tap = x_tile + tap * dilation_down * x_line")
            if self.problem.window[1].dilation == 1:  # neighbouring pixels
                write("x = x_tap")
                self._write_steps(tile, f"window_width * {self.steps}")
            else:
                with write.block("for tap_across in range(window_width)"):
                    write(f"x = x_tap + tap_across * dilation_across * {self.pixel}")
                    self._write_steps(tile, f"hidden({self.steps})")

    def _write_steps(self, tile: Tile, count: str) -> None:
        with self.write.block(f"for step in range({count})"):
            write_step(self.write, tile, self.target, lines=0)
