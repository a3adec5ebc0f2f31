"""col2im: images accumulated from windows that may overlap, with an elementwise epilogue.

Result elements whose positions are equal modulo the stride, a *phase*, are sums of shifted rows of x: a vector of
each phase is summed over the windows that reach it, and the vectors of all phases are interleaved.
"""

from __future__ import annotations

import math

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .....native.convention import FEW
from ....operators.windows import axes
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel, require_few
from ..kernels.writer import Odometer, Writer, estimate, shape_of
from ..products.epilogue import Epilogue, Grid
from ..products.tile import BLOCK, VECTOR_BYTES, Tile
from ..target import Target

_TILE = Tile(1, 1)
_PHASES, _TAPS = 1024, 4096  # most unrolled phases and taps: one or two lines for each pair


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The template of col2im of float32, with an elementwise epilogue."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found) or not found.takes_parameters:
        return None
    if found.node.results[0].dtype is not DType.float32:
        return None
    return _Col2im(found, target).kernel()


class _Col2im:
    """Variables of axis k: n windows, m elements of the result, o the position in it; y that among all that windows reach,
    tap the position in a window, i the window."""

    def __init__(self, found: Anchored, target: Target) -> None:
        attributes = found.attributes
        self.found, self.write = found, Writer(found.definition, target, found.title)
        self.write.lanes = BLOCK
        self.kernel_sizes: tuple[int, ...] = attributes["kernel"]
        self.windows = axes(self.kernel_sizes, attributes["strides"], None, attributes["dilations"])
        self.starts = attributes["starts"] or (0,) * len(self.windows)
        self.x, self.result = (
            shape_of(found.definition.values[number]) for number in (found.node.inputs[0], found.number)
        )
        self.last = len(self.windows) - 1
        self.stride = self.windows[-1].stride

    def kernel(self) -> Kernel:
        require_few(self.stride, _PHASES, "phases of a stride")
        require_few(self.kernel_sizes[-1], _TAPS, "places of a window")
        write, outer, last = self.write, range(self.last), self.last
        self._write_sizes()
        rows = Odometer(write, [("image", "images"), ("channel", "channels"), *((f"o{k}", f"m{k}") for k in outer)])
        coordinates = ("image", "channel", *(f"o{k}" for k in outer), "column")
        epilogue = Epilogue(write, self.found, Grid(coordinates, 1, last + 2, BLOCK))
        write(f"rows = {rows.count}", f"plane = {' * '.join(f'n{k}' for k in range(last + 1))}")
        write.split("rows", f"images * channels * plane * taps * {costs.COL2IM_PS} // 1000")
        buffered = self.stride * VECTOR_BYTES
        write(f"joined = scratch + {buffered}", f"buffer = joined + {buffered}")
        with write.block("if first < last"):
            write("row = first")
            rows.start("row")
        with write.block("for r in range(first, last)"):
            for k in outer:
                self._write_taps(k)
            write("source = x + (image * channels + channel) * taps * plane * 4")
            with write.block(f"for base in range(0, m{last}, {self.stride * BLOCK})"):
                self._write_sums()
                with write.block(f"for phase in range(min({self.stride}, (m{last} - base + {BLOCK - 1}) // {BLOCK}))"):
                    write(f"column = base + phase * {BLOCK}", f"count = m{last} - column")
                    epilogue.begin()
                    write(f"{_TILE.accumulator(0, 0)} = vload_float32(joined, phase * {VECTOR_BYTES})")
                    with write.block(f"if count >= {BLOCK}"):
                        epilogue.tile(_TILE)
                    with write.block("else"):
                        epilogue.tile(_TILE, columns="count")
            rows.advance()
        work = estimate(dims.element_count(self.x)) * costs.COL2IM_PS / 1000
        return write.kernel(work, 2 * buffered + epilogue.buffer_bytes)

    def _write_sizes(self) -> None:
        write = self.write
        write.input("x", self.found.node.inputs[0])
        write.sizes(images=self.result[0], channels=self.result[1])
        for k in range(self.last + 1):
            write.sizes(**{f"n{k}": self.x[2 + k], f"m{k}": self.result[2 + k]})
            if k < self.last:
                write.sizes(**{f"start{k}": self.starts[k], f"k{k}": self.kernel_sizes[k]})
        write.size("taps", math.prod(self.kernel_sizes))

    def _write_taps(self, k: int) -> None:
        """The window positions that reach this output: from `low` to `high` by the stride."""
        write, axis = self.write, self.windows[k]
        stride, dilation = axis.stride, axis.dilation
        write(f"y{k} = o{k} + start{k}", f"low{k} = 0", f"high{k} = min(k{k}, y{k} // {dilation} + 1)")
        if stride > 1:
            with write.block(f"while low{k} < {self._step(k)} and (y{k} - low{k} * {dilation}) % {stride} != 0"):
                write(f"low{k} += 1")
            with write.block(f"if low{k} == {self._step(k)}"):
                write(f"low{k} = high{k}")
        write(f"beyond = y{k} - low{k} * {dilation} - n{k} * {stride}")  # the last window
        with write.block("if beyond >= 0"):
            write(f"low{k} += (beyond // {self._step(k) * dilation} + 1) * {self._step(k)}")

    def _step(self, k: int) -> int:
        """The distance between window positions that reach an element."""
        return self.windows[k].stride // math.gcd(self.windows[k].stride, self.windows[k].dilation)

    def _write_sums(self) -> None:
        write, stride = self.write, self.stride
        write(*(f"sum_{phase} = splat_float32(0.0)" for phase in range(stride)))
        write(f"start = base // {stride}")
        self._write_outer(0, "0", "0")
        write(*(f"vstore(scratch, {phase * VECTOR_BYTES}, sum_{phase})" for phase in range(stride)))
        if stride in FEW:
            write(f"join_uint32_{stride}(scratch, {VECTOR_BYTES}, joined)")
            return
        with write.block(f"for place in range({stride * BLOCK})"):
            write(f"from_phase = place % {stride} * {BLOCK} + place // {stride}")
            write("store_float32(joined, place * 4, load_float32(scratch, from_phase * 4))")

    def _write_outer(self, k: int, tap: str, line: str) -> None:
        """The taps of the axes from k on; `tap` and `line` are those before them, counted through."""
        write = self.write
        if k == self.last:
            write(f"a = source + (({tap}) * {self.kernel_sizes[-1]} * plane + ({line}) * n{k}) * 4")
            self._write_row()
            return
        axis = self.windows[k]
        with write.block(f"for tap{k} in range(low{k}, high{k}, {self._step(k)})"):
            write(f"i{k} = (y{k} - tap{k} * {axis.dilation}) // {axis.stride}")
            self._write_outer(k + 1, _nested(tap, f"k{k}", f"tap{k}"), _nested(line, f"n{k}", f"i{k}"))

    def _write_row(self) -> None:
        write, axis, n = self.write, self.windows[-1], f"n{self.last}"
        for tap in range(self.kernel_sizes[-1]):
            for phase in range(axis.stride):
                shift, rest = divmod(phase + self.starts[-1] - tap * axis.dilation, axis.stride)
                if rest == 0:
                    write(f"i = start + {shift}")
                    row = f"vload_between_float32(a, ({tap} * plane + i) * 4, -i, {n} - i)"
                    write(f"sum_{phase} = sum_{phase} + {row}")


def _nested(outer: str, size: str, inner: str) -> str:
    return inner if outer == "0" else f"({outer}) * {size} + {inner}"
