"""The templates of counted_nonzero and counted_boxes: the places of the selected elements, consecutively.

Each place depends on the elements before it: the work is one part. The count may be wrong in a foreign program:
no more is written than fits, and if fewer elements are found, the kernel ends with code 1.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..target import Target
from .kernel import Kernel
from .writer import Odometer, Writer, estimate, scaled, shape_of, widened


def lower_nonzero(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of counted_nonzero, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    shape, dtype = shape_of(definition.params[0]), definition.params[0].dtype
    rank, *inner = (len(shape), *shape[-1:])
    write = Writer(definition, target, f"counted_nonzero, {rank} axes")
    outer = [(f"i{axis}", f"n{axis}") for axis in range(rank - 1)]
    for axis, size in enumerate(shape[:-1]):
        write.size(f"n{axis}", size)
    write.size("length", inner[0] if inner else 1)
    rows = Odometer(write, outer)
    _begin(write, shape_of(definition.results[0])[1])
    write(f"rows = {rows.count} if length > 0 else 0")
    if outer:
        write("row = 0")
        rows.start("row")
    indices = [*(index for index, _ in outer), "i"][:rank]
    with write.block("for r in range(rows)"):
        write(f"a = x + {scaled('r * length', dtype.itemsize)}")
        with write.block(f"for begin in range(0, length, {write.lanes})"):
            write(f"rest = min({write.lanes}, length - begin)")
            vector = widened(f"vload_{dtype.name}(a, {scaled('begin', dtype.itemsize)}, rest)", dtype)
            with (
                write.block(f"if any_lane({vector if dtype is DType.bool else f'{vector} != 0'})"),
                write.block("for i in range(begin, begin + rest)"),
            ):
                element = widened(f"load_{dtype.name}(a, {scaled('i', dtype.itemsize)})", dtype)
                with write.block(f"if {element}" if dtype is DType.bool else f"if {element} != 0"):
                    _write_found(write, [f"({axis} * count + found) * 8" for axis in range(rank)], indices)
        rows.advance()
    return _end(write, estimate(dims.element_count(shape)))


def lower_boxes(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of counted_boxes, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    shape = shape_of(definition.params[0])
    write = Writer(definition, target, "counted_boxes")
    write.sizes(**dict(zip(("images", "kinds", "room"), shape, strict=True)))
    _begin(write, shape_of(definition.results[0])[0])
    with write.block("for row in range(images * kinds if room > 0 else 0)"):
        write("image = row // kinds", "kind = row - image * kinds")
        with write.block("for i in range(room)"):
            write("number = load_int64(x, (row * room + i) * 8)")
            with write.block("if number >= 0"):
                _write_found(write, [f"(found * 3 + {axis}) * 8" for axis in range(3)], ["image", "kind", "number"])
    return _end(write, estimate(dims.element_count(shape)))


def _begin(write: Writer, count: Dim) -> None:
    write.size("count", count)
    write.alone()
    write.input("x", 0)
    write.output("target", 0)
    write("found = 0")


def _write_found(write: Writer, places: list[str], values: list[str]) -> None:
    with write.block("if found == count"):
        write("return 1")
    write(
        *(f"store_int64(target, {place}, {value})" for place, value in zip(places, values, strict=True)), "found += 1"
    )


def _end(write: Writer, elements: int) -> Kernel:
    with write.block("if found != count"):
        write("return 1")
    return write.kernel(elements * costs.FOUND_PS / 1000)
