"""What operators say of layouts (`FInferCorrectLayout`): of a call, and the layouts that its operands have or are to have, the
layouts that it reads and gives, and its attributes for these. A layout is a text like "NCHW16c"; None is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ty
from ..op.layouts import parse
from .fuse import BROADCAST, ELEMWISE, PATTERN_OF

Layout = Any  # a text, or None
Found = tuple[list[Layout], list[Layout], dict[str, Any]]
Infer = Callable[
    [Any, Any, list[Layout], list[Any]], "Found | None"
]  # call, new layouts or None, old ones, operands' types


def letters(layout: str) -> list[str]:
    """The axes of a layout, in order."""
    return [letter for letter, _ in parse(layout)]


def primal(layout: str) -> list[str]:
    """The axes of a layout that are no parts of others."""
    return [letter for letter in letters(layout) if letter.isupper()]


def text(axes: Sequence[tuple[str, int]]) -> str:
    return "".join(f"{size or ''}{letter}" for letter, size in axes)


def sub(layout: str, start: int, count: int) -> Layout:
    """Some of a layout's axes; None where a part would lack its axis."""
    axes = parse(layout)[start : start + count]
    names = {letter for letter, _ in axes}
    return text(axes) if all(letter.isupper() or letter.upper() in names for letter in names) else None


def _shape(type_: Any) -> list[Any]:
    return list(type_.shape) if isinstance(type_, ty.TensorType) else []


def _elementwise(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    chosen = new[0] if new is not None else next((each for each in old if each is not None), None)
    return None if chosen is None else ([chosen] * len(old), [chosen], {})


def _like(old: str, before: str, after: str) -> Layout:
    """A layout changed as another one was; None where the two do not fit."""
    if before == after or not old:
        return old
    large, small = (before, old) if len(primal(before)) >= len(primal(old)) else (old, before)
    fits = letters(large)[len(letters(large)) - len(letters(small)) :] == letters(small)
    return after if fits and large == before else None


def _unit_parts(layout: str, before: str, shape: Sequence[Any]) -> str:
    """A layout whose parts of axes of length 1 have length 1."""
    places = letters(before)
    axes = []
    for letter, size in parse(layout):
        whole = [shape[places.index(each)] for each in (letter.upper(), letter) if each in places]
        is_unit = letter.islower() and all(length == 1 for length in whole)
        axes.append((letter, 1 if is_unit else size))
    return text(axes)


def _broadcast(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    shapes = [_shape(type_) for type_ in types[:2]]
    known = list(old[:2])
    large = 0 if len(shapes[0]) >= len(shapes[1]) else 1
    if known == [None, None]:
        return None
    if None in known:
        have = 0 if known[0] is not None else 1
        rest = len(shapes[have]) - len(shapes[1 - have])
        known[1 - have] = sub(known[have], rest, len(shapes[1 - have])) if rest >= 0 else None
        if known[1 - have] is None:
            return None
        large = have
    if new is None:
        return known, [known[large]], {}
    result = new[large]
    bigger = 0 if len(primal(new[0])) >= len(primal(new[1])) else 1
    target = _like(known[1 - bigger], known[bigger], new[bigger])
    if target is None:
        return None
    changed = list(known)
    changed[bigger] = new[bigger]
    changed[1 - bigger] = _unit_parts(target, known[1 - bigger], shapes[1 - bigger]) if target else target
    return changed, [result], {}


def _moved(old: str, new: str, axis: int) -> int | None:
    """Where an axis of a layout is in another one; None where it is in parts there."""
    letter = letters(old)[axis]
    return None if letter.lower() in letters(new) or letter not in letters(new) else letters(new).index(letter)


def _axis(name: str = "axis", channels: int = 0, results: int = 0, default: int = -1, joins: bool = False) -> Infer:
    """Operators along an axis or several: which these are. `channels` operands more have one number for each channel, and
    `results` results more; what `joins` tensors may do so along an axis in parts, if all have it so."""

    def infer(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
        before = old[0]
        if before is None:
            return None
        chosen = new[0] if new is not None else before
        axis = call.attrs.get(name)
        axis = default if axis is None else axis
        rank = len(letters(before))
        several = [each % rank for each in ([axis] if isinstance(axis, int) else axis)]
        if joins and new is not None and len(set(new)) == 1:
            moved: list[Any] = [letters(chosen).index(letters(before)[each]) for each in several]
        else:
            moved = [_moved(before, chosen, each) for each in several]
        if None in moved:
            chosen, moved = before, several
        attrs = {name: moved[0] if isinstance(axis, int) else moved}
        rest = len(old) - channels if channels else len(old)
        return [*[chosen] * rest, *["C"] * channels], [chosen, *["C"] * results], attrs

    return infer


def _of_channels(axis: str, count: int, results: int = 0) -> Infer:
    """`_axis`, of operators whose axis is that of channels."""
    return _axis(axis, count, results, default=1)


def _conv(data: str = "data_layout", kernel: str = "kernel_layout") -> Infer:
    """Convolutions: their layouts are attributes. Scales and zero points have one number for each channel."""

    def infer(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
        attrs = call.attrs
        reads = [attrs[data], attrs[kernel], *["C"] * (len(old) - 2)]
        if len(old) == 3:  # deformable: offsets as data
            reads = [attrs[data], attrs[data], attrs[kernel]]
        return reads, [attrs["out_layout"] or attrs[data]], {}

    return infer


def _pool(changes: bool = True) -> Infer:
    """Operators whose attribute `layout` may be any order of the axes."""

    def infer(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
        own = call.attrs["layout"]
        asked = new[0] if new is not None else None
        fits = asked is not None and changes and sorted(primal(asked)) == sorted(primal(own)) and old[0] == own
        if "_pool" not in call.op.name and asked is not None and any(letter.islower() for letter in asked):
            fits = False
        layout = asked if fits and not call.attrs.get("out_layout") else own
        attrs = {"layout": layout}
        return [layout, *["N"] * (len(old) - 1)], [call.attrs.get("out_layout") or layout], attrs

    return infer


def _roi(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    layout = call.attrs["layout"]
    return [layout, "NC"], [layout], {}


def _reduce(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    before = old[0]
    if before is None:
        return None
    attrs = call.attrs
    rank, axis = len(letters(before)), attrs.get("axis")
    several = (
        list(range(rank)) if axis is None else [each % rank for each in ([axis] if isinstance(axis, int) else axis)]
    )
    several = [each for each in range(rank) if each not in several] if attrs.get("exclude") else several
    reduced = [letters(before)[each] for each in several]
    chosen = new[0] if new is not None and {*reduced} <= {*letters(new[0])} else before
    gone = {*reduced, *(letter.lower() for letter in reduced)}
    axes = [place for place, letter in enumerate(letters(chosen)) if letter in gone]
    kept = [(letter, 1 if size and letter in gone else size) for letter, size in parse(chosen)]
    result = text(kept if attrs.get("keepdims") else [each for each in kept if each[0] not in gone])
    changed: dict[str, Any] = {"axis": axes[0] if isinstance(axis, int) and len(axes) == 1 else axes}
    if "exclude" in attrs:
        changed["exclude"] = False
    if (axis is None and not attrs.get("exclude")) or chosen == before:
        changed = {}
    return [chosen, *[chosen] * (len(old) - 1)], [result], changed


def _squeeze(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    before = old[0]
    if before is None:
        return None
    shape, axis = _shape(types[0]), call.attrs.get("axis")
    rank = len(shape)
    several = (
        [at for at in range(rank) if shape[at] == 1]
        if axis is None
        else [each % rank for each in ([axis] if isinstance(axis, int) else axis)]
    )
    gone = [letters(before)[each] for each in several]
    chosen = new[0] if new is not None else before
    if any(letter.lower() in letters(chosen) for letter in gone):
        chosen = before
    axes = [letters(chosen).index(letter) for letter in gone]
    return [chosen], [text([each for each in parse(chosen) if each[0] not in gone])], {"axis": axes}


def _permuted(values: Sequence[Any], before: str, after: str) -> list[Any]:
    """One value for each axis, in another order of the axes."""
    return [values[letters(before).index(letter)] for letter in letters(after)]


def _strided_slice(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    before, attrs = old[0], call.attrs
    if before is None or not all(isinstance(attrs.get(name), (list, tuple)) for name in ("begin", "end")):
        return None
    chosen = new[0] if new is not None else before
    strides = attrs.get("strides") or [1] * len(attrs["begin"])
    strides = list(strides) * len(attrs["begin"]) if len(strides) == 1 else [*strides]
    if sorted(letters(chosen)) != sorted(letters(before)):
        return [before], [before], {}
    if attrs.get("axes"):
        axes = [letters(chosen).index(letters(before)[axis]) for axis in attrs["axes"]]
        return [chosen], [chosen], {"axes": axes} if chosen != before else {}
    if chosen == before:
        return [before], [before], {}
    shape = _shape(types[0])
    begin, end = [[*attrs[name]] for name in ("begin", "end")]
    sized = attrs.get("slice_mode") == "size"
    begin += [0] * (len(shape) - len(begin))
    end += [-1 if sized else int(size) for size in shape[len(end) :]]
    strides += [1] * (len(shape) - len(strides))
    parts = {"begin": begin, "end": end, "strides": strides}
    return [chosen], [chosen], {name: _permuted(each, before, chosen) for name, each in parts.items()}


def _pad(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    before = old[0]
    if before is None:
        return None
    widths = dict(zip(letters(before), call.attrs["pad_width"], strict=True))
    chosen = new[0] if new is not None and sorted(primal(new[0])) == sorted(primal(before)) else before
    if any(
        letter.islower() and sum(map(int, widths[letter.upper()])) for letter in letters(chosen) if letter not in widths
    ):
        chosen = before
    changed = [widths.get(letter, (0, 0)) for letter in letters(chosen)]
    return [chosen, *[""] * (len(old) - 1)], [chosen], {"pad_width": changed} if chosen != before else {}


def _transpose(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    before = old[0]
    if before is None:
        return None
    rank = len(letters(before))
    axes = call.attrs.get("axes")
    order = [axis % rank for axis in axes] if axes else list(range(rank))[::-1]
    result = [letters(before)[axis] for axis in order]
    chosen = new[0] if new is not None and sorted(letters(new[0])) == sorted(letters(before)) else before
    if any(letter.islower() for letter in chosen):
        chosen = before
    changed = {"axes": [letters(chosen).index(letter) for letter in result]} if chosen != before else {}
    return [chosen], ["".join(result)], changed


def _layout_transform(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    source, target = call.attrs["src_layout"], call.attrs["dst_layout"]
    if new is not None and new[0] is not None and sorted(primal(new[0])) == sorted(primal(target)):
        return [new[0]], [target], {"src_layout": new[0]}
    return [source], [target], {}


def _qnn_concatenate(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    """Tensors, then their scales, their zero points, and those of the result, which are scalars."""
    count = (len(old) - 2) // 3
    found = _axis()(call, None if new is None else new[:count], old[:count], types)
    return found and ([*found[0], *[""] * (len(old) - count)], found[1], found[2])


def _qnn_binary(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    """As sums are; scales and zero points are scalars."""
    found = _broadcast(call, None if new is None else new[:2], old[:2], types)
    return found and ([*found[0], *[""] * (len(old) - 2)], found[1], found[2])


def _where(call: Any, new: Any, old: list[Layout], types: list[Any]) -> Found | None:
    return _elementwise(call, new, old, types) if len({tuple(_shape(each)) for each in types}) == 1 else None


_BY_AXIS = "split nn.softmax nn.log_softmax nn.lrn stack topk argsort qnn.dequantize qnn.quantize"
_LAYOUTS = """
    nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool2d
    nn.global_avg_pool2d nn.adaptive_avg_pool2d nn.adaptive_max_pool2d nn.adaptive_avg_pool3d nn.adaptive_max_pool3d
    nn.upsampling nn.upsampling3d image.resize2d
"""
_CONVS = """
    nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose nn.conv3d_transpose nn.deformable_conv2d qnn.conv2d qnn.conv2d_transpose
"""
_UNRULED = "expand_dims repeat tile broadcast_to broadcast_to_like reinterpret full_like zeros ones full trilu"
_REDUCTIONS = "sum mean max min prod all any argmax argmin variance"

_KINDS = {ELEMWISE: _elementwise, BROADCAST: _broadcast}

INFER: dict[str, Infer] = {
    **{name: _KINDS[kind] for name, kind in PATTERN_OF.items() if kind in _KINDS and name not in _UNRULED.split()},
    **dict.fromkeys(_BY_AXIS.split(), _axis()),
    **dict.fromkeys(_LAYOUTS.split(), _pool()),
    **dict.fromkeys(_CONVS.split(), _conv()),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    "concatenate": _axis(joins=True),
    "nn.bias_add": _of_channels("axis", 1),
    "nn.batch_norm": _of_channels("axis", 4, 2),
    "nn.instance_norm": _of_channels("axis", 2),
    "nn.layer_norm": _axis("axis", 2),
    "nn.group_norm": _of_channels("axis", 2),
    "nn.l2_normalize": _axis(),
    "nn.prelu": _of_channels("axis", 1),
    "qnn.concatenate": _qnn_concatenate,
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _qnn_binary),
    "qnn.requantize": _of_channels("axis", 4),
    "nn.dropout": _elementwise,
    "nn.pad": _pad,
    "squeeze": _squeeze,
    "strided_slice": _strided_slice,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "where": _where,
    "vision.roi_align": _roi,
    "vision.roi_pool": _roi,
}
