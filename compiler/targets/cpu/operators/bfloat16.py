"""Products and convolutions of bfloat16 on packed operands, in words of two (`words.py`), with sums of float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....formats.dtypes import DType
from .....formats.types import TensorType
from ....operators.linear import conv, matmul
from ....operators.shapes import FLOAT32, match_dim, mismatch, require
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, WINDOW
from ....operators.work import no_arithmetic, of_integer_convolution, of_product
from .packing import CHANNELS_EACH, blocks_of, pack_channels, unpack_channels
from .words import Words, unpack_matrix, unpack_weights

PAIR = 2  # elements of a word
_WORDS = Words((DType.bfloat16, DType.bfloat16), DType.float32, frozenset({DType.bfloat16, DType.float32}))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    return matmul(a, unpack_matrix(panels)[:, :columns])


def _infer_conv_blocked(inputs: Sequence[TensorType], channels: int, **attributes: Any) -> TensorType:
    result, weight = _WORDS.infer_convolution(inputs, **attributes), inputs[1]
    match_dim(blocks_of(channels), weight.shape[1])
    if channels < 1 or weight.shape[-3] != _WORDS.words_of(channels):
        raise mismatch(f"the pairs of {channels} channels", weight)
    return result


def _conv_blocked(
    x: np.ndarray, weight: np.ndarray, start: np.ndarray | None = None, *, groups: int, channels: int, **attributes: Any
) -> np.ndarray:
    plain = unpack_weights(weight)[:, :channels]
    by_group = x.reshape(len(x) * groups, x.shape[1] // groups, *x.shape[2:])
    image = unpack_channels(by_group, channels)
    image = image.reshape(len(x), groups * channels, *image.shape[2:])
    sums = pack_channels(conv(image, plain, groups=groups, **attributes))
    return sums if start is None else sums + start


def _infer_round(inputs: Sequence[TensorType]) -> TensorType:
    require(inputs[0], FLOAT32)
    return TensorType(DType.bfloat16, inputs[0].shape)


def _round(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x).astype(
        DType.bfloat16.numpy
    )


# fmt: off
register("round_bfloat16", "x", _infer_round, _round, Fusion.ELEMENTWISE,
         "float32 as bfloat16, to the nearest; what is less than the least normal number is 0, as products take it",
         work=no_arithmetic)
register("pack_bfloat16_weights", "weight", _WORDS.infer_pack_weights, _WORDS.pack_weights, Fusion.OPAQUE,
         "weights [M, C, *window] as bfloat16 for conv_bfloat16_blocked: [M/16, C/16, *window, words, 16, 2]")
register("conv_bfloat16_blocked", "x weight start?", _infer_conv_blocked, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked image of bfloat16, in float32, plus `start`, one a channel; groups begin with a block",
         attributes=WINDOW | GROUPS | {"channels": CHANNELS_EACH}, work=of_integer_convolution)
register("pack_bfloat16_matrix", "matrix", _WORDS.infer_pack_matrix, _WORDS.pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] as bfloat16 in panels of 16 columns, two rows together, zeros after the last: [N/16, K/2, 16, 2]")
register("matmul_bfloat16_packed", "a panels", _WORDS.infer_product, _matmul_packed, Fusion.ANCHOR,
         "the product of a tensor of bfloat16 with a packed matrix, summed in float32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
# fmt: on
