"""Packing: memory layouts for fast kernels, in blocks of 16. Passes insert these operators into graphs; no frontend makes
them.

A channel-blocked image is an ordinary tensor [N, C/16, *spatial, 16]. If 16 does not divide the channels, the lanes
beyond the last channel are undefined: no operator lets them reach a channel. Weights are packed with zeros there. A
matrix [K, N] is packed into panels of 16 columns, [N/16, K, 16].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .....formats import limits
from .....formats.types import ShapeDim, TensorType
from ....operators.shapes import ceildiv, mismatch, require_rank
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS

BLOCK = 16  # channels, or columns: elements of a vector on every CPU; where registers are shorter, several make one
CHANNELS = Attribute(Kind.INT, "channels of the image")
CHANNELS_EACH = Attribute(Kind.INT, "channels of the image, in each group")

_LAST = Attribute(Kind.BOOL, "the channels of the ordinary image lie last, [N, *spatial, C]", False)


def blocks_of(size: ShapeDim) -> ShapeDim:
    """The number of blocks for `size` channels or columns."""
    return ceildiv(size, BLOCK)


def require_image(x: TensorType, what: str) -> None:
    """Requires channels, and at least one spatial axis; `what` names the tensor in messages."""
    if x.rank < 3:
        raise mismatch(what, x)


def require_blocked(x: TensorType) -> None:
    """Requires a channel-blocked image, as far as its type tells."""
    if x.rank < 4 or x.shape[-1] != BLOCK:
        raise mismatch(f"a channel-blocked image [N, blocks, *spatial, {BLOCK}]", x)


def require_vector(vector: TensorType, blocks: ShapeDim, what: str) -> None:
    """Requires one number per channel, packed by `pack_vector`."""
    if vector.shape != (blocks, *(1,) * (vector.rank - 2), BLOCK):
        raise mismatch(f"a packed {what} [{blocks}, 1 …, {BLOCK}]", vector)


def require_bias(inputs: Sequence[TensorType], blocks: ShapeDim) -> None:
    """Requires a valid third input of a convolution, if there is one."""
    if len(inputs) > 2:
        require_vector(inputs[2], blocks, "bias")


# ---- the operators ----


def _pad_axis(x: np.ndarray, axis: int) -> np.ndarray:
    """x with zeros at the end of an axis, up to a multiple of BLOCK."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % BLOCK)
    return np.pad(x, widths) if widths[axis][1] else x


def _infer_pack_channels(inputs: Sequence[TensorType], last: bool) -> TensorType:
    (x,) = inputs
    require_image(x, "an image [N, C, *spatial]")
    n, channels, *spatial = (x.shape[0], x.shape[-1], *x.shape[1:-1]) if last else x.shape
    return TensorType(x.dtype, (n, blocks_of(channels), *spatial, BLOCK))


def pack_channels(x: np.ndarray, last: bool = False) -> np.ndarray:
    """[N, C, *spatial], or [N, *spatial, C] with channels last, as [N, C/16, *spatial, 16] with zeros after the channels."""
    x = np.moveaxis(x, -1, 1) if last else x
    padded = _pad_axis(x, 1)
    return np.moveaxis(padded.reshape(len(x), padded.shape[1] // BLOCK, BLOCK, *x.shape[2:]), 2, -1)


def _infer_unpack_channels(inputs: Sequence[TensorType], channels: int, last: bool) -> TensorType:
    (x,) = inputs
    require_blocked(x)
    if blocks_of(channels) != x.shape[1]:
        raise mismatch(f"{blocks_of(channels)} blocks for {channels} channels", x)
    n, spatial = x.shape[0], x.shape[2:-1]
    return TensorType(x.dtype, (n, *spatial, channels) if last else (n, channels, *spatial))


def unpack_channels(x: np.ndarray, channels: int, last: bool = False) -> np.ndarray:
    """The inverse of packing, for `channels` channels."""
    n, blocks, *spatial, _ = x.shape
    image = np.moveaxis(x, -1, 2).reshape(n, blocks * BLOCK, *spatial)[:, :channels]
    return np.moveaxis(image, 1, -1) if last else image


def _infer_pack_vector(inputs: Sequence[TensorType], axes: int) -> TensorType:
    (x,) = inputs
    require_rank(x, 1, "a vector")
    if not 1 <= axes <= limits.RANK:
        raise mismatch(f"1 … {limits.RANK} spatial axes", axes)
    return TensorType(x.dtype, (blocks_of(x.shape[0]), *(1,) * axes, BLOCK))


def _pack_vector(x: np.ndarray, axes: int) -> np.ndarray:
    return _pad_axis(x, 0).reshape(-1, *(1,) * axes, BLOCK)


@dataclass(frozen=True)
class NarrowGroups:
    """Groups of channels that do not begin on a block boundary: a block of results is computed from a *band* of channels,
    those of all the groups that have results in it. Its weights are zero between channels of different groups."""

    count: int
    channels: int  # of a group
    outputs: int  # of a group

    @staticmethod
    def of(groups: int, channels: int, outputs: int) -> NarrowGroups | None:
        """None for groups whose channels and outputs begin on a block boundary, or that have no outputs; also for those of more
        than one block, for which computing several blocks of results at once is better."""
        if groups == 1 or not 0 < outputs <= BLOCK or channels % BLOCK == outputs % BLOCK == 0:
            return None
        return NarrowGroups(groups, channels, outputs)

    @property
    def image_blocks(self) -> int:
        return -(-self.count * self.channels // BLOCK)

    @property
    def blocks(self) -> int:
        """Blocks of the result."""
        return -(-self.count * self.outputs // BLOCK)

    def band(self, block: int) -> tuple[int, int]:
        """The first channel of a band, and the one after its last."""
        last = min((block + 1) * BLOCK, self.count * self.outputs) - 1
        return block * BLOCK // self.outputs * self.channels, (last // self.outputs + 1) * self.channels

    @property
    def _kinds(self) -> list[int]:
        """Blocks with bands of all kinds: after as many blocks as a group has outputs, the pattern of bands repeats. There may
        be any number of blocks."""
        return [*range(min(self.blocks, self.outputs + 1)), self.blocks - 1]

    @cached_property
    def width(self) -> int:
        """The blocks of the image in the widest band: weights are packed for that many."""
        bands = map(self.band, self._kinds)
        return max(-(-end // BLOCK) - begin // BLOCK for begin, end in bands)

    def first(self, block: int) -> int:
        """The first block of the image for which the weights of a block of results are packed."""
        return min(self.band(block)[0] // BLOCK, self.image_blocks - self.width)

    @property
    def are_even(self) -> bool:
        """Whether each band is a block of the image, that of the same number."""
        return all(self.band(block) == (block * BLOCK, (block + 1) * BLOCK) for block in self._kinds)

    def places(self, output: int) -> slice:
        """The positions of an output's weights in its block, whose channels begin with those of `first`."""
        begin = output // self.outputs * self.channels - self.first(output // BLOCK) * BLOCK
        return slice(begin, begin + self.channels)


def _infer_pack_weights(inputs: Sequence[TensorType], groups: int) -> TensorType:
    (weight,) = inputs
    require_image(weight, "weights [M, C / groups, *window]")
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
    require_image(weight, "weights [M, C, *window]")
    return TensorType(weight.dtype, (blocks_of(weight.shape[0]), *weight.shape[1:], BLOCK))


def _pack_planar_weights(weight: np.ndarray) -> np.ndarray:
    padded = _pad_axis(weight, 0)
    return np.moveaxis(padded.reshape(padded.shape[0] // BLOCK, BLOCK, *weight.shape[1:]), 1, -1)


def _infer_pack_matrix(inputs: Sequence[TensorType]) -> TensorType:
    (matrix,) = inputs
    require_rank(matrix, 2, "a matrix")
    return TensorType(matrix.dtype, (blocks_of(matrix.shape[1]), matrix.shape[0], BLOCK))


def pack_matrix(matrix: np.ndarray) -> np.ndarray:
    """[K, N] in panels [N/16, K, 16], with zeros after the last column: a view, if there are none."""
    padded = _pad_axis(matrix, 1)
    return padded.reshape(matrix.shape[0], padded.shape[1] // BLOCK, BLOCK).transpose(1, 0, 2)


def unpack_matrix(panels: np.ndarray) -> np.ndarray:
    """The matrix of these panels, with all columns of the last one."""
    return panels.transpose(1, 0, 2).reshape(panels.shape[1], len(panels) * BLOCK)


# fmt: off
register("pack_channels", "x", _infer_pack_channels, pack_channels, Fusion.OPAQUE,
         "an image [N, C, *spatial] channel-blocked: [N, C/16, *spatial, 16]", attributes={"last": _LAST})
register("unpack_channels", "x", _infer_unpack_channels, unpack_channels, Fusion.OPAQUE,
         "a channel-blocked image as [N, C, *spatial]", attributes={"channels": CHANNELS, "last": _LAST})
register("pack_vector", "x", _infer_pack_vector, _pack_vector, Fusion.OPAQUE,
         "one number a channel [C] as [C/16, 1 …, 16], which broadcasts to channel-blocked images",
         attributes={"axes": Attribute(Kind.INT, "spatial axes of the images", 2)})
register("pack_weights", "weight", _infer_pack_weights, _pack_weights, Fusion.OPAQUE,
         "weights [M, C / groups, *window] for conv_blocked", attributes=GROUPS)
register("pack_planar_weights", "weight", _infer_pack_planar_weights, _pack_planar_weights, Fusion.OPAQUE,
         "weights [M, C, *window] for conv_planar and conv_depthwise: [M/16, C, *window, 16]")
register("pack_matrix", "matrix", _infer_pack_matrix, pack_matrix, Fusion.OPAQUE,
         "a matrix [K, N] in panels of 16 columns: [N/16, K, 16]")
# fmt: on
