"""The template of roi_align: regions of images, divided into bins, each sampled at points between pixels.

A row of a region's bins is one unit of work. Vectors are neighbouring channels, several at a time: a sample's position and
its pixels' weights are the same for all.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.primitive import PrimitiveDefinition
from ....operators.detection import MOST_SAMPLES
from ....operators.table import bound_attributes
from .. import costs
from ..target import Target
from .expression import literal
from .kernel import Kernel
from .writer import Writer, estimate, scaled, shape_of

_VECTORS = 4  # of channels that are worked on side by side


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of roi_align, alone in its definition; else None."""
    if len(definition.nodes) != 1 or definition.outputs != (3,):
        return None
    it = _Regions(definition, target)
    it.write_all()
    return it.write.kernel(estimate(dims.element_count(shape_of(definition.results[0]))) * costs.REGION_PS / 1000)


class _Regions:
    """Variables of an axis, y or x: begin_ and each_ are the bins' start and length, places_ the number of samples;
    near_, far_ are the pixels around a sample, before_ and behind_ their weights."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        self.attributes, self.dtype = bound_attributes(definition.nodes[0]), definition.params[0].dtype
        self.is_mean = self.attributes["mode"] == "avg"
        self.images, height, width, self.channels = shape_of(definition.params[0])
        self.regions, down, across, _ = shape_of(definition.results[0])
        self.axes = {"y": (height, down), "x": (width, across)}
        kinds = [self.attributes["mode"], "half_pixel" * self.attributes["half_pixel"]]
        self.write = Writer(definition, target, ", ".join(filter(None, ["roi_align", *kinds])))
        self.columns = self.write.lanes * _VECTORS

    def write_all(self) -> None:
        write = self.write
        write.inputs(range(3), "source", "regions", "numbers")
        write.output("target", 0)
        write.sizes(images=self.images, channels=self.channels, count=self.regions, samples=self.attributes["samples"])
        for axis, (length, bins) in self.axes.items():
            write.sizes(**{f"length_{axis}": length, f"bins_{axis}": bins})
        write.split("count * bins_y", f"count * bins_y * bins_x * channels * {costs.REGION_PS} // 1000")
        scale, offset = self.attributes["scale"], 0.5 if self.attributes["half_pixel"] else 0
        write(f"scale = {self._number(scale)}", f"offset = {self._number(offset)}")
        with write.block("for unit in range(first, last)"):
            write(
                "region = unit // bins_y", "bin_y = unit - region * bins_y", "image = load_int64(numbers, region * 8)"
            )
            with write.block("if image < 0 or image >= images or length_y * length_x == 0"):
                write("return 1")
            for place, axis in enumerate("xy"):
                self._write_bins(axis, place)
            write("weight = " + self._converted("max(places_y * places_x, 1)"))
            with write.block(f"for c in range(0, channels, {self.columns})"), write.block("for bin_x in range(bins_x)"):
                self._write_bin()

    def _number(self, value: float) -> str:
        return self._converted(literal(value, self.dtype))

    def _converted(self, text: str) -> str:
        return f"convert_{self.dtype.name}({text})"

    def _write_bins(self, axis: str, place: int) -> None:
        """The bins of the region along an axis, from the region's numbers `place` and `place` + 2."""
        write, size = self.write, self.dtype.itemsize
        for name, number in (("begin", place), ("end", place + 2)):
            at = scaled(f"(region * 4 + {number})", size)
            write(f"{name}_{axis} = load_{self.dtype.name}(regions, {at}) * scale - offset")
        extent = f"end_{axis} - begin_{axis}"
        extent = extent if self.attributes["half_pixel"] else f"maximum({extent}, {self._number(1)})"
        write(f"each_{axis} = ({extent}) / {self._converted(f'bins_{axis}')}", f"places_{axis} = samples")
        with write.block("if samples == 0"):
            write(f"wanted = ceil(each_{axis})", f"places_{axis} = 0")
            with write.block(f"if wanted > {self._number(0)}"):
                write(f"places_{axis} = convert_int64(minimum(wanted, {self._number(MOST_SAMPLES)}))")

    def _write_bin(self) -> None:
        """A bin's channels from `c` on."""
        write, start = self.write, 0 if self.is_mean else "-math.inf"
        vectors = range(_VECTORS)
        write(*(f"total_{k} = splat_{self.dtype.name}({start})" for k in vectors))
        with write.block("for place_y in range(places_y)"):
            self._write_place("y")
            with write.block("for place_x in range(places_x)"):
                self._write_place("x")
                self._write_pixels()
                for k in vectors:
                    self._write_vector(k)
        if not self.is_mean:
            with write.block("if places_y * places_x == 0"):
                write(*(f"total_{k} = splat_{self.dtype.name}(0)" for k in vectors))
        write("row = target + " + scaled("((unit * bins_x + bin_x) * channels + c)", self.dtype.itemsize))
        for k in vectors:
            value = f"total_{k} / weight" if self.is_mean else f"total_{k}"
            write(f"vstore(row, {self._at(k)}, {value}, {self._rest(k)})")

    def _at(self, vector: int) -> int:
        return vector * self.write.lanes * self.dtype.itemsize

    def _rest(self, vector: int) -> str:
        return f"channels - c - {vector * self.write.lanes}"

    def _write_place(self, axis: str) -> None:
        """The pixels around the sample, and their weights; none if it lies far outside."""
        write, zero, one = self.write, self._number(0), self._number(1)
        inside = f"({self._converted(f'place_{axis}')} + {self._number(0.5)}) * each_{axis}"
        write(f"inside = {inside} / {self._converted(f'places_{axis}')}")
        write(f"place = begin_{axis} + {self._converted(f'bin_{axis}')} * each_{axis} + inside")
        length = self._converted(f"length_{axis}")
        write(f"near_{axis} = 0", f"far_{axis} = 0", f"before_{axis} = {zero}", f"behind_{axis} = {zero}")
        with write.block(f"if place >= -{one} and place <= {length}"):
            write(f"place = minimum(maximum(place, {zero}), {self._converted(f'length_{axis} - 1')})")
            write(f"near_{axis} = convert_int64(place)", f"far_{axis} = min(near_{axis} + 1, length_{axis} - 1)")
            write(
                f"behind_{axis} = place - {self._converted(f'near_{axis}')}", f"before_{axis} = {one} - behind_{axis}"
            )

    def _write_pixels(self) -> None:
        """The addresses of the four pixels, and their weights."""
        for y, down in (("near", "before"), ("far", "behind")):
            self.write(f"line = (image * length_y + {y}_y) * length_x")
            for x, across in (("near", "before"), ("far", "behind")):
                place = scaled(f"((line + {x}_x) * channels + c)", self.dtype.itemsize)
                self.write(f"at_{y}_{x} = source + {place}", f"w_{y}_{x} = {down}_y * {across}_x")

    def _write_vector(self, vector: int) -> None:
        total, combine = f"total_{vector}", "{} + {}" if self.is_mean else "maximum({}, {})"
        pixels = [
            f"vload_{self.dtype.name}(at_{y}_{x}, {self._at(vector)}, {self._rest(vector)}) * w_{y}_{x}"
            for y in ("near", "far")
            for x in ("near", "far")
        ]
        for found in [" + ".join(pixels)] if self.attributes["mode"] == "max_of_places" else pixels:
            self.write(f"{total} = {combine.format(total, found)}")
