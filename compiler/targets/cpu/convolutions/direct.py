"""Direct convolution of images, signals and volumes [N, C, *spatial], with any groups and sizes known only at run time.

Not the fastest (see `blocked.py`), but the one without preconditions: vectors of neighbouring windows, and a few output
channels at a time, so that each element read serves all of them.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators import windows
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, scaled, shape_of
from ..products.tile import CHUNK, multiply_add
from ..target import Target
from .sliding import Sliding

_CHANNELS = 4  # output channels at a time


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of conv, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.results[0].dtype not in (DType.float32, DType.float64):
        return None
    return _Direct(definition, target).kernel()


class _Direct:
    """Writes one convolution. Variables are those of `Sliding`, and: planes and channels count those of a group."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (self.node,) = definition.nodes
        attributes = bound_attributes(self.node)
        self.image, self.weight = shape_of(definition.params[0]), shape_of(definition.params[1])
        self.result, self.groups = shape_of(definition.results[0]), attributes["groups"]
        found = windows.axes(self.weight[2:], attributes["strides"], attributes["pads"], attributes["dilations"])
        self.sliding = Sliding(found, self.image[2:], self.result[2:])
        self.dtype = definition.results[0].dtype
        self.write = Writer(definition, target, f"conv, direct, {len(found)} axes")

    def kernel(self) -> Kernel:
        write, sliding = self.write, self.sliding
        outer = sliding.axes[:-1]
        self._write_sizes()
        rows = Odometer(
            write,
            [
                ("image", "images"),
                ("group", "groups"),
                ("channel", "spans"),
                *((f"o{axis}", f"m{axis}") for axis in outer),
            ],
        )
        write(f"rows = {rows.count}")
        write.split("rows", f"rows * m{sliding.last} * planes * taps * {_CHANNELS} // {costs.RECURRENT_MACS}")
        with write.block("if first < last"):
            write("row = first")
            rows.start("row")
        with write.block("for r in range(first, last)"):
            for axis in outer:
                sliding.write_range(write, axis)
            write(f"a = source + {self._bytes('(image * groups + group) * planes * image_size')}")
            self._write_row()
            rows.advance()
        work = estimate(dims.multiply(dims.element_count(self.result), dims.element_count(self.weight[1:])))
        return write.kernel(work / costs.RECURRENT_MACS)

    def _bytes(self, elements: str) -> str:
        return scaled(elements, self.dtype.itemsize)

    def _write_sizes(self) -> None:
        write, axes = self.write, self.sliding.axes
        for name, number in zip(("source", "weight", "bias"), self.node.inputs, strict=False):
            write.input(name, number)
        write.output("target", 0)
        write.size("images", self.image[0])
        write.size("groups", self.groups)
        write.size("planes", self.weight[1])
        write.size("channels", dims.floordiv(self.weight[0], self.groups))
        self.sliding.write_sizes(write)
        for name, size in (("image_size", "n"), ("result_size", "m"), ("taps", "k")):
            write(f"{name} = " + " * ".join(f"{size}{axis}" for axis in axes))
        write(f"spans = (channels + {_CHANNELS - 1}) // {_CHANNELS}", f"chunk = max(1, {CHUNK} // max(1, taps))")

    def _write_row(self) -> None:
        """One row of the result, in a few channels."""
        write, name, last = self.write, self.dtype.name, self.sliding.last
        at_row = ""
        for axis in self.sliding.axes[:-1]:
            at_row = f"({at_row}) * m{axis} + o{axis}" if at_row else f"o{axis}"
        write(f"place = ({at_row or '0'}) * m{last}", f"left = channels - channel * {_CHANNELS}")
        for i in range(_CHANNELS):  # channels beyond the last one repeat it, and are not stored
            write(f"c_{i} = group * channels + min(channel * {_CHANNELS} + {i}, channels - 1)")
            write(f"w_{i} = weight + {self._bytes(f'c_{i} * planes * taps')}")
            start = f"load_{name}(bias, {self._bytes(f'c_{i}')})" if len(self.node.inputs) > 2 else "0.0"
            write(f"start_{i} = splat_{name}({start})")
        with write.block(f"for o{last} in range(0, m{last}, {write.lanes})"):
            write(f"rest = min({write.lanes}, m{last} - o{last})", f"y = o{last} * stride{last} - begin{last}")
            write(*(f"total_{i} = start_{i}" for i in range(_CHANNELS)))
            with write.block("for begin in range(0, planes, chunk)"):
                write(*(f"sum_{i} = splat_{name}(0.0)" for i in range(_CHANNELS)))
                planes = "for plane in range(begin, min(begin + chunk, planes))"
                with write.block(planes), self.sliding.loops(write, self.sliding.axes[:-1]):
                    self._write_taps()
                write(*(f"total_{i} = total_{i} + sum_{i}" for i in range(_CHANNELS)))
            for i in range(_CHANNELS):
                with write.block(f"if left > {i}"):
                    at = self._bytes(f"(image * groups * channels + c_{i}) * result_size + place + o{last}")
                    write(f"vstore(target, {at}, total_{i}, rest)")

    def _write_taps(self) -> None:
        """The part of the sums over one row of the image."""
        write, sliding, name, last = self.write, self.sliding, self.dtype.name, self.sliding.last
        outer = sliding.axes[:-1]
        image_row, window_row = sliding.place(outer), "0"
        for axis in outer:
            window_row = f"({window_row}) * k{axis} + tap{axis}" if axis else f"tap{axis}"
        row = f"plane * image_size + ({image_row}) * n{last}" if outer else "plane * image_size"
        write(f"p = a + {self._bytes(row)}", f"w = plane * taps + ({window_row}) * k{last}")
        with write.block(f"for tap in range(k{last})"):
            write(f"at = y + {sliding.dilated(last, 'tap')}")
            if sliding.windows[last].stride == 1:
                write(f"x = vload_between_{name}(p, {self._bytes('at')}, -at, n{last} - at)")
            else:
                write(f"places = iota_int64() * stride{last} + at")
                write(f"mask = (places >= 0) & (places < n{last})", f"x = vgather_{name}(p, places, mask)")
            for i in range(_CHANNELS):
                write(f"f_{i} = splat_{name}(load_{name}(w_{i}, {self._bytes('w + tap')}))")
                write(multiply_add(f"sum_{i}", "x", f"f_{i}", write.target))
