"""The templates of operators that look up indices: take, take_along_axis and gather_nd. An index out of range ends the
kernel with code 1.

The first two see x as [outer, length, inner]. `take` copies a run of `inner` elements for each index, or gathers single ones
if the axis is the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.values import OUT_OF_RANGE, Code, Operand, Pointer, Value, Walk, any_lane, either, iota, least, select
from ..kernels.writer import estimate, shape_of
from ..target import Target

_LONGEST = 1 << 31  # of an axis whose places a table of 32-bit numbers tells


def lower_take(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `take`, alone in its definition; else None."""
    if not _is_alone(definition):
        return None
    it = _Lookup(definition, target, dims.element_count(shape_of(definition.params[1])))
    is_single = it.has_single_elements
    picoseconds = costs.GATHER_ALONG_PS if is_single else costs.COPY_BYTE_PS * it.x.element.itemsize
    scratch = _table_bytes(definition, it.axis) if is_single else 0
    is_known = it.code.prepare("is_known") if scratch else None
    with it.blocks(is_single, picoseconds) as (i, j, begin, end):
        if is_known is not None:
            _write_singles_by_table(it, is_known, i, begin, end)
        elif is_single:
            _write_elements(it, begin, end, lambda k: k, lambda k: i * it.count + k, lambda k, at: i * it.length + at)
        else:
            _write_run(it, i, j, begin, end)
    elements = estimate(dims.element_count(shape_of(definition.results[0])))
    return it.code.kernel(elements * picoseconds / 1000, scratch)


def _table_bytes(definition: PrimitiveDefinition, axis: int) -> int:
    """Bytes of the table of element offsets within a row; 0 if there are too few elements, or rows, for a table."""
    count = dims.element_count(shape_of(definition.params[1]))
    shape = shape_of(definition.params[0])
    outer, length = dims.product(shape[:axis]), shape[axis]
    if not isinstance(count, int) or not isinstance(outer, int) or not isinstance(length, int) or length > _LONGEST:
        return 0
    return 4 * count if count in costs.INDEX_TABLE and outer >= costs.INDEX_TABLE_ROWS else 0


def _write_elements(
    it: _Lookup,
    begin: Value,
    end: Value,
    index: Callable[[Value], Value],
    place: Callable[[Value], Value],
    source: Callable[[Value, Value], Value],
) -> None:
    """Elements `begin` to `end`: element k is stored at `place(k)`, from `source(k, at)`, where `at` is index number `index(k)`:
    as vectors, if no index is out of range."""
    code = it.code
    whole = code.let("whole", end - (end - begin) % code.lanes)
    with code.loop("k", begin, whole, code.lanes) as k:
        places = code.let("places", it.indices.vector(index(k)).to(DType.int64))
        code.set(places, select(places < 0, places + it.length, places))
        with code.when(any_lane((places < 0) | (places >= it.length))):
            code.leave(OUT_OF_RANGE)
        it.target.store(place(k), it.x.gather(source(iota() + k, places)))
    with code.loop("k", whole, end) as k:
        at = it.write_index(index(k))
        it.target.store(place(k), it.x.scalar(source(k, at)))


def _write_singles_by_table(it: _Lookup, is_known: Value, i: Value, begin: Value, end: Value) -> None:
    """One element for each index from `begin` to `end`, for many rows: the indices are checked once."""
    code, table = it.code, it.code.pointer(it.code.scratch, DType.int32)
    with code.when(is_known < 0):
        with code.loop("j", it.count) as j:
            table.store(j, it.write_index(j).to(DType.int32))
        code.set(is_known, 1)
    a, b = code.let("a", it.x.at(i * it.length)), code.let("b", it.target.at(i * it.count))
    with code.loop("j", begin, end) as j:
        b.store(j, a.scalar(table.scalar(j).to(DType.int64)))


def _write_run(it: _Lookup, i: Value, j: Value, begin: Value, end: Value) -> None:
    """Elements `begin` to `end` of one index's run."""
    at = it.write_index(j)
    a = it.code.let("a", it.x.at((i * it.length + at) * it.inner))
    b = it.code.let("b", it.target.at((i * it.count + j) * it.inner))
    it.code.copy(b, a, begin, end)


def lower_take_along_axis(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `take_along_axis`, alone in its definition, on tensors that differ along the axis alone; else None."""
    if not _is_alone(definition):
        return None
    shape, indices = (list(shape_of(param)) for param in definition.params)
    axis = axis_of(bound_attributes(definition.nodes[0])["axis"], len(shape))
    if indices[:axis] + indices[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        return None
    it = _Lookup(definition, target, indices[axis])
    with it.blocks(it.has_single_elements, costs.GATHER_PS) as (i, j, begin, end):

        def place(k: Value) -> Value:
            return i * it.count + k if it.has_single_elements else (i * it.count + j) * it.inner + k

        def source(k: Value, at: Value) -> Value:
            return i * it.length + at if it.has_single_elements else (i * it.length + at) * it.inner + k

        _write_elements(it, begin, end, place, place, source)
    elements = estimate(dims.element_count(shape_of(definition.results[0])))
    return it.code.kernel(elements * costs.GATHER_PS / 1000)


def lower_gather_nd(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `gather_nd`, alone in its definition; else None."""
    if not _is_alone(definition):
        return None
    shape, indices = (shape_of(param) for param in definition.params)
    batch_axes = bound_attributes(definition.nodes[0])["batch_axes"]
    depth = int(indices[-1])  # type: ignore[arg-type]
    itemsize = definition.params[0].dtype.itemsize
    code = Code(definition, target, "gather_nd")
    x, numbers, to = (
        code.input("x", 0, bits(itemsize)),
        code.input("indices", 1),
        code.output("target", 0, bits(itemsize)),
    )
    batch = code.size("batch", dims.product(shape[:batch_axes]))
    lengths = [code.size(f"length{axis}", shape[batch_axes + axis]) for axis in range(depth)]
    count = code.size("count", dims.product(indices[batch_axes:-1]))
    inner = code.size("inner", dims.product(shape[batch_axes + depth :]))
    cost = costs.GATHER_ROW_PS + costs.COPY_BYTE_PS * itemsize * inner
    first, last = code.split(batch * count, batch * count * cost // 1000)
    with code.loop("row", first, last) as row:
        at = write_indices(code, numbers, row, lengths, code.let("at", row // count))
        a, b = code.let("a", x.at(at * inner)), code.let("b", to.at(row * inner))
        code.copy(b, a, 0, inner)
    rows, elements = (estimate(dims.element_count(part)) for part in (indices[:-1], shape_of(definition.results[0])))
    return code.kernel((rows * costs.GATHER_ROW_PS + elements * costs.COPY_BYTE_PS * itemsize) / 1000)


def _is_alone(definition: PrimitiveDefinition) -> bool:
    return len(definition.nodes) == 1 and definition.nodes[0].inputs == (0, 1) and definition.outputs == (2,)


class _Lookup:
    """The common beginning of both operators: the addresses, x as [outer, length, inner], and `count` indices in a row."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, count: Dim) -> None:
        (node,) = definition.nodes
        shape = shape_of(definition.params[0])
        self.axis = axis_of(bound_attributes(node)["axis"], len(shape))
        self.code = code = Code(definition, target, node.operator)
        element = bits(definition.params[0].dtype.itemsize)
        self.x, self.indices = code.input("x", 0, element), code.input("indices", 1)
        self.target = code.output("target", 0, element)
        self.outer = code.size("outer", dims.product(shape[: self.axis]))
        self.length = code.size("length", shape[self.axis])
        self.inner = code.size("inner", dims.product(shape[self.axis + 1 :]))
        self.count = code.size("count", count)
        self.has_single_elements = all(dim == 1 for dim in shape[self.axis + 1 :])

    @contextlib.contextmanager
    def blocks(self, is_single: bool, picoseconds: int) -> Iterator[tuple[Value, Value, Value, Value]]:
        """Loops over elements `begin` to `end` of the runs at all (i, j) or, for runs of one element, of the indices at all i."""
        code, run = self.code, self.count if is_single else self.inner
        walk = Walk(code, [("i", self.outer), ("j", self.count)][: 1 if is_single else 2])
        rows = code.let("rows", walk.count)
        blocks = code.let("blocks", (run + (costs.INDEX_UNIT - 1)) // costs.INDEX_UNIT)
        first, last = code.split(rows * blocks, rows * run * picoseconds // 1000)
        with code.when(first < last):
            row = code.let("row", first // blocks)
            block = code.let("block", first - row * blocks)
            walk.start(row)
        with code.loop("_", first, last):
            begin = code.let("begin", block * costs.INDEX_UNIT)
            end = code.let("end", least(begin + costs.INDEX_UNIT, run))
            yield walk.indices[0], walk.indices[-1], begin, end
            code.add(block, 1)
            with code.when(block.equals(blocks)):
                code.set(block, 0)
                walk.advance()

    def write_index(self, place: Value) -> Value:
        return write_index(self.code, self.indices, place, self.length)


def bits(itemsize: int) -> DType:
    """What elements are moved as."""
    return DType[f"uint{8 * itemsize}"]


def write_indices(code: Code, indices: Pointer, number: Value, lengths: Sequence[Value], at: Value) -> Value:
    """Extends `at`, a position on the leading axes, by the axes of these lengths, from the index of that number."""
    for axis, length in enumerate(lengths):
        found = write_index(code, indices, number * len(lengths) + axis, length, f"at{axis}")
        code.set(at, at * length + found)
    return at


def write_index(code: Code, indices: Pointer, place: Operand, length: Value, name: str = "at") -> Value:
    """The index at that place, counted from the front, in range."""
    found = code.let(name, indices.scalar(place).to(DType.int64))
    with code.when(found < 0):
        code.add(found, length)
    with code.when(either(found < 0, found >= length)):
        code.leave(OUT_OF_RANGE)
    return found
