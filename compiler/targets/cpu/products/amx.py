"""Sums of products by AMX: of up to 32 rows by two blocks of columns, in four of its registers.

An instruction adds up `words` words of a sum, for up to 16 rows and a block. Rows are read in place, panels as packed by
`operators/words.py`. Sums then lie in memory, where the epilogue loads them row by row.

Sums of bfloat16 have an order of their own (Intel's manual, TDPBF16PS): of each `words`, the even terms and the odd ones apart,
from zero, by fused multiply-adds; then both together; then the total. So a product or a convolution makes all of its sums here,
or none, whatever the number of rows: a row has the same bits in any batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .....formats.types import ShapeDim
from ..kernels.writer import Writer
from ..target import Target
from ..vectors.amx import ROW_BYTES, SUMS
from .precision import Precision
from .tile import Tile, times

ROWS, BANDS, BLOCKS = 16, 2, 2  # of a register; of sums
_LEAST_WORDS = 4  # of a row of a register: an instruction takes a cycle a row, in which vectors multiply half as much
_SHAPE_BYTES, _SUM_BYTES = 64, ROWS * ROW_BYTES
SCRATCH_BYTES = _SHAPE_BYTES + len(SUMS) * _SUM_BYTES


class AmxSums:
    """Writes them. Variables of the text: `amx`, the address of SCRATCH_BYTES; `x`, that of the upper rows; `below`, how many
    bytes further the lower ones are; `w`, the address of panels; `x_row`, `x_step`, `w_block` and `w_step` as in `tile.py`."""

    def __init__(self, product: str, words: int) -> None:
        self._product, self._words = product, words

    @staticmethod
    def of(precision: Precision, run: ShapeDim, target: Target) -> AmxSums | None:
        """Of sums in runs of that many words, side by side; None where they are not by AMX."""
        product = getattr(target, precision.amx) if precision.amx else ""
        if not product or not isinstance(run, int):
            return None
        words = next((each for each in range(ROWS, _LEAST_WORDS - 1, -1) if run and run % each == 0), 0)
        return AmxSums(product, words) if words else None

    def write_begin(self, write: Callable[..., None], height: str) -> None:
        """Shapes of registers, of up to 16 rows: bytes of a row of each register, then its rows (Intel's manual, LDTILECFG)."""
        widths = _packed([ROW_BYTES] * 4, 16), _packed([4 * self._words] * 2 + [ROW_BYTES] * 2, 16)
        rows = f"{height} * {_packed([1] * 6, 8)} + {_packed([0] * 6 + [self._words] * 2, 8)}"
        for number, word in enumerate((1, 0, *widths, 0, 0, rows, 0)):  # the first 1: the only palette
            write(f"store_int64(amx, {8 * number}, {word})")
        write("amx_begin(amx)")

    def write_zeros(self, write: Writer, bands: int, blocks: int) -> None:
        write(*(f"amx_zero_{number}()" for number in _numbers(bands, blocks)))

    def write_run(self, write: Writer, bands: int, blocks: int, run: str) -> None:
        """Adds up a run of that many words."""
        with write.block(f"for step in range(0, {run}, {self._words})"):
            write(*(f"amx_load_{4 + band}(x, {times(band, 'below')}, x_row)" for band in range(bands)))
            write(*(f"amx_load_{6 + j}(w, {times(j, 'w_block')}, w_step)" for j in range(blocks)))
            write(*(f"amx_{self._product}_{number}()" for number in _numbers(bands, blocks)))
            write(f"x += {self._words} * x_step", f"w += {self._words} * w_step")

    def write_sums(self, write: Writer, bands: int, blocks: int) -> None:
        """Stores them."""
        write(*(f"amx_store_{n}(amx, {_SHAPE_BYTES + n * _SUM_BYTES})" for n in _numbers(bands, blocks)))

    @staticmethod
    def write_row(write: Writer, tile: Tile, band: str, row: str) -> Tile:
        """Loads the sums of a row of a band, as a tile of it."""
        one = replace(tile, rows=1)
        write(f"sums = amx + {_SHAPE_BYTES} + {band} * {2 * _SUM_BYTES} + ({row}) * {ROW_BYTES}")
        write(*(f"{one.accumulator(0, j)} = {one.load_sums(f'sums, {j * _SUM_BYTES}')}" for j in range(tile.blocks)))
        return one


def _packed(numbers: Sequence[int], bits: int) -> int:
    """As one word, the first number lowest."""
    return sum(number << bits * at for at, number in enumerate(numbers))


def _numbers(bands: int, blocks: int) -> list[int]:
    """The registers of these sums."""
    return [2 * band + j for band in range(bands) for j in range(blocks)]
