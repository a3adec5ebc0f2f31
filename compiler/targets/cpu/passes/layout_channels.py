"""Rules of the layout pass for operators that move channels: joins, slices and splits, shuffles, channels to the last axis.

If channels begin on a block boundary, whole blocks move; else `join_channels` shifts them. Groups of a convolution that do not
begin on one are separated before it, and joined again after it.
"""

from __future__ import annotations

from typing import Any

from .....formats import dims
from .....formats.types import ShapeDim, TensorType, TupleType
from .... import ir
from ....operators.shapes import axis_of, integer
from ....operators.table import lookup
from ....passes.rewriting import operator_call, order_of, tensor_type
from ..operators.blocked import JOINED, TURNS
from ..operators.packing import BLOCK
from .layout_blocker import Apart, Blocker, is_image, moves_channels


def join(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Along the channels. If all but the last image end with a whole block, they need not even be moved."""
    if not all(map(blocker.is_blocked, call.args)):
        return None
    axis = axis_of(dict(call.attributes).get("axis", 0), type_.rank)  # type: ignore[arg-type]
    channels = [tensor_type(arg).shape[1] for arg in call.args]
    if axis != 1 or not all(isinstance(each, int) and each > 0 for each in channels):
        return None
    images = map(blocker.as_blocked, call.args)
    if all(integer(each) % BLOCK == 0 for each in channels[:-1]):
        return blocker.emit("concat", *images, axis=1)
    if type_.dtype not in JOINED:
        return None
    return blocker.emit("join_channels", *images, channels=channels, count=type_.shape[1])


def cut(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """A part of the pixels of all channels, or some neighbouring channels of all pixels."""
    attributes = lookup(call.operator).bind(call.attributes)
    over = range(len(attributes["starts"])) if attributes["axes"] is None else attributes["axes"]
    axes = tuple(axis_of(axis, type_.rank) for axis in over)
    if axes == (1,) and attributes["steps"] in (None, (1,)):
        return _neighbours(blocker, image, tensor_type(call.args[0]).shape[1], attributes["starts"][0], type_.shape[1])
    if min(axes, default=2) < 2:
        return None
    return blocker.emit(call.operator, image, **(attributes | {"axes": axes}))


def _neighbours(blocker: Blocker, image: ir.Var, channels: ShapeDim, start: Any, count: ShapeDim) -> ir.Var | None:
    """So many of an image's channels, from `start` on: whole blocks, if they begin with one."""
    if not isinstance(channels, int) or not isinstance(count, int) or not isinstance(start, int) or count < 1:
        return None
    start = max(start + channels if start < 0 else start, 0)
    if start % BLOCK and tensor_type(image).dtype not in JOINED:
        return None
    if start % BLOCK:
        return blocker.emit("join_channels", image, channels=(channels,), start=start, count=count)
    first, end = start // BLOCK, -(-(start + count) // BLOCK)
    return blocker.emit("slice", image, starts=(first,), ends=(end,), axes=(1,))


# ---- splits ----


def split(blocker: Blocker, parts: ir.Var, call: ir.OperatorCall) -> None:
    """Splits an image into parts that begin on a block boundary."""
    attributes: Any = lookup(call.operator).bind(call.attributes) if call.operator == "split" else {}
    if not attributes or not blocker.is_blocked(call.args[0]):
        return
    if axis_of(attributes["axis"], tensor_type(call.args[0]).rank) != 1:
        return
    sizes = attributes["sizes"]
    if all(isinstance(size, int) and size > 0 for size in sizes) and all(size % BLOCK == 0 for size in sizes[:-1]):
        blocks = [-(-size // BLOCK) for size in sizes]
        blocker.splits[parts] = blocker.emit("split", blocker.as_blocked(call.args[0]), axis=1, sizes=blocks)


def slices(call: ir.OperatorCall) -> list[ir.OperatorCall]:
    """The results of a split, each as a slice."""
    attributes: Any = lookup(call.operator).bind(call.attributes)
    made, start = [], 0
    for size in attributes["sizes"]:
        end: Any = dims.add(start, size)
        made.append(operator_call("slice", *call.args, starts=(start,), ends=(end,), axes=(attributes["axis"],)))
        start = end
    return made


# ---- groups ----


def lay_apart(blocker: Blocker, image: ir.Var, each: int, groups: int) -> ir.Var:
    """An image whose groups of `each` channels are padded to whole blocks."""
    if each % BLOCK == 0:
        return image
    known = blocker.apart.get(image)
    if known is not None and (known.each, known.count) == (each, groups):
        return known.image
    return _joined(blocker, image, each * groups, apart=groups)


def lay_together(blocker: Blocker, image: ir.Var, each: int, groups: int) -> ir.Var:
    """The image of all channels, from one with separate groups."""
    if each % BLOCK == 0:
        return image
    parts = blocker.emit("split", image, axis=1, sizes=(-(-each // BLOCK),) * groups)
    assert isinstance(parts.type, TupleType)
    images = [blocker.bind(ir.GetItem(parts, i), part, "split") for i, part in enumerate(parts.type.fields)]
    together = blocker.emit("join_channels", *images, channels=(each,) * groups, count=each * groups)
    blocker.apart[together] = Apart(image, each, groups)
    return together


def activate_apart(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """An elementwise function of an image without other users whose groups have just been joined: it is
    computed before the join, by the convolution."""
    (x,) = call.args if len(call.args) == 1 else (None,)
    groups = blocker.apart.get(blocker.blocked[x]) if x in blocker.blocked else None
    if groups is None or blocker.uses[x] != 1 or not is_image(type_):  # type: ignore[index]
        return None
    activated = blocker.emit(call.operator, groups.image, **dict(call.attributes))
    return lay_together(blocker, activated, groups.each, groups.count)


# ---- permutations ----


def shuffle(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """A channel shuffle: a reshape of a transposition of a reshape. A preceding join is fused
    with it."""
    turned = blocker.calls.get(call.args[0])  # type: ignore[arg-type]
    apart = blocker.calls.get(turned.args[0]) if turned and turned.operator == "permute_dims" else None  # type: ignore[arg-type]
    if turned is None or apart is None or apart.operator != "reshape" or not blocker.is_blocked(apart.args[0]):
        return None
    divided = tensor_type(turned.args[0]).shape
    if tensor_type(apart.args[0]) != type_ or len(divided) != type_.rank + 1:
        return None
    (n, channels, *sizes), turns = type_.shape, divided[1]
    if not isinstance(channels, int) or turns not in TURNS or divided != (n, turns, channels // turns, *sizes):
        return None
    if order_of(turned) != (0, 2, 1, *range(3, len(divided))):
        return None
    return _joined(blocker, blocker.as_blocked(apart.args[0]), channels, turns=turns)


def _joined(blocker: Blocker, image: ir.Var, channels: int, **order: int) -> ir.Var:
    """An image's channels in another order; a preceding join is fused with it."""
    joined = blocker.calls.get(image)
    if (
        joined is not None
        and joined.operator == "join_channels"
        and not {"turns", "apart"} & dict(joined.attributes).keys()
    ):
        return blocker.emit("join_channels", *joined.args, **dict(joined.attributes), **order)
    return blocker.emit("join_channels", image, channels=(channels,), count=channels, **order)


def to_last(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.OperatorCall | None:
    """Moves channels to the last axis, of the image or of its pixels [N, C, P]."""
    (x,) = call.args
    if not moves_channels(call, to_last=True):
        return None
    if blocker.is_blocked(x):
        return operator_call("unpack_channels", blocker.as_blocked(x), channels=type_.shape[-1], last=True)
    made = blocker.calls.get(x)  # type: ignore[arg-type]
    if made is None or made.operator != "reshape" or type_.rank != 3 or not blocker.is_blocked(made.args[0]):
        return None
    (image,) = made.args
    if tensor_type(image).shape[:2] != tensor_type(x).shape[:2]:
        return None
    turned = blocker.emit("unpack_channels", blocker.as_blocked(image), channels=type_.shape[-1], last=True)
    return operator_call("reshape", turned, shape=type_.shape)


def depth_to_space(blocker: Blocker, image: ir.Var, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """Requires adjacent channels in whole blocks, so that whole vectors move."""
    channels = type_.shape[1]
    if not isinstance(channels, int) or channels % BLOCK:
        return None
    return blocker.emit(call.operator, image, **lookup(call.operator).bind(call.attributes))
