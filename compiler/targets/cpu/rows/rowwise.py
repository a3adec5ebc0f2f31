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
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Union

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.types import TensorType
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.expression import Expression
from ..kernels.loops import Axis, merged_axes
from ..kernels.values import (
    Code,
    Operand,
    Pointer,
    Value,
    Walk,
    bracketed,
    constant,
    inside,
    least,
    product,
    reduced,
    select,
    value_of,
)
from ..kernels.writer import estimate, leaves_cache, shape_of

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

    def program(self, code: Code, cost: float, kept: DType | None = None) -> RowProgram | None:
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
        if not axes[-1].present[-1]:
            return Along(code, axes, [axis.present[-1] for axis in axes], tensors, cost)
        program = Across(code, axes, [axis.present[-1] for axis in axes], tensors, cost)
        program.keep_elements(kept)
        return program


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
    """A reduction of a pass: `combine` is one step, of the accumulator and the new value."""

    name: str
    combine: Callable[[Value, Value], Value]
    identity: Operand
    horizontal: str
    dtype: DType
    is_sum: bool = False

    @property
    def wide(self) -> DType:
        """The element type of the result: float32 sums end in float64."""
        return DType.float64 if self.is_sum and self.dtype is DType.float32 else self.dtype

    def merged(self, a: str, v: str) -> str:
        """The text of a step, of variables in a template that writes text."""
        return str(self.combine(Value(a, self.dtype, True), Value(v, self.dtype, True)))

    def start(self, dtype: DType | None = None) -> Value:
        return value_of(self.identity).splat(dtype or self.dtype)

    def widened(self, value: Value) -> Value:
        return value if self.wide is self.dtype else value.to(self.wide)

    def masked(self, value: Value, count: Value) -> Value:
        """The value where lanes count."""
        return select(inside(count), value, self.start())


def sum_of(name: str, dtype: DType) -> Accumulator:
    return Accumulator(name, lambda total, x: total + x, 0, "horizontal_sum", dtype, is_sum=True)


def greatest_of(name: str, dtype: DType) -> Accumulator:
    """NaN is skipped; the exponentials propagate it."""
    return Accumulator(name, lambda a, x: select(x > a, x, a), constant(-math.inf), "horizontal_maximum", dtype)


@dataclass(frozen=True)
class Result:
    """The result of a pass for each row: a scalar in the layout `along`, until `statistic` makes a vector of it."""

    name: str
    dtype: DType
    is_vector: bool

    def at(self, mark: str) -> Value:
        """That of the row, or vector of rows, whose names have this mark."""
        return Value(self.name + mark, self.dtype, self.is_vector)


@dataclass(frozen=True)
class Step:
    """One vector of a pass: its position, and the suffixes of its variables.

    `row` is the suffix of its row's variables, if several rows are interleaved.
    """

    program: RowProgram
    index: Operand  # of its first element in the innermost axis's part that the pointers point to
    count: tuple[Value, ...]  # the number of active lanes; empty if all are
    suffix: str
    row: str = ""

    def let(self, name: str, value: Value) -> Value:
        """Defines a variable of this step."""
        return self.program.code.let(name + self.suffix, value)

    def of(self, result: Result) -> Value:
        """An earlier pass's result for the row."""
        return result.at(self.suffix if self.program.across else self.row)

    def load(self, tensor: int) -> Value:
        """A tensor's elements."""
        program = self.program
        row = program.mark(tensor, self.row)
        if not program.is_vector(tensor):
            return program.scalars[tensor, row]
        loaded = program.pointers[tensor, row].vector(self.index, *self.count).computed()
        if not self.row or row:
            return program.code.let(f"x{tensor}{row or self.suffix}", loaded)
        if self.row == program.rows[0]:  # shared by the rows: the first of them loads it
            program.shared[tensor] = program.code.let(f"x{tensor}_shared", loaded)
        return program.shared[tensor]

    def store(self, tensor: int, value: Value) -> None:
        program = self.program
        program.pointers[tensor, program.mark(tensor, self.row)].store(self.index, value, *self.count)

    def keep(self, value: Value) -> None:
        """Stores the element for the next pass, if the program keeps elements."""
        self.program.kept_elements.store(self.index, value)

    def kept(self) -> Value:
        """The element as `keep` stored it in an earlier pass."""
        return self.let("k", self.program.kept_elements.vector(self.index))

    def evaluate(
        self, expression: Expression, given: Mapping[int, Value], tensors: Mapping[int, int]
    ) -> dict[int, Value]:
        """Writes an expression. `tensors` maps value numbers to tensors; `given` ones are in variables already."""
        loaded = {
            number: str(given[number] if number in given else self.load(tensors[number]))
            for number in expression.inputs
        }
        lines, results = expression.emit(loaded, "".join(map(str, self.count)), self.suffix)
        self.program.code.write(*lines)
        return {number: Value(name, expression.types[number].dtype.computed, True) for number, name in results.items()}


Body = Callable[[Step], Value]  # writes a step; returns the accumulator's addend
_Body = Callable[[Step], Union[Value, None]]


class RowProgram:
    """Writes the loops of one program; `tensors` are the parameters and outputs that it touches. A layout says how units of work
    are walked, and how a pass is written."""

    across: bool
    marks: list[str]  # of the rows, or vectors of rows, that are being worked on
    kept: DType | None = None  # the type in which elements are kept in scratch, if they are
    kept_elements: Pointer
    has_kept = False  # whether a pass has stored elements
    is_spread = False  # whether the elements of a strip are far from each other
    scratch_bytes = 0

    def __init__(
        self, code: Code, axes: Sequence[Axis], is_kept: Sequence[bool], tensors: Sequence[Tensor], cost: float
    ) -> None:
        self.unroll, self.cost = 1 if cost > costs.LONG_STEP_NS else _UNROLL, cost
        self.code, self.tensors, self.axes, self.is_kept = code, tensors, axes, is_kept
        self.inner = len(axes) - 1
        self.outer_kept = [axis for axis in range(self.inner) if is_kept[axis]]
        self.outer_reduced = [axis for axis in range(self.inner) if not is_kept[axis]]
        self.rows: list[str] = []  # the suffixes of the current group's rows
        self._passes = 0  # written so far for these rows
        # what is known at the current indices, of each tensor and row of a group ("" if it is the same for all)
        self.pointers: dict[tuple[int, str], Pointer] = {}
        self.scalars: dict[tuple[int, str], Value] = {}
        self.shared: dict[int, Value] = {}  # vectors that all rows of a group have

    # ---- what layouts say ----

    def row_steps(self, tensors: Sequence[int]) -> list[Step]:
        """The steps over the elements of the row itself (not along it), with pointers to the tensors with one element per row."""
        raise NotImplementedError

    def _write_units(self, picoseconds: int, program: Callable[[], None]) -> None:
        raise NotImplementedError

    def _write_pass(
        self, each: Accumulator | None, reads: Sequence[int], writes: Sequence[int], body: _Body, is_short: bool
    ) -> None:
        raise NotImplementedError

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

    def _inner_place(self) -> list[Value]:
        """Where the innermost axis's part begins that pointers point to, unless that is its beginning."""
        return []

    def _place(self, tensor: int) -> list[Value]:
        """The element of a tensor at the current outer indices, as terms."""
        terms: list[Value] = []
        sizes: list[Value] = []  # of the axes after it
        for axis in reversed(range(len(self.axes))):
            if not self.tensors[tensor].present[axis]:
                continue
            if axis == self.inner:
                terms += self._inner_place()
            else:
                terms.append(product([self.index[axis], *sizes]))
            sizes.append(self.sizes[axis])
        return terms

    def _point(self, tensor: int, row: str = "") -> Pointer:
        start, terms = self.starts[tensor], self._place(tensor)
        found = self.code.let(f"p{tensor}{row}", start.at(functools.reduce(operator.add, terms)) if terms else start)
        self.pointers[tensor, row] = found
        return found

    def _load_scalar(self, tensor: int, row: str = "") -> None:
        element = self._point(tensor, row).scalar(0).computed()
        self.scalars[tensor, row] = self.code.let(f"s{tensor}{row}", element.splat())

    def _point_all(self, tensors: Iterable[int]) -> None:
        for k in dict.fromkeys(tensors):
            if self.is_vector(k):
                self._point(k)
            elif not self._is_of_row(k):
                self._load_scalar(k)

    # ---- the outer loops ----

    def run(self, program: Callable[[], None]) -> None:
        """Writes the kernel: `program` writes the passes over one row (or strip of rows)."""
        code = self.code
        self.sizes = [code.size(f"n{axis}", merged.size) for axis, merged in enumerate(self.axes)]
        self.inner_size = self.sizes[self.inner]
        self.starts = [code.tensor(f"t{k}", tensor.address, tensor.dtype) for k, tensor in enumerate(self.tensors)]
        inside_row = [axis for axis in range(len(self.axes)) if not self.is_kept[axis]]
        self.index = [Value(f"i{axis}") for axis in range(self.inner)]
        self.walk = Walk(code, [(f"i{axis}", self.sizes[axis]) for axis in self.outer_kept])
        self.row_count = code.let("rows", self.walk.count)
        self.length = code.let("length", product([self.sizes[axis] for axis in inside_row]))
        self.share = code.let("share", 1.0 / self.length)
        sizes = [self.axes[axis].size for axis in inside_row]
        if len(sizes) > 1 and not all(isinstance(size, int) and size for size in sizes):
            with code.when(self.length.equals(0)):  # else the other axes' loops would run over nothing
                for axis in inside_row:
                    code.set(self.sizes[axis], 0)
        self._write_units(max(1, round(1000 * self.cost)), program)

    @contextlib.contextmanager
    def _outer_loops(self) -> Iterator[None]:
        """The loops over the outer reduced axes."""
        with contextlib.ExitStack() as stack:
            for axis in self.outer_reduced:
                stack.enter_context(self.code.loop(f"i{axis}", self.sizes[axis]))
            yield

    def _load_row(self) -> None:
        for k in range(len(self.tensors)):
            if self._is_of_row(k):
                self._load_scalar(k)

    # ---- passes ----

    def reduce(
        self, each: Accumulator, reads: Sequence[int], body: Body, writes: Sequence[int] = (), is_short: bool = False
    ) -> Result:
        """Writes a pass; `is_short` if its step is, whatever the others are."""
        self._write_pass(each, reads, writes, body, is_short)
        self._passes += 1
        return Result(each.name, each.wide, self.across)

    def for_each(self, reads: Sequence[int], writes: Sequence[int], body: Callable[[Step], None]) -> None:
        """Writes a pass that reduces nothing."""
        self._write_pass(None, reads, writes, body, False)
        self._passes += 1

    def greatest(self, dtype: DType, reads: Sequence[int], element: Body, cost: float) -> Result:
        """Writes a pass that finds the greatest element, at `cost` nanoseconds per element."""
        return self.reduce(greatest_of("greatest", dtype), reads, element, is_short=cost <= costs.LONG_STEP_NS)

    def statistic(self, name: str, dtype: DType, value: Callable[..., Value], *operands: Result) -> Result:
        """A vector made of results of passes."""
        for mark in self.marks:
            found = value(*(each.at(mark) for each in operands))
            self.code.let(name + mark, found.to(dtype) if found.is_vector else found.splat(dtype))
        return Result(name, dtype, True)

    def define(self, name: str, value: Callable[..., Value], *operands: Result) -> Result:
        """A vector made of other statistics."""
        found = [self.code.let(name + mark, value(*(each.at(mark) for each in operands))) for mark in self.marks]
        return Result(name, found[0].type, True)


class _Totals:
    """The accumulator of a pass, if it has one: a variable of each of several vectors, told by marks."""

    def __init__(self, each: Accumulator | None, code: Code, marks: Sequence[str]) -> None:
        self.each, self.code, self.marks = each, code, marks
        self.values: dict[str, Value] = {}

    def start(self, dtype: DType | None = None) -> None:
        if self.each is not None:
            self.values = {mark: self.code.let(self.each.name + mark, self.each.start(dtype)) for mark in self.marks}

    def take(self, mark: str, value: Value | None, *count: Value) -> None:
        """Takes in a value, or the first `count` of its lanes."""
        if self.each is not None and value is not None:
            value = self.each.masked(value, *count) if count else value
            self.code.set(self.values[mark], self.each.combine(self.values[mark], value))

    def together(self) -> Value:
        assert self.each is not None
        values, combine = list(self.values.values()), self.each.combine
        while len(values) > 2:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [bracketed(combine(*pair)) for pair in pairs]
        return combine(*values) if len(values) == 2 else values[0]


class Along(RowProgram):
    """The innermost axis is reduced."""

    across, marks = False, [""]

    def row_steps(self, tensors: Sequence[int]) -> list[Step]:
        if not self.rows:
            for k in tensors:
                self._point(k)
        one = self.code.let("one", 1)
        return [Step(self, constant(0), (one,), row, row) for row in self.marks]

    def _write_units(self, picoseconds: int, program: Callable[[], None]) -> None:
        code, rows = self.code, self.row_count
        units, in_unit = rows, 1
        if self._has_groups:
            units, in_unit = code.let("groups", (rows + (_GROUP - 1)) // _GROUP), _GROUP
        first, last = code.split(units, rows * self.length * picoseconds // 1000)
        with code.when(first.equals(last)):
            code.leave()
        row = code.let("row", first * in_unit if self._has_groups else first)
        self.walk.start(row)
        with code.loop("_", first, last):
            if self._has_groups:
                self._write_group(row, program)
                code.add(row, _GROUP)
            else:
                self._write_row(program)

    def _write_row(self, program: Callable[[], None]) -> None:
        self._load_row()
        self._passes = 0
        program()
        self.walk.advance()

    # ---- groups of rows ----

    @property
    def _has_groups(self) -> bool:
        """Whether rows may be short and several."""
        length, count = self.axes[self.inner].size, dims.product([self.axes[axis].size for axis in self.outer_kept])
        is_long = isinstance(length, int) and length > _BLOCK
        is_few = isinstance(count, int) and count < _GROUP
        return not (self.outer_reduced or is_long or is_few)

    def _write_group(self, row: Value, program: Callable[[], None]) -> None:
        """A group's rows interleaved, or one after the other if they are too long."""
        code = self.code
        if isinstance(self.axes[self.inner].size, int):
            self._write_short_group(row, program)
            return
        with code.when(self.inner_size <= _BLOCK):
            self._write_short_group(row, program)
        with code.otherwise(), code.loop("_", least(_GROUP, self.row_count - row)):
            self._write_row(program)

    def _write_short_group(self, row: Value, program: Callable[[], None]) -> None:
        """A group's rows interleaved; a partial last group row by row, in the same order of sums."""
        code = self.code
        count = dims.product([self.axes[axis].size for axis in self.outer_kept])
        if isinstance(count, int) and not count % _GROUP:
            self._write_together(program, _GROUP)
            return
        with code.when(row + _GROUP <= self.row_count):
            self._write_together(program, _GROUP)
        with code.otherwise(), code.loop("_", self.row_count - row):
            self._write_together(program, 1)

    def _write_together(self, program: Callable[[], None], count: int) -> None:
        self.rows = self.marks = [f"_r{k}" for k in range(count)]
        for k in range(len(self.tensors)):
            if not self.mark(k, "row"):
                self._load_scalar(k) if self._is_of_row(k) else self._point(k)
        for row in self.rows:
            for k in range(len(self.tensors)):
                if self.mark(k, row):
                    self._load_scalar(k, row) if self._is_of_row(k) else self._point(k, row)
            self.walk.advance()
        self._passes = 0
        program()
        self.rows, self.marks = [], [""]

    # ---- one pass ----

    def _write_pass(
        self, each: Accumulator | None, reads: Sequence[int], writes: Sequence[int], body: _Body, is_short: bool
    ) -> None:
        if self.rows:
            self._write_pass_together(each, body)
            return
        unroll = 1 if each is None else _UNROLL if is_short else max(self.unroll, _UNROLL_LONG)
        totals, touched = _Totals(each, self.code, [f"_{u}" for u in range(unroll)]), [*reads, *writes]
        if each is not None and each.wide is not each.dtype:
            self._write_long_sum(each, totals, body, touched)
            return
        totals.start()
        with self._outer_loops():
            self._point_all(touched)
            begin, end = self.code.let("begin", 0), self.code.let("end", self.inner_size)
            self._write_block(totals, begin, end, body, touched)
        if each is not None:
            self.code.let(each.name, reduced(each.horizontal, totals.together()))

    def _write_long_sum(self, each: Accumulator, totals: _Totals, body: _Body, touched: Sequence[int]) -> None:
        """Sums of blocks, and the sum of these in a wider type."""
        code = self.code
        total = code.let(f"{each.name}_sum", each.start(each.wide))
        with self._outer_loops():
            self._point_all(touched)
            with code.loop("begin", 0, self.inner_size, _BLOCK) as begin:
                end = code.let("end", least(begin + _BLOCK, self.inner_size))
                totals.start()
                self._write_block(totals, begin, end, body, touched)
                code.set(total, each.combine(total, each.widened(totals.together())))
        code.let(each.name, reduced(each.horizontal, total))

    def _write_block(self, totals: _Totals, begin: Value, end: Value, body: _Body, touched: Sequence[int]) -> None:
        """Several vectors per iteration, then the rest with masks."""
        code, lanes = self.code, self.code.lanes
        width = lanes * len(totals.marks)
        whole = code.let("whole", end - (end - begin) % width)
        with code.loop("i", begin, whole, width) as i:
            for u, mark in enumerate(totals.marks):
                index = i + lanes * u if u else i
                if self._next_row_fits:
                    self._write_ahead(index, touched)
                totals.take(mark, body(Step(self, index, (), mark)))
        with code.loop("i", whole, end, lanes) as i:
            rest = code.let("rest", least(lanes, end - i))
            totals.take("_0", body(Step(self, i, (rest,), "")), rest)

    def _write_pass_together(self, each: Accumulator | None, body: _Body) -> None:
        """A pass over a group's rows."""
        code, lanes, length = self.code, self.code.lanes, self.inner_size
        totals = _Totals(each, code, [f"_lanes{row}" for row in self.rows])
        totals.start()
        whole = code.let("whole", length - length % lanes)
        with code.loop("i", 0, whole, lanes) as i:
            self._write_ahead(i, range(len(self.tensors)))
            for row, mark in zip(self.rows, totals.marks, strict=True):
                totals.take(mark, body(Step(self, i, (), row, row)))
        with code.when(whole < length):
            rest = code.let("rest", length - whole)
            for row, mark in zip(self.rows, totals.marks, strict=True):
                totals.take(mark, body(Step(self, whole, (rest,), row, row)), rest)
        if each is not None:
            for row, mark in zip(self.rows, totals.marks, strict=True):
                code.let(each.name + row, reduced(each.horizontal, each.widened(totals.values[mark])))

    @property
    def _next_row_fits(self) -> bool:
        """Whether a row follows the previous one, and the caches have room for both: L1, if a pass takes no longer
        than reading from L2."""
        length = self.axes[self.inner].size
        most = costs.SMALL_L2_BYTES if self.cost > costs.LONG_STEP_NS else self.code.write.target.half_l1
        return not self.outer_reduced and isinstance(length, int) and 4 * length <= most

    def _write_ahead(self, index: Value, tensors: Iterable[int]) -> None:
        """In the pass that wants it, prefetches the next rows' elements at that place, and, if the result is a large
        one, their destination."""
        if self._passes != _ASKING_PASS:
            return
        is_large = leaves_cache([axis.size for axis in self.axes], self.code.write.target)
        place = bracketed(index + len(self.marks) * self.inner_size)
        for k in dict.fromkeys(tensors):
            tensor = self.tensors[k]
            if all(tensor.present) and (is_large or not tensor.is_output):
                for row in self.marks:
                    self.pointers[k, row].prefetch(place)


class Across(RowProgram):
    """The innermost axis is kept: rows are taken in strips, of which each vector is a step of its own."""

    _steps: list[Step]  # of the current strip
    _begin: Value  # of the strip

    across = True

    def row_steps(self, tensors: Sequence[int]) -> list[Step]:
        for k in tensors:
            self._point(k)
        return self._steps

    def _inner_place(self) -> list[Value]:
        return [self._begin]

    # ---- kept elements ----

    def keep_elements(self, dtype: DType | None) -> None:
        """Lets the first pass keep elements of that type, if there is room."""
        columns, length = (
            self.axes[self.inner].size,
            dims.product([self.axes[axis].size for axis in self.outer_reduced]),
        )
        self.is_spread = not (isinstance(columns, int) and columns < costs.SPREAD_COLUMNS)
        if dtype is None or not self.outer_reduced or not isinstance(length, int):
            return
        row_bytes = length * self.code.lanes * dtype.itemsize
        if row_bytes * _UNROLL > costs.SMALL_L2_BYTES:
            return
        strips = (
            estimate(dims.product([*(self.axes[axis].size for axis in self.outer_kept), columns])) // self.code.lanes
        )
        self.unroll = next((unroll for unroll in (_UNROLL, _UNROLL // 2) if strips >= unroll * costs.MANY_UNITS), 1)
        self.kept, self.scratch_bytes = dtype, row_bytes * self.unroll

    # ---- strips ----

    def _write_units(self, picoseconds: int, program: Callable[[], None]) -> None:
        code, columns, width = self.code, self.inner_size, self.code.lanes * self.unroll
        strips = code.let("strips", (columns + (width - 1)) // width)
        first, last = code.split(self.row_count * strips, self.row_count * columns * self.length * picoseconds // 1000)
        with code.when(first.equals(last)):
            code.leave()
        row = code.let("row", first // strips)
        strip = code.let("strip", first - row * strips)
        self.walk.start(row)
        with code.loop("_", first, last):
            self._load_row()
            self._begin = begin = code.let("begin", strip * width)
            end = code.let("end", least(begin + width, columns))
            self._write_strip(begin, end, width, program)
            code.add(strip, 1)
            with code.when(strip.equals(strips)):
                code.set(strip, 0)
                self.walk.advance()

    def _write_strip(self, begin: Value, end: Value, width: int, program: Callable[[], None]) -> None:
        """A whole one as several vectors; of another, one vector after the other."""
        code, lanes = self.code, self.code.lanes
        with code.when((end - begin).equals(width)):
            self._write_steps([Step(self, constant(lanes * u), (), f"_{u}") for u in range(self.unroll)], program)
        self.has_kept = False
        with code.otherwise(), code.loop_while(begin < end):
            rest = code.let("rest", least(lanes, end - begin))
            self._write_steps([Step(self, constant(0), (rest,), "")], program)
            code.add(begin, lanes)

    def _write_steps(self, steps: list[Step], program: Callable[[], None]) -> None:
        self._steps, self.marks = steps, [step.suffix for step in steps]
        program()

    def _write_pass(
        self, each: Accumulator | None, reads: Sequence[int], writes: Sequence[int], body: _Body, is_short: bool
    ) -> None:
        code, totals = self.code, _Totals(each, self.code, self.marks)
        totals.start(None if each is None else each.wide)
        if self.kept:
            self.kept_elements = code.let("kept", code.pointer(code.scratch, self.kept))
        with self._outer_loops():
            self._point_all([*reads, *writes])
            for step in self._steps:
                value = body(step)
                totals.take(step.suffix, value if each is None or value is None else each.widened(value))
            if self.kept:
                code.add(self.kept_elements, self.unroll * code.lanes * self.kept.itemsize)
        self.has_kept = self.kept is not None
