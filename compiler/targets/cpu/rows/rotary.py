"""The template of rotary embeddings: a vector of each half of a row, read once, gives one of each half.

Axes along which cosines and sines repeat are merged, as in elementwise kernels.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.loops import merged_axes
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of, stored, widened
from ..target import Target


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of rotary, alone in its definition; else None."""
    shapes = [shape_of(type_) for type_ in definition.params]
    axes = merged_axes(shapes[0][:-1], [shape[:-1] for shape in shapes])
    if len(definition.nodes) != 1 or axes is None:
        return None
    write = Writer(definition, target, "rotary")
    itemsize = definition.params[0].dtype.itemsize
    write.inputs(definition.nodes[0].inputs, "x", "cosine", "sine")
    write.output("target", 0)
    write.size("half", dims.floordiv(shapes[0][-1], 2))
    for number, axis in enumerate(axes):
        write.size(f"n{number}", axis.size)
    indices = Odometer(write, [(f"i{number}", f"n{number}") for number in range(len(axes))])
    write(
        f"rows = {indices.count}", f"row_bytes = {scaled('half', 2 * itemsize)}", f"middle = {scaled('half', itemsize)}"
    )
    write.split("rows", f"rows * half * {2 * costs.ROTARY_PS} // 1000")
    indices.start("first")
    with write.block("for row in range(first, last)"):
        for operand, name in enumerate(("x", "cosine", "sine")):
            row = "0"
            for number, axis in enumerate(axes):
                row = f"({row} * n{number} + i{number})" if axis.present[operand] else row
            write(f"{name}_row = {name} + {row} * row_bytes")
        write("target_row = target + row * row_bytes")
        with write.block(f"for i in range(0, half, {write.lanes})"):
            _write_step(write, definition)
        indices.advance()
    return write.kernel(estimate(dims.element_count(shapes[0])) * costs.ROTARY_PS / 1000)


def _write_step(write: Writer, definition: PrimitiveDefinition) -> None:
    """One vector of each half."""
    dtype = definition.params[0].dtype
    write(f"rest = min({write.lanes}, half - i)", f"at_0 = {scaled('i', dtype.itemsize)}", "at_1 = middle + at_0")
    for name in ("x", "cosine", "sine"):
        for half in (0, 1):
            write(f"{name}_{half} = " + widened(f"vload_{dtype.name}({name}_row, at_{half}, rest)", dtype))
    for half, turned in enumerate(("x_0 * cosine_0 - x_1 * sine_0", "x_1 * cosine_1 + x_0 * sine_1")):
        write(f"vstore(target_row, at_{half}, {stored(turned, dtype)}, rest)")
