"""Channel-blocked layout: convolutional networks computed on images [N, C/16, *spatial, 16].

Every operator whose operands are known in blocked form, and that has one itself, is done on blocked images; its ordinary
result is then unpacked, for whatever else needs it. Between convolutions nothing does: dead code elimination takes the
unpacking away. Weights are packed here, once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.types import UNKNOWN, TensorType, TupleType, Type
from .. import ir
from ..operators.blocked import BLOCK, WIDEST_DEPTHWISE, merges
from ..operators.shapes import axes_of, axis_of, integer
from ..operators.table import Fusion, lookup
from ..operators.winograd import WINDOW_SIZE, WinogradChoice, best_outputs
from .rewriting import Rewriter

# A convolution of fewer channels, not blocked yet, reads the planes themselves.
_FEW_CHANNELS = 16

# What the sides of an image are taken to be where only a run can tell, when an algorithm is chosen.
_USUAL_SIZE = 224


@dataclass(frozen=True)
class BlockChannels:
    winograd: WinogradChoice = best_outputs
    name: str = "block_channels"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Blocker(module, self.winograd).run()


class _Blocker(Rewriter):
    """`blocked` maps variables to what they are channel-blocked, in the block that is being rewritten and those around it."""

    def __init__(self, module: ir.Module, winograd: WinogradChoice) -> None:
        super().__init__(module)
        self.winograd = winograd
        self.blocked: dict[ir.Var, ir.Var] = {}
        self.calls: dict[ir.Var, ir.OperatorCall] = {}  # whose results variables are
        self.splits: dict[ir.Var, ir.Var] = {}  # tuples of the parts of images, and of the parts of these blocked
        self.new: list[ir.Binding] = []
        self.origin = ""

    def block(self, block: ir.Block) -> ir.Block:
        outside, emitted = dict(self.blocked), self.new
        result = super().block(block)
        self.blocked, self.new = outside, emitted
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call, type_ = self._call_of(binding.value), binding.var.type
        if call is None:
            return (binding,)
        self.calls[binding.var] = call
        self.new, self.origin = [], binding.origin
        if not isinstance(type_, TensorType):
            _split(self, binding.var, call)
            return (*self.new, binding)
        rule = _RULES.get(call.operator) or (_elementwise if _is_elementwise(call) else None)
        result = self.part_of(binding.value) or (rule(self, call, type_) if rule else None)
        if result is None:
            return (binding,)
        if isinstance(result, ir.Var):
            result = self.ordinary(binding.var, result, type_)
        return (*self.new, dataclasses.replace(binding, value=result))

    def part_of(self, value: ir.Expr) -> ir.Var | None:
        """A part of what has been split in blocked form."""
        whole = self.splits.get(value.tuple) if isinstance(value, ir.GetItem) else None  # type: ignore[arg-type]
        if whole is None:
            return None
        assert isinstance(value, ir.GetItem)
        assert isinstance(whole.type, TupleType)
        return self.bind(ir.GetItem(whole, value.index), whole.type.fields[value.index], "split")

    def _call_of(self, value: ir.Expr) -> ir.OperatorCall | None:
        """The operator call that a value is. A part of what is split counts as a slice."""
        if isinstance(value, ir.GetItem) and isinstance(value.tuple, ir.Var) and value.tuple in self.calls:
            call = self.calls[value.tuple]
            return _part(call, value.index) if call.operator == "split" else None
        return value if isinstance(value, ir.OperatorCall) else None

    def ordinary(self, var: ir.Var, result: ir.Var, type_: TensorType) -> ir.OperatorCall:
        """What the variable is, given its result in blocked form."""
        if type_.rank != _tensor(result).rank - 1:  # a pooled image without its spatial axes
            return _call("reshape", result, shape=type_.shape)
        self.blocked[var] = result
        channels = type_.shape[1]
        if all(dim == 1 for dim in type_.shape[2:]) and isinstance(channels, int) and channels % BLOCK == 0:
            return _call("reshape", result, shape=type_.shape)
        return _call("unpack_channels", result, channels=channels)

    # ---- making operands ----

    def emit(self, operator: str, *args: ir.Atom, **attributes: Any) -> ir.Var:
        """A new binding before the present one; its variable."""
        call = _call(operator, *args, **attributes)
        types = lookup(operator).result_types([_tensor(arg) for arg in args], call.attributes)
        var = self.bind(call, types[0] if len(types) == 1 else TupleType(types), operator)
        self.calls[var] = call
        return var

    def bind(self, value: ir.Expr, type_: Type, name: str) -> ir.Var:
        var = ir.Var(name, type_)
        self.new.append(ir.Binding(var, value, self.origin))
        return var

    def packed(self, operator: str, atom: ir.Atom, **attributes: Any) -> ir.Atom:
        """The result of a packing operator: a constant if the atom is one."""
        if not isinstance(atom, ir.Constant):
            return self.emit(operator, atom, **attributes)
        entry = lookup(operator)
        return _constant(entry.evaluate([atom.value], entry.canonical(attributes))[0])

    def as_blocked(self, atom: ir.Atom) -> ir.Var:
        """The atom, an image, in blocked form: known, or packed now."""
        if isinstance(atom, ir.Var) and atom in self.blocked:
            return self.blocked[atom]
        packed = self.packed_from_last(atom) or self.emit("pack_channels", atom)
        if isinstance(atom, ir.Var):
            self.blocked[atom] = packed
        return packed

    def packed_from_last(self, atom: ir.Atom) -> ir.Var | None:
        """The atom in blocked form, if it is a permutation of an image [N, *spatial, C], which is not made then."""
        source = self.channels_last(atom)
        return None if source is None else self.emit("pack_channels", source, last=True)

    def channels_last(self, atom: ir.Atom) -> ir.Atom | None:
        """The image [N, *spatial, C] whose permutation the atom is, of pixels [N, P, C] perhaps; None if it is none."""
        call = self.calls.get(atom)  # type: ignore[arg-type]
        if call is None or not _is_image(_tensor(atom)):
            return None
        if _is_turned(call, first=True):
            return call.args[0]
        turned = self.calls.get(call.args[0]) if call.operator == "reshape" else None  # type: ignore[arg-type]
        n, channels, *sizes = _tensor(atom).shape
        if turned is None or not _is_turned(turned, first=True) or _tensor(call.args[0]).shape[:2] != (n, channels):
            return None
        return self.emit("reshape", turned.args[0], shape=(n, *sizes, channels))

    def is_blocked(self, atom: ir.Atom) -> bool:
        return isinstance(atom, ir.Var) and atom in self.blocked


_Rule = Callable[[_Blocker, ir.OperatorCall, TensorType], "ir.Var | ir.OperatorCall | None"]


# ---- rules: the result in blocked form; or what gives the ordinary result; or None, where the operator stays ----


def _conv(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | ir.OperatorCall | None:
    x, weight, *bias = call.args
    image, kernel = _tensor(x), _tensor(weight)
    if not _is_image(image) or not _is_image(type_) or not kernel.is_static:
        return None
    attributes = lookup(call.operator).bind(call.attributes)
    groups = attributes.pop("groups")
    outputs, channels = integer(type_.shape[1]), integer(image.shape[1])
    is_depthwise, is_merged = groups == channels == outputs, merges(outputs, channels // groups, groups)
    ends_in_blocks = groups == 1 or (outputs // groups % BLOCK == 0 and channels // groups % BLOCK == 0)
    if is_depthwise and integer(kernel.shape[-1]) > WIDEST_DEPTHWISE:
        return None
    if not (is_depthwise or is_merged or ends_in_blocks):
        return _conv_of_groups(blocker, call, groups, type_)
    if is_depthwise and (image.rank > 4 or not all(isinstance(pad, int) for pad in attributes["pads"] or ())):
        return None
    if is_depthwise and image.rank == 3:
        return _depthwise_of_signal(blocker, call, attributes)
    biases = [blocker.packed("pack_vector", atom, axes=image.rank - 2) for atom in bias]
    if is_depthwise:
        packed = blocker.packed("pack_planar_weights", weight)
        return blocker.emit("conv_depthwise", blocker.as_blocked(x), packed, *biases, **attributes)
    if groups == 1 and channels < _FEW_CHANNELS and not blocker.is_blocked(x):
        packed = blocker.packed("pack_planar_weights", weight)
        return blocker.emit("conv_planar", x, packed, *biases, **attributes)
    if (
        groups == 1
        and isinstance(weight, ir.Constant)
        and (tiles := _winograd_tiles(blocker, kernel, attributes, type_))
    ):
        packed = blocker.packed("pack_winograd_weights", weight, outputs=tiles)
        blocked = blocker.as_blocked(x)
        return blocker.emit("conv_winograd", blocked, packed, *biases, pads=attributes["pads"], channels=channels)
    packed = blocker.packed("pack_weights", weight, groups=groups)
    if is_merged:
        groups = channels // BLOCK
    attributes |= {"groups": groups, "channels": channels // groups}
    return blocker.emit("conv_blocked", blocker.as_blocked(x), packed, *biases, **attributes)


def _winograd_tiles(
    blocker: _Blocker, weight: TensorType, attributes: dict[str, Any], result: TensorType
) -> int | None:
    """The side of the tiles by which Winograd's algorithm computes the convolution best; None if another one does."""
    is_plain = all(step == 1 for name in ("strides", "dilations") for step in attributes[name] or ())
    if not is_plain or weight.shape[2:] != (WINDOW_SIZE, WINDOW_SIZE):
        return None
    outputs, channels = map(integer, weight.shape[:2])
    lines, columns = map(_likely, result.shape[2:])
    return blocker.winograd(channels, -(-outputs // BLOCK), lines, columns)


def _conv_of_groups(blocker: _Blocker, call: ir.OperatorCall, groups: int, type_: TensorType) -> ir.Var:
    """Groups that do not end with a block: they are cut apart, each to begin with one, and the results joined again."""
    x, weight, *bias = call.args
    each, outputs = integer(_tensor(x).shape[1]) // groups, integer(type_.shape[1]) // groups
    image = blocker.as_blocked(x)
    together = _apart(blocker, image, each, groups)
    weights = blocker.packed("pack_weights", weight, groups=groups)
    biases = [_bias_of_groups(blocker, vector, groups, type_.rank - 2) for vector in bias]
    attributes = dict(call.attributes) | {"channels": each}
    result = blocker.emit("conv_blocked", together, weights, *biases, **attributes)
    if outputs % BLOCK == 0:
        return result
    parts = blocker.emit("split", result, axis=1, sizes=(-(-outputs // BLOCK),) * groups)
    assert isinstance(parts.type, TupleType)
    images = [blocker.bind(ir.GetItem(parts, i), part, "split") for i, part in enumerate(parts.type.fields)]
    return blocker.emit("join_channels", *images, channels=(outputs,) * groups, count=groups * outputs)


def _apart(blocker: _Blocker, image: ir.Var, each: int, groups: int) -> ir.Var:
    """Groups of so many channels, with whole blocks for each."""
    if each % BLOCK == 0:
        return image
    cut = {"channels": (each * groups,), "count": each}
    parts = [blocker.emit("join_channels", image, start=group * each, **cut) for group in range(groups)]
    return blocker.emit("concat", *parts, axis=1)


def _bias_of_groups(blocker: _Blocker, bias: ir.Atom, groups: int, axes: int) -> ir.Atom:
    """A bias for each channel, those of a group beginning with a block."""
    (channels,) = map(integer, _tensor(bias).shape)
    apart = blocker.packed("reshape", bias, shape=(groups, channels // groups))
    padded = blocker.packed("pad", apart, pads=(0, 0, 0, -(channels // groups) % BLOCK))
    flat = blocker.packed("reshape", padded, shape=(groups * -(-channels // groups // BLOCK) * BLOCK,))
    return blocker.packed("pack_vector", flat, axes=axes)


def _depthwise_of_signal(blocker: _Blocker, call: ir.OperatorCall, attributes: dict[str, Any]) -> ir.Var:
    """A depthwise convolution of signals [N, C, L] is one of images of height 1."""
    x, weight, *bias = call.args
    biases = [blocker.packed("pack_vector", vector, axes=2) for vector in bias]
    weights = blocker.packed("pack_planar_weights", weight)
    blocks, one, *window = _tensor(weights).shape
    weights = blocker.packed("reshape", weights, shape=(blocks, one, 1, *window))
    signal = blocker.as_blocked(x)
    n, blocks, length, block = _tensor(signal).shape
    wide = blocker.emit("reshape", signal, shape=(n, blocks, 1, length, block))
    for name in ("strides", "dilations"):
        attributes[name] = (1, *(attributes[name] or (1,)))
    begin, end = attributes["pads"] or (0, 0)
    attributes["pads"] = (0, begin, 0, end)
    result = blocker.emit("conv_depthwise", wide, weights, *biases, **attributes)
    return blocker.emit("reshape", result, shape=(n, blocks, _tensor(result).shape[3], block))


def _elementwise(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """If at least one operand is blocked, and the others are as well, or numbers, or one constant a channel."""
    if type_.rank < 3 or not any(map(blocker.is_blocked, call.args)):
        return None
    operands = [_operand(blocker, arg, type_) for arg in call.args]
    if any(operand is None for operand in operands):
        return None
    return blocker.emit(call.operator, *operands, **dict(call.attributes))  # type: ignore[arg-type]


def _operand(blocker: _Blocker, arg: ir.Atom, result: TensorType) -> ir.Atom | None:
    """An operand of an elementwise operator as it broadcasts to a blocked result."""
    if blocker.is_blocked(arg):
        return blocker.as_blocked(arg) if _tensor(arg).shape[1] == result.shape[1] else None
    shape = _tensor(arg).shape
    if shape == result.shape and (packed := blocker.packed_from_last(arg)) is not None:
        blocker.blocked[arg] = packed  # type: ignore[index]
        return packed  # it is moved once, either way
    if all(dim == 1 for dim in shape):
        return _constant(arg.value.reshape(())) if isinstance(arg, ir.Constant) else arg if not shape else None
    per_channel, axes = (1,) * (result.rank - len(shape)) + shape, result.rank - 2
    if isinstance(arg, ir.Constant) and per_channel == (1, result.shape[1], *(1,) * axes):
        return blocker.packed("pack_vector", _constant(arg.value.reshape(-1)), axes=axes)
    return None


def _pool(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    (x,) = call.args
    if not blocker.is_blocked(x):
        return None
    attributes = lookup(call.operator).bind(call.attributes)
    for name, neutral in (("kernel", 1), ("strides", 1), ("dilations", 1)):
        if attributes[name] is not None:
            attributes[name] = (*attributes[name], neutral)
    if attributes["pads"] is not None:
        axes = len(attributes["pads"]) // 2
        attributes["pads"] = (*attributes["pads"][:axes], 0, *attributes["pads"][axes:], 0)
    return blocker.emit(call.operator, blocker.as_blocked(x), **attributes)


def _reduce(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Reductions over all spatial axes, such as global pooling."""
    (x,) = call.args
    attributes, image = dict(call.attributes), _tensor(x)
    spatial = tuple(range(2, image.rank))
    if not blocker.is_blocked(x) or axes_of(attributes.get("axes"), image.rank) != spatial:  # type: ignore[arg-type]
        return None
    channels = image.shape[1]
    if type_.rank != image.rank and (not isinstance(channels, int) or channels % BLOCK):
        return None
    return blocker.emit(call.operator, blocker.as_blocked(x), axes=spatial, keepdims=True)


def _concat(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Along the channels. If all but the last image end with a whole block, they need not even be moved."""
    if not all(map(blocker.is_blocked, call.args)):
        return None
    axis = axis_of(dict(call.attributes).get("axis", 0), type_.rank)  # type: ignore[arg-type]
    channels = [_tensor(arg).shape[1] for arg in call.args]
    if axis != 1 or not all(isinstance(each, int) and each > 0 for each in channels):
        return None
    images = map(blocker.as_blocked, call.args)
    if all(integer(each) % BLOCK == 0 for each in channels[:-1]):
        return blocker.emit("concat", *images, axis=1)
    return blocker.emit("join_channels", *images, channels=channels, count=type_.shape[1])


def _shuffle(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Two halves of the channels in turns: a reshape of a transposition of a reshape. What was joined before is joined
    that way at once."""
    turned = blocker.calls.get(call.args[0])  # type: ignore[arg-type]
    apart = blocker.calls.get(turned.args[0]) if turned and turned.operator == "permute_dims" else None  # type: ignore[arg-type]
    if turned is None or apart is None or apart.operator != "reshape" or not blocker.is_blocked(apart.args[0]):
        return None
    if _tensor(apart.args[0]) != type_:
        return None
    n, channels, *size = type_.shape
    halves = (n, 2, integer(channels) // 2, *size) if isinstance(channels, int) else ()
    axes: Any = dict(turned.attributes).get("axes")
    order = tuple(axis % 5 for axis in axes or ())
    if order != (0, 2, 1, 3, 4) or _tensor(turned.args[0]).shape != halves:
        return None
    image = blocker.as_blocked(apart.args[0])
    joined = blocker.calls.get(image)
    if joined is not None and joined.operator == "join_channels" and not dict(joined.attributes).get("interleaved"):
        return blocker.emit("join_channels", *joined.args, **dict(joined.attributes), interleaved=True)
    return blocker.emit("join_channels", image, channels=(channels,), count=channels, interleaved=True)


def _group(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Group and instance normalisation, with a known scale and bias."""
    x, *affine = call.args
    channels = type_.shape[1]
    known = all(isinstance(vector, ir.Constant) for vector in affine)
    if not blocker.is_blocked(x) or type_.rank != 4 or not known or not isinstance(channels, int):
        return None
    attributes = lookup(call.operator).bind(call.attributes) | {"channels": channels}
    attributes.setdefault("groups", channels)
    vectors = [blocker.packed("pack_vector", vector) for vector in affine]
    return blocker.emit("group_normalization_blocked", blocker.as_blocked(x), *vectors, **attributes)


def _depth_to_space(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """If the channels that come to lie side by side are whole blocks: what moves is as long as a vector."""
    (x,) = call.args
    if not blocker.is_blocked(x) or type_.rank != 4 or not isinstance(type_.shape[1], int) or type_.shape[1] % BLOCK:
        return None
    blocks = (*lookup(call.operator).bind(call.attributes)["blocks"], 1)[:2]
    return blocker.emit(call.operator, blocker.as_blocked(x), blocks=blocks)


def _permute(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.OperatorCall | None:
    """Channels that come to lie last, of the image or of its pixels [N, C, P]."""
    (x,) = call.args
    if not _is_turned(call, first=False):
        return None
    if blocker.is_blocked(x):
        return _call("unpack_channels", blocker.as_blocked(x), channels=type_.shape[-1], last=True)
    made = blocker.calls.get(x)  # type: ignore[arg-type]
    if made is None or made.operator != "reshape" or type_.rank != 3 or not blocker.is_blocked(made.args[0]):
        return None
    (image,) = made.args
    if _tensor(image).shape[:2] != _tensor(x).shape[:2]:
        return None
    turned = blocker.emit("unpack_channels", blocker.as_blocked(image), channels=type_.shape[-1], last=True)
    return _call("reshape", turned, shape=type_.shape)


def _slice(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """A part of the pixels of all channels, or some neighbouring channels of all pixels."""
    (x,) = call.args
    attributes = lookup(call.operator).bind(call.attributes)
    over = range(len(attributes["starts"])) if attributes["axes"] is None else attributes["axes"]
    axes = tuple(axis_of(axis, type_.rank) for axis in over)
    if not blocker.is_blocked(x):
        return None
    if axes == (1,) and attributes["steps"] in (None, (1,)):
        return _channels(blocker, x, attributes["starts"][0], type_)
    if min(axes, default=2) < 2:
        return None
    return blocker.emit(call.operator, blocker.as_blocked(x), **(attributes | {"axes": axes}))


def _channels(blocker: _Blocker, x: ir.Atom, start: Any, type_: TensorType) -> ir.Var | None:
    """Those from `start` on that the type of the result asks for: whole blocks, if they begin with one."""
    channels, count = _tensor(x).shape[1], type_.shape[1]
    if not isinstance(channels, int) or not isinstance(count, int) or not isinstance(start, int) or count < 1:
        return None
    start = max(start + channels if start < 0 else start, 0)
    if start % BLOCK:
        return blocker.emit("join_channels", blocker.as_blocked(x), channels=(channels,), start=start, count=count)
    first, end = start // BLOCK, -(-(start + count) // BLOCK)
    return blocker.emit("slice", blocker.as_blocked(x), starts=(first,), ends=(end,), axes=(1,))


def _split(blocker: _Blocker, parts: ir.Var, call: ir.OperatorCall) -> None:
    """An image into parts that begin with a block."""
    attributes: Any = lookup(call.operator).bind(call.attributes) if call.operator == "split" else {}
    if not attributes or not blocker.is_blocked(call.args[0]):
        return
    if axis_of(attributes["axis"], _tensor(call.args[0]).rank) != 1:
        return
    sizes = attributes["sizes"]
    if all(isinstance(size, int) and size > 0 for size in sizes) and all(size % BLOCK == 0 for size in sizes[:-1]):
        blocks = [-(-size // BLOCK) for size in sizes]
        blocker.splits[parts] = blocker.emit("split", blocker.as_blocked(call.args[0]), axis=1, sizes=blocks)


def _part(call: ir.OperatorCall, index: int) -> ir.OperatorCall:
    """One of the results of a split."""
    attributes: Any = lookup(call.operator).bind(call.attributes)
    start: Any = 0
    for size in attributes["sizes"][:index]:
        start = dims.add(start, size)
    end = dims.add(start, attributes["sizes"][index])
    return _call("slice", *call.args, starts=(start,), ends=(end,), axes=(attributes["axis"],))


def _resize(blocker: _Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    (x,) = call.args
    attributes = lookup(call.operator).bind(call.attributes)
    axis = axis_of(attributes["axis"], type_.rank)
    if not blocker.is_blocked(x) or axis < 2:
        return None
    return blocker.emit(call.operator, blocker.as_blocked(x), **(attributes | {"axis": axis}))


_RULES: dict[str, _Rule] = {
    "conv": _conv,
    "max_pool": _pool,
    "average_pool": _pool,
    "mean": _reduce,
    "sum": _reduce,
    "max": _reduce,
    "concat": _concat,
    "group_normalization": _group,
    "instance_normalization": _group,
    "depth_to_space": _depth_to_space,
    "reshape": _shuffle,
    "permute_dims": _permute,
    "slice": _slice,
    "resize": _resize,
}


# ---- small things ----


def _is_elementwise(call: ir.OperatorCall) -> bool:
    return bool(call.args) and lookup(call.operator).fusion is Fusion.ELEMENTWISE


def _is_turned(call: ir.OperatorCall, first: bool) -> bool:
    """Whether the call is a permutation that moves the channels from the end to the second place, or else from there to the
    end."""
    if call.operator != "permute_dims":
        return False
    rank = _tensor(call.args[0]).rank
    axes: Any = lookup(call.operator).bind(call.attributes)["axes"]
    spatial = range(1, rank - 1) if first else range(2, rank)
    wanted = (0, rank - 1, *spatial) if first else (0, *spatial, 1)
    return rank > 2 and axes is not None and tuple(axis % rank for axis in axes) == wanted


def _is_image(type_: TensorType) -> bool:
    """A float32 tensor [N, C, *spatial], of which N and sizes may be known when the program runs."""
    return (
        type_.rank >= 3
        and type_.dtype is DType.float32
        and UNKNOWN not in type_.shape
        and isinstance(type_.shape[1], int)
        and 0 not in type_.shape[1:]
    )


def _likely(dim: Any) -> int:
    """A size of an image, or what it is if the image that comes in has a usual size."""
    return dims.evaluate(dim, dict.fromkeys(dims.variables(dim), _USUAL_SIZE))


def _tensor(atom: ir.Atom) -> TensorType:
    assert not isinstance(atom, ir.GlobalRef)
    assert isinstance(atom.type, TensorType)
    return atom.type


def _call(operator: str, *args: ir.Atom, **attributes: Any) -> ir.OperatorCall:
    return ir.OperatorCall(operator, args, lookup(operator).canonical(attributes))


def _constant(value: np.ndarray) -> ir.Constant:
    array = np.ascontiguousarray(value).reshape(value.shape)
    array.flags.writeable = False
    return ir.Constant(array)
