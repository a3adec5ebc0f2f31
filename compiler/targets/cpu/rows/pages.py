"""Attention over pages: of new tokens of many texts, in place, for one new token of a text and for hundreds alike.

A unit of the work is a text, a head of keys, and a band of its new tokens; heads of queries that share these keys are rows of one
tile, as tokens are. Keys are taken in spans of SPAN tokens, counted from the text's first one. A span has its own greatest score
and its own sums, which then join those of the spans before (Milakov and Gimelshein, 2018). So a row's bits depend on its text
alone: not on the rows beside it, nor on the number of new tokens that a call brings.

Keys lie in pages as panels, [page / 16, depth, 16]: a tile's products with them read each once, and need no sum across lanes.
Of a span's pages those with new tokens are put together in scratch; others are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.attention import permuted
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.values import OUT_OF_RANGE
from ..kernels.writer import Writer, estimate, shape_of, stored, widened
from ..products.tile import BLOCK, VECTOR_BYTES, multiply_add
from ..target import Target
from .attention_operands import LEAST

SPAN = 256  # keys whose scores are computed before their values are read: these and a tile's scores stay in L1 and L2
_BAND = 256  # rows of a unit, about: those of a prompt put a span's new keys together once for all of them
_MANY_REGISTERS = 32


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of paged_attention, alone in its definition, of heads whose sizes are known multiples of a vector."""
    if len(definition.nodes) != 1:
        return None
    it = _Pages(definition, target)
    return it.kernel if it.is_possible else None


class _Pages:
    """Writes the kernel."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        self.definition, self.target = definition, target
        (node,) = definition.nodes
        self.attributes = bound_attributes(node)
        names = ("q", "k", "v", "keys", "values", "texts", "tables", "sink")
        self.numbers = dict(zip(names, node.inputs, strict=False))
        types = {name: definition.values[number] for name, number in self.numbers.items()}
        self.shapes = {name: shape_of(type_) for name, type_ in types.items()}
        self.stored = {**{name: self.shapes[name] for name in "qkv"}, "out": shape_of(definition.results[0])}
        orders = {name: tuple(axis % 4 for axis in self.attributes[f"{name}_axes"] or range(4)) for name in "qkv"}
        turned = [axis % 4 for axis in self.attributes["result_axes"] or range(4)]
        self.orders = {**orders, "out": tuple(turned.index(axis) for axis in range(4))}
        _, self.heads, new, self.depth = permuted(self.stored["k"], orders["k"])
        self.tokens = permuted(self.stored["q"], orders["q"])[2]
        self.is_causal = new != 0  # else all keys lie in pages, and each query sees all
        self.width = permuted(self.stored["v"], orders["v"])[3]
        self.page = self.shapes["values"][2]
        self.dtype = types["values"].dtype
        self.repeat: int = self.attributes["repeat"]
        self.window: int = self.attributes["window"]
        self.softcap: float = self.attributes["softcap"]

    @property
    def is_possible(self) -> bool:
        sizes = (self.depth, self.width, self.page)
        return (
            all(isinstance(size, int) and size > 0 and size % BLOCK == 0 for size in sizes)
            and max(self.depth, self.width) <= costs.ATTENTION_ROW
            and SPAN % self.page == 0
            and all(order[-1] == 3 for order in self.orders.values())
            and 0 < self.repeat <= _BAND
        )

    # ---- sizes ----

    @property
    def blocks(self) -> int:
        """Blocks of keys whose scores are computed at once."""
        return 2 if self.target.block_registers >= _MANY_REGISTERS and self.page % (2 * BLOCK) == 0 else 1

    @property
    def tall(self) -> int:
        """Rows of a tile of many."""
        return 8 if self.target.block_registers >= _MANY_REGISTERS else 4

    def heights(self) -> list[int]:
        """Rows of tiles: of one token, if its heads are few, and of many."""
        return sorted({self.repeat if self.repeat <= self.tall else self.tall, self.tall})

    @property
    def band(self) -> int:
        """New tokens of a unit."""
        return max(1, _BAND // self.repeat)

    @property
    def parts(self) -> dict[str, int]:
        """The bytes of each part of scratch, in their order."""
        rows = -(-self.band * self.repeat // self.tall) * self.tall
        pages = SPAN // self.page
        return {
            "queries": 4 * rows * self.depth,  # scaled
            "sums": 4 * rows * self.width,  # of values, weighted
            "peaks": rows * VECTOR_BYTES,  # the greatest score of each row so far
            "totals": rows * VECTOR_BYTES,  # of weights
            "scores": self.tall * 4 * SPAN,  # of a tile
            "olds": self.tall * VECTOR_BYTES,  # factors of a tile's sums
            "news": self.tall * VECTOR_BYTES,
            "key_pages": -(-8 * pages // VECTOR_BYTES) * VECTOR_BYTES,  # addresses of the span's pages
            "value_pages": -(-8 * pages // VECTOR_BYTES) * VECTOR_BYTES,
            "square": BLOCK * VECTOR_BYTES,
            "own_keys": self.dtype.itemsize * SPAN * self.depth,  # of pages with new tokens
            "own_values": self.dtype.itemsize * SPAN * self.width,
        }

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.definition, self.target, "attention over pages")
        write.lanes = BLOCK
        for name, number in self.numbers.items():
            write.input(f"{name}_at", number)
        write.output("out_at", 0)
        write.sizes(heads=self.heads, tokens=self.tokens, pages=self.shapes["keys"][0])
        write.sizes(text_count=self.shapes["texts"][0], entries=self.shapes["tables"][0])
        for name, shape in self.stored.items():
            for axis, what in ((1, "head"), (2, "row")):
                inner = dims.product(shape[self.orders[name][axis] + 1 :])
                write.size(f"{name}_{what}", dims.multiply(4, inner))
        start = 0
        for name, size in self.parts.items():
            write(f"{name} = scratch + {start}")
            start += size
        self._write_counts()
        write.split(
            "units", f"work * heads * {self.repeat * (self.depth + self.width)} // {costs.ATTENTION_MACS}", True
        )
        write("base = 0")
        with write.block("for text in range(text_count)"):
            write(*self._entry(), f"bands = (count + {self.band - 1}) // {self.band}", "mine = bands * heads")
            with write.block("for unit in range(max(first - base, 0), min(last - base, mine))"):
                write("head = unit // bands", "band = unit - head * bands")
                self._write_unit()
            write("base += mine")
        scores = dims.multiply(dims.multiply(self.heads, self.repeat), self.tokens)
        return write.kernel(estimate(scores) * SPAN * (self.depth + self.width) / costs.ATTENTION_MACS, start)

    @staticmethod
    def _entry() -> tuple[str, ...]:
        names = ("begin", "count", "past", "table")
        return tuple(f"{name} = load_int64(texts_at, text * 32 + {8 * at})" for at, name in enumerate(names))

    def _write_counts(self) -> None:
        """Counts units and work; fails for a text that is not where it must be."""
        write = self.write
        write("units = 0", "work = 0", "row = 0")
        with write.block("for text in range(text_count)"):
            write(*self._entry())
            wrong = (
                "begin != row",
                "count < 0",
                "count > tokens - row",
                "past < 0",
                f"past > entries * {self.page}",
                "table < 0",
                f"table > entries - (past + {self.page - 1}) // {self.page}",
            )
            with write.block(f"if {' or '.join(wrong)}"):
                write(f"return {OUT_OF_RANGE}")  # one part too, where this asks for their number
            write("row += count", f"units += (count + {self.band - 1}) // {self.band} * heads")
            write("work += count * (past + count)")
        with write.block("if row != tokens"):
            write(f"return {OUT_OF_RANGE}")

    def _write_unit(self) -> None:
        write, repeat = self.write, self.repeat
        write(f"top = band * {self.band}", f"rows = min({self.band}, count - top)", f"lines = rows * {repeat}")
        write(f"padded = (lines + {self.tall - 1}) // {self.tall} * {self.tall}")
        if self.repeat in self.heights():
            write(f"padded = {repeat} if rows == 1 else padded")
        write("place = past + top")  # of the first row
        scale = literal(self.attributes["scale"] / (self.softcap or 1.0), DType.float32)
        with write.block("for line in range(padded)"):
            write("each = min(line, lines - 1)", f"row = each // {repeat}")
            write(f"source = q_at + (begin + top + row) * q_row + (head * {repeat} + each - row * {repeat}) * q_head")
            for at in range(0, 4 * self.depth, VECTOR_BYTES):
                write(f"vstore(queries, line * {4 * self.depth} + {at}, vload_float32(source, {at}) * {scale})")
            for at in range(0, 4 * self.width, VECTOR_BYTES):
                write(f"vstore(sums, line * {4 * self.width} + {at}, splat_float32(0.0))")
            peak, total = f"splat_float32({LEAST})", 0.0
            if "sink" in self.numbers:  # a score before all others, which adds to the total alone
                write(f"sink = load_float32(sink_at, (head * {repeat} + each - row * {repeat}) * 4)")
                peak, total = "splat_float32(sink)", 1.0
            write(f"vstore(peaks, line * {VECTOR_BYTES}, {peak})")
            write(f"vstore(totals, line * {VECTOR_BYTES}, splat_float32({total}))")
        write(f"end = {'place + rows' if self.is_causal else 'past'}", "key = 0")
        if self.window:
            write(f"key = max(0, place - {self.window - 1}) // {SPAN} * {SPAN}")
        with write.block("while key < end"):
            write(f"length = min({SPAN}, end - key)")
            self._write_pages()
            for height in self.heights():
                is_only = len(self.heights()) == 1
                condition = f"padded % {self.tall} == 0" if height == self.tall else f"padded == {height}"
                if is_only:
                    self._write_tiles(height)
                else:
                    with write.block(f"if {condition}"):
                        self._write_tiles(height)
            write(f"key += {SPAN}")
        with write.block("for line in range(lines)"):
            write(
                f"row = line // {repeat}", f"norm = splat_float32(1.0) / vload_float32(totals, line * {VECTOR_BYTES})"
            )
            if not self.is_causal:
                write("norm = norm if past > 0 else splat_float32(0.0)")
            write(
                f"target = out_at + (begin + top + row) * out_row + (head * {repeat} + line - row * {repeat}) * out_head"
            )
            for at in range(0, 4 * self.width, VECTOR_BYTES):
                write(f"vstore(target, {at}, vload_float32(sums, line * {4 * self.width} + {at}) * norm)")

    # ---- the pages of a span ----

    @property
    def vector(self) -> int:
        """Bytes of a vector in pages."""
        return BLOCK * self.dtype.itemsize

    def _loaded(self, place: str) -> str:
        """A vector of a page."""
        return widened(f"vload_{self.dtype.name}({place})", self.dtype)

    def _write_pages(self) -> None:
        """The addresses of the span's pages. One with new tokens is put together in scratch."""
        write, page = self.write, self.page
        key_bytes, value_bytes = (self.dtype.itemsize * page * size for size in (self.depth, self.width))
        with write.block(f"for number in range((length + {page - 1}) // {page})"):
            write(f"start = key + number * {page}", "there = 0", "old_keys = keys_at", "old_values = values_at")
            with write.block("if start < past"):
                write(f"there = load_int64(tables_at, (table + start // {page}) * 8)")
                with write.block("if there < 0 or there >= pages"):
                    write(f"return {OUT_OF_RANGE}")
                write(f"old_keys = keys_at + (there * heads + head) * {key_bytes}")
                write(f"old_values = values_at + (there * heads + head) * {value_bytes}")
            if self.is_causal:
                with write.block(f"if start + {page} > past"):
                    self._write_new_page(key_bytes, value_bytes)
            write("store_int64(key_pages, number * 8, old_keys)", "store_int64(value_pages, number * 8, old_values)")

    def _write_new_page(self, key_bytes: int, value_bytes: int) -> None:
        write, row_bytes = self.write, self.dtype.itemsize * self.width
        write(f"new_keys = own_keys + number * {key_bytes}", f"new_values = own_values + number * {value_bytes}")
        with write.block("if start < past"):
            self._write_copy("new_keys", "old_keys", key_bytes // self.vector)
            self._write_copy("new_values", "old_values", f"(past - start) * {row_bytes // self.vector}")
        self._write_new_rows()
        write("old_keys = new_keys", "old_values = new_values")

    def _write_copy(self, target: str, source: str, vectors: int | str) -> None:
        load = f"vload_uint{8 * self.dtype.itemsize}"
        with self.write.block(f"for at in range({vectors})"):
            self.write(f"vstore({target}, at * {self.vector}, {load}({source}, at * {self.vector}))")

    def _write_new_rows(self) -> None:
        """Puts the new tokens of a page where they belong: keys sixteen at a time where these are all new."""
        write, itemsize = self.write, self.dtype.itemsize
        write("at = max(past - start, 0)", f"stop = min({self.page}, end - start)")
        with write.block("for slot in range(at, stop)"):
            write("source = v_at + (begin + start + slot - past) * v_row + head * v_head")
            for first in range(0, self.width, BLOCK):
                row = stored(f"vload_float32(source, {4 * first})", self.dtype)
                write(f"vstore(new_values, slot * {itemsize * self.width} + {itemsize * first}, {row})")
        with write.block("while at < stop"):
            write("source = k_at + (begin + start + at - past) * k_row + head * k_head")
            write(f"target = new_keys + at // {BLOCK} * {self.vector * self.depth}")
            with write.block(f"if at % {BLOCK} == 0 and at + {BLOCK} <= stop"):
                with write.block(f"for corner in range(0, {self.depth}, {BLOCK})"):
                    self._write_square()
                write(f"at += {BLOCK}")
            with write.block("else"):
                write(f"target += at % {BLOCK} * {itemsize}")
                with write.block(f"for step in range({self.depth})"):
                    element = stored("load_float32(source, step * 4)", self.dtype)
                    write(f"store_{self.dtype.name}(target, step * {self.vector}, {element})")
                write("at += 1")

    def _write_square(self) -> None:
        """Turns sixteen elements of sixteen keys."""
        write = self.write
        if self.dtype is DType.float32:
            write(
                f"transpose_uint32(source + corner * 4, k_row, target + corner * {VECTOR_BYTES}, {VECTOR_BYTES})",
            )
            return
        write(f"transpose_uint32(source + corner * 4, k_row, square, {VECTOR_BYTES})")
        with write.block(f"for step in range({BLOCK})"):
            column = stored(f"vload_float32(square, step * {VECTOR_BYTES})", self.dtype)
            write(f"vstore(target, (corner + step) * {self.vector}, {column})")

    # ---- a tile ----

    def _write_tiles(self, height: int) -> None:
        write = self.write
        with write.block(f"for tile in range(0, padded, {height})"):
            if self.is_causal:
                write(f"seen = min(length, place + min(tile + {height - 1}, lines - 1) // {self.repeat} + 1 - key)")
            else:
                write("seen = length")
            if self.window:
                write(f"hidden = max(0, place + tile // {self.repeat} - {self.window - 1} - key)")
            with write.block(f"if seen > {'hidden' if self.window else '0'}"):
                self._write_scores(height)
                self._write_weights(height)
                self._write_sums(height)

    def _write_scores(self, height: int) -> None:
        write, blocks = self.write, self.blocks
        step, panel, vector = blocks * BLOCK, self.vector * self.depth, self.vector
        write(f"x = queries + tile * {4 * self.depth}")
        with write.block(f"for at in range(0, seen, {step})"):
            write(
                f"w = load_int64(key_pages, at // {self.page} * 8) + at % {self.page} * {self.dtype.itemsize * self.depth}"
            )
            write(*(f"sum_{i}_{j} = splat_float32(0.0)" for i in range(height) for j in range(blocks)))
            self._write_next("key_pages", "at // {} + 1", "value_pages", height)
            with write.block(f"for step in range({self.depth})"):
                if height < self.tall:
                    lines = -(-blocks * self.vector // costs.LINE_BYTES)
                    write(
                        *(
                            f"prefetch(ahead, step * {blocks * vector} + {costs.LINE_BYTES * line})"
                            for line in range(lines)
                        )
                    )
                write(*(f"w_{j} = {self._loaded(f'w, step * {vector} + {j * panel}')}" for j in range(blocks)))
                for i in range(height):
                    write(f"x_{i} = splat_float32(load_float32(x, step * 4 + {4 * i * self.depth}))")
                    write(*(multiply_add(f"sum_{i}_{j}", f"x_{i}", f"w_{j}", self.target) for j in range(blocks)))
            for i in range(height):
                for j in range(blocks):
                    write(f"vstore(scores, at * 4 + {4 * i * SPAN + j * VECTOR_BYTES}, sum_{i}_{j})")

    def _write_next(self, pages: str, number: str, last: str, height: int) -> None:
        """The address of the page that is read next: its lines are asked for while one row or few are multiplied."""
        if height < self.tall:
            self.write(f"following = {number.format(self.page)}")
            self.write(
                f"ahead = load_int64({pages}, following * 8) if following * {self.page} < seen else load_int64({last}, 0)"
            )

    def _write_weights(self, height: int) -> None:
        """Turns scores into weights; notes by what the row's sums so far, and those of this span, are multiplied."""
        write = self.write
        with write.block(f"for line in range({height})"):
            if self.is_causal:
                write(f"its = place + min(tile + line, lines - 1) // {self.repeat} + 1 - key")
            else:
                write("its = length")
            write(f"line_scores = scores + line * {4 * SPAN}", f"most = splat_float32({LEAST})")
            is_seen = "inside(its - at)"
            if self.window:
                write(f"before = its - {self.window}")
                is_seen += " & ~inside(before - at)"
            with write.block(f"for at in range(0, seen, {BLOCK})"):
                score = "vload_float32(line_scores, at * 4)"
                if self.softcap:
                    score = f"tanh({score}) * {literal(self.softcap, DType.float32)}"
                write(f"score = select({is_seen}, {score}, splat_float32(-math.inf))")
                write("vstore(line_scores, at * 4, score)", "most = select(score > most, score, most)")
            write("peak = splat_float32(horizontal_maximum(most))", "total = splat_float32(0.0)")
            with write.block(f"for at in range(0, seen, {BLOCK})"):
                write("weight = weight_of(vload_float32(line_scores, at * 4) - peak)")
                write("vstore(line_scores, at * 4, weight)", "total = total + weight")
            write(f"row_at = (tile + line) * {VECTOR_BYTES}", "known = vload_float32(peaks, row_at)")
            write(
                "both = select(peak > known, peak, known)",
                "old = weight_of(known - both)",
                "new = weight_of(peak - both)",
            )
            write("vstore(peaks, row_at, both)")
            write(f"vstore(olds, line * {VECTOR_BYTES}, old)", f"vstore(news, line * {VECTOR_BYTES}, new)")
            write("sum_of_span = splat_float32(horizontal_sum(total))")
            write("vstore(totals, row_at, vload_float32(totals, row_at) * old + sum_of_span * new)")

    def _write_sums(self, height: int) -> None:
        """Adds the products of weights and values to the sums, some columns at a time."""
        write, vector, row = self.write, self.vector, self.dtype.itemsize * self.width
        columns = max(1, min(self.width // BLOCK, self.target.block_registers * 3 // 4 // height))
        for first in range(0, self.width // BLOCK, columns):
            count = min(columns, self.width // BLOCK - first)
            places = [(i, j) for i in range(height) for j in range(count)]
            write(*(f"sum_{i}_{j} = splat_float32(0.0)" for i, j in places))
            with write.block(f"for number in range((seen + {self.page - 1}) // {self.page})"):
                write(
                    f"w = load_int64(value_pages, number * 8) + {first * vector}",
                    f"x = scores + number * {4 * self.page}",
                )
                self._write_next("value_pages", "number + 1", "value_pages", height)
                with write.block(f"for step in range(min({self.page}, seen - number * {self.page}))"):
                    if height < self.tall:
                        lines = range(first * vector, (first + count) * vector, costs.LINE_BYTES)
                        write(*(f"prefetch(ahead, step * {row} + {line})" for line in lines))
                    at = f"w, step * {row} + "
                    write(*(f"w_{j} = {self._loaded(f'{at}{j * vector}')}" for j in range(count)))
                    for i in range(height):
                        write(f"x_{i} = splat_float32(load_float32(x, step * 4 + {4 * i * SPAN}))")
                        write(*(multiply_add(f"sum_{i}_{j}", f"x_{i}", f"w_{j}", self.target) for j in range(count)))
            for i in range(height):
                write(
                    f"old = vload_float32(olds, {i * VECTOR_BYTES})", f"new = vload_float32(news, {i * VECTOR_BYTES})"
                )
                write(f"target = sums + (tile + {i}) * {4 * self.width} + {first * VECTOR_BYTES}")
                for j in range(count):
                    so_far = f"vload_float32(target, {j * VECTOR_BYTES}) * old"
                    write(f"vstore(target, {j * VECTOR_BYTES}, {so_far} + sum_{i}_{j} * new)")
