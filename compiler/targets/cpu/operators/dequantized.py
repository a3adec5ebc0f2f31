"""Products with matrices of 2 to 8-bit integers: an unsigned n stands for (n - zero) · scale. A `group` of neighbours in a
column shares a scale, and perhaps a zero point; by default the middle of the range.

A matrix [K, N] is packed into panels of 16 columns, whose words hold some neighbours of a column each: [N/16, K/each, 16] of
uint32. The first four are the lowest bits of a word's bytes, the next four the bits above, so that a mask gives bytes of
neighbours. Scales and zero points of K/group groups have the layout [N/16, K/group, 16].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .....formats.dtypes import DType
from .....formats.types import TensorType
from ....operators.linear import matmul
from ....operators.shapes import ceildiv, match_dim, mismatch, require
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.work import of_product
from .int8 import LARGEST
from .packing import BLOCK, pack_matrix, unpack_matrix

QUAD = 4  # bytes of a word
LARGEST_FACTOR = 3e38  # of a group's elements, whose reciprocal is a number


@dataclass(frozen=True)
class Packing:
    """Layout of narrow integers in words."""

    bits: int

    @property
    def quads(self) -> int:
        """Numbers in a byte."""
        return 8 // self.bits

    @property
    def each(self) -> int:
        """Numbers in a word."""
        return QUAD * self.quads

    @property
    def middle(self) -> int:
        """The default zero point."""
        return 1 << (self.bits - 1)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        """The bit offsets of a word's numbers."""
        return tuple(8 * (row % QUAD) + self.bits * (row // QUAD) for row in range(self.each))

    def packed(self, matrix: np.ndarray) -> np.ndarray:
        """Numbers [K, N] of uint8, all of so few bits, in panels [N/16, K/each, 16] of uint32; what is padded is 0."""
        padded, columns = np.pad(matrix, ((0, -len(matrix) % self.each), (0, 0))), matrix.shape[1]
        apart = padded.reshape(len(padded) // self.each, self.each, columns)
        words = np.zeros((len(apart), columns), np.uint32)
        for row, shift in enumerate(self.shifts):
            words |= apart[:, row].astype(np.uint32) << np.uint32(shift)
        return pack_matrix(words)

    def unpacked(self, panels: np.ndarray) -> np.ndarray:
        """The inverse, including the padding."""
        words, shifts = unpack_matrix(panels), np.array(self.shifts, np.uint32)[:, np.newaxis]
        numbers = words[:, np.newaxis] >> shifts & np.uint32((1 << self.bits) - 1)
        return numbers.reshape(len(words) * self.each, words.shape[1])


PACKINGS = {bits: Packing(bits) for bits in (2, 4, 8)}


def _infer_matmul_dequantized(
    inputs: Sequence[TensorType], columns: int, group: int, bits: int, int8_rows: bool
) -> TensorType:
    a, panels, scales, *zeros = inputs
    for type_, dtype in zip(inputs, (DType.float32, DType.uint32, DType.float32, DType.uint8), strict=False):
        require(type_, frozenset({dtype}))
    if bits not in PACKINGS:
        raise mismatch(f"numbers of {' or '.join(map(str, PACKINGS))} bits", bits)
    each = PACKINGS[bits].each
    if group < each or group % each or columns < 1:
        raise mismatch(f"columns, and groups of whole words of {each}", f"{columns} columns and groups of {group}")
    blocks = -(-columns // BLOCK)
    for type_ in (panels, scales, *zeros):
        if type_.rank != 3 or type_.shape[0] != blocks or type_.shape[2] != BLOCK:
            raise mismatch(f"panels [{blocks}, rows, {BLOCK}]", type_)
    if not a.rank:
        raise mismatch("a tensor of rank 1 at least", a)
    match_dim(ceildiv(a.shape[-1], each), panels.shape[1])
    for type_ in (scales, *zeros):
        match_dim(ceildiv(a.shape[-1], group), type_.shape[1])
    return TensorType(a.dtype, (*a.shape[:-1], columns))


def _matmul_dequantized(
    a: np.ndarray,
    panels: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    *,
    columns: int,
    group: int,
    bits: int,
    int8_rows: bool,
) -> np.ndarray:
    if int8_rows:
        return _matmul_of_int8(a, panels, scales, zeros, columns, group, PACKINGS[bits])
    depth, packing = a.shape[-1], PACKINGS[bits]
    numbers = packing.unpacked(panels)[:depth].astype(np.float32)
    points = np.float32(packing.middle) if zeros is None else _each_row(zeros, group, depth)
    matrix = (numbers - points) * _each_row(scales, group, depth)
    return matmul(a, matrix[:, :columns])


def _matmul_of_int8(
    a: np.ndarray,
    panels: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None,
    columns: int,
    group: int,
    packing: Packing,
) -> np.ndarray:
    """Rows of int8, each group of elements with a unit of its own; sums of groups are exact, and added up in their order."""
    numbers, scales = packing.unpacked(panels).astype(np.int32) - packing.middle, unpack_matrix(scales)
    largest = np.float32(LARGEST)
    total = np.zeros((*a.shape[:-1], numbers.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for place, begin in enumerate(range(0, a.shape[-1], group)):
            part = a[..., begin : begin + group]
            most = np.abs(part).max(axis=-1, keepdims=True)
            factor = np.minimum(LARGEST_FACTOR, largest / most)
            unit = np.float32(1) / factor
            scaled = np.where(np.isinf(part), np.copysign(largest, part), part * factor)
            whole = np.where(np.isnan(scaled), 0, np.rint(scaled)).astype(np.int32)
            sums = np.matmul(whole, numbers[begin : begin + part.shape[-1]]).astype(np.float32) * unit
            if zeros is not None:
                zero = unpack_matrix(zeros)[place].astype(np.float32) - packing.middle
                sums = sums - zero * (whole.sum(axis=-1, keepdims=True, dtype=np.int32).astype(np.float32) * unit)
            total = total + scales[place] * sums
    return total[..., :columns]


def _each_row(panels: np.ndarray, group: int, depth: int) -> np.ndarray:
    """The values that groups share, repeated for each of the `depth` rows."""
    groups = np.arange(depth) // group
    return unpack_matrix(panels)[groups]


# fmt: off
register("matmul_dequantized", "a panels scales zeros?", _infer_matmul_dequantized, _matmul_dequantized, Fusion.ANCHOR,
         "the product of a tensor of float32 with a packed matrix of a few bits, (n - zero) * scale; zero is half way by default",
         attributes={"columns": Attribute(Kind.INT, "of the matrix"),
                     "group": Attribute(Kind.INT, "how many neighbours of a column share a scale"),
                     "bits": Attribute(Kind.INT, "of a number: 2, 4 or 8", 4),
                     "int8_rows": Attribute(Kind.BOOL, "whether groups of elements of rows are rounded to int8", False)},
         work=of_product)
# fmt: on
