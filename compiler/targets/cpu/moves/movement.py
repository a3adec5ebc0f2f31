"""The template of data movement: each operator is a few strided copies, a copy is one loop nest.

A copy moves the element at `start + Σ index · step` of its source to the same expression of its target. Axes that both
sides allow are merged; the rest decides on the innermost loop:

    run         both are contiguous: vectors are copied
    fill        the source has step 0: one element is repeated
    transpose   each is contiguous along another axis: square tiles are transposed in registers or, if one of the axes is
                very short and the elements are contiguous, such as the colours of pixels, (de)interleaved
    strided     all else: element by element

Runs that are too short for any of these are copied by a table (`short_runs.py`).

Elements are moved as unsigned integers of their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .....native.convention import FEW
from ....codegen.copies import Copy, copies_of
from .. import costs
from ..kernels.kernel import Kernel
from ..kernels.writer import Odometer, Writer, estimate, is_streamed, scaled, write_streaming
from ..target import Target
from . import short_runs
from .runs import is_of_runs, write_runs

_TILES = 4  # side by side: neighbouring cache lines of the source are read one after another
_RUN = 32  # consecutive tiles, where target lines are in few sets of L1
_HALF_RUN = 16  # where they are in one


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The kernel of one of `OPERATORS`, alone in its definition; else None."""
    copies = copies_of(definition)
    return None if copies is None else lambda: _kernel(definition, copies, target)


def _kernel(definition: PrimitiveDefinition, copies: Sequence[Copy], target: Target) -> Kernel:
    (node,) = definition.nodes
    itemsize = node.results[0].dtype.itemsize
    picoseconds = costs.COPY_BYTE_PS * itemsize
    total = sum(estimate(dims.element_count([axis.size for axis in copy.axes])) for copy in copies)
    if all(map(is_of_runs, copies)):
        write = Writer(definition, target, "copies of runs")
        write_runs(write, copies, itemsize)
        return write.kernel(total * picoseconds / 1000)
    write = Writer(definition, target, node.operator)
    if len(copies) == 1:
        copy, itemsize = short_runs.widened(copies[0], itemsize)
        if short_runs.suits(copy, itemsize):
            return short_runs.write_short_runs(write, copy, itemsize)
        copies = [copy]
    nests = [_Nest(write, copy, itemsize, f"_{i}" if len(copies) > 1 else "") for i, copy in enumerate(copies)]
    for nest in nests:
        nest.define_sizes()
    units = " + ".join(nest.units for nest in nests)
    elements = " + ".join(nest.elements for nest in nests)
    write.ask(
        units, f"({elements}) * {picoseconds} // 1000" if len(nests) > 1 else f"{elements} * {picoseconds} // 1000"
    )
    for nest in nests:
        nest.write_all()
    return write.kernel(total * picoseconds / 1000)


class _Nest:
    """Writes the loops of one copy; `mark` is the suffix of its variables."""

    def __init__(self, write: Writer, copy: Copy, itemsize: int, mark: str) -> None:
        self.write, self.copy, self.itemsize, self.mark = write, copy, itemsize, mark
        self.type = f"uint{8 * itemsize}"
        self.streams = is_streamed(write.definition.values[copy.target])
        self.side = min(write.lanes, 4 * write.lanes // itemsize)
        self.strip = _TILES * self.side
        self.inner = len(copy.axes) - 1
        last = copy.axes[-1]
        contiguous = next((axis for axis in range(self.inner) if copy.axes[axis].source == 1), None)
        self.turned = contiguous if last.target == 1 and last.source not in (0, 1) else None
        self.deal = self._deal()
        self.rows = Odometer(write, [(self._index(axis), self._size(axis)) for axis in self._order()])

    def _order(self) -> list[int]:
        """The loop order of the outer axes: runs are neighbours on one side, and as many streams on the other
        as the processor must follow. So the side with the shorter innermost axis decides."""
        outer = [axis for axis in range(self.inner) if axis != self.turned]
        steps = {axis: estimate(self.copy.axes[axis].source) for axis in outer}
        if self.turned is not None or any(step <= 0 for step in steps.values()):
            return outer
        by_source = sorted(outer, key=lambda axis: -steps[axis])
        return min((outer, by_source), key=lambda order: [estimate(self.copy.axes[axis].size) for axis in order[-1:]])

    def _deal(self) -> str | None:
        """ "part" if groups of a few neighbours are dealt out to as many lines, "join" for the inverse."""
        if self.turned is None:
            return None
        turned, inner = self.copy.axes[self.turned], self.copy.axes[-1]
        if turned.size in FEW and inner.source == turned.size:
            return "part"
        return "join" if inner.size in FEW and turned.target == inner.size else None

    def _index(self, axis: int) -> str:
        return f"i{axis}{self.mark}"

    def _axis(self, index: str) -> int:
        return int(index[1:].split("_")[0])

    def _size(self, axis: int) -> str:
        return f"n{axis}{self.mark}"

    def _step(self, side: str, axis: int) -> str:
        """The step of an axis as text: a variable, unless it is 0 or 1 by the pattern."""
        step = getattr(self.copy.axes[axis], side)
        return str(step) if step in (0, 1) else f"{side}{axis}{self.mark}"

    @property
    def elements(self) -> str:
        if self.copy.may_stay:
            return f"rows{self.mark} * {self._size(self.inner)}"
        return " * ".join(self._size(axis) for axis in range(len(self.copy.axes)))

    @property
    def units(self) -> str:
        return f"rows{self.mark} * blocks{self.mark}"

    def define_sizes(self) -> None:
        write, copy, mark = self.write, self.copy, self.mark
        for axis, merged in enumerate(copy.axes):
            write.size(self._size(axis), merged.size)
            for side in ("source", "target"):
                if getattr(merged, side) not in (0, 1):
                    write.size(self._step(side, axis), getattr(merged, side))
        if copy.source_start != 0:
            write.size(f"source_start{mark}", copy.source_start)
        if copy.target_start != 0:
            write.size(f"target_start{mark}", copy.target_start)
        write(f"rows{mark} = {self.rows.count}")
        if copy.may_stay:
            with write.block(
                f"if {' == '.join(f'word(args, {write.argument(n)})' for n in (copy.source, copy.target))}"
            ):
                write(f"rows{mark} = 0")
        cut = self.inner if self.turned is None or self.deal == "part" else self.turned
        block = costs.RUN_UNIT if self.turned is None or self.deal else self.strip
        write(f"blocks{mark} = ({self._size(cut)} + {block - 1}) // {block}")

    def write_all(self) -> None:
        write, mark = self.write, self.mark
        write(*(f"{side} = word(args, {write.argument(getattr(self.copy, side))})" for side in ("source", "target")))
        write.share(self.units)
        with write.block("if first < last"):
            write(f"row = first // blocks{mark}", f"block = first - row * blocks{mark}")
            self.rows.start("row")
        if self.turned is None and self.rows.axes:
            self._write_rows_of_runs()
        else:
            self._write_units()
        if self.streams:
            write("streamed()")

    def _write_units(self) -> None:
        write = self.write
        with write.block("for _ in range(first, last)"):
            self._point("source", self.copy.source_start)
            self._point("target", self.copy.target_start)
            if self.turned is None:
                self._write_run()
            elif self.deal:
                self._write_groups()
            else:
                self._write_tiles()
            write("block += 1")
            with write.block(f"if block == blocks{self.mark}"):
                write("block = 0")
                self.rows.advance()

    def _write_rows_of_runs(self) -> None:
        """Runs of one block each advance by two additions along the innermost of the outer axes: computing addresses
        from all indices would take as long as copying a short run."""
        write, (index, size) = self.write, self.rows.axes[-1]
        write("unit = first")
        with write.block("while unit < last"):
            self._point("source", self.copy.source_start)
            self._point("target", self.copy.target_start)
            write("count = 1")
            with write.block(f"if blocks{self.mark} == 1"):
                write(f"count = min(last - unit, {size} - {index})")
            with write.block("for _ in range(count)"):
                self._write_run()
                for name, side in (("a", "source"), ("b", "target")):
                    write(f"{name} += {scaled(self._step(side, self._axis(index)), self.itemsize)}")
            write("unit += count", "block += 1")
            with write.block(f"if block == blocks{self.mark}"):
                write("block = 0")
                self.rows.advance("count")

    def _point(self, side: str, start: Dim) -> None:
        """Defines `a` or `b`: the address in the source or target of the first element at the current indices."""
        terms = [f"{side}_start{self.mark}"] if start != 0 else []
        for index, _ in self.rows.axes:
            step = self._step(side, self._axis(index))
            if step != "0":
                terms.append(index if step == "1" else f"{index} * {step}")
        name = {"source": "a", "target": "b"}[side]
        self.write(f"{name} = {side}" + (f" + {scaled(' + '.join(terms), self.itemsize)}" if terms else ""))

    def _write_run(self) -> None:
        write, lanes, itemsize = self.write, self.write.lanes, self.itemsize
        source, target = self._step("source", self.inner), self._step("target", self.inner)
        write(f"begin = block * {costs.RUN_UNIT}", f"end = min(begin + {costs.RUN_UNIT}, {self._size(self.inner)})")
        if target != "1" or source not in ("0", "1"):
            with write.block("for i in range(begin, end)"):
                a, b = scaled(f"i * {source}", itemsize), scaled(f"i * {target}", itemsize)
                write(f"store_{self.type}(b, {b}, load_{self.type}(a, {a}))")
            return
        if source == "0":
            write(f"v = splat_{self.type}(load_{self.type}(a, 0))")
        load, place = f"vload_{self.type}(a, {scaled('i', itemsize)}", scaled("i", itemsize)
        write(f"whole = end - (end - begin) % {lanes}")

        def write_vectors(store: str) -> None:
            with write.block(f"for i in range(begin, whole, {lanes})"):
                write(f"{store}(b, {place}, {'v' if source == '0' else load + ')'})")

        write_streaming(write, self.streams, f"b + {scaled('begin', itemsize)}", write_vectors)
        with write.block("if whole < end"):
            write("i = whole", "rest = end - whole")
            write(f"vstore(b, {place}, {'v' if source == '0' else load + ', rest)'}, rest)")

    def _write_groups(self) -> None:
        """A block of groups of a few neighbours on one side, and as many lines on the other."""
        assert self.turned is not None
        write, side, size, is_parting = self.write, self.side, self.itemsize, self.deal == "part"
        few, long = (self.turned, self.inner) if is_parting else (self.inner, self.turned)
        count, step = self.copy.axes[few].size, scaled(self._step("target" if is_parting else "source", few), size)
        write(
            f"begin = block * {costs.RUN_UNIT}",
            f"end = min(begin + {costs.RUN_UNIT}, {self._size(long)})",
            f"step = {step}",
        )
        write(f"whole = end - (end - begin) % {side}")
        line, group = f"i * {size}", f"i * {count} * {size}"
        with write.block(f"for i in range(begin, whole, {side})"):
            lines = f"a + {group}, b + {line}, step" if is_parting else f"a + {line}, step, b + {group}"
            write(f"{self.deal}_{self.type}_{count}({lines})")
        with write.block("for i in range(whole, end)"), write.block(f"for k in range({count})"):
            places = [f"{line} + k * step", f"{group} + k * {size}"]
            source, target = reversed(places) if is_parting else places
            write(f"store_{self.type}(b, {target}, load_{self.type}(a, {source}))")

    def _write_tiles(self) -> None:
        """A strip of several tiles' width, with a contiguous source, along the whole innermost axis."""
        assert self.turned is not None
        write, side, itemsize = self.write, self.side, self.itemsize
        width, height = self._size(self.turned), self._size(self.inner)
        write(f"begin = block * {self.strip}", f"end = min(begin + {self.strip}, {width})")
        write(f"a_step = {scaled(self._step('source', self.inner), itemsize)}")
        write(f"b_step = {scaled(self._step('target', self.turned), itemsize)}")
        # Target lines in few sets of L1: more tiles are transposed one after the other, along those lines, before the next ones
        # beside them. All in one set, which is too small for the lines of a tile: halves of tiles, unless the lines of the
        # source are in few sets, too.
        write(f"deep = {side}", f"if b_step % {costs.QUARTER_WAY_BYTES} == 0:", f"    deep = {_RUN * side}")
        write(f"is_tight = b_step % {costs.WAY_BYTES} == 0 and a_step % {costs.HALF_WAY_BYTES} != 0")
        write("if is_tight:", f"    deep = {_HALF_RUN * side}")
        with write.block(f"for top in range(0, {height}, deep)"):
            write(f"bottom = min(top + deep, {height})", "j = begin")
            with write.block("while j < end"):
                self._write_columns(height)

    def _write_columns(self, height: str) -> None:
        """The tiles below each other from column `j` on, and its step. Remaining columns and rows are transposed
        in a full tile that overlaps the previous one, since masks take longer."""
        write, side = self.write, self.side
        half, quarter = max(1, side // 2), max(1, side // 4)
        whole = f"end - j > {side - quarter} and not is_tight"
        kinds = (("", side, whole), ("_half", half, f"end - j > {quarter}"), ("_quarter", quarter, "end > j"))
        for kind, columns, suits in kinds:
            with write.block(f"{'elif' if kind else 'if'} {height} >= {side} and end - begin >= {columns} and {suits}"):
                write(f"column = min(j, end - {columns})")
                with write.block(f"for i in range(top, bottom, {side})"):
                    write(f"line = min(i, {height} - {side})")
                    self._write_tile(kind, "line", "column")
                write(f"j += {columns}")
        with write.block("else"):
            with write.block(f"for i in range(top, bottom, {side})"):
                write(f"rows = min({height} - i, {side})", f"columns = min(end - j, {side})")
                self._write_tile("", "i", "j", ", rows, columns")
            write(f"j += {side}")

    def _write_tile(self, kind: str, line: str, column: str, counts: str = "") -> None:
        self.write(f"from_tile = a + {line} * a_step + {scaled(column, self.itemsize)}")
        self.write(f"to_tile = b + {column} * b_step + {scaled(line, self.itemsize)}")
        self.write(f"transpose_{self.type}{kind}(from_tile, a_step, to_tile, b_step{counts})")
