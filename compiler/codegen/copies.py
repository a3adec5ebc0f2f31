"""What operators of data movement are: strided copies, each of which one loop nest does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...formats import dims
from ...formats.dims import Dim
from ...formats.primitive import PrimitiveDefinition, PrimitiveNode
from ...formats.types import TensorType
from ..operators.movement import placed, space_axes, unfilled
from ..operators.shapes import axis_of
from ..operators.table import bound_attributes


@dataclass(frozen=True)
class Axis:
    size: Dim
    source: Dim  # step, in elements
    target: Dim


@dataclass(frozen=True)
class Copy:
    """Axes are given in the target's order, outermost first; `source` and `target` count the kernel's tensors."""

    source: int
    target: int
    axes: tuple[Axis, ...]
    source_start: Dim = 0
    target_start: Dim = 0
    may_stay: bool = (
        False  # of elements that keep their places: there is nothing to do where source and target are one memory
    )

    def simplified(self) -> Copy:
        """The same copy with as few axes as possible."""
        merged: list[Axis] = []
        for axis in self.axes:
            if axis.size == 1:
                continue
            if merged and all(
                outer == dims.multiply(inner, axis.size)
                for outer, inner in ((merged[-1].source, axis.source), (merged[-1].target, axis.target))
            ):
                merged[-1] = Axis(dims.multiply(merged[-1].size, axis.size), axis.source, axis.target)
            else:
                merged.append(axis)
        axes = tuple(merged) or (Axis(1, 1, 1),)
        return replace(self, axes=axes)


def shape_of(type_: TensorType) -> tuple[Dim, ...]:
    """The shape of a tensor of a definition, none of whose dimensions is unknown."""
    return type_.shape  # type: ignore[return-value]


def steps_of(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The step of each axis of a contiguous tensor, in elements."""
    return tuple(dims.product(shape[axis + 1 :]) for axis in range(len(shape)))


def _along(shape: Sequence[Dim], sources: Sequence[Dim], targets: Sequence[Dim]) -> tuple[Axis, ...]:
    return tuple(Axis(*values) for values in zip(shape, sources, targets, strict=True))


# ---- the operators as copies ----


def _permute(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, result = shape_of(definition.params[0]), shape_of(definition.results[0])
    axes = bound_attributes(node)["axes"]
    order = tuple(reversed(range(len(shape)))) if axes is None else [axis_of(axis, len(shape)) for axis in axes]
    steps = steps_of(shape)
    return [Copy(0, 1, _along(result, [steps[axis] for axis in order], steps_of(result)))]


def _depth_to_space(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, result, blocks = (
        shape_of(definition.params[0]),
        shape_of(definition.results[0]),
        bound_attributes(node)["blocks"],
    )
    parted = (shape[0], *blocks, result[1], *shape[2:])
    order = space_axes(len(shape), len(blocks))
    moved, steps = tuple(parted[axis] for axis in order), steps_of(parted)
    return [Copy(0, 1, _along(moved, [steps[axis] for axis in order], steps_of(moved)))]


def _broadcast(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, result = shape_of(definition.params[0]), shape_of(definition.results[0])
    missing = len(result) - len(shape)
    steps: list[Dim] = [0] * missing
    steps += [0 if dim == 1 else step for dim, step in zip(shape, steps_of(shape), strict=True)]
    return [Copy(0, 1, _along(result, steps, steps_of(result)))]


def _tile(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, result = shape_of(definition.params[0]), shape_of(definition.results[0])
    axes: list[Axis] = []
    repetitions = bound_attributes(node)["repetitions"]
    for count, size, source, target in zip(repetitions, shape, steps_of(shape), steps_of(result), strict=True):
        axes += [Axis(count, 0, dims.multiply(target, size)), Axis(size, source, target)]
    return [Copy(0, 1, tuple(axes))]


def _join(definition: PrimitiveDefinition, axis: int, shapes: Sequence[tuple[Dim, ...]]) -> list[Copy]:
    """The inputs, seen as having `shapes`, one after the other along an axis."""
    copies, start, target = list[Copy](), 0, len(definition.params)
    steps = steps_of(shape_of(definition.results[0]))
    for source, shape in zip(definition.nodes[0].inputs, shapes, strict=True):
        copies.append(Copy(source, target, _along(shape, steps_of(shape), steps), 0, dims.multiply(start, steps[axis])))
        start = dims.add(start, shape[axis])  # type: ignore[assignment]
    return copies


def _concat(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shapes = [shape_of(definition.params[i]) for i in node.inputs]
    return _join(definition, axis_of(bound_attributes(node)["axis"], len(shapes[0])), shapes)


def _stack(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shapes = [shape_of(definition.params[i]) for i in node.inputs]
    axis = axis_of(bound_attributes(node)["axis"], len(shapes[0]) + 1)
    return _join(definition, axis, [(*shape[:axis], 1, *shape[axis:]) for shape in shapes])


def _split(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, start, copies = shape_of(definition.params[0]), 0, list[Copy]()
    axis, steps = axis_of(bound_attributes(node)["axis"], len(shape)), steps_of(shape)
    for i, result in enumerate(node.results):
        part = shape_of(result)
        copies.append(Copy(0, 1 + i, _along(part, steps, steps_of(part)), dims.multiply(start, steps[axis])))
        start = dims.add(start, part[axis])  # type: ignore[assignment]
    return copies


def _slice(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, result = shape_of(definition.params[0]), shape_of(definition.results[0])
    attributes, steps, start = bound_attributes(node), list(steps_of(shape)), 0
    starts = attributes["starts"]
    over = attributes["axes"] or tuple(range(len(starts)))
    strides = attributes["steps"] or (1,) * len(starts)
    for bound, axis, stride in zip(starts, over, strides, strict=True):
        axis = axis_of(axis, len(shape))
        begin = placed(bound, shape[axis])
        first = dims.maximum(begin, 0) if stride > 0 else dims.minimum(begin, dims.add(shape[axis], -1))
        start = dims.add(start, dims.multiply(first, steps[axis]))  # type: ignore[assignment]
        steps[axis] = dims.multiply(steps[axis], stride)
    return [Copy(0, 1, _along(result, steps, steps_of(result)), start)]


def _put_slice(definition: PrimitiveDefinition, node: PrimitiveNode) -> list[Copy]:
    shape, part = (shape_of(definition.params[number]) for number in node.inputs)
    attributes, steps = bound_attributes(node), steps_of(shape)
    axis, start = axis_of(attributes["axis"], len(shape)), attributes["start"]
    end, step = dims.add(start, part[axis]), steps[axis]
    x, put = node.inputs

    def kept(first: Dim, count: Dim) -> Copy:
        axes = _along((*shape[:axis], count, *shape[axis + 1 :]), steps, steps)
        at = dims.multiply(first, step)
        return Copy(x, len(definition.params), axes, at, at, may_stay=True)

    replaced = Copy(put, len(definition.params), _along(part, steps_of(part), steps), 0, dims.multiply(start, step))
    return [kept(0, start), replaced, kept(end, unfilled(shape[axis], part[axis], start))]


_COPIES: dict[str, Callable[[PrimitiveDefinition, PrimitiveNode], list[Copy]]] = {
    "permute_dims": _permute,
    "depth_to_space": _depth_to_space,
    "broadcast_to": _broadcast,
    "tile": _tile,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "put_slice": _put_slice,
}
OPERATORS = tuple(_COPIES)


def copies_of(definition: PrimitiveDefinition) -> list[Copy] | None:
    """What one of `OPERATORS`, alone in its definition, copies; None for any other definition."""
    (node,) = definition.nodes if len(definition.nodes) == 1 else (None,)
    params = len(definition.params)
    if node is None or node.operator not in _COPIES or any(number >= params for number in node.inputs):
        return None
    if definition.outputs != tuple(range(params, params + len(node.results))):
        return None
    return [copy.simplified() for copy in _COPIES[node.operator](definition, node)]
