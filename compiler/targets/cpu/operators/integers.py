"""Products and convolutions of 8-bit integers on packed operands, in words of four (`words.py`). One operand is signed and the
other is not, as processors multiply them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....formats.dtypes import DType
from ....operators.linear import conv
from ....operators.quantized import as_int32, matmul_integer
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, WINDOW
from ....operators.work import of_integer_convolution, of_product
from .packing import pack_channels, unpack_channels
from .words import Words, unpack_matrix, unpack_weights

WORD = 4  # bytes of a word
_WORDS = Words((DType.uint8, DType.int8), DType.int32, frozenset({DType.int8}))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    return matmul_integer(a, unpack_matrix(panels)[:, :columns])


def _conv_blocked(
    x: np.ndarray, weight: np.ndarray, start: np.ndarray | None = None, *, groups: int, **attributes: Any
) -> np.ndarray:
    plain = unpack_weights(weight).astype(np.float64)
    image = unpack_channels(x, plain.shape[1] * groups).astype(np.float64)
    sums = pack_channels(as_int32(conv(image, plain, groups=groups, **attributes)))
    return sums if start is None else sums + start


# fmt: off
register("pack_integer_weights", "weight", _WORDS.infer_pack_weights, _WORDS.pack_weights, Fusion.OPAQUE,
         "weights [M, C, *window] of int8 for conv_integer_blocked: [M/16, C/16, *window, words, 16, 4]")
register("conv_integer_blocked", "x weight start?", _WORDS.infer_convolution, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked image of uint8, in int32, plus `start`, a number a channel; groups begin with a block",
         attributes=WINDOW | GROUPS, work=of_integer_convolution)
register("pack_integer_matrix", "matrix", _WORDS.infer_pack_matrix, _WORDS.pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] of int8 in panels of 16 columns, four rows together, zeros after the last: [N/16, K/4, 16, 4]")
register("matmul_integer_packed", "a panels", _WORDS.infer_product, _matmul_packed, Fusion.ANCHOR,
         "the product of a tensor of uint8 with a packed matrix, in int32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
# fmt: on
