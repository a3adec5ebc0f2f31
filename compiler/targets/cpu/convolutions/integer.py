"""Convolutions of channel-blocked images of 8-bit integers or bfloat16: a pixel has a word for each four or two channels, and a
step of the sum takes one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import integer
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import write_copy
from ..products.amx import BANDS, BLOCKS, ROWS, SCRATCH_BYTES, AmxSums
from ..products.epilogue import Epilogue
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, rounds, write_step
from ..target import Target
from .blocked import ScaledConv
from .sizes import Problem, estimated_problem, problem_of
from .symbolic import SymbolicConv
from .widened import WidenedConv, WidenedWinograd, takes_widened


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of conv_integer_blocked, conv_int8_blocked and conv_bfloat16_blocked, with an elementwise epilogue."""
    found = Anchored.of(definition)
    problem = estimated_problem(found) if found else None
    if found is None or problem is None or not Epilogue.takes(found):
        return None
    is_known = problem_of(found) is not None
    if not is_known and problem.pile:
        return None
    problem = replace(problem, words=integer(definition.params[found.node.inputs[1]].shape[-3]))
    amx = AmxSums.of(problem.precision, problem.words * problem.window[1].size, target)
    if amx and is_known and problem.is_whole:
        return lambda: _ConvOfAmx(amx, found, problem, target).kernel()
    template = _ConvOfWords if is_known else _SymbolicConvInteger
    if is_known and takes_widened(problem, target):
        widened = WidenedWinograd if WidenedWinograd.takes(problem) else WidenedConv
        return lambda: widened(found, problem, target).kernel()
    return lambda: template(found, problem, target).kernel()


class _ConvOfWords(ScaledConv):
    @property
    def tap_bytes(self) -> int:
        return self.problem.words * VECTOR_BYTES

    def write_taps(self, tile: Tile) -> None:
        write, problem = self.write, self.problem
        # LLVM would unroll a loop of few words, load those of all steps first, and spill: 1.1 to 1.6 times the time
        if problem.is_whole:
            write("x = x_tap")
            with write.block(f"for step in {rounds('0', f'window_width * {problem.words}', tile.step)}"):
                write_step(write, tile, self.target)
            return
        with write.block("for tap_across in range(window_width)"):
            write(f"x = x_tap + tap_across * dilation_across * {problem.pixel}")
            if problem.last == BLOCK:
                with write.block(f"for step in range(hidden({problem.words}))"):
                    write_step(write, tile, self.target)
            else:
                self._write_inner_words(tile)

    def _write_inner_words(self, tile: Tile) -> None:
        """Those of channels that count, which are `inner`; of a word that holds one more channel, that alone."""
        write, each = self.write, tile.precision.each
        with write.block(f"for step in range(inner // {each})"):
            write_step(write, tile, self.target)
        if self.problem.last % each:
            with write.block(f"if inner % {each}"):
                write_step(write, tile, self.target, element=tile.precision.broadcast_first("{}"))
        write(f"w += ({self.problem.words} - (inner + {each - 1}) // {each}) * {VECTOR_BYTES}")

    def write_copy(self) -> None:
        """One line: zeros for its margin, then its pixels."""
        write, pixel = self.write, self.problem.pixel
        bits = 8 * self.problem.precision.stored[0].itemsize
        for columns in ("min(margin, reach)", "margin + copied, reach"):
            with write.block(f"for column in range({columns})"):
                write(f"vstore(target, column * {pixel}, splat_uint{bits}(0))")
        write(f"inside = target + margin * {pixel}")
        write_copy(write, 4, "inside", "source", "0", f"copied * {pixel // 4}")


class _ConvOfAmx(_ConvOfWords):
    """A tile's pixels are rows of registers of AMX, in one or two bands (`products/amx.py`). Starts of sums are added last."""

    def __init__(self, amx: AmxSums, found: Anchored, problem: Problem, target: Target) -> None:
        self.amx = amx
        super().__init__(found, problem, target)

    def choose_tile(self) -> Tile:
        """An instruction takes about as long as it has rows."""
        columns = self.problem.columns

        def cost(shape: tuple[int, int]) -> int:
            return math.ceil(columns / math.prod(shape)) * (BLOCKS * math.prod(shape) + ROWS)

        shapes = [(bands, rows) for bands in range(1, BANDS + 1) for rows in range(1, ROWS + 1)]
        self.bands, self.height = min((each for each in shapes if math.prod(each) <= columns), key=cost)
        return Tile(self.bands * self.height, min(BLOCKS, self.problem.blocks))

    asks_ahead = False

    @property
    def sum_bytes(self) -> int:
        return SCRATCH_BYTES

    def write_units(self) -> None:
        write = self.write
        write(f"amx = scratch + {self.epilogue.buffer_bytes}", f"below = {self.height} * x_row")
        self.amx.write_begin(write, str(self.height))
        super().write_units()
        write("amx_end()")

    def write_sums(self, tile: Tile, is_masked: bool = False) -> None:
        self.amx.write_zeros(self.write, self.bands, tile.blocks)
        with self.write.block("for channel in range(channels)"):
            self.write_channel(tile)
        self.amx.write_sums(self.write, self.bands, tile.blocks)

    def write_taps(self, tile: Tile) -> None:
        self.write("x = x_tap")
        self.amx.write_run(self.write, self.bands, tile.blocks, f"window_width * {self.problem.words}")

    def write_next(self, tile: Tile) -> None:
        """Not before the epilogue has its place."""

    def write_end(self, tile: Tile) -> None:
        """Pixel by pixel."""
        write = self.write
        write("column += skip")
        with write.block(f"for pixel in range(skip, {tile.rows})"):
            write(f"is_below = pixel >= {self.height}")
            self.epilogue.begin()
            one = self.amx.write_row(write, tile, "is_below", f"pixel - ({self.height} if is_below else 0)")
            for j in range(tile.blocks if self.bias else 0):
                total = one.accumulator(0, j)
                write(f"{total} = {total} + {one.load_sums(f'{self.bias}, {j * VECTOR_BYTES}')}")
            self.epilogue.tile(self.write_result(one))
            write("column += 1")
        super().write_next(tile)


class _SymbolicConvInteger(_ConvOfWords, SymbolicConv):
    """Of an image or a signal whose lengths are known only at run time."""
