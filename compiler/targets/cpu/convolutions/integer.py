"""Convolutions of channel-blocked images of 8-bit integers or bfloat16: a pixel has a word for each four or two channels, and a
step of the sum takes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import integer
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import write_copy
from ..products.epilogue import Epilogue
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, write_step
from ..target import Target
from .blocked import ScaledConv
from .sizes import estimated_problem, problem_of
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
        is_whole = problem.last == BLOCK and 4 * problem.words == problem.pixel
        if is_whole and problem.window[1].dilation == 1:  # words side by side, of one position after the other
            write("x = x_tap")
            with write.block(f"for step in range(window_width * {problem.words})"):
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


class _SymbolicConvInteger(_ConvOfWords, SymbolicConv):
    """Of an image or a signal whose lengths are known only at run time."""
