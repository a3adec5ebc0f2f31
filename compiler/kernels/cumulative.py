"""The template of cumulative_sum: neighbouring sums side by side in vectors, one after the other where there are none.

Sums of floats are kept in float64, as the reference has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition
from ..operators.shapes import axis_of
from .expression import bound_attributes
from .kernel import Kernel
from .target import Target
from .writer import Writer, estimate, scaled, shape_of

_PICOSECONDS = 1000  # that an element takes, alone; in a vector, a quarter of it
_STRIP = 4  # vectors side by side, that lines of x are read in


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of cumulative_sum, alone in its definition; else None."""
    if len(definition.nodes) != 1:
        return None
    (node,) = definition.nodes
    attributes, shape, dtype = bound_attributes(node), shape_of(definition.params[0]), definition.params[0].dtype
    axis = axis_of(attributes["axis"], len(shape))
    # integers wrap around, signed and unsigned ones alike
    loaded, summed = (dtype.name, "float64") if dtype.is_float else (f"int{8 * dtype.itemsize}", "int64")
    inner = dims.product(shape[axis + 1 :])
    is_single = inner == 1
    kinds = [kind for kind in ("exclusive", "reverse") if attributes[kind]]
    write = Writer(definition, target, ", ".join(["cumulative_sum", "of rows" if is_single else "of columns", *kinds]))
    write.input("x", 0)
    write.output("target", 0)
    write.sizes(outer=dims.product(shape[:axis]), length=shape[axis], inner=inner)
    lanes = 1 if is_single else write.lanes
    width = 1 if is_single else _STRIP * lanes
    write(f"strips = (inner + {width - 1}) // {width}")
    write.split(
        "outer * strips", f"outer * length * inner * {_PICOSECONDS if is_single else _PICOSECONDS // 4} // 1000"
    )

    def write_sums(places: Sequence[int], rest: str) -> None:
        """Of vectors at these places behind the column `k`, or of single elements."""
        write("at = i * length * inner + k", "step = inner")
        write(*(f"total{place} = {'convert' if is_single else 'splat'}_{summed}(0)" for place in places))
        if attributes["reverse"]:
            write("at += (length - 1) * inner", "step = -inner")
        vector = "" if is_single else "v"
        with write.block("for _ in range(length)"):
            for place in places:
                here, total = scaled(f"at + {place}", dtype.itemsize), f"total{place}"
                write(f"element = convert_{summed}({vector}load_{loaded}(x, {here}{rest}))")
                write(f"before = {total}", f"{total} = {total} + element")
                value = f"convert_{loaded}({'before' if attributes['exclusive'] else total})"
                store = (
                    f"store_{loaded}(target, {here}, {value})"
                    if is_single
                    else f"vstore(target, {here}, {value}{rest})"
                )
                write(store)
            write("at += step")

    with write.block("for unit in range(first, last)"):
        write("i = unit // strips", f"k = (unit - i * strips) * {width}")
        if is_single:
            write_sums([0], "")
        else:
            with write.block(f"if inner - k >= {width}"):
                write_sums(range(0, width, lanes), "")
            with write.block("else"), write.block("while k < inner"):
                write(f"rest = min({lanes}, inner - k)")
                write_sums([0], ", rest")
                write(f"k += {lanes}")
    elements = estimate(dims.element_count(shape))
    return write.kernel(elements * _PICOSECONDS / 1000 / (1 if is_single else 4))
