"""What products and convolutions compute with: a row for each pair of element types that the operands may have in memory.

A step of a sum takes a *lane* of each operand: an element, or a word of neighbours along the sum, of which one instruction adds
up the products. The first operand's lane is broadcast, the second one's are a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....formats.dtypes import DType
from ....operators.quantized import FACTS
from ..kernels.anchor import Anchored
from ..target import Target

_WORD = DType.int32


@dataclass(frozen=True)
class Precision:
    """`dot`: the attribute of `Target` that names the function which adds products of words; "" for a multiply-add.

    `square`: likewise of the one that adds those of two words of two rows and two columns; "" where there is none. With `dot`.

    `amx`: likewise of the instruction that multiplies registers of AMX (`amx.py`).

    `parts`: functions that make float lanes of words, which are multiplied and added one after the other.

    `facts`: words behind a row, and behind a column, by which sums become float32 (`operators/int8.py`).
    """

    stored: tuple[DType, DType]  # the operands in memory
    multiplied: DType
    summed: DType
    dot: str = ""
    square: str = ""
    amx: str = ""
    parts: tuple[str, ...] = ()
    facts: int = 0

    @staticmethod
    def of(found: Anchored) -> Precision | None:
        """That of the anchor's operands; None if no row has their types."""
        if found.node.operator == "matmul_int8_packed":
            return QUANTISED
        first, *second = (found.definition.values[number].dtype for number in found.node.inputs[:2])
        return _ROWS.get((first, second[0])) if second else None

    @staticmethod
    def plain(dtype: DType) -> Precision:
        """Of operands of one type, in the type that it is computed in."""
        return Precision((dtype, dtype), dtype.computed, dtype.computed)

    def on(self, target: Target, is_even: bool = False) -> Precision:
        """The same where the CPU has no instruction for words: they are widened, and give the same sums. Without squares, unless
        sums are of an even number of words, side by side."""
        if self.dot and not getattr(target, self.dot):
            return replace(self, multiplied=self.summed, dot="", square="", parts=("upper_halves", "lower_halves"))
        return self if self.square and is_even and getattr(target, self.square) else replace(self, square="")

    @property
    def unpacked(self) -> Precision:
        """Once the second operand's vectors have been made what they are multiplied as."""
        return replace(self, stored=(self.stored[0], self.multiplied))

    @property
    def is_exact(self) -> bool:
        return self.summed.is_integer

    @property
    def takes_words(self) -> bool:
        return bool(self.dot or self.parts)

    @property
    def each(self) -> int:
        """Neighbours along the sum that a lane holds."""
        return _WORD.itemsize // self.stored[0].itemsize if self.takes_words else 1

    @property
    def lane_bytes(self) -> int:
        """Of a lane of the second operand in memory."""
        return _WORD.itemsize if self.takes_words else self.stored[1].itemsize

    @property
    def lane(self) -> DType:
        """The type of lanes as they are loaded."""
        return _WORD if self.takes_words else self.multiplied

    def broadcast(self, place: str, part: str = "") -> str:
        """The lane of the first operand there, or part of it, in all lanes."""
        text = f"splat_{self.lane.name}(load_{self.lane.name}({place}))"
        return f"{part}({text})" if part else text

    def broadcast_first(self, place: str) -> str:
        """Likewise of a word of two of which only the first counts: the other may be anything."""
        return f"splat_{self.lane.name}(load_uint{8 * self.stored[0].itemsize}({place}))"

    def vector(self, place: str, part: str = "", operand: int = 1) -> str:
        """The vector of an operand there, or part of its lanes."""
        stored = self.stored[operand]
        if self.takes_words or stored is self.multiplied:
            text = f"vload_{self.lane.name}({place})"
            return f"{part}({text})" if part else text
        if (stored, self.multiplied) == (DType.bfloat16, DType.float32):
            return f"from_upper_halves(vload_uint16({place}))"
        return f"convert_{self.multiplied.name}(vload_{stored.name}({place}))"


FLOAT32 = Precision.plain(DType.float32)
BYTES = Precision((DType.uint8, DType.int8), DType.int8, DType.int32, "dot", "square", "amx")
QUANTISED = replace(BYTES, facts=FACTS)
WORDS = Precision((DType.int16, DType.int16), DType.int16, DType.int32, "dot_words")  # bytes, widened by a kernel
BFLOAT16 = Precision(
    (DType.bfloat16, DType.bfloat16), DType.bfloat16, DType.float32, "dot_bfloat16", "square_bfloat16", "amx_bfloat16"
)
# Narrow integers by bytes: float32 becomes 8-bit digits (`digits.py`)
DIGITS = Precision((DType.float32, DType.uint32), DType.int8, DType.int32, "dot")

# fmt: off
_ROWS = {
    row.stored: row
    for row in (
        #         first           second          multiplied     summed
        FLOAT32,
        Precision((DType.float32, DType.float16), DType.float32, DType.float32),
        Precision((DType.float32, DType.bfloat16), DType.float32, DType.float32),
        Precision((DType.float32, DType.uint32), DType.float32, DType.float32),  # words of 4 or 8 bits, `dequantized.py`
        Precision((DType.bfloat16, DType.float32), DType.float32, DType.float32),
        Precision((DType.uint8, DType.float32), DType.float32, DType.float32),
        Precision((DType.int8, DType.float32), DType.float32, DType.float32),
        BYTES,
        BFLOAT16,
    )
}
# fmt: on
