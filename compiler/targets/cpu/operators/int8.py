"""Products of float32 by 8 bits: rows are quantised as they come, each by itself, and matrices ahead, each column by itself.

A row of codes, x ≈ scale · (code - zero), ends with 8 bytes of facts: its scale in float32 and its zero point in int32. Its range
is that of its elements and 0, in 255 steps. A column of a packed matrix, w ≈ scale · byte with bytes from -127 to 127, ends
likewise with its scale and the sum of its bytes:

    Σ x·w  ≈  scale · scale' · (Σ code·byte - zero · Σ byte)

A channel-blocked image is quantised as a whole, each by itself: its facts are a tensor of their own, [N, 2] of float32. It is
padded with its zero point. Weights of convolutions are int8 with a scale for each output channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import ShapeDim, TensorType
from ....operators.linear import conv
from ....operators.quantized import FACTS, LEAST, STEPS, as_int32, codes_of, facts_of, matmul_integer, range_of
from ....operators.shapes import FLOAT32, ceildiv, lift, mismatch, require
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, WINDOW
from ....operators.work import of_integer_convolution, of_product
from .integers import WORD
from .packing import BLOCK, CHANNELS, blocks_of, pack_channels, require_blocked, unpack_channels
from .words import Words, unpack_matrix, unpack_weights

LARGEST = 127  # byte of a column
COLUMN_FACTS = 3  # of an output channel: its scale, the sum of its bytes, its bias
_WORDS = Words((DType.uint8, DType.int8), DType.float32, FLOAT32)


def is_exact(terms: int, largest: int = LARGEST) -> bool:
    """Whether an int32 holds any sum of that many products of codes and bytes, whose largest magnitude is given."""
    return terms * STEPS * largest < 1 << 31


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
    scale, zero = facts_of(*range_of(x, (-1,)))
    facts = [scale, np.where(np.isnan(zero), 0, zero).astype(np.int32)]
    codes = codes_of(x, scale, zero)
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
    return packed_columns(*quantized_columns(matrix))


def packed_columns(codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Panels of a matrix of int8 whose columns have these scales."""
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


# ---- images ----


def _infer_ranges(inputs: Sequence[TensorType], channels: int) -> TensorType:
    (x,) = inputs
    require(x, FLOAT32)
    require_blocked(x)
    if blocks_of(channels) != x.shape[1]:
        raise mismatch(f"{blocks_of(channels)} blocks for {channels} channels", x)
    return TensorType(DType.float32, (*x.shape[:2], 2))


def _ranges(x: np.ndarray, channels: int) -> np.ndarray:
    plain = pack_channels(unpack_channels(x, channels))  # without what lies behind the last channel
    return np.concatenate(range_of(plain.reshape(*x.shape[:2], -1), (-1,)), axis=-1)


def _infer_facts(inputs: Sequence[TensorType]) -> TensorType:
    (ranges,) = inputs
    require(ranges, FLOAT32)
    if ranges.rank != 3 or ranges.shape[2] != 2:
        raise mismatch("ranges [N, blocks, 2]", ranges)
    return TensorType(DType.float32, (ranges.shape[0], 2))


def _image_facts(ranges: np.ndarray) -> np.ndarray:
    low, high = range_of(ranges, (1,))
    return np.concatenate(facts_of(low[..., 0], high[..., 1]), axis=-1)


def _infer_quantize_image(inputs: Sequence[TensorType], pads: tuple[int, ...] | None) -> TensorType:
    x, facts = inputs
    for each in inputs:
        require(each, FLOAT32)
    require_blocked(x)
    if facts.shape != (x.shape[0], 2):
        raise mismatch("facts [N, 2]", facts)
    axes = x.rank - 3
    pads = pads or (0,) * 2 * axes
    if len(pads) != 2 * axes or not all(isinstance(pad, int) and pad >= 0 for pad in pads):
        raise mismatch(f"{2 * axes} pads that are known, and not negative", pads)
    sizes = [
        lift(lambda a, b=begin + end: dims.add(a, b), size)
        for size, begin, end in zip(x.shape[2:-1], pads[:axes], pads[axes:], strict=True)
    ]
    return TensorType(DType.uint8, (*x.shape[:2], *sizes, BLOCK))


def _quantize_image(x: np.ndarray, facts: np.ndarray, pads: tuple[int, ...] | None) -> np.ndarray:
    axes = x.ndim - 3
    around = [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True), (0, 0)] if pads else [(0, 0)] * x.ndim
    scale, zero = (each.reshape(-1, *(1,) * (x.ndim - 1)) for each in facts.T)
    return codes_of(
        np.pad(x, around), scale, np.rint(zero)
    )  # the conversion to bytes may cut off or round, as the CPU has it


def _pack_weights(weight: np.ndarray) -> np.ndarray:
    codes, _ = quantized_columns(weight.reshape(len(weight), -1).T)
    return _WORDS.pack_weights(codes.T.reshape(weight.shape))


def _infer_pack_columns(inputs: Sequence[TensorType]) -> TensorType:
    weight = inputs[0]
    for each in inputs:
        require(each, FLOAT32)
    if weight.rank < 2 or any(bias.shape != weight.shape[:1] for bias in inputs[1:]):
        raise mismatch("weights [M, C, *window], and perhaps a bias [M]", ", ".join(map(str, inputs)))
    return TensorType(DType.float32, (blocks_of(weight.shape[0]), COLUMN_FACTS, BLOCK))


def _pack_columns(weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    codes, scale = quantized_columns(weight.reshape(len(weight), -1).T)
    sums = codes.sum(axis=0, dtype=np.float32)
    facts = np.stack([scale, sums, np.zeros_like(scale) if bias is None else bias])
    padded = np.pad(facts, ((0, 0), (0, -len(scale) % BLOCK)))
    return np.ascontiguousarray(padded.reshape(COLUMN_FACTS, -1, BLOCK).swapaxes(0, 1))


def _infer_conv(inputs: Sequence[TensorType], **attributes: Any) -> TensorType:
    result, (x, weight, facts, columns) = _WORDS.infer_convolution(inputs[:2], **attributes), inputs
    for each, shape in ((facts, (x.shape[0], 2)), (columns, (weight.shape[0], COLUMN_FACTS, BLOCK))):
        require(each, FLOAT32)
        if each.shape != shape:
            raise mismatch(f"facts {list(shape)}", each)
    return result


def _conv_blocked(
    x: np.ndarray, weight: np.ndarray, facts: np.ndarray, columns: np.ndarray, *, groups: int, **attributes: Any
) -> np.ndarray:
    plain = unpack_weights(weight).astype(np.float64)
    image = unpack_channels(x, plain.shape[1] * groups).astype(np.float64)
    sums = pack_channels(as_int32(conv(image, plain, groups=groups, **attributes)))
    scale, zero = (each.reshape(-1, *(1,) * (x.ndim - 1)) for each in facts.T)
    scales, bytes_, bias = (each.reshape(-1, *(1,) * (x.ndim - 3), BLOCK) for each in columns.swapaxes(0, 1))
    with np.errstate(all="ignore"):
        whole = scale * scales
        return sums.astype(np.float32) * whole + (bias - zero * bytes_ * whole)


# fmt: off
register("quantize_rows", "x", _infer_quantize_rows, _quantize_rows, Fusion.OPAQUE,
         "rows of float32 as bytes with a scale and a zero point each, behind them; NaN as a scale where not all is finite")
register("pack_int8_matrix", "matrix", _infer_pack_matrix, _pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] as int8 with a scale a column, in panels of 16 columns for matmul_int8_packed: [N/16, K/4 + 2, 16, 4]")
register("matmul_int8_packed", "a panels", _WORDS.infer_product, _matmul_packed, Fusion.ANCHOR,
         "the product in float32 of quantised rows with a packed matrix, summed exactly in int32",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")}, work=of_product)
register("image_ranges", "x", _infer_ranges, _ranges, Fusion.OPAQUE,
         "the least and the greatest of 0 and of the elements of a block of channels: [N, C/16, 2]; NaN where not all are finite",
         attributes={"channels": CHANNELS})
register("image_facts", "ranges", _infer_facts, _image_facts, Fusion.OPAQUE,
         "scale and zero point of images of these ranges, [N, 2]")
register("quantize_image", "x facts", _infer_quantize_image, _quantize_image, Fusion.OPAQUE,
         "a channel-blocked image as bytes, padded with its zero point", attributes={"pads": WINDOW["pads"]})
register("pack_int8_weights", "weight", _WORDS.infer_pack_weights, _pack_weights, Fusion.OPAQUE,
         "weights [M, C, *window] as int8 with a scale an output, for conv_int8_blocked: [M/16, C/16, *window, words, 16, 4]")
register("pack_int8_columns", "weight bias?", _infer_pack_columns, _pack_columns, Fusion.OPAQUE,
         "scales, sums of bytes, and biases of the outputs of such weights: [M/16, 3, 16]")
register("conv_int8_blocked", "x weight facts columns", _infer_conv, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked quantised image, in float32; groups begin with a block",
         attributes=WINDOW | GROUPS, work=of_integer_convolution)
# fmt: on
