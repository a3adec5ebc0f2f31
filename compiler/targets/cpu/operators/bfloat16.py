"""Products of bfloat16 on packed operands: two neighbours along the sum lie together, as processors multiply them.

A matrix [K, N] is packed into panels of 16 columns, [N/16, K/2, 16, 2].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import TensorType
from ....operators.linear import matmul
from ....operators.shapes import ceildiv, lift, match_dim, mismatch, require, require_rank
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.work import of_product
from .packing import BLOCK, blocks_of

PAIR = 2  # elements that are multiplied and added up at once

_BFLOAT16 = frozenset({DType.bfloat16})


def _infer_pack_matrix(inputs: Sequence[TensorType]) -> TensorType:
    (matrix,) = inputs
    require_rank(matrix, 2, "a matrix")
    require(matrix, _BFLOAT16 | {DType.float32})
    rows, columns = matrix.shape
    return TensorType(DType.bfloat16, (blocks_of(columns), ceildiv(rows, PAIR), BLOCK, PAIR))


def _pack_matrix(matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, -rows % PAIR), (0, -columns % BLOCK)))
    pairs, blocks = padded.shape[0] // PAIR, padded.shape[1] // BLOCK
    panels = padded.reshape(pairs, PAIR, blocks, BLOCK).transpose(2, 0, 3, 1)
    return panels.astype(DType.bfloat16.numpy)


def _infer_matmul_packed(inputs: Sequence[TensorType], columns: int) -> TensorType:
    a, panels = inputs
    for type_ in inputs:
        require(type_, _BFLOAT16)
    blocks = blocks_of(columns)
    if not a.rank or panels.rank != 4 or panels.shape[2:] != (BLOCK, PAIR) or panels.shape[0] != blocks:
        raise mismatch(f"a tensor and panels [{blocks}, K / {PAIR}, {BLOCK}, {PAIR}]", f"{a} and {panels}")
    match_dim(a.shape[-1], lift(lambda pairs: dims.multiply(pairs, PAIR), panels.shape[1]))
    return TensorType(DType.float32, (*a.shape[:-1], columns))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    matrix = panels.transpose(1, 3, 0, 2).reshape(panels.shape[1] * PAIR, panels.shape[0] * BLOCK)
    return matmul(a, matrix[:, :columns])


# fmt: off
register("pack_bfloat16_matrix", "matrix", _infer_pack_matrix, _pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] as bfloat16 in panels of 16 columns, two rows together, zeros behind the last: [N/16, K/2, 16, 2]")
register("matmul_bfloat16_packed", "a panels", _infer_matmul_packed, _matmul_packed, Fusion.ANCHOR,
         "the product of a tensor of bfloat16 with a packed matrix, summed in float32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
# fmt: on
