"""Operators on packed tensors, which passes put in place of others for speed; no frontend makes them.

A channel-blocked image is an ordinary tensor [N, C/16, *spatial, 16]. Where 16 does not divide the channels, what the lanes
behind the last channel hold is nobody's business: no operator here lets them reach a channel. Weights are packed with zeros
there. A matrix [K, N] is packed into panels of 16 columns, [N/16, K, 16].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.types import ShapeDim, TensorType
from .linear import _conv, _matmul
from .normalization import EPSILON, _group_normalization
from .shapes import broadcast, lift, match_dim, mismatch, require, require_rank, require_value, same_dtype
from .table import Attribute, Fusion, Kind, register
from .windows import WINDOW, axes, result_shape
from .work import each_input, of_blocked_convolution, of_convolution_to_few, of_product

BLOCK = 16
TURNS = (1, 2, 4, 8, 16)  # parts of the channels that join_channels takes in turns
FEW = 4  # channels of the result of conv_to_few
WIDEST_DEPTHWISE = 64  # columns of a window that a depthwise convolution may have, for each channel of a group
SMALL_GROUPS = (1, 2, 4, 8)  # channels of the groups that a depthwise convolution may have: none lies in two blocks

_FLOAT32 = frozenset({DType.float32})
_PANELS = frozenset({DType.float32, DType.float16, DType.uint16})
_IMAGES = _FLOAT32 | {DType.int8, DType.uint8}
_GROUPS = {"groups": Attribute(Kind.INT, "parts of the channels that do not mix", 1)}
_CHANNELS = Attribute(Kind.INT, "channels of the image")
_LAST = Attribute(Kind.BOOL, "the channels of the ordinary image lie last, [N, *spatial, C]", False)
_CHANNELS_EACH = Attribute(Kind.INT, "channels of the image, in each group")
_OUTPUTS_EACH = Attribute(Kind.INT, "channels of the result, in each group; 0 if each group begins with a block", 0)


def _blocks(channels: ShapeDim) -> ShapeDim:
    return lift(lambda channels: dims.ceildiv(channels, BLOCK), channels)


def _is_blocked(x: TensorType) -> None:
    if x.rank < 4 or x.shape[-1] != BLOCK:
        raise mismatch(f"a channel-blocked image [N, blocks, *spatial, {BLOCK}]", x)


def _require_image(x: TensorType, what: str) -> None:
    if x.rank < 3:
        raise mismatch(what, x)


def _check_vector(vector: TensorType, blocks: ShapeDim, what: str) -> None:
    if vector.shape != (blocks, *(1,) * (vector.rank - 2), BLOCK):
        raise mismatch(f"a packed {what} [{blocks}, 1 …, {BLOCK}]", vector)


# ---- packing ----


def _pad_axis(x: np.ndarray, axis: int) -> np.ndarray:
    """x with zeros at the end of an axis, up to a multiple of BLOCK."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % BLOCK)
    return np.pad(x, widths)


def _infer_pack_channels(inputs: Sequence[TensorType], last: bool) -> TensorType:
    (x,) = inputs
    _require_image(x, "an image [N, C, *spatial]")
    n, channels, *spatial = (x.shape[0], x.shape[-1], *x.shape[1:-1]) if last else x.shape
    return TensorType(x.dtype, (n, _blocks(channels), *spatial, BLOCK))


def _pack_channels(x: np.ndarray, last: bool = False) -> np.ndarray:
    x = np.moveaxis(x, -1, 1) if last else x
    padded = _pad_axis(x, 1)
    return np.moveaxis(padded.reshape(len(x), padded.shape[1] // BLOCK, BLOCK, *x.shape[2:]), 2, -1)


def _infer_unpack_channels(inputs: Sequence[TensorType], channels: int, last: bool) -> TensorType:
    (x,) = inputs
    _is_blocked(x)
    if _blocks(channels) != x.shape[1]:
        raise mismatch(f"{_blocks(channels)} blocks for {channels} channels", x)
    n, spatial = x.shape[0], x.shape[2:-1]
    return TensorType(x.dtype, (n, *spatial, channels) if last else (n, channels, *spatial))


def _unpack_channels(x: np.ndarray, channels: int, last: bool = False) -> np.ndarray:
    n, blocks, *spatial, _ = x.shape
    image = np.moveaxis(x, -1, 2).reshape(n, blocks * BLOCK, *spatial)[:, :channels]
    return np.moveaxis(image, 1, -1) if last else image


def _infer_pack_vector(inputs: Sequence[TensorType], axes: int) -> TensorType:
    (x,) = inputs
    require_rank(x, 1, "a vector")
    if axes < 1:
        raise mismatch("a spatial axis at least", axes)
    return TensorType(x.dtype, (_blocks(x.shape[0]), *(1,) * axes, BLOCK))


def _pack_vector(x: np.ndarray, axes: int) -> np.ndarray:
    return _pad_axis(x, 0).reshape(-1, *(1,) * axes, BLOCK)


@dataclass(frozen=True)
class NarrowGroups:
    """Groups of channels that do not begin with a block: a block of results is computed of a *band* of the image's channels,
    those of all the groups that have results in it. Its weights are zero between channels of different groups."""

    count: int
    channels: int  # of a group
    outputs: int  # of a group

    @staticmethod
    def of(groups: int, channels: int, outputs: int) -> NarrowGroups | None:
        """None for groups of so many channels and outputs that begin with a block, or have no outputs; also for those of more
        than one block, of whose results several blocks are better computed at once."""
        if groups == 1 or not 0 < outputs <= BLOCK or channels % BLOCK == outputs % BLOCK == 0:
            return None
        return NarrowGroups(groups, channels, outputs)

    @property
    def image_blocks(self) -> int:
        return -(-self.count * self.channels // BLOCK)

    @property
    def blocks(self) -> int:
        """Of the result."""
        return -(-self.count * self.outputs // BLOCK)

    def band(self, block: int) -> tuple[int, int]:
        """The first channel of a band, and the one behind its last."""
        last = min((block + 1) * BLOCK, self.count * self.outputs) - 1
        return block * BLOCK // self.outputs * self.channels, (last // self.outputs + 1) * self.channels

    @cached_property
    def width(self) -> int:
        """The blocks of the image that the widest band meets: weights are packed for so many."""
        bands = map(self.band, range(self.blocks))
        return max(-(-end // BLOCK) - begin // BLOCK for begin, end in bands)

    def first(self, block: int) -> int:
        """The first block of the image for which the weights of a block of results are packed."""
        return min(self.band(block)[0] // BLOCK, self.image_blocks - self.width)

    @property
    def are_even(self) -> bool:
        """Whether each band is a block of the image, that of the same number."""
        return all(self.band(block) == (block * BLOCK, (block + 1) * BLOCK) for block in range(self.blocks))

    def places(self, output: int) -> slice:
        """Where the weights of an output lie in its block, whose channels begin with those of `first`."""
        begin = output // self.outputs * self.channels - self.first(output // BLOCK) * BLOCK
        return slice(begin, begin + self.channels)


def _infer_pack_weights(inputs: Sequence[TensorType], groups: int) -> TensorType:
    (weight,) = inputs
    _require_image(weight, "weights [M, C / groups, *window]")
    outputs, channels, *window = weight.shape
    if not isinstance(outputs, int) or not isinstance(channels, int) or groups < 1 or outputs % groups:
        raise mismatch(f"weights of a known size for {groups} groups", weight)
    if narrow := NarrowGroups.of(groups, channels, outputs // groups):
        return TensorType(weight.dtype, (narrow.blocks, narrow.width, *window, BLOCK, BLOCK))
    blocks = groups * -(-outputs // groups // BLOCK)
    return TensorType(weight.dtype, (blocks, -(-channels // BLOCK), *window, BLOCK, BLOCK))


def _pack_weights(weight: np.ndarray, groups: int) -> np.ndarray:
    outputs, inputs, *window = weight.shape
    if narrow := NarrowGroups.of(groups, inputs, outputs // groups):
        wide = np.zeros((outputs, narrow.width * BLOCK, *window), weight.dtype)
        for output in range(outputs):
            wide[output, narrow.places(output)] = weight[output]
        weight, groups = wide, 1
    by_group = weight.reshape(groups, outputs // groups, *weight.shape[1:])
    padded = _pad_axis(_pad_axis(by_group, 1), 2)
    rows = padded.shape[0] * padded.shape[1] // BLOCK
    blocks = padded.reshape(rows, BLOCK, padded.shape[2] // BLOCK, BLOCK, *window)
    return np.moveaxis(blocks, (3, 1), (-2, -1))


def _infer_pack_planar_weights(inputs: Sequence[TensorType]) -> TensorType:
    (weight,) = inputs
    _require_image(weight, "weights [M, C, *window]")
    return TensorType(weight.dtype, (_blocks(weight.shape[0]), *weight.shape[1:], BLOCK))


def _pack_planar_weights(weight: np.ndarray) -> np.ndarray:
    padded = _pad_axis(weight, 0)
    return np.moveaxis(padded.reshape(padded.shape[0] // BLOCK, BLOCK, *weight.shape[1:]), 1, -1)


def _infer_pack_matrix(inputs: Sequence[TensorType]) -> TensorType:
    (matrix,) = inputs
    require_rank(matrix, 2, "a matrix")
    return TensorType(matrix.dtype, (_blocks(matrix.shape[1]), matrix.shape[0], BLOCK))


def _pack_matrix(matrix: np.ndarray) -> np.ndarray:
    padded = _pad_axis(matrix, 1)
    return padded.reshape(matrix.shape[0], padded.shape[1] // BLOCK, BLOCK).transpose(1, 0, 2)


# ---- joining ----


def _infer_join_channels(
    inputs: Sequence[TensorType], channels: tuple[int, ...], start: int, count: int, turns: int, apart: int
) -> TensorType:
    same_dtype(inputs, _IMAGES)
    if len(channels) != len(inputs) or min(channels, default=0) < 1:
        raise mismatch(f"channels of {len(inputs)} images", channels)
    for x, each in zip(inputs, channels, strict=True):
        _is_blocked(x)
        require_rank(x, inputs[0].rank, "images of one rank")
        match_dim(_blocks(each), x.shape[1])
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
    whole = np.concatenate([_unpack_channels(x, each) for x, each in zip(images, channels, strict=True)], axis=1)
    taken = whole[:, start : start + count]
    parts = taken.reshape(len(taken), turns, count // turns, *taken.shape[2:])
    ordered = parts.swapaxes(1, 2).reshape(taken.shape)
    return np.concatenate([_pack_channels(part) for part in np.split(ordered, apart, axis=1)], axis=1)


# ---- normalisation ----


def _infer_group_blocked(inputs: Sequence[TensorType], groups: int, channels: int, epsilon: float) -> TensorType:
    x, scale, bias = inputs
    same_dtype(inputs, _FLOAT32)
    _is_blocked(x)
    if groups < 1 or channels < 1 or channels % groups:
        raise mismatch(f"channels that {groups} groups divide", channels)
    match_dim(_blocks(channels), x.shape[1])
    _check_vector(scale, _blocks(channels), "scale")
    _check_vector(bias, _blocks(channels), "bias")
    return x


def _group_blocked(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, groups: int, channels: int, epsilon: float
) -> np.ndarray:
    scale, bias = scale.reshape(-1)[:channels], bias.reshape(-1)[:channels]
    return _pack_channels(_group_normalization(_unpack_channels(x, channels), scale, bias, groups, epsilon))


# ---- products of packed tensors ----


def _check_bias(inputs: Sequence[TensorType], blocks: ShapeDim) -> None:
    if len(inputs) > 2:
        _check_vector(inputs[2], blocks, "bias")


def _infer_conv_blocked(
    inputs: Sequence[TensorType],
    strides: tuple,
    pads: tuple,
    dilations: tuple,
    groups: int,
    channels: int,
    outputs: int,
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, _FLOAT32)
    _is_blocked(x)
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
        match_dim(_blocks(channels), blocks_in)
        match_dim(lift(lambda blocks: dims.multiply(blocks, groups), blocks_in), x.shape[1])
    _check_bias(inputs, blocks_out)
    windows = axes(weight.shape[2:-2], strides, pads, dilations)
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
        image = _unpack_channels(x, groups * channels)
        plain = np.stack([plain[output, narrow.places(output)] for output in range(groups * outputs)])
        flat = None if flat is None else flat[: len(plain)]
    else:
        by_group = x.reshape(x.shape[0] * groups, blocks_in, *x.shape[2:])
        image = _unpack_channels(by_group, channels).reshape(x.shape[0], groups * channels, *x.shape[2:-1])
        plain = plain[:, :channels]
    return _pack_channels(_conv(image, plain, flat, groups=groups, **attributes))


def _unpack_planar(weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights [blocks, C, *window, BLOCK] and a bias [blocks, 1 …, BLOCK] as those of an ordinary convolution."""
    plain = np.moveaxis(weight, -1, 1).reshape(weight.shape[0] * BLOCK, *weight.shape[1:-1])
    return plain, None if bias is None else bias.reshape(-1)


def _infer_conv_planar(inputs: Sequence[TensorType], strides: tuple, pads: tuple, dilations: tuple) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, _FLOAT32)
    _require_image(x, "an image [N, C, *spatial]")
    if weight.rank != x.rank + 1 or weight.shape[-1] != BLOCK:
        raise mismatch(f"weights [blocks out, C, *window, {BLOCK}]", weight)
    match_dim(x.shape[1], weight.shape[1])
    _check_bias(inputs, weight.shape[0])
    windows = axes(weight.shape[2:-1], strides, pads, dilations)
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *result_shape(x.shape[2:], windows), BLOCK))


def _conv_planar(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, **attributes: Any) -> np.ndarray:
    plain, flat = _unpack_planar(weight, bias)
    return _pack_channels(_conv(x, plain, flat, groups=1, **attributes))


def _infer_conv_to_few(
    inputs: Sequence[TensorType], strides: tuple, pads: tuple, dilations: tuple, channels: int
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, _FLOAT32)
    _is_blocked(x)
    few = weight.shape[0] if weight.shape else 0
    if weight.rank != x.rank or weight.shape[-1] != BLOCK or not isinstance(few, int) or not 1 <= few <= FEW:
        raise mismatch(f"weights [channels, blocks in, *window, {BLOCK}] for {FEW} channels at most", weight)
    match_dim(_blocks(channels), weight.shape[1])
    match_dim(weight.shape[1], x.shape[1])
    _check_bias(inputs, 1)
    windows = axes(weight.shape[2:-1], strides, pads, dilations)
    return TensorType(x.dtype, (x.shape[0], 1, *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_to_few(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, channels: int, **attributes: Any
) -> np.ndarray:
    plain = _unpack_channels(weight, channels)
    flat = None if bias is None else bias.reshape(-1)[: len(plain)]
    return _pack_channels(_conv(_unpack_channels(x, channels), plain, flat, groups=1, **attributes))


def is_for_depthwise(channels: int, outputs: int, groups: int, columns: int) -> bool:
    """Whether conv_depthwise is for a convolution of so many channels by a window of so many columns: each group gives as many
    channels as it takes, few, but of several groups, or by itself."""
    each = channels // groups
    is_grouped = groups > 1 or each == 1
    return is_grouped and channels == outputs and each in SMALL_GROUPS and each * columns <= WIDEST_DEPTHWISE


def _infer_conv_depthwise(
    inputs: Sequence[TensorType], strides: tuple, pads: tuple, dilations: tuple, zero: int
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs[1:], _FLOAT32)
    require(x, _IMAGES)
    require_value(zero, x.dtype)
    if zero and x.dtype is DType.float32:
        raise mismatch("a zero point of integers alone", zero)
    _is_blocked(x)
    if (
        weight.rank != x.rank
        or weight.shape[0] == 0
        or weight.shape[1] not in SMALL_GROUPS
        or weight.shape[-1] != BLOCK
    ):
        raise mismatch(f"weights [blocks, 1, 2, 4 or 8, *window, {BLOCK}]", weight)
    match_dim(x.shape[1], weight.shape[0])
    _check_bias(inputs, weight.shape[0])
    windows = axes(weight.shape[2:-1], strides, pads, dilations)
    return TensorType(DType.float32, (*x.shape[:2], *result_shape(x.shape[2:-1], windows), BLOCK))


def _conv_depthwise(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, zero: int, **attributes: Any
) -> np.ndarray:
    plain, flat = _unpack_planar(weight, bias)
    image = _unpack_channels(x.astype(np.float32) - np.float32(zero), len(plain))
    return _pack_channels(_conv(image, plain, flat, groups=len(plain) // plain.shape[1], **attributes))


def from_upper_halves(halves: np.ndarray) -> np.ndarray:
    """The float32 numbers of which the upper halves are these uint16, and the others zero."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _infer_matmul_packed(inputs: Sequence[TensorType], columns: int) -> TensorType:
    a, panels = inputs
    require(a, _FLOAT32)
    require(panels, _PANELS)
    if not a.rank or panels.rank != 3 or panels.shape[2] != BLOCK or _blocks(columns) != panels.shape[0]:
        raise mismatch(f"a tensor and panels [{_blocks(columns)}, K, {BLOCK}]", f"{a} and {panels}")
    match_dim(a.shape[-1], panels.shape[1])
    return TensorType(a.dtype, (*a.shape[:-1], columns))


def _matmul_packed(a: np.ndarray, panels: np.ndarray, columns: int) -> np.ndarray:
    wide = from_upper_halves(panels) if panels.dtype == np.uint16 else panels.astype(np.float32)
    matrix = wide.transpose(1, 0, 2).reshape(panels.shape[1], panels.shape[0] * BLOCK)
    return _matmul(a, matrix[:, :columns])


def _swapped(type_: TensorType, swap: bool) -> TensorType:
    return TensorType(type_.dtype, (*type_.shape[:-2], type_.shape[-1], type_.shape[-2])) if swap else type_


def _infer_matmul_transposed(inputs: Sequence[TensorType], transpose_a: bool, transpose_b: bool) -> TensorType:
    same_dtype(inputs, _FLOAT32)
    if min(type_.rank for type_ in inputs) < 2:
        raise mismatch("tensors of rank 2 at least", " and ".join(map(str, inputs)))
    a, b = _swapped(inputs[0], transpose_a), _swapped(inputs[1], transpose_b)
    match_dim(a.shape[-1], b.shape[-2])
    return TensorType(a.dtype, (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def _matmul_transposed(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    return _matmul(np.swapaxes(a, -1, -2) if transpose_a else a, np.swapaxes(b, -1, -2) if transpose_b else b)


# fmt: off
register("pack_channels", "x", _infer_pack_channels, _pack_channels, Fusion.OPAQUE,
         "an image [N, C, *spatial] channel-blocked: [N, C/16, *spatial, 16]", attributes={"last": _LAST})
register("unpack_channels", "x", _infer_unpack_channels, _unpack_channels, Fusion.OPAQUE,
         "a channel-blocked image as [N, C, *spatial]", attributes={"channels": _CHANNELS, "last": _LAST})
register("pack_vector", "x", _infer_pack_vector, _pack_vector, Fusion.OPAQUE,
         "one number a channel [C] as [C/16, 1 …, 16], which broadcasts to channel-blocked images",
         attributes={"axes": Attribute(Kind.INT, "spatial axes of the images", 2)})
register("pack_weights", "weight", _infer_pack_weights, _pack_weights, Fusion.OPAQUE,
         "weights [M, C / groups, *window] for conv_blocked", attributes=_GROUPS)
register("pack_planar_weights", "weight", _infer_pack_planar_weights, _pack_planar_weights, Fusion.OPAQUE,
         "weights [M, C, *window] for conv_planar and conv_depthwise: [M/16, C, *window, 16]")
register("pack_matrix", "matrix", _infer_pack_matrix, _pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] in panels of 16 columns: [N/16, K, 16]")
register("join_channels", "*images", _infer_join_channels, _join_channels, Fusion.OPAQUE,
         "some of the channels of channel-blocked images, one behind the other",
         attributes={"channels": Attribute(Kind.INTS, "of each image"),
                     "start": Attribute(Kind.INT, "the first that is taken", 0),
                     "count": Attribute(Kind.INT, "how many are taken"),
                     "turns": Attribute(Kind.INT, f"the parts of them, of one size, that take turns: {TURNS}", 1),
                     "apart": Attribute(Kind.INT, "the parts of them, of one size, that begin with a block each", 1)})
register("group_normalization_blocked", "x scale bias", _infer_group_blocked, _group_blocked, Fusion.ANCHOR,
         "group_normalization of a channel-blocked image; scale and bias are packed",
         attributes={"groups": Attribute(Kind.INT, "how many groups the channels are parted into"),
                     "channels": _CHANNELS, "epsilon": EPSILON}, work=each_input(7))
register("conv_blocked", "x weight bias?", _infer_conv_blocked, _conv_blocked, Fusion.ANCHOR,
         "convolution of a channel-blocked image; groups begin with a block, or `outputs` tells how narrow they are",
         attributes=WINDOW | _GROUPS | {"channels": _CHANNELS_EACH, "outputs": _OUTPUTS_EACH}, work=of_blocked_convolution)
register("conv_planar", "x weight bias?", _infer_conv_planar, _conv_planar, Fusion.ANCHOR,
         "convolution of an image of few channels [N, C, *spatial], with a channel-blocked result", attributes=WINDOW,
         work=of_blocked_convolution)
register("conv_to_few", "x weight bias?", _infer_conv_to_few, _conv_to_few, Fusion.ANCHOR,
         f"convolution of a channel-blocked image to {FEW} channels at most; the weights are channel-blocked as images are",
         attributes=WINDOW | {"channels": _CHANNELS}, work=of_convolution_to_few)
register("conv_depthwise", "x weight bias?", _infer_conv_depthwise, _conv_depthwise, Fusion.ANCHOR,
         "convolution of each channel of a channel-blocked image by itself, or of each group of as many channels as come out, "
         "2, 4 or 8; of floats or 8-bit integers less a zero point",
         attributes=WINDOW | {"zero": Attribute(Kind.INT, "point of integers", 0)},
         work=of_blocked_convolution)
register("matmul_packed", "a panels", _infer_matmul_packed, _matmul_packed, Fusion.ANCHOR,
         "the matrix product with a packed matrix of float32, of float16, or of the upper halves of float32 as uint16",
         attributes={"columns": Attribute(Kind.INT, "of the matrix")},
         work=of_product)
register("matmul_transposed", "a b", _infer_matmul_transposed, _matmul_transposed, Fusion.ANCHOR,
         "the matrix product of operands whose last two axes are exchanged first",
         attributes={"transpose_a": Attribute(Kind.BOOL, "exchange those of a", False),
                     "transpose_b": Attribute(Kind.BOOL, "exchange those of b", False)}, work=of_product)
# fmt: on
