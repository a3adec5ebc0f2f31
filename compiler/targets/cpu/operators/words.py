"""Packing of what processors multiply in words of 4 bytes: `each` neighbours along the sum lie together.

A matrix [K, N] is packed into panels of 16 columns, [N/16, K/each, 16, each]. Weights of convolutions of channel-blocked images
are packed likewise, [M/16, C/16, *window, words, 16, each]; a block has no more words than there are channels for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from ....operators.shapes import ceildiv, lift, match_dim, mismatch, require, require_rank
from ....operators.windows import axes, result_shape
from .packing import BLOCK, blocks_of, require_blocked, require_vector


@dataclass(frozen=True)
class Words:
    """Operators on packed operands: of tensors of `types[0]` with matrices and weights of `types[1]`, summed in another type."""

    types: tuple[DType, DType]
    summed: DType
    packed: frozenset[DType]  # what may be packed

    @property
    def each(self) -> int:
        """Elements of a word."""
        return 4 // self.types[1].itemsize

    def infer_pack_matrix(self, inputs: Sequence[TensorType]) -> TensorType:
        (matrix,) = inputs
        require(matrix, self.packed)
        require_rank(matrix, 2, "a matrix")
        rows, columns = matrix.shape
        return TensorType(self.types[1], (blocks_of(columns), ceildiv(rows, self.each), BLOCK, self.each))

    def pack_matrix(self, matrix: np.ndarray) -> np.ndarray:
        rows, columns = matrix.shape
        padded = np.pad(matrix, ((0, -rows % self.each), (0, -columns % BLOCK)))
        words, blocks = padded.shape[0] // self.each, padded.shape[1] // BLOCK
        return self._rounded(padded.reshape(words, self.each, blocks, BLOCK).transpose(2, 0, 3, 1))

    def _rounded(self, array: np.ndarray) -> np.ndarray:
        return array.astype(self.types[1].numpy, copy=False)

    def infer_product(self, inputs: Sequence[TensorType], columns: int) -> TensorType:
        """The type of a product of a tensor with panels."""
        a, panels = inputs
        for type_, dtype in zip(inputs, self.types, strict=True):
            require(type_, frozenset({dtype}))
        blocks, each = blocks_of(columns), self.each
        if not a.rank or panels.rank != 4 or panels.shape[2:] != (BLOCK, each) or panels.shape[0] != blocks:
            raise mismatch(f"a tensor and panels [{blocks}, K / {each}, {BLOCK}, {each}]", f"{a} and {panels}")
        match_dim(a.shape[-1], lift(lambda words: dims.multiply(words, each), panels.shape[1]))
        return TensorType(self.summed, (*a.shape[:-1], columns))

    def infer_pack_weights(self, inputs: Sequence[TensorType]) -> TensorType:
        (weight,) = inputs
        require(weight, self.packed)
        if weight.rank < 2:
            raise mismatch("weights [M, C, *window]", weight)
        outputs, channels, *window = weight.shape
        words = self.words_of(channels) if isinstance(channels, int) else UNKNOWN
        return TensorType(self.types[1], (blocks_of(outputs), blocks_of(channels), *window, words, BLOCK, self.each))

    def words_of(self, channels: int) -> int:
        """That a block of the weights has."""
        return min(-(-channels // self.each), BLOCK // self.each)

    def pack_weights(self, weight: np.ndarray) -> np.ndarray:
        outputs, channels, *window = weight.shape
        words, blocks_out, blocks_in = self.words_of(channels), -(-outputs // BLOCK), -(-channels // BLOCK)
        ends = (blocks_out * BLOCK - outputs, blocks_in * words * self.each - channels)
        padded = np.pad(weight, [(0, end) for end in ends] + [(0, 0)] * len(window))
        apart = padded.reshape(blocks_out, BLOCK, blocks_in, words, self.each, *window)
        return self._rounded(np.moveaxis(apart, (3, 1, 4), (-3, -2, -1)))

    def infer_convolution(self, inputs: Sequence[TensorType], groups: int, **window: tuple) -> TensorType:
        """The type of a convolution of a channel-blocked image with packed weights, and what sums start with, if it is given."""
        x, weight = inputs[:2]
        for type_, dtype in zip(inputs, (*self.types, self.summed), strict=False):
            require(type_, frozenset({dtype}))
        require_blocked(x)
        if weight.rank != x.rank + 2 or weight.shape[-2:] != (BLOCK, self.each):
            raise mismatch(f"weights [blocks out, blocks in, *window, words, {BLOCK}, {self.each}]", weight)
        if not isinstance(weight.shape[0], int) or groups < 1 or weight.shape[0] % groups:
            raise mismatch(f"a known number of blocks, of {groups} groups", weight)
        words = weight.shape[-3]
        if isinstance(words, int) and words > BLOCK // self.each:
            raise mismatch(f"at most {BLOCK // self.each} words of a block's channels", weight)
        match_dim(x.shape[1], lift(lambda blocks: dims.multiply(blocks, groups), weight.shape[1]))
        if len(inputs) > 2:
            require_vector(inputs[2], weight.shape[0], "vector")
        windows = axes(weight.shape[2:-3], **window)
        return TensorType(self.summed, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:-1], windows), BLOCK))


def unpack_matrix(panels: np.ndarray) -> np.ndarray:
    """The matrix of these panels, with all that is padded."""
    blocks, words, _, each = panels.shape
    return panels.transpose(1, 3, 0, 2).reshape(words * each, blocks * BLOCK)


def unpack_weights(weight: np.ndarray) -> np.ndarray:
    """The weights [M, C, *window], with all that is padded."""
    plain = np.moveaxis(weight, (-2, -3, -1), (1, 3, 4))  # [blocks, 16, blocks, words, each, *window]
    return plain.reshape(plain.shape[0] * BLOCK, math.prod(plain.shape[2:5]), *plain.shape[5:])
