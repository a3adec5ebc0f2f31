"""Transposed convolutions as ordinary ones, whose kernels are fast.

With strides s, the results at one position modulo s, a *phase*, are an ordinary convolution of x with every s-th weight. One
convolution computes all phases as separate channels, and `depth_to_space` interleaves them. If the size of
the window is not a multiple of s, the last phases of an axis lack a weight, which is zero; if that wastes much, phases that lack
the same ones are convolved separately.

A single one, between planar images, may take less time as a product of all weights with the planar image, whose
rows `col2im` accumulates: no zeros are multiplied, and nothing is packed into channel blocks and back.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .....formats import dims
from .....formats.types import UNKNOWN, TensorType
from .... import ir
from ....ir.analysis import expressions
from ....operators.shapes import integer
from ....operators.table import lookup
from ....operators.windows import Axis, axes
from ....passes.rewriting import Emitter, rewriting, tensor_type
from .. import costs
from ..operators.packing import BLOCK
from ..operators.winograd import WINDOW_SIZE


@dataclass(frozen=True)
class _Phases:
    """One axis: its window, and the mapping of an ordinary convolution's phases to the result."""

    window: Axis
    more: int  # of output padding

    @property
    def stride(self) -> int:
        return self.window.stride

    @property
    def dilation(self) -> int:
        """The ordinary convolution's dilation. Phases with unevenly spaced weights get all of them, some zero."""
        return self.window.dilation if self.stride == 1 else 1

    @property
    def spacing(self) -> int:
        """The distance between weights, in weights of the phases."""
        return self.window.dilation if self.stride > 1 else 1

    @property
    def taps(self) -> int:
        """Weights of a phase."""
        return (integer(self.window.size) - 1) * self.spacing // self.stride + 1

    @property
    def full(self) -> int:
        """The phases that have all weights; the following ones lack the last one."""
        if self.window.dilation > 1 or self.stride == 1:
            return self.stride
        return integer(self.window.size) - (self.taps - 1) * self.stride

    @property
    def skipped(self) -> int:
        """Steps that the ordinary convolution skips, since they are padding of the result."""
        return min(integer(self.window.begin) // self.stride, (self.taps - 1) * self.dilation)

    @property
    def pads(self) -> tuple[int, int]:
        """The ordinary convolution's pads."""
        reach = integer(self.window.extent) - integer(self.window.end) + self.more
        return (self.taps - 1) * self.dilation - self.skipped, max(-(-reach // self.stride) - 1, 0)

    @property
    def start(self) -> int:
        """The start of the result in the interleaved phases."""
        return integer(self.window.begin) - self.skipped * self.stride


@dataclass(frozen=True)
class _Share:
    """Neighbouring phases, counted through all axes, and whether they lack a weight, by axis."""

    begin: int
    end: int
    lacks: tuple[bool, ...]


def _shares(phases: list[_Phases]) -> list[_Share]:
    """All phases, in shares that lack the same weights. The last axis varies fastest."""
    *outer, last = phases
    found = []
    for number, places in enumerate(itertools.product(*(range(axis.stride) for axis in outer))):
        lacks = tuple(place >= axis.full for place, axis in zip(places, outer, strict=True))
        bounds = sorted({0, last.full, last.stride})
        for begin, end in itertools.pairwise(bounds):
            first = number * last.stride
            found.append(_Share(first + begin, first + end, (*lacks, begin >= last.full)))
    return found


class _Splitter(Emitter):
    is_alone = False  # whether the current function has one convolution: around others, images are in channel blocks

    def function(self, function: ir.Function) -> ir.Function:
        values = [binding.value for binding in expressions(function.body)]
        calls = Counter(value.operator for value in values if isinstance(value, ir.OperatorCall))
        self.is_alone = calls["conv"] + calls["conv_transpose"] == 1
        return super().function(function)

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        type_ = binding.var.type
        if call.operator != "conv_transpose":
            return (binding,)
        assert isinstance(type_, TensorType)
        attributes = lookup(call.operator).bind(call.attributes)
        x, weight = map(tensor_type, call.args[:2])
        windows = axes(weight.shape[2:], *(attributes[name] for name in ("strides", "pads", "dilations")))
        edges = [edge for window in windows for edge in (window.begin, window.end)]
        if not weight.is_static or not all(isinstance(edge, int) for edge in edges) or UNKNOWN in x.shape:
            return (binding,)
        extra = attributes["output_padding"] or (0,) * len(windows)
        self.begin(binding)
        phases, groups = list(map(_Phases, windows, extra)), attributes["groups"]
        if self.is_alone and groups == 1 and _is_faster_as_product(x, weight, type_, phases):
            result = self._as_product(call.args, type_, attributes)
        else:
            result = self._split(call.args, type_, phases, groups)
        return (*self.new, dataclasses.replace(binding, value=result))

    def _as_product(self, args: Sequence[ir.Atom], type_: TensorType, attributes: dict[str, Any]) -> ir.Expr:
        """The convolution as a product: a column holds a pixel's addends to the window around it."""
        x, weight, *bias = args
        (n, channels, *spatial), (_, outputs, *kernel) = tensor_type(x).shape, map(integer, tensor_type(weight).shape)
        rows = outputs * math.prod(kernel)
        by_channel = self.emit("reshape", weight, shape=(channels, rows))
        weights = self.emit("permute_dims", by_channel, axes=(1, 0))
        pixels = self.emit("reshape", x, shape=(n, channels, dims.product(spatial)))  # type: ignore[arg-type]
        product = self.emit("matmul", weights, pixels)
        windows = self.emit("reshape", product, shape=(n, rows, *spatial))
        starts = (attributes["pads"] or (0,) * 2 * len(kernel))[: len(kernel)]
        steps = {"strides": attributes["strides"], "dilations": attributes["dilations"], "starts": starts}
        result = self.emit("col2im", windows, shape=type_.shape[2:], kernel=kernel, **steps)
        for vector in bias:
            result = self.emit("add", result, self.emit("reshape", vector, shape=(outputs, *(1,) * len(kernel))))
        return self.new.pop().value

    def _split(self, args: Sequence[ir.Atom], type_: TensorType, phases: list[_Phases], groups: int) -> ir.Expr:
        x, weight, *bias = args
        strides = [axis.stride for axis in phases]
        weights = self._weights(weight, phases, groups)
        biases = [self._repeated(vector, groups, math.prod(strides)) for vector in bias]
        if groups == 1 and _wastes(tensor_type(weight), phases):
            parts = [self._convolve_share(x, weights, biases, phases, share) for share in _shares(phases)]
            convolved = self.emit("concat", *parts, axis=1)
        else:
            convolved = self._convolved(x, weights, biases, phases, (False,) * len(phases), groups)
        whole = self._in_space(convolved, strides, groups) if max(strides) > 1 else convolved
        starts = [axis.start for axis in phases]
        bounds = [dims.add(size, start) for size, start in zip(type_.shape[2:], starts, strict=True)]  # type: ignore[arg-type]
        result = self.emit("slice", whole, starts=starts, ends=bounds, axes=tuple(range(2, type_.rank)))
        if result.type == type_:
            return self.new.pop().value
        # sizes that `slice`'s inference cannot prove to be at least 0
        return ir.MatchShape(result, type_.shape)

    def _convolve_share(
        self, x: ir.Atom, weights: ir.Atom, biases: list[ir.Atom], phases: list[_Phases], share: _Share
    ) -> ir.Var:
        """The results of some phases, from their weights: the lacking one would be first."""
        outputs = integer(tensor_type(weights).shape[0]) // math.prod(axis.stride for axis in phases)
        first, end = share.begin * outputs, share.end * outputs
        starts, ends = (first, *map(int, share.lacks)), (end, *(axis.taps for axis in phases))
        own = self.emit("slice", weights, starts=starts, ends=ends, axes=(0, *range(2, 2 + len(phases))))
        vectors = [self.emit("slice", vector, starts=(first,), ends=(end,), axes=(0,)) for vector in biases]
        return self._convolved(x, own, vectors, phases, share.lacks)

    def _convolved(
        self,
        x: ir.Atom,
        weights: ir.Atom,
        biases: Sequence[ir.Atom],
        phases: list[_Phases],
        lacks: Sequence[bool],
        groups: int = 1,
    ) -> ir.Var:
        begins, ends = zip(*(axis.pads for axis in phases), strict=True)
        pads = (*(begin - lack for begin, lack in zip(begins, lacks, strict=True)), *ends)
        dilations = [axis.dilation for axis in phases]
        return self.emit("conv", x, weights, *biases, pads=pads, dilations=dilations, groups=groups)

    def _weights(self, weight: ir.Atom, phases: list[_Phases], groups: int) -> ir.Atom:
        """Weights [C, M / groups, *kernel] as those of the phases, [groups · Π strides · M / groups, C / groups, *taps]."""
        inputs, outputs, *_ = map(integer, tensor_type(weight).shape)
        count = len(phases)
        for axis, phase in enumerate(phases, 2):
            weight = self._spread(weight, axis, phase)
        parted = [number for phase in phases for number in (phase.taps, phase.stride)]
        weight = self.emit("reshape", weight, shape=(groups, inputs // groups, outputs, *parted))
        taps, places = range(3, 3 + 2 * count, 2), range(4, 4 + 2 * count, 2)
        last = [-(phase.taps + 1) for phase in phases]
        weight = self.emit("slice", weight, starts=[-1] * count, ends=last, axes=tuple(taps), steps=[-1] * count)
        weight = self.emit("permute_dims", weight, axes=(0, *places, 2, 1, *taps))
        whole = groups * math.prod(phase.stride for phase in phases) * outputs
        return self.emit("reshape", weight, shape=(whole, inputs // groups, *(phase.taps for phase in phases)))

    def _spread(self, weight: ir.Atom, axis: int, phase: _Phases) -> ir.Atom:
        """The weights along an axis with zeros between them for a dilation, and as many as the phases have together."""
        shape = list(map(integer, tensor_type(weight).shape))
        size, wanted = shape[axis], phase.taps * phase.stride
        if phase.spacing > 1:
            weight = self.emit("reshape", weight, shape=(*shape[: axis + 1], 1, *shape[axis + 1 :]))
            weight = self._padded(weight, axis + 1, phase.spacing - 1)
            size *= phase.spacing
            weight = self.emit("reshape", weight, shape=(*shape[:axis], size, *shape[axis + 1 :]))
        if size > wanted:
            return self.emit("slice", weight, starts=(0,), ends=(wanted,), axes=(axis,))
        return self._padded(weight, axis, wanted - size) if size < wanted else weight

    def _padded(self, weight: ir.Atom, axis: int, count: int) -> ir.Var:
        rank = tensor_type(weight).rank
        return self.emit("pad", weight, pads=[count if i == rank + axis else 0 for i in range(2 * rank)])

    def _repeated(self, bias: ir.Atom, groups: int, phases: int) -> ir.Atom:
        """One number for each channel of each phase."""
        if phases == 1:
            return bias
        (channels,) = map(integer, tensor_type(bias).shape)
        apart = self.emit("reshape", bias, shape=(groups, 1, channels // groups))
        repeated = self.emit("tile", apart, repetitions=(1, phases, 1))
        return self.emit("reshape", repeated, shape=(phases * channels,))

    def _in_space(self, convolved: ir.Var, strides: list[int], groups: int) -> ir.Var:
        """Interleaves the phases. Groups, each with its phases, count as images meanwhile."""
        n, channels, *spatial = tensor_type(convolved).shape
        if groups == 1:
            return self.emit("depth_to_space", convolved, blocks=strides)
        images: Any = dims.multiply(n, groups)  # type: ignore[arg-type]
        apart = self.emit("reshape", convolved, shape=(images, integer(channels) // groups, *spatial))
        whole = self.emit("depth_to_space", apart, blocks=strides)
        _, depth, *size = tensor_type(whole).shape
        return self.emit("reshape", whole, shape=(n, groups * integer(depth), *size))


def _is_faster_as_product(x: TensorType, weight: TensorType, type_: TensorType, phases: list[_Phases]) -> bool:
    """Whether a product and `col2im` take less time for an image than a convolution of all phases, by a count of vectors."""
    if not all(isinstance(size, int) for size in (*x.shape[2:], *type_.shape[2:])) or _are_for_winograd(phases):
        return False
    channels, *image = map(integer, x.shape[1:])
    _, outputs, *kernel = map(integer, weight.shape)
    result = tuple(map(integer, type_.shape[2:]))
    vectors, rows = -(-math.prod(image) // BLOCK), outputs * math.prod(kernel)
    product = rows * (vectors + costs.RAGGED_VECTORS) * (channels + costs.OVERLAP)
    blocks = -(-outputs * math.prod(axis.stride for axis in phases) // BLOCK)
    pixels = math.prod(-(-(size + axis.start) // axis.stride) for size, axis in zip(result, phases, strict=True))
    sums = blocks * channels * math.prod(axis.taps for axis in phases) * pixels
    packing = channels * vectors * costs.PACK_VECTOR + outputs * math.prod(result) // BLOCK * costs.PLACE_VECTOR
    return product < sums + packing


def _are_for_winograd(phases: list[_Phases]) -> bool:
    """Whether each phase's window suits Winograd's algorithm."""
    return [axis.taps for axis in phases] == [WINDOW_SIZE] * 2


def _wastes(weight: TensorType, phases: list[_Phases]) -> bool:
    """Whether zero weights are many, and phases can be separate: their channels are whole blocks, some weight is left
    of each, and phases that lack the first one begin in the padding that goes with it."""
    channels, outputs, *_ = map(integer, weight.shape)
    if _are_for_winograd(phases):
        return False  # which saves more
    lacking = [axis for axis in phases if axis.full < axis.stride]
    if any(axis.taps < 2 or axis.pads[0] < 1 for axis in lacking) or channels < BLOCK or outputs % BLOCK:
        return False
    return math.prod(axis.taps * axis.stride / integer(axis.window.size) for axis in lacking) >= costs.TRANSPOSED_WASTE


TransposedConvolutions = rewriting("transposed_convolutions", _Splitter)
