"""Attention in one kernel: softmax(q kᵀ scale + mask) v without a matrix of scores in memory.

The work is cut into units: a matrix of the batch (a head), and a band of queries. Keys come in spans that fit the first
caches. For each span the scores of a tile of queries are computed (keys turned into panels, as in `gemm.py`), become
exponentials relative to the greatest score so far, and multiply the values; what was gathered from earlier spans is scaled
when a greater score appears (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A band of very
few queries, as in decoding, takes products of rows instead, which reads keys and values once and turns nothing.

The last keys of a span that a mask hides from all queries of a tile, as causal masks do, are left out where that gives the
same bits: where their weights come out as 0, and 0 times their values is 0.

Scratch memory of a unit, in bytes from `scratch`: see `_Layout`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.primitive import PrimitiveDefinition
from ..operators.attention import permuted
from .expression import bound_attributes, literal
from .kernel import Kernel
from .target import Target
from .tile import BLOCK, VECTOR_BYTES, Tile, choose, write_start, write_step
from .writer import Writer, estimate, shape_of

_SPAN = 256  # keys at once: a multiple of two vectors
_BAND = 256  # queries of a unit where their number is not known
_UNITS = 8  # for threads to share, if bands of that many queries are worth it:
_LEAST_BAND = 128
_FEW = 4  # queries for which tiles do not pay
_MOST = 256  # elements of a row of queries, keys or values
_PITCH = 64  # that keeps rows in the scratch memory out of one set of the first cache
_MACS_A_NANOSECOND = 80
_LEAST = -3.4028234663852886e38  # the first greatest score: -∞ - (-∞) would be no number
_HIDING = -1000.0  # a mask's value from which on it is worth looking which keys are hidden
_VANISHING = 120.0  # so far below the greatest score, a weight comes out as 0


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of attention, alone in its definition, of float32 rows of known length that are contiguous."""
    if len(definition.nodes) != 1:
        return None
    attention = _Attention(definition, target)
    return attention.kernel if attention.is_possible else None


@dataclass(frozen=True)
class _Layout:
    """Where a unit keeps things in the scratch memory: starts, in bytes."""

    rows: int  # queries of a unit
    tile: int
    depth: int
    width: int

    @property
    def query_row(self) -> int:
        return VECTOR_BYTES * -(-self.depth // BLOCK) + _PITCH

    @property
    def score_row(self) -> int:
        return 4 * _SPAN + _PITCH

    @property
    def sum_row(self) -> int:
        return VECTOR_BYTES * -(-self.width // BLOCK)

    @property
    def parts(self) -> dict[str, int]:
        """The bytes of each part, in their order."""
        return {
            "queries_at": self.rows * self.query_row,  # scaled
            "panels": 4 * _SPAN * self.depth,  # keys, [span / 16, depth, 16]
            "values": _SPAN * self.sum_row,
            "scores": self.tile * self.score_row,
            "sums": self.rows * self.sum_row,  # of values, weighted
            "peaks": 4 * self.rows + VECTOR_BYTES,  # the greatest score of each row so far
            "totals": self.rows * VECTOR_BYTES,  # of exponentials, lane by lane
            "greatest": self.tile * VECTOR_BYTES,  # scores of each row of the tile in this span, lane by lane
            "highest": VECTOR_BYTES,  # the greatest of these
            "factors": VECTOR_BYTES,  # of what was gathered before, for each row of the tile
        }


class _Attention:
    """Writes one attention. Operands and result are known by their logical axes: batch …, row, depth."""

    def __init__(self, definition: PrimitiveDefinition, target: Target) -> None:
        self.definition, self.target = definition, target
        self.node = definition.nodes[0]
        self.attributes = bound_attributes(self.node)
        self.tensors = {name: definition.params[number] for name, number in zip("qkv", self.node.inputs, strict=False)}
        self.mask = definition.params[self.node.inputs[3]] if len(self.node.inputs) > 3 else None
        rank = definition.results[0].rank
        stored = self.attributes["result_axes"] or tuple(range(rank))
        self.orders = {name: self.attributes[f"{name}_axes"] or tuple(range(rank)) for name in "qkv"}
        self.orders["out"] = tuple(stored.index(axis) for axis in range(rank))
        self.tensors["out"] = definition.results[0]
        shapes = {name: permuted(shape_of(self.tensors[name]), self.orders[name]) for name in "qkv"}
        (*self.batch, self.queries, self.depth), self.keys, self.width = shapes["q"], shapes["k"][-2], shapes["v"][-1]

    @property
    def is_possible(self) -> bool:
        rank = len(self.batch) + 2
        return (
            len(self.definition.outputs) == 1
            and all(type_.dtype is DType.float32 for type_ in self.tensors.values())
            and all(isinstance(size, int) and 0 < size <= _MOST for size in (self.depth, self.width))
            and all(order[-1] == rank - 1 for order in self.orders.values())
        )

    @cached_property
    def rows(self) -> int:
        """Queries of a unit: few bands of equal size, since each turns all keys, whose sums stay in the second cache."""
        if not isinstance(self.queries, int):
            return _BAND
        matrices, row = max(1, estimate(dims.product(self.batch))), _Layout(1, 1, self.depth, self.width)
        most = max(_LEAST_BAND, self.target.l2_bytes // 2 // (row.query_row + row.sum_row))
        bands = max(1, -(-self.queries // most), min(_UNITS // matrices, self.queries // _LEAST_BAND))
        if matrices * bands % 2 and matrices * bands < _UNITS and self.queries >= 2 * _FEW:
            bands += 1  # two threads would not share an odd number of units evenly
        return -(-self.queries // bands) or 1

    @cached_property
    def tile(self) -> Tile:
        return choose(self.rows, 2, self.target)

    @cached_property
    def layout(self) -> _Layout:
        band = -(-self.rows // self.tile.rows) * self.tile.rows
        return _Layout(band, self.tile.rows, self.depth, self.width)

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.definition, self.target, "attention")
        write.lanes = BLOCK
        self._write_sizes()
        scores = dims.product([*self.batch, self.queries, self.keys])
        work = f"matrices * queries * keys * {self.depth + self.width} // {_MACS_A_NANOSECOND}"
        write(f"matrices = {' * '.join(f'batch_{axis}' for axis in range(len(self.batch))) or '1'}")
        write(
            f"bands = max(1, (queries + {self.layout.rows - 1}) // {self.layout.rows})",
            "band = (queries + bands - 1) // bands",
        )
        write.split("matrices * bands", work)
        with write.block("for unit in range(first, last)"):
            self._write_unit()
        nanoseconds = estimate(scores) * (self.depth + self.width) / _MACS_A_NANOSECOND
        return write.kernel(nanoseconds, sum(self.layout.parts.values()))

    def _write_sizes(self) -> None:
        write = self.write
        for name, number in zip(("q", "k", "v", "mask"), self.node.inputs, strict=False):
            write.input(f"{name}_at", number)
        write.output("out_at", 0)
        for axis, dim in enumerate(self.batch):
            write.size(f"batch_{axis}", dim)
        write.size("queries", self.queries)
        write.size("keys", self.keys)
        for name, type_ in self.tensors.items():
            order, shape = self.orders[name], shape_of(type_)
            for axis in range(len(order) - 1):
                write.size(f"{name}_step_{axis}", dims.multiply(4, dims.product(shape[order[axis] + 1 :])))
        if self.mask is not None:
            shape = shape_of(self.mask)
            for axis, dim in enumerate(shape, len(self.batch) + 2 - len(shape)):
                inner = dims.product(shape[axis - len(self.batch) - 2 + len(shape) + 1 :])
                write.size(f"mask_step_{axis}", 0 if dim == 1 else dims.multiply(self.mask.dtype.itemsize, inner))
        start = 0
        for name, size in self.layout.parts.items():
            write(f"{name} = scratch + {start}")
            start += size

    def _write_unit(self) -> None:
        write, row = self.write, len(self.batch)
        write("matrix = unit // bands", "begin = (unit - matrix * bands) * band")
        write("rows = min(band, queries - begin)")
        rest = "matrix"
        for axis in reversed(range(row)):
            write(f"at_{axis} = {rest} % batch_{axis}", f"rest_{axis} = {rest} // batch_{axis}")
            rest = f"rest_{axis}"
        if self.attributes["repeat"] > 1:
            write(f"group = at_{row - 1} // {self.attributes['repeat']}")
        for name in self.tensors:
            places = [f"at_{axis}" for axis in range(row)]
            if name in ("k", "v") and self.attributes["repeat"] > 1:
                places[-1] = "group"
            terms = [f"{place} * {name}_step_{axis}" for axis, place in enumerate(places)]
            terms += [f"begin * {name}_step_{row}"] if name in ("q", "out") else []
            write(" + ".join([f"{name} = {name}_at", *terms]))
        if self.mask is not None:
            first = row + 2 - self.mask.rank
            terms = [f"{place} * mask_step_{axis}" for axis, place in self._mask_places() if axis >= first]
            write(" + ".join(["mask = mask_at", *terms]))
        self._write_queries()
        if isinstance(self.queries, int):
            (self._write_rows if self.queries < _FEW else self._write_tiles)()
            return
        with write.block(f"if rows < {_FEW}"):
            self._write_rows()
        with write.block("else"):
            self._write_tiles()

    def _mask_places(self) -> list[tuple[int, str]]:
        return [*((axis, f"at_{axis}") for axis in range(len(self.batch))), (len(self.batch), "begin")]

    def _step(self, name: str) -> str:
        """The bytes from one row of an operand to the next."""
        return f"{name}_step_{len(self.batch)}"

    def _write_queries(self) -> None:
        """The band's queries, scaled; behind each, up to a whole vector, zeros."""
        write, scale = self.write, literal(self.attributes["scale"], DType.float32)
        with write.block("for row in range(rows)"):
            write(f"source = q + row * {self._step('q')}", f"target = queries_at + row * {self.layout.query_row}")
            for at in range(0, self.depth, BLOCK):
                write(
                    f"vstore(target, {4 * at}, vload_float32(source, {4 * at}{self._lanes(at, self.depth)}) * {scale})"
                )

    @staticmethod
    def _lanes(at: int, length: int) -> str:
        """The ending of a load or store of the vector at that element of a row."""
        return f", {length - at}" if length - at < BLOCK else ""

    # ---- few queries: row by row ----

    def _write_rows(self) -> None:
        write = self.write
        depths, widths = range(0, self.depth, BLOCK), range(0, self.width, BLOCK)
        with write.block("for row in range(rows)"):
            for at in depths:
                write(f"q_{at} = vload_float32(queries_at + row * {self.layout.query_row}, {4 * at})")
            write(*(f"sum_{at} = splat_float32(0.0)" for at in widths))
            write(f"store_float32(peaks, 0, {_LEAST})", "vstore(totals, 0, splat_float32(0.0))", "top = 0", "lines = 1")
            with write.block(f"for key in range(0, keys, {_SPAN})"):
                write(f"count = min({_SPAN}, keys - key)")
                with write.block("for at in range(count)"):
                    write(f"source = k + (key + at) * {self._step('k')}")
                    terms = [f"q_{at} * vload_float32(source, {4 * at}{self._lanes(at, self.depth)})" for at in depths]
                    write(f"store_float32(scores, at * 4, horizontal_sum({' + '.join(terms)}))")
                self._write_exponentials("row")
                write(
                    "factor = splat_float32(load_float32(factors, 0))",
                    *(f"sum_{at} = sum_{at} * factor" for at in widths),
                )
                with write.block("for at in range(count)"):
                    write(f"source = v + (key + at) * {self._step('v')}")
                    write("weight = splat_float32(load_float32(scores, at * 4))")
                    for at in widths:
                        value = f"vload_float32(source, {4 * at}{self._lanes(at, self.width)})"
                        write(f"sum_{at} = sum_{at} + weight * {value}")
            self._write_norm("0")
            for at in widths:
                place = f"out + row * {self._step('out')}, {4 * at}"
                write(f"vstore({place}, sum_{at} * norm{self._lanes(at, self.width)})")

    def _write_norm(self, row: str) -> None:
        """What the weighted sum of a row is multiplied by; of no keys, the sum is 0."""
        total = f"horizontal_sum(vload_float32(totals, {row} * {VECTOR_BYTES}))"
        self.write(f"norm = splat_float32(1.0 / {total} if keys > 0 else 0.0)")

    # ---- many: tile by tile ----

    def _write_tiles(self) -> None:
        write, layout = self.write, self.layout
        with write.block("for row in range(rows)"):
            write(f"store_float32(peaks, row * 4, {_LEAST})")
            write(f"vstore(totals, row * {VECTOR_BYTES}, splat_float32(0.0))")
            for at in range(0, layout.sum_row, VECTOR_BYTES):
                write(f"vstore(sums, row * {layout.sum_row} + {at}, splat_float32(0.0))")
        with write.block(f"for key in range(0, keys, {_SPAN})"):
            write(f"length = min({_SPAN}, keys - key)", "count = length", "is_ready = 0")
            if self.may_hide:
                write("bound = -1.0")
            with write.block(f"for top in range(0, rows, {self.tile.rows})"):
                write(f"lines = min({self.tile.rows}, rows - top)")
                if self.may_hide:
                    self._write_seen()
                with write.block("if count > 0"):
                    with write.block("if is_ready == 0"):
                        self._write_panels()
                        self._write_values()
                        write("is_ready = 1")
                    self._write_scores()
                    self._write_exponentials("top + line", "0" if self.mask is not None else self._seen)
                    self._write_sums()
        with write.block("for row in range(rows)"):
            self._write_norm("row")
            write(f"source = sums + row * {layout.sum_row}", f"target = out + row * {self._step('out')}")
            for at in range(0, self.width, BLOCK):
                ending = self._lanes(at, self.width)
                write(f"vstore(target, {4 * at}, vload_float32(source, {4 * at}) * norm{ending})")

    def _write_panels(self) -> None:
        write, step = self.write, self._step("k")
        with write.block(f"for block in range((length + {BLOCK - 1}) // {BLOCK})"):
            write(f"left = min({BLOCK}, length - block * {BLOCK})")
            with write.block(f"for at in range(0, {self.depth}, {BLOCK})"):
                write(f"source = k + (key + block * {BLOCK}) * {step} + at * 4")
                write(f"target = panels + block * {VECTOR_BYTES * self.depth} + at * {VECTOR_BYTES}")
                with write.block(f"if left == {BLOCK} and at + {BLOCK} <= {self.depth}"):
                    write(f"transpose_uint32(source, {step}, target, {VECTOR_BYTES})")
                with write.block("else"):
                    write(f"deep = min({BLOCK}, {self.depth} - at)")
                    write(f"transpose_uint32(source, {step}, target, {VECTOR_BYTES}, left, deep)")

    def _write_scores(self) -> None:
        """The tile's products with the span's keys; what stands behind the last key is no score."""
        write, tile, layout = self.write, self.tile, self.layout
        write(
            "x_step = 4",
            f"x_row = {layout.query_row}",
            f"w_step = {VECTOR_BYTES}",
            f"w_block = {VECTOR_BYTES * self.depth}",
        )
        write(f"blocks = (count + {BLOCK - 1}) // {BLOCK}", f"whole = count // {BLOCK}")
        if self.mask is None:
            with write.block(f"for line in range({tile.rows})"):
                write(f"vstore(greatest, line * {VECTOR_BYTES}, splat_float32({_LEAST}))")
        with write.block(f"for block in range(0, blocks - blocks % {tile.blocks}, {tile.blocks})"):
            self._write_score(tile)
        if tile.blocks > 1 and (
            self.may_hide or not isinstance(self.keys, int) or -(-self.keys // BLOCK) % tile.blocks
        ):
            with write.block(f"for block in range(blocks - blocks % {tile.blocks}, blocks)"):
                self._write_score(Tile(tile.rows, 1))

    def _write_score(self, tile: Tile) -> None:
        """The tile's products with the keys of its blocks. Where no mask is to come, and keys fill the blocks, the greatest are
        found on the way."""
        write, layout = self.write, self.layout
        write(f"x = queries_at + top * {layout.query_row}", "w = panels + block * w_block")
        write_start(write, tile)
        with write.block(f"for step in range({self.depth})"):
            write_step(write, tile, self.target, lines=0)
        for i in range(tile.rows):
            for j in range(tile.blocks):
                place = f"block * {VECTOR_BYTES} + {i * layout.score_row + j * VECTOR_BYTES}"
                write(f"vstore(scores, {place}, {tile.accumulator(i, j)})")
        if self.mask is not None:
            return
        with write.block(f"if block + {tile.blocks} <= whole"):
            for i in range(tile.rows):
                write(f"most = vload_float32(greatest, {i * VECTOR_BYTES})")
                for j in range(tile.blocks):
                    score = tile.accumulator(i, j)
                    write(f"most = select({score} > most, {score}, most)")
                write(f"vstore(greatest, {i * VECTOR_BYTES}, most)")

    def _write_values(self) -> None:
        """Puts the span's values side by side: heads that lie far apart share few sets of the first cache."""
        write, width = self.write, self.layout.sum_row
        with write.block("for at in range(length)"):
            write(f"source = v + (key + at) * {self._step('v')}", f"target = values + at * {width}")
            for at in range(0, self.width, BLOCK):
                write(f"vstore(target, {4 * at}, vload_float32(source, {4 * at}{self._lanes(at, self.width)}))")

    def _write_sums(self) -> None:
        """Adds the tile's products with the span's values to what was gathered."""
        write, tile, blocks = self.write, self.tile, -(-self.width // BLOCK)
        write(f"x_row = {self.layout.score_row}", f"w_step = {self.layout.sum_row}", f"w_block = {VECTOR_BYTES}")
        whole = blocks - blocks % tile.blocks
        if whole:
            with write.block(f"for block in range(0, {whole}, {tile.blocks})"):
                self._write_sum(tile)
        if whole < blocks:
            with write.block(f"for block in range({whole}, {blocks})"):
                self._write_sum(Tile(tile.rows, 1))

    def _write_sum(self, tile: Tile) -> None:
        write, layout = self.write, self.layout
        write(f"w = values + block * {VECTOR_BYTES}", "x = scores")
        write(f"sum = sums + top * {layout.sum_row} + block * {VECTOR_BYTES}")
        for i in range(tile.rows):
            write(f"factor = splat_float32(load_float32(factors, {4 * i}))")
            for j in range(tile.blocks):
                place = i * layout.sum_row + j * VECTOR_BYTES
                write(f"{tile.accumulator(i, j)} = vload_float32(sum, {place}) * factor")
        with write.block("for step in range(count)"):
            write_step(write, tile, self.target, lines=0)
        for i in range(tile.rows):
            for j in range(tile.blocks):
                write(f"vstore(sum, {i * layout.sum_row + j * VECTOR_BYTES}, {tile.accumulator(i, j)})")

    # ---- the softmax of a span ----

    @property
    def _seen(self) -> str:
        """The keys of the span whose scores were compared when they were computed: all but those of a block that is not full,
        and of the blocks computed with it."""
        return f"(count if even == count else even - even % {BLOCK * self.tile.blocks})"

    def _write_exponentials(self, query: str, seen: str = "0") -> None:
        """Makes the scores of the tile's first `lines` rows exponentials; notes the greatest, the totals, and the factors for
        what there was. Row `line` of the tile is row `query` of the band.

        Row after row three times, so that the rows, each of which is a chain of dependent steps, overlap.
        """
        write, row = self.write, self.layout.score_row
        write(f"even = count - count % {BLOCK}")
        with write.block("for line in range(lines)"):
            write(f"scores_at = scores + line * {row}")
            if self.mask is not None:
                self._write_mask_line(f"({query})")
            self._write_highest(seen)
            write("store_float32(highest, line * 4, horizontal_maximum(most))")
        write("peak = vload_float32(peaks, top * 4, lines)", "most = vload_float32(highest, 0)")
        write("most = select(most > peak, most, peak)", "vstore(factors, 0, weight_of(peak - most))")
        write("vstore(peaks, top * 4, most, lines)")
        with write.block("for line in range(lines)"):
            write(f"scores_at = scores + line * {row}", f"total_at = totals + (top + line) * {VECTOR_BYTES}")
            write("peak = splat_float32(load_float32(peaks, (top + line) * 4))")
            write("total = vload_float32(total_at, 0) * load_float32(factors, line * 4)")
            with write.block(f"for at in range(0, count, {BLOCK})"):
                write(
                    "weight = weight_of(vload_float32(scores_at, at * 4) - peak)",
                    "vstore(scores_at, at * 4, weight)",
                    "total = total + weight",
                )
            write("vstore(total_at, 0, total)")

    def _write_highest(self, seen: str) -> None:
        """Masks a row of scores; `most` is the greatest, lane by lane. Behind the last key there are no scores but -∞. Of the
        first `seen` keys, the greatest are known."""
        write = self.write
        if seen == "0":
            write(f"most = splat_float32({_LEAST})")
        else:
            write(f"most = vload_float32(greatest, line * {VECTOR_BYTES})")
        with write.block(f"for at in range({seen}, even, {BLOCK})"):
            write("score = vload_float32(scores_at, at * 4)")
            if self.mask is not None:
                self._write_mask("")
                write("vstore(scores_at, at * 4, score)")
            write("most = select(score > most, score, most)")
        with write.block("if even < count"):
            write("at = even", "left = count - at", "score = vload_float32(scores_at, at * 4)")
            if self.mask is not None:
                self._write_mask(", left")
            write("score = select(inside(left), score, splat_float32(-math.inf))", "vstore(scores_at, at * 4, score)")
            write("most = select(score > most, score, most)")

    def _mask_step(self, axis: int) -> str:
        """The bytes from one place of the mask to the next on one of the scores' axes."""
        assert self.mask is not None
        return f"mask_step_{axis}" if axis >= len(self.batch) + 2 - self.mask.rank else "0"

    def _write_mask_line(self, query: str) -> None:
        rank = len(self.batch) + 2
        self.write(f"mask_line = mask + {query} * {self._mask_step(rank - 2)} + key * {self._mask_step(rank - 1)}")

    def _write_mask(self, ending: str) -> None:
        assert self.mask is not None
        if self.mask.dtype is DType.bool:
            self.write(f"score = select({self._held(ending)}, score, splat_float32({self._masked}))")
        else:
            self.write(f"score = score + {self._held(ending)}")

    def _held(self, ending: str) -> str:
        """The mask's vector at `at`."""
        assert self.mask is not None
        dtype = self.mask.dtype
        if self.mask.rank and self.mask.shape[-1] != 1:
            return f"vload_{dtype.name}(mask_line, at * {dtype.itemsize}{ending})"
        return f"splat_{dtype.name}(load_{dtype.name}(mask_line, 0))"

    @property
    def _masked(self) -> str:
        return literal(self.attributes["masked"], DType.float32)

    # ---- keys that no query of a tile sees ----

    @property
    def may_hide(self) -> bool:
        """Whether the mask may hide keys from all queries of a tile."""
        if self.mask is None or not self.mask.rank or self.mask.shape[-1] == 1:
            return False
        return self.mask.dtype is DType.float32 or self.attributes["masked"] < _HIDING

    def _write_seen(self) -> None:
        """Makes `count` the number of the span's keys without the last ones that are hidden from the whole tile.

        Most masks show the last query the last keys, or show that they do not hide: these cost one look. It is the last
        query of causal masks that sees most, so that the others' keys need not be searched.
        """
        write = self.write
        write("count = length", f"at = (length - 1) // {BLOCK} * {BLOCK}")
        self._write_mask_line("(top + lines - 1)")
        with write.block(f"if {self._is_hidden}"):
            with write.block("if bound < 0.0"):
                self._write_bound()
            write("count = 0")
            with write.block("for row in range(top + lines - 1, top - 1, -1)"):
                self._write_mask_line("row")
                self._write_limit()
                write(f"at = (length - 1) // {BLOCK} * {BLOCK}")
                with write.block("while at >= count"):
                    write("left = length - at", f"shift = {self._shift}")
                    with write.block("if any_lane(inside(left) & ~(shift < limit))"):
                        write(f"count = min(length, at + {BLOCK})")
                    write(f"at -= {BLOCK}")

    @property
    def _is_hidden(self) -> str:
        assert self.mask is not None
        if self.mask.dtype is DType.bool:
            return "not load_bool(mask_line, at)"
        return f"load_float32(mask_line, at * 4) < {_HIDING}"

    @property
    def _shift(self) -> str:
        """What the mask adds to scores at least, in sight; at most, where it hides. `left` keys are left."""
        assert self.mask is not None
        held = self._held(f", min({BLOCK}, left)")
        if self.mask.dtype is DType.bool:
            return f"select({held}, splat_float32(0.0), splat_float32({self._masked}))"
        return held

    def _write_bound(self) -> None:
        """No product of the band's queries and the span's keys is greater than `bound` (Cauchy and Schwarz). It is no number, or
        infinite, where there are such queries, keys or values: then nothing counts as hidden."""
        write = self.write
        for name, rows, first, step, length in (
            ("queries", "rows", "queries_at", str(self.layout.query_row), self.depth),
            ("keys", "length", f"k + key * {self._step('k')}", self._step("k"), self.depth),
            ("values", "length", f"v + key * {self._step('v')}", self._step("v"), self.width),
        ):
            squares = [f"square_of_{name}_{at}" for at in range(0, length, BLOCK)]
            write(*(f"{square} = splat_float32(0.0)" for square in squares))
            with write.block(f"for row in range({rows})"):
                write(f"source = {first} + row * {step}")
                for at, square in zip(range(0, length, BLOCK), squares, strict=True):
                    write(f"part_of_row = vload_float32(source, {4 * at}{self._lanes(at, length)})")
                    write(f"{square} = {square} + part_of_row * part_of_row")
            write(f"squares_of_{name} = horizontal_sum({' + '.join(squares)})")
        write("norms = sqrt(squares_of_queries) * sqrt(squares_of_keys)")
        write("bound = norms * 1.01 + squares_of_values * 0.0")

    def _write_limit(self) -> None:
        """Scores that the mask puts below `limit` have no weight, since the query's greatest score is `least` at least: that
        of an earlier span, or one of this span's first keys."""
        write = self.write
        write("at = 0", "left = length", f"shift = {self._shift}")
        write("least = horizontal_maximum(select(inside(left), shift, splat_float32(-math.inf))) - bound")
        write("known = convert_float64(load_float32(peaks, row * 4))", "least = select(known > least, known, least)")
        write(f"limit = least - absolute(least) * 0.000001 - bound - {_VANISHING}")
