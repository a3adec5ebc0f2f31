"""Rules of the layout pass for convolutions: the blocked operator for each, and its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....formats.types import TensorType
from .... import ir
from ....named_weights import computed
from ....operators.shapes import integer
from ....operators.table import lookup
from ....passes.rewriting import tensor_type
from .. import costs
from ..operators.blocked import FEW, is_for_depthwise
from ..operators.int8 import is_exact
from ..operators.packing import BLOCK, NarrowGroups
from ..operators.winograd import Problem, Tiles, best_tiles
from .layout_blocker import Blocker, is_image, likely_size
from .layout_channels import lay_apart, lay_together


@dataclass(frozen=True)
class _Convolution:
    """A convolution with known channels and sizes of weights."""

    x: ir.Atom
    weight: ir.Atom
    bias: tuple[ir.Atom, ...]  # none or one
    attributes: dict[str, Any]  # all but the groups
    groups: int
    channels: int
    outputs: int
    result: TensorType

    @staticmethod
    def of(call: ir.OperatorCall, type_: TensorType) -> _Convolution | None:
        x, weight, *bias = call.args
        image = tensor_type(x)
        if not is_image(image) or not is_image(type_) or not tensor_type(weight).is_static:
            return None
        attributes = lookup(call.operator).bind(call.attributes)
        groups, outputs, channels = attributes.pop("groups"), integer(type_.shape[1]), integer(image.shape[1])
        return _Convolution(x, weight, tuple(bias), attributes, groups, channels, outputs, type_)

    @property
    def axes(self) -> int:
        """The spatial axes."""
        return self.result.rank - 2

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.channels == self.outputs

    @property
    def begins_in_blocks(self) -> bool:
        """Whether each group begins on a block boundary."""
        each = (self.outputs // self.groups, self.channels // self.groups)
        return self.groups == 1 or all(count % BLOCK == 0 for count in each)

    @property
    def narrow(self) -> NarrowGroups | None:
        return NarrowGroups.of(self.groups, self.channels // self.groups, self.outputs // self.groups)


def convolution(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    it = _Convolution.of(call, type_)
    if it is None:
        return None
    if _may_be_depthwise(it):
        return _depthwise(blocker, it)
    if it.is_depthwise:
        return None
    if it.groups == 1 and it.channels < costs.PLANAR_CHANNELS and not blocker.is_blocked(it.x):
        return _planar(blocker, it)
    if _is_to_few(it):
        return _to_few(blocker, it)
    if it.narrow:  # no kernel packs such weights that are known only at run time
        return _blocked(blocker, it) if isinstance(it.weight, ir.Constant) else None
    tiles = _winograd_tiles(blocker, it) if isinstance(it.weight, ir.Constant) else None
    if not it.begins_in_blocks:
        return _of_groups_apart(blocker, it, tiles)
    precision = blocker.narrowing.chosen(blocker.current, lambda: _narrow_precisions(blocker, it, tiles))
    if precision == "int8":
        return _of_int8(blocker, it)
    if precision == "bfloat16":
        return _of_bfloat16(blocker, it, blocker.as_blocked(it.x), it.weight, _biases(blocker, it))
    if tiles is None:
        return _blocked(blocker, it)
    return _winograd(blocker, it, tiles, blocker.as_blocked(it.x), it.weight, _biases(blocker, it))


def _biases(blocker: Blocker, it: _Convolution) -> list[ir.Atom]:
    return [blocker.packed("pack_vector", vector, axes=it.axes) for vector in it.bias]


def _planar(blocker: Blocker, it: _Convolution) -> ir.Var:
    """A convolution of a planar image, such as a photograph."""
    biases, weights = _biases(blocker, it), blocker.packed("pack_planar_weights", it.weight)
    return blocker.emit("conv_planar", it.x, weights, *biases, **it.attributes)


def _blocked(blocker: Blocker, it: _Convolution) -> ir.Var:
    biases, weights = _biases(blocker, it), blocker.packed("pack_weights", it.weight, groups=it.groups)
    sizes = {
        "groups": it.groups,
        "channels": it.channels // it.groups,
        "outputs": it.narrow.outputs if it.narrow else 0,
    }
    return blocker.emit("conv_blocked", blocker.as_blocked(it.x), weights, *biases, **it.attributes, **sizes)


def _of_bfloat16(blocker: Blocker, it: _Convolution, image: ir.Var, weight: ir.Atom, biases: list[ir.Atom]) -> ir.Var:
    """Of a blocked image, weights and bias whose groups begin on block boundaries."""
    rounded, weights = blocker.emit("round_bfloat16", image), blocker.packed("pack_bfloat16_weights", weight)
    sizes = {"groups": it.groups, "channels": it.channels // it.groups}
    return blocker.emit("conv_bfloat16_blocked", rounded, weights, *biases, **it.attributes, **sizes)


def _narrow_precisions(blocker: Blocker, it: _Convolution, tiles: Tiles | None) -> list[str]:
    """Those in which a convolution of constant weights gains something. Winograd's algorithm is faster than bfloat16."""
    if not isinstance(it.weight, ir.Constant):
        return []
    speed = blocker.byte_speed
    if tiles is not None and (speed > costs.WINOGRAD_SAVES or not _has_tiles_of_bytes(it)):
        speed /= costs.WINOGRAD_SAVES
    return ["bfloat16"] * (tiles is None and blocker.multiplies) + ["int8"] * _gains_in_int8(it, speed)


def _has_tiles_of_bytes(it: _Convolution) -> bool:
    """Whether, on a CPU that does not multiply bytes, int8 is by Winograd's algorithm as well (`convolutions/widened.py`)."""
    is_dense = tensor_type(it.weight).shape[2:] == (3, 3) and set(it.attributes["dilations"] or (1,)) == {1}
    return (
        is_dense
        and it.channels // it.groups > BLOCK
        and all(isinstance(n, int) and n >= 4 for n in it.result.shape[2:])
    )


def _gains_in_int8(it: _Convolution, speed: float) -> bool:
    """Whether each element of the image has enough work, and sums are exact. Not of volumes, whose images no kernel quantises."""
    if speed <= 1:
        return False
    channels, taps = it.channels // it.groups, math.prod(map(integer, tensor_type(it.weight).shape[2:]))
    places = _places(it.result) / _places(tensor_type(it.x))
    has_work = it.outputs // it.groups * taps * places >= costs.INT8_USES and channels * taps >= costs.INT8_SIDES
    is_known = all(isinstance(pad, int) and pad >= 0 for pad in it.attributes["pads"] or ())
    return has_work and is_known and it.axes <= 2 and is_exact(channels * taps)


def _places(image: TensorType) -> int:
    return max(1, math.prod(likely_size(size) for size in image.shape[2:]))


def _of_int8(blocker: Blocker, it: _Convolution) -> ir.Var:
    image, window = blocker.as_blocked(it.x), dict(it.attributes)
    facts = blocker.emit("image_facts", blocker.emit("image_ranges", image, channels=it.channels))
    codes = blocker.emit("quantize_image", image, facts, pads=window.pop("pads"))
    assert isinstance(it.weight, ir.Constant)
    known = [each for each in it.bias if isinstance(each, ir.Constant)]
    weights, columns = computed("pack_int8_weights", it.weight), computed("pack_int8_columns", it.weight, *known)
    result = blocker.emit("conv_int8_blocked", codes, weights, facts, columns, **window, groups=it.groups)
    return result if len(known) == len(it.bias) else blocker.emit("add", result, *_biases(blocker, it))


# ---- to a few channels ----


def _is_to_few(it: _Convolution) -> bool:
    """Whether a sum, of known sizes, is long enough for vectors of input channels."""
    sizes = (*tensor_type(it.x).shape[2:], *it.result.shape[2:], *(it.attributes["pads"] or ()))
    is_known = isinstance(it.weight, ir.Constant) and all(isinstance(size, int) for size in sizes)
    length = it.channels * math.prod(map(integer, tensor_type(it.weight).shape[2:]))
    is_long = it.channels >= BLOCK and length >= costs.LONG_LANE_SUM
    return it.groups == 1 and it.outputs <= FEW and it.axes <= 3 and is_known and is_long


def _to_few(blocker: Blocker, it: _Convolution) -> ir.Var:
    biases, weights = _biases(blocker, it), blocker.packed("pack_channels", it.weight)
    image = blocker.as_blocked(it.x)
    return blocker.emit("conv_to_few", image, weights, *biases, **it.attributes, channels=it.channels)


# ---- Winograd's algorithm ----


def _winograd_tiles(blocker: Blocker, it: _Convolution) -> Tiles | None:
    """The best tiles for Winograd's algorithm; None if another algorithm is better."""
    is_plain = all(step == 1 for step in it.attributes["strides"] or ())
    *slices, height, width = (1, 1, *map(integer, tensor_type(it.weight).shape[2:]))
    *between, down, across = (1, 1, *_steps(it))
    is_known = all(isinstance(pad, int) for pad in it.attributes["pads"] or ())
    each, met = it.channels // it.groups, math.prod(slices)
    if not is_plain or not is_known or it.axes > 3 or max(between) > 1 or (met > 1 and each % BLOCK):
        return None
    # their sums are exact, but not those of transformed tiles
    if _is_whole(blocker, it.x) and _is_whole(blocker, it.weight):
        return None
    batch, _, *spatial = it.result.shape
    *piles, lines, columns = (1, *spatial)
    images = math.prod(size for size in (batch, *piles) if isinstance(size, int))
    blocks, sizes = -(-it.outputs // it.groups // BLOCK), (likely_size(lines), likely_size(columns))
    return best_tiles(
        Problem(images, met * each, blocks, *sizes, (height, width), (down, across), it.groups),
        registers=blocker.registers,
    )


def _is_whole(blocker: Blocker, atom: ir.Atom) -> bool:
    """Whether all elements are known to be integers: converted ones, perhaps less a zero point."""
    if isinstance(atom, ir.Constant):
        return bool(np.all(np.trunc(atom.value) == atom.value))
    call = blocker.calls.get(atom)  # type: ignore[arg-type]
    if call is None:
        return False
    if call.operator == "cast":
        return not tensor_type(call.args[0]).dtype.is_float or _is_whole(blocker, call.args[0])
    return call.operator == "subtract" and all(_is_whole(blocker, each) for each in call.args)


def _steps(it: _Convolution) -> tuple[int, ...]:
    """The dilations along each axis; 1 if the window has one pixel."""
    sizes = map(integer, tensor_type(it.weight).shape[2:])
    return tuple(
        step if size > 1 else 1 for size, step in zip(sizes, it.attributes["dilations"] or (1,) * it.axes, strict=True)
    )


def _winograd(
    blocker: Blocker, it: _Convolution, tiles: Tiles, image: ir.Var, weight: ir.Atom, biases: list[ir.Atom]
) -> ir.Var:
    """Winograd's algorithm on a blocked image, weights and bias whose groups begin on block boundaries. The window is padded
    with zeros, and the image by as much at its end."""
    pads = it.attributes["pads"] or (0,) * 2 * it.axes
    groups = {"groups": it.groups, "channels": it.channels // it.groups}
    if tiles.is_raw:
        weights = blocker.packed("pack_weights", _by_slices(blocker, weight))
        return blocker.emit("conv_winograd_raw", image, weights, *biases, pads=pads, **groups)
    window, dilations = list(map(integer, tensor_type(it.weight).shape[2:][-2:])), _steps(it)[-2:]
    added = [0] * (it.axes - len(window)) + tiles.added(window, dilations)
    ends = (pad + more for pad, more in zip(pads[it.axes :], added, strict=True))
    attributes = {"pads": (*pads[: it.axes], *ends), "window": tuple(tiles.filled(window)), "dilations": dilations}
    weights = blocker.packed("pack_winograd_weights", weight, outputs=tiles.outputs)
    return blocker.emit("conv_winograd", image, weights, *biases, **attributes, **groups)


def _by_slices(blocker: Blocker, weight: ir.Atom) -> ir.Atom:
    """Weights of a volume, with the channels of all slices of the window concatenated."""
    outputs, channels, *slices, lines, columns = map(integer, tensor_type(weight).shape)
    if not slices:
        return weight
    turned = blocker.packed("permute_dims", weight, axes=(0, 2, 1, 3, 4))
    return blocker.packed("reshape", turned, shape=(outputs, math.prod(slices) * channels, lines, columns))


# ---- each channel by itself, or in a small group ----


def _may_be_depthwise(it: _Convolution) -> bool:
    """Whether channels are separate or in small groups, of images or signals; not with pads known only at run time."""
    columns = integer(tensor_type(it.weight).shape[-1])
    has_known_pads = all(isinstance(pad, int) for pad in it.attributes["pads"] or ())
    return it.axes <= 2 and has_known_pads and is_for_depthwise(it.channels, it.outputs, it.groups, columns)


def _depthwise(blocker: Blocker, it: _Convolution) -> ir.Var:
    if it.axes == 1:
        return _depthwise_of_signal(blocker, it)
    biases, weights = _biases(blocker, it), blocker.packed("pack_planar_weights", it.weight)
    image = blocker.as_blocked(it.x)
    if _is_far(image) and blocker.narrowing.takes(blocker.current, "bfloat16", blocker.multiplies):
        image = blocker.emit("round_bfloat16", image)
    return blocker.emit("conv_depthwise", image, weights, *biases, **it.attributes)


def _is_far(image: ir.Var) -> bool:
    """Whether an image, of one of the batch, is known to be larger than L2."""
    sizes = tensor_type(image).shape[1:]
    return all(isinstance(size, int) for size in sizes) and 4 * math.prod(map(integer, sizes)) > costs.NARROW_IMAGE


def _depthwise_of_signal(blocker: Blocker, it: _Convolution) -> ir.Var:
    """A convolution of signals [N, C, L] is one of images of height 1."""
    biases = [blocker.packed("pack_vector", vector, axes=2) for vector in it.bias]
    weights = blocker.packed("pack_planar_weights", it.weight)
    blocks, members, *window = tensor_type(weights).shape
    weights = blocker.packed("reshape", weights, shape=(blocks, members, 1, *window))
    signal = blocker.as_blocked(it.x)
    n, blocks, length, block = tensor_type(signal).shape
    wide = blocker.emit("reshape", signal, shape=(n, blocks, 1, length, block))
    steps = {name: (1, *(it.attributes[name] or (1,))) for name in ("strides", "dilations")}
    begin, end = it.attributes["pads"] or (0, 0)
    result = blocker.emit("conv_depthwise", wide, weights, *biases, **steps, pads=(0, begin, 0, end))
    return blocker.emit("reshape", result, shape=(n, blocks, tensor_type(result).shape[3], block))


# ---- wide groups that do not begin on a block boundary ----


def _of_groups_apart(blocker: Blocker, it: _Convolution, tiles: Tiles | None) -> ir.Var:
    """Separates the groups, so that each begins on a block boundary, and joins those of the result again."""
    each = it.channels // it.groups
    image = lay_apart(blocker, blocker.as_blocked(it.x), each, it.groups)
    vectors = [_outputs_apart(blocker, vector, it.groups) for vector in it.bias]
    biases = [blocker.packed("pack_vector", vector, axes=it.axes) for vector in vectors]
    may_round = tiles is None and isinstance(it.weight, ir.Constant) and blocker.multiplies
    if blocker.narrowing.takes(blocker.current, "bfloat16", may_round):
        result = _of_bfloat16(blocker, it, image, _outputs_apart(blocker, it.weight, it.groups), biases)
    elif tiles is None:
        weights = blocker.packed("pack_weights", it.weight, groups=it.groups)
        sizes = {"groups": it.groups, "channels": each}
        result = blocker.emit("conv_blocked", image, weights, *biases, **it.attributes, **sizes)
    else:
        result = _winograd(blocker, it, tiles, image, _outputs_apart(blocker, it.weight, it.groups), biases)
    return lay_together(blocker, result, it.outputs // it.groups, it.groups)


def _outputs_apart(blocker: Blocker, vector: ir.Atom, groups: int) -> ir.Atom:
    """A bias, or weights, with zeros after the outputs of each group, so that each begins on a block boundary."""
    outputs, *rest = map(integer, tensor_type(vector).shape)
    each = outputs // groups
    apart = blocker.packed("reshape", vector, shape=(groups, each, *rest))
    padded = blocker.packed("pad", apart, pads=(*(0,) * (3 + len(rest)), -each % BLOCK, *(0,) * len(rest)))
    return blocker.packed("reshape", padded, shape=(groups * -(-each // BLOCK) * BLOCK, *rest))
