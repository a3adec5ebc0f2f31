"""The templates of operators that look up indices: take, take_along_axis and gather_nd. An index out of range ends the
kernel with code 1.

The first two see x as [outer, length, inner]. `take` copies a run of `inner` elements for each index, or gathers single ones
if the axis is the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of, write_copy
from ..target import Target

_LONGEST = 1 << 31  # of an axis whose places a table of 32-bit numbers tells


def lower_take(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `take`, alone in its definition; else None."""
    if not _is_alone(definition):
        return None
    it = _Lookup(definition, target)
    write, shape = it.write, shape_of(definition.params[0])
    write.size("count", dims.element_count(shape_of(definition.params[1])))
    is_single = all(dim == 1 for dim in shape[it.axis + 1 :])
    picoseconds = costs.GATHER_ALONG_PS if is_single else costs.COPY_BYTE_PS * it.itemsize
    scratch = _table_bytes(definition, it) if is_single else 0
    if scratch:
        write.prepare("is_known")
    with _blocks(it, is_single, picoseconds):
        if scratch:
            _write_singles_by_table(it)
        else:
            _write_singles(it) if is_single else _write_run(it)
    elements = estimate(dims.element_count(shape_of(definition.results[0])))
    return write.kernel(elements * picoseconds / 1000, scratch)


def _table_bytes(definition: PrimitiveDefinition, it: _Lookup) -> int:
    """Bytes of the table of element offsets within a row; 0 if there are too few elements, or rows, for a table."""
    count = dims.element_count(shape_of(definition.params[1]))
    shape = shape_of(definition.params[0])
    outer, length = dims.product(shape[: it.axis]), shape[it.axis]
    if not isinstance(count, int) or not isinstance(outer, int) or not isinstance(length, int) or length > _LONGEST:
        return 0
    return 4 * count if count in costs.INDEX_TABLE and outer >= costs.INDEX_TABLE_ROWS else 0


@contextlib.contextmanager
def _blocks(it: _Lookup, is_single: bool, picoseconds: int) -> Iterator[None]:
    """Loops over elements `begin` to `end` of the runs at all (i, j) or, for runs of one element, of the indices at all i."""
    write, run = it.write, "count" if is_single else "inner"
    rows = Odometer(write, [("i", "outer")] if is_single else [("i", "outer"), ("j", "count")])
    write(f"rows = {rows.count}", f"blocks = ({run} + {costs.INDEX_UNIT - 1}) // {costs.INDEX_UNIT}")
    write.split("rows * blocks", f"rows * {run} * {picoseconds} // 1000")
    with write.block("if first < last"):
        write("row = first // blocks", "block = first - row * blocks")
        rows.start("row")
    with write.block("for _ in range(first, last)"):
        write(f"begin = block * {costs.INDEX_UNIT}", f"end = min(begin + {costs.INDEX_UNIT}, {run})")
        yield
        write("block += 1")
        with write.block("if block == blocks"):
            write("block = 0")
            rows.advance()


def _write_singles(it: _Lookup) -> None:
    """One element for each index from `begin` to `end`."""
    _write_elements(it, "k", "i * count + k", "i * length + {at}")


def _write_elements(it: _Lookup, index: str, place: str, source: str) -> None:
    """Elements `begin` to `end`: element `k` is taken by index `k` from the source address `at`:
    as vectors, if no index is out of range."""
    write, size, lanes = it.write, it.itemsize, it.write.lanes
    write(f"whole = end - (end - begin) % {lanes}")
    with write.block(f"for k in range(begin, whole, {lanes})"):
        write(f"places = convert_int64(vload_{it.index.name}(indices, {scaled(index, it.index.itemsize)}))")
        write("places = select(places < 0, places + length, places)")
        with write.block("if any_lane((places < 0) | (places >= length))"):
            write("return 1")
        found = source.format(at="places", k="(iota_int64() + k)")
        write(f"vstore(target, {scaled(place, size)}, vgather_{it.type}(x, {found}))")
    with write.block("for k in range(whole, end)"):
        it.write_index(index)
        found = scaled(source.format(at="at", k="k"), size)
        write(f"store_{it.type}(target, {scaled(place, size)}, load_{it.type}(x, {found}))")


def _write_singles_by_table(it: _Lookup) -> None:
    """The same for many rows: the indices are checked once."""
    write, size = it.write, it.itemsize
    with write.block("if is_known < 0"):
        with write.block("for j in range(count)"):
            it.write_index("j")
            write("store_int32(scratch, j * 4, convert_int32(at))")
        write("is_known = 1")
    write(f"a = x + {scaled('i * length', size)}", f"b = target + {scaled('i * count', size)}")
    with write.block("for j in range(begin, end)"):
        place = scaled("convert_int64(load_int32(scratch, j * 4))", size)
        write(f"store_{it.type}(b, {scaled('j', size)}, load_{it.type}(a, {place}))")


def _write_run(it: _Lookup) -> None:
    """Elements `begin` to `end` of one index's run."""
    write, size = it.write, it.itemsize
    it.write_index("j")
    write(
        f"a = x + {scaled('(i * length + at) * inner', size)}",
        f"b = target + {scaled('(i * count + j) * inner', size)}",
    )
    write_copy(write, size, "b", "a", "begin", "end")


def lower_take_along_axis(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `take_along_axis`, alone in its definition, on tensors that differ along the axis alone; else None."""
    if not _is_alone(definition):
        return None
    it = _Lookup(definition, target)
    shape, indices = (list(shape_of(param)) for param in definition.params)
    count = indices[it.axis]
    shape[it.axis] = indices[it.axis] = 1
    if shape != indices:
        return None
    write = it.write
    write.size("count", count)
    is_single = all(dim == 1 for dim in shape[it.axis + 1 :])
    with _blocks(it, is_single, costs.GATHER_PS):
        place, source = "(i * count + j) * inner + k", "(i * length + {at}) * inner + {k}"
        if is_single:
            place, source = "i * count + k", "i * length + {at}"
        _write_elements(it, place, place, source)
    elements = estimate(dims.element_count(shape_of(definition.results[0])))
    return write.kernel(elements * costs.GATHER_PS / 1000)


def lower_gather_nd(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `gather_nd`, alone in its definition; else None."""
    if not _is_alone(definition):
        return None
    shape, indices = (shape_of(param) for param in definition.params)
    batch_axes, index = bound_attributes(definition.nodes[0])["batch_axes"], definition.params[1].dtype
    depth = int(indices[-1])  # type: ignore[arg-type]
    itemsize = definition.params[0].dtype.itemsize
    write = Writer(definition, target, "gather_nd")
    write.inputs((0, 1), "x", "indices")
    write.output("target", 0)
    write.size("batch", dims.product(shape[:batch_axes]))
    for axis in range(depth):
        write.size(f"length{axis}", shape[batch_axes + axis])
    write.sizes(count=dims.product(indices[batch_axes:-1]), inner=dims.product(shape[batch_axes + depth :]))
    write.split(
        "batch * count", f"batch * count * ({costs.GATHER_ROW_PS} + {costs.COPY_BYTE_PS * itemsize} * inner) // 1000"
    )
    with write.block("for row in range(first, last)"):
        write("at = row // count")
        write_indices(write, index, "row", depth)
        write(f"a = x + {scaled('at * inner', itemsize)}", f"b = target + {scaled('row * inner', itemsize)}")
        write_copy(write, itemsize, "b", "a", "0", "inner")
    rows, elements = (estimate(dims.element_count(part)) for part in (indices[:-1], shape_of(definition.results[0])))
    return write.kernel((rows * costs.GATHER_ROW_PS + elements * costs.COPY_BYTE_PS * itemsize) / 1000)


def _is_alone(definition: PrimitiveDefinition) -> bool:
    return len(definition.nodes) == 1 and definition.nodes[0].inputs == (0, 1) and definition.outputs == (2,)


class _Lookup:
    """The common beginning of both operators: the addresses, and x as [outer, length, inner]."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (node,) = definition.nodes
        shape = shape_of(definition.params[0])
        self.axis = axis_of(bound_attributes(node)["axis"], len(shape))
        self.itemsize = definition.params[0].dtype.itemsize
        self.type = f"uint{8 * self.itemsize}"
        self.index = definition.params[1].dtype
        self.write = Writer(definition, target, node.operator)
        self.write.input("x", 0)
        self.write.input("indices", 1)
        self.write.output("target", 0)
        self.write.size("outer", dims.product(shape[: self.axis]))
        self.write.size("length", shape[self.axis])
        self.inner = self.write.size("inner", dims.product(shape[self.axis + 1 :]))

    def write_index(self, place: str) -> None:
        write_index(self.write, self.index, place, "length")


def write_indices(write: Writer, dtype: DType, number: str, depth: int) -> None:
    """Extends `at`, a position on the leading axes, by `depth` axes from the index of that number. The axes have
    `length0` elements …"""
    for axis in range(depth):
        write_index(write, dtype, f"{number} * {depth} + {axis}", f"length{axis}", f"at{axis}")
        write(f"at = at * length{axis} + at{axis}")


def write_index(write: Writer, dtype: DType, place: str, length: str, name: str = "at") -> None:
    """Defines `name`: the element of `indices` at that place, counted from the front, in range."""
    write(f"{name} = convert_int64(load_{dtype.name}(indices, {scaled(place, dtype.itemsize)}))")
    with write.block(f"if {name} < 0"):
        write(f"{name} += {length}")
    with write.block(f"if {name} < 0 or {name} >= {length}"):
        write("return 1")
