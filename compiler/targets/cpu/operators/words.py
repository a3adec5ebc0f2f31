"""Packing of what processors multiply in words of 4 bytes: `each` neighbours along the sum lie together.

A matrix [K, N] is packed into panels of 16 columns, [N/16, K/each, 16, each]. Weights of convolutions of channel-blocked images
are packed likewise, [M/16, C/16, *window, words, 16, each]; a block has no more words than there are channels for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from ....operators.shapes import ceildiv, lift, match_dim, mismatch, require, require_rank
from ....operators.windows import axes, result_shape
from .packing import BLOCK, blocks_of, require_blocked, require_vector


def infer_matrix(matrix: TensorType, dtype: DType, each: int) -> TensorType:
    """The panels' type."""
    require_rank(matrix, 2, "a matrix")
    rows, columns = matrix.shape
    return TensorType(dtype, (blocks_of(columns), ceildiv(rows, each), BLOCK, each))


def pack_matrix(matrix: np.ndarray, each: int) -> np.ndarray:
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, -rows % each), (0, -columns % BLOCK)))
    words, blocks = padded.shape[0] // each, padded.shape[1] // BLOCK
    return padded.reshape(words, each, blocks, BLOCK).transpose(2, 0, 3, 1)


def unpack_matrix(panels: np.ndarray) -> np.ndarray:
    """The matrix of these panels, with all that is padded."""
    blocks, words, _, each = panels.shape
    return panels.transpose(1, 3, 0, 2).reshape(words * each, blocks * BLOCK)


def infer_product(inputs: Sequence[TensorType], types: tuple[DType, DType], summed: DType, columns: int) -> TensorType:
    """The type of a product of a tensor with panels, of these element types."""
    a, panels = inputs
    for type_, dtype in zip(inputs, types, strict=True):
        require(type_, frozenset({dtype}))
    blocks, each = blocks_of(columns), 4 // types[1].itemsize
    if not a.rank or panels.rank != 4 or panels.shape[2:] != (BLOCK, each) or panels.shape[0] != blocks:
        raise mismatch(f"a tensor and panels [{blocks}, K / {each}, {BLOCK}, {each}]", f"{a} and {panels}")
    match_dim(a.shape[-1], lift(lambda words: dims.multiply(words, each), panels.shape[1]))
    return TensorType(summed, (*a.shape[:-1], columns))


def infer_weights(weight: TensorType, dtype: DType, each: int) -> TensorType:
    """The packed weights' type."""
    if weight.rank < 2:
        raise mismatch("weights [M, C, *window]", weight)
    outputs, channels, *window = weight.shape
    words = words_of(channels, each) if isinstance(channels, int) else UNKNOWN
    return TensorType(dtype, (blocks_of(outputs), blocks_of(channels), *window, words, BLOCK, each))


def words_of(channels: int, each: int) -> int:
    """That a block of the weights has."""
    return min(-(-channels // each), BLOCK // each)


def pack_weights(weight: np.ndarray, each: int) -> np.ndarray:
    outputs, channels, *window = weight.shape
    words, blocks_out, blocks_in = words_of(channels, each), -(-outputs // BLOCK), -(-channels // BLOCK)
    ends = (blocks_out * BLOCK - outputs, blocks_in * words * each - channels)
    padded = np.pad(weight, [(0, end) for end in ends] + [(0, 0)] * len(window))
    apart = padded.reshape(blocks_out, BLOCK, blocks_in, words, each, *window)
    return np.moveaxis(apart, (3, 1, 4), (-3, -2, -1))


def unpack_weights(weight: np.ndarray) -> np.ndarray:
    """The weights [M, C, *window], with all that is padded."""
    plain = np.moveaxis(weight, (-2, -3, -1), (1, 3, 4))  # [blocks, 16, blocks, words, each, *window]
    return plain.reshape(plain.shape[0] * BLOCK, math.prod(plain.shape[2:5]), *plain.shape[5:])


def infer_convolution(
    inputs: Sequence[TensorType], types: tuple[DType, DType], summed: DType, groups: int, **window: tuple
) -> TensorType:
    """The type of a convolution of a channel-blocked image with packed weights, and what sums start with, if it is given."""
    x, weight = inputs[:2]
    each = 4 // types[1].itemsize
    for type_, dtype in zip(inputs, (*types, summed), strict=False):
        require(type_, frozenset({dtype}))
    require_blocked(x)
    if weight.rank != x.rank + 2 or weight.shape[-2:] != (BLOCK, each):
        raise mismatch(f"weights [blocks out, blocks in, *window, words, {BLOCK}, {each}]", weight)
    if not isinstance(weight.shape[0], int) or groups < 1 or weight.shape[0] % groups:
        raise mismatch(f"a known number of blocks, of {groups} groups", weight)
    words = weight.shape[-3]
    if isinstance(words, int) and words > BLOCK // each:
        raise mismatch(f"at most {BLOCK // each} words of a block's channels", weight)
    match_dim(x.shape[1], lift(lambda blocks: dims.multiply(blocks, groups), weight.shape[1]))
    if len(inputs) > 2:
        require_vector(inputs[2], weight.shape[0], "vector")
    windows = axes(weight.shape[2:-3], **window)
    return TensorType(summed, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:-1], windows), BLOCK))
