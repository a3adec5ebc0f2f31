"""Paddings as attributes of what they are for: FoldExplicitPadding, FlattenAtrousConv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...transform import Pass
from ..expr import Constant, Expr, Function
from .core import again, dtype_of, each_function, op_of, rewrite, scalar_value

_CONVS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "qnn.conv2d")
_POOLS = tuple(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3))


def _pads(attrs: Any, rank: int) -> list[int]:
    """A call's padding: before, then after, each axis."""
    padding = attrs["padding"]
    several = [int(padding)] if isinstance(padding, (int, np.integer)) else [int(each) for each in padding]
    several = several * rank if len(several) == 1 else several
    return several * 2 if len(several) == rank else several


def _spatial(widths: Sequence[Sequence[int]], layout: str) -> list[int] | None:
    """What is padded before, then after, each axis of space; None where another axis is."""
    if any(tuple(map(int, width)) != (0, 0) for axis, width in zip(layout, widths, strict=True) if axis not in "DHW"):
        return None
    return [int(width[end]) for end in (0, 1) for axis, width in zip(layout, widths, strict=True) if axis in "DHW"]


def _pad_value(pad: Any) -> Any:
    """The number of a padding; None for one that is computed."""
    if len(pad.args) > 1:
        return scalar_value(pad.args[1])
    return pad.attrs["pad_value"]


def _neutral(call: Any, pad: Any) -> bool:
    """Whether what the padding adds is what the call's own padding adds."""
    name, value = op_of(call), _pad_value(pad)
    if name == "qnn.conv2d":
        return value is not None and value == scalar_value(call.args[2])
    if name.startswith("nn.max_pool"):
        dtype = np.dtype(dtype_of(call) or "float32")
        return value == (np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min)
    return value == 0


def _folded(old: Expr, new: Any) -> Expr | None:
    name = op_of(new)
    if name not in (*_CONVS, *_POOLS) or op_of(new.args[0]) != "nn.pad":
        return None
    pad = new.args[0]
    new._checked_type = old._checked_type
    if pad.attrs.get("pad_mode", "constant") != "constant" or "pad_width" not in pad.attrs or not _neutral(new, pad):
        return None
    pads = _spatial(pad.attrs["pad_width"], new.attrs["layout" if name in _POOLS else "data_layout"])
    if pads is None:
        return None
    own, changed = _pads(new.attrs, len(pads) // 2), {}
    if "avg_pool" in name and not new.attrs["count_include_pad"]:
        if any(own):
            return None
        changed["count_include_pad"] = True
    padding = [mine + more for mine, more in zip(own, pads, strict=True)]
    return again(new, [pad.args[0], *new.args[1:]], padding=padding, **changed)


def FoldExplicitPadding() -> Pass:
    """`nn.pad` as the padding of the convolution or pooling behind it, where both add the same (`fold_explicit_padding.cc`)."""
    return each_function("FoldExplicitPadding", lambda function, _: rewrite(function, _folded), level=0)


def _atrous(old: Expr, new: Any) -> Expr | None:
    conv: Any = new.args[0] if op_of(new) == "nn.batch_to_space_nd" else None
    inner: Any = conv.args[0] if op_of(conv) in ("nn.conv2d", "qnn.conv2d") else None
    if op_of(inner) != "nn.space_to_batch_nd" or scalar_value(_value(inner.attrs.get("pad_value", 0))) != _zero(conv):
        return None
    attrs, blocks = conv.attrs, [int(each) for each in new.attrs["block_shape"]]
    strides, dilation = ([*map(int, np.ravel(attrs[key]))] for key in ("strides", "dilation"))
    if attrs["data_layout"] != "NHWC" or any(_pads(attrs, 2)) or {*strides, *dilation} != {1}:
        return None
    before = [int(pad[0]) - int(crop[0]) for pad, crop in zip(inner.attrs["paddings"], new.attrs["crops"], strict=True)]
    after = [int(pad[1]) - int(crop[1]) for pad, crop in zip(inner.attrs["paddings"], new.attrs["crops"], strict=True)]
    if [*map(int, inner.attrs["block_shape"])] != blocks or len(blocks) != 2 or min(before + after) < 0:
        return None
    return again(conv, [inner.args[0], *conv.args[1:]], padding=[*before, *after], dilation=blocks)


def _value(number: Any) -> Expr:
    return number if isinstance(number, Expr) else Constant(np.array(number))


def _zero(conv: Any) -> Any:
    """What a convolution pads with."""
    return 0 if op_of(conv) == "nn.conv2d" else scalar_value(conv.args[2])


def FlattenAtrousConv() -> Pass:
    """A convolution between `space_to_batch_nd` and `batch_to_space_nd` as one with dilation (`flatten_atrous_conv.cc`)."""

    def flatten(function: Function, _: Any) -> Expr:
        return rewrite(function, _atrous)

    return each_function("FlattenAtrousConv", flatten, level=0)
