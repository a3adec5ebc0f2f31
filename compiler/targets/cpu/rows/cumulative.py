"""The template of cumulative_sum and cumulative_prod: neighbouring sums are lanes of vectors; along the last axis, scalars.

Floats are summed in float64, as in the reference. A running product is the same with 1 and multiplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of
from ..target import Target

_STRIP = 4  # vectors side by side, whose sums are in registers
_STRIPS = 32  # side by side, whose sums fit into L1
_FEW_STRIPS = 8  # strips whose step spans less than a page
_SUM_BYTES = 8
_ARITHMETIC = {"cumulative_sum": (0, "+"), "cumulative_prod": (1, "*")}  # neutral element, and operation


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of one of them, alone in its definition; else None."""
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
    write = Writer(definition, target, ", ".join([node.operator, "of rows" if is_single else "of columns", *kinds]))
    write.input("x", 0)
    write.output("target", 0)
    write.sizes(outer=dims.product(shape[:axis]), length=shape[axis], inner=inner)
    elements = estimate(dims.element_count(shape))
    start, operator = _ARITHMETIC[node.operator]
    flags = "exclusive" in kinds, "reverse" in kinds
    sums = _Sums(write, "" if is_single else "v", loaded, summed, start, operator, *flags)
    if is_single:
        _write_rows(sums)
        return write.kernel(elements * costs.CUMULATIVE_PS / 1000)
    _write_columns(sums)
    return write.kernel(elements * costs.CUMULATIVE_PS / 4000, _SUM_BYTES * _STRIP * _STRIPS * write.lanes)


@dataclass(frozen=True)
class _Sums:
    """Writes sums of elements that are loaded as one type, and summed as another: single ones, or vectors ("v")."""

    write: Writer
    vector: str
    loaded: str
    summed: str
    start: int
    operator: str
    is_exclusive: bool
    is_reverse: bool

    def write_start(self) -> None:
        """Defines where line `i` starts, in elements, and the step to its next element."""
        self.write("start = i * length * inner", "step = inner")
        if self.is_reverse:
            self.write("start += (length - 1) * inner", "step = -inner")

    def write_steps(self, count: str, places: Sequence[int], rest: str = "") -> None:
        """The next `count` elements of the columns at these offsets from `at`, which advances."""
        write, size = self.write, DType[self.loaded].itemsize
        store = f"{self.vector}store" + ("" if self.vector else f"_{self.loaded}")
        with write.block(f"for _ in range({count})"):
            for place in places:
                here, total = scaled(f"at + {place}", size), f"total{place}"
                write(f"element = convert_{self.summed}({self.vector}load_{self.loaded}(x, {here}{rest}))")
                write(f"before = {total}", f"{total} = {total} {self.operator} element")
                value = f"convert_{self.loaded}({'before' if self.is_exclusive else total})"
                write(f"{store}(target, {here}, {value}{rest})")
            write("at += step")


def _write_rows(sums: _Sums) -> None:
    """Contiguous lines, one element after the other."""
    write = sums.write
    write.split("outer", f"outer * length * {costs.CUMULATIVE_PS} // 1000")
    with write.block("for i in range(first, last)"):
        sums.write_start()
        write(f"total0 = convert_{sums.summed}({sums.start})", "at = start")
        sums.write_steps("length", [0])


def _write_columns(sums: _Sums) -> None:
    """Neighbouring lines. A few strips are processed one after the other, with sums in registers. If each step would be on
    another page, all go side by side, with sums in scratch: memory is then read and written sequentially."""
    write, lanes = sums.write, sums.write.lanes
    width = _STRIP * lanes
    write(f"strips = (inner + {width - 1}) // {width}")
    write.split("outer * strips", f"outer * length * inner * {costs.CUMULATIVE_PS // 4} // 1000")
    write("unit = first")
    with write.block("while unit < last"):
        write("i = unit // strips", "strip = unit - i * strips")
        write(f"count = min(min(last - unit, strips - strip), {_STRIPS})", "unit += count")
        write(f"begin = strip * {width}", f"end = min(begin + count * {width}, inner)")
        sums.write_start()
        with write.block(f"for k in range(0, end - begin, {lanes})"):
            write(f"vstore(scratch, k * {_SUM_BYTES}, splat_{sums.summed}({sums.start}))")
        write(f"steps = 1 if count > {_FEW_STRIPS} else length")
        with write.block("for top in range(0, length, steps)"):
            write("k = begin")
            with write.block(f"while end - k >= {width}"):
                _write_strip(sums, range(0, width, lanes))
                write(f"k += {width}")
            with write.block("while k < end"):
                write("rest = end - k")
                _write_strip(sums, [0], ", rest")
                write(f"k += {lanes}")


def _write_strip(sums: _Sums, places: Sequence[int], rest: str = "") -> None:
    write = sums.write
    write("at = start + top * step + k")
    write(*(f"total{place} = vload_{sums.summed}(scratch, (k - begin + {place}) * {_SUM_BYTES})" for place in places))
    sums.write_steps("steps", places, rest)
    write(*(f"vstore(scratch, (k - begin + {place}) * {_SUM_BYTES}, total{place})" for place in places))
