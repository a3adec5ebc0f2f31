"""The elementwise end of a matrix product or convolution: what happens to a register tile before it is stored.

Short epilogues are written out for every vector of the tile, in registers. Long ones, such as GELU, would make the text
and its compilation long: there the tile is stored to a buffer, and a loop over its vectors applies the epilogue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....formats import dims
from .....formats.dims import Dim
from .....formats.types import TensorType
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.writer import Writer, is_streamed, shape_of, stored, widened, write_streaming
from .precision import Precision
from .tile import BLOCK, VECTOR_BYTES, Tile

_LONG_NODES = 8  # of an expression; longer ones are applied in a loop


@dataclass(frozen=True)
class Grid:
    """The position of a tile's vectors in the result, whose `merged` first axes count as one.

    `coordinates` are the text of the first vector's index on each axis; a row further is one further on `row_axis`, a block
    further is `block_step` further on `block_axis`.
    """

    coordinates: tuple[str, ...]
    row_axis: int
    block_axis: int
    block_step: int
    merged: int = 1


@dataclass(frozen=True)
class _Operand:
    """A tensor that the epilogue reads or writes, in elements: the place of the tile's first vector, and the steps."""

    name: str
    type: TensorType
    at: str  # an expression
    row: str
    block: str
    is_vector: bool  # else one element serves all lanes


class Epilogue:
    """Written in two steps: the constructor writes the beginning of the kernel, `tile` the code after a sum."""

    def __init__(self, write: Writer, found: Anchored, grid: Grid) -> None:
        self._write, self._expression, self._anchor, self._grid = write, found.epilogue, found.number, grid
        self._steps: dict[int, str] = {}  # the result's own, by axis
        self._store = "vstore"
        definition = found.definition
        result = definition.values[found.number]
        self._inputs = {
            number: self._operand(write.input(f"p{number}", number), definition.params[number], result)
            for number in found.epilogue.inputs
            if number != found.number
        }
        self._outputs = [
            self._operand(write.output(f"out_{i}", i), definition.values[number], result)
            for i, number in enumerate(definition.outputs)
        ]

    @staticmethod
    def takes(found: Anchored) -> bool:
        """Whether the definition is an anchor with only an epilogue, whose operands and result are stored as computed. The
        storage of the anchor's first two operands is its precision's concern."""
        read = found.node.inputs[2:] if Precision.of(found) else found.node.inputs
        types = (found.definition.values[number].dtype for number in (*read, found.number))
        return not found.prologue.nodes and all(dtype.computed is dtype for dtype in types)

    @property
    def buffer_bytes(self) -> int:
        """Bytes that `tile` needs at `buffer` for the largest tile, if the epilogue is a long one."""
        return 32 * VECTOR_BYTES if self._is_long else 0

    @property
    def _is_long(self) -> bool:
        return len(self._expression.nodes) > _LONG_NODES or self._expression.cost > costs.LATENCY_BOUND_NS

    def _operand(self, name: str, type_: TensorType, result: TensorType) -> _Operand:
        """The strides are row-major; 0 for axes of size 1."""
        grid = self._grid
        whole, shape = (merged_shape(kind, result, grid.merged) for kind in (result, type_))
        assert whole is not None
        assert shape is not None
        steps = [self._step_of(name, axis, shape, whole) for axis in range(len(whole))]
        at = [_product(where, step) for where, step in zip(grid.coordinates, steps, strict=True)]
        return _Operand(
            name,
            type_,
            " + ".join(term for term in at if term != "0") or "0",
            steps[grid.row_axis],
            _product(str(grid.block_step), steps[grid.block_axis]),
            steps[-1] != "0",
        )

    def _step_of(self, name: str, axis: int, shape: Sequence[Dim], whole: Sequence[Dim]) -> str:
        """Elements from one index of an axis to the next, as text. Operands of the result's shape share its steps."""
        inner = shape[axis + 1 :]
        if shape[axis] == 1 and (whole[axis] != 1 or all(dim == 1 for dim in shape)):
            return "0"
        if all(dim == 1 for dim in inner):
            return "1"
        if inner[-1] == BLOCK and all(dim == 1 for dim in inner[:-1]):
            return str(BLOCK)
        if inner != whole[axis + 1 :]:
            return self._write.size(f"{name}_step_{axis}", dims.product(inner))
        if axis not in self._steps:
            self._steps[axis] = self._write.size(f"step_{axis}", dims.product(inner))
        return self._steps[axis]

    def streaming(self, write_loop: Callable[[], None]) -> None:
        """Writes the loop over all tiles: for blocked results larger than the caches, with non-temporal stores."""
        streams = all(is_streamed(output.type) and output.type.shape[-1] == BLOCK for output in self._outputs)

        def write_with(store: str) -> None:
            self._store = store
            write_loop()

        write_streaming(self._write, streams, " | ".join(output.name for output in self._outputs), write_with)
        if streams:
            self._write("streamed()")

    def begin(self) -> None:
        """Written where the coordinates are known, before the tile."""
        for operand in (*self._inputs.values(), *self._outputs):
            self._write(f"{operand.name}_at = {operand.name} + ({operand.at}) * {operand.type.dtype.itemsize}")

    def fetch(self, tile: Tile, condition: str = "", is_large: bool = False) -> None:
        """Prefetches the epilogue's operands, such as a residual, which may have left L2, and where
        they are stored to, if the result `is_large`, beyond L2. After `begin`; before the sum or, if it is long, before
        its last chunk (`condition`): lines that are prefetched much earlier may be evicted again."""
        operands = [operand for operand in self._inputs.values() if operand.row != "0" and operand.is_vector]
        operands += self._outputs if is_large else []
        if not operands:
            return
        rows = f"{tile.rows} if {condition} else 0" if condition else f"{tile.rows}"
        with self._write.block(f"for i in range({rows})"):
            for operand in operands:
                self._write(*(f"prefetch({self._place(operand, 'i', str(j))})" for j in range(tile.blocks)))

    def tile(self, tile: Tile, skip: str = "", columns: str = "") -> None:
        """Applies the expression to the accumulators, and stores the rows from `skip` on; of the last block, `columns` lanes."""
        write = self._write
        if not self._is_long or tile.rows * tile.blocks == 1:
            for i in range(tile.rows):
                rows = [(i, j) for j in range(tile.blocks)]
                if skip and i < tile.rows - 1:
                    with write.block(f"if {skip} <= {i}"):
                        self._row(tile, rows, columns)
                else:
                    self._row(tile, rows, columns)
            return
        for i in range(tile.rows):
            for j in range(tile.blocks):
                write(f"vstore(buffer, {(i * tile.blocks + j) * VECTOR_BYTES}, {tile.accumulator(i, j)})")
        with write.block(f"for i in range({skip or 0}, {tile.rows})"), write.block(f"for j in range({tile.blocks})"):
            write(f"total = {tile.load_sums(f'buffer, (i * {tile.blocks} + j) * {VECTOR_BYTES}')}")
            if columns and tile.blocks > 1:
                write(f"lanes = {columns} if j == {tile.blocks - 1} else {BLOCK}")
                columns = "lanes"
            self._vector("i", "j", "total", columns)

    def _row(self, tile: Tile, places: Sequence[tuple[int, int]], columns: str) -> None:
        for i, j in places:
            self._vector(str(i), str(j), tile.accumulator(i, j), columns if j == tile.blocks - 1 else "")

    def _vector(self, i: str, j: str, total: str, columns: str) -> None:
        write, count = self._write, f", {columns}" if columns else ""
        loaded = {self._anchor: total}
        for number, operand in self._inputs.items():
            dtype, place = operand.type.dtype, self._place(operand, i, j)
            loaded[number] = f"v{number}"
            if operand.is_vector:
                text = widened(f"vload_{dtype.name}({place}{count})", dtype)
            else:
                text = f"splat_{dtype.computed.name}({widened(f'load_{dtype.name}({place})', dtype)})"
            write(f"v{number} = {text}")
        lines, names = self._expression.emit(loaded)
        write(*lines)
        for number, operand in zip(write.definition.outputs, self._outputs, strict=True):
            value = stored(names[number], operand.type.dtype)
            write(f"{'vstore' if count else self._store}({self._place(operand, i, j)}, {value}{count})")

    @staticmethod
    def _place(operand: _Operand, i: str, j: str) -> str:
        size = str(operand.type.dtype.itemsize)
        terms = [_product(size, i, operand.row), _product(size, j, operand.block)]
        return f"{operand.name}_at, {' + '.join(term for term in terms if term != '0') or '0'}"


def ignores_lines(found: Anchored) -> bool:
    """Whether every operand of the epilogue has all pixels of the blocked result, or one."""
    pixels = found.definition.values[found.number].shape[2:-1]
    for number in found.epilogue.inputs:
        shape = found.definition.values[number].shape
        own = ((1,) * (len(pixels) + 1) + shape)[-len(pixels) - 1 : -1]
        if own != pixels and any(dim != 1 for dim in own):
            return False
    return True


def _product(*factors: str) -> str:
    """The text of a product, numbers multiplied."""
    number = math.prod(int(factor) for factor in factors if factor.isdigit())
    names = [factor for factor in factors if not factor.isdigit()]
    if not number or not names:
        return str(number)
    return " * ".join([*names, str(number)] if number > 1 else names)


def merged_shape(type_: TensorType, result: TensorType, count: int) -> tuple[Dim, ...] | None:
    """A shape that broadcasts to `result`, with its `count` first axes merged. None if it repeats along some of
    these and not along others."""
    shape = (1,) * (result.rank - type_.rank) + shape_of(type_)
    if shape[:count] == result.shape[:count]:
        return (dims.product(shape[:count]), *shape[count:])
    return (1, *shape[count:]) if all(dim == 1 for dim in shape[:count]) else None
