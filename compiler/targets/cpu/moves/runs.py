"""Copies of contiguous runs, of any number and of static sizes, with one text: joins, splits and slices of whole rows.

The kernel's words are a table with an entry for each copy. Data that is in its place already, since the memory planner has put it
there, is not copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.copies import Copy
from .. import costs
from ..kernels.writer import Writer, write_copy

_FIELDS = ("source", "source_start", "target", "target_start", "rows", "source_step", "target_step", "length")


def is_of_runs(copy: Copy) -> bool:
    """Whether a copy is a known number of rows, each contiguous on both sides."""
    *outer, inner = copy.axes
    sizes = [value for axis in copy.axes for value in (axis.size, axis.source, axis.target)]
    known = all(isinstance(value, int) for value in (*sizes, copy.source_start, copy.target_start))
    return known and len(outer) < 2 and (inner.source, inner.target) == (1, 1)


def write_runs(write: Writer, copies: Sequence[Copy], itemsize: int) -> None:
    """Writes the kernel of copies for which `is_of_runs` holds."""
    write.size("copies", len(copies))
    write(f"table = words + {8 * len(write.words)}")
    for copy in copies:
        write.words.extend(_entry(write, copy, itemsize))
    write("units = 0", "elements = 0")
    with write.block("for copy in range(copies)"):
        _write_fields(write)
        with write.block("if is_elsewhere"):
            write("units += rows * blocks", "elements += rows * length")
    write.ask("units", f"elements * {costs.COPY_BYTE_PS * itemsize} // 1000")
    write.share("units")
    write("done = 0")
    with write.block("for copy in range(copies)"):
        _write_fields(write)
        with write.block("if is_elsewhere"):
            write("begin_unit = max(first - done, 0)", "end_unit = min(last - done, rows * blocks)")
            write(f"size = length * {itemsize}")
            for word, head in ((8, "if"), (4, "elif")):
                with write.block(f"{head} {word} <= size <= {2 * word}"):
                    _write_short(write, word)
            with write.block("else"), write.block("for unit in range(begin_unit, end_unit)"):
                _write_unit(write, itemsize)
            write("done += rows * blocks")


def _entry(write: Writer, copy: Copy, itemsize: int) -> tuple[int, ...]:
    *outer, inner = copy.axes
    rows, *steps = (outer[0].size, outer[0].source, outer[0].target) if outer else (1, 0, 0)
    starts = (int(start) * itemsize for start in (copy.source_start, copy.target_start))  # type: ignore[arg-type]
    source_start, target_start = starts
    steps = [int(step) * itemsize for step in steps]  # type: ignore[arg-type]
    source, target = write.argument(copy.source), write.argument(copy.target)
    return (source, source_start, target, target_start, int(rows), *steps, int(inner.size))  # type: ignore[arg-type]


def _write_fields(write: Writer) -> None:
    """Defines the fields of an entry as variables; `source` and `target` are addresses."""
    write(f"entry = table + copy * {8 * len(_FIELDS)}")
    for number, name in enumerate(_FIELDS):
        value = f"word(entry, {number})"
        write(f"{name} = word(args, {value})" if name in ("source", "target") else f"{name} = {value}")
    write(
        "source += source_start",
        "target += target_start",
        f"blocks = (length + {costs.RUN_UNIT - 1}) // {costs.RUN_UNIT}",
    )
    write("is_elsewhere = source != target or source_step != target_step")


def _write_short(write: Writer, word: int) -> None:
    """Runs of one to two words of `word` bytes: masked vectors take four times as long."""
    with write.block("for row in range(begin_unit, end_unit)"):
        write("a = source + row * source_step", "b = target + row * target_step")
        for place in ("0", f"size - {word}"):
            write(f"store_uint{8 * word}(b, {place}, load_uint{8 * word}(a, {place}))")


def _write_unit(write: Writer, itemsize: int) -> None:
    write("row = unit", "begin = 0")
    with write.block("if blocks > 1"):  # a division takes longer than a short run
        write("row = unit // blocks", f"begin = (unit - row * blocks) * {costs.RUN_UNIT}")
    write(f"end = min(begin + {costs.RUN_UNIT}, length)")
    write("a = source + row * source_step", "b = target + row * target_step")
    write_copy(write, itemsize, "b", "a", "begin", "end")
