"""Kernels that pass over rows several times: reductions, softmax, normalisations.

The axes of the work are either *kept* (they index rows) or *reduced* (they run along a row). A program is a sequence
of passes over a row; a pass computes something at every element, feeds accumulators with it, and may store it. There are
two layouts, and a program is written for both in the same lines:

    along    the innermost axis is reduced: a vector holds neighbours in a row; accumulators end in a horizontal sum
    across   the innermost axis is kept: a vector holds the same place of neighbouring rows; rows are taken in strips

Short rows along the innermost axis are taken in groups: a pass interleaves the same vector of each, which hides the latency of
accumulators and horizontal sums, and what all rows share (a scale, a bias) is loaded once. Remaining rows are groups of
one: a row's sums have the same order wherever it is, and however many there are.

The second pass over a row, or group, prefetches the next one: it computes more than the first, which would be bound by memory, or
by another thread's cache.

An accumulated result is a scalar in the first layout, a vector in the second: `statistic` makes a vector of either.

If the elements of a strip are far from each other, in lines that may share sets of caches, they are read once: the
first of several passes keeps them side by side in scratch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.types import TensorType
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.expression import Expression, computed_type
from ..kernels.loops import Axis, merged_axes
from ..kernels.writer import Odometer, Writer, estimate, leaves_cache, scaled, shape_of, stored, widened

# float32 sums run in float32 for this many elements, then in float64: chains short enough for pairwise accuracy
_BLOCK = 2048
_GROUP = 4  # rows that are worked on side by side, if they are no longer than _BLOCK
_ASKING_PASS = 1  # over a row, counted from 0
_UNROLL = 4  # vectors in flight, to hide the latency of the accumulators; 1 where a step is long enough by itself
_UNROLL_LONG = 2  # … along rows even there: what a step needs beside its vectors, such as constants, serves two


@dataclass(frozen=True)
class Tensor:
    """A parameter or an output in the work: `address` is its index among the kernel's tensors."""

    address: int
    dtype: DType
    present: tuple[bool, ...]  # along which axes it has elements, outermost first
    is_output: bool = False


class Work:
    """Collects the tensors of a program: `whole` is the shape of the work, some of whose axes are kept."""

    def __init__(self, anchored: Anchored, kept: Sequence[bool]) -> None:
        self.anchored, self.kept = anchored, kept
        self._found: list[tuple[int, DType, tuple[Dim, ...]]] = []

    def add(self, address: int, type_: TensorType, shape: Sequence[Dim] | None) -> int:
        """Adds a tensor that broadcasts to the whole as if it had this shape; returns its index."""
        self._found.append((address, type_.dtype, (0, 0) if shape is None else tuple(shape)))
        return len(self._found) - 1

    def add_prologue(self) -> dict[int, int]:
        """Adds the prologue's inputs; returns the index of each value number."""
        params = self.anchored.definition.params
        return {i: self.add(i, params[i], shape_of(params[i])) for i in self.anchored.prologue.inputs}

    def add_epilogue(self, places: Sequence[bool]) -> dict[int, int]:
        """Adds the epilogue's inputs, which broadcast to the axes of the whole that `places` marks."""
        params, number = self.anchored.definition.params, self.anchored.number
        others = [i for i in self.anchored.epilogue.inputs if i != number]
        return {i: self.add(i, params[i], aligned(shape_of(params[i]), places)) for i in others}

    def add_outputs(self, places: Sequence[bool]) -> list[int]:
        """Adds the outputs; returns their indices."""
        definition = self.anchored.definition
        first = len(definition.params)
        results = enumerate(definition.results)
        return [self.add(first + k, result, aligned(shape_of(result), places)) for k, result in results]

    def program(self, write: Writer, cost: float, kept: DType | None = None) -> RowProgram | None:
        """The program over these tensors, at `cost` nanoseconds per element; None if one does not broadcast to the whole. `kept`
        is the type of an element that passes after the first one read."""
        whole = self.anchored.whole
        kept_shape = [dim if kept else 1 for dim, kept in zip(whole, self.kept, strict=True)]
        axes = merged_axes(whole, [*(shape for *_, shape in self._found), kept_shape])
        if axes is None:
            return None
        inputs = len(self.anchored.definition.params)
        tensors = [
            Tensor(address, dtype, tuple(axis.present[k] for axis in axes), address >= inputs)
            for k, (address, dtype, _) in enumerate(self._found)
        ]
        return RowProgram(write, axes, [axis.present[-1] for axis in axes], tensors, cost, kept)


def aligned(shape: Sequence[Dim], places: Sequence[bool]) -> tuple[Dim, ...] | None:
    """The shape of a tensor that broadcasts to some axes, as one that broadcasts to all; None if its rank is too high."""
    axes = [axis for axis, is_marked in enumerate(places) if is_marked]
    if len(shape) > len(axes):
        return None
    result: list[Dim] = [1] * len(places)
    for axis, dim in zip(reversed(axes), reversed(shape), strict=False):
        result[axis] = dim
    return tuple(result)


@dataclass(frozen=True)
class Accumulator:
    """A reduction of a pass: `combine` is the text of one step, with {a} the accumulator and {v} the new value."""

    name: str
    combine: str
    identity: str
    horizontal: str
    dtype: DType
    is_sum: bool = False

    @property
    def wide(self) -> DType:
        """The element type of the result: float32 sums end in float64."""
        return DType.float64 if self.is_sum and self.dtype is DType.float32 else self.dtype

    def merged(self, a: str, v: str) -> str:
        return self.combine.format(a=a, v=v)


def sum_of(name: str, dtype: DType) -> Accumulator:
    return Accumulator(name, "{a} + {v}", "0", "horizontal_sum", dtype, is_sum=True)


def greatest_of(name: str, dtype: DType) -> Accumulator:
    """NaN is skipped; the exponentials propagate it."""
    return Accumulator(name, "select({v} > {a}, {v}, {a})", "-math.inf", "horizontal_maximum", dtype)


@dataclass(frozen=True)
class Step:
    """One vector of a pass: its position, and the suffixes of its variables.

    `row` is the suffix of its row's variables, if several rows are interleaved.
    """

    program: RowProgram
    index: str  # of its first element in the innermost axis's part that the pointers point to
    count: str  # the variable with the number of active lanes; empty if all are
    suffix: str
    row: str = ""

    def write(self, *lines: str) -> None:
        self.program.write(*lines)

    def statistic(self, name: str) -> str:
        """The variable of an earlier pass's statistic."""
        return name + (self.suffix if self.program.across else self.row)

    def load(self, tensor: int) -> str:
        """The variable of a tensor's elements."""
        program = self.program
        row = program.mark(tensor, self.row)
        if not program.is_vector(tensor):
            return f"s{tensor}{row}"
        dtype, name = program.tensors[tensor].dtype, f"x{tensor}{row or self.suffix}"
        if self.row and not row:  # shared by the rows: the first of them has loaded it
            name = f"x{tensor}_shared"
            if self.row != program.rows[0]:
                return name
        place = scaled(self.index, dtype.itemsize)
        self.write(f"{name} = " + widened(f"vload_{dtype.name}(p{tensor}{row}, {place}{self._ending})", dtype))
        return name

    def store(self, tensor: int, value: str) -> None:
        dtype = self.program.tensors[tensor].dtype
        place = scaled(self.index, dtype.itemsize)
        row = self.program.mark(tensor, self.row)
        self.write(f"vstore(p{tensor}{row}, {place}, {stored(value, dtype)}{self._ending})")

    def keep(self, value: str) -> None:
        """Stores the element for the next pass, if the program keeps elements."""
        self.write(f"vstore(kept, {self._kept_place}, {value})")

    def kept(self) -> str:
        """The element as `keep` stored it in an earlier pass."""
        assert self.program.kept is not None
        name = f"k{self.suffix}"
        self.write(f"{name} = vload_{self.program.kept.name}(kept, {self._kept_place})")
        return name

    @property
    def _kept_place(self) -> str:
        assert self.program.kept is not None
        return scaled(self.index, self.program.kept.itemsize)

    def evaluate(self, expression: Expression, given: Mapping[int, str], tensors: Mapping[int, int]) -> dict[int, str]:
        """Writes an expression. `tensors` maps value numbers to tensors; `given` ones are in variables already."""
        loaded = {
            number: given[number] if number in given else self.load(tensors[number]) for number in expression.inputs
        }
        lines, results = expression.emit(loaded, self.count, self.suffix)
        self.write(*lines)
        return results

    @property
    def _ending(self) -> str:
        return f", {self.count}" if self.count else ""


Body = Callable[[Step], Mapping[str, str]]  # writes a step; returns each accumulator's addend


class RowProgram:
    """Writes the loops of one program; `tensors` are the parameters and outputs that it touches."""

    def __init__(
        self,
        write: Writer,
        axes: Sequence[Axis],
        is_kept: Sequence[bool],
        tensors: Sequence[Tensor],
        cost: float,
        kept: DType | None = None,
    ) -> None:
        self.unroll, self.cost = 1 if cost > costs.LONG_STEP_NS else _UNROLL, cost
        self.write, self.tensors, self.axes, self.is_kept = write, tensors, axes, is_kept
        self.inner = len(axes) - 1
        self.across = is_kept[-1]
        self.outer_kept = [axis for axis in range(self.inner) if is_kept[axis]]
        self.outer_reduced = [axis for axis in range(self.inner) if not is_kept[axis]]
        self.kept, self.has_kept = self._kept_type(kept), False  # whether a pass has stored elements
        self.indices = Odometer(write, [(f"i{axis}", f"n{axis}") for axis in self.outer_kept])
        self._steps: list[Step] = []  # of the current strip, in the layout `across`
        self.rows: list[str] = []  # the suffixes of the current group's rows
        self._passes = 0  # written so far for these rows

    # ---- kept elements ----

    def _kept_type(self, dtype: DType | None) -> DType | None:
        """The type in which elements are kept, if they are."""
        length = dims.product([self.axes[axis].size for axis in self.outer_reduced])
        if dtype is None or not (self.across and self.outer_reduced and isinstance(length, int)):
            return None
        if length * _UNROLL * self.write.lanes * dtype.itemsize > costs.SMALL_L2_BYTES:
            return None
        columns = dims.product([self.axes[axis].size for axis in (*self.outer_kept, self.inner)])
        strips = estimate(columns) // self.write.lanes
        self.unroll = next((unroll for unroll in (_UNROLL, _UNROLL // 2) if strips >= unroll * costs.MANY_UNITS), 1)
        return dtype

    @property
    def is_spread(self) -> bool:
        """Whether the elements of a strip are far from each other."""
        columns = self.axes[self.inner].size
        return self.across and not (isinstance(columns, int) and columns < costs.SPREAD_COLUMNS)

    @property
    def _kept_step(self) -> int:
        """Bytes of a strip's elements at one position of the reduced axes."""
        return 0 if self.kept is None else self.unroll * self.write.lanes * self.kept.itemsize

    @property
    def scratch_bytes(self) -> int:
        length = dims.product([self.axes[axis].size for axis in self.outer_reduced])
        return self._kept_step * length if isinstance(length, int) else 0

    # ---- addresses ----

    def is_vector(self, tensor: int) -> bool:
        return self.tensors[tensor].present[self.inner]

    def _is_of_row(self, tensor: int) -> bool:
        """Whether a tensor is read, and has one element per row."""
        present = self.tensors[tensor].present
        if self.tensors[tensor].is_output:
            return False
        return not present[self.inner] and not any(present[axis] for axis in self.outer_reduced)

    def mark(self, tensor: int, row: str) -> str:
        """The suffix of a tensor's pointer, elements and scalar for a row of a group: "" if it is the same for all rows."""
        present = self.tensors[tensor].present
        return row if any(present[axis] for axis in self.outer_kept) else ""

    def _place(self, tensor: int) -> str:
        """The element of a tensor at the current outer indices, with the innermost index 0 (`begin` in a strip)."""
        terms, step = [], ""
        for axis in reversed(range(len(self.axes))):
            if not self.tensors[tensor].present[axis]:
                continue
            if axis != self.inner:
                terms.append(f"i{axis} * {step}" if step else f"i{axis}")
            elif self.across:
                terms.append("begin")
            step = f"{step} * n{axis}" if step else f"n{axis}"
        return " + ".join(terms)

    def _point(self, tensor: int, name: str) -> None:
        place, itemsize = self._place(tensor), self.tensors[tensor].dtype.itemsize
        self.write(f"{name} = t{tensor}" + (f" + {scaled(place, itemsize)}" if place else ""))

    def _load_scalar(self, tensor: int, row: str = "") -> None:
        dtype = self.tensors[tensor].dtype
        self._point(tensor, f"p{tensor}{row}")
        text = widened(f"load_{dtype.name}(p{tensor}{row}, 0)", dtype)
        self.write(f"s{tensor}{row} = splat_{computed_type(dtype).name}({text})")

    # ---- the outer loops ----

    def run(self, program: Callable[[], None]) -> None:
        """Writes the kernel: `program` writes the passes over one row (or strip of rows)."""
        write, picoseconds = self.write, max(1, round(1000 * self.cost))
        for axis, merged in enumerate(self.axes):
            write.size(f"n{axis}", merged.size)
        for k, tensor in enumerate(self.tensors):
            write(f"t{k} = word(args, {write.argument(tensor.address)})")
        reduced = " * ".join(f"n{axis}" for axis in range(len(self.axes)) if not self.is_kept[axis]) or "1"
        write(f"rows = {self.indices.count}", f"length = {reduced}", "share = 1.0 / length")
        sizes = [axis.size for axis, is_kept in zip(self.axes, self.is_kept, strict=True) if not is_kept]
        if len(sizes) > 1 and not all(isinstance(size, int) and size for size in sizes):
            with write.block("if length == 0"):  # else the other axes' loops would run over nothing
                write(*(f"n{axis} = 0" for axis in range(len(self.axes)) if not self.is_kept[axis]))
        self._run_units(picoseconds, program)

    def _run_units(self, picoseconds: int, program: Callable[[], None]) -> None:
        write, width = self.write, self.write.lanes * self.unroll
        if self.across:
            write(f"strips = (n{self.inner} + {width - 1}) // {width}")
            write.split("rows * strips", f"rows * n{self.inner} * length * {picoseconds} // 1000")
        elif self._has_groups:
            write(f"groups = (rows + {_GROUP - 1}) // {_GROUP}")
            write.split("groups", f"rows * length * {picoseconds} // 1000")
        else:
            write.split("rows", f"rows * length * {picoseconds} // 1000")
        with write.block("if first == last"):
            write("return 0")
        if self.across:
            write("row = first // strips", "strip = first - row * strips")
        else:
            write(f"row = first * {_GROUP}" if self._has_groups else "row = first")
        self.indices.start("row")
        with write.block("for _ in range(first, last)"):
            if self._has_groups:
                self._write_group(program)
                write(f"row += {_GROUP}")
            else:
                self._write_unit(program, width)
                self._advance()

    # ---- groups of rows ----

    @property
    def _has_groups(self) -> bool:
        """Whether rows may be short and several."""
        length, count = self.axes[self.inner].size, dims.product([self.axes[axis].size for axis in self.outer_kept])
        is_long = isinstance(length, int) and length > _BLOCK
        is_few = isinstance(count, int) and count < _GROUP
        return not (self.across or self.outer_reduced or is_long or is_few)

    def _write_group(self, program: Callable[[], None]) -> None:
        """A group's rows interleaved, or one after the other if they are too long."""
        write = self.write
        if isinstance(self.axes[self.inner].size, int):
            self._write_short_group(program)
            return
        with write.block(f"if n{self.inner} <= {_BLOCK}"):
            self._write_short_group(program)
        with write.block("else"), write.block(f"for _ in range(min({_GROUP}, rows - row))"):
            self._write_unit(program, 0)
            self._advance()

    def _write_short_group(self, program: Callable[[], None]) -> None:
        """A group's rows interleaved; a partial last group row by row, in the same order of sums."""
        write = self.write
        count = dims.product([self.axes[axis].size for axis in self.outer_kept])
        if isinstance(count, int) and not count % _GROUP:
            self._write_together(program, _GROUP)
            return
        with write.block(f"if row + {_GROUP} <= rows"):
            self._write_together(program, _GROUP)
        with write.block("else"), write.block("for _ in range(rows - row)"):
            self._write_together(program, 1)

    def _write_together(self, program: Callable[[], None], count: int) -> None:
        self.rows = [f"_r{k}" for k in range(count)]
        for k in range(len(self.tensors)):
            if not self.mark(k, "row"):
                self._load_scalar(k) if self._is_of_row(k) else self._point(k, f"p{k}")
        for row in self.rows:
            for k in range(len(self.tensors)):
                if self.mark(k, row):
                    self._load_scalar(k, row) if self._is_of_row(k) else self._point(k, f"p{k}{row}")
            self.indices.advance()
        self._passes = 0
        program()
        self.rows = []

    def _reduce_together(self, accumulators: Sequence[Accumulator], body: Body) -> None:
        """A pass over a group's rows."""
        write, lanes, length = self.write, self.write.lanes, f"n{self.inner}"
        for each in accumulators:
            write(*(f"{each.name}_lanes{row} = splat_{each.dtype.name}({each.identity})" for row in self.rows))
        write(f"whole = {length} - {length} % {lanes}")
        with write.block(f"for i in range(0, whole, {lanes})"):
            self._write_ahead("i", range(len(self.tensors)))
            for row in self.rows:
                values = body(Step(self, "i", "", row, row))
                for each in accumulators:
                    name = f"{each.name}_lanes{row}"
                    write(f"{name} = {each.merged(name, values[each.name])}")
        with write.block(f"if whole < {length}"):
            write(f"rest = {length} - whole")
            for row in self.rows:
                values = body(Step(self, "whole", "rest", row, row))
                for each in accumulators:
                    name = f"{each.name}_lanes{row}"
                    inside = f"select(inside(rest), {values[each.name]}, splat_{each.dtype.name}({each.identity}))"
                    write(f"{name} = {each.merged(name, inside)}")
        for each in accumulators:
            for row in self.rows:
                total = f"{each.name}_lanes{row}"
                wide = f"convert_{each.wide.name}({total})" if each.wide is not each.dtype else total
                write(f"{each.name}{row} = {each.horizontal}({wide})")

    @property
    def _next_row_fits(self) -> bool:
        """Whether a row follows the previous one, and the caches have room for both: L1, if a pass takes no longer
        than reading from L2."""
        length = self.axes[self.inner].size
        most = costs.SMALL_L2_BYTES if self.cost > costs.LONG_STEP_NS else self.write.target.half_l1
        return not self.outer_reduced and isinstance(length, int) and 4 * length <= most

    def _write_ahead(self, index: str, tensors: Iterable[int]) -> None:
        """In the pass that wants it, prefetches the next rows' elements at that place, and, if the result is a large
        one, their destination."""
        if self._passes != _ASKING_PASS:
            return
        is_large = leaves_cache([axis.size for axis in self.axes], self.write.target)
        for k in dict.fromkeys(tensors):
            tensor = self.tensors[k]
            if all(tensor.present) and (is_large or not tensor.is_output):
                place = scaled(f"({index} + {len(self.rows) or 1} * n{self.inner})", tensor.dtype.itemsize)
                self.write(*(f"prefetch(p{k}{row}, {place})" for row in self.rows or [""]))

    def _write_unit(self, program: Callable[[], None], width: int) -> None:
        write, lanes = self.write, self.write.lanes
        for k in range(len(self.tensors)):
            if self._is_of_row(k):
                self._load_scalar(k)
        self._passes = 0
        if not self.across:
            program()
            return
        write(f"begin = strip * {width}", f"end = min(begin + {width}, n{self.inner})")
        with write.block(f"if end - begin == {width}"):
            self._steps = [Step(self, str(lanes * u), "", f"_{u}") for u in range(self.unroll)]
            program()
        self.has_kept = False
        with write.block("else"), write.block("while begin < end"):
            write(f"rest = min({lanes}, end - begin)")
            self._steps = [Step(self, "0", "rest", "")]
            program()
            write(f"begin += {lanes}")

    def _advance(self) -> None:
        if not self.across:
            self.indices.advance()
            return
        self.write("strip += 1")
        with self.write.block("if strip == strips"):
            self.write("strip = 0")
            self.indices.advance()

    # ---- one pass ----

    def reduce(
        self,
        accumulators: Sequence[Accumulator],
        reads: Sequence[int],
        writes: Sequence[int],
        body: Body,
        is_short: bool = False,
    ) -> None:
        """Writes a pass; `is_short` if its step is, whatever the others are. Afterwards each accumulator's name holds its result:
        see `statistic`."""
        if self.across:
            self._reduce_across(accumulators, reads, writes, body)
        elif self.rows:
            self._reduce_together(accumulators, body)
        else:
            self._reduce_along(
                accumulators, reads, writes, body, _UNROLL if is_short else max(self.unroll, _UNROLL_LONG)
            )
        self._passes += 1

    def reduce_to_greatest(
        self, dtype: DType, reads: Sequence[int], element: Callable[[Step], str], cost: float
    ) -> None:
        """Writes a pass that defines `greatest`, at `cost` nanoseconds per element."""
        accumulator = greatest_of("greatest", dtype)
        self.reduce(
            [accumulator], reads, [], lambda step: {"greatest": element(step)}, is_short=cost <= costs.LONG_STEP_NS
        )

    def statistic(self, name: str, text: str, accumulators: Sequence[str] = (), dtype: DType = DType.float32) -> None:
        """Defines a vector from results of passes: `text` names them in braces."""
        if not self.across:
            for row in self.rows or [""]:
                values = {each: each + row for each in accumulators}
                self.write(f"{name}{row} = splat_{dtype.name}({text.format(**values)})")
            return
        for step in self._steps:
            values = {each: each + step.suffix for each in accumulators}
            self.write(f"{name}{step.suffix} = convert_{dtype.name}({text.format(**values)})")

    def define(self, name: str, text: str, operands: Sequence[str]) -> None:
        """Defines a vector from other statistics, which `text` names in braces."""
        for suffix in [step.suffix for step in self._steps] if self.across else self.rows or [""]:
            self.write(f"{name}{suffix} = {text.format(**{each: each + suffix for each in operands})}")

    def row_steps(self, tensors: Sequence[int]) -> list[Step]:
        """The steps over the elements of the row itself (not along it), with pointers to the tensors with one element per row."""
        if not self.rows:
            for k in tensors:
                self._point(k, f"p{k}")
        if self.across:
            return self._steps
        self.write("one = 1")
        return [Step(self, "0", "one", row, row) for row in self.rows or [""]]

    @contextlib.contextmanager
    def _outer_loops(self, tensors: Sequence[int]) -> Iterator[None]:
        """The loops over the outer reduced axes, with the pointers and scalars of a pass's tensors in them."""
        with contextlib.ExitStack() as stack:
            for axis in self.outer_reduced:
                stack.enter_context(self.write.block(f"for i{axis} in range(n{axis})"))
            if self.across:
                yield
            else:
                self._point_all(tensors)
                yield

    def _point_all(self, tensors: Sequence[int]) -> None:
        for k in dict.fromkeys(tensors):
            if self.is_vector(k):
                self._point(k, f"p{k}")
            elif not self._is_of_row(k):
                self._load_scalar(k)

    def _reduce_across(
        self, accumulators: Sequence[Accumulator], reads: Sequence[int], writes: Sequence[int], body: Body
    ) -> None:
        write = self.write
        for each in accumulators:
            write(*(f"{each.name}{step.suffix} = splat_{each.wide.name}({each.identity})" for step in self._steps))
        if self.kept:
            write("kept = scratch")
        with self._outer_loops(()):
            self._point_all([*reads, *writes])
            for step in self._steps:
                values = body(step)
                for each in accumulators:
                    name, value = each.name + step.suffix, values[each.name]
                    wide = f"convert_{each.wide.name}({value})" if each.wide is not each.dtype else value
                    write(f"{name} = {each.merged(name, wide)}")
            if self.kept:
                write(f"kept += {self._kept_step}")
        self.has_kept = self.kept is not None

    def _reduce_along(
        self,
        accumulators: Sequence[Accumulator],
        reads: Sequence[int],
        writes: Sequence[int],
        body: Body,
        unroll: int,
    ) -> None:
        write, inner = self.write, f"n{self.inner}"
        widened_sums = [each for each in accumulators if each.wide is not each.dtype]
        for each in accumulators:
            if each in widened_sums:
                write(f"{each.name}_sum = splat_{each.wide.name}({each.identity})")
            else:
                self._start(each, unroll)
        touched = [*reads, *writes]
        with self._outer_loops(touched):
            if not widened_sums:
                write("begin = 0", f"end = {inner}")
                self._write_block(accumulators, body, unroll, touched)
            else:
                with write.block(f"for begin in range(0, {inner}, {_BLOCK})"):
                    write(f"end = min(begin + {_BLOCK}, {inner})")
                    for each in widened_sums:
                        self._start(each, unroll)
                    self._write_block(accumulators, body, unroll, touched)
                    for each in widened_sums:
                        total = f"{each.name}_sum"
                        write(
                            f"{total} = {each.merged(total, f'convert_{each.wide.name}({self._together(each, unroll)})')}"
                        )
        for each in accumulators:
            total = f"{each.name}_sum" if each in widened_sums else self._together(each, unroll)
            write(f"{each.name} = {each.horizontal}({total})")

    def _start(self, each: Accumulator, unroll: int) -> None:
        self.write(*(f"{each.name}_{u} = splat_{each.dtype.name}({each.identity})" for u in range(unroll)))

    def _together(self, each: Accumulator, unroll: int) -> str:
        names = [f"{each.name}_{u}" for u in range(unroll)]
        while len(names) > 1:
            pairs = zip(names[::2], names[1::2], strict=True)
            names = [each.merged(*pair) if len(names) == 2 else f"({each.merged(*pair)})" for pair in pairs]
        return names[0]

    def _write_block(
        self, accumulators: Sequence[Accumulator], body: Body, unroll: int, touched: Iterable[int]
    ) -> None:
        """From `begin` to `end`: several vectors per iteration, then the rest with masks."""
        write, lanes = self.write, self.write.lanes
        unroll = unroll if accumulators else 1
        width = lanes * unroll
        write(f"whole = end - (end - begin) % {width}")
        with write.block(f"for i in range(begin, whole, {width})"):
            for u in range(unroll):
                index = f"i + {lanes * u}" if u else "i"
                if self._next_row_fits:
                    self._write_ahead(index, touched)
                values = body(Step(self, index, "", f"_{u}"))
                for each in accumulators:
                    name = f"{each.name}_{u}"
                    write(f"{name} = {each.merged(name, values[each.name])}")
        with write.block(f"for i in range(whole, end, {lanes})"):
            write(f"rest = min({lanes}, end - i)")
            values = body(Step(self, "i", "rest", ""))
            for each in accumulators:
                name = f"{each.name}_0"
                inside = f"select(inside(rest), {values[each.name]}, splat_{each.dtype.name}({each.identity}))"
                write(f"{name} = {each.merged(name, inside)}")
