"""The template of resampling along one axis: x seen as [outer, length, inner], the result as [outer, size, inner].

If the axis is the last, a vector takes neighbouring elements of the result, and gathers, or selects lanes of
two vectors, if these hold all; else it runs along the axes after it, which are resampled alike. Either way indices and
weights are computed once for several rows of `outer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.resize import TAPS
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of
from ..target import Target

_STRIP = 64  # elements of the result along the axis, in some rows, that are one unit of work
_SPAN = 16  # rows of a unit at most
_UNIT = 1 << 14  # elements of a unit, if it has more than one row

_ROUNDED = {
    "round_prefer_floor": "ceil(place - 0.5)",
    "round_prefer_ceil": "floor(place + 0.5)",
    "floor": "floor(place)",
    "ceil": "ceil(place)",
}


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of resize, alone in its definition: of any element type for nearest, else of float32 or float64."""
    (node,) = definition.nodes if len(definition.nodes) == 1 else (None,)
    if node is None or definition.outputs != (1,):
        return None
    is_nearest = bound_attributes(node)["mode"] == "nearest"
    if bound_attributes(node)["exclude_outside"] and not is_nearest:
        return None
    if not is_nearest and definition.params[0].dtype not in (DType.float32, DType.float64):
        return None
    return _Resize(definition, target).kernel()


class Taps:
    """The taps of each of the `size` results among the `length` elements of an axis: variables of the text."""

    def __init__(self, write: Writer, attributes: Mapping[str, Any], kind: str = "") -> None:
        self.write, self.attributes, self.type = write, attributes, kind  # of the weights
        self.count = TAPS[attributes["mode"]]

    def write_scale(self) -> None:
        """place = (o + lead) * numerator / denominator + shift"""
        write, mode, scale = self.write, self.attributes["coordinates"], self.attributes["scale"]
        exact = "" if scale is None else literal(float(scale), DType.float64)
        write(f"numerator = {'1.0' if exact else 'convert_float64(length)'}")
        write(f"denominator = {exact or 'convert_float64(size)'}")
        write("lead = 0.0", "shift = 0.0")
        if mode == "align_corners" and exact:
            write("numerator = convert_float64(length - 1)")
            write(f"denominator = convert_float64(length) * {exact} - 1.0 if size > 1 else 1.0")
        elif mode == "align_corners":
            write("numerator = convert_float64(length - 1)", "denominator = convert_float64(max(size - 1, 1))")
        elif mode != "asymmetric":
            write("lead = 0.5")
            if mode != "tf_half_pixel_for_nn":
                write("shift = -0.5")
        if mode == "half_pixel_symmetric" and exact:
            write(f"covered = convert_float64(size) / {exact}", "shift += (convert_float64(length) - covered) * 0.5")
        if mode == "pytorch_half_pixel":
            with write.block("if size == 1"):
                write("numerator = 0.0", "shift = 0.0")

    def write_places(self, number: str) -> None:
        """Indices i_0 … and weights w_0 … for element `number` of the result, a scalar or a vector, in double precision."""
        write = self.write
        write(f"place = (convert_float64({number}) + lead) * numerator / denominator + shift")
        write("place = maximum(minimum(place, convert_float64(length + 4)), -4.0)")  # fits into an integer
        if self.count == 1:
            write(f"at = {_ROUNDED[self.attributes['rounding']]}")
        else:
            write("at = floor(place)", "fraction = place - at")
            self._write_weights()
        for k in range(self.count):
            shift = k - (self.count // 2 - 1) if self.count > 1 else 0
            inside = f"maximum(minimum(at + {float(shift)}, convert_float64(length - 1)), 0.0)"
            write(f"i_{k} = convert_int64({inside})")

    def _write_weights(self) -> None:
        write = self.write
        if self.count == 2:
            write("f_0 = 1.0 - fraction", "f_1 = fraction")
        else:
            a = literal(float(self.attributes["cubic"]), DType.float64)
            write("behind = 1.0 - fraction")
            for k, distance in ((1, "fraction"), (2, "behind")):
                write(f"f_{k} = (({a} + 2.0) * {distance} - ({a} + 3.0)) * {distance} * {distance} + 1.0")
            for k, distance in ((0, "(fraction + 1.0)"), (3, "(behind + 1.0)")):
                write(f"f_{k} = ((({distance} - 5.0) * {distance} + 8.0) * {distance} - 4.0) * {a}")
        write(*(f"w_{k} = convert_{self.type}(f_{k})" for k in range(self.count)))


class _Resize:
    """`place` is a coordinate in x; `i_k` and `w_k` are the index and the weight of tap k."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        (node,) = definition.nodes
        self.attributes = bound_attributes(node)
        shape, result = shape_of(definition.params[0]), shape_of(definition.results[0])
        axis = axis_of(self.attributes["axis"], len(shape))
        self.outer, self.length, self.size = dims.product(shape[:axis]), shape[axis], result[axis]
        self.inner = dims.product(shape[axis + 1 :])
        self.is_last = self.inner == 1
        dtype = definition.params[0].dtype
        self.itemsize = dtype.itemsize
        self.looks_up = target.looks_up and self.itemsize == 4
        self.type = f"uint{8 * self.itemsize}" if self.attributes["mode"] == "nearest" else dtype.name
        title = f"resize, {self.attributes['mode']}" + (", gathered" if self.is_last else "")
        self.write = Writer(definition, target, title)
        self.taps = Taps(self.write, self.attributes, self.type)

    def kernel(self) -> Kernel:
        write = self.write
        write.input("source", 0)
        write.output("target", 0)
        for name in ("outer", "length", "size", "inner"):
            write.size(name, getattr(self, name))
        write.size("span", max(1, min(_SPAN, _UNIT // max(1, estimate(self.inner) * _STRIP))))
        write("bands = (outer + span - 1) // span", f"strips = (size + {_STRIP - 1}) // {_STRIP}")
        write.split("bands * strips", f"outer * size * inner * {costs.RESIZE_PS} // 1000")
        self.taps.write_scale()
        with write.block("for unit in range(first, last)"):
            with write.block("if length < 1"):
                write("return 1")
            write("band = unit // strips", f"start = (unit - band * strips) * {_STRIP}")
            write("low = band * span", "high = min(low + span, outer)", f"end = min(start + {_STRIP}, size)")
            self._write_vectors() if self.is_last else self._write_runs()
        elements = estimate(dims.product([self.outer, self.size, self.inner]))
        return write.kernel(elements * costs.RESIZE_PS / 1000)

    def _blend(self, loads: list[str]) -> str:
        if self.taps.count == 1:
            return loads[0]
        return " + ".join(f"{load} * w_{k}" for k, load in enumerate(loads))

    def _write_vectors(self) -> None:
        write, lanes = self.write, self.write.lanes
        with write.block(f"for o in range(start, end, {lanes})"):
            write(f"rest = min({lanes}, end - o)")
            self.taps.write_places("iota_int64() + o")
            gathered = [f"vgather_{self.type}(a, i_{k})" for k in range(self.taps.count)]
            if not self.looks_up:
                self._write_rows([], gathered)
                return
            write("least = horizontal_minimum(i_0)", f"reach = horizontal_maximum(i_{self.taps.count - 1}) + 1 - least")
            with write.block(f"if reach <= {2 * lanes}"):
                write(*(f"at_{k} = i_{k} - least" for k in range(self.taps.count)))
                loads = [
                    f"near = vload_{self.type}(a, {scaled('least', self.itemsize)}, reach)",
                    f"far = vload_{self.type}(a, {scaled(f'(least + {lanes})', self.itemsize)}, reach - {lanes})",
                ]
                self._write_rows(loads, [f"looked_up(near, far, at_{k})" for k in range(self.taps.count)])
            with write.block("else"):
                self._write_rows([], gathered)

    def _write_rows(self, loads: list[str], elements: list[str]) -> None:
        """A vector of each row, from the elements of the taps."""
        write = self.write
        with write.block("for row in range(low, high)"):
            write(f"a = source + {scaled('row * length', self.itemsize)}", *loads)
            write(f"vstore(target, {scaled('row * size + o', self.itemsize)}, {self._blend(elements)}, rest)")

    def _write_runs(self) -> None:
        write, lanes = self.write, self.write.lanes
        place = scaled("j", self.itemsize)
        with write.block("for o in range(start, end)"):
            self.taps.write_places("o")
            with write.block("for row in range(low, high)"):
                for k in range(self.taps.count):
                    write(f"a_{k} = source + {scaled(f'(row * length + i_{k}) * inner', self.itemsize)}")
                write(f"b = target + {scaled('(row * size + o) * inner', self.itemsize)}")
                write(f"whole = inner - inner % {lanes}")
                with write.block(f"for j in range(0, whole, {lanes})"):
                    value = self._blend([f"vload_{self.type}(a_{k}, {place})" for k in range(self.taps.count)])
                    write(f"vstore(b, {place}, {value})")
                with write.block("if whole < inner"):
                    write("j = whole", "rest = inner - whole")
                    value = self._blend([f"vload_{self.type}(a_{k}, {place}, rest)" for k in range(self.taps.count)])
                    write(f"vstore(b, {place}, {value}, rest)")
