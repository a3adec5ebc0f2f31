"""Dequantises a packed matrix of 2 to 8-bit integers for a kernel of many rows: a chunk of some panels is made float32
in L1, and used for all rows of a band."""

from __future__ import annotations

from .....formats.dims import Dim
from ..kernels.anchor import Anchored
from ..kernels.writer import Writer
from ..operators.dequantized import PACKINGS
from .tile import BLOCK, CHUNK, VECTOR_BYTES


class Numbers:
    """Variables of the kernel text: a column has `word_count` words, and `group_count` groups of `group_words`; `scales_at` and
    `zeros_at` are the addresses of scales and zero points."""

    def __init__(self, found: Anchored) -> None:
        self.found = found
        self.packing = PACKINGS[found.attributes["bits"]]
        self.depth: Dim = found.whole[-1]
        self.group: int = found.attributes["group"]
        self.has_zeros = len(found.node.inputs) > 3

    @staticmethod
    def of(found: Anchored) -> Numbers | None:
        """None for any other operator."""
        return Numbers(found) if found.node.operator == "matmul_dequantized" else None

    @property
    def groups(self) -> int:
        assert isinstance(self.depth, int)
        return -(-self.depth // self.group)

    @property
    def words(self) -> int:
        assert isinstance(self.depth, int)
        return -(-self.depth // self.packing.each)

    def write_sizes(self, write: Writer) -> None:
        """Defines the variables."""
        write.inputs(self.found.node.inputs[2:], "scales_at", "zeros_at")
        write.sizes(word_count=self.words, group_words=self.group // self.packing.each, group_count=self.groups)

    def write_scale(self, write: Writer, number: str, scales: str, zeros: str) -> None:
        """Loads the vectors `scale` and `zero` of a group: its scales, and its zero points less the middle of the range."""
        write(f"scale{number} = vload_float32({scales})")
        if self.has_zeros:
            write(f"zero{number} = convert_float32(vload_uint8({zeros})) - {self.packing.middle}")

    def unpacked_bytes(self, blocks: int) -> int:
        """Bytes of a chunk of `blocks` panels as float32."""
        return blocks * CHUNK * VECTOR_BYTES

    def write_unpacked(self, write: Writer, blocks: str) -> None:
        """Unpacks rows `begin`, a multiple of CHUNK, to `end` of `blocks` panels from `block` on to `unpacked`, where panels are
        CHUNK rows apart. The last word is unpacked whole."""
        each = self.packing.each
        write(f"last_word = (end + {each - 1}) // {each}")
        with write.block(f"for panel in range({blocks})"):
            write(f"source = b_at + (block + panel) * word_count * {VECTOR_BYTES}")
            write(f"target = unpacked + panel * {CHUNK * VECTOR_BYTES}", f"word_at = begin // {each}")
            with write.block("while word_at < last_word"):
                write("group = word_at // group_words", "group_end = min((group + 1) * group_words, last_word)")
                write("at_group = (block + panel) * group_count + group")
                self.write_scale(write, "", f"scales_at, at_group * {VECTOR_BYTES}", f"zeros_at, at_group * {BLOCK}")
                with write.block("for step in range(word_at, group_end)"):
                    self._write_word(write)
                write("word_at = group_end")

    def _write_word(self, write: Writer) -> None:
        write(f"bits = vload_int32(source, step * {VECTOR_BYTES})")
        for row, shift in enumerate(self.packing.shifts):
            number = self._number(write, f"bits >> {shift}" if shift else "bits")
            number = f"({number} - zero)" if self.has_zeros else number
            write(f"vstore(target, {row * VECTOR_BYTES}, {number} * scale)")
        write(f"target += {self.packing.each * VECTOR_BYTES}")

    def _number(self, write: Writer, bits: str) -> str:
        """The lowest integer of each word, less the middle of the range."""
        if self.packing.bits == 4:
            return f"{write.target.nibbles}({bits})"
        return f"(convert_float32(({bits}) & {(1 << self.packing.bits) - 1}) - {self.packing.middle})"
