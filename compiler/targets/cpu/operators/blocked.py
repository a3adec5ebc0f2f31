"""Operators on packed tensors (packing.py), which passes substitute for others; no frontend makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.messages.errors import ExecutionError, InferenceError
from .....formats.types import TensorType
from ....operators.linear import conv, matmul
from ....operators.normalization import EPSILON, group_normalization
from ....operators.shapes import (
    FLOAT32,
    broadcast,
    lift,
    match_dim,
    mismatch,
    require,
    require_rank,
    require_value,
    same_dtype,
)
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, WINDOW, axes, result_shape
from ....operators.work import each_input, of_blocked_convolution, of_convolution_to_few, of_product
from .packing import (
    BLOCK,
    CHANNELS,
    CHANNELS_EACH,
    NarrowGroups,
    blocks_of,
    pack_channels,
    require_bias,
    require_blocked,
    require_image,
    require_vector,
    unpack_channels,
    unpack_matrix,
)

TURNS = (1, 2, 4, 8, 16)  # numbers of alternating parts of the channels that join_channels takes
FEW = 4  # channels of the result of conv_to_few
WIDEST_DEPTHWISE = 64  # most columns of a depthwise convolution's window, for each channel of a group
SMALL_GROUPS = (1, 2, 4, 8)  # channels of a depthwise convolution's groups: none spans two blocks

_PANELS = frozenset({DType.float32, DType.float16, DType.bfloat16})
JOINED = FLOAT32 | {DType.int8, DType.uint8}
_OUTPUTS_EACH = Attribute(Kind.INT, "channels of the result, in each group; 0 if each group begins with a block", 0)


# ---- joining ----


def _infer_join_channels(
    inputs: Sequence[TensorType], channels: tuple[int, ...], start: int, count: int, turns: int, apart: int
) -> TensorType:
    same_dtype(inputs, JOINED)
    if len(channels) != len(inputs) or min(channels, default=0) < 1:
        raise mismatch(f"channels of {len(inputs)} images", channels)
    for x, each in zip(inputs, channels, strict=True):
        require_blocked(x)
        require_rank(x, inputs[0].rank, "images of one rank")
        match_dim(blocks_of(each), x.shape[1])
        for axis in (0, *range(2, x.rank - 1)):
            match_dim(inputs[0].shape[axis], x.shape[axis])
    if start < 0 or count < 1 or start + count > sum(channels):
        raise mismatch(f"some of {sum(channels)} channels", (start, count))
    if turns not in TURNS or apart < 1 or min(turns, apart) > 1 or count % max(turns, apart):
        raise mismatch(f"a number of parts of {count} channels that take turns, {TURNS}, or lie apart", (turns, apart))
    return TensorType(inputs[0].dtype, (inputs[0].shape[0], apart * -(-count // apart // BLOCK), *inputs[0].shape[2:]))


def _join_channels(
    *images: np.ndarray, channels: tuple[int, ...], start: int, count: int, turns: int, apart: int
) -> np.ndarray:
    whole = np.concatenate([unpack_channels(x, each) for x, each in zip(images, channels, strict=True)], axis=1)
    taken = whole[:, start : start + count]
    parts = taken.reshape(len(taken), turns, count // turns, *taken.shape[2:])
    ordered = parts.swapaxes(1, 2).reshape(taken.shape)
    return np.concatenate([pack_channels(part) for part in np.split(ordered, apart, axis=1)], axis=1)


# ---- normalisation ----


def _infer_group_blocked(inputs: Sequence[TensorType], groups: int, channels: int, epsilon: float) -> TensorType:
    x, scale, bias = inputs
    same_dtype(inputs, FLOAT32)
    require_blocked(x)
    if groups < 1 or channels < 1 or channels % groups:
        raise mismatch(f"channels that {groups} groups divide", channels)
    match_dim(blocks_of(channels), x.shape[1])
    require_vector(scale, blocks_of(channels), "scale")
    require_vector(bias, blocks_of(channels), "bias")
    return x


def _group_blocked(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, groups: int, channels: int, epsilon: float
) -> np.ndarray:
    scale, bias = scale.reshape(-1)[:channels], bias.reshape(-1)[:channels]
    return pack_channels(group_normalization(unpack_channels(x, channels), scale, bias, groups, epsilon))


# ---- products of packed tensors ----


def _infer_conv_blocked(
    inputs: Sequence[TensorType], groups: int, channels: int, outputs: int, **window: tuple
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, FLOAT32)
    require_blocked(x)
    if weight.rank != x.rank + 1 or weight.shape[-2:] != (BLOCK, BLOCK):
        raise mismatch(f"weights [blocks out, blocks in, *window, {BLOCK}, {BLOCK}]", weight)
    blocks_out, blocks_in = weight.shape[:2]
    if not isinstance(blocks_out, int) or groups < 1 or min(channels, outputs) < 0:
        raise mismatch("a known number of blocks, of some groups", weight)
    if outputs:
        narrow = NarrowGroups.of(groups, channels, outputs)
        if narrow is None or not channels or (blocks_out, blocks_in) != (narrow.blocks, narrow.width):
            raise mismatch(f"weights of {groups} groups of {channels} channels and {outputs} outputs", weight)
        match_dim(narrow.image_blocks, x.shape[1])
    else:
        if blocks_out % groups:
            raise mismatch(f"blocks that {groups} groups divide", weight)
        match_dim(blocks_of(channels), blocks_in)
        match_dim(lift(lambda blocks: dims.multiply(blocks, groups), blocks_in), x.shape[1])
    require_bias(inputs, blocks_out)
    windows = axes(weight.shape[2:-2], **window)
    return TensorType(x.dtype, (x.shape[0], blocks_out, *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_blocked(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    groups: int,
    channels: int,
    outputs: int,
    **attributes: Any,
) -> np.ndarray:
    blocks_out, blocks_in, *window, _, _ = weight.shape
    plain = np.moveaxis(weight, (-1, -2), (1, 3)).reshape(blocks_out * BLOCK, blocks_in * BLOCK, *window)
    flat = None if bias is None else bias.reshape(-1)
    if outputs:
        narrow = NarrowGroups(groups, channels, outputs)
        image = unpack_channels(x, groups * channels)
        plain = np.stack([plain[output, narrow.places(output)] for output in range(groups * outputs)])
        flat = None if flat is None else flat[: len(plain)]
    else:
        by_group = x.reshape(x.shape[0] * groups, blocks_in, *x.shape[2:])
        image = unpack_channels(by_group, channels).reshape(x.shape[0], groups * channels, *x.shape[2:-1])
        plain = plain[:, :channels]
    return pack_channels(conv(image, plain, flat, groups=groups, **attributes))


def _unpack_planar(weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights [blocks, C, *window, BLOCK] and a bias [blocks, 1 …, BLOCK] as those of an ordinary convolution."""
    plain = np.moveaxis(weight, -1, 1).reshape(weight.shape[0] * BLOCK, *weight.shape[1:-1])
    return plain, None if bias is None else bias.reshape(-1)


def _infer_conv_planar(inputs: Sequence[TensorType], **window: tuple) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, FLOAT32)
    require_image(x, "an image [N, C, *spatial]")
    if weight.rank != x.rank + 1 or weight.shape[-1] != BLOCK:
        raise mismatch(f"weights [blocks out, C, *window, {BLOCK}]", weight)
    match_dim(x.shape[1], weight.shape[1])
    require_bias(inputs, weight.shape[0])
    windows = axes(weight.shape[2:-1], **window)
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:], windows), BLOCK))


def _conv_planar(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, **attributes: Any) -> np.ndarray:
    plain, flat = _unpack_planar(weight, bias)
    return pack_channels(conv(x, plain, flat, groups=1, **attributes))


def _infer_conv_to_few(inputs: Sequence[TensorType], channels: int, **window: tuple) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, FLOAT32)
    require_blocked(x)
    few = weight.shape[0] if weight.shape else 0
    if weight.rank != x.rank or weight.shape[-1] != BLOCK or not isinstance(few, int) or not 1 <= few <= FEW:
        raise mismatch(f"weights [channels, blocks in, *window, {BLOCK}] for {FEW} channels at most", weight)
    match_dim(blocks_of(channels), weight.shape[1])
    match_dim(weight.shape[1], x.shape[1])
    require_bias(inputs, 1)
    windows = axes(weight.shape[2:-1], **window)
    return TensorType(x.dtype, (x.shape[0], 1, *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_to_few(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, channels: int, **attributes: Any
) -> np.ndarray:
    plain = unpack_channels(weight, channels)
    flat = None if bias is None else bias.reshape(-1)[: len(plain)]
    return pack_channels(conv(unpack_channels(x, channels), plain, flat, groups=1, **attributes))


def is_for_depthwise(channels: int, outputs: int, groups: int, columns: int) -> bool:
    """Whether conv_depthwise takes a convolution of these channels and a window of `columns` columns: each group has as many
    output as input channels, few, and of several groups or one."""
    each = channels // groups
    is_grouped = groups > 1 or each == 1
    return is_grouped and channels == outputs and each in SMALL_GROUPS and each * columns <= WIDEST_DEPTHWISE


def _infer_conv_depthwise(inputs: Sequence[TensorType], zero: int, **window: tuple) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs[1:], FLOAT32)
    require(x, JOINED | {DType.bfloat16})
    require_value(zero, x.dtype)
    if zero and x.dtype.is_float:
        raise mismatch("a zero point of integers alone", zero)
    require_blocked(x)
    if (
        weight.rank != x.rank
        or weight.shape[0] == 0
        or weight.shape[1] not in SMALL_GROUPS
        or weight.shape[-1] != BLOCK
    ):
        raise mismatch(f"weights [blocks, 1, 2, 4 or 8, *window, {BLOCK}]", weight)
    match_dim(x.shape[1], weight.shape[0])
    require_bias(inputs, weight.shape[0])
    windows = axes(weight.shape[2:-1], **window)
    return TensorType(DType.float32, (*x.shape[:2], *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_depthwise(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, zero: int, **attributes: Any
) -> np.ndarray:
    plain, flat = _unpack_planar(weight, bias)
    image = unpack_channels(x.astype(np.float32) - np.float32(zero), len(plain))
    return pack_channels(conv(image, plain, flat, groups=len(plain) // plain.shape[1], **attributes))


def _infer_narrow_panels(inputs: Sequence[TensorType], dtype: DType) -> TensorType:
    (panels,) = inputs
    require(panels, FLOAT32)
    if dtype not in _NARROW:
        raise InferenceError(
            f"panels are narrowed to {' or '.join(each.name for each in _NARROW)}, not to {dtype.name}"
        )
    return TensorType(dtype, panels.shape)


def _narrow_panels(panels: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = panels.astype(dtype.numpy)
    wide = halves.astype(np.float32)
    if not np.array_equal(wide.view(np.uint32), panels.view(np.uint32)):
        raise ExecutionError(f"16 bits ({dtype.name}) do not hold all of these numbers exactly")
    return halves


_NARROW = (DType.bfloat16, DType.float16)


def _infer_matmul_packed(inputs: Sequence[TensorType], columns: int) -> TensorType:
    a, panels = inputs
    require(a, FLOAT32)
    require(panels, _PANELS)
    if not a.rank or panels.rank != 3 or panels.shape[2] != BLOCK or blocks_of(columns) != panels.shape[0]:
        raise mismatch(f"a tensor and panels [{blocks_of(columns)}, K, {BLOCK}]", f"{a} and {panels}")
    match_dim(a.shape[-1], panels.shape[1])
    return TensorType(a.dtype, (*a.shape[:-1], columns))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    return matmul(a, unpack_matrix(panels.astype(np.float32))[:, :columns])


def _swapped(type_: TensorType, swap: bool) -> TensorType:
    return TensorType(type_.dtype, (*type_.shape[:-2], type_.shape[-1], type_.shape[-2])) if swap else type_


def _infer_matmul_transposed(inputs: Sequence[TensorType], transpose_a: bool, transpose_b: bool) -> TensorType:
    same_dtype(inputs, FLOAT32)
    if min(type_.rank for type_ in inputs) < 2:
        raise mismatch("tensors of rank 2 at least", " and ".join(map(str, inputs)))
    a, b = _swapped(inputs[0], transpose_a), _swapped(inputs[1], transpose_b)
    match_dim(a.shape[-1], b.shape[-2])
    return TensorType(a.dtype, (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def _matmul_transposed(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    return matmul(np.swapaxes(a, -1, -2) if transpose_a else a, np.swapaxes(b, -1, -2) if transpose_b else b)


# fmt: off
register("narrow_panels", "panels", _infer_narrow_panels, _narrow_panels, Fusion.OPAQUE,
         "the same numbers in 16 bits, which hold them exactly",
         attributes={"dtype": Attribute(Kind.DTYPE, "float16 or bfloat16")})
register("join_channels", "*images", _infer_join_channels, _join_channels, Fusion.OPAQUE,
         "some of the channels of channel-blocked images, one after the other",
         attributes={"channels": Attribute(Kind.INTS, "of each image"),
                     "start": Attribute(Kind.INT, "the first that is taken", 0),
                     "count": Attribute(Kind.INT, "how many are taken"),
                     "turns": Attribute(Kind.INT, f"the parts of them, of one size, that take turns: {TURNS}", 1),
                     "apart": Attribute(Kind.INT, "the parts of them, of one size, that begin with a block each", 1)})
register("group_normalization_blocked", "x scale bias", _infer_group_blocked, _group_blocked, Fusion.ANCHOR,
         "group_normalization of a channel-blocked image; scale and bias are packed",
         attributes={"groups": Attribute(Kind.INT, "how many groups the channels are parted into"),
                     "channels": CHANNELS, "epsilon": EPSILON}, work=each_input(7))
register("conv_blocked", "x weight bias?", _infer_conv_blocked, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked image; groups begin with a block, or `outputs` tells how narrow they are",
         attributes=WINDOW | GROUPS | {"channels": CHANNELS_EACH, "outputs": _OUTPUTS_EACH}, work=of_blocked_convolution)
register("conv_planar", "x weight bias?", _infer_conv_planar, _conv_planar, Fusion.ANCHOR,
         "convolution of an image of few channels [N, C, *spatial], with a channel-blocked result", attributes=WINDOW,
         work=of_blocked_convolution)
register("conv_to_few", "x weight bias?", _infer_conv_to_few, _conv_to_few, Fusion.ANCHOR,
         f"convolution of a channel-blocked image to {FEW} channels at most; the weights are channel-blocked as images are",
         attributes=WINDOW | {"channels": CHANNELS}, work=of_convolution_to_few)
register("conv_depthwise", "x weight bias?", _infer_conv_depthwise, _conv_depthwise, Fusion.ANCHOR,
         "convolution of each channel of a channel-blocked image by itself, or of each group of as many channels as come out, "
         "2, 4 or 8; of floats or 8-bit integers less a zero point",
         attributes=WINDOW | {"zero": Attribute(Kind.INT, "point of integers", 0)},
         work=of_blocked_convolution)
register("matmul_packed", "a panels", _infer_matmul_packed, _matmul_packed, Fusion.ANCHOR,
         "the product of a tensor of float32 with a packed matrix of float32, float16 or bfloat16",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")},
         work=of_product)
register("matmul_transposed", "a b", _infer_matmul_transposed, _matmul_transposed, Fusion.ANCHOR,
         "the matrix product of operands whose last two axes are exchanged first",
         attributes={"transpose_a": Attribute(Kind.BOOL, "exchange those of a", False),
                     "transpose_b": Attribute(Kind.BOOL, "exchange those of b", False)}, work=of_product)
# fmt: on
