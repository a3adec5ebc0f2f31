"""Products of float32 by 8 bits: rows are quantised as they come, each by itself, and matrices ahead, each column by itself.

A row of codes, x ≈ scale · (code - zero), ends with 8 bytes of facts: its scale in float32 and its zero point in int32. Its range
is that of its elements and 0, in 255 steps. A column of a packed matrix, w ≈ scale · byte with bytes from -127 to 127, ends
likewise with its scale and the sum of its bytes:

    Σ x·w  ≈  scale · scale' · (Σ code·byte - zero · Σ byte)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import ShapeDim, TensorType
from ....operators.quantized import matmul_integer
from ....operators.shapes import FLOAT32, ceildiv, lift, mismatch, require
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.work import of_product
from .integers import WORD
from .packing import BLOCK
from .words import Words, unpack_matrix

FACTS = 2  # words behind a row, and behind a column
STEPS = 255  # of the range of a row
LARGEST = 127  # byte of a column
LEAST = float(np.finfo(np.float32).tiny)  # scale, whose reciprocal is finite
_WORDS = Words((DType.uint8, DType.int8), DType.float32, FLOAT32)


def _infer_quantize_rows(inputs: Sequence[TensorType]) -> TensorType:
    (x,) = inputs
    require(x, FLOAT32)
    if not x.rank:
        raise mismatch("a tensor of rank 1 at least", x)
    return TensorType(DType.uint8, (*x.shape[:-1], _with_facts(ceildiv(x.shape[-1], WORD), WORD)))


def _with_facts(words: ShapeDim, size: int = 1) -> ShapeDim:
    return lift(lambda count: dims.multiply(dims.add(count, FACTS), size), words)


def _quantize_rows(x: np.ndarray) -> np.ndarray:
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % WORD)])
    with np.errstate(all="ignore"):
        low = np.fmin.reduce(x, axis=-1, initial=0, keepdims=True)
        high = np.fmax.reduce(x, axis=-1, initial=0, keepdims=True)
        steps, one = np.float32(STEPS), np.float32(1)
        scale = np.maximum(high / steps - low / steps, np.float32(LEAST))
        scale = np.where(np.isfinite(x).all(axis=-1, keepdims=True), scale, np.float32(np.nan))
        factor = one / scale
        zero = np.rint(np.float32(0) - low * factor)
        codes = np.rint(x * factor) + zero
        codes = np.where(codes > 0, np.minimum(codes, steps), 0).astype(np.uint8)
    facts = [scale, np.where(np.isnan(zero), 0, zero).astype(np.int32)]
    return np.concatenate([codes, *(np.ascontiguousarray(each).view(np.uint8) for each in facts)], axis=-1)


def _infer_pack_matrix(inputs: Sequence[TensorType]) -> TensorType:
    packed = _WORDS.infer_pack_matrix(inputs)
    blocks, words, *rest = packed.shape
    return TensorType(packed.dtype, (blocks, _with_facts(words), *rest))


def quantized_columns(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of float32 as int8, and the scale of each column."""
    with np.errstate(all="ignore"):
        most = np.abs(matrix).max(axis=0, initial=0)
        scale = np.maximum(most / np.float32(LARGEST), np.float32(LEAST))
        codes = np.where(np.isfinite(most), np.rint(matrix / scale), 0)
    return codes.astype(np.int8), scale


def _pack_matrix(matrix: np.ndarray) -> np.ndarray:
    codes, scale = quantized_columns(matrix)
    panels, facts = _WORDS.pack_matrix(codes), []
    for each in (scale, codes.sum(axis=0, dtype=np.int32)):
        padded = np.pad(each, (0, -len(each) % BLOCK))
        facts.append(padded.view(np.int8).reshape(-1, 1, BLOCK, WORD))
    return np.concatenate([panels, *facts], axis=1)


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    codes, facts = a[..., : -FACTS * WORD], np.ascontiguousarray(a[..., -FACTS * WORD :]).view(np.int32)
    scale, sums = (np.ascontiguousarray(panels[:, at]).view(np.int32).reshape(-1)[:columns] for at in (-2, -1))
    products = matmul_integer(codes, unpack_matrix(panels[:, :-FACTS])[:, :columns])
    exact = products - facts[..., 1:] * sums
    with np.errstate(all="ignore"):
        return exact.astype(np.float32) * (facts[..., :1].view(np.float32) * scale.view(np.float32))


# fmt: off
register("quantize_rows", "x", _infer_quantize_rows, _quantize_rows, Fusion.OPAQUE,
         "rows of float32 as bytes with a scale and a zero point each, behind them; NaN as a scale where not all is finite")
register("pack_int8_matrix", "matrix", _infer_pack_matrix, _pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] as int8 with a scale a column, in panels of 16 columns for matmul_int8_packed: [N/16, K/4 + 2, 16, 4]")
register("matmul_int8_packed", "a panels", _WORDS.infer_product, _matmul_packed, Fusion.ANCHOR,
         "the product in float32 of quantised rows with a packed matrix, summed exactly in int32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
# fmt: on
