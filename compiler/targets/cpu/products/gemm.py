"""GEMM in float32: batched and broadcast, any size, operands transposed or packed, with an elementwise epilogue. Also
8-bit integers times packed ones, as words of four neighbours along the sum (`tile.py`), which has a quarter of the steps.

Rows of the result are broadcast elements of `a`, columns are vectors of `b`; see `tile.py`. Where b is packed, or has contiguous
rows and is small or used by few rows, it is read in place. Else a stripe of it, the blocks of columns that fill half of L2,
is first copied to the scratch memory as panels [depth, 16], transposed if b is. Rows of `a` that would fall
into the same few sets of L1 are copied, too.

The work is cut into units: a matrix of the batch, a band of rows, and blocks of columns, the last varying fastest, so that a
band of `a` stays in L2 while b streams by; or, where b is copied, a stripe and a band, the band varying fastest,
so that a thread copies a stripe once. Short sums are bound by stores: a unit is then a band of whole rows, tile by
tile along the columns, so that the result is written sequentially. Long sums are made chunk by chunk, for all
rows of the band before the next chunk: a chunk of b then stays in L1, and if b comes from memory, no thread
waits for more than a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel, even_pieces
from ..kernels.writer import Writer, estimate, leaves_cache, shape_of
from ..target import Target
from .amx import BANDS, BLOCKS, ROWS, SCRATCH_BYTES, AmxSums
from .dequantized import Numbers
from .epilogue import Epilogue, Grid, merged_shape
from .few_rows import FewRows
from .precision import FLOAT32, WORDS, Precision
from .tile import (
    BLOCK,
    CHUNK,
    VECTOR_BYTES,
    Tile,
    choose,
    chunk_of,
    rounds,
    symbolic_tiles,
    write_chunks,
    write_ends,
    write_scaled,
    write_start,
    write_step,
)
from .widened import HALVES, WidenedPanels

_SYMBOLIC_ROWS = (8, 4, 1)  # rows of the tiles of which a kernel makes any number of rows
_WIDEST = 2  # blocks of a tile where results leave L2: three are up to a twentieth slower
_SYMBOLIC_STEP = 4  # bands of such multiples of rows leave few rows to be computed twice
_ROWS_AHEAD = 16  # that are fetched while rows of b are copied
_STRIP_TILES = 32  # of which the sums are gathered at a time


_Rows = Callable[[Sequence[Tile], str], None]  # writes the rows of tiles; of the last block only the given columns

PACKED = ("matmul_packed", "matmul_integer_packed", "matmul_bfloat16_packed", "matmul_int8_packed")
_PACKED = frozenset({*PACKED, "matmul_dequantized"})


class _Panels(Enum):
    """The source of b's vectors."""

    PACKED = "packed"  # packed into panels by the compiler
    UNPACKED = "unpacked"  # dequantised from packed panels, a chunk at a time
    DIRECT = "direct"  # in place, from contiguous rows
    COPIED = "copied"
    TURNED = "turned"  # transposed from contiguous columns


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The template of matmul, matmul_packed, matmul_transposed and matmul_integer_packed."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found):
        return None
    operands = [definition.values[number] for number in found.node.inputs[:2]]
    if any(type_.rank < 2 for type_ in operands) or not found.takes_parameters:
        return None
    precision = Precision.of(found)
    if precision is None or (found.node.operator not in _PACKED and precision != FLOAT32):
        return None
    product = _Product(found, target, precision)
    return product.kernel if product.is_possible else None


class _Product:
    """Writes one matrix product."""

    def __init__(self, found: Anchored, target: Target, precision: Precision) -> None:
        self.found, self.target, self.node = found, target, found.node
        a, b = (shape_of(found.definition.values[number]) for number in self.node.inputs[:2])
        result = shape_of(found.definition.values[found.number])
        self.is_packed = self.node.operator in _PACKED
        self.turns_a = bool(found.attributes.get("transpose_a"))
        self.turns_b = bool(found.attributes.get("transpose_b"))
        self.numbers: Numbers | WidenedPanels | None = Numbers.of(found)
        self.depth = (
            self.numbers.depth if self.numbers else b[1] if self.is_packed else a[-2] if self.turns_a else a[-1]
        )
        self.facts = precision.facts
        if self.facts and isinstance(self.depth, int):
            self.depth -= self.facts
        self.columns = result[-1]
        self.a_batch, self.b_batch, self.batch = a[:-2], () if self.is_packed else b[:-2], result[:-2]
        self.rows = result[-2]
        self.merged = self._merged()
        if self.merged > 1:
            self.rows = dims.product(result[:-1])
            self.a_batch, self.b_batch, self.batch = (), (), ()
        self.widened = WidenedPanels.of(found, self.rows, target) if self.is_packed else None
        if self.widened:
            self.numbers, self.depth, precision = self.widened, self.widened.depth, replace(WORDS, facts=self.facts)
        self.panels = self._choose_panels()
        if not self.is_possible:
            return
        precision = precision.unpacked if self.numbers and not self.widened else precision.on(target, self._is_even)
        self.amx = AmxSums.of(precision, self.depth, target) if self.panels is _Panels.PACKED else None
        if self.amx:
            self.tiles = [Tile(BANDS * ROWS, min(BLOCKS, max(1, -(-estimate(self.columns) // BLOCK))), precision)]
        else:
            self.tiles = [replace(tile, precision=precision) for tile in self._choose_tiles(bool(precision.square))]
        self.blocks = self.tiles[0].blocks
        self.copies_rows = self._is_copying_rows()
        self.band = self._band()

    @property
    def is_flat(self) -> bool:
        """Whether a unit has all columns of its rows: sums are short, and columns more than a tile's."""
        is_shallow = isinstance(self.depth, int) and self.depth <= costs.GEMM_SHALLOW
        is_plain = not self.copies_panels and not self.numbers and not self.amx
        return is_shallow and is_plain and estimate(self.columns) > BLOCK * self.blocks

    @property
    def copies_panels(self) -> bool:
        return self.panels in (_Panels.COPIED, _Panels.TURNED)

    @property
    def is_possible(self) -> bool:
        """Whether sizes are known where needed: the depth of transposed panels, of packed integers, and before facts."""
        if self.numbers and self.found.attributes.get("int8_rows"):
            return False
        return not (self.panels is _Panels.TURNED or self.numbers or self.facts) or isinstance(self.depth, int)

    @property
    def _is_even(self) -> bool:
        """Whether sums are of an even number of words of packed panels."""
        return self.panels is _Panels.PACKED and isinstance(self.depth, int) and self.depth % 2 == 0

    def _merged(self) -> int:
        """The number of leading axes of the result that merge: all but the last if b is one matrix and no operand of the
        epilogue prevents it, else 1 (none)."""
        definition, result = self.found.definition, self.found.definition.values[self.found.number]
        count = result.rank - 1
        if self.turns_a or any(dim != 1 for dim in self.b_batch):
            return 1
        operands = [definition.values[number] for number in self.found.epilogue.inputs]
        return count if all(merged_shape(type_, result, count) is not None for type_ in operands) else 1

    def _choose_panels(self) -> _Panels:
        if self.is_packed:
            return _Panels.UNPACKED if self.numbers else _Panels.PACKED
        if self.turns_b:
            return _Panels.TURNED
        if not isinstance(self.rows, int) or not isinstance(self.depth, int):
            return _Panels.DIRECT
        if self.rows <= costs.GEMM_FEW_ROWS or self.depth <= costs.GEMM_SHALLOW:
            return _Panels.DIRECT
        is_apart = not isinstance(self.columns, int) or 4 * self.columns % costs.HALF_WAY_BYTES == 0
        is_large = 4 * self.depth * estimate(self.columns) > self.target.l2_bytes // 4
        return _Panels.COPIED if is_apart or (is_large and self.rows >= costs.GEMM_MANY_ROWS) else _Panels.DIRECT

    def _choose_tiles(self, is_square: bool) -> list[Tile]:
        """The single tile for known rows; else tiles of decreasing size, each for the rest that the previous ones leave."""
        blocks = max(1, -(-estimate(self.columns) // BLOCK))
        if isinstance(self.rows, int):
            widest = _WIDEST if self._is_large else None
            is_apart = self.rows > costs.GEMM_FEW_ROWS and not self.turns_a
            apart = {"is_apart": is_apart, "is_square": is_square}
            return [choose(max(1, self.rows), blocks, self.target, widest=widest, **apart)]
        pair = 2 * 3  # blocks of two threads' tiles
        width = 3 if -(-blocks // pair) * pair <= costs.UNEVEN_TILES * blocks else min(2, blocks)
        return symbolic_tiles(_SYMBOLIC_ROWS, width, self.target)

    def _is_copying_rows(self) -> bool:
        """Whether more of a tile's rows fall into the same L1 sets than these hold, and many columns use them."""
        if self.widened or self.amx:
            return bool(self.widened)
        ways = self.target.l1_bytes // costs.WAY_BYTES
        if self.turns_a or self.copies_panels or not isinstance(self.depth, int) or self.tiles[0].rows <= 2 * ways // 3:
            return False
        # number of L1 sets that rows fall into; they use none of the others
        sets = costs.WAY_BYTES // max(VECTOR_BYTES, math.gcd(4 * (self.depth + self.facts), costs.WAY_BYTES))
        return self.tiles[0].rows > 2 * ways // 3 * sets and estimate(self.columns) >= 8 * BLOCK

    def _band(self) -> int:
        """Tiles of a band: the most, or fewer that threads share evenly."""
        most = self._most_tiles
        if not isinstance(self.rows, int):
            return most
        count = max(1, -(-self.rows // self.tiles[0].rows))
        columns = BLOCK * (self.stripe if self.copies_panels else self.blocks)
        groups = 1 if self.is_flat else -(-estimate(self.columns) // columns)
        others = max(1, estimate(dims.product(self.batch)) * groups)
        return -(-count // even_pieces(count, -(-count // most), others))

    @property
    def _most_tiles(self) -> int:
        """The most tiles of a band: they fill most of L2, since each band reads b anew; half of it where the result goes
        through it too, or a quarter beside panels of b."""
        quarters = 1 if self.copies_panels else 2 if self._is_large else 3
        rows = self.target.l2_bytes * quarters // 4 // max(1, 4 * estimate(self.depth))
        return max(1, rows // self.tiles[0].rows)

    @property
    def stripe(self) -> int:
        """Blocks whose panels are copied at a time: they fill half of L2, since rows of a band are read once
        for all of them. If all rows stay in L2, only a few, which are still in L1 when used."""
        has_bands = not isinstance(self.rows, int) or self.rows > self._most_tiles * self.tiles[0].rows
        space = self.target.l2_bytes // (2 if has_bands else 8)
        most = max(1, space // max(1, VECTOR_BYTES * self.blocks * self._copied_depth))
        if isinstance(self.columns, int):
            most = min(most, max(1, -(-self.columns // (BLOCK * self.blocks))))
        return most * self.blocks

    @property
    def gathers(self) -> bool:
        """Whether sums are accumulated in scratch, chunk by chunk for all tiles: the chunk of b then
        stays in L1, and a unit's first tiles need not wait for all of its weights.

        Not where results leave L2: all stores would come with the last chunk."""
        return self.panels is _Panels.UNPACKED or (self._chunk > 0 and not self._is_large)

    @property
    def strip(self) -> int:
        """Rows whose sums are gathered at a time: those of a band, at most as many as fit L2."""
        return self.tiles[0].rows * min(self.band, _STRIP_TILES)

    # ---- text ----

    def kernel(self) -> Kernel:
        write = self.write = Writer(self.found.definition, self.target, self.found.title)
        write.lanes = BLOCK
        self.one_row = FewRows(write, self.found, 1, self._chunk) if self._may_be_one_row else None
        self._write_sizes()
        self._write_steps()
        self._write_split()
        if self.one_row:
            self._write_one_row(self.one_row)
        if self.amx:
            write(f"height = max(min(rows, {ROWS}), 1)", f"amx = scratch + {self.epilogue.buffer_bytes}")
            self.amx.write_begin(write, "height")
        with write.block("for unit in range(first, last)"):
            self._write_unit()
        if self.amx:
            write("amx_end()")
        work = estimate(dims.product([*self.batch, self.rows, self.columns, self.depth])) / costs.GEMM_MACS
        traffic = 4 * estimate(dims.multiply(self.columns, self.depth)) / costs.COPIED_BYTES
        sums = self.one_row.scratch_bytes if self.one_row else 0
        return write.kernel(work + traffic, self._scratch_bytes + sums)

    @property
    def _may_be_one_row(self) -> bool:
        is_alone = bool(self.amx) and not self.tiles[0].precision.is_exact  # see amx.py
        return self.panels is _Panels.PACKED and not self.batch and not isinstance(self.rows, int) and not is_alone

    def _write_one_row(self, one_row: FewRows) -> None:
        """The one-row case: decoding, with the kernel that serves for the prompt too."""
        with self.write.block("if rows == 1"):
            self.write(f"sums = scratch + {self._scratch_bytes}")
            self.write.share("blocks")
            one_row.write_all(self.epilogue)
            self.write("return 0")

    def _write_sizes(self) -> None:
        write = self.write
        write.input("a_at", self.node.inputs[0])
        write.input("b_at", self.node.inputs[1])
        for axis, dim in enumerate(self.batch):
            write.size(f"batch_{axis}", dim)
        write.size("rows", self.rows)
        write.size("columns", self.columns)
        write.size("depth", self.depth)
        if self.numbers:
            self.numbers.write_sizes(write)
        write.size("band", self.band * self.tiles[0].rows)
        if self.gathers:
            write.size("strip", self.strip)
        if self.copies_panels:
            write.size("stripe", self.stripe)
        coordinates = [f"at_{axis}" for axis in range(len(self.batch))]
        if self.merged > 1:
            grid = Grid(("row", f"block * {BLOCK}"), 0, 1, BLOCK, self.merged)
        else:
            grid = Grid((*coordinates, "row", f"block * {BLOCK}"), len(coordinates), len(coordinates) + 1, BLOCK)
        self.epilogue = Epilogue(write, self.found, grid)

    def _write_steps(self) -> None:
        """Defines the distances in bytes that the tile expects."""
        write = self.write
        if self.copies_rows or self.copies_panels:
            write.prepare("copied")
        # a step of widened panels takes half a word of the bytes, and a whole one of the facts
        lane, facts = (4 // HALVES, HALVES * self.facts) if self.widened else (4, self.facts)
        pitch = f"(depth + {facts})" if facts else "depth"
        write("a_row = 4 * rows" if self.turns_a else f"a_row = {lane} * {pitch}")
        write(f"a_matrix = {lane} * rows * {pitch}", "b_matrix = 4 * depth * columns")
        if self.panels is _Panels.DIRECT:
            write(f"w_block = {VECTOR_BYTES}", "w_step = 4 * columns")
        elif self.panels is _Panels.UNPACKED:
            write(f"w_block = {CHUNK * VECTOR_BYTES}", f"w_step = {VECTOR_BYTES}")
            write(f"unpacked = scratch + {self._scratch_bytes - self._gathered_bytes - self._unpacked_bytes}")
        else:
            write(f"w_block = {self.tiles[0].w_bytes} * {pitch}", f"w_step = {self.tiles[0].w_bytes}")
        if self.turns_a:
            write("x_row = 4", "x_step = a_row")
        else:
            row = "4 * depth" if self.widened else "a_row"
            write(f"x_row = {row} + 64" if self.copies_rows else "x_row = a_row", "x_step = 4")
        if self.epilogue.buffer_bytes:
            write("buffer = scratch")
        if self.copies_panels:
            write(f"panels = scratch + {self.epilogue.buffer_bytes}")
        if self.copies_rows:
            write(f"apart = scratch + {self.epilogue.buffer_bytes + self._panel_bytes}")
        if self.gathers:
            write(f"gathered = scratch + {self._scratch_bytes - self._gathered_bytes}")

    def _write_split(self) -> None:
        write = self.write
        if not isinstance(self.rows, int):
            self._write_even_bands()
        write("bands = (rows + band - 1) // band")
        write(f"blocks = (columns + {BLOCK - 1}) // {BLOCK}", f"groups = (blocks + {self.blocks - 1}) // {self.blocks}")
        write("batch = " + (" * ".join(f"batch_{axis}" for axis in range(len(self.batch))) or "1"))
        work = f"batch * rows * columns * depth // {costs.GEMM_MACS} + b_matrix // {costs.COPIED_BYTES}"
        if self.copies_panels:
            write("stripes = (blocks + stripe - 1) // stripe")
        if self.is_flat:
            write("groups = 1")
            work += f" + batch * rows * columns * 4 // {costs.COPIED_BYTES}"
        write.split(f"batch * bands * {'stripes' if self.copies_panels else 'groups'}", work)

    def _write_even_bands(self) -> None:
        """Makes bands of about equal size, for threads to share; none shorter than the largest tile."""
        least, step = self.tiles[0].rows, min(_SYMBOLIC_STEP, self.tiles[0].rows)
        self.write("bands = max(1, (rows + band - 1) // band)", "even = (rows + bands - 1) // bands")
        self.write(f"band = min(band, max({least}, (even + {step - 1}) // {step} * {step}))")

    def _write_unit(self) -> None:
        write = self.write
        if self.copies_panels:
            write("place = unit // bands", "first_row = (unit - place * bands) * band")
            write("matrix = place // stripes", "first_block = (place - matrix * stripes) * stripe")
        else:
            write("place = unit // groups", f"block = (unit - place * groups) * {self.blocks}")
            write("matrix = place // bands", "first_row = (place - matrix * bands) * band")
        write("end_row = min(first_row + band, rows)")
        rest = "matrix"
        for axis in reversed(range(len(self.batch))):
            write(f"at_{axis} = {rest} % batch_{axis}", f"rest_{axis} = {rest} // batch_{axis}")
            rest = f"rest_{axis}"
        write(f"a = a_at{self._matrix_offset(self.a_batch, 'a_matrix')}")
        write(f"b = b_at{self._matrix_offset(self.b_batch, 'b_matrix')}")
        if self.copies_rows:
            self._write_copied_rows()
        if self.is_flat:
            write("strip_row = first_row", "last_row = end_row")
            self._write_strip(self.tiles, self._write_tile_row)
            return
        if not self.copies_panels:
            write("w_unit = b + block * w_block")
            self._write_tiles(self.tiles, self._write_rows)
            return
        write("end_block = min(first_block + stripe, blocks)")
        with write.block("if place != copied"):
            write("copied = place")
            self._write_panels()
        with write.block(f"for block in range(first_block, end_block, {self.blocks})"):
            write("w_unit = panels + (block - first_block) * w_block")
            self._write_tiles(self.tiles, self._write_rows)

    def _matrix_offset(self, shape: Sequence[Dim], matrix: str) -> str:
        """The byte offset from an operand's first matrix to the unit's."""
        terms, steps = [], [matrix]
        missing = len(self.batch) - len(shape)
        for axis in reversed(range(len(shape))):
            if shape[axis] != 1:
                terms.append(" * ".join([f"at_{axis + missing}", *steps]))
                steps.append(f"batch_{axis + missing}")
        return "".join(f" + {term}" for term in terms)

    def _write_copied_rows(self) -> None:
        """Copies the band's rows to scratch, with those before it that its last tile may overlap."""
        write = self.write
        write(f"first_copy = max(0, min(first_row, end_row - {self.tiles[0].rows}))")
        with write.block("if place != copied"):
            write("copied = place")
            with write.block("for row in range(first_copy, end_row)"):
                write("source = a + row * a_row", "target = apart + (row - first_copy) * x_row")
                if self.widened:
                    self.widened.write_row(write)
                else:  # depth is a multiple of BLOCK, or rows are not copied
                    with write.block(f"for at in range(0, depth, {BLOCK})"):
                        write("vstore(target, at * 4, vload_uint32(source, at * 4))")
        write("a = apart - first_copy * x_row")

    def _write_panels(self) -> None:
        """Packs the stripe's blocks of b into scratch. Lanes beyond the last column are undefined."""
        write = self.write
        if self.panels is _Panels.TURNED:
            self._write_turned_panels()
            return
        write(f"whole = min(end_block, columns // {BLOCK})")
        with write.block("for step in range(depth)"):
            write(f"source = b + step * columns * 4 + first_block * {VECTOR_BYTES}", "target = panels + step * w_step")
            with write.block("for block in range(first_block, whole)"):
                write(f"prefetch(source, {_ROWS_AHEAD} * columns * 4)")
                write("vstore(target, 0, vload_float32(source, 0))")
                write(f"source += {VECTOR_BYTES}", "target += w_block")
            with write.block("if whole < end_block"):
                write(f"vstore(target, 0, vload_float32(source, 0, columns - whole * {BLOCK}))")

    def _write_turned_panels(self) -> None:
        write = self.write
        with write.block("for block in range(first_block, end_block)"):
            write(
                f"count = min({BLOCK}, columns - block * {BLOCK})", "target = panels + (block - first_block) * w_block"
            )
            write(f"source = b + block * {BLOCK} * depth * 4", "source_step = depth * 4")
            with write.block(f"for step in range(0, depth, {BLOCK})"):
                write("from_square = source + step * 4", f"to_square = target + step * {VECTOR_BYTES}")
                write(f"steps = min({BLOCK}, depth - step)")
                write(f"transpose_uint32(from_square, source_step, to_square, {VECTOR_BYTES}, count, steps)")

    def _write_tiles(self, tiles: Sequence[Tile], write_rows: _Rows) -> None:
        """The blocks from `block` on, in tiles; a single partial last block joins its tile."""
        write, width = self.write, BLOCK * self.blocks
        write(f"columns_left = columns - block * {BLOCK}")
        if isinstance(self.columns, int) and self.columns % width == 0:
            write_rows(tiles, "")
        elif not isinstance(self.columns, int) or self.columns >= width:
            with write.block(f"if columns_left >= {width}"):
                write_rows(tiles, "")
            with write.block("else"):
                self._write_last_blocks(tiles, write_rows)
        else:
            self._write_last_blocks(tiles, write_rows)

    def _write_last_blocks(self, tiles: Sequence[Tile], write_rows: _Rows) -> None:
        """The blocks at the end, of which one is partial."""
        if isinstance(self.columns, int) and -(-self.columns // BLOCK) % self.blocks == 0:
            self.write(f"count = columns_left - {BLOCK * (self.blocks - 1)}")
            write_rows(tiles, "count")
            return
        with self.write.block("for block in range(block, blocks)"):
            self.write(f"count = min({BLOCK}, columns - block * {BLOCK})")
            write_rows([tile.single() for tile in tiles], "count")
            self.write("w_unit += w_block")

    def _write_rows(self, tiles: Sequence[Tile], columns: str) -> None:
        """The band's rows, each with its whole sum; or, strip by strip, all rows chunk by chunk of their sums."""
        write = self.write
        if self.amx:
            self._write_amx(self.amx, tiles[0], columns)
            return
        if not self.gathers:
            write("strip_row = first_row", "last_row = end_row")
            self._write_strip(tiles, lambda tile: self._write_tile(tile, columns))
            return
        with write.block("for strip_row in range(first_row, end_row, strip)"):
            write("last_row = min(strip_row + strip, end_row)")
            # empty sums are stored, too
            depth = "depth" if isinstance(self.depth, int) and self.depth > 0 else "max(depth, 1)"
            with write.block(f"for begin in range(0, {depth}, {CHUNK})"):
                write(f"end = min(begin + {CHUNK}, depth)")
                if self.numbers:
                    self.numbers.write_unpacked(write, f"min({tiles[0].blocks}, blocks - block)")
                self._write_strip(tiles, lambda tile: self._write_tile(tile, columns))

    def _write_amx(self, amx: AmxSums, tile: Tile, columns: str) -> None:
        """The band's rows, those of two registers at a time, or of one where there are no more."""
        write = self.write
        with write.block(f"for upper in range(first_row, end_row, {tile.rows})"):
            write("top = min(upper, rows - height)", f"bottom = min(upper + {ROWS}, rows - height)")
            for head, bands in ((f"if upper + {ROWS} < end_row", BANDS), ("else", 1)):
                with write.block(head):
                    amx.write_zeros(write, bands, tile.blocks)
                    write("x = a + top * x_row", "below = (bottom - top) * x_row", "w = w_unit")
                    amx.write_run(write, bands, tile.blocks, "depth")
                    amx.write_sums(write, bands, tile.blocks)
            with write.block(f"for row in range(upper, min(upper + {tile.rows}, end_row))"):
                write(f"is_below = row >= upper + {ROWS}")
                self.epilogue.begin()
                one = amx.write_row(write, tile, "is_below", "row - (bottom if is_below else top)")
                self._write_end(one, columns, "")

    def _write_strip(self, tiles: Sequence[Tile], write_tile: Callable[[Tile], None]) -> None:
        """The strip's rows: each tile repeats until a smaller one can do the rest."""
        write = self.write
        write("next_row = strip_row", "turn = 0")
        for tile, rest in zip(tiles, (*(tile.rows for tile in tiles[1:]), 0), strict=True):
            rest = 0 if rest == 1 else rest  # with enough rows, a larger overlapping tile is faster
            condition = f"last_row - next_row > {rest}" if rest else "next_row < last_row"
            if len(tiles) > 1 and tile.rows > 1:
                condition = f"rows >= {tile.rows} and {condition}"
            with write.block(f"while {condition}"):
                write_tile(tile)
                write(f"next_row += {tile.rows}")

    def _write_tile_row(self, tile: Tile) -> None:
        """A tile of rows, all its columns."""
        write = self.write
        write("w_unit = b")
        with write.block(f"for block in range(0, blocks, {self.blocks})"):
            self._write_tiles([tile], lambda tiles, columns: self._write_tile(tiles[0], columns))
            write(f"w_unit += {self.blocks} * w_block")

    def _write_tile(self, tile: Tile, columns: str) -> None:
        write = self.write
        write(f"row = min(next_row, last_row - {tile.rows})", "skip = next_row - row")
        if self.gathers:
            write(f"so_far = gathered + (next_row - strip_row) * {VECTOR_BYTES * tile.blocks}")
        self.epilogue.begin()
        write_start(write, tile)
        if self.gathers:
            self._write_chunk(tile, columns)
            return
        write("x = a + row * x_row", "w = w_unit")
        self._write_ahead(tile, f"w_unit + {tile.blocks} * w_block")
        with write_chunks(write, tile, "depth", self._chunk, tile.step) as steps:
            self.epilogue.fetch(tile, f"begin + {self._chunk} >= depth" if self._chunk else "", self._is_large)
            self._write_sum(tile, steps, columns)
        self._write_end(tile, columns, self._skip(tile))

    def _write_chunk(self, tile: Tile, columns: str) -> None:
        """The steps from `begin` to `end` of a tile's sum, which stays in memory until the last chunk."""
        write = self.write
        places = [(i * tile.blocks + j, tile.accumulator(i, j)) for i in range(tile.rows) for j in range(tile.blocks)]
        write("x = a + row * x_row + begin * x_step")
        write("w = unpacked" if self.numbers else "w = w_unit + begin * w_step")
        self._write_ahead(tile, f"w_unit + (end * w_step if end < depth else {tile.blocks} * w_block)")
        self.epilogue.fetch(tile, "end == depth")
        self._write_sum(tile, rounds("begin", "end", tile.step), columns)
        with write.block("if begin > 0"):
            write(*(f"{total} = {total} + {tile.load_sums(f'so_far, {at * VECTOR_BYTES}')}" for at, total in places))
        with write.block("if end < depth"):
            write(*(f"vstore(so_far, {at * VECTOR_BYTES}, {total})" for at, total in places))
        with write.block("else"):
            self._write_end(tile, columns, self._skip(tile))

    def _write_end(self, tile: Tile, columns: str, skip: str) -> None:
        """What happens to a tile's sums."""
        column = (
            (self.widened.column_facts, str(self.widened.panel))
            if self.widened
            else ("w_unit, depth * w_step", "w_block")
        )
        scaled = write_scaled(self.write, tile, "a, row * x_row + depth * x_step", *column)
        self.epilogue.tile(scaled, skip=skip, columns=columns)

    def _write_ahead(self, tile: Tile, following: str) -> None:
        """Prefetches this tile's share of the vectors from `following` on, which are read after the strip's tiles."""
        if self.is_flat or self.numbers:
            return
        self.write(
            f"ahead = {following} + turn * w_block", f"turn = (turn + {self._lines_ahead(tile)}) % {tile.blocks}"
        )

    def _write_sum(self, tile: Tile, steps: str, columns: str) -> None:
        with self.write.block(f"for step in {steps}"):
            in_place = columns if self.panels is _Panels.DIRECT else ""
            write_step(self.write, tile, self.target, in_place, self._lines_ahead(tile))
        write_ends(self.write, tile)

    @property
    def _is_large(self) -> bool:
        """Whether a result leaves L2 before it is complete, and its sums are long enough to hide its prefetch."""
        return leaves_cache([*self.batch, self.rows, self.columns], self.target) and self._chunk > 0

    def _lines_ahead(self, tile: Tile) -> int:
        """Vectors that a tile prefetches at each step, so that a band's tiles together prefetch all of the next blocks."""
        if self.is_flat or self.numbers:
            return 0
        count = self.band if isinstance(self.rows, int) else 2 if tile is self.tiles[0] else 1  # there may be no more
        return -(-tile.blocks // count)

    @property
    def _chunk(self) -> int:
        if self.amx:  # it adds up many words apart
            return 0
        return chunk_of(self.depth) if isinstance(self.depth, int) else CHUNK

    def _skip(self, tile: Tile) -> str:
        """The rows of a tile that another one has stored already, if any."""
        return "" if isinstance(self.rows, int) and self.rows % tile.rows == 0 else "skip"

    @property
    def _panel_bytes(self) -> int:
        if not self.copies_panels:
            return 0
        return VECTOR_BYTES * self.stripe * self._copied_depth

    @property
    def _copied_depth(self) -> int:
        """The depth of copied panels or rows, which are only copied if it is known: see `_choose_panels`, `is_possible` and
        `_is_copying_rows`. The scratch memory's size is that of the copies."""
        assert isinstance(self.depth, int)
        return self.depth

    @property
    def _gathered_bytes(self) -> int:
        """Bytes of a strip's sums, with the overrun of its last tile, which may be any."""
        return (self.strip + self.tiles[0].rows) * self.blocks * VECTOR_BYTES if self.gathers else 0

    @property
    def _unpacked_bytes(self) -> int:
        return self.numbers.unpacked_bytes(self.blocks) if self.numbers else 0

    @property
    def _scratch_bytes(self) -> int:
        rows = 0
        if self.copies_rows:
            held = self.band * self.tiles[0].rows
            rows = (min(held, self.rows) if isinstance(self.rows, int) else held) * (
                4 * self._copied_depth + VECTOR_BYTES
            )
        amx = SCRATCH_BYTES if self.amx else 0
        return self.epilogue.buffer_bytes + self._panel_bytes + rows + self._unpacked_bytes + self._gathered_bytes + amx
