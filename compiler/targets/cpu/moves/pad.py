"""The template of `pad`: rows of the result along the last padded axis, each of a beginning, a row of x, and an end.

A row with constants at its ends that is no longer than a vector is made as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ....operators.movement import LEAST_PADDED
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of, write_copy
from ..target import Target


@dataclass(frozen=True)
class Axis:
    size: Dim  # of x
    begin: Dim
    end: Dim

    @property
    def is_padded(self) -> bool:
        return not (self.begin == 0 and self.end == 0)


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of `pad`, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    it = _Pad(definition, target)
    it.write_all()
    itemsize = definition.params[0].dtype.itemsize
    return it.write.kernel(
        costs.COPY_BYTE_PS / 1000 * itemsize * estimate(dims.element_count(shape_of(definition.results[0])))
    )


def _merged(axes: list[Axis], is_constant: bool) -> list[Axis]:
    """Merges axes without padding into the axis before them, if that has none either, or if the padding is constant."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and not axis.is_padded and (is_constant or not merged[-1].is_padded):
            outer = merged[-1]
            merged[-1] = Axis(*(dims.multiply(dim, axis.size) for dim in (outer.size, outer.begin, outer.end)))
        else:
            merged.append(axis)
    return merged or [Axis(1, 0, 0)]


class _Pad:
    """Variables of axis k: n its size in x, m in the result, o the position in the result, y that in x."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (node,) = definition.nodes
        attributes, shape = bound_attributes(node), shape_of(definition.params[0])
        pads, rank = attributes["pads"], len(shape)
        self.mode = attributes["mode"]
        axes = [Axis(*values) for values in zip(shape, pads[:rank], pads[rank:], strict=True)]
        self.axes = _merged(axes, self.mode == "constant")
        self.padded = [k for k, axis in enumerate(self.axes) if axis.is_padded]
        self.last = len(self.axes) - 1
        self.dtype = definition.params[0].dtype
        self.itemsize = self.dtype.itemsize
        self.type = f"uint{8 * self.itemsize}"
        self.value = literal(attributes["value"], self.dtype) if self.mode == "constant" else ""
        self.is_narrow = self.mode == "constant" and self._row_size() <= target.lanes()
        kinds = [self.mode, *filter(None, [self.value]), *(["narrow"] if self.is_narrow else [])]
        self.write = Writer(definition, target, ", ".join(["pad", *kinds]))

    def _row_size(self) -> float:
        """The elements of a row of the result, if they are known."""
        last = self.axes[-1]
        size = dims.add(dims.add(last.begin, last.size), last.end)
        return size if isinstance(size, int) else math.inf

    def write_all(self) -> None:
        write, last = self.write, self.last
        write.input("x", 0)
        write.output("target", 0)
        for k, axis in enumerate(self.axes):
            write.size(f"n{k}", axis.size)
            if axis.is_padded:
                write.size(f"begin{k}", axis.begin)
                write.size(f"end{k}", axis.end)
                write(f"m{k} = begin{k} + n{k} + end{k}")
            else:
                write(f"m{k} = n{k}")
        rows = Odometer(write, [(f"o{k}", f"m{k}") for k in range(last)])
        write(f"rows = {rows.count}")
        write.split("rows", f"rows * m{last} * {costs.COPY_BYTE_PS * self.itemsize} // 1000")
        self._write_checks()
        if self.value:
            write(f"fill = splat_{self.dtype.name}({self.value})")
        if self.is_narrow:
            self._write_middle()
        with write.block("if first < last"):
            write("row = first")
            rows.start("row")
        with write.block("for r in range(first, last)"):
            write(f"b = target + {scaled(f'r * m{last}', self.itemsize)}")
            self._write_row()
            rows.advance()

    def _write_checks(self) -> None:
        """Symbolic pads may be negative, and symbolic axes too short to take elements from."""
        for k in self.padded:
            conditions = [f"begin{k} < 0 or end{k} < 0"]
            if least := LEAST_PADDED[self.mode]:
                conditions.append(f"n{k} < {least} and begin{k} + end{k} > 0")
            with self.write.block(f"if {' or '.join(conditions)}"):
                self.write("return 1")

    def _write_row(self) -> None:
        outer = [k for k in self.padded if k != self.last]
        for k in range(self.last):
            self._write_place(k)
        if self.mode != "constant" or not outer:
            self._write_inner_row()
            return
        with self.write.block("if " + " and ".join(f"0 <= y{k} < n{k}" for k in outer)):
            self._write_inner_row()
        with self.write.block("else"):
            self._write_filled_row()

    def _write_filled_row(self) -> None:
        if self.is_narrow:
            self._store_narrow_row("fill")
        else:
            self._write_fill("0", f"m{self.last}")

    def _write_place(self, k: int) -> None:
        """Defines y: the position in x of position o in the result."""
        write = self.write
        if k not in self.padded:
            write(f"y{k} = o{k}")
        elif self.mode == "edge":
            write(f"y{k} = min(max(o{k} - begin{k}, 0), n{k} - 1)")
        elif self.mode == "reflect":
            write(f"y{k} = {self._reflected(k, f'o{k} - begin{k}')}")
        else:
            write(f"y{k} = o{k} - begin{k}")

    def _reflected(self, k: int, place: str) -> str:
        """Reflects positions between 0 and n - 1, with a period of 2 n - 2."""
        return f"n{k} - 1 - abs(({place}) % max(2 * n{k} - 2, 1) - (n{k} - 1))"

    def _write_inner_row(self) -> None:
        write, k = self.write, self.last
        place = ""
        for axis in range(k):
            place = f"({place}) * n{axis} + y{axis}" if place else f"y{axis}"
        write(f"a = x + {scaled(f'({place}) * n{k}', self.itemsize)}" if place else "a = x")
        if self.is_narrow:
            self._write_narrow_row()
            return
        if k not in self.padded:
            self._write_copy("0")
            return
        self._write_end("0", f"begin{k}")
        self._write_copy(f"begin{k}")
        self._write_end(f"begin{k} + n{k}", f"m{k}")

    def _write_middle(self) -> None:
        """The mask of lanes from x, for a row no longer than a vector."""
        begin = f"begin{self.last}" if self.last in self.padded else "0"
        self.write(f"begin = {begin}", f"end = begin + n{self.last}", "middle = inside(end) & ~inside(begin)")

    def _write_narrow_row(self) -> None:
        name = self.dtype.name
        self.write(f"v = vload_between_{name}(a, {scaled('-begin', self.itemsize)}, begin, end)")
        self._store_narrow_row("select(middle, v, fill)")

    def _store_narrow_row(self, value: str) -> None:
        """Stores a whole vector if this part overwrites the elements after the row later: a masked store would take longer."""
        with self.write.block(f"if (last - r) * m{self.last} >= {self.write.lanes}"):
            self.write(f"vstore(b, 0, {value})")
        with self.write.block("else"):
            self.write(f"vstore(b, 0, {value}, m{self.last})")

    def _write_end(self, start: str, stop: str) -> None:
        """Writes the padding before or after a row of x."""
        k, load = self.last, f"load_{self.type}"
        if self.mode == "constant":
            self._write_fill(start, stop)
            return
        with self.write.block(f"for i in range({start}, {stop})"):
            shifted = f"i - begin{k}"
            place = f"min(max({shifted}, 0), n{k} - 1)" if self.mode == "edge" else self._reflected(k, shifted)
            self.write(f"store_{self.type}(b, {scaled('i', self.itemsize)}, {load}(a, {scaled(place, self.itemsize)}))")

    def _write_fill(self, start: str, stop: str) -> None:
        with self.write.block(f"for i in range({start}, {stop}, {self.write.lanes})"):
            self.write(f"vstore(b, {scaled('i', self.itemsize)}, fill, {stop} - i)")

    def _write_copy(self, start: str) -> None:
        write, size = self.write, self.itemsize
        write(f"c = b + {scaled(start, size)}" if start != "0" else "c = b")
        write_copy(write, size, "c", "a", "0", f"n{self.last}")
