"""Copies of runs that are shorter than a vector, or strided in the source: element by element, by a table of offsets.

The table, in scratch, has the source offsets of the elements of a contiguous piece of the target. So a loop
runs along the whole piece, across its axes. Short runs of even length are copied as half as many elements of twice
the size. If the target repeats elements of the source, as in a tile, a piece is copied from its first place to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .....native.convention import FEW
from ....codegen.copies import Axis, Copy
from ....operators.shapes import integer
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, scaled, write_copy

_MOST, _LEAST = 2048, 64  # elements of a piece
_WIDEST = 8  # bytes of an element


def widened(copy: Copy, itemsize: int) -> tuple[Copy, int]:
    """The same copy with larger elements, if runs are short and even."""
    while _has_even_runs(copy) and _is_short(copy.axes[-1], itemsize) and 2 * itemsize <= _WIDEST:
        *outer, inner = copy.axes
        halved = [Axis(axis.size, integer(axis.source) // 2, integer(axis.target) // 2) for axis in outer]
        axes = (*halved, Axis(integer(inner.size) // 2, 1, 1))
        starts = (integer(copy.source_start) // 2, integer(copy.target_start) // 2)
        copy, itemsize = Copy(copy.source, copy.target, axes, *starts).simplified(), 2 * itemsize
    return copy, itemsize


def _has_even_runs(copy: Copy) -> bool:
    """Whether runs are contiguous and consist of pairs at even offsets on both sides."""
    *outer, inner = copy.axes
    steps = [step for axis in outer for step in (axis.source, axis.target)]
    values = [inner.size, copy.source_start, copy.target_start, *steps]
    is_even = all(isinstance(value, int) and value % 2 == 0 for value in values)
    return (inner.source, inner.target) == (1, 1) and is_even


def _is_short(axis: Axis, itemsize: int) -> bool:
    return isinstance(axis.size, int) and axis.size * itemsize < costs.LONG_RUN_BYTES


def suits(copy: Copy, itemsize: int) -> bool:
    """Whether the runs of a copy of known sizes are short, and pieces of the target are not."""
    *outer, inner = copy.axes
    values = [value for axis in copy.axes for value in (axis.size, axis.source, axis.target)]
    if not all(isinstance(value, int) for value in values) or inner.target != 1 or _size(copy.axes) == 0:
        return False
    if _size(_piece(copy)) < _LEAST or not _fits_table(copy, itemsize):
        return False
    if inner.source in (0, 1):
        return _is_short(inner, itemsize)
    turned = next((axis for axis in outer if axis.source == 1), None)
    if turned is None:
        return integer(inner.size) < costs.LONG_STRIDED_RUN
    if (turned.size in FEW and inner.source == turned.size) or (inner.size in FEW and turned.target == inner.size):
        return False  # groups are dealt out
    return min(integer(turned.size), integer(inner.size)) < costs.SQUARE_SIDE


def _fits_table(copy: Copy, itemsize: int) -> bool:
    """Whether places are integers of 32 bits."""
    return sum(abs(integer(axis.source)) * integer(axis.size) for axis in copy.axes) * itemsize < 1 << 31


def _size(axes: Sequence[Axis]) -> int:
    count = 1
    for axis in axes:
        count *= integer(axis.size)
    return count


def _pieces(copy: Copy) -> tuple[list[Axis], tuple[int, ...]]:
    """The axes within a piece of the target, and those along which it is repeated, if there are enough."""
    piece = _piece(copy, repeats=True)
    *outer, cut = copy.axes[: len(copy.axes) - len(piece) + 1]
    different = _size([axis for axis in outer if axis.source != 0]) * -(-integer(cut.size) // integer(piece[0].size))
    if different < costs.MANY_UNITS:
        return _piece(copy), ()
    return piece, tuple(number for number, axis in enumerate(outer) if axis.source == 0)


def _piece(copy: Copy, repeats: bool = False) -> list[Axis]:
    """The last axes, of which the first one may be cut; if what `repeats` is done apart, up to such an axis."""
    most = max(_LEAST, min(_MOST, _size(copy.axes) // costs.RUN_TABLE_USES))
    piece: list[Axis] = []
    for axis in reversed(copy.axes):
        count = _size(piece)
        if axis.target != count or 2 * count > most or (axis.source == 0 and count >= _LEAST and repeats):
            break
        piece.insert(0, replace(axis, size=min(integer(axis.size), most // count)))
        if piece[0].size != axis.size:
            break
    return piece


def write_short_runs(write: Writer, copy: Copy, itemsize: int) -> Kernel:
    """Writes the kernel of a copy that this `suits`."""
    piece, repeated = _pieces(copy)
    cut = len(copy.axes) - len(piece)
    outer = sorted({*range(cut)} - {*repeated}, key=lambda axis: -abs(integer(copy.axes[axis].source)))
    rows = Odometer(write, [(f"i{axis}", f"n{axis}") for axis in outer])
    for number, axis in enumerate(copy.axes):
        write.size(f"n{number}", axis.size)
        write.size(f"source{number}", axis.source)
        write.size(f"target{number}", axis.target)
    write.sizes(source_start=copy.source_start, target_start=copy.target_start, long=piece[0].size)
    write.prepare("is_known")
    write(f"rows = {rows.count}", f"pieces = (n{cut} + long - 1) // long")
    elements = " * ".join(f"n{number}" for number in range(len(copy.axes)))
    write.split("rows * pieces", f"{elements} * {costs.SHORT_RUN_PS} // 1000")
    write(*(f"{side} = word(args, {write.argument(getattr(copy, side))})" for side in ("source", "target")))
    with write.block("if first < last"):
        write("row = first // pieces", "piece = first - row * pieces")
        rows.start("row")
        with write.block("if is_known < 0"):
            write("is_known = 1")
            _write_table(write, cut, len(copy.axes), itemsize)
    with write.block("for _ in range(first, last)"):
        for side, name in (("source", "a"), ("target", "b")):
            terms = [f"{side}_start", *(f"i{axis} * {side}{axis}" for axis in outer), f"piece * long * {side}{cut}"]
            write(f"{name} = {side} + {scaled(' + '.join(terms), itemsize)}")
        write(f"count = min(long, n{cut} - piece * long) * target{cut}")
        with write.block("for k in range(count)"):
            type_ = f"uint{8 * itemsize}"
            write(
                f"store_{type_}(b, {scaled('k', itemsize)}, load_{type_}(a, convert_int64(load_int32(scratch, k * 4))))"
            )
        if repeated:
            _write_repetitions(write, repeated, itemsize)
        write("piece += 1")
        with write.block("if piece == pieces"):
            write("piece = 0")
            rows.advance()
    return write.kernel(_size(copy.axes) * costs.SHORT_RUN_PS / 1000, 4 * _size(piece))


def _write_repetitions(write: Writer, axes: Sequence[int], itemsize: int, start: str = "b") -> None:
    """Copies the piece at `b` to its other places along the axes."""
    first, *rest = axes
    with write.block(f"for i{first} in range(n{first})"):
        write(f"b{first} = {start} + {scaled(f'i{first} * target{first}', itemsize)}")
        if rest:
            _write_repetitions(write, rest, itemsize, f"b{first}")
            return
        with write.block(f"if b{first} != b"):
            write_copy(write, itemsize, f"b{first}", "b", "0", "count")


def _write_table(write: Writer, first: int, end: int, itemsize: int) -> None:
    """The places of a piece's elements, in bytes."""
    write("entry = scratch")
    _write_axis(write, first, first, end, itemsize)


def _write_axis(write: Writer, axis: int, first: int, end: int, itemsize: int) -> None:
    with write.block(f"for i{axis} in range({'long' if axis == first else f'n{axis}'})"):
        terms = [f"i{number} * source{number}" for number in range(first, axis + 1)]
        if axis + 1 < end:
            _write_axis(write, axis + 1, first, end, itemsize)
            return
        write(f"store_int32(entry, 0, convert_int32({scaled(' + '.join(terms), itemsize)}))", "entry += 4")
