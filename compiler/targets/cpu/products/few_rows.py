"""Products of a few rows with a packed matrix, as in decoding: memory-bound; the matrix is read once, at memory speed.

Memory is fastest along a few long streams, with some neighbouring lines of each at a time: two
streams of four lines are faster than one stream alone, than four of two lines, and than either with prefetches. So a part
takes a run of panels [depth, 16], cuts it into one run per stream, and reads a panel of each side by side.
"""

from __future__ import annotations

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, shape_of
from ..target import Target
from .amx import AmxSums
from .epilogue import Epilogue, Grid, merged_shape
from .precision import Precision
from .tile import BLOCK, CHUNK, VECTOR_BYTES, Tile, multiply_add, write_scaled

STREAMS, _STREAM_BYTES = 2, 256  # that are read of each at a time
_STREAMS_IN_ORDER = 3  # where each has one sum only: with two, the processor would wait for the last multiply-add


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of a product of a few rows, whose number is known, with a packed matrix; else None."""
    return lower_as(FewRows, definition, target)


def lower_as(kind: type[FewRows], definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of rows of such a kind; else None."""
    found = Anchored.of(definition)
    precision = Precision.of(found) if found else None
    if found is None or precision is None or not Epilogue.takes(found) or not found.takes_parameters:
        return None
    a, panels = (definition.values[number] for number in found.node.inputs[:2])
    result = definition.values[found.number]
    rows, merged = dims.product(shape_of(result)[:-1]), result.rank - 1
    operands = [definition.values[number] for number in found.epilogue.inputs]
    if precision.facts and not isinstance(panels.shape[1], int):
        return None
    if not precision.is_exact and AmxSums.of(precision, panels.shape[1], target):
        return None
    if a.rank < 2 or not kind.takes(found, rows, target):
        return None
    if any(merged_shape(type_, result, merged) is None for type_ in operands):
        return None
    write = Writer(definition, target, f"{found.title}, {kind.title}")
    write.lanes = BLOCK
    few = kind(write, found, rows)
    if few.prepares:
        write.prepare("prepared")
    write.input("a_at", found.node.inputs[0])
    write.input("b_at", found.node.inputs[1])
    write.size("columns", shape_of(result)[-1])
    write.size("depth", few.depth)
    few.write_sizes()
    epilogue = Epilogue(write, found, Grid(("row", f"block * {BLOCK}"), 0, 1, BLOCK, merged))
    write(f"blocks = (columns + {BLOCK - 1}) // {BLOCK}")
    few.write_split(f"columns * {few.steps} * {few.tile.precision.lane_bytes} // {costs.STREAMED_RATE}")
    write("buffer = scratch", f"sums = scratch + {epilogue.buffer_bytes}")
    few.write_all(epilogue)
    times = max(1, estimate(rows) // costs.FEW_ROWS)
    nanoseconds = times * panels.dtype.itemsize * estimate(dims.product(shape_of(panels))) / costs.STREAMED_RATE
    return write.kernel(nanoseconds, epilogue.buffer_bytes + few.scratch_bytes)


class FewRows:
    """Writes the product of all (few) rows, panel by panel.

    Variables used by the text: `a_at`, `b_at`, `columns`, `depth`, `sums`; `row` and `block` give the epilogue's position.
    """

    title = "few rows"
    steps = "depth"  # the variable that says how many vectors a panel has
    prepares = False  # keeps data for a thread's later parts; `prepared` is then -1 in its first one

    def __init__(self, write: Writer, found: Anchored, rows: Dim, chunk: int | None = None) -> None:
        """`chunk`: steps summed apart, or all in one sum (0), as a kernel for more rows does:
        then a row's result is bitwise the same in both. None: in the fastest order."""
        precision = Precision.of(found)
        assert isinstance(rows, int)
        assert precision is not None
        self.write, self.found, self.target = write, found, write.target
        self.tile = Tile(rows, 1, precision.on(self.target))
        sums = max(1, self.target.block_registers * 3 // 4 // rows)  # of a row that fit into registers
        # steps taken together, each with its own sums unless they are added in order
        most = _STREAM_BYTES // self.tile.w_bytes
        self.chunk = chunk
        if chunk is None:
            self.streams = min(STREAMS, sums)
            self.turns = next(turns for turns in (most, most // 2, 2, 1) if turns * self.streams <= sums)
        else:
            self.streams, self.turns = min(_STREAMS_IN_ORDER, sums), most

    @staticmethod
    def takes(found: Anchored, rows: Dim, target: Target) -> bool:
        """Whether there is a kernel for a product of `rows` rows."""
        return isinstance(rows, int) and 0 < rows <= costs.FEW_ROWS

    @property
    def depth(self) -> Dim:
        """The length of sums, in elements or words of them: see `tile.py`."""
        depth = shape_of(self.found.definition.values[self.found.node.inputs[1]])[1]
        return depth - self.tile.precision.facts if isinstance(depth, int) else depth

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch needed at `sums`."""
        return max(STREAMS, self.streams) * self.tile.rows * VECTOR_BYTES

    def write_sizes(self) -> None:
        """Defines the remaining variables, after `depth`."""

    def write_split(self, nanoseconds: str) -> None:
        """Takes this part's share of the work."""
        self.write.split("blocks", nanoseconds)

    def write_all(self, epilogue: Epilogue) -> None:
        """The part's share."""
        self.epilogue = epilogue
        facts = self.tile.precision.facts
        pitch = f"(depth + {facts})" if facts else "depth"
        self.write("row = 0", f"a_row = 4 * {pitch}", f"panel = {self.tile.w_bytes} * {pitch}")
        self.write_panels()

    def write_panels(self) -> None:
        """The panels `first` to `last`: whole rounds of streams side by side, then the rest."""
        for streams in dict.fromkeys((self.streams, 1)):
            self.write(f"run = (last - first) // {streams}", "b_run = run * panel")
            with self.write.block("for start in range(first, first + run)"):
                self.write("w = b_at + start * panel")
                self.write_tiles(streams)
            self.write(f"first += run * {streams}")

    def write_tiles(self, streams: int) -> None:
        """All rows of `streams` panels at a time."""
        self.write_tile(self.tile, streams)

    def write_tile(self, tile: Tile, streams: int) -> None:
        """The rows of a tile from `row` on."""
        write, places = self.write, [(i, j) for i in range(tile.rows) for j in range(streams)]
        write(*(f"total_{i}_{j} = {tile.zero}" for i, j in places))
        self.write_totals(places, streams)
        write(*(f"vstore(sums, {(j * tile.rows + i) * VECTOR_BYTES}, total_{i}_{j})" for i, j in places))
        with write.block(f"for stream in range({streams})"):
            self._write_end(tile)

    def write_totals(self, places: list[tuple[int, int]], streams: int) -> None:
        """Computes the totals of all rows and panels side by side."""
        if self.chunk == 0:
            self.write("begin = 0")
            self._write_sums(places, streams, "depth")
            return
        chunk = self.chunk or self.turns * CHUNK
        with self.write.block(f"for begin in range(0, depth, {chunk})"):
            self._write_sums(places, streams, f"min(begin + {chunk}, depth)")

    def _write_sums(self, places: list[tuple[int, int]], streams: int, end: str) -> None:
        """Adds the sums of the steps from `begin` to the end to the totals."""
        write, turns = self.write, range(self.turns)
        write(f"end = {end}", f"whole = end - (end - begin) % {self.turns}")
        sums = turns if self.chunk is None else range(1)
        write(*(f"sum_{i}_{j}_{each} = {self.tile.zero}" for i, j in places for each in sums))
        with write.block(f"for step in range(begin, whole, {self.turns})"):
            for turn in turns:
                self._write_step(streams, turn)
        with write.block("for step in range(whole, end)"):
            self._write_step(streams, 0)
        for i, j in places:
            write(f"total_{i}_{j} = total_{i}_{j} + ({' + '.join(f'sum_{i}_{j}_{each}' for each in sums)})")

    def _write_step(self, streams: int, turn: int) -> None:
        write, precision, w_bytes = self.write, self.tile.precision, self.tile.w_bytes
        for part in precision.parts or ("",):
            for i in range(self.tile.rows):
                write(f"x_{i} = {precision.broadcast(f'a_at, step * 4 + {4 * turn} + {i} * a_row', part)}")
            for j in range(streams):
                write(f"w_{j} = {self.tile.load(f'step * {w_bytes} + {turn * w_bytes} + {j} * b_run', part=part)}")
                for i in range(self.tile.rows):
                    each = turn if self.chunk is None else 0
                    write(multiply_add(f"sum_{i}_{j}_{each}", f"x_{i}", f"w_{j}", self.target, precision))

    def _write_end(self, tile: Tile) -> None:
        """The epilogue of one stream's panel."""
        write = self.write
        write("block = start + stream * run", f"count = min({BLOCK}, columns - block * {BLOCK})")
        self.epilogue.begin()
        write(f"source = sums + stream * {tile.rows * VECTOR_BYTES}")
        write(
            *(f"{tile.accumulator(i, 0)} = {tile.load_sums(f'source, {i * VECTOR_BYTES}')}" for i in range(tile.rows))
        )
        facts = self.tile.precision.facts
        if facts:
            write("x_row = a_row")
        column = f"b_at, (block + 1) * panel - {facts * VECTOR_BYTES}"
        self.epilogue.tile(write_scaled(write, tile, "a_at, row * a_row + 4 * depth", column), columns="count")
