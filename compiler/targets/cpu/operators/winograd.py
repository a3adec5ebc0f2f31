"""Winograd's minimal filtering: a convolution of stride 1 by fewer multiplications.

    Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015; Toom and Cook's interpolation underneath.

A tile of m x m outputs of an r x r window comes from a x a inputs, a = m + r - 1, as  A^T [ (G g G^T) * (B^T d B) ] A:  an
element of the bracket is a product summed over channels alone, a matrix product over all tiles. Here r is 3 or 5, and a is 4 or
6; a tile of 8 would multiply less still, but loses ten times the precision. Other windows are filled up with zeros and parted in
pieces of 3, whose products are added up as those of channels are. Along an axis where the window has one pixel only, as that of a
signal has in all but one, nothing is to be done: m, r and a are 1. The pixels of a dilated window are `dilation` apart, and so
are the inputs and outputs of its tiles.

The weights g are transformed once, by an operator that is folded. Transformed ones are up to four times as large: where an
image is so small that to bring them from memory would take longer than to multiply, they stay *raw*, and are transformed
each time that they are used. These are of 3x3 windows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .....formats import dims
from .....formats.constants import aligned_array
from .....formats.dims import Dim
from .....formats.types import ShapeDim, TensorType
from ....operators.shapes import FLOAT32, integer, lift, match_dim, mismatch, same_dtype
from ....operators.table import Attribute, Fusion, Kind, register
from ....operators.windows import GROUPS, axes, result_shape
from ....operators.work import Types, Work, elements
from .. import costs
from .packing import BLOCK, CHANNELS_EACH, blocks_of, require_bias, require_blocked

WINDOW_SIZE = 3  # the usual one, and that of a piece
_USUAL = (WINDOW_SIZE, WINDOW_SIZE)

# Where polynomials are evaluated, beside infinity, by the inputs of a tile. Of the points whose transforms cost the same,
# these err least: with exact sums by 1.5 times what the direct algorithm's sums lose, where the usual 1 and 2 take twice that.
_POINTS = {1: (), 4: (0, 1, -1), 6: (0, 11 / 16, -11 / 16, 3 / 2, -3 / 2)}


_CHANNELS_AT_ONCE = 32  # whose weights are transformed


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(outputs, window) along one axis; all elements of two of them are short binary fractions."""

    outputs: int
    window: int
    of_weights: np.ndarray  # G [a, window]
    of_input: np.ndarray  # B^T [a, a]
    of_output: np.ndarray  # A^T [outputs, a]

    @property
    def inputs(self) -> int:
        """Pixels of what a tile is computed from."""
        return self.outputs + self.window - 1

    @property
    def is_identity(self) -> bool:
        """Whether there is nothing to be done along the axis."""
        return self.inputs == 1

    def unscaled(self) -> Transforms:
        """Those of the same tiles whose weights are plain values of polynomials: the output is scaled instead."""
        scale = np.array([row[np.flatnonzero(row)[0]] for row in self.of_weights])
        return replace(self, of_weights=self.of_weights / scale[:, None], of_output=self.of_output * scale)


@cache
def transforms(outputs: int, window: int = WINDOW_SIZE) -> Transforms:
    """The matrices of F(outputs, window)."""
    points = np.array(_POINTS[outputs + window - 1], np.float64)
    size = len(points) + 1

    def powers(count: int) -> np.ndarray:
        at_infinity = np.eye(count)[-1:]
        return np.vstack([np.vander(points, count, increasing=True), at_infinity])

    scale = np.array([*(np.prod([p - q for q in points if q != p]) for p in points), 1.0])[:, None]
    of_input = np.linalg.inv(powers(size)).T * scale
    fractions = np.round(of_input * 4096) / 4096  # what they are, without the inversion's rounding
    return Transforms(outputs, window, powers(window) / scale, fractions, powers(outputs).T)


def of_weights(shape: Sequence[int], window: Sequence[int]) -> tuple[Transforms, Transforms]:
    """Those down and across that transformed weights [blocks, a, a, C, 16] ask for, of such a window."""
    sizes = (size // pieces_of(size) for size in of_image(window))
    down, across = (transforms(a - size + 1, size) for a, size in zip(shape[1:3], sizes, strict=True))
    return down, across


def of_image(window: Sequence[int]) -> tuple[int, int]:
    """Lines and columns of a window; that of a signal has one line."""
    lines, columns = (1, *window)[-2:]
    return lines, columns


def tiles_along(length: Dim, outputs: int, dilation: int) -> Dim:
    """The number of tiles along an axis; with dilation d, d interleaved series of tiles."""
    return dims.multiply(dims.ceildiv(length, outputs * dilation), dilation)


def pieces_of(size: int) -> int:
    """The pieces that a window, filled up already, is parted in along an axis."""
    return 1 if size % WINDOW_SIZE else size // WINDOW_SIZE


RAW_OUTPUTS = 4  # along a side of the tiles that are computed by raw weights
_LEAST_RAW_ROWS = 3
WIDE_REGISTERS = 32  # of a block each, as AVX-512 has them


def raw_rows(registers: int) -> int | None:
    """Tiles that raw weights, once transformed, are multiplied with at a time: a line of products of each is in registers. None
    where there is room for too few: windows are transformed to L1 then, for all tiles."""
    rows = registers // transforms(RAW_OUTPUTS).inputs - 1
    return min(4, rows) if rows >= _LEAST_RAW_ROWS else None


@dataclass(frozen=True)
class Tiles:
    """By which tiles a convolution is computed."""

    outputs: int  # along a side where the window has several pixels
    is_raw: bool = False  # whether weights are transformed where they are used

    def __str__(self) -> str:
        return f"{self.outputs} raw" if self.is_raw else f"{self.outputs}"

    def filled(self, window: Sequence[int]) -> list[int]:
        """A window filled up: along each axis one whole piece, or several of the usual size."""
        wholes = (size == 1 or self.outputs + size - 1 in _POINTS for size in window)
        usual = (-(-size // WINDOW_SIZE) * WINDOW_SIZE for size in window)
        return [size if is_whole else more for size, is_whole, more in zip(window, wholes, usual, strict=True)]

    def added(self, window: Sequence[int], dilations: Sequence[int]) -> list[int]:
        """By how much more an image must be padded at its end, along each axis, where the window is filled up."""
        filled = zip(self.filled(window), window, dilations, strict=True)
        return [(full - size) * step for full, size, step in filled]

    def along(self, window: Sequence[int]) -> list[Transforms]:
        """The transforms along each axis of a window that is filled up."""
        return [transforms(1 if size == 1 else self.outputs, size // pieces_of(size)) for size in window]

    def take(self, problem: Problem) -> bool:
        """Whether a convolution may be computed by them."""
        if self.is_raw and (problem.window, problem.dilations) != (_USUAL, (1, 1)):
            return False
        if problem.channels % BLOCK and math.prod(map(pieces_of, self.filled(problem.window))) > 1:
            return False
        sides = zip(problem.window, (problem.lines, problem.columns), strict=True)
        lengths = [length for size, length in sides if size > 1]
        return bool(lengths) and self.outputs <= min(lengths)

    def cost(self, problem: Problem, registers: int) -> float:
        """Of an image, in multiply-adds of a vector, or what takes as long."""
        window = self.filled(problem.window)
        (down, across), pieces = self.along(window), math.prod(map(pieces_of, window))
        area = down.inputs * across.inputs
        tiles = problem.tiles(down, across)
        products: float = area * max(tiles, problem.load_cost(area))
        if self.is_raw:
            rows = min(tiles, raw_rows(registers) or tiles)
            sums = -(-tiles // rows) * (area * rows + costs.WINOGRAD_RAW_TRANSFORM)
            products = max(sums * costs.WINOGRAD_RAW_SLOWER, WINDOW_SIZE**2 * problem.load_cost(WINDOW_SIZE**2))
        transforming = pieces * problem.channels / BLOCK + problem.blocks
        cost = costs.WINOGRAD_TRANSFORM * (2 - down.is_identity - across.is_identity)
        if across.is_identity or problem.dilations[1] > 1:
            cost += costs.WINOGRAD_SINGLE
        return problem.vectors * pieces * products + area * tiles * cost * transforming


TILES = (Tiles(2), Tiles(4), Tiles(RAW_OUTPUTS, is_raw=True))  # all kinds


class Problem(NamedTuple):
    """A convolution of stride 1: the sizes of its result, how many channels are summed, and its window's, lines and columns."""

    images: int
    channels: int
    blocks: int  # of output channels
    lines: int
    columns: int
    window: tuple[int, int] = _USUAL
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1  # each with `channels` and `blocks`

    def tiles(self, *sides: Transforms) -> int:
        """Of an image, by the transforms down and across."""
        lengths = zip((self.lines, self.columns), sides, self.dilations, strict=True)
        return math.prod(integer(tiles_along(length, side.outputs, step)) for length, side, step in lengths)

    @property
    def vectors(self) -> int:
        """Of weights, for each pixel of a window or element of a tile."""
        return self.channels * self.blocks

    @property
    def products(self) -> int:
        """Of the direct algorithm, of vectors."""
        return self.images * self.groups * self.lines * self.columns * self.vectors * math.prod(self.window)

    def load_cost(self, area: int) -> int:
        """The cost of loading a vector of weights, which have `area` elements for each channel and output."""
        is_near = self.images >= costs.NEAR_IMAGES or area * self.vectors * 4 * BLOCK <= costs.NEAR_BYTES
        return costs.NEAR_LOAD if is_near else costs.LOAD


def best_tiles(problem: Problem, *, registers: int = WIDE_REGISTERS) -> Tiles | None:
    """The tiles by which a convolution takes the least time, on a CPU whose registers hold `registers` blocks; None if the
    direct algorithm does."""
    window = math.prod(problem.window)
    direct = max(problem.lines * problem.columns, problem.load_cost(window)) * problem.vectors * window
    times = {tiles: tiles.cost(problem, registers) for tiles in TILES if tiles.take(problem)}
    best = min(times, key=times.__getitem__, default=None)
    return best if best and times[best] < direct / costs.WINOGRAD_GAIN else None


def _infer_pack_winograd_weights(inputs: Sequence[TensorType], outputs: int) -> TensorType:
    (weight,) = inputs
    if not 3 <= weight.rank <= 5 or not weight.is_static or 0 in weight.shape[2:]:
        raise mismatch("weights [M, C, *window] of a known size", weight)
    if outputs not in {tiles.outputs for tiles in TILES}:
        raise mismatch(f"tiles of {' or '.join(str(tiles) for tiles in TILES if not tiles.is_raw)}", outputs)
    count, channels, *sizes = map(integer, weight.shape)
    window = Tiles(outputs).filled(of_image(sizes))
    sides = [each.inputs for each in Tiles(outputs).along(window)]
    summed = math.prod(sizes[:-2]) * math.prod(map(pieces_of, window)) * channels
    return TensorType(weight.dtype, (-(-count // BLOCK), *sides, summed, BLOCK))


def _pack_winograd_weights(weight: np.ndarray, outputs: int) -> np.ndarray:
    """Both sides of a window at once, as one product [a², r²] · [r², channels · 16]: of so few channels that the caches hold it,
    and that BLAS, which would wait for its threads each time, does it on one."""
    window = Tiles(outputs).filled(of_image(weight.shape[2:]))
    down, across = (each.of_weights for each in Tiles(outputs).along(window))
    parted = _by_pieces(weight, window)
    count, channels = parted.shape[:2]
    both_sides = np.kron(down, across)
    result = aligned_array((-(-count // BLOCK), len(down), len(across), channels, BLOCK), weight.dtype)
    for block, first in itertools.product(range(len(result)), range(0, channels, _CHANNELS_AT_ONCE)):
        some = slice(first, first + _CHANNELS_AT_ONCE)
        part, whole = parted[block * BLOCK : (block + 1) * BLOCK, some], result[block, :, :, some]
        windows = np.zeros((both_sides.shape[1], part.shape[1], BLOCK))
        windows[:, :, : len(part)] = part.reshape(*part.shape[:2], -1).T
        whole[...] = (both_sides @ windows.reshape(len(windows), -1)).reshape(whole.shape)
    return result


def _by_pieces(weight: np.ndarray, window: Sequence[int]) -> np.ndarray:
    """Weights [M, C, (slices), (lines), columns] as those of images, [M, slices · pieces · C, lines, columns], of the pieces of a
    window that is filled up."""
    volume = weight.reshape(*weight.shape[:2], *(1,) * (5 - weight.ndim), *weight.shape[2:])
    filled = np.pad(
        volume, [(0, 0)] * 3 + [(0, full - size) for full, size in zip(window, volume.shape[3:], strict=True)]
    )
    (rows, places), (lines, columns) = (pieces_of(window[0]), pieces_of(window[1])), window
    apart = filled.reshape(*volume.shape[:3], rows, lines // rows, places, columns // places)
    channels = rows * places * volume.shape[1] * volume.shape[2]
    return apart.transpose(0, 2, 3, 5, 1, 4, 6).reshape(len(weight), channels, lines // rows, columns // places)


def _infer_conv_winograd(
    inputs: Sequence[TensorType], pads: tuple, dilations: tuple | None, channels: int, window: tuple, groups: int
) -> TensorType:
    x, weight = inputs[:2]
    _check_image(inputs, 4)
    for sizes in (window, dilations or window):
        if len(sizes) != min(x.rank - 3, 2) or min(sizes) < 1:
            raise mismatch("a window's pixels, and the steps between them, along each axis of an image", sizes)
    sides = zip(weight.shape[1:3], of_image(window), strict=False)
    if weight.rank != 5 or not all(_is_transformed(side, size) for side, size in sides):
        raise mismatch(f"transformed weights [blocks, a, a, C, {BLOCK}] of a window {window}", weight)
    pieces = math.prod(map(pieces_of, window))
    taps = _taps(weight, channels * pieces)
    if taps < 1 or weight.shape[3:] != (taps * pieces * channels, BLOCK) or (pieces > 1 and channels % BLOCK):
        raise mismatch(f"weights of {channels} channels, and whole blocks where a window is parted", weight)
    return _result(inputs, taps, pads, channels, groups, of_image(window), of_image(dilations or (1, 1)))


def _is_transformed(side: ShapeDim, window: int) -> bool:
    """Whether weights of size `side` along an axis may be the transform of a window of `window` pixels."""
    size = window // pieces_of(window)
    return side == 1 if size == 1 else side in _POINTS and integer(side) > size


def _infer_conv_winograd_raw(inputs: Sequence[TensorType], pads: tuple, channels: int, groups: int) -> TensorType:
    weight = inputs[1]
    _check_image(inputs, 5)
    if weight.rank != 6 or weight.shape[2:] != (WINDOW_SIZE, WINDOW_SIZE, BLOCK, BLOCK):
        raise mismatch(f"packed weights [blocks, C/16, 3, 3, {BLOCK}, {BLOCK}]", weight)
    taps = raw_taps(weight.shape, channels)
    if weight.shape[1] != taps * -(-channels // BLOCK):
        raise mismatch(f"weights of {channels} channels", weight)
    return _result(inputs, taps, pads, channels, groups)


def _check_image(inputs: Sequence[TensorType], least: int) -> None:
    """A channel-blocked image or volume, or a signal where the least rank is 4, and weights of a known size."""
    same_dtype(inputs, FLOAT32)
    if not inputs[1].is_static:
        raise mismatch("weights of a known size", inputs[1])
    require_blocked(inputs[0])
    if not least <= inputs[0].rank <= 6:
        raise mismatch("a channel-blocked image or volume" + ", or a signal" * (least == 4), inputs[0])


def _result(
    inputs: Sequence[TensorType],
    taps: int,
    pads: tuple,
    channels: int,
    groups: int,
    image: tuple[int, int] = _USUAL,
    dilations: tuple[int, int] = (1, 1),
) -> TensorType:
    x, weight = inputs[0], inputs[1]
    if taps != 1 and (x.rank < 6 or channels % BLOCK):
        raise mismatch(f"weights of {channels} channels", weight)
    if groups < 1 or integer(weight.shape[0]) % groups:
        raise mismatch(f"weights of {groups} groups that begin with a block", weight)
    window, steps = (taps, *image)[6 - x.rank :], (1, *dilations)[6 - x.rank :]
    match_dim(lift(lambda blocks: dims.multiply(blocks, groups), blocks_of(channels)), x.shape[1])
    require_bias(inputs, weight.shape[0])
    spatial = result_shape(x.shape[2:-1], axes(window, None, pads, steps))
    return TensorType(x.dtype, (x.shape[0], weight.shape[0], *spatial, BLOCK))


def _taps(weight: TensorType, channels: int) -> int:
    """The slices of a volume that the window meets."""
    return integer(weight.shape[3]) // channels if channels > 0 else 0


def raw_taps(shape: Sequence[ShapeDim], channels: int) -> int:
    """The same, by the shape of raw weights."""
    return integer(shape[1]) // -(-channels // BLOCK) if channels > 0 else 0


def _conv_winograd(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    pads: tuple,
    channels: int,
    window: tuple = _USUAL,
    dilations: tuple | None = None,
    groups: int = 1,
) -> np.ndarray:
    """Of each group by itself."""
    parts = zip(np.split(x, groups, axis=1), np.split(weight, groups), strict=True)
    results = [_of_group(*part, pads, channels, window, dilations) for part in parts]
    result = np.concatenate(results, axis=1)
    return (result if bias is None else result + bias).astype(x.dtype)


def _of_group(
    x: np.ndarray, weight: np.ndarray, pads: tuple, channels: int, window: tuple, dilations: tuple | None
) -> np.ndarray:
    """Of signals and images as of volumes of one slice; of each slice of the result as of an image of the channels of all the
    slices, and all the pieces, that the window meets."""
    axes, sides = x.ndim - 3, of_weights(weight.shape, window)
    by_channel = np.moveaxis(x, -1, 2).reshape(len(x), -1, *(1,) * (3 - axes), *x.shape[2:-1])
    volume = by_channel[:, :channels].astype(np.float64)
    depth, *image = [(0, 0)] * (3 - axes) + np.reshape(pads or (0,) * 2 * axes, (2, axes)).T.tolist()
    steps = of_image(dilations or (1, 1))
    lengths, reach, places, padding = [], [], [], [depth]
    for size, (begin, end), pixels, side, step in zip(
        volume.shape[3:], image, of_image(window), sides, steps, strict=True
    ):
        length = size + begin + end - (pixels - 1) * step
        whole = -(-length // (side.outputs * step)) * side.outputs * step
        lengths.append(slice(length))
        reach.append(whole + (side.window - 1) * step)
        places.append(range(0, pixels * step, side.window * step))
        padding.append((begin, end + whole - length))
    padded = np.pad(volume, ((0, 0), (0, 0), *padding))
    pieces = [padded[..., line : line + reach[0], at : at + reach[1]] for line, at in itertools.product(*places)]
    seen = np.stack(pieces, axis=1).swapaxes(2, 3).swapaxes(1, 2)  # [n, slices, pieces, channels, lines, columns]
    taps = weight.shape[3] // (len(pieces) * channels)
    slices = [seen[:, first : first + taps].reshape(len(x), -1, *reach) for first in range(seen.shape[1] - taps + 1)]
    result = np.stack([_of_tiles(each, weight, sides, steps) for each in slices], axis=2)[
        :, :, :, lengths[0], lengths[1]
    ]
    return result.reshape(*result.shape[:2], *result.shape[5 - axes :])


def _conv_winograd_raw(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, *, pads: tuple, channels: int, groups: int = 1
) -> np.ndarray:
    by_output = weight.transpose(0, 5, 1, 4, 2, 3).reshape(len(weight) * BLOCK, -1, WINDOW_SIZE, WINDOW_SIZE)
    summed = by_output[:, : raw_taps(weight.shape, channels) * channels].astype(np.float64)
    weights = _pack_winograd_weights(summed, RAW_OUTPUTS)
    return _conv_winograd(x, weights, bias, pads=pads, channels=channels, groups=groups)


def _of_tiles(
    image: np.ndarray, weight: np.ndarray, sides: tuple[Transforms, Transforms], steps: tuple[int, int]
) -> np.ndarray:
    """A channel-blocked image of whole tiles, of the pixels [n, channels, lines, columns] that they read."""
    (down, across), result = sides, None
    for line, column in itertools.product(*map(range, steps)):  # where tiles begin that lie between each other
        apart = image[..., line :: steps[0], column :: steps[1]]
        tiles: Any = np.lib.stride_tricks.sliding_window_view(apart, (down.inputs, across.inputs), (2, 3))
        spectrum = down.of_input @ tiles[:, :, :: down.outputs, :: across.outputs] @ across.of_input.T
        products = np.einsum("ncyxij,bijck->nbyxkij", spectrum, weight.astype(np.float64), optimize=True)
        pixels = down.of_output @ products @ across.of_output.T  # [n, blocks, rows, places, 16, down, across]
        n, blocks, rows, places = pixels.shape[:4]
        lines, columns = rows * down.outputs, places * across.outputs
        if result is None:
            result = np.empty((n, blocks, lines * steps[0], columns * steps[1], BLOCK))
        in_order = pixels.transpose(0, 1, 2, 5, 3, 6, 4)
        result[:, :, line :: steps[0], column :: steps[1]] = in_order.reshape(n, blocks, lines, columns, BLOCK)
    assert result is not None
    return result


def _work(
    inputs: Types, results: Types, channels: int, window: tuple, dilations: tuple | None, groups: int, **attributes: Any
) -> Work:
    """By definition, that of the window as it is filled up."""
    shape, pieces = list(map(integer, inputs[1].shape)), math.prod(map(pieces_of, window))
    taps = _taps(inputs[1], channels * pieces)
    done = _done(results[0], of_weights(shape, window), channels * taps * pieces, groups, of_image(dilations or (1, 1)))
    return Work(done, 2 * elements(results[0]) * channels * taps * math.prod(window))


def _raw_work(inputs: Types, results: Types, channels: int, groups: int, **attributes: Any) -> Work:
    """The weights' transformation once an image too."""
    result, weight = results[0], inputs[1]
    channels *= raw_taps(weight.shape, channels)
    done = _done(result, (transforms(RAW_OUTPUTS),) * 2, channels, groups)
    images, blocks, *slices = map(integer, result.shape[:-3])
    windows = math.prod((images, *slices)) * blocks * BLOCK * channels
    return Work(done + 2 * windows * costs.WINOGRAD_RAW_TRANSFORM, 2 * elements(result) * channels * WINDOW_SIZE**2)


def _done(
    result: TensorType,
    sides: tuple[Transforms, Transforms],
    channels: int,
    groups: int,
    dilations: tuple[int, int] = (1, 1),
) -> int:
    """The products of all tiles; and the transforms of inputs and outputs, zeros of the matrices left out."""
    down, across = sides
    batch, blocks, *spatial = map(integer, result.shape[:-1])
    *slices, lines, columns = (1, *spatial)
    rows, places = tiles_along(lines, down.outputs, dilations[0]), tiles_along(columns, across.outputs, dilations[1])
    tiles, outputs = math.prod((batch, *slices)) * integer(rows) * integer(places), blocks * BLOCK
    products = down.inputs * across.inputs * channels * outputs
    of_input = (_sums(down.of_input, across.inputs) + _sums(across.of_input, down.inputs)) * channels * groups
    of_output = (_sums(down.of_output, across.inputs) + _sums(across.of_output, down.outputs)) * outputs
    return 2 * tiles * (products + of_input + of_output)


def _sums(matrix: np.ndarray, vectors: int) -> int:
    """Multiply-adds of a matrix with `vectors` vectors; 0 for an identity."""
    return 0 if matrix.size == 1 else int(np.count_nonzero(matrix)) * vectors


# fmt: off
register("pack_winograd_weights", "weight", _infer_pack_winograd_weights, _pack_winograd_weights, Fusion.OPAQUE,
         "weights [M, C, *window] transformed for conv_winograd: [M/16, a, a, C, 16], the channels of each slice and each piece",
         attributes={"outputs": Attribute(Kind.INT, "pixels of a tile, along an axis where the window has several")})
register("conv_winograd", "x weight bias?", _infer_conv_winograd, _conv_winograd, Fusion.ANCHOR,
         "convolution of a channel-blocked signal or image by Winograd's algorithm, with weights of the channels of each piece "
         "of the window; or of a volume, with those of each slice that it meets",
         attributes={"pads": Attribute(Kind.INTS, "(front), (top), left, (back), (bottom), right", None),
                     "channels": CHANNELS_EACH,
                     "window": Attribute(Kind.INTS, "its lines and columns, or a signal's pixels", _USUAL),
                     "dilations": Attribute(Kind.INTS, "steps between them; None: 1", None)} | GROUPS,
         work=_work)
register("conv_winograd_raw", "x weight bias?", _infer_conv_winograd_raw, _conv_winograd_raw, Fusion.ANCHOR,
         "conv_winograd with weights as conv_blocked has them, which are transformed where they are used", attributes=GROUPS | {
             "pads": Attribute(Kind.INTS, "(front), top, left, (back), bottom, right", None), "channels": CHANNELS_EACH},
         work=_raw_work)
# fmt: on
