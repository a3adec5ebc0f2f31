"""Products and convolutions of 8-bit integers on packed operands.

Words of four neighbours along the sum lie together, and one operand is signed and the other is not, as processors multiply them.
A matrix [K, N] is packed into panels of 16 columns, [N/16, K/4, 16, 4]; weights of convolutions of channel-blocked images are
packed likewise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import UNKNOWN, TensorType
from ....operators.linear import conv
from ....operators.quantized import as_int32, matmul_integer
from ....operators.shapes import ceildiv, lift, match_dim, mismatch, require, require_rank
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, WINDOW, axes, result_shape
from ....operators.work import of_integer_convolution, of_product
from .packing import BLOCK, blocks_of, pack_channels, require_blocked, require_vector, unpack_channels

WORD = 4  # bytes that are multiplied and added up at once


def _infer_pack_matrix(inputs: Sequence[TensorType]) -> TensorType:
    (matrix,) = inputs
    require_rank(matrix, 2, "a matrix")
    require(matrix, frozenset({DType.int8}))
    rows, columns = matrix.shape
    return TensorType(DType.int8, (blocks_of(columns), ceildiv(rows, WORD), BLOCK, WORD))


def _pack_matrix(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, -rows % WORD), (0, -columns % BLOCK)))
    words, blocks = padded.shape[0] // WORD, padded.shape[1] // BLOCK
    return padded.reshape(words, WORD, blocks, BLOCK).transpose(2, 0, 3, 1)


def _infer_matmul_packed(inputs: Sequence[TensorType], columns: int) -> TensorType:
    a, panels = inputs
    require(a, frozenset({DType.uint8}))
    require(panels, frozenset({DType.int8}))
    blocks = blocks_of(columns)
    if not a.rank or panels.rank != 4 or panels.shape[2:] != (BLOCK, WORD) or panels.shape[0] != blocks:
        raise mismatch(f"a tensor and panels [{blocks}, K / {WORD}, {BLOCK}, {WORD}]", f"{a} and {panels}")
    match_dim(a.shape[-1], lift(lambda words: dims.multiply(words, WORD), panels.shape[1]))
    return TensorType(DType.int32, (*a.shape[:-1], columns))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    matrix = panels.transpose(1, 3, 0, 2).reshape(panels.shape[1] * WORD, panels.shape[0] * BLOCK)
    return matmul_integer(a, matrix[:, :columns])


def _infer_pack_weights(inputs: Sequence[TensorType]) -> TensorType:
    (weight,) = inputs
    require(weight, frozenset({DType.int8}))
    if weight.rank < 2:
        raise mismatch("weights [M, C, *window]", weight)
    outputs, channels, *window = weight.shape
    words = _words(channels) if isinstance(channels, int) else UNKNOWN
    return TensorType(DType.int8, (blocks_of(outputs), blocks_of(channels), *window, words, BLOCK, WORD))


def _words(channels: int) -> int:
    """That a block of the weights has: no more than there are channels for."""
    return min(-(-channels // WORD), BLOCK // WORD)


def _pack_weights(weight: np.ndarray) -> np.ndarray:
    outputs, channels, *window = weight.shape
    words, blocks_out, blocks_in = _words(channels), -(-outputs // BLOCK), -(-channels // BLOCK)
    ends = (blocks_out * BLOCK - outputs, blocks_in * words * WORD - channels)
    padded = np.pad(weight, [(0, end) for end in ends] + [(0, 0)] * len(window))
    apart = padded.reshape(blocks_out, BLOCK, blocks_in, words, WORD, *window)
    return np.moveaxis(apart, (3, 1, 4), (-3, -2, -1))


def _infer_conv_blocked(
    inputs: Sequence[TensorType], strides: tuple, pads: tuple, dilations: tuple, groups: int
) -> TensorType:
    x, weight = inputs[:2]
    require(x, frozenset({DType.uint8}))
    require(weight, frozenset({DType.int8}))
    require_blocked(x)
    if weight.rank != x.rank + 2 or weight.shape[-2:] != (BLOCK, WORD):
        raise mismatch(f"weights [blocks out, blocks in, *window, words, {BLOCK}, {WORD}]", weight)
    if not isinstance(weight.shape[0], int) or groups < 1 or weight.shape[0] % groups:
        raise mismatch(f"a known number of blocks, of {groups} groups", weight)
    match_dim(x.shape[1], lift(lambda blocks: dims.multiply(blocks, groups), weight.shape[1]))
    if len(inputs) > 2:
        require(inputs[2], frozenset({DType.int32}))
        require_vector(inputs[2], weight.shape[0], "vector")
    windows = axes(weight.shape[2:-3], strides, pads, dilations)
    return TensorType(DType.int32, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_blocked(
    x: np.ndarray, weight: np.ndarray, start: np.ndarray | None = None, *, groups: int, **attributes: Any
) -> np.ndarray:
    plain = np.moveaxis(weight, (-2, -3, -1), (1, 3, 4))  # [blocks, 16, blocks, words, 4, *window]
    plain = plain.reshape(plain.shape[0] * BLOCK, math.prod(plain.shape[2:5]), *plain.shape[5:])
    image = unpack_channels(x, plain.shape[1] * groups).astype(np.float64)
    sums = pack_channels(as_int32(conv(image, plain.astype(np.float64), groups=groups, **attributes)))
    return sums if start is None else sums + start


# fmt: off
register("pack_integer_weights", "weight", _infer_pack_weights, _pack_weights, Fusion.OPAQUE,
         "weights [M, C, *window] of int8 for conv_integer_blocked: [M/16, C/16, *window, words, 16, 4]")
register("conv_integer_blocked", "x weight start?", _infer_conv_blocked, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked image of uint8, in int32, plus `start`, a number a channel; groups begin with a block",
         attributes=WINDOW | GROUPS, work=of_integer_convolution)
register("pack_integer_matrix", "matrix", _infer_pack_matrix, _pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] of int8 in panels of 16 columns, four rows together, zeros behind the last: [N/16, K/4, 16, 4]")
register("matmul_integer_packed", "a panels", _infer_matmul_packed, _matmul_packed, Fusion.ANCHOR,
         "the product of a tensor of uint8 with a packed matrix, in int32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
# fmt: on
