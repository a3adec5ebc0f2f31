"""The template of argmax and argmin: first the greatest (least) element of a row, then its index.

Along the last axis, the second pass stops at the first vector that holds it. Along another axis, or for short rows, a
vector takes neighbouring rows, and carries indices along with the elements. NaN counts as the greatest (least), as in
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import computed_type
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of, widened
from ..target import Target
from .reduce import REDUCTIONS

_STRIP = 4  # vectors of neighbouring rows


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of argmax or argmin, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    it = _Extreme(definition, target)
    it.write_all()
    return it.write.kernel(costs.EXTREME_PS / 1000 * estimate(dims.element_count(shape_of(definition.params[0]))))


class _Extreme:
    """x is seen as [outer, length, inner]."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (node,) = definition.nodes
        attributes, shape = bound_attributes(node), shape_of(definition.params[0])
        axis = axis_of(attributes["axis"], len(shape))
        self.dtype = definition.params[0].dtype
        self.computed = computed_type(self.dtype)
        self.takes_last = attributes["select_last_index"]
        self.is_greatest = node.operator == "argmax"
        self.best = REDUCTIONS["max" if self.is_greatest else "min"].accumulator(self.computed)
        self.outer, self.length = dims.product(shape[:axis]), shape[axis]
        self.inner = dims.product(shape[axis + 1 :])
        title = node.operator + (", last of equals" if self.takes_last else "")
        self.write = Writer(definition, target, title)

    def write_all(self) -> None:
        write = self.write
        write.input("x", 0)
        write.output("target", 0)
        write.size("outer", self.outer)
        write.size("length", self.length)
        if self.inner == 1 and isinstance(self.length, int) and self.length <= costs.SHORT_EXTREME:
            self._write_short()
        elif self.inner == 1:
            self._write_along()
        else:
            self._write_across()

    def _load(self, base: str, index: str, count: str = "") -> str:
        ending = f", {count}" if count else ""
        return widened(f"vload_{self.dtype.name}({base}, {scaled(index, self.dtype.itemsize)}{ending})", self.dtype)

    def _split(self, units: str, nanoseconds: str) -> None:
        self.write.split(units, nanoseconds)
        with self.write.block("if length == 0"):
            self.write("return 3")

    def _write_along(self) -> None:
        write, lanes, name = self.write, self.write.lanes, self.computed.name
        self._split("outer", f"outer * length * {costs.EXTREME_PS} // 1000")
        with write.block("for row in range(first, last)"):
            write(f"a = x + {scaled('row * length', self.dtype.itemsize)}")
            write(f"best_lanes = splat_{name}({self.best.identity})")
            with write.block(f"for i in range(0, length, {lanes})"):
                write(f"rest = min({lanes}, length - i)", f"v = {self._load('a', 'i', 'rest')}")
                inside = f"select(inside(rest), v, splat_{name}({self.best.identity}))"
                write(f"best_lanes = {self.best.merged('best_lanes', inside)}")
            write(f"best = splat_{name}({self.best.horizontal}(best_lanes))", "at = 0")
            with write.block(f"for i in range(0, length, {lanes})"):
                write(f"rest = min({lanes}, length - i)", f"v = {self._load('a', 'i', 'rest')}")
                same = "(v == best) | (isnan(v) & isnan(best))" if self.computed.is_float else "v == best"
                write(f"found = ({same}) & inside(rest)")
                with write.block("if any_lane(found)"):
                    write(f"at = i + {'last' if self.takes_last else 'first'}_lane(found)")
                    if not self.takes_last:
                        write("break")
            write("store_int64(target, row * 8, at)")

    def _write_across(self) -> None:
        """Strips of neighbouring rows: enough vectors to hide the latency of a selection, in whole source lines."""
        write, lanes = self.write, self.write.lanes
        width = _STRIP * lanes
        write.size("inner", self.inner)
        write(f"strips = (inner + {width - 1}) // {width}")
        self._split("outer * strips", f"outer * length * inner * {costs.EXTREME_PS} // 1000")
        with write.block("for unit in range(first, last)"):
            write("row = unit // strips", f"column = (unit - row * strips) * {width}")
            with write.block(f"if inner - column >= {width}"):
                self._write_columns([str(lanes * k) for k in range(_STRIP)], "")
            with write.block("else"), write.block("while column < inner"):
                write(f"rest = min({lanes}, inner - column)")
                self._write_columns(["0"], "rest")
                write(f"column += {lanes}")

    def _write_columns(self, places: list[str], count: str) -> None:
        """Vectors of neighbouring rows, at these offsets from `column`."""
        write = self.write
        write(f"a = x + {scaled('row * length * inner + column', self.dtype.itemsize)}")
        self._write_best([lambda i, place=place: self._load("a", f"{i} * inner + {place}", count) for place in places])  # type: ignore[misc]
        for k, place in enumerate(places):
            ending = f", {count}" if count else ""
            write(f"vstore(target, (row * inner + column + {place}) * 8, convert_int64(at{k}){ending})")

    def _write_short(self) -> None:
        write, lanes, dtype = self.write, self.write.lanes, self.dtype
        write(f"strips = (outer + {lanes - 1}) // {lanes}", "places = iota_int64() * length")
        self._split("strips", f"outer * length * {2 * costs.EXTREME_PS} // 1000")
        with write.block("for strip in range(first, last)"):
            write(f"row = strip * {lanes}", f"rest = min({lanes}, outer - row)", "there = inside(rest)")
            write(f"a = x + {scaled('row * length', dtype.itemsize)}")

            def gathered(i: str) -> str:
                return widened(f"vgather_{dtype.name}(a + {scaled(i, dtype.itemsize)}, places, there)", dtype)

            self._write_best([gathered])
            write("vstore(target, row * 8, convert_int64(at0), rest)")

    def _write_best(self, loads: list[Callable[[str], str]]) -> None:
        """Defines `at0`, the index of the best among the vectors loaded by the text of `loads[0]`, and so on. Indices
        are kept in the elements' own width, for one comparison to serve both, in 32 bits at least."""
        write = self.write
        place = "int64" if self.computed.itemsize > 4 or not self._is_short_of_places else "int32"
        for k, load in enumerate(loads):
            write(f"best{k} = {load('0')}", f"at{k} = splat_{place}(0)")
        with write.block("for i in range(1, length)"):
            write(f"here = splat_{place}(i)")
            for k, load in enumerate(loads):
                write(f"v = {load('i')}", f"better = {self._better(f'best{k}')}")
                write(f"best{k} = select(better, v, best{k})", f"at{k} = select(better, here, at{k})")

    def _better(self, best: str) -> str:
        """The mask of lanes where `v` replaces the best so far."""
        more, less = (">", "<") if self.is_greatest else ("<", ">")
        if not self.computed.is_float:
            return f"v {more}{'=' if self.takes_last else ''} {best}"
        # comparisons with NaN fail
        return f"(v {more}= {best}) | isnan(v)" if self.takes_last else f"~(v {less}= {best}) & ~isnan({best})"

    @property
    def _is_short_of_places(self) -> bool:
        return isinstance(self.length, int) and self.length < 1 << 31
