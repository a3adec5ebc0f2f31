"""Pointwise convolutions between planar images become matrix products: a pixel is a column.

    conv(x, w, bias)    →  reshape(matmul(w, reshape(x)) + bias)

of x[N, C, H, W] seen as [N, C, H · W], or of the pixels at the strides; groups of channels are a batch of products. They
read and write planes in place. If the image is made in channel blocks, or the users of the result read these, the
convolution stays, since nothing needs to be converted around it. Elementwise operators after it are applied before the
view, so that it joins the product's kernel. Those of bfloat16 and of many channels stay convolutions, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .....formats import dims
from .....formats.types import ShapeDim, TensorType
from .... import ir
from ....named_weights import computed
from ....operators.shapes import integer
from ....operators.table import Fusion, lookup
from ....passes.rewriting import Emitter, operator_call, tensor_type
from ...base import Narrowing
from .. import costs
from .layout_blocker import is_image, likely_size, moves_channels

# Those whose kernels for channel blocks are the faster ones, even for an image that is planar so far.
_OF_BLOCKS = frozenset(
    {
        "average_pool",
        "conv",
        "conv_integer",
        "depth_to_space",
        "group_normalization",
        "instance_normalization",
        "max_pool",
        "resize",
    }
)


@dataclass(frozen=True)
class PointwiseProducts:
    """But for convolutions that `narrowing` names."""

    narrowing: Narrowing = field(default_factory=Narrowing)
    name: str = "pointwise_products"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Walk(module, self.narrowing).run()


class _Walk(Emitter):
    def __init__(self, module: ir.Module, narrowing: Narrowing) -> None:
        super().__init__(module)
        self.narrowing = narrowing
        self.between_planes: set[ir.Var] = set()  # results of the convolutions that become products
        self.pixels: dict[ir.Atom, ir.Var] = {}  # images with their spatial axes merged

    def function(self, function: ir.Function) -> ir.Function:
        images = _Images(self.narrowing)
        images.meet(function.body)
        self.between_planes = images.between_planes
        return super().function(function)

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        is_product = binding.var in self.between_planes
        binding = self.with_new_operands(binding)
        call, type_ = binding.value, binding.var.type
        if not isinstance(call, ir.OperatorCall) or not isinstance(type_, TensorType):
            return (binding,)
        self.begin(binding)
        result = self._product(call) if is_product else self._elementwise(call, type_)
        if result is None:
            return (binding,)
        self.pixels[binding.var] = result
        return (*self.new, replace(binding, value=operator_call("reshape", result, shape=type_.shape)))

    def _product(self, call: ir.OperatorCall) -> ir.Var:
        x, weight, *bias = call.args
        attributes: dict[str, Any] = lookup(call.operator).bind(call.attributes)
        groups, steps = attributes["groups"], attributes["strides"] or ()
        outputs, channels = map(integer, tensor_type(weight).shape[:2])
        each = (outputs,) if groups == 1 else (groups, outputs // groups)
        if any(step > 1 for step in steps):
            x = self._met(x, steps)
        result = self.emit("matmul", self._seen(weight, (*each, channels)), self._pixels_of(x, groups))
        for vector in bias:
            result = self.emit("add", result, self._seen(vector, (*each, 1)))
        return result

    def _met(self, image: ir.Atom, steps: Sequence[int]) -> ir.Var:
        """The pixels at these strides."""
        sizes = tensor_type(image).shape[2:]
        axes = tuple(range(2, 2 + len(sizes)))
        return self.emit("slice", image, starts=(0,) * len(sizes), ends=sizes, axes=axes, steps=steps)

    def _elementwise(self, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
        """An elementwise operator on pixels; other operands have their shape, or one element in all or per channel."""
        found = [arg for arg in call.args if arg in self.pixels and tensor_type(arg).shape == type_.shape]
        if not found or lookup(call.operator).fusion is not Fusion.ELEMENTWISE:
            return None
        operands = [self._operand(arg, type_.shape, _groups(self.pixels[found[0]])) for arg in call.args]
        if any(operand is None for operand in operands):
            return None
        return self.emit(call.operator, *operands, **dict(call.attributes))  # type: ignore[arg-type]

    def _operand(self, atom: ir.Atom, image: Sequence[ShapeDim], groups: int) -> ir.Atom | None:
        """The atom as it broadcasts to pixels; None if its spatial axes are neither the image's nor all 1."""
        shape = tensor_type(atom).shape
        if len(shape) < 2:
            return atom if shape in ((), (1,)) else None
        whole = (1,) * (len(image) - len(shape)) + shape
        if whole[2:] != tuple(image[2:]) and any(dim != 1 for dim in whole[2:]):
            return None
        return self._pixels_of(atom, groups) if whole == shape else self._seen(atom, _flat(whole, groups))

    def _pixels_of(self, image: ir.Atom, groups: int) -> ir.Atom:
        known = self.pixels.get(image)
        if known is not None and _groups(known) == groups:
            return known
        return self._seen(image, _flat(tensor_type(image).shape, groups))

    def _seen(self, atom: ir.Atom, shape: tuple[ShapeDim, ...]) -> ir.Atom:
        if isinstance(atom, ir.Constant):
            return computed("reshape", atom, shape=tuple(integer(size) for size in shape))
        return self.emit("reshape", atom, shape=shape)


def _flat(shape: Sequence[ShapeDim], groups: int) -> tuple[ShapeDim, ...]:
    """An image's shape with its spatial axes merged, and an axis of groups if there are several."""
    n, channels, *space = shape
    pixels: Any = dims.product(space)  # type: ignore[arg-type]
    if groups == 1:
        return (n, channels, pixels)
    return (n, 1, 1, pixels) if channels == 1 else (n, groups, integer(channels) // groups, pixels)


def _groups(pixels: ir.Var) -> int:
    """Splits the channels of an image's pixels into groups."""
    shape = tensor_type(pixels).shape
    return integer(shape[1]) if len(shape) == 4 else 1


def _is_worth_packing(channels: int, outputs: int) -> bool:
    """Whether a product of bfloat16 gains more than packing its image, and unpacking its result, takes."""
    return channels * outputs >= costs.POINTWISE_PACKED * (channels + outputs)


def _likely_pixels(image: ir.Atom) -> int:
    return likely_size(dims.product(tensor_type(image).shape[2:]))  # type: ignore[arg-type]


def _keeps_blocks(call: ir.OperatorCall) -> bool:
    """Whether the operator's result is an image in channel blocks if its operands are."""
    return (
        call.operator in (*_OF_BLOCKS, "concat", "slice", "split") or lookup(call.operator).fusion is Fusion.ELEMENTWISE
    )


class _Images:
    """Finds the pointwise convolutions between images that are neither made nor used in channel blocks."""

    def __init__(self, narrowing: Narrowing) -> None:
        self.narrowing = narrowing
        self.between_planes: set[ir.Var] = set()
        self.calls: dict[ir.Atom, ir.OperatorCall] = {}
        self.made: set[ir.Atom] = set()  # images made in channel blocks
        self.taken: set[ir.Atom] = set()  # likewise

    def meet(self, block: ir.Block) -> None:
        for binding in block.bindings:
            self._note_made(binding)
        for binding in reversed(block.bindings):
            for inner in ir.blocks_of(binding.value):
                self.meet(inner)
            if isinstance(binding.value, ir.OperatorCall):
                self._note_taken(binding, binding.value)

    def _note_made(self, binding: ir.Binding) -> None:
        call = binding.value
        if isinstance(call, ir.GetItem) and call.tuple in self.made:  # a part of a split
            self.made.add(binding.var)
        if not isinstance(call, ir.OperatorCall):
            return
        self.calls[binding.var] = call
        if call.operator in ("conv", "conv_integer"):
            is_made = not self._is_pointwise(binding, call)
        else:
            is_made = _keeps_blocks(call) and not self.made.isdisjoint(call.args)
        if is_made:
            self.made.add(binding.var)

    def _note_taken(self, binding: ir.Binding, call: ir.OperatorCall) -> None:
        var = binding.var
        is_in_blocks = var in self.taken or var in self.made
        if not is_in_blocks and self._is_pointwise(binding, call):
            self.between_planes.add(var)
        elif call.operator in _OF_BLOCKS or moves_channels(call, to_last=True):
            self.taken.add(call.args[0])
        elif is_in_blocks and _keeps_blocks(call):
            self.taken.update(call.args)

    def _is_pointwise(self, binding: ir.Binding, call: ir.OperatorCall) -> bool:
        """Whether each result pixel depends on one pixel of a planar image, and there are enough of them."""
        if call.operator != "conv" or call.args[0] in self.made:
            return False
        x, weight, *_ = call.args
        attributes: dict[str, Any] = lookup(call.operator).bind(call.attributes)
        steps, pads, groups = attributes["strides"] or (), attributes["pads"] or (), attributes["groups"]
        if not tensor_type(weight).is_static:
            return False
        outputs, channels, *window = map(integer, tensor_type(weight).shape)
        if (
            isinstance(weight, ir.Constant)
            and _is_worth_packing(channels, outputs // groups)
            and self.narrowing.names(binding)
        ):
            return False
        source, sizes = self.calls.get(x), tensor_type(x).shape[2:]
        is_known = all(isinstance(size, int) for size in sizes)
        return (
            is_image(tensor_type(x))
            and is_image(tensor_type(binding.var))
            and (groups == 1 or min(outputs // groups, channels) >= costs.POINTWISE_GROUP)
            and all(size == 1 for size in window)
            and (is_known or all(step == 1 for step in steps))
            and all(pad == 0 for pad in pads)
            and _likely_pixels(x) + _likely_pixels(binding.var) >= costs.POINTWISE_FEW_PIXELS
            and not (source is not None and moves_channels(source, to_last=False))
        )
