"""Attention over pages: of new tokens of many texts, in place, for one new token of a text and for hundreds alike.

A unit of the work is a text, a head of keys, and a band of its new tokens; heads of queries that share these keys are rows of one
tile, as tokens are. Keys are taken in spans of SPAN tokens, counted from the text's first one. A span has its own greatest score
and its own sums, which then join those of the spans before (Milakov and Gimelshein, 2018). So a row's bits depend on its text
alone: not on the rows beside it, nor on the number of new tokens that a call brings.

Keys lie in pages as panels, [page / 16, depth, 16]: a tile's products with them read each once, and need no sum across lanes.
Of a span's pages those with new tokens are put together in scratch; others are read where they lie.

Rows of 8 bits are codes, x = scale · (code - zero). A query is rounded to 15 bits then, q = scale' · (128 · high + low), and its
products with a key's codes are summed exactly, in int32. Σ w·x of values is Σ w·scale·code - Σ w·scale·zero, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.attention import permuted
from ....operators.paged import STORED
from ....operators.quantized import LEAST as LEAST_SCALE
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
_MOST = 127 * 128  # of a query of 15 bits


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
        _, self.heads, new, _ = permuted(self.stored["k"], orders["k"])
        _, _, self.tokens, self.depth = permuted(self.stored["q"], orders["q"])
        self.is_causal = new != 0  # else all keys lie in pages, and each query sees all
        self.width = permuted(self.stored["out"], self.orders["out"])[3]
        self.page: Any = self.shapes["values"][2]  # an integer, as depth and width, if there is a kernel
        self.dtype, self.new_dtype = types["values"].dtype, types["v"].dtype  # in pages, and of new rows
        self.facts = STORED[self.dtype].facts  # bytes behind a row
        self.unit = DType.uint32 if self.facts else self.dtype  # in which panels of keys lie, and new keys
        self.new_unit = self.unit if self.facts else DType.float32
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

    def blocks(self, height: int) -> int:
        """Blocks of keys whose scores are computed at once."""
        room = self.target.block_registers * 3 // 4
        is_crowded = room < 2 * 2 * height if self.facts else self.target.block_registers < _MANY_REGISTERS
        return 1 if is_crowded or self.page % (2 * BLOCK) else 2

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
            "own_keys": SPAN // BLOCK * self.panel,  # of pages with new tokens
            "own_values": SPAN * self.row,
            **({"query_facts": 2 * rows * VECTOR_BYTES, "value_facts": 8 * SPAN} if self.facts else {}),
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
                itemsize = self.new_dtype.itemsize if name in "kv" else 4
                write.size(f"{name}_{what}", dims.multiply(itemsize, inner))
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
            if self.facts:
                self._write_codes_of_query()
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

    def _write_codes_of_query(self) -> None:
        """Puts a query's high bytes in the place of its elements, and its low ones behind them; notes its scale and its sum."""
        write, places = self.write, range(0, self.depth, BLOCK)
        write(f"x = queries + line * {4 * self.depth}", "most = splat_float32(0.0)", "spoilt = splat_float32(0.0)")
        for at in places:
            write(
                f"q_{at} = vload_float32(x, {4 * at})",
                f"most = select(absolute(q_{at}) > most, absolute(q_{at}), most)",
            )
            write(f"spoilt = spoilt + q_{at} * 0.0")
        write(f"scale = splat_float32(horizontal_maximum(most)) / {float(_MOST)}")
        write(f"scale = select(scale > {LEAST_SCALE!r}, scale, splat_float32({LEAST_SCALE!r}))")
        write("factor = splat_float32(1.0) / scale", "codes = splat_int32(0)")
        for at in places:
            write(
                f"code = convert_int32(round_even(q_{at} * factor))", "codes = codes + code", "high = (code + 64) >> 7"
            )
            write(
                f"vstore(x, {at}, convert_int8(high))",
                f"vstore(x, {self.depth + at}, convert_int8(code - (high << 7)))",
            )
        write(f"facts = query_facts + line * {2 * VECTOR_BYTES}")
        write("vstore(facts, 0, scale + splat_float32(horizontal_sum(spoilt)))")
        write(f"vstore(facts, {VECTOR_BYTES}, splat_int32(horizontal_sum(codes)))")

    # ---- the pages of a span ----

    @property
    def vector(self) -> int:
        """Bytes of a vector of values."""
        return BLOCK * self.dtype.itemsize

    @property
    def units(self) -> int:
        """Units of a key."""
        return (self.dtype.itemsize * self.depth + self.facts) // self.unit.itemsize

    @property
    def panel(self) -> int:
        """Bytes of sixteen keys."""
        return BLOCK * self.unit.itemsize * self.units

    @property
    def row(self) -> int:
        """Bytes of a value."""
        return self.dtype.itemsize * self.width + self.facts

    def _loaded(self, place: str) -> str:
        """A vector of a page, in float32."""
        loaded = f"vload_{self.dtype.name}({place})"
        return f"convert_float32({loaded})" if self.facts else widened(loaded, self.dtype)

    def _write_pages(self) -> None:
        """The addresses of the span's pages. One with new tokens is put together in scratch."""
        write, page = self.write, self.page
        key_bytes, value_bytes = page // BLOCK * self.panel, page * self.row
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
        write = self.write
        write(f"new_keys = own_keys + number * {key_bytes}", f"new_values = own_values + number * {value_bytes}")
        with write.block("if start < past"):
            self._write_copy("new_keys", "old_keys", key_bytes // self.vector)
            vectors, rest = divmod(self.row, self.vector)
            some = value_bytes // self.vector if rest else f"(past - start) * {vectors}"
            self._write_copy("new_values", "old_values", some)
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
                row = self._new(f"vload_{self.new_dtype.name}(source, {self.new_dtype.itemsize * first})")
                write(f"vstore(new_values, slot * {self.row} + {itemsize * first}, {row})")
            for fact in range(self.row - self.facts, self.row, 4):
                write(f"store_uint32(new_values, slot * {self.row} + {fact}, load_uint32(source, {fact}))")
        with write.block("while at < stop"):
            write("source = k_at + (begin + start + at - past) * k_row + head * k_head")
            write(f"target = new_keys + at // {BLOCK} * {self.panel}")
            whole = self.units // BLOCK * BLOCK
            with write.block(f"if at % {BLOCK} == 0 and at + {BLOCK} <= stop"):
                with write.block(f"for corner in range(0, {whole}, {BLOCK})"):
                    self._write_square()
                if whole < self.units:
                    with write.block(f"for lane in range({BLOCK})"):
                        self._write_key(whole, "source + lane * k_row", f"target + lane * {self.unit.itemsize}")
                write(f"at += {BLOCK}")
            with write.block("else"):
                write(f"target += at % {BLOCK} * {self.unit.itemsize}")
                self._write_key(0, "source", "target")
                write("at += 1")

    def _new(self, element: str) -> str:
        """An element of a new row as it is stored."""
        return element if self.facts else stored(element, self.dtype)

    def _write_key(self, first: int, source: str, target: str) -> None:
        """Puts the units of one key from the first on into a panel."""
        write, vector = self.write, BLOCK * self.unit.itemsize
        with write.block(f"for step in range({f'{first}, {self.units}' if first else self.units})"):
            element = self._new(f"load_{self.new_unit.name}({source}, step * 4)")
            write(f"store_{self.unit.name}({target}, step * {vector}, {element})")

    def _write_square(self) -> None:
        """Turns sixteen units of sixteen keys."""
        write = self.write
        if self.unit.itemsize == 4:
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
        write, panel, blocks = self.write, self.panel, self.blocks(height)
        steps = self.units - self.facts // self.unit.itemsize
        names, zero = (("high", "low"), "splat_int32(0)") if self.facts else (("sum",), "splat_float32(0.0)")
        write(f"x = queries + tile * {4 * self.depth}")
        with write.block(f"for at in range(0, seen, {blocks * BLOCK})"):
            inside = f"at % {self.page} * {panel // BLOCK}"
            write(f"w = load_int64(key_pages, at // {self.page} * 8) + {inside}")
            write(*(f"{name}_{i}_{j} = {zero}" for name in names for i in range(height) for j in range(blocks)))
            if height < self.tall and self.is_narrow:
                write(f"ahead = load_int64(value_pages, at // {self.page} * 8) + at % {self.page} * {self.row}")
            elif height < self.tall:
                self._write_next("key_pages", f"at // {self.page} + 1", "value_pages")
            with write.block(f"for step in range({steps})"):
                if height < self.tall:
                    self._write_prefetch(blocks * (BLOCK * self.row if self.is_narrow else panel), steps)
                (self._write_products_of_codes if self.facts else self._write_products)(height, blocks)
            if self.facts:
                self._write_scores_of_sums(height, blocks)
            for i in range(height):
                for j in range(blocks):
                    write(f"vstore(scores, at * 4 + {4 * i * SPAN + j * VECTOR_BYTES}, sum_{i}_{j})")

    def _write_products(self, height: int, blocks: int) -> None:
        """Adds the products of one element of each query and key."""
        write = self.write
        write(*(f"w_{j} = {self._loaded(f'w, step * {self.vector} + {j * self.panel}')}" for j in range(blocks)))
        for i in range(height):
            write(f"x_{i} = splat_float32(load_float32(x, step * 4 + {4 * i * self.depth}))")
            write(*(multiply_add(f"sum_{i}_{j}", f"x_{i}", f"w_{j}", self.target) for j in range(blocks)))

    def _write_products_of_codes(self, height: int, blocks: int) -> None:
        """The same of four elements, by integers."""
        write, dot = self.write, self.target.dot
        write(*(f"codes_{j} = vload_int32(w, step * {VECTOR_BYTES} + {j * self.panel})" for j in range(blocks)))
        for i in range(height):
            for name, first in (("high", 0), ("low", self.depth)):
                write(f"bytes_{i} = splat_int32(load_int32(x, step * 4 + {4 * i * self.depth + first}))")
                write(*(f"{name}_{i}_{j} = {dot}({name}_{i}_{j}, codes_{j}, bytes_{i})" for j in range(blocks)))

    def _write_scores_of_sums(self, height: int, blocks: int) -> None:
        write = self.write
        for j in range(blocks):
            place = (j + 1) * self.panel - 2 * VECTOR_BYTES
            write(f"scale_{j} = vload_float32(w, {place})", f"zero_{j} = vload_int32(w, {place + VECTOR_BYTES})")
        for i in range(height):
            facts = f"query_facts, (tile + {i}) * {2 * VECTOR_BYTES}"
            write(f"scale = vload_float32({facts})", f"total_of_query = vload_int32({facts} + {VECTOR_BYTES})")
            for j in range(blocks):
                write(f"whole = (high_{i}_{j} << 7) + low_{i}_{j} - zero_{j} * total_of_query")
                write(f"sum_{i}_{j} = convert_float32(whole) * (scale_{j} * scale)")

    # Tiles of one row or few prefetch: in float32 the next page. A page of narrower elements is read in less time than memory's
    # latency: a span's values are prefetched during its keys, and the next span's keys during its values. 2,048 tokens of 9 heads
    # on 3, a layer of 30, on an EPYC 9005: float16 49 µs instead of 64, uint8 31 instead of 53; but float32 123 instead of 105.

    @property
    def is_narrow(self) -> bool:
        return self.dtype.itemsize < 4

    def _write_prefetch(self, size: int, steps: int) -> None:
        """Prefetches a step's share of `size` bytes."""
        share = -(-size // steps)
        self.write(*(f"prefetch(ahead, step * {share} + {line})" for line in range(0, share, costs.LINE_BYTES)))

    def _write_next(self, pages: str, number: str, last: str) -> None:
        """The address of the next page."""
        self.write(f"following = {number}")
        self.write(
            f"ahead = load_int64({pages}, following * 8) if following * {self.page} < seen else load_int64({last}, 0)"
        )

    def _write_next_keys(self) -> None:
        """The address of the page of keys that the next span reads when this one reads page `number`."""
        write = self.write
        write("ahead = w", f"start = key + {SPAN} + number * {self.page}")
        with write.block("if start < past"):
            write(f"there = load_int64(tables_at, (table + start // {self.page}) * 8)")
            write(f"ahead = keys_at + (there * heads + head) * {self.page // BLOCK * self.panel}")

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
        write, vector, row = self.write, self.vector, self.row
        if self.facts:
            self._write_scaled(height)
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
                if height < self.tall and not self.is_narrow:
                    self._write_next("value_pages", "number + 1", "value_pages")
                elif height < self.tall and not first:
                    self._write_next_keys()
                with write.block(f"for step in range(min({self.page}, seen - number * {self.page}))"):
                    if height < self.tall and not self.is_narrow:
                        lines = range(first * vector, (first + count) * vector, costs.LINE_BYTES)
                        write(*(f"prefetch(ahead, step * {row} + {line})" for line in lines))
                    elif height < self.tall and not first:
                        self._write_prefetch(self.page // BLOCK * self.panel, self.page)
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
                    added = f"(sum_{i}_{j} - shift_{i})" if self.facts else f"sum_{i}_{j}"
                    write(f"vstore(target, {j * VECTOR_BYTES}, {so_far} + {added} * new)")

    def _write_scaled(self, height: int) -> None:
        """Multiplies the weights of a tile by the scales of values; `shift` is the sum of their products with the zero points."""
        write = self.write
        with write.block(f"for number in range((seen + {self.page - 1}) // {self.page})"):
            write(
                f"w = load_int64(value_pages, number * 8) + {self.width}",
                f"facts = value_facts + number * {8 * self.page}",
            )
            with write.block(f"for slot in range({self.page})"):
                write(f"store_int64(facts, slot * 8, load_int64(w, slot * {self.row}))")
        write(*(f"shift_{i} = splat_float32(0.0)" for i in range(height)))
        with write.block(f"for at in range(0, seen, {BLOCK})"):
            write(f"part_uint32_2(value_facts + at * 8, square, {VECTOR_BYTES})")
            write("scale = vload_float32(square, 0)", f"zero = convert_float32(vload_int32(square, {VECTOR_BYTES}))")
            for i in range(height):
                weights = f"scores, at * 4 + {4 * i * SPAN}"
                write(
                    f"weight = vload_float32({weights})"
                )  # 0 of values that are not seen, whose scales may be anything
                write("weight = select(weight == 0.0, weight, weight * scale)")
                write(f"vstore({weights}, weight)", f"shift_{i} = shift_{i} + weight * zero")
        write(*(f"shift_{i} = splat_float32(horizontal_sum(shift_{i}))" for i in range(height)))
