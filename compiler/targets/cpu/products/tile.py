"""The register tile: the micro-kernel of matrix products and convolutions.

A tile is `rows` elements of one operand (rows of a matrix, pixels of an image), each broadcast to a vector, times `blocks`
vectors of BLOCK columns (output channels) of the other. Its rows x blocks accumulators stay in registers while the
inner loop runs over the summed index. All strides are run-time values, so one text serves many layouts:

    x + i * x_row          the element of tile row i               x += x_step    each step of the sum
    w + j * w_block        the vector of tile block j              w += w_step

What elements are in memory, in products and in sums is the tile's precision (`precision.py`).

Where the CPU multiplies two rows by two columns at once, two words of each, a step takes two words, and the accumulators of
two rows hold squares meanwhile: those of the first half of a block's columns, and of the second. Tiles of an odd number of
rows take word by word, which gives the same bits.

Tiles of the last rows overlap the previous ones; rows that are done already are not stored again.

Long sums are made of the sums of chunks: the rounding errors of a sum grow with the sums before them, so that one of
n steps in chunks of c errs about as much as one of c + n / c steps.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from .. import costs
from ..kernels.writer import Writer
from ..operators.packing import BLOCK
from ..target import Target
from .precision import FLOAT32, Precision

VECTOR_BYTES = 4 * BLOCK
TALLEST = 14  # rows, or pixels, that a tile may have
SYMBOLIC_ROWS = (TALLEST, 4, 1)  # of the tiles among which a convolution chooses when it knows its image
CHUNK = 128  # steps of a sum, about, that are added up apart: fewer would cost time, more precision


_BESIDE = 8  # vectors of 16 floats that registers must hold for each block beside others to pay


@dataclass(frozen=True)
class Tile:
    rows: int
    blocks: int
    precision: Precision = FLOAT32
    sums: str = "sum"

    def __str__(self) -> str:
        return f"{self.rows}x{self.blocks}"

    def accumulator(self, row: int, block: int) -> str:
        return f"{self.sums}_{row}_{block}"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Rows that are added up in squares."""
        return [(i, i + 1) for i in range(0, self.rows, 2)] if self.step > 1 else []

    @property
    def step(self) -> int:
        """Lanes of the sum that a step takes."""
        return 2 if self.precision.square and self.rows % 2 == 0 else 1

    @property
    def zero(self) -> str:
        return f"splat_{self.precision.summed.name}(0)"

    @property
    def w_bytes(self) -> int:
        """Bytes of a vector of the second operand in memory."""
        return BLOCK * self.precision.lane_bytes

    def load(self, offset: str, columns: str = "", part: str = "") -> str:
        """Loads a vector of the second operand, or some of its columns, relative to `w`; or a part of its lanes."""
        return self.precision.vector(f"w, {offset}{f', {columns}' if columns else ''}", part)

    def load_sums(self, place: str) -> str:
        """Loads a vector of sums that were stored."""
        return f"vload_{self.precision.summed.name}({place})"

    def single(self) -> Tile:
        """The tile of the same rows and one block."""
        return replace(self, blocks=1)


@cache
def tiles(target: Target) -> tuple[Tile, ...]:
    """All tiles whose accumulators, one row of vectors and one broadcast element fit into the registers."""
    each = VECTOR_BYTES // target.vector_bytes
    found = [
        Tile(rows, blocks)
        for blocks in (1, 2, 3, 4, 5, 8)
        for rows in range(1, TALLEST + 1)
        if (rows + 1) * blocks * each + 1 <= target.vector_registers
    ]
    return tuple(found)


def step_cost(tile: Tile, target: Target) -> float:
    """Modelled cycles of one step of the sum: two multiply-adds of a register a cycle, with a latency of four cycles."""
    vectors = tile.blocks * VECTOR_BYTES // target.vector_bytes
    busy = max(tile.rows * vectors / 2, 4)
    return busy + costs.TILE_ROW_CYCLES * tile.rows + costs.TILE_BLOCK_CYCLES * vectors + costs.TILE_STEP_CYCLES


def choose(
    rows: int,
    blocks: int,
    target: Target,
    *,
    widest: int | None = None,
    is_apart: bool = False,
    is_nested: bool = False,
    is_square: bool = False,
) -> Tile:
    """The tile that computes `rows` x `blocks` in the least time. It has at most `rows` and `blocks`, and no more blocks
    than the `widest`.

    `is_apart`: there are many rows, far from each other in memory.

    `is_nested`: the sum is a loop nest. LLVM unrolls the innermost loop by two, and if the registers do not hold the
    vectors of both steps, it spills accumulators: 9x3 then takes up to twice as long.

    `is_square`: two rows are added up at once, so a tile has pairs of them.
    """
    registers = target.block_registers
    rows, blocks = max(1, rows), max(1, blocks)  # an empty product has a tile, too

    def cost(tile: Tile) -> float:
        whole, rest = divmod(blocks, tile.blocks)
        down = math.ceil(rows / tile.rows)
        across = whole * step_cost(tile, target) + rest * step_cost(Tile(tile.rows, 1), target)
        tall = 1 + costs.TALL_ROW * max(0, tile.rows - costs.TALL_ROWS) if is_apart else 1
        return down * across * tall * (costs.TILE_REST if rest else 1) * (costs.TILE_REST if rows % tile.rows else 1)

    def fits(tile: Tile) -> bool:
        is_tight = is_nested and target.vector_bytes == VECTOR_BYTES and (tile.rows + 2) * tile.blocks > registers
        is_odd = is_square and rows > 1 and tile.rows % 2 > 0
        return tile.rows <= rows and tile.blocks <= min(blocks, widest or blocks) and not is_tight and not is_odd

    return min(filter(fits, tiles(target)), key=cost)


def symbolic_tiles(rows: Sequence[int], blocks: int, target: Target) -> list[Tile]:
    """Tiles of at most these rows, among which a kernel chooses at run time.
    All have `blocks` blocks, or one where the registers are few."""
    blocks = max(1, blocks if target.block_registers >= _BESIDE * blocks else 1)  # without channels there are no blocks
    most = max(tile.rows for tile in tiles(target) if tile.blocks == blocks)
    return list(dict.fromkeys(Tile(min(count, most), blocks) for count in rows))


def write_blocks(write: Writer, blocks: int, tile: Tile, write_tiles: Callable[[Tile], None]) -> None:
    """The tiles of a unit of work: a tile's blocks of output channels, from `block` on; one by one, if
    fewer of the `blocks` are left."""
    if not blocks % tile.blocks:
        write_tiles(tile)
        return
    with write.block(f"if block + {tile.blocks} <= blocks"):
        write_tiles(tile)
    with write.block("else"), write.block("for block in range(block, blocks)"):
        write_tiles(tile.single())


def write_step(
    write: Writer, tile: Tile, target: Target, columns: str = "", lines: int = 1, element: str = "", mask: str = ""
) -> None:
    """One step of the sum. `columns`: an expression for how many lanes of the last block's vector there are. `element`: how the
    vector that a row is multiplied with is loaded from its place, if not as one element for all lanes. `mask`: the lanes that the
    step is for, if not all.

    Meanwhile, `lines` vectors that a later tile needs are prefetched, from `ahead` on: weights are read once in an
    inference, and memory is slower than the tile. `lines` is 0 if the weights are in the caches.
    """
    for _ in range(tile.step if lines else 0):
        write_ahead(write, [times(i, "w_block") for i in range(lines)], tile.w_bytes)
    if tile.step > 1:
        _write_squares(write, tile, target)
        return
    for number, part in enumerate(tile.precision.parts or ("",)):
        if number:  # else LLVM would keep the words of the first part, for which there are no registers
            write("x = hidden(x)", "w = hidden(w)")
        loaded = element or tile.precision.broadcast("{}")
        loaded = f"{part}({loaded})" if part else loaded
        for j in range(tile.blocks):
            write(f"w_{j} = {tile.load(times(j, 'w_block'), columns if j == tile.blocks - 1 else '', part)}")
        for i in range(tile.rows):
            write(f"x_{i} = {loaded.format('x, ' + times(i, 'x_row'))}")
            for j in range(tile.blocks):
                total = tile.accumulator(i, j)
                write(multiply_add("more" if mask else total, f"x_{i}", f"w_{j}", target, tile.precision, total))
                if mask:
                    write(f"{total} = select({mask}, more, {total})")
    write("x += x_step", "w += w_step")


def _write_squares(write: Writer, tile: Tile, target: Target) -> None:
    """A step of two words."""
    square, words = getattr(target, tile.precision.square), range(2)
    write(*(f"x_{i} = vload_rows(x, {times(i, 'x_row')}, x_row)" for i, _ in tile.pairs))
    for j in range(tile.blocks):
        block = times(j, "w_block")
        write(*(f"w_{k} = {tile.load(f'{block} + {k * tile.w_bytes}')}" for k in words))
        for half, name in enumerate(("interleaved", "interleaved_last")):
            write(f"w_half = {name}(w_0, w_1)")
            for pair in tile.pairs:
                total = tile.accumulator(pair[half], j)
                write(f"{total} = {square}({total}, x_{pair[0]}, w_half)")
    write("x += 2 * x_step", "w += 2 * w_step")


def write_ends(write: Writer, tile: Tile) -> None:
    """Makes rows of squares, after the steps of a sum."""
    for j in range(tile.blocks):
        for pair in tile.pairs:
            first, last = (tile.accumulator(i, j) for i in pair)
            write(
                f"squares = {first}", f"{first} = even_pairs({first}, {last})", f"{last} = odd_pairs(squares, {last})"
            )


def write_ahead(write: Writer, places: Iterable[str | int], step: int) -> None:
    """Prefetches the vectors at these offsets from `ahead`, and advances it by `step` bytes."""
    write(*(f"prefetch(ahead, {place})" for place in places), f"ahead += {step}")


def chunk_of(size: int, steps: int = 1, most: int = CHUNK) -> int:
    """The rounds, each of `steps` steps, of the chunks of a sum of `size` rounds; 0 if it is short enough for one."""
    chunk = max(1, most // steps)
    return chunk if size > 3 * chunk // 2 else 0


@contextlib.contextmanager
def write_chunks(write: Writer, tile: Tile, size: str, chunk: str | int, step: int = 1) -> Iterator[str]:
    """`with write_chunks(…) as rounds:` adds to the accumulators the sums that the block, a loop over `rounds`, makes from zero.

    `chunk` rounds at a time; without `chunk` all at once, directly into the accumulators. The loop takes `step` rounds together.
    """
    if not chunk:
        yield rounds("0", size, step)
        return
    places = [(i, j) for i in range(tile.rows) for j in range(tile.blocks)]
    with write.block(f"for begin in range(0, {size}, {chunk})"):
        # the inner loop needs all registers: the totals wait in memory meanwhile
        write(*(f"total_{i}_{j} = {tile.accumulator(i, j)}" for i, j in places))
        write(*(f"{tile.accumulator(i, j)} = {tile.zero}" for i, j in places))
        yield rounds("begin", f"min(begin + {chunk}, {size})", step)
        write(*(f"{tile.accumulator(i, j)} = {tile.accumulator(i, j)} + total_{i}_{j}" for i, j in places))


def rounds(begin: str, end: str, step: int) -> str:
    """The text of a loop's range."""
    if step > 1:
        return f"range({begin}, {end}, {step})"
    return f"range({end})" if begin == "0" else f"range({begin}, {end})"


def times(count: int, distance: str) -> str:
    return f"{count} * {distance}" if count > 1 else distance if count else "0"


def multiply_add(result: str, x: str, w: str, target: Target, precision: Precision = FLOAT32, total: str = "") -> str:
    """The line that adds x times w to the `total`; assigns to the result, by default the total."""
    total = total or result
    if precision.dot:
        return f"{result} = {getattr(target, precision.dot)}({total}, {x}, {w})"
    is_fused = precision.summed.is_float and target.has_fma
    return f"{result} = fma({x}, {w}, {total})" if is_fused else f"{result} = {total} + {x} * {w}"


def write_scaled(write: Writer, tile: Tile, row: str, column: str, apart: str = "w_block") -> Tile:
    """The tile in float32: its sums by the facts of its rows and columns, if they have some. `row` and `column` are the places of
    the first row's facts, and of the first block's; the next block's are `apart` bytes behind."""
    if not tile.precision.facts:
        return tile
    scaled, last = replace(tile, precision=FLOAT32, sums="scaled"), f" + {VECTOR_BYTES}"
    for j in range(tile.blocks):
        place = f"{column} + {times(j, apart)}" if j else column
        write(f"scale_{j} = vload_float32({place})", f"bytes_{j} = vload_int32({place}{last})")
    for i in range(tile.rows):
        place = f"{row} + {times(i, 'x_row')}" if i else row
        write(f"scale = splat_float32(load_float32({place}))", f"zero = splat_int32(load_int32({place} + 4))")
        for j in range(tile.blocks):
            exact = f"{tile.accumulator(i, j)} - zero * bytes_{j}"
            write(f"{scaled.accumulator(i, j)} = convert_float32({exact}) * (scale * scale_{j})")
    return scaled


def write_start(write: Writer, tile: Tile, bias: str = "") -> None:
    """The accumulators before the sum: zero, or the bias, whose vector of block j is at `bias` + j * VECTOR_BYTES."""
    for j in range(tile.blocks):
        start = tile.load_sums(f"{bias}, {j * VECTOR_BYTES}") if bias else tile.zero
        write(f"start_{j} = {start}")
        write(*(f"{tile.accumulator(i, j)} = start_{j}" for i in range(tile.rows)))
        for first, last in tile.pairs if bias else ():
            write(f"{tile.accumulator(first, j)} = pairs_interleaved(start_{j}, start_{j})")
            write(f"{tile.accumulator(last, j)} = pairs_interleaved_last(start_{j}, start_{j})")
