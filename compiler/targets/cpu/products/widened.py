"""Panels of bytes, widened to words of 16 bits for a kernel of many rows, where the CPU has no instruction for sums of bytes."""

from __future__ import annotations

from .....formats.dims import Dim
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.writer import Writer, shape_of
from ..target import Target
from .precision import BYTES, QUANTISED, Precision
from .tile import BLOCK, CHUNK, VECTOR_BYTES

HALVES = 2  # words of two 16-bit numbers that a word of four bytes becomes
_LEAST_ROWS = 16  # for which widening panels and rows takes less time than it saves


def write_halves(write: Writer, source: str, target: str, at: str) -> None:
    """Vector number `at` of words, widened: two of them."""
    write(f"four = vload_int32({source}, {at} * {VECTOR_BYTES})")
    write("low = (((four << 24) >> 24) & 65535) | (((four << 16) >> 24) << 16)")
    write("high = (((four << 8) >> 24) & 65535) | ((four >> 24) << 16)")
    write(f"vstore({target}, {at} * {HALVES * VECTOR_BYTES}, low)")
    write(f"vstore({target}, {at} * {HALVES * VECTOR_BYTES} + {VECTOR_BYTES}, high)")


class WidenedPanels:
    """In the place of `Numbers`: a step of the sum takes a word of two."""

    def __init__(self, words: int, facts: int) -> None:
        self.depth, self.facts = HALVES * words, facts

    @staticmethod
    def of(found: Anchored, rows: Dim, target: Target) -> WidenedPanels | None:
        words, precision = shape_of(found.definition.values[found.node.inputs[1]])[1], Precision.of(found)
        if (
            precision not in (BYTES, QUANTISED)
            or not target.dot_words
            or not isinstance(rows, int)
            or rows < _LEAST_ROWS
        ):
            return None
        words = words - precision.facts if isinstance(words, int) else 0
        return WidenedPanels(words, precision.facts) if words > 0 and words * BYTES.each % BLOCK == 0 else None

    @property
    def panel(self) -> int:
        """Bytes of a panel as it is in memory."""
        return (self.depth // HALVES + self.facts) * VECTOR_BYTES

    @property
    def column_facts(self) -> str:
        """The place of those of the columns of panel number `block`."""
        return f"b_at, block * {self.panel} + {self.depth // HALVES * VECTOR_BYTES}"

    def write_sizes(self, write: Writer) -> None:
        """There are none but the depth."""

    def unpacked_bytes(self, blocks: int) -> int:
        """Bytes of a chunk of `blocks` panels."""
        return blocks * CHUNK * VECTOR_BYTES

    def write_unpacked(self, write: Writer, blocks: str) -> None:
        """Widens the steps `begin` to `end`, both even, of `blocks` panels from `block` on to `unpacked`, where panels are CHUNK
        steps apart."""
        with write.block(f"for panel in range({blocks})"):
            write(f"source = b_at + (block + panel) * {self.panel} + begin * {VECTOR_BYTES // HALVES}")
            write(f"target = unpacked + panel * {CHUNK * VECTOR_BYTES}")
            with write.block(f"for at in range((end - begin) // {HALVES})"):
                write(f"prefetch(source, at * {VECTOR_BYTES} + {costs.PREFETCH_BYTES})")
                write_halves(write, "source", "target", "at")

    def write_row(self, write: Writer) -> None:
        """Widens a row of the first operand, from `source` to `target`; its facts are behind it."""
        with write.block(f"for at in range(0, depth, {BLOCK // HALVES})"):
            write("vstore(target, at * 4, convert_uint16(vload_uint8(source, at * 2)))")
        if self.facts:
            write(f"vstore(target, depth * 4, vload_int32(source, depth * 2, {self.facts}), {self.facts})")
