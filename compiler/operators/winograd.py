"""Winograd's minimal filtering: a 3x3 convolution of stride 1 by fewer multiplications.

    Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015; Toom and Cook's interpolation underneath.

A tile of m x m outputs comes from a x a inputs, a = m + 2, as  A^T [ (G g G^T) * (B^T d B) ] A:  an element of the bracket
is a product summed over channels alone, a matrix product over all tiles. The weights g are transformed once, by an operator
that is folded. Here m is 2 or 4; a tile of 6 would multiply less still, but loses ten times the precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...formats.constants import aligned_array
from ...formats.types import TensorType
from .blocked import _CHANNELS, _FLOAT32, BLOCK, _blocks, _check_bias, _is_blocked
from .shapes import integer, match_dim, mismatch, require_rank, same_dtype
from .table import Attribute, Fusion, Kind, register
from .windows import axes, result_shape
from .work import Types, Work, elements

WINDOW_SIZE = 3

# Where polynomials are evaluated, beside infinity, by the outputs of a tile. Of the points whose transforms cost the same,
# these err least: with exact sums by 1.5 times what the direct algorithm's sums lose, where the usual 1 and 2 take twice that.
_POINTS = {2: (0, 1, -1), 4: (0, 11 / 16, -11 / 16, 3 / 2, -3 / 2)}

# What a tile's transforms take for each element of a block, in multiply-adds of a vector; what bringing a vector of weights
# from memory takes; by how much fewer multiplications must be better, as they are paid with larger weights.
_TRANSFORM_COST, _LOAD_COST, _LEAST_GAIN = 8, 16, 1.2

_CHANNELS_AT_ONCE = 32  # whose weights are transformed


@dataclass(frozen=True)
class Transforms:
    """The matrices of a tile of `outputs` x `outputs`; all elements of two of them are short binary fractions."""

    outputs: int
    of_weights: np.ndarray  # G [a, 3]
    of_input: np.ndarray  # B^T [a, a]
    of_output: np.ndarray  # A^T [outputs, a]

    @property
    def inputs(self) -> int:
        """Pixels along a side of what a tile is computed from."""
        return self.outputs + WINDOW_SIZE - 1


@cache
def transforms(outputs: int) -> Transforms:
    """Those for tiles of so many outputs along a side."""
    points = np.array(_POINTS[outputs], np.float64)
    size = len(points) + 1

    def powers(count: int) -> np.ndarray:
        at_infinity = np.eye(count)[-1:]
        return np.vstack([np.vander(points, count, increasing=True), at_infinity])

    scale = np.array([*(np.prod([p - q for q in points if q != p]) for p in points), 1.0])[:, None]
    of_input = np.linalg.inv(powers(size)).T * scale
    fractions = np.round(of_input * 4096) / 4096  # what they are, without the inversion's rounding
    return Transforms(outputs, powers(WINDOW_SIZE) / scale, fractions, powers(outputs).T)


TILES = tuple(_POINTS)  # the sides that tiles of outputs may have

# (channels, blocks of output channels, lines, columns) → the side of the tiles; None for another algorithm
WinogradChoice = Callable[[int, int, int, int], "int | None"]


def best_outputs(channels: int, blocks: int, lines: int, columns: int) -> int | None:
    """The side of the tiles by which such a convolution of one image takes the least time; None if the direct one does."""
    every = channels * blocks
    direct = max(lines * columns, _LOAD_COST) * every * WINDOW_SIZE**2
    best, least = None, direct / _LEAST_GAIN
    for outputs in _POINTS:
        if outputs > min(lines, columns):
            continue
        area = transforms(outputs).inputs ** 2
        tiles = -(-lines // outputs) * -(-columns // outputs)
        cost = area * (max(tiles, _LOAD_COST) * every + tiles * _TRANSFORM_COST * (channels / BLOCK + blocks))
        if cost < least:
            best, least = outputs, cost
    return best


def _infer_pack_winograd_weights(inputs: Sequence[TensorType], outputs: int) -> TensorType:
    (weight,) = inputs
    require_rank(weight, 4, "weights [M, C, 3, 3]")
    if outputs not in _POINTS or weight.shape[2:] != (WINDOW_SIZE, WINDOW_SIZE):
        raise mismatch(f"a window of 3x3, and tiles of {' or '.join(map(str, _POINTS))}", weight)
    size = transforms(outputs).inputs
    return TensorType(weight.dtype, (_blocks(weight.shape[0]), size, size, weight.shape[1], BLOCK))


def _pack_winograd_weights(weight: np.ndarray, outputs: int) -> np.ndarray:
    """Both sides of a window at once, as one product [a², 9] · [9, channels · 16]: of so few channels that the caches hold it,
    and that BLAS, which would wait for its threads each time, does it on one."""
    matrix = transforms(outputs).of_weights
    size, (count, channels) = len(matrix), weight.shape[:2]
    both_sides = np.kron(matrix, matrix)
    result = aligned_array((-(-count // BLOCK), size, size, channels, BLOCK), weight.dtype)
    for block, first in itertools.product(range(len(result)), range(0, channels, _CHANNELS_AT_ONCE)):
        some = slice(first, first + _CHANNELS_AT_ONCE)
        part, whole = weight[block * BLOCK : (block + 1) * BLOCK, some], result[block, :, :, some]
        windows = np.zeros((WINDOW_SIZE**2, part.shape[1], BLOCK))
        windows[:, :, : len(part)] = part.reshape(*part.shape[:2], -1).T
        whole[...] = (both_sides @ windows.reshape(len(windows), -1)).reshape(whole.shape)
    return result


def _infer_conv_winograd(inputs: Sequence[TensorType], pads: tuple, channels: int) -> TensorType:
    x, weight = inputs[0], inputs[1]
    same_dtype(inputs, _FLOAT32)
    _is_blocked(x)
    if x.rank not in (5, 6):
        raise mismatch("a channel-blocked image or volume", x)
    sizes = [transforms(outputs).inputs for outputs in _POINTS]
    if weight.rank != 5 or weight.shape[1] != weight.shape[2] or weight.shape[1] not in sizes:
        raise mismatch(f"transformed weights [blocks, a, a, C, {BLOCK}], a one of {sizes}", weight)
    taps = _taps(weight, channels)
    if weight.shape[3:] != (taps * channels, BLOCK) or (taps != 1 and (x.rank == 5 or channels % BLOCK)):
        raise mismatch(f"weights of {channels} channels", weight)
    match_dim(_blocks(channels), x.shape[1])
    _check_bias(inputs, weight.shape[0])
    window = (taps, WINDOW_SIZE, WINDOW_SIZE)[6 - x.rank :]
    spatial = result_shape(x.shape[2:-1], axes(window, None, pads, None))
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *spatial, BLOCK))


def _taps(weight: TensorType, channels: int) -> int:
    """The slices of a volume that the window meets."""
    return integer(weight.shape[3]) // channels if channels > 0 else 0


def _conv_winograd(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, pads: tuple, channels: int
) -> np.ndarray:
    """Of a volume, as a convolution of images, one for each slice of the result."""
    if x.ndim == 5:
        return _of_images(x, weight, bias, pads=pads, channels=channels)
    front, top, left, back, bottom, right = pads or (0,) * 6
    taps = weight.shape[3] // channels
    padded = np.pad(x, [(0, 0), (0, 0), (front, back), *((0, 0),) * 3])
    slices = range(padded.shape[2] - taps + 1)
    images = [np.concatenate([padded[:, :, first + tap] for tap in range(taps)], axis=1) for first in slices]
    around, both = (top, left, bottom, right), taps * channels
    bias = None if bias is None else bias[:, 0]  # with an axis less
    return np.stack([_of_images(image, weight, bias, pads=around, channels=both) for image in images], axis=2)


def _of_images(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, pads: tuple, channels: int
) -> np.ndarray:
    blocks, size = weight.shape[:2]
    chosen = transforms(size - WINDOW_SIZE + 1)
    step = chosen.outputs
    top, left, bottom, right = pads or (0, 0, 0, 0)
    lines, columns = x.shape[2] + top + bottom - 2, x.shape[3] + left + right - 2
    down, across = -(-lines // step), -(-columns // step)
    image = np.pad(
        x.transpose(0, 1, 4, 2, 3).reshape(len(x), -1, *x.shape[2:4])[:, :channels].astype(np.float64),
        ((0, 0), (0, 0), (top, bottom + down * step - lines), (left, right + across * step - columns)),
    )
    tiles = np.lib.stride_tricks.sliding_window_view(image, (size, size), (2, 3))[:, :, ::step, ::step]
    spectrum = chosen.of_input @ tiles @ chosen.of_input.T
    products = np.einsum("ncyxij,bijck->nbyxkij", spectrum, weight.astype(np.float64), optimize=True)
    pixels = chosen.of_output @ products @ chosen.of_output.T  # [n, blocks, down, across, 16, step, step]
    whole = pixels.transpose(0, 1, 2, 5, 3, 6, 4).reshape(len(x), blocks, down * step, across * step, BLOCK)
    result = whole[:, :, :lines, :columns]
    return (result if bias is None else result + bias).astype(x.dtype)


def _work(inputs: Types, results: Types, channels: int, **attributes: Any) -> Work:
    """The products of all tiles; and the transforms of inputs and outputs, zeros of the matrices left out."""
    result, weight = results[0], inputs[1]
    batch, blocks, *slices, lines, columns = map(integer, result.shape[:-1])
    chosen = transforms(integer(weight.shape[1]) - WINDOW_SIZE + 1)
    channels *= _taps(weight, channels)
    tiles = math.prod((batch, *slices)) * -(-lines // chosen.outputs) * -(-columns // chosen.outputs)
    products = chosen.inputs**2 * channels * blocks * BLOCK
    of_input = 2 * chosen.inputs * int(np.count_nonzero(chosen.of_input)) * channels
    of_output = (chosen.inputs + chosen.outputs) * int(np.count_nonzero(chosen.of_output)) * blocks * BLOCK
    return Work(2 * tiles * (products + of_input + of_output), 2 * elements(result) * channels * WINDOW_SIZE**2)


# fmt: off
register("pack_winograd_weights", "weight", _infer_pack_winograd_weights, _pack_winograd_weights, Fusion.OPAQUE,
         "weights [M, C, 3, 3] transformed for conv_winograd: [M/16, a, a, C, 16]",
         attributes={"outputs": Attribute(Kind.INT, "pixels along a side of a tile")})
register("conv_winograd", "x weight bias?", _infer_conv_winograd, _conv_winograd, Fusion.ANCHOR,
         "convolution of a channel-blocked image with a 3x3 window, by Winograd's algorithm; or of a volume, with weights of the "
         "channels of each slice that the window meets",
         attributes={"pads": Attribute(Kind.INTS, "(front), top, left, (back), bottom, right", None), "channels": _CHANNELS},
         work=_work)
# fmt: on
