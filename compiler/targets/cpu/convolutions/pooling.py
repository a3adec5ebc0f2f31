"""The template of pooling: separable windows over any number of spatial axes, one axis at a time.

A line of the result is made of the lines of the image that its windows reach: these are combined, element by element, to one
line in scratch, with margins for padding, so that the rest is windows along a single axis, all of
them inside. Long lines are processed in pieces.

Axes after the last one with a window larger than 1 lie within a position of the image: vectors run along them. That is
how a channel-blocked image [N, C/16, H, W, 16] is pooled, by a window of size 1 on its last axis. Without such axes, a
vector takes neighbouring windows, and gathers their elements if the stride is more than two. For NCHW lines
shorter than a vector, LANES planes are transposed to scratch, pooled with one plane in each lane,
and transposed back.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from ....operators import windows
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import computed_type
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of, stored, widened
from ..products.tile import BLOCK
from ..rows.reduce import REDUCTIONS
from ..target import Target
from .sliding import Sliding

_PLACES = 1024  # of the image, about, that a piece of a line covers
_VECTORS = 256  # likewise, where each is a vector


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of max_pool or average_pool, alone in its definition; else None, also for windows of unknown width."""
    if len(definition.nodes) != 1 or len(definition.outputs) != 1:
        return None
    pool = _Pool(definition, target)
    if not isinstance(pool.windows[-1].size, int):
        return None
    if pool.is_turnable:
        pool = _TurnedPool(definition, target)
    pool.write_all()
    taps = estimate(sum(axis.size for axis in pool.windows))  # type: ignore[misc]
    nanoseconds = costs.POOL_TAP_PS / 1000 * taps * estimate(dims.element_count(shape_of(definition.results[0])))
    return pool.write.kernel(nanoseconds, pool.scratch_bytes)


class _Pool:
    """Variables are those of `Sliding`; those of the last axis, whose windows lie in the staged line, have no number."""

    kind = ""

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
        self.is_planar = self.depth == 1
        self.planes = dims.multiply(self.image[0], self.image[1])
        self.sliding = Sliding(self.windows, self.image[2 : 2 + count], self.result[2 : 2 + count])
        self.axes, self.last = self.sliding.axes, self.sliding.last
        self.dtype = definition.results[0].dtype
        self.itemsize = self.dtype.itemsize
        self.computed = computed_type(self.dtype)
        self.accumulator = REDUCTIONS["sum" if self.is_average else "max"].accumulator(self.computed)
        kind = self.kind if self.is_planar else ", vectors inside a place"
        self.write = Writer(definition, target, f"{self.node.operator}, {count} axes{kind}")
        self.stride = self.windows[-1].stride
        self.rest = ", rest"  # how many elements of a place are loaded and stored, if not a vector
        if self.itemsize == 1 and isinstance(self.depth, int) and self.depth % BLOCK == 0:
            self.write.lanes, self.rest = BLOCK, ""  # without AVX-512, some bytes are loaded one by one: 20 times

    @property
    def is_turnable(self) -> bool:
        """Whether lines are short, and images many."""
        image, result = dims.product(self.sliding.image), dims.product(self.sliding.result)
        if (
            not self.is_planar
            or self.itemsize != 4
            or not all(isinstance(d, int) for d in (*self.sliding.image, *self.sliding.result, self.planes))
        ):
            return False
        shortest = min(costs.POOL_SHORT_LINE, _VECTORS // self.stride)
        is_short = int(self.sliding.result[-1]) <= shortest and image + result <= costs.POOL_TURNED_PLACES  # type: ignore
        return is_short and int(self.planes) >= self.write.lanes  # type: ignore[arg-type]

    @property
    def place_bytes(self) -> int:
        return self.computed.itemsize * (1 if self.is_planar else self.write.lanes)

    @property
    def piece(self) -> int:
        lanes = self.write.lanes
        return max(1, _PLACES // self.stride // lanes) * lanes if self.is_planar else max(1, _VECTORS // self.stride)

    @property
    def line_bytes(self) -> int:
        """Bytes of a piece of a line, with the overrun of whole vectors."""
        extent = int(self.windows[-1].extent)  # type: ignore[arg-type]
        return (self.piece * self.stride + extent + self.write.lanes * (self.stride + 1)) * self.place_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the line, and of the counts of valid elements of each window, for averages over several windows a vector."""
        counts = (self.piece + self.write.lanes) * self.place_bytes
        return self.line_bytes + (counts if self.is_planar and self.is_average else 0)

    # ---- the kernel ----

    def write_all(self) -> None:
        write, last = self.write, self.last
        self._define_sizes()
        rows = Odometer(write, [("plane", "planes"), *((f"o{axis}", f"m{axis}") for axis in self.axes[:-1])])
        write(f"rows = {rows.count}")
        write.split("rows", f"rows * m{last} * depth * ({self._taps_of_all}) * {costs.POOL_TAP_PS} // 1000")
        self._define_constants()
        with write.block(f"for o in range(0, m{last}, {self.piece})"):
            write(f"stop = min(o + {self.piece}, m{last})")
            self._define_piece()
            if self.is_planar:
                if self.is_average:
                    self._write_counts()
                self._write_rows(rows, "i")
            else:
                with write.block(f"for i in range(0, depth, {write.lanes})"):
                    write(f"rest = min({write.lanes}, depth - i)")
                    self._write_rows(rows, "place")

    @property
    def _taps_of_all(self) -> str:
        return " + ".join(f"k{axis}" for axis in self.axes)

    def _define_constants(self) -> None:
        self.write(f"identity = splat_{self.computed.name}({self.accumulator.identity})")
        self.write(f"reach = {self.sliding.dilated(self.last, f'(k{self.last} - 1)')} + 1")

    def _define_piece(self) -> None:
        """The pixels that windows o to `stop` of a line read: `places`; those from `left` to `right` lie in the image."""
        write, last = self.write, self.last
        write(f"y = o * stride{last} - begin{last}", f"places = (stop - o - 1) * stride{last} + reach")
        write("left = min(max(-y, 0), places)", f"right = max(left, min(places, n{last} - y))")

    def _write_rows(self, rows: Odometer, index: str) -> None:
        """A piece of each line, for all lines: invariants of the lines are computed once."""
        write, last = self.write, self.last
        self._write_margin(index, "0, left")
        with write.block("if first < last"):
            write("row = first")
            rows.start("row")
        size = " * ".join(f"n{axis}" for axis in self.axes)
        with write.block("for r in range(first, last)"):
            write(f"a = source + {scaled(f'plane * {size} * depth', self.itemsize)}")
            write(f"b = target + {scaled(f'r * m{last} * depth', self.itemsize)}")
            for axis in self.axes[:-1]:
                self._write_range(axis)
            self._write_line(index)
            self._write_windows() if self.is_planar else self._write_places()
            rows.advance()

    def _write_margin(self, index: str, places: str) -> None:
        write, step = self.write, self.write.lanes if self.is_planar else 1
        with write.block(f"for {index} in range({places}, {step})"):
            write(f"vstore(scratch, {index} * {self.place_bytes}, identity)")

    def _define_sizes(self) -> None:
        write = self.write
        write.inputs((0,), "source")
        write.output("target", 0)
        write.sizes(planes=self.planes, depth=self.depth)
        self.sliding.write_sizes(write)

    def _write_range(self, axis: int) -> None:
        """The taps of the window at o that lie in the image, and for averages their number."""
        write = self.write
        self.sliding.write_range(write, axis)
        if self.is_average:
            write(f"counted{axis} = max({self._counted(axis)}, 0)")

    def _counted(self, axis: int) -> str:
        if self.attributes["count_include_pad"]:
            return f"min(k{axis}, {self.sliding.taps_below(axis, f'n{axis} + end{axis} - y{axis}')})"
        return f"high{axis} - low{axis}"

    # ---- combining lines of the image ----

    def _write_line(self, index: str) -> None:
        """Positions `left` to `right` of the line lie in the image, the other `places` are margins. The one before is written
        already; the vectors of the positions inside may overrun into the one after."""
        write, outer = self.write, self.axes[:-1]
        if self.unrolled(outer) and outer:
            with write.block("if " + " and ".join(f"high{axis} - low{axis} == k{axis}" for axis in outer)):
                self._write_inside(index, self._write_all_taps)
            with write.block("else"):
                self._write_inside(index, self._write_taps)
        else:
            self._write_inside(index, self._write_taps)
        self._write_margin(index, "right, places")

    def _write_inside(self, index: str, write_total: Callable[[str, str], None]) -> None:
        write, here = self.write, f"{index} * {self.place_bytes}"
        if not self.is_planar:
            self._define_ahead()
            with write.block("for place in range(left, right)"):
                self._ask_ahead("place")
                write_total(index, self.rest)
                write(f"vstore(scratch, {here}, total)")
            return
        lanes = write.lanes
        write(f"whole = right - (right - left) % {lanes}")
        with write.block(f"for i in range(left, whole, {lanes})"):
            write_total(index, "")
            write(f"vstore(scratch, {here}, total)")
        with write.block("if whole < right"):
            write("i = whole", "rest = right - whole")
            write_total(index, ", rest")
            write(f"vstore(scratch, {here}, total)")

    def _define_ahead(self) -> None:
        """Defines `ahead`: the first line of the image after the current windows."""
        place = ""
        for axis in self.axes[:-1]:
            behind = f" + {self.sliding.dilated(axis, f'k{axis}')}" if axis == self.last - 1 else ""
            place = f"({place}) * n{axis} + y{axis}{behind}" if place else f"y{axis}{behind}"
        line = f"({place}) * n{self.last} + y" if place else "y"
        self.write(f"ahead = a + {scaled(f'({line}) * depth + i', self.itemsize)}")
        self.write(f"line_bytes = {scaled(f'n{self.last} * depth', self.itemsize)}")

    def _ask_ahead(self, index: str) -> None:
        """Brings nearer what the next line of the result needs of the image, and no line before has."""
        for line in range(min(self.windows[self.last - 1].stride, costs.POOL_FEW_TAPS) if self.last else 0):
            self.write(f"prefetch(ahead + {line} * line_bytes, {scaled(f'{index} * depth', self.itemsize)})")

    def unrolled(self, axes: Sequence[int]) -> bool:
        """Whether the taps on some axes are few, so that they stand in the text one by one."""
        return (
            all(isinstance(self.windows[axis].size, int) for axis in axes) and self._taps(axes) <= costs.POOL_FEW_TAPS
        )

    def _taps(self, axes: Sequence[int]) -> int:
        return math.prod(self.windows[axis].size for axis in axes)  # type: ignore[misc]

    def _line_elements(self, index: str, count: str) -> str:
        """Loads a vector of the line given by the variables tap0 …."""
        line = self.sliding.place(self.axes[:-1])
        place = f"({line}) * n{self.last} + y + {index}" if line else f"y + {index}"
        if not self.is_planar:
            place = f"({place}) * depth + i"
        return widened(f"vload_{self.dtype.name}(a, {scaled(place, self.itemsize)}{count})", self.dtype)

    def _write_all_taps(self, index: str, count: str) -> None:
        """Defines `total`: a vector of the lines of the image, combined, where all taps are inside."""
        outer = self.axes[:-1]
        counts = [self._taps((axis,)) for axis in outer]
        for number, taps in enumerate(itertools.product(*map(range, counts))):
            for axis, tap in zip(outer, taps, strict=True):
                self.write(f"tap{axis} = {tap}")
            elements = self._line_elements(index, count)
            self.write(f"total = {elements}") if number == 0 else self._take(elements)

    def _write_taps(self, index: str, count: str) -> None:
        """The same where some may be outside."""
        self.write("total = identity")
        with self.sliding.loops(self.write, self.axes[:-1]):
            self._take(self._line_elements(index, count))

    def _take(self, value: str) -> None:
        self.write(f"total = {self.accumulator.merged('total', value)}")

    def _store(self, place: str, number: str, count: str) -> None:
        """Stores the total, for averages divided by the number of elements."""
        value = f"total / {number}" if self.is_average else "total"
        self.write(f"vstore(b, {scaled(place, self.itemsize)}, {stored(value, self.dtype)}{count})")

    def _write_window(self, elements: Callable[[str], str]) -> None:
        """Defines `total` from the line: a vector of windows along the last axis."""
        if not self.unrolled((self.last,)):
            self.write("total = identity")
            with self.write.block(f"for tap in range(k{self.last})"):
                self._take(elements(f"({self.sliding.dilated(self.last, 'tap')}) * {self.place_bytes}"))
            return
        self.write(f"total = {elements('0')}")
        for tap in range(1, self._taps((self.last,))):
            self._take(elements(f"({self.sliding.dilated(self.last, str(tap))}) * {self.place_bytes}"))

    # ---- vectors within a position ----

    def _write_places(self) -> None:
        write, last = self.write, self.last
        with write.block(f"for o{last} in range(o, stop)"):
            write(f"p = scratch + (o{last} - o) * stride{last} * {self.place_bytes}")
            self._ask_for_result()
            self._write_window(lambda at: f"vload_{self.computed.name}(p, {at})")
            if self.is_average:
                self._write_range(last)
                write("number = " + " * ".join(f"counted{axis}" for axis in self.axes))
            self._store(f"o{last} * depth + i", "number", self.rest)

    def _ask_for_result(self) -> None:
        if self.last:  # the next line of the result follows soon
            self.write(f"prefetch(b, {scaled(f'(m{self.last} + o{self.last}) * depth + i', self.itemsize)})")

    # ---- vectors of windows ----

    def _write_windows(self) -> None:
        write, lanes, last = self.write, self.write.lanes, self.last
        if self.stride > 2:
            write(f"steps = iota_int64() * stride{last}")
        with write.block(f"for w in range(o, stop, {lanes})"):
            write(f"rest = min({lanes}, stop - w)", f"p = scratch + (w - o) * stride{last} * {self.place_bytes}")
            self._write_window(self._elements)
            if self.is_average:
                write(f"counted = vload_{self.computed.name}(counts, (w - o) * {self.place_bytes})")
            self._store("w", self._number("counted"), ", rest")

    def _elements(self, at: str) -> str:
        """Loads the elements of a tap."""
        name, lanes = self.computed.name, self.write.lanes
        if self.stride == 1:
            return f"vload_{name}(p, {at})"
        if self.stride == 2:
            return f"even_lanes(vload_{name}(p, {at}), vload_{name}(p, {at} + {lanes * self.place_bytes}))"
        return f"vgather_{name}(p + {at}, steps)"

    def _write_counts(self) -> None:
        """Writes to `counts` the number of valid taps of each window along the last axis."""
        write, last, name, lanes = self.write, self.last, self.computed.name, self.write.lanes
        write(f"counts = scratch + {self.line_bytes}")
        with write.block(f"for w in range(0, stop - o, {lanes})"):
            write(f"starts = (iota_int64() + w) * stride{last} + y", f"counted = splat_{name}(0)")
            with write.block(f"for tap in range(k{last})"):
                write(f"reached = starts + {self.sliding.dilated(last, 'tap')}")
                if self.attributes["count_include_pad"]:
                    inside = f"reached < n{last} + end{last}"
                else:
                    inside = f"(reached >= 0) & (reached < n{last})"
                write(f"counted = counted + convert_{name}({inside})")
            write(f"vstore(counts, w * {self.place_bytes}, counted)")

    def _number(self, along: str) -> str:
        """The number of elements of a vector's windows."""
        factors = [*(f"counted{axis}" for axis in self.axes[:-1]), along]
        return factors[0] if len(factors) == 1 else f"({' * '.join(reversed(factors))})"


class _TurnedPool(_Pool):
    """LANES images at a time, transposed: a position holds one element of each."""

    kind = ", turned"

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        super().__init__(definition, target)
        self.is_planar = False

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the line, the images, and their results."""
        return self.line_bytes + self._turned_bytes(self.sliding.image) + self._turned_bytes(self.sliding.result)

    def _turned_bytes(self, sizes: Sequence[Dim]) -> int:
        return int(dims.product(sizes)) * self.place_bytes  # type: ignore[arg-type]

    def write_all(self) -> None:
        write, lanes, last = self.write, self.write.lanes, self.last
        self._define_sizes()
        write(f"depth = {lanes}", f"groups = (planes + {lanes - 1}) // {lanes}")
        for name, letter in (("pixels", "n"), ("results", "m")):
            write(f"{name} = " + " * ".join(f"{letter}{axis}" for axis in self.axes))
        write.split("groups", f"planes * results * ({self._taps_of_all}) * {costs.POOL_TAP_PS} // 1000")
        write(f"a = scratch + {self.line_bytes}", f"made = a + pixels * {self.place_bytes}")
        write("i = 0", f"rest = {lanes}", "o = 0", f"stop = m{last}")
        self._define_constants()
        self._define_piece()
        self._write_margin("place", "0, left")
        with write.block("for group in range(first, last)"):
            write(f"plane = group * {lanes}", f"count = min({lanes}, planes - plane)")
            self._turn("source", "pixels", "a", is_back=False)
            self._write_images()
            self._turn("made", "results", "target", is_back=True)

    def _write_images(self) -> None:
        """The results at `made` of the images at `a`."""
        write, last = self.write, self.last
        with contextlib.ExitStack() as stack:
            write("b = made")
            for axis in self.axes[:-1]:
                stack.enter_context(write.block(f"for o{axis} in range(m{axis})"))
                self._write_range(axis)
            self._write_line("place")
            self._write_places()
            write(f"b += m{last} * {self.place_bytes}")

    def _turn(self, source: str, places: str, target: str, is_back: bool) -> None:
        write, lanes = self.write, self.write.lanes
        row, vector = f"{places} * {self.itemsize}", self.place_bytes
        with write.block(f"for pixel in range(0, {places}, {lanes})"):
            write(f"left_over = min({lanes}, {places} - pixel)")
            planar, turned = f"(plane * {places} + pixel) * {self.itemsize}", f"pixel * {vector}"
            if is_back:
                text = f"{source} + {turned}, {vector}, {target} + {planar}, {row}", ", left_over, count"
            else:
                text = f"{source} + {planar}, {row}, {target} + {turned}, {vector}", ", count, left_over"
            with write.block(f"if count == {lanes} and left_over == {lanes}"):
                write(f"transpose_uint{8 * self.itemsize}({text[0]})")
            with write.block("else"):
                write(f"transpose_uint{8 * self.itemsize}({text[0]}{text[1]})")

    def _define_ahead(self) -> None:
        """No prefetch: the image is in scratch."""

    def _ask_ahead(self, index: str) -> None: ...

    def _ask_for_result(self) -> None: ...


def _is_trivial(window: windows.Axis) -> bool:
    return window.size == 1 and window.stride == 1 and window.begin == 0 and window.end == 0
