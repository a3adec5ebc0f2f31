"""Matrix products of the element types and ranks that `gemm.py` does not take: a few rows at a time, and a vector of columns.

b is read in place, or, where many rows need them, a vector of its columns is copied to the scratch memory first. A vector as
operand is a matrix of one row (a) or one column (b).
"""

from __future__ import annotations

from collections.abc import Sequence

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.expression import computed_type, literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of, stored, widened
from ..target import Target
from .precision import Precision
from .tile import CHUNK, multiply_add

_ROWS, _ROWS_OF_MANY_REGISTERS = 4, 6  # whose sums are under way at once, to hide the latency of multiply-adds


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of matmul, alone in its definition; else None."""
    return _Product(definition, target).kernel() if len(definition.nodes) == 1 else None


class _Product:
    """Writes one product. A unit of the work is a tile of rows and a vector of columns of one matrix of the batch; rows vary
    fastest."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (self.node,) = definition.nodes
        a, b = (shape_of(definition.values[number]) for number in self.node.inputs)
        self.a, self.b = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
        self.result = shape_of(definition.results[0])
        self.batch = self.result[: len(self.result) - (len(a) > 1) - (len(b) > 1)]
        self.dtype = definition.results[0].dtype
        self.write = Writer(definition, target, f"matmul, {self.dtype.name}")
        self.rows = _ROWS if target.vector_registers < 32 else _ROWS_OF_MANY_REGISTERS
        if isinstance(self.a[-2], int):
            self.rows = max(1, min(self.rows, self.a[-2]))
        self.panel_bytes = self._choose_panel(target)

    def _choose_panel(self, target: Target) -> int:
        """Bytes of a copied vector of columns; 0 if none is copied."""
        rows, depth = self.a[-2], self.a[-1]
        if not isinstance(rows, int) or not isinstance(depth, int) or rows < costs.PRODUCT_MANY_ROWS:
            return 0
        size = depth * self.write.lanes * self.dtype.itemsize
        return size if size <= target.half_l2 else 0

    def kernel(self) -> Kernel:
        write = self.write
        batch = [(f"at_{axis}", f"batch_{axis}") for axis in range(len(self.batch))]
        tiles = Odometer(write, [*batch, ("strip", "strips"), ("tile", "tiles")])
        if self.panel_bytes:
            write.prepare("copied")
        self._write_sizes()
        macs = f"{tiles.count} * {self.rows * write.lanes} * depth"
        write.split(tiles.count, f"{macs} // {costs.PRODUCT_MACS}")
        with write.block("if first < last"):
            write("unit = first")
            tiles.start("unit")
        with write.block("for unit in range(first, last)"):
            write(f"a = a_at + {self._bytes(self._matrix(self.a, 'rows * depth'))}")
            write(f"b = b_at + {self._bytes(self._matrix(self.b, 'depth * columns'))}")
            write("place = unit // tiles", "matrix = place // strips", f"column = strip * {write.lanes}")
            write(f"rest = min({write.lanes}, columns - column)")
            if self.panel_bytes:
                self._write_panel()
            self._write_tile()
            tiles.advance()
        work = estimate(dims.multiply(dims.element_count(self.result), self.a[-1]))
        return write.kernel(work / costs.PRODUCT_MACS, self.panel_bytes)

    def _write_sizes(self) -> None:
        write = self.write
        write.input("a_at", self.node.inputs[0])
        write.input("b_at", self.node.inputs[1])
        write.output("target", 0)
        for axis, dim in enumerate(self.batch):
            write.size(f"batch_{axis}", dim)
        write.size("rows", self.a[-2])
        write.size("depth", self.a[-1])
        write.size("columns", self.b[-1])
        write(f"tiles = (rows + {self.rows - 1}) // {self.rows}")
        write(f"strips = (columns + {write.lanes - 1}) // {write.lanes}")

    def _bytes(self, elements: str) -> str:
        return scaled(elements, self.dtype.itemsize)

    def _matrix(self, shape: Sequence[Dim], size: str) -> str:
        """The first element of the unit's matrix of an operand, whose batch may broadcast."""
        place, missing = "", len(self.batch) - (len(shape) - 2)
        for axis, dim in enumerate(shape[:-2], missing):
            if dim != 1:
                place = f"({place}) * batch_{axis} + at_{axis}" if place else f"at_{axis}"
        return f"({place}) * {size}" if place else "0"

    def _write_panel(self) -> None:
        write, name = self.write, self.dtype.name
        with write.block("if place != copied"):
            write("copied = place")
            with write.block("for step in range(depth)"):
                at, to = self._bytes("step * columns + column"), self._bytes(f"step * {write.lanes}")
                write(f"vstore(scratch, {to}, vload_{name}(b, {at}, rest))")

    def _write_tile(self) -> None:
        write, computed = self.write, computed_type(self.dtype)
        write(f"left = rows - tile * {self.rows}")
        for i in range(self.rows):  # rows beyond the last one repeat it, and are not stored
            write(
                f"row_{i} = min(tile * {self.rows} + {i}, rows - 1)", f"a_{i} = a + {self._bytes(f'row_{i} * depth')}"
            )
        zero = f"splat_{computed.name}({literal(0, computed)})"
        write(*(f"total_{i} = {zero}" for i in range(self.rows)))
        with write.block(f"for begin in range(0, depth, {CHUNK})"):
            write(*(f"sum_{i} = {zero}" for i in range(self.rows)))
            with write.block(f"for step in range(begin, min(begin + {CHUNK}, depth))"):
                self._write_step()
            write(*(f"total_{i} = total_{i} + sum_{i}" for i in range(self.rows)))
        for i in range(self.rows):
            with write.block(f"if left > {i}"):
                at = self._bytes(f"(matrix * rows + row_{i}) * columns + column")
                write(f"vstore(target, {at}, {stored(f'total_{i}', self.dtype)}, rest)")

    def _write_step(self) -> None:
        write, name, computed = self.write, self.dtype.name, computed_type(self.dtype)
        if self.panel_bytes:
            loaded = f"vload_{name}(scratch, {self._bytes(f'step * {write.lanes}')})"
        else:
            loaded = f"vload_{name}(b, {self._bytes('step * columns + column')}, rest)"
        write("w = " + widened(loaded, self.dtype))
        for i in range(self.rows):
            element = widened(f"load_{name}(a_{i}, {self._bytes('step')})", self.dtype)
            write(f"x_{i} = splat_{computed.name}({element})")
            write(multiply_add(f"sum_{i}", f"x_{i}", "w", write.target, Precision.plain(self.dtype)))
