"""Products of a few rows with a packed matrix, as in decoding: the matrix is read once, as fast as the memory gives it.

Memory is fastest when it is read along a few streams, each as long as possible, and some neighbours of each at a time: two
streams of four lines are faster than one stream alone, than four of two lines, and than either with prefetches. So a part
takes a run of panels [depth, 16], cuts it into as many runs as there are streams, and reads a panel of each side by side.
"""

from __future__ import annotations

from ...formats import dims
from ...formats.primitive import PrimitiveDefinition
from .anchor import Anchored
from .epilogue import Epilogue, Grid, merged_shape
from .kernel import Kernel
from .target import Target
from .tile import BLOCK, CHUNK, VECTOR_BYTES, Tile, multiply_add
from .writer import Writer, estimate, shape_of

_MOST_ROWS = 4
_STREAMS, _STREAM_BYTES = 2, 256  # that are read of each at a time
_BYTES_A_NANOSECOND = 40


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of a product of a few rows, of a known number, with a packed matrix; else None."""
    found = Anchored.of(definition)
    if found is None or not Epilogue.takes(found) or not found.takes_parameters:
        return None
    a, panels = (definition.values[number] for number in found.node.inputs)
    result = definition.values[found.number]
    rows, merged = dims.product(shape_of(result)[:-1]), result.rank - 1
    operands = [definition.values[number] for number in found.epilogue.inputs]
    if a.rank < 2 or not isinstance(rows, int) or not 0 < rows <= _MOST_ROWS:
        return None
    if any(merged_shape(type_, result, merged) is None for type_ in operands):
        return None
    write = Writer(definition, target, f"{found.title}, few rows")
    write.lanes = BLOCK
    write.input("a_at", found.node.inputs[0])
    write.input("b_at", found.node.inputs[1])
    write.size("columns", shape_of(result)[-1])
    write.size("depth", shape_of(panels)[1])  # in elements, or words of them: see `tile.py`
    epilogue = Epilogue(write, found, Grid(("row", f"block * {BLOCK}"), 0, 1, BLOCK, merged))
    write(f"blocks = (columns + {BLOCK - 1}) // {BLOCK}")
    write.split("blocks", f"columns * depth * {panels.dtype.itemsize} // {_BYTES_A_NANOSECOND}")
    write("buffer = scratch", f"sums = scratch + {epilogue.buffer_bytes}")
    write_few_rows(write, epilogue, Tile(rows, 1, found.sums, found.narrow), target)
    nanoseconds = panels.dtype.itemsize * estimate(dims.product(shape_of(panels))) / _BYTES_A_NANOSECOND
    return write.kernel(nanoseconds, epilogue.buffer_bytes + few_rows_bytes(rows))


def few_rows_bytes(rows: int) -> int:
    """The scratch memory that `write_few_rows` needs at `sums`."""
    return _STREAMS * rows * VECTOR_BYTES


def write_few_rows(write: Writer, epilogue: Epilogue, tile: Tile, target: Target) -> None:
    """Writes the panels `first` to `last` of the product of a tile's rows, all that there are, panel by panel.

    Variables that the text uses: `a_at`, `b_at`, `columns`, `depth`, `sums`; its epilogue's place is given by `row` and `block`.
    """
    _FewRows(write, epilogue, tile, target).write_all()


class _FewRows:
    def __init__(self, write: Writer, epilogue: Epilogue, tile: Tile, target: Target) -> None:
        self.write, self.epilogue, self.tile, self.target = write, epilogue, tile, target
        self.rows = rows = tile.rows
        registers = target.block_registers
        sums = max(1, registers * 3 // 4 // rows)  # of a row that there is room for
        self.streams = min(_STREAMS, sums)
        # steps that are taken together, each with sums of its own
        most = _STREAM_BYTES // tile.w_bytes
        self.turns = next(turns for turns in (most, most // 2, 2, 1) if turns * self.streams <= sums)

    def write_all(self) -> None:
        self.write("row = 0", "a_row = 4 * depth", f"panel = {self.tile.w_bytes} * depth")
        for streams in dict.fromkeys((self.streams, 1)):
            self._write_runs(streams)

    def _write_runs(self, streams: int) -> None:
        """As many panels of the part as make whole rounds of so many streams."""
        write, places = self.write, [(i, j) for i in range(self.rows) for j in range(streams)]
        write(f"run = (last - first) // {streams}", "b_run = run * panel")
        with write.block("for start in range(first, first + run)"):
            write("w = b_at + start * panel", *(f"total_{i}_{j} = {self.tile.zero}" for i, j in places))
            with write.block(f"for begin in range(0, depth, {self.turns * CHUNK})"):
                self._write_sums(places, streams)
            write(*(f"vstore(sums, {(j * self.rows + i) * VECTOR_BYTES}, total_{i}_{j})" for i, j in places))
            with write.block(f"for stream in range({streams})"):
                self._write_end()
        write(f"first += run * {streams}")

    def _write_sums(self, places: list[tuple[int, int]], streams: int) -> None:
        """Adds the sums of one chunk to the totals."""
        write, turns = self.write, range(self.turns)
        write(f"end = min(begin + {self.turns * CHUNK}, depth)", f"whole = end - (end - begin) % {self.turns}")
        write(*(f"sum_{i}_{j}_{turn} = {self.tile.zero}" for i, j in places for turn in turns))
        with write.block(f"for step in range(begin, whole, {self.turns})"):
            for turn in turns:
                self._write_step(streams, turn)
        with write.block("for step in range(whole, end)"):
            self._write_step(streams, 0)
        for i, j in places:
            write(f"total_{i}_{j} = total_{i}_{j} + ({' + '.join(f'sum_{i}_{j}_{turn}' for turn in turns)})")

    def _write_step(self, streams: int, turn: int) -> None:
        write, sums, w_bytes = self.write, self.tile.sums, self.tile.w_bytes
        for i in range(self.rows):
            write(f"x_{i} = splat_{sums}(load_{sums}(a_at, step * 4 + {4 * turn} + {i} * a_row))")
        for j in range(streams):
            write(f"w_{j} = {self.tile.load(f'step * {w_bytes} + {turn * w_bytes} + {j} * b_run')}")
            for i in range(self.rows):
                write(multiply_add(f"sum_{i}_{j}_{turn}", f"x_{i}", f"w_{j}", self.target, sums))

    def _write_end(self) -> None:
        """The epilogue of one stream's panel."""
        write, tile = self.write, self.tile
        write("block = start + stream * run", f"count = min({BLOCK}, columns - block * {BLOCK})")
        self.epilogue.begin()
        write(f"source = sums + stream * {self.rows * VECTOR_BYTES}")
        write(*(f"{tile.accumulator(i, 0)} = vload_{tile.sums}(source, {i * VECTOR_BYTES})" for i in range(self.rows)))
        self.epilogue.tile(tile, columns="count")
