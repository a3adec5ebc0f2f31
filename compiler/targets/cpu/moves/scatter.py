"""The templates of operators that scatter elements by indices: put_along_axis and scatter_nd. An index out of range ends
the kernel with code 1.

A part of the work is a part of the result: it is copied from x, then the updates that fall there are applied in order.
So the last of several updates for one place wins, and sums are bitwise equal for any number of parts.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of, write_copy
from ..target import Target
from .gather import write_index, write_indices

_STRIP = 64  # elements of a row, one of many that an axis has, that are one unit of work

_COMBINED = {
    "none": "{new}",
    "add": "{old} + {new}",
    "mul": "{old} * {new}",
    "max": "maximum({old}, {new})",
    "min": "minimum({old}, {new})",
}


def lower_put_along_axis(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `put_along_axis`, alone in its definition, on tensors that differ along the axis alone; else None."""
    it = _Scatter.of(definition, target)
    if it is None:
        return None
    write = it.write
    shape, indices = (list(shape_of(param)) for param in definition.params[:2])
    axis = axis_of(bound_attributes(definition.nodes[0])["axis"], len(shape))
    length, count = shape[axis], indices[axis]
    shape[axis] = indices[axis] = 1
    if shape != indices:
        return None
    outer, inner = dims.product(shape[:axis]), dims.product(shape[axis + 1 :])
    write.sizes(outer=outer, length=length, inner=inner, count=count)
    write(f"strips = (inner + {_STRIP - 1}) // {_STRIP}")
    cost = f"({costs.SCATTER_PS // 20} * length + {costs.SCATTER_PS} * count)"
    write.split("outer * strips", f"outer * inner * {cost} // 1000")
    with write.block("for unit in range(first, last)"):
        write("i = unit // strips", f"begin = (unit - i * strips) * {_STRIP}", f"end = min(begin + {_STRIP}, inner)")
        if inner == 1:
            it.write_copy("i * length", "i * length + length")
        else:
            with write.block("for j in range(i * length, (i + 1) * length)"):
                it.write_copy("j * inner + begin", "j * inner + end")
        with write.block("for j in range(i * count, (i + 1) * count)"):
            it.write_update("j", "i * length + at") if inner == 1 else it.write_row_of_updates()
    return write.kernel(it.nanoseconds)


def lower_scatter_nd(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `scatter_nd`, alone in its definition; else None."""
    it = _Scatter.of(definition, target)
    if it is None:
        return None
    write = it.write
    shape, indices = (shape_of(param) for param in definition.params[:2])
    depth = int(indices[-1])  # type: ignore[arg-type]
    for axis in range(depth):
        write.size(f"length{axis}", shape[axis])
    write.sizes(count=dims.product(indices[:-1]), inner=dims.product(shape[depth:]))
    write(f"size = {' * '.join(f'length{axis}' for axis in range(depth))} * inner")
    cost = f"({costs.SCATTER_PS // 20} * size + {costs.SCATTER_PS} * count * inner)"
    # each part looks at all indices, which takes about as long as to add a vector or two
    write(f"blocks = min((size + {costs.INDEX_UNIT - 1}) // {costs.INDEX_UNIT}, 2 + inner // {8 * write.lanes} * 2)")
    write.split("blocks", f"{cost} // 1000")
    write("begin = first * size // max(blocks, 1)", "end = last * size // max(blocks, 1)")
    it.write_copy("begin", "end")
    with write.block("for j in range(count)"):
        write("at = 0")
        write_indices(write, it.index, "j", depth)
        write("start = at * inner", "stop = min(start + inner, end)")
        it.write_updates("max(start, begin)", "stop", "k + (j * inner - start)", "k")
    return write.kernel(it.nanoseconds)


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
        self.itemsize = dtype.itemsize
        self.type = f"uint{8 * self.itemsize}" if reduction == "none" else dtype.name
        self.index = definition.params[1].dtype
        self.combined = _COMBINED[reduction]
        self.write = Writer(definition, target, f"{definition.nodes[0].operator}, {reduction}")
        self.write.inputs((0, 1, 2), "x", "indices", "updates")
        self.write.output("target", 0)
        copied, updates = (estimate(dims.element_count(shape_of(definition.params[i]))) for i in (0, 2))
        self.nanoseconds = (copied / 20 + updates) * costs.SCATTER_PS / 1000

    def write_copy(self, begin: str, end: str) -> None:
        """Copies elements of x."""
        self.write(f"copied = {begin}", f"copied_end = {end}")
        write_copy(self.write, self.itemsize, "target", "x", "copied", "copied_end")

    def write_updates(self, begin: str, end: str, source: str, place: str) -> None:
        """Updates for neighbouring places, `begin` to `end`: update number `source` for place number `place`."""
        write = self.write
        with write.block(f"for k in range({begin}, {end}, {write.lanes})"):
            write(f"rest = min({write.lanes}, {end} - k)")
            self._write_vector(source, place)

    def _write_vector(self, source: str, place: str) -> None:
        here = scaled(place, self.itemsize)
        new = f"vload_{self.type}(updates, {scaled(source, self.itemsize)}, rest)"
        combined = self.combined.format(old=f"vload_{self.type}(target, {here}, rest)", new=new)
        self.write(f"vstore(target, {here}, {combined}, rest)")

    def write_row_of_updates(self) -> None:
        """Updates `begin` to `end` of row j. Their indices are often the same: a row's index, repeated along it."""
        write, lanes = self.write, self.write.lanes
        with write.block(f"for k in range(begin, end, {lanes})"):
            write(f"rest = min({lanes}, end - k)")
            found = f"vload_{self.index.name}(indices, {scaled('j * inner + k', self.index.itemsize)}, rest)"
            write_index(write, self.index, "j * inner + k", "length")
            first = f"load_{self.index.name}(indices, {scaled('j * inner + k', self.index.itemsize)})"
            with write.block(f"if all_lanes(({found} == {first}) | ~inside(rest))"):
                self._write_vector("j * inner + k", "(i * length + at) * inner + k")
            with write.block("else"), write.block("for n in range(k, k + rest)"):
                self.write_update("j * inner + n", "(i * length + at) * inner + n")

    def write_update(self, source: str, place: str) -> None:
        """Applies update number `source` to the place given by its index, `at`."""
        write_index(self.write, self.index, source, "length")
        here = scaled(place, self.itemsize)
        new = f"load_{self.type}(updates, {scaled(source, self.itemsize)})"
        combined = self.combined.format(old=f"load_{self.type}(target, {here})", new=new)
        self.write(f"store_{self.type}(target, {here}, {combined})")
