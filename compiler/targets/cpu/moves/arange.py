"""The template of arange: the numbers of a row, vector by vector."""

from __future__ import annotations

from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import computed_type
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of, stored
from ..target import Target


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of arange, alone in its definition; else None."""
    result = definition.results[0]
    if len(definition.nodes) != 1 or result.dtype is DType.bool:
        return None
    write, attributes, (size,) = (
        Writer(definition, target, "arange"),
        bound_attributes(definition.nodes[0]),
        shape_of(result),
    )
    write.output("out", 0)
    for name, value in (("size", size), ("start", attributes["start"]), ("step", attributes["step"])):
        write.size(name, value)
    write(f"blocks = (size + {write.lanes - 1}) // {write.lanes}")
    write.split("blocks", f"size * {result.dtype.itemsize} // {round(1 / costs.CACHED_BYTE_NS)}")
    with write.block("for block in range(first, last)"):
        write(f"i = block * {write.lanes}", "number = (iota_int64() + i) * step + start")
        value = stored(f"convert_{computed_type(result.dtype).name}(number)", result.dtype)
        write(f"vstore(out, {scaled('i', result.dtype.itemsize)}, {value}, min({write.lanes}, size - i))")
    return write.kernel(estimate(size) * result.dtype.itemsize * costs.CACHED_BYTE_NS)
