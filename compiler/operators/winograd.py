"""Winograd's minimal filtering: a 3x3 convolution of stride 1 by fewer multiplications.

    Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015; Toom and Cook's interpolation underneath.

A tile of m x m outputs comes from a x a inputs, a = m + 2, as  A^T [ (G g G^T) * (B^T d B) ] A:  an element of the bracket
is a product summed over channels alone, a matrix product over all tiles. Here m is 2 or 4; a tile of 6 would multiply less
still, but loses ten times the precision.

The weights g are transformed once, by an operator that is folded. Transformed ones are up to four times as large: where an
image is so small that to bring them from memory would take longer than to multiply, they stay *raw*, and are transformed
each time that they are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...formats.constants import aligned_array
from ...formats.types import ShapeDim, TensorType
from .packing import BLOCK, CHANNELS, blocks_of, require_bias, require_blocked
from .shapes import FLOAT32, integer, match_dim, mismatch, require_rank, same_dtype
from .table import Attribute, Fusion, Kind, register
from .windows import axes, result_shape
from .work import Types, Work, elements

WINDOW_SIZE = 3

# Where polynomials are evaluated, beside infinity, by the outputs of a tile. Of the points whose transforms cost the same,
# these err least: with exact sums by 1.5 times what the direct algorithm's sums lose, where the usual 1 and 2 take twice that.
_POINTS = {2: (0, 1, -1), 4: (0, 11 / 16, -11 / 16, 3 / 2, -3 / 2)}

# In multiply-adds of a vector: what a tile's transforms take for each element of a block, and what transforming a raw window
# takes; how much longer raw weights' products take, which want more from the first cache. By how much fewer multiplications must
# be better, as they are paid with larger weights.
_TRANSFORM_COST, _RAW_COST, _RAW_SLOWER, _LEAST_GAIN = 8, 54, 1.14, 1.2

# The same of bringing a vector of weights from memory; from the caches, where so many bytes may stay from the call before, and
# where so many images take the same weights one after another.
_LOAD_COST, _NEAR_LOAD_COST, _NEAR_BYTES, _MANY_IMAGES = 16, 8, 2 << 20, 4

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

    def unscaled(self) -> Transforms:
        """Those of the same tiles whose weights are plain values of polynomials: the output is scaled instead."""
        scale = np.array([row[np.flatnonzero(row)[0]] for row in self.of_weights])
        return replace(self, of_weights=self.of_weights / scale[:, None], of_output=self.of_output * scale)


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


RAW_OUTPUTS = 4  # along a side of the tiles that are computed by raw weights
_LEAST_RAW_ROWS = 3
WIDE_REGISTERS = 32  # of a block each, as AVX-512 has them


def raw_rows(registers: int) -> int | None:
    """Tiles that raw weights, once transformed, are multiplied with at a time: a line of products of each is in registers. None
    where there is room for too few: windows are transformed to the first cache then, for all tiles."""
    rows = registers // transforms(RAW_OUTPUTS).inputs - 1
    return min(4, rows) if rows >= _LEAST_RAW_ROWS else None


@dataclass(frozen=True)
class Tiles:
    """By which tiles a convolution is computed."""

    outputs: int  # along a side
    is_raw: bool = False  # whether weights are transformed where they are used

    def __str__(self) -> str:
        return f"{self.outputs} raw" if self.is_raw else f"{self.outputs}"

    def cost(self, problem: Problem, registers: int) -> float:
        """Of an image, in multiply-adds of a vector, or what takes as long."""
        area = transforms(self.outputs).inputs ** 2
        tiles = -(-problem.lines // self.outputs) * -(-problem.columns // self.outputs)
        products: float = area * max(tiles, problem.load_cost(area))
        if self.is_raw:
            rows = min(tiles, raw_rows(registers) or tiles)
            sums = -(-tiles // rows) * (area * rows + _RAW_COST)
            products = max(sums * _RAW_SLOWER, WINDOW_SIZE**2 * problem.load_cost(WINDOW_SIZE**2))
        transforming = problem.channels / BLOCK + problem.blocks
        return problem.vectors * products + area * tiles * _TRANSFORM_COST * transforming


TILES = (*map(Tiles, _POINTS), Tiles(RAW_OUTPUTS, is_raw=True))  # all that there are


class Problem(NamedTuple):
    """A 3x3 convolution of stride 1: the sizes of its result, and how many channels are summed."""

    images: int
    channels: int
    blocks: int  # of output channels
    lines: int
    columns: int

    @property
    def vectors(self) -> int:
        """Of weights, for each pixel of a window or element of a tile."""
        return self.channels * self.blocks

    def load_cost(self, area: int) -> int:
        """Of bringing a vector of weights, which have so many elements for each channel and output."""
        is_near = self.images >= _MANY_IMAGES or area * self.vectors * 4 * BLOCK <= _NEAR_BYTES
        return _NEAR_LOAD_COST if is_near else _LOAD_COST


WinogradChoice = Callable[[Problem], "Tiles | None"]  # None for another algorithm


def best_tiles(problem: Problem, *, registers: int = WIDE_REGISTERS) -> Tiles | None:
    """The tiles by which a convolution takes the least time, on a CPU that has registers for so many blocks; None if the
    direct algorithm does."""
    window = WINDOW_SIZE**2
    direct = max(problem.lines * problem.columns, problem.load_cost(window)) * problem.vectors * window
    shorter = min(problem.lines, problem.columns)
    costs = {tiles: tiles.cost(problem, registers) for tiles in TILES if tiles.outputs <= shorter}
    best = min(costs, key=costs.__getitem__, default=None)
    return best if best and costs[best] < direct / _LEAST_GAIN else None


def _infer_pack_winograd_weights(inputs: Sequence[TensorType], outputs: int) -> TensorType:
    (weight,) = inputs
    require_rank(weight, 4, "weights [M, C, 3, 3]")
    if outputs not in _POINTS or weight.shape[2:] != (WINDOW_SIZE, WINDOW_SIZE):
        raise mismatch(f"a window of 3x3, and tiles of {' or '.join(map(str, _POINTS))}", weight)
    size = transforms(outputs).inputs
    return TensorType(weight.dtype, (blocks_of(weight.shape[0]), size, size, weight.shape[1], BLOCK))


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
    weight = inputs[1]
    _check_image(inputs)
    sizes = [transforms(outputs).inputs for outputs in _POINTS]
    if weight.rank != 5 or weight.shape[1] != weight.shape[2] or weight.shape[1] not in sizes:
        raise mismatch(f"transformed weights [blocks, a, a, C, {BLOCK}], a one of {sizes}", weight)
    taps = _taps(weight, channels)
    if weight.shape[3:] != (taps * channels, BLOCK):
        raise mismatch(f"weights of {channels} channels", weight)
    return _result(inputs, taps, pads, channels)


def _infer_conv_winograd_raw(inputs: Sequence[TensorType], pads: tuple, channels: int) -> TensorType:
    weight = inputs[1]
    _check_image(inputs)
    if weight.rank != 6 or weight.shape[2:] != (WINDOW_SIZE, WINDOW_SIZE, BLOCK, BLOCK):
        raise mismatch(f"packed weights [blocks, C/16, 3, 3, {BLOCK}, {BLOCK}]", weight)
    taps = raw_taps(weight.shape, channels)
    if weight.shape[1] != taps * -(-channels // BLOCK):
        raise mismatch(f"weights of {channels} channels", weight)
    return _result(inputs, taps, pads, channels)


def _check_image(inputs: Sequence[TensorType]) -> None:
    same_dtype(inputs, FLOAT32)
    require_blocked(inputs[0])
    if inputs[0].rank not in (5, 6):
        raise mismatch("a channel-blocked image or volume", inputs[0])


def _result(inputs: Sequence[TensorType], taps: int, pads: tuple, channels: int) -> TensorType:
    x, weight = inputs[0], inputs[1]
    if taps != 1 and (x.rank == 5 or channels % BLOCK):
        raise mismatch(f"weights of {channels} channels", weight)
    window = (taps, WINDOW_SIZE, WINDOW_SIZE)[6 - x.rank :]
    match_dim(blocks_of(channels), x.shape[1])
    require_bias(inputs, weight.shape[0])
    spatial = result_shape(x.shape[2:-1], axes(window, None, pads, None))
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *spatial, BLOCK))


def _taps(weight: TensorType, channels: int) -> int:
    """The slices of a volume that the window meets."""
    return integer(weight.shape[3]) // channels if channels > 0 else 0


def raw_taps(shape: Sequence[ShapeDim], channels: int) -> int:
    """The same, by the shape of raw weights."""
    return integer(shape[1]) // -(-channels // BLOCK) if channels > 0 else 0


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


def _conv_winograd_raw(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, pads: tuple, channels: int
) -> np.ndarray:
    by_output = weight.transpose(0, 5, 1, 4, 2, 3).reshape(len(weight) * BLOCK, -1, WINDOW_SIZE, WINDOW_SIZE)
    summed = by_output[:, : raw_taps(weight.shape, channels) * channels].astype(np.float64)
    return _conv_winograd(x, _pack_winograd_weights(summed, RAW_OUTPUTS), bias, pads=pads, channels=channels)


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
    weight = inputs[1]
    return _work_of(results[0], integer(weight.shape[1]) - WINDOW_SIZE + 1, channels * _taps(weight, channels))


def _raw_work(inputs: Types, results: Types, channels: int, **attributes: Any) -> Work:
    """The weights' transformation once an image too."""
    result, weight = results[0], inputs[1]
    channels *= raw_taps(weight.shape, channels)
    work = _work_of(result, RAW_OUTPUTS, channels)
    images, blocks, *slices = map(integer, result.shape[:-3])
    windows = math.prod((images, *slices)) * blocks * BLOCK * channels
    return work._replace(done=work.done + 2 * windows * _RAW_COST)


def _work_of(result: TensorType, outputs: int, channels: int) -> Work:
    """The products of all tiles; and the transforms of inputs and outputs, zeros of the matrices left out."""
    batch, blocks, *slices, lines, columns = map(integer, result.shape[:-1])
    chosen = transforms(outputs)
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
         attributes={"pads": Attribute(Kind.INTS, "(front), top, left, (back), bottom, right", None), "channels": CHANNELS},
         work=_work)
register("conv_winograd_raw", "x weight bias?", _infer_conv_winograd_raw, _conv_winograd_raw, Fusion.ANCHOR,
         "conv_winograd with weights as conv_blocked has them, which are transformed where they are used",
         attributes={"pads": Attribute(Kind.INTS, "(front), top, left, (back), bottom, right", None), "channels": CHANNELS},
         work=_raw_work)
# fmt: on
