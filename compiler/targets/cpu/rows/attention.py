"""Attention in one kernel: softmax(q kᵀ scale + mask) v without a matrix of scores in memory.

The work is cut into units: a matrix of the batch (a head), and a band of queries. Keys are taken in spans that fit L1 and
L2. For each span the scores of a tile of queries are computed (keys transposed into panels, as in `products/gemm.py`), become
exponentials relative to the greatest score so far, and multiply the values; the sums of earlier spans are rescaled
when a greater score appears (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A band of very
few queries, as in decoding, multiplies rows instead, which reads keys and values once and transposes nothing.

Keys and values may each be joined from two tensors, those of earlier tokens and new ones: rows are read where they lie, so that
a cache is not copied for every token. Spans and sums are those of joined ones, and so are the bits.

The last keys of a span that a mask hides from all queries of a tile, as causal masks do, are left out where that gives the
same bits: where their weights come out as 0, and 0 times their values is 0.

Scratch memory of a unit, in bytes from `scratch`: see `Layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.expression import literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..products.tile import BLOCK, VECTOR_BYTES, Tile, write_start, write_step
from ..target import Target
from .attention_operands import LEAST, SPAN, operands_of
from .attention_packing import Packing

_GROUP = 4096  # scores that a group of tiles has, in L1
_HIDING = -1000.0  # a mask's value from which on it is worth looking which keys are hidden
_ONES = 0x3F803F80  # two ones of bfloat16
_VANISHING = 120.0  # so far below the greatest score, a weight comes out as 0


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of attention of float32 rows of known length that are contiguous: alone in its definition, or behind what
    joins two tensors along the keys, each of which may have been transposed, or be the first rows of another."""
    operands = operands_of(definition)
    if operands is None:
        return None
    attention = _Attention(definition, operands, target)
    return attention.kernel if attention.is_possible else None


class _Attention(Packing):
    """Writes one attention."""

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.definition, self.target, "attention")
        write.lanes = BLOCK
        self._write_sizes()
        scores = dims.product([*self.batch, self.queries, self.keys])
        work = f"matrices * queries * keys * {self.depth + self.width} // {costs.ATTENTION_MACS}"
        write(f"matrices = {' * '.join(f'batch_{axis}' for axis in range(len(self.batch))) or '1'}")
        write(
            f"bands = max(1, (queries + {self.layout.rows - 1}) // {self.layout.rows})",
            "band = (queries + bands - 1) // bands",
        )
        write.split("matrices * bands", work)
        self._write_units()
        nanoseconds = estimate(scores) * (self.depth + self.width) / costs.ATTENTION_MACS
        return write.kernel(nanoseconds, sum(self.layout.parts.values()))

    def _write_units(self) -> None:
        """Each unit knows the next one's position, to prefetch its operands, and which keys are transposed already (`turned`), of
        all numbered ones (`held`)."""
        write, names = self.write, [*self.tensors, *self.masks]
        write("next_begin = 0", "matrix = 0", "turned = -1", *(f"next_{name} = {name}_at" for name in names))
        with write.block("for unit in range(first - 1, last)"):
            write("begin = next_begin", *(f"{name} = next_{name}" for name in names))
            write(f"held = matrix // {self.attributes['repeat']}" if self.attributes["repeat"] > 1 else "held = matrix")
            self._write_next()
            with write.block("if unit >= first"):
                self._write_unit()

    def _write_next(self) -> None:
        """The addresses of the next unit's operands; of the last one's, if there is no next."""
        write, row = self.write, len(self.batch)
        write("following = min(unit + 1, last - 1)", "matrix = following // bands")
        write("next_begin = (following - matrix * bands) * band")
        rest = "matrix"
        for axis in reversed(range(row)):
            write(f"at_{axis} = {rest} % batch_{axis}", f"rest_{axis} = {rest} // batch_{axis}")
            rest = f"rest_{axis}"
        if self.attributes["repeat"] > 1:
            write(f"shared = at_{row - 1} // {self.attributes['repeat']}")
        for name in self.tensors:
            places = [f"at_{axis}" for axis in range(row)]
            if name[0] in "kv" and self.attributes["repeat"] > 1:
                places[-1] = "shared"
            terms = [f"{place} * {name}_step_{axis}" for axis, place in enumerate(places)]
            terms += [f"next_begin * {name}_step_{row}"] if name in ("q", "out") else []
            write(" + ".join([f"next_{name} = {name}_at", *terms]))
        for name, type_ in self.masks.items():
            first = row + 2 - type_.rank
            terms = [f"{place} * {name}_step_{axis}" for axis, place in self._mask_places() if axis >= first]
            write(" + ".join([f"next_{name} = {name}_at", *terms]))

    def _write_unit(self) -> None:
        self.write("rows = min(band, queries - begin)")
        if not self.is_narrow:
            self._write_queries(is_narrow=False)
        if isinstance(self.queries, int):
            (self._write_rows if self.queries < costs.ATTENTION_TILED else self._write_tiles)()
            return
        with self.write.block(f"if rows < {costs.ATTENTION_TILED}"):
            self._write_rows()
        with self.write.block("else"):
            self._write_tiles()

    def _mask_places(self) -> list[tuple[int, str]]:
        return [*((axis, f"at_{axis}") for axis in range(len(self.batch))), (len(self.batch), "next_begin")]

    # ---- few queries: row by row ----

    def _each_row(self, name: str) -> Iterator[None]:
        """A loop over a span's rows, whose body the caller writes. Of what is joined two of them: a choice for each row would
        take a sixth of the time."""
        if name not in self.joined:
            with self.write.block("for at in range(count)"):
                self.write(f"source = {self._row(name, 'key + at')}")
                yield
            return
        self.write(f"earlier = min(count, max(0, {name}_first - key))")
        with self.write.block("for at in range(earlier)"):
            self.write(f"source = {name} + (key + at) * {self._step(name)}")
            yield
        with self.write.block("for at in range(earlier, count)"):
            self.write(f"source = {name}_more + (key + at - {name}_first) * {self._step(f'{name}_more')}")
            yield

    def _write_rows(self) -> None:
        """In float32, whatever tiles have: rows that are read once take no less time as bfloat16."""
        write = self.write
        if self.is_narrow:
            self._write_queries(is_narrow=False)
        depths, widths = range(0, self.depth, BLOCK), range(0, self.width, BLOCK)
        with write.block("for row in range(rows)"):
            for at in depths:
                write(f"q_{at} = vload_float32(queries_at + row * {self.layout.query_row}, {4 * at})")
            write(*(f"sum_{at} = splat_float32(0.0)" for at in widths))
            write(f"peak = splat_float32({LEAST})", "total = splat_float32(0.0)", "scores_at = scores")
            with write.block(f"for key in range(0, keys, {SPAN})"):
                write(f"count = min({SPAN}, keys - key)")
                for _ in self._each_row("k"):
                    terms = [f"q_{at} * vload_float32(source, {4 * at}{self._lanes(at, self.depth)})" for at in depths]
                    write(f"store_float32(scores, at * 4, horizontal_sum({' + '.join(terms)}))")
                self._write_greatest()
                write("known = peak", "peak = splat_float32(horizontal_maximum(most))")
                self._write_factor()
                write(*(f"sum_{at} = sum_{at} * factor" for at in widths), "total = total * factor")
                self._write_weights(is_narrow=False)
                for _ in self._each_row("v"):
                    write("weight = splat_float32(load_float32(scores, at * 4))")
                    for at in widths:
                        value = f"vload_float32(source, {4 * at}{self._lanes(at, self.width)})"
                        write(f"sum_{at} = sum_{at} + weight * {value}")
            write("norm = splat_float32(1.0 / horizontal_sum(total) if keys > 0 else 0.0)")
            for at in widths:
                place = f"out + row * {self._step('out')}, {4 * at}"
                write(f"vstore({place}, {self._normal(f'sum_{at}')}{self._lanes(at, self.width)})")

    def _write_greatest(self) -> None:
        """Masks a row of scores; `most` is the greatest, lane by lane. Scores beyond the last key are -∞."""
        write = self.write
        write(f"most = splat_float32({LEAST})")
        if self.mask is not None:
            self._write_mask_line("row")
        with write.block(f"for at in range(0, count, {BLOCK})"):
            write("left = count - at", "score = vload_float32(scores, at * 4)")
            if self.mask is not None:
                write(f"score = {self._masked_score('score', 'at', ', left')}")
            write("score = select(inside(left), score, splat_float32(-math.inf))", "vstore(scores, at * 4, score)")
            write("most = select(score > most, score, most)")

    # ---- many: tile by tile ----

    def _write_tiles(self) -> None:
        write, layout = self.write, self.layout
        if self.is_narrow:
            self._write_queries(is_narrow=True)
        if not self.is_online:
            write("key = 0", "length = keys")
            self._write_span()
            return
        with write.block("for row in range(rows)"):
            write(f"vstore(peaks, row * {VECTOR_BYTES}, splat_float32({LEAST}))")
            write(f"vstore(totals, row * {VECTOR_BYTES}, splat_float32(0.0))")
            for at in range(0, layout.sum_row, VECTOR_BYTES):
                write(f"vstore(sums, row * {layout.sum_row} + {at}, splat_float32(0.0))")
        with write.block(f"for key in range(0, keys, {SPAN})"):
            write(f"length = min({SPAN}, keys - key)")
            self._write_span()
        with write.block("if keys == 0"), write.block("for row in range(rows)"):
            for at in range(0, self.width, BLOCK):
                ending = self._lanes(at, self.width)
                write(f"vstore(out + row * {self._step('out')}, {4 * at}, splat_float32(0.0){ending})")

    def _write_span(self) -> None:
        """A span of keys, by groups of tiles: first all scores of a group, then all exponentials, then all sums of values. The
        dependency chains of the rows' exponentials then overlap."""
        write, step = self.write, self.tile.rows
        if self.is_online:
            write(f"turned = turned if keys <= {SPAN} else -1")
        write(f"group_rows = min({self.layout.group}, max(1, {_GROUP // step} // length) * {step})")
        if self.may_hide:
            write("bound = -1.0")
        with write.block("for group in range(0, rows, group_rows)"):
            write("group_end = min(group + group_rows, rows)")
            with write.block(f"for top in range(group, group_end, {step})"):
                self._write_place()
                self._fetch_queries()
                self._write_scores()
            self._write_exponentials()
            with write.block(f"for top in range(group, group_end, {step})"):
                self._write_place()
                self._fetch_keys()
                self._write_sums()

    def _fetch_queries(self) -> None:
        """Prefetches the next unit's rows of the tile's numbers: of its queries, its result and its mask."""
        if self.is_online:
            return
        write = self.write
        with write.block("for row in range(top, top + lines)"):
            self._fetch("q", self.depth)
            self._fetch("out", self.width)
            for name, type_ in self.masks.items():
                if type_.rank > 1 and 1 not in shape_of(type_)[-2:]:
                    write(f"source = next_{name} + row * {self._mask_step(name, len(self.batch))}")
                    with write.block(f"for at in range(0, keys * {type_.dtype.itemsize}, {VECTOR_BYTES})"):
                        write("prefetch(source, at)")

    def _fetch_keys(self) -> None:
        """The same for its keys and values, as far as they go."""
        if self.is_online:
            return
        with self.write.block("for row in range(top, min(top + lines, keys))"):
            self._fetch("k", self.depth)
            self._fetch("v", self.width)

    def _fetch(self, name: str, length: int) -> None:
        """Prefetches a row of an operand of the next unit."""
        self.write(f"source = next_{name} + row * {self._step(name)}")
        self.write(*(f"prefetch(source, {at})" for at in range(0, 4 * length, VECTOR_BYTES)))

    def _write_place(self) -> None:
        """Defines a tile that begins at `top`: its number of rows, its place in the group, and the address of its scores."""
        self.write(f"lines = min({self.tile.rows}, group_end - top)", "place = top - group")
        self.write(f"scores_at = scores + place * {self.layout.score_row}")

    def _write_scores(self) -> None:
        """The tile's products with the span's keys, masked, and the greatest of each row, without lanes beyond the last
        key."""
        write, tile = self.write, self.tile
        write("count = length")
        if self.may_hide:
            self._write_seen()
            with write.block("for line in range(lines)"):
                write("store_int64(counts, (place + line) * 8, count)")
        with write.block("if turned != held and count > 0"):
            self._write_panels()
            self._write_values()
            write("turned = held")
        write(
            "x_step = 4",
            f"x_row = {self.layout.query_row}",
            f"w_step = {VECTOR_BYTES}",
            f"w_block = {VECTOR_BYTES * self.layout.lanes}",
        )
        blocks = f"(count + {BLOCK - 1}) // {BLOCK}"
        if self.is_narrow:  # weights are rounded by two blocks
            blocks = f"(count + {2 * BLOCK - 1}) // {2 * BLOCK} * 2"
        write(f"blocks = {blocks}", f"greatest_at = greatest + place * {VECTOR_BYTES}")
        for line in range(tile.rows):
            write(f"vstore(greatest_at, {line * VECTOR_BYTES}, splat_float32({LEAST}))")
        with write.block(f"for block in range(0, blocks - blocks % {tile.blocks}, {tile.blocks})"):
            self._write_score(tile)
        if (
            tile.blocks > 1
            and not self.is_narrow
            and (self.may_hide or not isinstance(self.keys, int) or -(-self.keys // BLOCK) % tile.blocks)
        ):
            with write.block(f"for block in range(blocks - blocks % {tile.blocks}, blocks)"):
                self._write_score(tile.single())

    def _write_score(self, tile: Tile) -> None:
        """The tile's products with the keys of its blocks."""
        write, layout = self.write, self.layout
        write(f"x = queries_at + top * {layout.query_row}", "w = panels + block * w_block")
        write_start(write, tile)
        with write.block(f"for step in range({self.layout.lanes})"):
            write_step(write, tile, self.target, lines=0)
        write(f"at = block * {BLOCK}", f"score_at = scores_at + block * {VECTOR_BYTES}")
        if self.has_rest:
            for j in range(tile.blocks):
                write(f"left_{j} = count - at - {j * BLOCK}", f"is_key_{j} = inside(left_{j})")
        for i in range(tile.rows):
            if self.mask is not None:
                self._write_mask_line(f"(top + min({i}, lines - 1))")
            write(f"most = vload_float32(greatest_at, {i * VECTOR_BYTES})")
            for j in range(tile.blocks):
                self._write_masked(tile.accumulator(i, j), j)
                write(f"vstore(score_at, {i * layout.score_row + j * VECTOR_BYTES}, score)")
                write("most = select(score > most, score, most)")
            write(f"vstore(greatest_at, {i * VECTOR_BYTES}, most)")

    def _write_masked(self, total: str, block: int) -> None:
        """Turns sums of products into the scores of a block of keys."""
        ending = f", left_{block}" if self.has_rest else ""
        if self.mask is not None:
            total = self._masked_score(total, f"(at + {block * BLOCK})" if block else "at", ending)
        if self.has_rest:
            total = f"select(is_key_{block}, {total}, splat_float32(-math.inf))"
        self.write(f"score = {total}")

    def _write_sums(self) -> None:
        """Adds the tile's products with the span's values to the sums; in the end, stores them."""
        write, tile, blocks = self.write, self.tile, -(-self.width // BLOCK)
        if self.may_hide:
            write("count = load_int64(counts, place * 8)")
        write(f"x_row = {self.layout.score_row}", f"w_step = {self.layout.sum_row}", f"w_block = {VECTOR_BYTES}")
        whole = blocks - blocks % tile.blocks
        if whole:
            with write.block(f"for block in range(0, {whole}, {tile.blocks})"):
                self._write_sum(tile)
        if whole < blocks:
            with write.block(f"for block in range({whole}, {blocks})"):
                self._write_sum(tile.single())

    def _write_sum(self, tile: Tile) -> None:
        write, layout = self.write, self.layout
        write(f"w = values + block * {VECTOR_BYTES}", "x = scores_at")
        write(f"sum = sums + top * {layout.sum_row} + block * {VECTOR_BYTES}")
        if self.is_online:
            for i in range(tile.rows):
                write(f"factor = vload_float32(factors, (place + {i}) * {VECTOR_BYTES})")
                for j in range(tile.blocks):
                    at = i * layout.sum_row + j * VECTOR_BYTES
                    write(f"{tile.accumulator(i, j)} = vload_float32(sum, {at}) * factor")
        else:
            write_start(write, tile)
        with write.block("for step in range((count + 1) // 2)" if self.is_narrow else "for step in range(count)"):
            write_step(write, tile, self.target, lines=0)
        if not self.is_online:
            self._write_result(tile)
            return
        with write.block(f"if key + {SPAN} < keys"):
            for i in range(tile.rows):
                for j in range(tile.blocks):
                    write(f"vstore(sum, {i * layout.sum_row + j * VECTOR_BYTES}, {tile.accumulator(i, j)})")
        with write.block("else"):
            self._write_result(tile)

    def _write_result(self, tile: Tile) -> None:
        write = self.write
        write(f"target = out + top * {self._step('out')} + block * {VECTOR_BYTES}")
        for i in range(tile.rows):
            with write.block(f"if {i} < lines"):
                write(f"norm = vload_float32(norms, (place + {i}) * {VECTOR_BYTES})")
                for j in range(tile.blocks):
                    ending = f", {self.width} - (block + {j}) * {BLOCK}" if self.width % BLOCK else ""
                    at = f"{i} * {self._step('out')} + {j * VECTOR_BYTES}"
                    write(f"vstore(target, {at}, {self._normal(tile.accumulator(i, j))}{ending})")

    def _normal(self, total: str) -> str:
        """A sum of values, divided by the sum of their weights, whose reciprocal is the `norm`. If weights are NaN,
        that is NaN or infinite."""
        if self.attributes["nan_to_zero"]:
            return f"select(norm < splat_float32(math.inf), {total} * norm, splat_float32(0.0))"
        return f"{total} * norm"

    # ---- the softmax of a span ----

    def _write_exponentials(self) -> None:
        """Turns the group's scores into exponentials; notes the factors of earlier sums, and at the end those of the totals.

        Three passes over the rows, so that their dependency chains overlap.
        """
        write = self.write
        place = f"(row - group) * {VECTOR_BYTES}"
        with write.block("for row in range(group, group_end)"):
            write(f"peak = splat_float32(horizontal_maximum(vload_float32(greatest, {place})))")
            if self.is_online:
                write(f"known = vload_float32(peaks, row * {VECTOR_BYTES})")
                self._write_factor()
                write(f"vstore(peaks, row * {VECTOR_BYTES}, peak)", f"vstore(factors, {place}, factor)")
            write(f"vstore(greatest, {place}, peak)")
        with write.block("for row in range(group, group_end)"):
            write(f"scores_at = scores + (row - group) * {self.layout.score_row}")
            if self.may_hide:
                write("count = load_int64(counts, (row - group) * 8)")
            write(f"peak = vload_float32(greatest, {place})", "total = splat_float32(0.0)")
            if self.is_online:
                write(f"total = vload_float32(totals, row * {VECTOR_BYTES}) * vload_float32(factors, {place})")
            self._write_weights(self.is_narrow)
            write(f"vstore(totals, row * {VECTOR_BYTES}, total)")
        with write.block(f"for row in range(group, group_end if key + {SPAN} >= keys else group)"):
            write(f"total = vload_float32(totals, row * {VECTOR_BYTES})")
            write(f"vstore(norms, {place}, splat_float32(1.0 / horizontal_sum(total)))")

    def _write_factor(self) -> None:
        """The greatest score of a row so far (`known`: that of earlier spans), and the factor of the earlier sums."""
        self.write("peak = select(peak > known, peak, known)", "factor = weight_of(known - peak)")

    def _write_weights(self, is_narrow: bool) -> None:
        """Turns scores into exponentials, relative to the greatest, and adds them, as they are multiplied, to `total`."""
        write = self.write
        if not is_narrow:
            with write.block(f"for at in range(0, count, {BLOCK})"):
                write("weight = weight_of(vload_float32(scores_at, at * 4) - peak)")
                write("vstore(scores_at, at * 4, weight)", "total = total + weight")
            return
        with write.block(f"for at in range(0, count, {2 * BLOCK})"):
            first, second = (
                f"short_weight_of(vload_float32(scores_at, at * 4 + {offset}) - peak)" for offset in (0, VECTOR_BYTES)
            )
            write(f"rounded = bfloat16_pairs({first}, {second})", "vstore(scores_at, at * 2, rounded)")
            if self.precision.dot:
                write(f"total = {getattr(self.target, self.precision.dot)}(total, rounded, splat_int32({_ONES}))")
            else:
                write(*(f"total = total + {part}(rounded)" for part in self.precision.parts))

    # ---- the mask ----

    def _mask_step(self, name: str, axis: int) -> str:
        """The byte stride of a mask on one of the scores' axes."""
        return f"{name}_step_{axis}" if axis >= len(self.batch) + 2 - self.masks[name].rank else "0"

    def _write_mask_line(self, query: str) -> None:
        rows, columns = len(self.batch), len(self.batch) + 1
        for name in self.masks:
            steps = self._mask_step(name, rows), self._mask_step(name, columns)
            self.write(f"{name}_line = {name} + {query} * {steps[0]} + key * {steps[1]}")

    def _masked_score(self, score: str, place: str, ending: str) -> str:
        """The score of the keys from `place` on, as an expression."""
        assert self.mask is not None
        held = self._held("mask", place, ending)
        if self.mask.dtype is not DType.bool:
            return f"{score} + {held}"
        bias = f" + {self._held('bias', place, ending)}" if "bias" in self.masks else ""
        before, behind = ("", bias) if self.attributes["bias_last"] else (bias, "")
        return f"select({held}, {score}{before}, splat_float32({self._masked})){behind}"

    def _held(self, name: str, place: str, ending: str) -> str:
        """A mask's vector from `place` on."""
        type_ = self.masks[name]
        dtype = type_.dtype
        if type_.rank and type_.shape[-1] != 1:
            return f"vload_{dtype.name}({name}_line, {place} * {dtype.itemsize}{ending})"
        return f"splat_{dtype.name}(load_{dtype.name}({name}_line, 0))"

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
        """Sets `count` to the number of the span's keys without the trailing ones that are hidden from the whole tile.

        Most masks show the last keys to the last query, or show that they hide nothing: these cost one check. The last
        query of causal masks sees most, so that the others' keys need not be searched.
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
        """A bound of the masks' addition to scores: least for visible keys, greatest for hidden ones. `left` keys are left."""
        assert self.mask is not None
        ending = f", min({BLOCK}, left)"
        if self.mask.dtype is DType.bool:
            return self._masked_score("splat_float32(0.0)", "at", ending)
        return self._held("mask", "at", ending)

    def _write_bound(self) -> None:
        """No product of the band's queries and the span's keys is greater than `bound` (Cauchy-Schwarz). It is NaN, or
        infinite, where there are such queries, keys or values: then nothing counts as hidden."""
        write, scale = self.write, abs(self.attributes["scale"]) if self.is_narrow else 1.0
        queries = f"q + row * {self._step('q')}" if self.is_narrow else f"queries_at + row * {self.layout.query_row}"
        for name, rows, source, length in (
            ("queries", "rows", queries, self.depth),
            ("keys", "length", self._row_of_span("k"), self.depth),
            ("values", "length", self._row_of_span("v"), self.width),
        ):
            squares = [f"square_of_{name}_{at}" for at in range(0, length, BLOCK)]
            write(*(f"{square} = splat_float32(0.0)" for square in squares))
            with write.block(f"for row in range({rows})"):
                write(f"source = {source}")
                for at, square in zip(range(0, length, BLOCK), squares, strict=True):
                    write(f"part_of_row = vload_float32(source, {4 * at}{self._lanes(at, length)})")
                    write(f"{square} = {square} + part_of_row * part_of_row")
            write(f"squares_of_{name} = horizontal_sum({' + '.join(squares)})")
        write(f"product = sqrt(squares_of_queries) * sqrt(squares_of_keys){f' * {scale}' if self.is_narrow else ''}")
        write("bound = product * 1.01 + squares_of_values * 0.0")

    def _row_of_span(self, name: str) -> str:
        """Of a tensor of its own, from the span's begin on."""
        step = self._step(name)
        return self._row(name, "key + row") if name in self.joined else f"{name} + key * {step} + row * {step}"

    def _write_limit(self) -> None:
        """Scores that the mask puts below `limit` have weight 0, since the query's greatest score is at least `least`: that
        of an earlier span, or one of this span's first keys."""
        write = self.write
        write("at = 0", "left = length", f"shift = {self._shift}")
        write("least = horizontal_maximum(select(inside(left), shift, splat_float32(-math.inf))) - bound")
        if self.is_online:
            write(f"before = convert_float64(load_float32(peaks, row * {VECTOR_BYTES}))")
            write("least = select(before > least, before, least)")
        write(f"limit = least - absolute(least) * 0.000001 - bound - {_VANISHING}")
