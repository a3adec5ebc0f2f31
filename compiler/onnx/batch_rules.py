"""How the batch goes through each operator: a rule tells where it lies in the results, or refuses what would mix rows.

A rule takes the builder, the operands and the attributes, of which some operand or attribute has the batch. It gives the
operands as they are to be, and the place in all results (or a list, one for each); sizes that were written down it replaces in
the attributes.
An operator without a rule is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...formats import dims
from ...formats.dims import Dim
from ..operators import TABLE, Fusion
from ..operators.shapes import axes_of, axis_of
from .batch import SIZES, Attributes, BatchBuilder, Made, Place, Rule
from .values import Value

RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Registers the rule of these operators."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return add


def _text(shape: Sequence[object]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _held(g: BatchBuilder, value: Value, what: str = "its input") -> Place:
    """The place in an operand that must have it. Raises UnsupportedError: another operand has it then."""
    place = g.place(value)
    if place is None:
        g.refuse(f"{what} {value.type} is the same for all rows, but another operand is not")
    return place


def _others_without(g: BatchBuilder, values: Sequence[Value], what: str = "its weights") -> None:
    if any(g.place(value) is not None for value in values):
        g.refuse(f"{what} would differ from row to row")


# ---- the same elements at the same places ----


@rule(*(name for name, operator in TABLE.items() if operator.fusion is Fusion.ELEMENTWISE and operator.inputs))
def _elementwise(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    return g.met(values)


@rule("rotary")
def _rotary(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    return g.met(values)


@rule("bitcast")
def _bitcast(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place = _held(g, values[0])
    if place.axis == values[0].rank - 1:
        g.refuse("bits of several rows may be joined")
    return values, place


# ---- views and movements ----


@rule("reshape")
def _reshape(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    shape = attributes["shape"]
    if g.place(values[0]) is None:  # what has no rows has the size that it was exported with, until rows are needed
        attributes["shape"] = g.exported_shape(shape)
        return values, None
    attributes["shape"], place = g.reshaped(values[0], shape)
    if attributes["shape"] != shape:
        g.change(f"its shape {_text(shape)} becomes {_text(attributes['shape'])}")
    return values, place


@rule("expand_dims")
def _expand_dims(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place, rank = _held(g, values[0]), values[0].rank
    new = axes_of(attributes["axes"], rank + len(attributes["axes"]))
    kept = [axis for axis in range(rank + len(new)) if axis not in new]
    return values, replace(place, axis=kept[place.axis])


@rule("squeeze")
def _squeeze(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place, rank = _held(g, values[0]), values[0].rank
    gone = axes_of(attributes["axes"], rank)
    if place.axis in gone:
        g.refuse(f"it drops axis {place.axis} of {values[0].type}, which is the batch's")
    return values, replace(place, axis=place.axis - sum(axis < place.axis for axis in gone))


@rule("permute_dims")
def _permute(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place, rank = _held(g, values[0]), values[0].rank
    order = attributes["axes"]
    order = tuple(reversed(range(rank))) if order is None else tuple(axis_of(axis, rank) for axis in order)
    return values, replace(place, axis=order.index(place.axis))


@rule("broadcast_to")
def _broadcast(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    (x,), shape = values, list(attributes["shape"])
    place, more = g.place(x), len(attributes["shape"]) - x.rank
    if place is None:
        return _repeated(g, x, shape, more)
    target = place.axis + more
    if g.exported(shape[target]) != place.length(g.size):
        g.refuse(f"it repeats axis {place.axis} of {x.type}, which is the batch's, to {shape[target]}")
    if shape[target] != x.shape[place.axis]:
        shape[target] = x.shape[place.axis]
        g.change(f"its shape {_text(attributes['shape'])} becomes {_text(shape)}")
    if any(g.has_batch(dim) for axis, dim in enumerate(shape) if axis != target):
        g.refuse(f"{x.type} would hold it twice in {_text(shape)}")
    attributes["shape"] = tuple(shape)
    return values, replace(place, axis=target)


def _repeated(g: BatchBuilder, x: Value, shape: list[Dim], more: int) -> Made:
    """Repeats a value that is the same for all rows."""
    held = [axis for axis, dim in enumerate(shape) if g.has_batch(dim)]
    if len(held) != 1:
        g.refuse(f"a tensor {_text(shape)} would hold it more than once")
    (axis,) = held
    inner = dims.floordiv(shape[axis], g.symbol)
    if axis >= more and x.shape[axis - more] != 1:
        x = g.grown(x, axis - more, Place(axis, 1, inner))
    return [x], Place(axis, 1, inner)


@rule("tile")
def _tile(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    (x,), times = values, attributes["repetitions"]
    place = g.place(x)
    if place is not None:
        if any(map(g.has_batch, times)):
            g.refuse(f"its repetitions {_text(times)} depend on it")
        return values, replace(place, outer=dims.multiply(place.outer, times[place.axis]))
    held = [axis for axis, dim in enumerate(times) if g.has_batch(dim)]
    if len(held) != 1:
        g.refuse(f"a tensor that is repeated {_text(times)} times would hold it more than once")
    (axis,) = held
    return values, Place(axis, 1, dims.multiply(dims.floordiv(times[axis], g.symbol), x.shape[axis]))


def _joined(g: BatchBuilder, values: list[Value]) -> tuple[list[Value], Place]:
    """Operands of one rank that all hold the batch in one axis: what is the same for all rows is repeated. Other sizes may
    differ."""
    held = [place for value in values if (place := g.place(value)) is not None]
    target = min(held, key=lambda place: place.axis)
    if any(place != target for place in held):
        moved = [value if g.place(value) is None else g.at(value, target.axis, "its operands") for value in values]
        held = [place for value in moved if (place := g.place(value)) is not None]
        if any(place != target for place in held):
            g.refuse("its operands hold the batch among other axes, each in another way")
        values = moved
    return [value if g.place(value) is not None else g.grown(value, target.axis, target) for value in values], target


@rule("concat")
def _concat(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    joined, place = _joined(g, values)
    if place.axis == axis_of(attributes["axis"], values[0].rank) and len(values) > 1:
        g.refuse(f"it joins tensors along axis {place.axis}, which is the batch's")
    return joined, place


@rule("stack")
def _stack(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    axis = axis_of(attributes["axis"], values[0].rank + 1)
    joined, place = _joined(g, values)
    return joined, replace(place, axis=place.axis + (axis <= place.axis))


@rule("split")
def _split(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place, axis = _held(g, values[0]), axis_of(attributes["axis"], values[0].rank)
    if axis == place.axis:
        sizes = attributes["sizes"]
        if len(sizes) != 1:
            g.refuse(f"it parts axis {axis} of {values[0].type}, which is the batch's")
        attributes["sizes"] = (values[0].shape[axis],)
    return values, place


@rule("slice")
def _slice(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    (x,), place = values, _held(g, values[0])
    starts, ends = attributes["starts"], attributes["ends"]
    axes = attributes["axes"] or tuple(range(len(starts)))
    axes = tuple(axis_of(axis, x.rank) for axis in axes)
    steps = attributes["steps"] or (1,) * len(starts)
    length = place.length(g.size)
    kept = []
    for number, axis in enumerate(axes):
        if axis != place.axis:
            kept.append(number)
            continue
        start, end = g.exported(starts[number]), g.exported(ends[number])
        if not (_is_begin(start, length) and _is_end(end, length) and steps[number] == 1):
            g.refuse(f"it takes {start} to {end} of axis {axis} of {x.type}, which is the batch's")
        if not g.has_batch(ends[number]):
            g.change(f"its bounds [{start}, {end}] on axis {axis} become [0, {x.shape[axis]}]")
    for name, all_ in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)):
        attributes[name] = tuple(all_[number] for number in kept)
    return values, place


def _is_begin(start: Dim, length: Dim) -> bool:
    return start == 0 or dims.add(start, length) == 0 or (_both_known(start, length) and start <= -length)


def _is_end(end: Dim, length: Dim) -> bool:
    return end == length or (_both_known(end, length) and end >= length)


def _both_known(*sizes: Dim) -> bool:
    return all(isinstance(size, int) for size in sizes)


@rule("pad")
def _pad(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place, pads = _held(g, values[0]), attributes["pads"]
    if pads[place.axis] != 0 or pads[place.axis + len(pads) // 2] != 0:
        g.refuse(f"it pads axis {place.axis} of {values[0].type}, which is the batch's")
    return values, place


@rule("resize")
def _resize(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    return values, _apart(g, values[0], [attributes["axis"]], "resizes")


# ---- gathering ----


@rule("take")
def _take(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    x, indices = values
    axis, held, chosen = axis_of(attributes["axis"], x.rank), g.place(x), g.place(indices)
    if held is None:
        assert chosen is not None
        return values, replace(chosen, axis=axis + chosen.axis)
    if chosen is not None:
        g.refuse(f"each row would have indices of its own into axis {axis} of {x.type}: {indices.type}")
    if held.axis != axis:
        return values, held if held.axis < axis else replace(held, axis=held.axis - 1 + indices.rank)
    rows = None if indices.constant is None else indices.constant % g.size
    if not (held.is_whole and rows is not None and rows.ndim and np.array_equal(rows, np.arange(g.size))):
        g.refuse(f"it takes single rows of axis {axis} of {x.type}, which is the batch's")
    all_rows = g.from_dims(np.array(0, object))
    (above,) = g.plain("expand_dims", x, axes=(axis,))  # of which the one element is taken
    g.change("its indices, all rows that were exported, become all rows")
    return [g.follow(above, replace(held, axis=axis + 1)), all_rows], held


@rule("take_along_axis", "put_along_axis")
def _along(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    axis = axis_of(attributes["axis"], values[0].rank)
    joined, place = _joined(g, values)
    if place.axis == axis:
        g.refuse(f"its indices are those of axis {axis}, which is the batch's")
    return joined, place


@rule("gather_nd")
def _gather_nd(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    x, indices = values
    held, chosen, batch_axes = g.place(x), g.place(indices), attributes["batch_axes"]
    depth = indices.shape[-1]
    if chosen is not None and chosen.axis == indices.rank - 1:
        g.refuse("its indices would be of several rows")
    if held is None and chosen is not None and chosen.axis >= batch_axes:
        return values, chosen
    if held is not None and chosen is not None and held == chosen and held.axis < batch_axes:
        return values, held
    # Exported with one row, the first number of each index can only be 0 (or -1): the row itself.
    is_own = held == chosen == Place(0) and g.size == 1 and batch_axes == 0
    if is_own and isinstance(depth, int) and depth > 1:
        ends = g.plain("slice", indices, starts=(1,), ends=(depth,), axes=(indices.rank - 1,))
        attributes["batch_axes"] = 1
        g.change("its indices, whose first number is that of the only row, become indices in each row")
        return [x, g.follow(ends[0], chosen)], held
    if held is not None and chosen is None and isinstance(depth, int) and held.axis >= batch_axes + depth:
        return values, replace(held, axis=indices.rank - 1 + held.axis - batch_axes - depth)
    g.refuse(f"its indices may choose elements of other rows: {x.type}, {indices.type}")


# ---- over axes ----


def _apart(g: BatchBuilder, x: Value, axes: Sequence[int] | None, what: str) -> Place:
    """The place in x, which none of the axes may be."""
    place = _held(g, x)
    if place.axis in axes_of(axes, x.rank):
        among = "the batch" if place.is_whole else "the batch among others"
        g.refuse(f"it {what} over axis {place.axis} of {x.type}, which is {among}: rows would mix")
    return place


@rule(*(name for name, operator in TABLE.items() if operator.fusion is Fusion.REDUCTION))
def _reduction(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place = _apart(g, values[0], attributes["axes"], "reduces")
    if attributes["keepdims"]:
        return values, place
    gone = sum(axis < place.axis for axis in axes_of(attributes["axes"], values[0].rank))
    return values, replace(place, axis=place.axis - gone)


@rule("argmax", "argmin")
def _arg(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    axis = axis_of(attributes["axis"], values[0].rank)
    place = _apart(g, values[0], [axis], "looks for the place of the greatest")
    return values, replace(place, axis=place.axis - (not attributes["keepdims"] and axis < place.axis))


@rule("softmax", "log_softmax", "cumulative_sum", "cumulative_prod", "top_k")
def _over_axis(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    return values, _apart(g, values[0], [attributes["axis"]], "works")


@rule("layer_normalization", "rms_normalization")
def _last_axes(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    x, *weights = values
    _others_without(g, weights)
    return values, _apart(g, x, range(axis_of(attributes["axis"], x.rank), x.rank), "normalises")


# ---- images: [batch, channels, …] ----


@rule(
    "conv",
    "conv_transpose",
    "conv_integer",
    "max_pool",
    "average_pool",
    "batch_normalization",
    "instance_normalization",
    "group_normalization",
    "local_response_normalization",
)
def _images(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    x, *weights = values
    _others_without(g, weights)
    _held(g, x)
    x = g.at(x, 0, "images")
    return [x, *weights], g.place(x)


@rule("col2im")
def _columns(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    x = g.at(values[0], 0, "columns")
    return [x], g.place(x)


# ---- matrices ----


@rule("matmul", "matmul_integer")
def _matmul(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    a, b, *zeros = values
    _others_without(g, zeros, "its zero points")
    rank, is_vector = max(a.rank, b.rank, 2), b.rank == 1
    a_back, b_back = _from_back(g, a), _from_back(g, b, is_vector)
    if a_back == 1 or b_back == 2:
        g.refuse(f"it sums over the axis that is the batch's: {a.type} · {b.type}")
    if a.rank == 1:
        g.refuse(f"a vector {a.type} would be multiplied with the rows of a batch")
    if a_back is not None and b_back is not None and (a_back == 2 or b_back == 1):
        a, b = (
            value if back is None or back > 2 else g.moved(value, value.rank - 3) if g.size == 1 else value
            for value, back in ((a, a_back), (b, b_back))
        )
        a_back, b_back = _from_back(g, a), _from_back(g, b, is_vector)
        if a_back == 2 or b_back == 1:
            g.refuse(f"each row of one operand would meet all rows of the other: {a.type} · {b.type}")
    if (a_back or 0) > 2 or (b_back or 0) > 2:
        a, b = _stacks(g, a, b)
        a_back, b_back = _from_back(g, a), _from_back(g, b, is_vector)
    back, place = (a_back, g.place(a)) if a_back is not None else (b_back, g.place(b))
    assert back is not None
    assert place is not None
    rank = max(a.rank, b.rank + is_vector)
    return [a, b, *zeros], replace(place, axis=rank - back)


def _from_back(g: BatchBuilder, value: Value, is_vector: bool = False) -> int | None:
    """The number of the batch's axis from behind, the last one being 1; of a vector on the right, 2."""
    place = g.place(value)
    return None if place is None else value.rank - place.axis + is_vector


def _stacks(g: BatchBuilder, a: Value, b: Value) -> tuple[Value, Value]:
    """Stacks of matrices that meet row by row. Only the axes before the matrices broadcast."""
    values, rank = [a, b], max(a.rank, b.rank)
    held = [(value, place) for value in values if (place := g.place(value)) is not None]
    target = min((replace(place, axis=place.axis + rank - value.rank) for value, place in held), key=lambda it: it.axis)
    made = []
    for value in values:
        place, own = g.place(value), target.axis - (rank - value.rank)
        if place is not None:
            made.append(value if place.axis == own else g.at(value, own, "stacks") if own >= 0 else g.moved(value, own))
        elif own < 0 or value.shape[own] == 1:
            made.append(value)
        else:
            made.append(g.grown(value, own, target))
    if len({(place.outer, place.inner) for value in made if (place := g.place(value)) is not None}) > 1:
        g.refuse(f"its operands hold the batch among other axes, each in another way: {a.type} · {b.type}")
    return made[0], made[1]


# ---- recurrent layers ----


def _recurrent(states: int, lengths: int) -> Rule:
    """After the projected input [steps, batch, directions, gates, hidden] and the weights come that many states
    [directions, batch, hidden]; operand number `lengths` is the sequences' lengths [batch]."""

    def recurrent(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
        made = list(values)
        _held(g, made[0])
        made[0] = g.at(made[0], 1, "the inputs of all steps")
        place = _held(g, made[0])
        for number in range(1, len(made)):
            axis = 1 if 2 <= number < 2 + states else 0 if number == lengths else None
            if axis is None:
                _others_without(g, made[number : number + 1])
            elif g.place(made[number]) is None:
                made[number] = g.grown(made[number], axis, place)
            else:
                made[number] = g.at(made[number], axis, "states")
        return made, [replace(place, axis=2), *[replace(place, axis=1)] * states]

    return recurrent


@rule("linear_attention")
def _linear_attention(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    place = next(replace(place, axis=0) for value in values if (place := g.place(value)) is not None)
    made = [
        g.grown(value, 0, place) if g.place(value) is None else g.at(value, 0, "its operands and states")
        for value in values
    ]
    return made, place


RULES["rnn"] = _recurrent(1, 3)
RULES["gru"] = _recurrent(1, 4)
RULES["lstm"] = _recurrent(2, 5)

# ---- what is made of sizes ----


@rule("full")
def _full(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    held = [(axis, dim) for axis, dim in enumerate(attributes["shape"]) if g.has_batch(dim)]
    if len(held) != 1:
        g.refuse(f"a tensor {_text(attributes['shape'])} would hold it more than once")
    ((axis, dim),) = held
    return values, Place(axis, 1, dims.floordiv(dim, g.symbol))


@rule("arange", "shape_tensor")
def _numbers(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
    return values, SIZES


# ---- what cannot be: the reason why ----


def _refused(why: str) -> Rule:
    def refuse(g: BatchBuilder, values: list[Value], attributes: Attributes) -> Made:
        g.refuse(why)

    return refuse


RULES |= {
    "nonzero": _refused("it lists the elements of all rows together, and how many a row has is not known"),
    "best_boxes": _refused("it lists the boxes of all images together, and how many an image has is not known"),
    "roi_align": _refused("its regions name their images by number"),
    "max_of_regions": _refused("its regions name their images by number"),
    "scatter_nd": _refused("its indices may name elements of other rows"),
    "shape": _refused("it computes with the batch's size"),
}
