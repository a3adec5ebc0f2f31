"""The template of elementwise chains: any graph of elementwise operators, with broadcasting, in one pass over memory."""

from __future__ import annotations

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import TensorType
from .expression import Expression, computed_type
from .kernel import Kernel
from .loops import BLOCK, Rows, merged_axes
from .target import Target
from .writer import NANOSECONDS_A_BYTE, Writer, estimate, scaled, shape_of, stored, widened


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of a definition whose nodes are all elementwise, and whose outputs have one shape; None for others."""
    expression = Expression.of(definition, definition.outputs)
    if expression is None or len({result.shape for result in definition.results}) != 1:
        return None
    whole = shape_of(definition.results[0])
    tensors = [definition.params[i] for i in expression.inputs] + list(definition.results)
    axes = merged_axes(whole, [shape_of(tensor) for tensor in tensors])
    if axes is None:
        return None
    write = Writer(definition, target, ", ".join(expression.operators) or "copy")
    rows = Rows(write, axes)
    cost = expression.cost + NANOSECONDS_A_BYTE * sum(tensor.dtype.itemsize for tensor in tensors)
    _Chain(definition, expression, write, rows).write_all(max(1, round(cost * 1000)))
    return write.kernel(cost * estimate(dims.element_count(whole)))


class _Chain:
    """Writes one chain. Tensors are counted as the expression's inputs, then the definition's outputs: t0, t1, …"""

    def __init__(self, definition: PrimitiveDefinition, expression: Expression, write: Writer, rows: Rows) -> None:
        self.definition, self.expression, self.write, self.rows = definition, expression, write, rows
        inner = rows.axes[0].present
        repeated = [not any(axis.present[k] for axis in rows.axes) for k in range(len(inner))]
        inputs = range(len(expression.inputs))
        self.scalars = [k for k in inputs if repeated[k]]
        self.row_scalars = [k for k in inputs if not inner[k] and not repeated[k]]
        self.vectors = [k for k in inputs if inner[k]]
        self.outputs = range(len(inputs), len(inner))

    def type_of(self, tensor: int) -> TensorType:
        number = (
            self.expression.inputs[tensor]
            if tensor not in self.outputs
            else self.definition.outputs[self._output(tensor)]
        )
        return self.expression.types[number]

    def _output(self, tensor: int) -> int:
        return tensor - len(self.expression.inputs)

    def write_all(self, picoseconds: int) -> None:
        write = self.write
        for k, number in enumerate(self.expression.inputs):
            write.input(f"t{k}", number)
        for k in self.outputs:
            write.output(f"t{k}", self._output(k))
        self.rows.begin(picoseconds)
        for k in self.scalars:
            self._load_scalar(k, f"t{k}")
        with write.block(f"for {'_' if self.rows.outer else 'block'} in range(first, last)"):
            self._write_block()
            self.rows.advance()

    def _write_block(self) -> None:
        write, lanes = self.write, self.write.lanes
        write(f"begin = block * {BLOCK}", f"count = min({BLOCK}, n0 - begin)", f"whole = count - count % {lanes}")
        for k in self.row_scalars:
            write(f"p{k} = t{k} + {scaled(self.rows.place(k), self.type_of(k).dtype.itemsize)}")
            self._load_scalar(k, f"p{k}")
        for k in (*self.vectors, *self.outputs):
            place = self.rows.place(k)
            start = f"{place} + begin" if place else "begin"
            write(f"p{k} = t{k} + {scaled(start, self.type_of(k).dtype.itemsize)}")
        with write.block(f"for i in range(0, whole, {lanes})"):
            self._write_vector("i", "")
        with write.block("if whole < count"):
            write("rest = count - whole")
            self._write_vector("whole", "rest")

    def _write_vector(self, index: str, count: str) -> None:
        """Loads, the expression, stores. With a count, of so many lanes."""
        write, ending = self.write, f", {count}" if count else ""
        for k in self.vectors:
            dtype = self.type_of(k).dtype
            loaded = f"vload_{dtype.name}(p{k}, {scaled(index, dtype.itemsize)}{ending})"
            write(f"{self._name(k)} = {widened(loaded, dtype)}")
        names = {number: self._name(k) for k, number in enumerate(self.expression.inputs)}
        lines, results = self.expression.emit(names, count)
        write(*lines)
        for k in self.outputs:
            dtype, result = self.type_of(k).dtype, results[self.definition.outputs[self._output(k)]]
            write(f"vstore(p{k}, {scaled(index, dtype.itemsize)}, {stored(result, dtype)}{ending})")

    def _load_scalar(self, tensor: int, address: str) -> None:
        dtype = self.type_of(tensor).dtype
        loaded = widened(f"load_{dtype.name}({address}, 0)", dtype)
        self.write(f"{self._name(tensor)} = splat_{computed_type(dtype).name}({loaded})")

    def _name(self, tensor: int) -> str:
        return f"v{self.expression.inputs[tensor]}"
