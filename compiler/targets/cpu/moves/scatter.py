"""The templates of operators that scatter elements by indices: put_along_axis and scatter_nd. An index out of range ends
the kernel with code 1.

A part of the work is a part of the result: it is copied from x, then the updates that fall there are applied in order.
So the last of several updates for one place wins, and sums are bitwise equal for any number of parts.
"""

from __future__ import annotations

from collections.abc import Callable

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.values import Code, Pointer, Value, bracketed, call, inside, least, product, reduced
from ..kernels.writer import estimate, shape_of
from ..target import Target
from .gather import bits, write_index, write_indices

_STRIP = 64  # elements of a row, one of many that an axis has, that are one unit of work

_COMBINED: dict[str, Callable[[Value, Value], Value]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: call("maximum", old, new),
    "min": lambda old, new: call("minimum", old, new),
}


def lower_put_along_axis(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `put_along_axis`, alone in its definition, on tensors that differ along the axis alone; else None."""
    it = _Scatter.of(definition, target)
    if it is None:
        return None
    code = it.code
    shape, indices = (list(shape_of(param)) for param in definition.params[:2])
    axis = axis_of(bound_attributes(definition.nodes[0])["axis"], len(shape))
    if indices[:axis] + indices[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        return None
    is_single = (within := dims.product(shape[axis + 1 :])) == 1
    outer, length = code.size("outer", dims.product(shape[:axis])), code.size("length", shape[axis])
    inner, count = code.size("inner", within), code.size("count", indices[axis])
    strips = code.let("strips", (inner + (_STRIP - 1)) // _STRIP)
    cost = costs.SCATTER_PS // 20 * length + costs.SCATTER_PS * count
    first, last = code.split(outer * strips, outer * inner * cost // 1000)
    with code.loop("unit", first, last) as unit:
        i = code.let("i", unit // strips)
        begin = code.let("begin", (unit - i * strips) * _STRIP)
        end = code.let("end", least(begin + _STRIP, inner))
        if is_single:
            it.copy(i * length, i * length + length)
        else:
            with code.loop("j", i * length, (i + 1) * length) as j:
                it.copy(j * inner + begin, j * inner + end)
        with code.loop("j", i * count, (i + 1) * count) as j:
            if is_single:
                it.update(j, length, lambda at: i * length + at)
            else:
                it.update_row(j * inner, begin, end, length, lambda at: (i * length + at) * inner)
    return code.kernel(it.nanoseconds)


def lower_scatter_nd(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `scatter_nd`, alone in its definition; else None."""
    it = _Scatter.of(definition, target)
    if it is None:
        return None
    code = it.code
    shape, indices = (shape_of(param) for param in definition.params[:2])
    depth = int(indices[-1])  # type: ignore[arg-type]
    lengths = [code.size(f"length{axis}", shape[axis]) for axis in range(depth)]
    count, inner = code.size("count", dims.product(indices[:-1])), code.size("inner", dims.product(shape[depth:]))
    size = code.let("size", product([*lengths, inner]))
    cost = costs.SCATTER_PS // 20 * size + costs.SCATTER_PS * count * inner
    # each part looks at all indices, which takes about as long as to add a vector or two
    blocks = code.let(
        "blocks", least((size + (costs.INDEX_UNIT - 1)) // costs.INDEX_UNIT, 2 + inner // (8 * code.lanes) * 2)
    )
    first, last = code.split(blocks, bracketed(cost) // 1000)
    begin, end = (code.let(name, at * size // call("max", blocks, 1)) for name, at in (("begin", first), ("end", last)))
    it.copy(begin, end)
    with code.loop("j", count) as j:
        at = write_indices(code, it.indices, j, lengths, code.let("at", 0))
        start = code.let("start", at * inner)
        stop = code.let("stop", least(start + inner, end))
        with code.loop("k", call("max", start, begin), stop, code.lanes) as k:
            rest = code.let("rest", least(code.lanes, stop - k))
            it.put(k + (j * inner - start), k, rest)
    return code.kernel(it.nanoseconds)


class _Scatter:
    """The common beginning of both operators, and the update of an element."""

    @staticmethod
    def of(definition: PrimitiveDefinition, target: Target) -> _Scatter | None:
        """None unless the operator is alone, and its reduction exists for the element type."""
        if len(definition.nodes) != 1 or definition.nodes[0].inputs != (0, 1, 2) or definition.outputs != (3,):
            return None
        reduction = bound_attributes(definition.nodes[0])["reduction"]
        if reduction != "none" and definition.params[0].dtype.computed is not definition.params[0].dtype:
            return None
        return _Scatter(definition, target, reduction)

    def __init__(self, definition: PrimitiveDefinition, target: Target, reduction: str) -> None:
        dtype = definition.params[0].dtype
        element = bits(dtype.itemsize) if reduction == "none" else dtype
        self.combined = _COMBINED[reduction]
        self.code = code = Code(definition, target, f"{definition.nodes[0].operator}, {reduction}")
        self.x, self.indices, self.updates = (
            code.input("x", 0, element),
            code.input("indices", 1),
            code.input("updates", 2, element),
        )
        self.target = code.output("target", 0, element)
        copied, updates = (estimate(dims.element_count(shape_of(definition.params[i]))) for i in (0, 2))
        self.nanoseconds = (copied / 20 + updates) * costs.SCATTER_PS / 1000

    def copy(self, begin: Value, end: Value) -> None:
        """Copies elements of x."""
        begin, end = self.code.let("copied", begin), self.code.let("copied_end", end)
        self.code.copy(self.target, self.x, begin, end)

    def put(self, source: Value, place: Value, *count: Value) -> None:
        """Applies update number `source` to place number `place`; with a count, that many neighbours."""
        load = Pointer.vector if count else Pointer.scalar
        combined = self.combined(load(self.target, place, *count), load(self.updates, source, *count))
        self.target.store(place, combined, *count)

    def update(self, source: Value, length: Value, place: Callable[[Value], Value]) -> None:
        """Applies update number `source` to the place given by its index."""
        self.put(source, place(write_index(self.code, self.indices, source, length)))

    def update_row(self, row: Value, begin: Value, end: Value, length: Value, place: Callable[[Value], Value]) -> None:
        """Updates `begin` to `end` of the row that starts at update `row`, for the same places of the row that starts at
        `place(index)`. Indices are often the same: a row's index, repeated along it."""
        code = self.code
        with code.loop("k", begin, end, code.lanes) as k:
            rest = code.let("rest", least(code.lanes, end - k))
            at = write_index(code, self.indices, row + k, length)
            found, first = self.indices.vector(row + k, rest), self.indices.scalar(row + k)
            with code.when(reduced("all_lanes", bracketed(found.equals(first)) | ~inside(rest))):
                self.put(row + k, place(at) + k, rest)
            with code.otherwise(), code.loop("n", k, k + rest) as n:
                self.update(row + n, length, lambda at: place(at) + n)
