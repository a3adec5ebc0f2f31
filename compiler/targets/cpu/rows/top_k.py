"""The template of top_k: a heap of the best elements of a row so far, the worst at its root (Williams, Algorithm 232, 1964).

Elements are compared by order-preserving integer keys: so NaN is greatest, -0 equals 0, and of equal elements the
first one is better. Most elements of a long row are worse than the heap's worst, which is checked a vector at a time.

The heap is in scratch if k, and so its size, is known; else its places are stored in the results' indices,
and keys are recomputed from the elements there.
"""

from __future__ import annotations

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of
from ..target import Target

_MOST = 1 << 16  # elements of a heap


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of top_k, alone in its definition; None if k is 0 or very large."""
    if len(definition.nodes) != 1 or definition.outputs != (1, 2):
        return None
    attributes, shape = bound_attributes(definition.nodes[0]), shape_of(definition.params[0])
    k = attributes["k"]
    if isinstance(k, int) and not 1 <= k <= _MOST:
        return None
    axis = axis_of(attributes["axis"], len(shape))
    outer, length, inner = dims.product(shape[:axis]), shape[axis], dims.product(shape[axis + 1 :])
    kind = _Heap if isinstance(k, int) else _HeapOfResults
    it = kind(definition, target, is_single=inner == 1, largest=attributes["largest"])
    write = it.write
    write.sizes(k=k, outer=outer, length=length, inner=inner)
    if isinstance(k, int):
        write("places = scratch + 8 * k")
    write.split("outer * inner", f"outer * inner * length * {costs.TOP_K_PS} // 1000")
    with write.block("if length < k"):
        write("return 1")
    with write.block("for row in range(first, last if k > 0 else first)"):
        write("i = row // inner", "start = i * length * inner + (row - i * inner)")
        write("out = i * k * inner + (row - i * inner)")
        it.write_filling()
        it.write_scan()
        it.write_results()
    elements = estimate(dims.element_count(shape))
    return write.kernel(elements * costs.TOP_K_PS / 1000, scratch_bytes=16 * k if isinstance(k, int) else 0)


class _Heap:
    """A heap in scratch: keys, then their places along the axis."""

    def __init__(self, definition: PrimitiveDefinition, target: Target, is_single: bool, largest: bool) -> None:
        self.dtype, self.is_single, self.largest = definition.params[0].dtype, is_single, largest
        title = f"top_k, {'largest' if largest else 'smallest'}, {'rows' if is_single else 'columns'}"
        self.write = Writer(definition, target, title)
        self.write.input("x", 0)
        self.write.output("values", 0)
        self.write.output("indices", 1)

    def _write_key(self, place: str, prefix: str = "") -> None:
        """Defines `key`, named with a prefix: the better of two elements has the greater key."""
        write, dtype, bits, key = self.write, self.dtype, 8 * self.dtype.itemsize, f"{prefix}key"
        write(f"{key} = convert_int64(load_int{bits}(x, {scaled(place, dtype.itemsize)}))")
        if dtype.is_float:
            greatest = (1 << bits - 1) - 1
            infinity = np.array(np.inf, dtype.numpy).view(f"int{bits}")
            write(f"magnitude = {key} & {greatest}")
            write(f"{key} = magnitude if {key} >= 0 else -magnitude")
            with write.block(f"if magnitude > {infinity}"):
                write(f"{key} = {greatest}")
        elif dtype is DType.uint64:
            write(f"{key} = {key} ^ -9223372036854775808")
        elif not dtype.name.startswith("int"):
            write(f"{key} = {key} & {(1 << bits) - 1}")
        if not self.largest:
            write(f"{key} = ~{key}")

    def _write_sink(self, count: str) -> None:
        """Sifts `key` and `place` down from the root of a heap of `count`."""
        write = self.write
        write("hole = 0")
        with write.block("while True"):
            write("child = 2 * hole + 1")
            with write.block(f"if child >= {count}"):
                write("break")
            self._write_read("child", "child_")
            with write.block(f"if child + 1 < {count}"):
                self._write_read("child + 1", "other_")
                with write.block(f"if {_is_worse('other_', 'child_')}"):
                    write("child += 1", "child_key = other_key", "child_place = other_place")
            with write.block(f"if not ({_is_worse('child_', '')})"):
                write("break")
            self._write_entry("hole", "child_key", "child_place")
            write("hole = child")
        self._write_entry("hole", "key", "place")

    def _write_read(self, number: str, prefix: str) -> None:
        """Defines the key and the place of an entry of the heap."""
        self.write(f"{prefix}key = word(scratch, {number})", f"{prefix}place = word(places, {number})")

    def _write_entry(self, number: str, key: str, place: str) -> None:
        self.write(f"store_int64(scratch, {number} * 8, {key})", f"store_int64(places, {number} * 8, {place})")

    def write_filling(self) -> None:
        """Fills the heap with the first k elements, sifting each up."""
        write = self.write
        with write.block("for place in range(k)"):
            self._write_key("start + place * inner")
            write("hole = place")
            with write.block("while hole > 0"):
                write("parent = (hole - 1) // 2")
                self._write_read("parent", "parent_")
                with write.block("if parent_key < key"):
                    write("break")
                self._write_entry("hole", "parent_key", "parent_place")
                write("hole = parent")
            self._write_entry("hole", "key", "place")

    def write_scan(self) -> None:
        """Scans the other elements: one that is better than the worst replaces it."""
        write, lanes = self.write, self.write.lanes
        if not self.is_single or self.dtype not in (DType.float32, DType.float64):
            with write.block("for place in range(k, length)"):
                self._write_candidate()
            return
        name, size = self.dtype.name, self.dtype.itemsize
        with write.block(f"for begin in range(k, length, {lanes})"):
            write(f"rest = min({lanes}, length - begin)")
            self._write_read("0", "worst_")
            write(f"worst = load_{name}(x, {scaled('start + worst_place', size)})")
            write(f"v = vload_{name}(x, {scaled('start + begin', size)}, rest)")
            # NaN is neither less nor equal
            write(f"is_better = ~(v {'<=' if self.largest else '>='} worst) & inside(rest)")
            with write.block("if any_lane(is_better)"), write.block("for place in range(begin, begin + rest)"):
                self._write_candidate()

    def _write_candidate(self) -> None:
        self._write_key("start + place * inner")
        self._write_read("0", "worst_")
        with self.write.block("if key > worst_key"):
            self._write_sink("k")

    def write_results(self) -> None:
        """Sorts the heap: moves the root to the end, again and again."""
        write, kind, size = self.write, f"uint{8 * self.dtype.itemsize}", self.dtype.itemsize
        with write.block("for left in range(k - 1, -1, -1)"):
            self._write_read("0", "worst_")
            self._write_read("left", "")
            write("at = worst_place", "to = out + left * inner")
            write(f"store_{kind}(values, {scaled('to', size)}, load_{kind}(x, {scaled('start + at * inner', size)}))")
            write("store_int64(indices, to * 8, at)")
            self._write_sink("left")


class _HeapOfResults(_Heap):
    """A heap whose places along the axis are stored in the row's result indices."""

    def _write_read(self, number: str, prefix: str) -> None:
        self.write(f"{prefix}place = load_int64(indices, (out + ({number}) * inner) * 8)")
        self._write_key(f"start + {prefix}place * inner", prefix)

    def _write_entry(self, number: str, key: str, place: str) -> None:
        self.write(f"store_int64(indices, (out + {number} * inner) * 8, {place})")


def _is_worse(a: str, b: str) -> str:
    """Whether the first of two elements, given by prefixes of variables, is worse."""
    return f"{a}key < {b}key or ({a}key == {b}key and {a}place > {b}place)"
