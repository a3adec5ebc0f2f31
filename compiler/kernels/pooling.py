"""The template of pooling over windows of any number of spatial axes.

Axes behind the last one that has a window proper lie inside a place of the image: a vector takes neighbours there. That is
how a channel-blocked image [N, C/16, H, W, 16] is pooled, by a window of size 1 on its last axis. Where there are none, a
vector takes neighbouring windows, and gathers their elements if the windows are more than two elements apart.
"""

from __future__ import annotations

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition
from ..operators import windows
from .expression import bound_attributes, computed_type
from .kernel import Kernel
from .reduce import REDUCTIONS
from .sliding import Sliding
from .target import Target
from .writer import Odometer, Writer, estimate, scaled, shape_of, stored, widened


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of max_pool or average_pool, alone in its definition; else None."""
    if len(definition.nodes) != 1 or len(definition.outputs) != 1:
        return None
    pool = _Pool(definition, target)
    pool.write_all()
    taps = estimate(dims.product([axis.size for axis in pool.windows]))  # type: ignore[misc]
    nanoseconds = 0.1 * taps * estimate(dims.element_count(shape_of(definition.results[0])))
    return pool.write.kernel(nanoseconds)


class _Pool:
    """Variables are those of `Sliding`."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (self.node,) = definition.nodes
        self.is_average = self.node.operator == "average_pool"
        self.attributes = bound_attributes(self.node)
        self.image, self.result = shape_of(definition.params[0]), shape_of(definition.results[0])
        found = windows.axes(*(self.attributes[name] for name in ("kernel", "strides", "pads", "dilations")))
        count = len(found)
        while count > 1 and _is_trivial(found[count - 1]):
            count -= 1
        self.windows = found[:count]
        self.depth = dims.product(self.image[2 + count :])
        self.sliding = Sliding(self.windows, self.image[2 : 2 + count], self.result[2 : 2 + count])
        self.axes, self.last = self.sliding.axes, self.sliding.last
        self.dtype = definition.results[0].dtype
        self.itemsize = self.dtype.itemsize
        self.computed = computed_type(self.dtype)
        self.accumulator = REDUCTIONS["sum" if self.is_average else "max"].accumulator(self.computed)
        title = f"{self.node.operator}, {count} axes" + ("" if self.depth == 1 else ", vectors inside a place")
        self.write = Writer(definition, target, title)

    # ---- the kernel ----

    def write_all(self) -> None:
        write = self.write
        self._define_sizes()
        rows = Odometer(write, [("plane", "planes"), *((f"o{axis}", f"m{axis}") for axis in self.axes[:-1])])
        write(f"rows = {rows.count}")
        taps = " * ".join(f"k{axis}" for axis in self.axes)
        write.split("rows", f"rows * m{self.last} * depth * {taps} // 10")
        with write.block("if first < last"):
            write("row = first")
            rows.start("row")
        size = " * ".join(f"n{axis}" for axis in self.axes)
        with write.block("for r in range(first, last)"):
            write(f"a = source + {scaled(f'plane * {size} * depth', self.itemsize)}")
            write(f"b = target + {scaled(f'r * m{self.last} * depth', self.itemsize)}")
            for axis in self.axes[:-1]:
                self._write_range(axis)
            self._write_windows() if self.depth == 1 else self._write_places()
            rows.advance()

    def _define_sizes(self) -> None:
        write = self.write
        write.input("source", 0)
        write.output("target", 0)
        write.size("planes", dims.multiply(self.image[0], self.image[1]))
        write.size("depth", self.depth)
        self.sliding.write_sizes(write)

    def _write_range(self, axis: int) -> None:
        """Which taps of the window at o lie in the image, and for the average how many of them count."""
        write = self.write
        self.sliding.write_range(write, axis)
        if self.is_average:
            write(f"counted{axis} = max({self._counted(axis)}, 0)")

    def _counted(self, axis: int) -> str:
        if self.attributes["count_include_pad"]:
            return f"min(k{axis}, {self.sliding.taps_below(axis, f'n{axis} + end{axis} - y{axis}')})"
        return f"high{axis} - low{axis}"

    def _start(self) -> None:
        self.write(f"total = splat_{self.computed.name}({self.accumulator.identity})")

    def _take(self, value: str) -> None:
        self.write(f"total = {self.accumulator.merged('total', value)}")

    def _store(self, place: str, number: str, count: str) -> None:
        """Writes the total, of an average divided by the number of elements."""
        value = f"total / {number}" if self.is_average else "total"
        place = scaled(place, self.itemsize)
        self.write(f"vstore(b, {place}, {stored(value, self.dtype)}{count})")

    # ---- vectors inside a place ----

    def _write_places(self) -> None:
        write, lanes, axis = self.write, self.write.lanes, self.last
        with write.block(f"for o{axis} in range(m{axis})"):
            self._write_range(axis)
            if self.is_average:
                write("number = " + " * ".join(f"counted{axis}" for axis in self.axes))
            with write.block(f"for i in range(0, depth, {lanes})"):
                with write.block(f"if depth - i >= {lanes}"):
                    self._write_place("")
                with write.block("else"):
                    write("rest = depth - i")
                    self._write_place(", rest")

    def _write_place(self, count: str) -> None:
        self._start()
        with self.sliding.loops(self.write, self.axes):
            place = scaled(f"({self.sliding.place(self.axes)}) * depth + i", self.itemsize)
            self._take(widened(f"vload_{self.dtype.name}(a, {place}{count})", self.dtype))
        self._store(f"o{self.last} * depth + i", "number", count)

    # ---- vectors of windows ----

    def _write_windows(self) -> None:
        write, lanes, axis = self.write, self.write.lanes, self.last
        reach = self.sliding.dilated(axis, f"(k{axis} - 1)")
        with write.block(f"for o in range(0, m{axis}, {lanes})"):
            write(f"y = o * stride{axis} - begin{axis}", f"rest = min({lanes}, m{axis} - o)")
            self._start()
            with write.block(f"if y >= 0 and y + {lanes - 1} * stride{axis} + {reach} < n{axis} and rest == {lanes}"):
                self._write_inner_windows()
            with write.block("else"):
                self._write_edge_windows()

    def _write_inner_windows(self) -> None:
        """All windows of the vector lie in the image."""
        write, axis, name, lanes = self.write, self.last, self.dtype.name, self.write.lanes
        stride, itemsize = self.windows[axis].stride, self.itemsize
        if stride > 2:
            write(f"steps = iota_int64() * stride{axis}")
        with self.sliding.loops(write, self.axes[:-1]), write.block(f"for tap in range(k{axis})"):
            at = f"y + {self.sliding.dilated(axis, 'tap')}"
            outer = self.sliding.place(self.axes[:-1])
            write(f"p = a + {scaled(f'({outer}) * n{axis} + {at}' if outer else at, itemsize)}")
            if stride == 1:
                value = f"vload_{name}(p, 0)"
            elif stride == 2:  # the last window's element is the last that may be read
                value = f"even_lanes(vload_{name}(p, 0), vload_{name}(p, {lanes * itemsize}, {lanes - 1}))"
            else:
                value = f"vgather_{name}(p, steps)"
            self._take(widened(value, self.dtype))
        self._store("o", self._number(f"k{axis}"), "")

    def _write_edge_windows(self) -> None:
        """Some windows of the vector stick out, or there are fewer windows than lanes."""
        write, axis = self.write, self.last
        write(f"starts = iota_int64() * stride{axis} + y")
        identity = f"splat_{self.computed.name}({self.accumulator.identity})"
        if self.is_average:
            write(f"counted{axis} = splat_{self.computed.name}(0)")
        with write.block(f"for tap in range(k{axis})"):
            write(
                f"at = y + {self.sliding.dilated(axis, 'tap')}",
                f"places = starts + {self.sliding.dilated(axis, 'tap')}",
            )
            write(f"mask = (places >= 0) & (places < n{axis}) & inside(rest)")
            if self.is_average:
                bound = f"places < n{axis} + end{axis}" if self.attributes["count_include_pad"] else "mask"
                write(f"counted{axis} = counted{axis} + convert_{self.computed.name}({bound})")
            with self.sliding.loops(write, self.axes[:-1]):
                outer = self.sliding.place(self.axes[:-1])
                write(f"p = a + {scaled(f'({outer}) * n{axis}', self.itemsize)}" if outer else "p = a")
                self._take(f"select(mask, {widened(self._edge_elements(), self.dtype)}, {identity})")
        self._store("o", self._number(f"counted{axis}"), ", rest")

    def _edge_elements(self) -> str:
        """The elements of a tap, of those windows that have it in the image; p is the address of the image's row."""
        axis, name, lanes = self.last, self.dtype.name, self.write.lanes
        if self.windows[axis].stride > 2:
            return f"vgather_{name}(p, places, mask)"

        def load(at: str) -> str:
            return f"vload_between_{name}(p, {scaled(at, self.itemsize)}, -({at}), n{axis} - ({at}))"

        return load("at") if self.windows[axis].stride == 1 else f"even_lanes({load('at')}, {load(f'at + {lanes}')})"

    def _number(self, along: str) -> str:
        """How many elements the windows of a vector have."""
        factors = [*(f"counted{axis}" for axis in self.axes[:-1]), along]
        return factors[0] if len(factors) == 1 else f"({' * '.join(reversed(factors))})"


def _is_trivial(window: windows.Axis) -> bool:
    return window.size == 1 and window.stride == 1 and window.begin == 0 and window.end == 0
