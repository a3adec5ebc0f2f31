"""The template of resampling to the nearest elements along two neighbouring axes: x seen as [outer, height, width, inner], the
result as [outer, rows, columns, inner].

A vector of a source line becomes one of two result rows at once, if both are made of that line. The source offsets
are computed once for a piece of the rows of all images.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, is_streamed, scaled, shape_of, write_streaming
from ..target import Target
from .resize import Taps

_ROWS = 64  # rows of the result in a unit of work
_COLUMNS = 512  # likewise
_MOST_INNER_BYTES = 256  # of a pixel whose channels lie last


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of two nodes of resize to the nearest, along neighbouring axes, one after the other; else None."""
    chain = [(node.operator, node.inputs) for node in definition.nodes]
    if len(definition.params) != 1 or chain != [("resize", (0,)), ("resize", (1,))] or definition.outputs != (2,):
        return None
    first, second = (bound_attributes(node) for node in definition.nodes)
    rank = definition.params[0].rank
    axes = [axis_of(attributes["axis"], rank) for attributes in (first, second)]
    if first["mode"] != "nearest" or second["mode"] != "nearest" or abs(axes[0] - axes[1]) != 1:
        return None
    inner = dims.product(shape_of(definition.params[0])[max(axes) + 1 :])
    if not isinstance(inner, int) or not 0 < inner * definition.params[0].dtype.itemsize <= _MOST_INNER_BYTES:
        return None
    vertical, horizontal = (first, second) if axes[0] < axes[1] else (second, first)
    return _Images(definition, target, min(axes), vertical, horizontal).kernel()


class _Images:
    """`rows_at` and `places` are tables in scratch: the source line of each row, and its elements;
    for vectors of neighbouring elements, relative to the first one that they need, in the table `leasts`."""

    def __init__(
        self,
        definition: PrimitiveDefinition,
        target: Target,
        axis: int,
        vertical: dict[str, object],
        horizontal: dict[str, object],
    ) -> None:
        source, result = shape_of(definition.params[0]), shape_of(definition.results[0])
        self.outer, self.inner = dims.product(source[:axis]), int(dims.product(source[axis + 2 :]))  # type: ignore[arg-type]
        self.sizes = {
            "height": source[axis],
            "width": source[axis + 1],
            "rows": result[axis],
            "columns": result[axis + 1],
        }
        self.itemsize = definition.params[0].dtype.itemsize
        self.type = f"uint{8 * self.itemsize}"
        width = source[axis + 1]
        # of the source offsets, relative to the first one of a vector
        self.place = "int32" if isinstance(width, int) and width <= 1 << 31 else "int64"
        self.looks_up = target.looks_up and self.itemsize == 4
        self.streams = is_streamed(definition.results[0])
        self.write = Writer(definition, target, "resize, nearest, two axes")
        self.vertical, self.horizontal = Taps(self.write, vertical), Taps(self.write, horizontal)

    def kernel(self) -> Kernel:
        write, lanes = self.write, self.write.lanes
        write.input("source", 0)
        write.output("target", 0)
        write.size("outer", self.outer)
        write.sizes(**self.sizes)
        write.prepare("known")
        write(f"bands = (rows + {_ROWS - 1}) // {_ROWS}", f"pieces = (columns + {_COLUMNS - 1}) // {_COLUMNS}")
        work = f"outer * rows * columns * {costs.RESIZE_IMAGE_PS * self.inner} // 1000"
        write.split("bands * pieces * outer", work)
        write("rows_at = scratch", f"places = rows_at + {8 * _ROWS}", f"leasts = places + {8 * _COLUMNS}")
        with write.block("for unit in range(first, last)"):
            with write.block("if height < 1 or width < 1"):
                write("return 1")
            write("section = unit // outer", "image = unit - section * outer", "band = section // pieces")
            write(f"low = band * {_ROWS}", f"high = min(low + {_ROWS}, rows)")
            write(f"start = (section - band * pieces) * {_COLUMNS}", f"count = min({_COLUMNS}, columns - start)")
            with write.block("if section != known"):
                write("known = section")
                self._write_row_table()
                self._write_column_table()
            self._write_image()
        if self.streams:
            write("streamed()")
        scratch = 8 * (_ROWS + _COLUMNS + _COLUMNS // lanes + 1)
        elements = estimate(dims.product([self.outer, self.sizes["rows"], self.sizes["columns"], self.inner]))
        return write.kernel(elements * costs.RESIZE_IMAGE_PS / 1000, scratch)

    @property
    def _place_bytes(self) -> int:
        return DType[self.place].itemsize

    def _write_row_table(self) -> None:
        write = self.write
        write("length = height", "size = rows")
        self.vertical.write_scale()
        with write.block(f"for k in range(0, high - low, {write.lanes})"):
            self.vertical.write_places("iota_int64() + (low + k)")
            write("vstore(rows_at, k * 8, i_0)")

    def _write_column_table(self) -> None:
        write, lanes = self.write, self.write.lanes
        write("length = width", "size = columns", "widest = 0")
        self.horizontal.write_scale()
        with write.block(f"for k in range(0, count, {lanes})"):
            self.horizontal.write_places("iota_int64() + (start + k)")
            if self.inner > 1:
                write(f"vstore(places, k * 8, i_0 * {self.inner * self.itemsize})")
                return
            write("least = horizontal_minimum(i_0)", "widest = max(widest, horizontal_maximum(i_0) + 1 - least)")
            write(
                f"store_int64(leasts, (k // {lanes} + 1) * 8, least)",
                f"vstore(places, k * {self._place_bytes}, convert_{self.place}(i_0 - least))",
            )
        write("store_int64(leasts, 0, widest)")

    def _write_image(self) -> None:
        """The piece of the band's rows, of one image: two at a time that are made of the same line."""
        write, bytes_ = self.write, self.inner * self.itemsize
        write(f"image_at = source + {scaled('image * height * width', bytes_)}", "widest = load_int64(leasts, 0)")
        write(f"row_bytes = columns * {bytes_}", f"b_0 = target + ((image * rows + low) * columns + start) * {bytes_}")
        write("o = low")
        with write.block("while o < high"):
            write("line = load_int64(rows_at, (o - low) * 8)", f"a = image_at + {scaled('line * width', bytes_)}")
            write("both = 1 if o + 1 < high and load_int64(rows_at, (o + 1 - low) * 8) == line else 0")
            write("b_1 = b_0 + both * row_bytes")
            write_streaming(write, self.streams, f"b_0 | row_bytes | count * {bytes_}", self._write_rows)
            write("o += 1 + both", "b_0 = b_1 + row_bytes")

    def _write_rows(self, store: str) -> None:
        if self.inner > 1:
            self._write_runs(store)
            return
        lanes = self.write.lanes
        load = f"vload_{self.type}(a, least * {self.itemsize}"
        gathered = f"vgather_{self.type}(a + least * {self.itemsize}, chosen)"
        near = f"near = {load}, width - least)"
        far = f"far = {load} + {lanes * self.itemsize}, width - least - {lanes})"
        if not self.looks_up:
            self._write_vectors([], gathered, store)
            return
        with self.write.block(f"if widest <= {lanes}"):
            self._write_vectors([near], "looked_up(near, near, chosen)", store)
        with self.write.block(f"elif widest <= {2 * lanes}"):
            self._write_vectors([near, far], "looked_up(near, far, chosen)", store)
        with self.write.block("else"):
            self._write_vectors([], gathered, store)

    def _write_vectors(self, loads: list[str], elements: str, store: str) -> None:
        """Vectors of neighbouring elements."""
        write, lanes = self.write, self.write.lanes

        def write_vector(count: str) -> None:
            write(f"least = load_int64(leasts, (k // {lanes} + 1) * 8)", *loads)
            chosen = f"convert_int64(vload_{self.place}(places, k * {self._place_bytes}))"
            write(f"chosen = {chosen}", f"v = {elements}")
            write(*(f"{store}({b}, k * {self.itemsize}, v{count})" for b in ("b_0", "b_1")))

        write(f"whole = count - count % {lanes}")
        with write.block(f"for k in range(0, whole, {lanes})"):
            write_vector("")
        if store == "vstore":
            with write.block("if whole < count"):
                write("k = whole", "rest = count - whole")
                write_vector(", rest")

    def _write_runs(self, store: str) -> None:
        """Runs of elements after both axes."""
        write, lanes, size = self.write, self.write.lanes, self.inner * self.itemsize
        with write.block("for k in range(count)"):
            write("p = a + load_int64(places, k * 8)")
            for j in range(0, self.inner, lanes):
                rest = f", {self.inner - j}" if self.inner - j < lanes else ""
                write(f"v = vload_{self.type}(p, {j * self.itemsize}{rest})")
                write(*(f"{store}({b}, k * {size} + {j * self.itemsize}, v{rest})" for b in ("b_0", "b_1")))
