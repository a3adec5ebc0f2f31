"""Loop nests of elementwise work: axes are merged where possible, rows are cut into blocks, blocks into vectors.

A tensor in the work has, along each axis of the whole, either all elements or one that is repeated
(NumPy's broadcasting). The innermost loop runs along the last merged axis: tensors that have it are read as vectors,
the others as one scalar a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .....formats import dims
from .....formats.dims import Dim
from .. import costs
from .writer import Odometer, Writer


@dataclass(frozen=True)
class Axis:
    """A merged axis: its size, and which tensors have it (the others repeat)."""

    size: Dim
    present: tuple[bool, ...]


def merged_axes(whole: Sequence[Dim], shapes: Sequence[Sequence[Dim]]) -> tuple[Axis, ...] | None:
    """The axes of `whole`, outermost first, neighbours merged wherever all tensors agree; at least one. None if a shape
    does not broadcast to `whole` for certain."""
    axes: list[Axis] = []
    if any(len(shape) > len(whole) for shape in shapes):
        return None
    for axis, size in enumerate(whole):
        sizes = [_size_at(shape, axis - len(whole)) for shape in shapes]
        if any(dim not in (1, size) for dim in sizes):
            return None
        if size == 1:
            continue
        present = tuple(dim == size for dim in sizes)
        if axes and axes[-1].present == present:
            axes[-1] = Axis(dims.multiply(axes[-1].size, size), present)
        else:
            axes.append(Axis(size, present))
    return tuple(axes) or (Axis(1, (True,) * len(shapes)),)


def _size_at(shape: Sequence[Dim], axis: int) -> Dim:
    """The size of an axis counted from the end; 1 if the shape is shorter."""
    return shape[axis] if -axis <= len(shape) else 1


class Rows:
    """Writes the loops over rows and blocks of merged axes. n0 is the size of the innermost axis, n1 the next one's …

    Rows vary faster than blocks: threads, which take neighbouring units, then each have a part of every row. Of an image, whose
    rows are blocks of channels, that is the part that a convolution left in their caches.
    """

    def __init__(self, write: Writer, axes: Sequence[Axis], block: int = costs.RUN_UNIT) -> None:
        self.write, self.axes, self.block = write, tuple(reversed(axes)), block
        self.outer = range(1, len(self.axes))
        self.indices = Odometer(write, [(f"i{i}", f"n{i}") for i in reversed(self.outer)])

    def begin(self, picoseconds: int) -> None:
        """Defines the sizes of the work and the start of this part. An element costs `picoseconds`."""
        write, block = self.write, self.block
        for i, axis in enumerate(self.axes):
            write.size(f"n{i}", axis.size)
        if not self.outer:
            write(f"length = {block}", f"blocks = (n0 + {block - 1}) // {block}")
            write.split("blocks", f"n0 * {picoseconds} // 1000")
            return
        write(f"rows = {self.indices.count}")
        write("blocks = 1")
        with write.block(f"if parts > 1 and n0 > {block}"):  # an even number, so that two threads have one half each
            write(f"blocks = (n0 + {2 * block - 1}) // {2 * block} * 2")
        write(f"length = max(1, (n0 + blocks - 1) // blocks + {write.lanes - 1} & -{write.lanes})")
        write("blocks = (n0 + length - 1) // length")
        write.split("rows * blocks", f"rows * n0 * {picoseconds} // 1000")
        with write.block("if first == last"):
            write("return 0")
        write("block = first // rows", "row = first - block * rows")
        self.indices.start("row")

    def write_block(self) -> None:
        """Defines the current block's start in its row, and its number of elements."""
        self.write("begin = block * length", "count = min(length, n0 - begin)")

    def place(self, tensor: int) -> str:
        """The element of a tensor at which the current row starts, as an expression."""
        terms, step = [], "n0" if self.axes[0].present[tensor] else ""
        if all(axis.present[tensor] for axis in self.axes):
            return "row * n0" if self.outer else ""
        for i in self.outer:
            if self.axes[i].present[tensor]:
                terms.append(f"i{i} * {step}" if step else f"i{i}")
                step = f"{step} * n{i}" if step else f"n{i}"
        return " + ".join(terms)

    def advance(self) -> None:
        """Steps to the next row, at the end of the loop over units."""
        if not self.outer:
            return
        write = self.write
        write("row += 1")
        self.indices.advance()
        with write.block("if row == rows"):
            write("row = 0", "block += 1", *(f"i{i} = 0" for i in self.outer))
