"""The template of elementwise chains: any graph of elementwise operators, with broadcasting, in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from .....formats import dims
from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import TensorType
from .. import costs
from ..products.tile import BLOCK as CHANNELS
from ..target import Target
from .expression import Expression, computed_type
from .kernel import Kernel
from .loops import Axis, Rows, merged_axes
from .short_axis import ShortAxis
from .writer import Writer, estimate, is_streamed, scaled, shape_of, stored, widened, write_streaming

_CODES = 256  # values of a byte
_TILE = 1024  # elements that all stages of a long chain are applied to, one stage after the other, in L1


def lower(definition: PrimitiveDefinition, target: Target) -> Callable[[], Kernel] | None:
    """The kernel of a definition whose nodes are all elementwise, and whose outputs have one shape; None for others."""
    expression = Expression.of(definition, definition.outputs)
    if expression is None or len({result.shape for result in definition.results}) != 1:
        return None
    whole = shape_of(definition.results[0])
    tensors = [definition.params[i] for i in expression.inputs] + list(definition.results)
    axes = merged_axes(whole, [shape_of(tensor) for tensor in tensors])
    if axes is not None and len(axes) == 1:
        axes = _of_image(axes[0], whole)
    return None if axes is None else lambda: _kernel(definition, expression, axes, target)


def _of_image(axis: Axis, shape: Sequence[Dim]) -> tuple[Axis, ...]:
    """The two axes of a large channel-blocked image that the expression sees as merged: its channels, and their contents."""
    inner = dims.product(shape[2:])
    if len(shape) < 4 or shape[-1] != CHANNELS or (isinstance(inner, int) and inner <= costs.RUN_UNIT):
        return (axis,)
    return Axis(dims.product(shape[:2]), axis.present), Axis(inner, axis.present)


def _kernel(definition: PrimitiveDefinition, expression: Expression, axes: tuple[Axis, ...], target: Target) -> Kernel:
    tensors = [definition.params[i] for i in expression.inputs] + list(definition.results)
    write = Writer(definition, target, ", ".join(expression.operators) or "copy")
    cost = expression.cost + costs.CACHED_BYTE_NS * sum(tensor.dtype.itemsize for tensor in tensors)
    chain = _chain(definition, expression, axes, write, target)
    chain.write_all(max(1, round(cost * chain.depth * 1000)))
    return write.kernel(cost * estimate(dims.element_count(shape_of(definition.results[0]))), chain.scratch_bytes)


def _chain(
    definition: PrimitiveDefinition, expression: Expression, axes: tuple[Axis, ...], write: Writer, target: Target
) -> _Chain:
    """The kind of chain that suits the expression and its axes."""
    depth = axes[-1].size
    if isinstance(depth, int):
        if len(axes) == 1 and depth <= write.lanes:
            return _OneVector(definition, expression, write, Rows(write, axes))
        if len(axes) > 1 and depth in (write.lanes, 2 * write.lanes, 4 * write.lanes):
            return _DeepChain(definition, expression, write, axes, depth)
    tensors = [definition.params[i] for i in expression.inputs] + list(definition.results)
    axes, short = ShortAxis.of(axes, [tensor.dtype for tensor in tensors], target) or (axes, None)
    if _TableChain.takes(definition, expression, axes):
        return _TableChain(definition, expression, write, Rows(write, axes))
    if len(expression.stages) > 1:
        return _StagedChain(definition, expression, write, Rows(write, axes), short)
    if expression.cost > costs.PAIRED_NS and not (short and short.repeated):
        write.lanes *= 2
    return _Chain(definition, expression, write, Rows(write, axes), short)


class _Chain:
    """Writes one chain. Tensors are counted as the expression's inputs, then the definition's outputs: t0, t1, …"""

    depth = 1  # elements of a row's unit
    may_stream = True  # whether results may be stored non-temporally

    def __init__(
        self,
        definition: PrimitiveDefinition,
        expression: Expression,
        write: Writer,
        rows: Rows,
        short: ShortAxis | None = None,
    ) -> None:
        self.definition, self.expression, self.write, self.rows, self.short = definition, expression, write, rows, short
        self.own = short.tensors if short else ()  # the tensors that have only one of two axes walked as one
        inner = rows.axes[0].present
        repeated = [not any(axis.present[k] for axis in rows.axes) for k in range(len(inner))]
        inputs = [k for k in range(len(expression.inputs)) if k not in self.own]
        self.scalars = [k for k in inputs if repeated[k]]
        self.row_scalars = [k for k in inputs if not inner[k] and not repeated[k]]
        self.vectors = [k for k in inputs if inner[k]]
        self.outputs = range(len(expression.inputs), len(inner))
        self.streams = self.may_stream and all(is_streamed(result) for result in definition.results)

    @property
    def table_place(self) -> int:
        """The offset of the periodic tensors' tables in scratch."""
        return 0

    @property
    def scratch_bytes(self) -> int:
        return self.table_place + (self.short.table_bytes(self.write.lanes) if self.short else 0)

    def type_of(self, tensor: int) -> TensorType:
        number = (
            self.expression.inputs[tensor]
            if tensor not in self.outputs
            else self.definition.outputs[self._output(tensor)]
        )
        return self.expression.types[number]

    def _output(self, tensor: int) -> int:
        return tensor - len(self.expression.inputs)

    def write_all(self, picoseconds: int) -> None:
        write = self.write
        for k, number in enumerate(self.expression.inputs):
            write.input(f"t{k}", number)
        for k in self.outputs:
            write.output(f"t{k}", self._output(k))
        if self.short:
            self.short.write_sizes(write)
        self.rows.begin(picoseconds)
        for k in self.scalars:
            self._load_scalar(k, f"t{k}")
        self._write_start()
        with write.block(f"for {'_' if self.rows.outer else 'block'} in range(first, last)"):
            self._write_block()
            self.rows.advance()
        if self.streams:
            write("streamed()")

    def _write_start(self) -> None:
        """What is done before all blocks."""

    def _write_block(self) -> None:
        write, lanes = self.write, self.write.lanes
        self._write_places()
        write(f"whole = count - count % {lanes}")

        def write_vectors(store: str) -> None:
            with write.block(f"for i in range(0, whole, {lanes})"):
                self._write_vector("i", "", store)

        write_streaming(write, self.streams, " | ".join(f"p{k}" for k in self.outputs), write_vectors)
        with write.block("if whole < count"):
            write("rest = count - whole")
            self._write_vector("whole", "rest")

    def _write_places(self) -> None:
        """Defines the block's start in each tensor, and the scalars of its row."""
        write = self.write
        self.rows.write_block()
        for k in self.row_scalars:
            write(f"p{k} = t{k} + {scaled(self.rows.place(k), self.type_of(k).dtype.itemsize)}")
            self._load_scalar(k, f"p{k}")
        for k in (*self.vectors, *self.outputs):
            place = self.rows.place(k)
            start = f"{place} + begin" if place else "begin"
            write(f"p{k} = t{k} + {scaled(start, self.type_of(k).dtype.itemsize)}")
        if self.short:
            dtypes = [self.type_of(k).dtype for k in range(len(self.expression.inputs))]
            self.short.write_places(write, {k: self.rows.place(k) for k in self.own}, dtypes, self.table_place)

    def _write_vector(self, index: str, count: str, store: str = "vstore") -> None:
        """Loads, the expression, stores; with a count, of that many lanes."""
        for k in (*self.vectors, *self.own):
            self._load_vector(k, index, count)
        self._write_expression(index, count, store)

    def _load_vector(self, tensor: int, index: str, count: str = "") -> None:
        dtype = self.type_of(tensor).dtype
        if self.short and tensor in self.own:
            self.short.write_load(self.write, tensor, self._name(tensor), dtype, index)
            return
        loaded = f"vload_{dtype.name}(p{tensor}, {scaled(index, dtype.itemsize)}{f', {count}' if count else ''})"
        self.write(f"{self._name(tensor)} = {widened(loaded, dtype)}")

    def _write_expression(self, index: str, count: str = "", store: str = "vstore") -> None:
        names = {number: self._name(k) for k, number in enumerate(self.expression.inputs)}
        lines, results = self.expression.emit(names, count)
        self.write(*lines)
        self._store(results, index, count, store)

    def _store(self, results: Mapping[int, str], index: str, count: str, store: str = "vstore") -> None:
        for k in self.outputs:
            dtype, result = self.type_of(k).dtype, results[self.definition.outputs[self._output(k)]]
            value = stored(result, dtype) + (f", {count}" if count else "")
            self.write(f"{store}(p{k}, {scaled(index, dtype.itemsize)}, {value})")

    def _load_scalar(self, tensor: int, address: str, index: str = "0") -> None:
        dtype = self.type_of(tensor).dtype
        loaded = widened(f"load_{dtype.name}({address}, {scaled(index, dtype.itemsize)})", dtype)
        self.write(f"{self._name(tensor)} = splat_{computed_type(dtype).name}({loaded})")

    def _name(self, tensor: int) -> str:
        return f"v{self.expression.inputs[tensor]}"


class _TableChain(_Chain):
    """A long chain of one tensor of bytes, as QDQ models have them around an activation: the results of all bytes are made
    first, and looked up."""

    may_stream = False

    @staticmethod
    def takes(definition: PrimitiveDefinition, expression: Expression, axes: tuple[Axis, ...]) -> bool:
        tensors = [expression.types[number] for number in expression.inputs]
        whole = [k for k, tensor in enumerate(tensors) if any(axis.present[k] for axis in axes)]
        sizes = [tensors[k].dtype.itemsize for k in whole] + [result.dtype.itemsize for result in definition.results]
        is_long = estimate(dims.element_count(shape_of(definition.results[0]))) >= costs.TABLE_USES * _CODES
        is_of_bytes = sizes == [1, 1] and tensors[whole[0]].dtype.is_integer
        return is_of_bytes and is_long and expression.cost >= costs.TABLE_NS

    @property
    def scratch_bytes(self) -> int:
        return 2 * _CODES  # all bytes, and their results

    def _write_start(self) -> None:
        write, (code,), (result,) = self.write, self.vectors, self.outputs
        with write.block(f"for code in range({_CODES})"):
            write("store_uint8(scratch, code, convert_uint8(code))")
        write(f"p{code} = scratch", f"p{result} = scratch + {_CODES}")
        with write.block(f"for i in range(0, {_CODES}, {write.lanes})"):
            self._write_vector("i", "")

    def _write_block(self) -> None:
        write, (code,), (result,) = self.write, self.vectors, self.outputs
        self._write_places()
        with write.block("for i in range(count)"):
            write(f"code = {_CODES} + convert_int64(load_uint8(p{code}, i))")
            write(f"store_uint8(p{result}, i, load_uint8(scratch, code))")


class _OneVector(_Chain):
    """A chain of at most a vector's elements, as in computations with scalars: no loops, always one part."""

    def write_all(self, picoseconds: int) -> None:
        write = self.write
        write.alone()
        for k, number in enumerate(self.expression.inputs):
            write.input(f"p{k}", number)
        for k in self.outputs:
            write.output(f"p{k}", self._output(k))
        for k in self.scalars:
            self._load_scalar(k, f"p{k}")
        count = self.rows.axes[0].size
        self._write_vector("0", "" if count == write.lanes else str(count))


class _StagedChain(_Chain):
    """A chain with several latency-bound operators, such as tanh and exp.

    A processor reorders some hundred instructions: with one such operator that covers enough vectors to keep it busy, with a
    chain of them it does not. So each stage of the expression runs over a tile by itself; values between two stages are in
    scratch. Only the last stage stores: an output may alias an input until then.
    """

    may_stream = False

    @cached_property
    def stages(self) -> list[Expression]:
        return self.expression.stages

    @cached_property
    def places(self) -> dict[int, int]:
        """The offsets of the results of all stages but the last, in elements of the largest type."""
        between = [number for stage in self.stages[:-1] for number in stage.results]
        return {number: place * _TILE for place, number in enumerate(between)}

    @property
    def table_place(self) -> int:
        return 8 * _TILE * len(self.places)

    def _write_block(self) -> None:
        write, lanes = self.write, self.write.lanes
        self._write_places()
        with write.block(f"for tile in range(0, count, {_TILE})"):
            write(f"end = min(tile + {_TILE}, count)", f"whole = end - (end - tile) % {lanes}")
            for stage in self.stages:
                with write.block(f"for i in range(tile, whole, {lanes})"):
                    self._write_stage(stage, "i", "")
                with write.block("if whole < end"):
                    write("rest = end - whole")
                    self._write_stage(stage, "whole", "rest")

    def _write_stage(self, stage: Expression, index: str, count: str) -> None:
        """A vector's loads, one stage, and the stores."""
        numbers = self.expression.inputs
        for number in stage.inputs:
            if number not in self.places:
                if numbers.index(number) in (*self.vectors, *self.own):
                    self._load_vector(numbers.index(number), index, count)
                continue
            dtype = computed_type(stage.types[number].dtype)
            self.write(f"v{number} = vload_{dtype.name}({self._between(number, index)})")
        lines, results = stage.emit({number: f"v{number}" for number in stage.inputs}, count)
        self.write(*lines)
        if stage is self.stages[-1]:
            self._store(results, index, count)
            return
        for number in stage.results:
            self.write(f"vstore({self._between(number, index)}, {results[number]})")

    def _between(self, number: int, index: str) -> str:
        """The address of a value that a later stage reads."""
        size = computed_type(self.expression.types[number].dtype).itemsize
        return f"scratch, {8 * self.places[number]} + ({index} - tile) * {size}"


class _DeepChain(_Chain):
    """A chain whose innermost axis is a few vectors long, as in channel-blocked images [N, C/16, H, W, 16].

    A row then runs along the axis before it, and its elements are vectors: what is repeated along a row, such as a
    bias of each channel, is loaded once.
    """

    may_stream = False

    def __init__(
        self, definition: PrimitiveDefinition, expression: Expression, write: Writer, axes: Sequence[Axis], depth: int
    ) -> None:
        super().__init__(definition, expression, write, Rows(write, axes[:-1], costs.RUN_UNIT // depth))
        self.depth, self.is_deep = depth, axes[-1].present
        inner = self.rows.axes[0].present
        inputs = range(len(expression.inputs))
        self.row_vectors = [k for k in inputs if self.is_deep[k] and not inner[k]]
        self.element_scalars = [k for k in inputs if inner[k] and not self.is_deep[k]]
        self.vectors = [k for k in inputs if inner[k] and self.is_deep[k]]
        self.scalars = [k for k in self.scalars if not self.is_deep[k]]
        self.row_scalars = [k for k in self.row_scalars if not self.is_deep[k]]

    def _write_block(self) -> None:
        write, lanes = self.write, self.write.lanes
        self.rows.write_block()
        for k in (*self.row_scalars, *self.row_vectors, *self.element_scalars, *self.vectors, *self.outputs):
            terms = [self.rows.place(k), "begin" if self.rows.axes[0].present[k] else ""]
            place = " + ".join(filter(None, terms))
            size = self.type_of(k).dtype.itemsize * (self.depth if self.is_deep[k] else 1)
            write(f"p{k} = t{k}" + (f" + {scaled(place, size)}" if place else ""))
        for k in self.row_scalars:
            self._load_scalar(k, f"p{k}")
        for j in range(0, self.depth, lanes):
            for k in self.row_vectors:
                self._load_vector(k, str(j))
            with write.block("for i in range(count)"):
                for k in self.element_scalars:
                    self._load_scalar(k, f"p{k}", "i")
                for k in self.vectors:
                    self._load_vector(k, f"i * {self.depth} + {j}" if j else f"i * {self.depth}")
                self._write_expression(f"i * {self.depth} + {j}" if j else f"i * {self.depth}")
