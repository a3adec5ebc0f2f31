"""The templates of softmax and of the normalisations: statistics of a row, then every element by them.

A row is read two or three times, which costs little: rows fit L1 or L2. Means and variances are taken in
two passes, since the difference of squares would cancel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import TensorType
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.expression import computed_type, literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate, scaled, shape_of, stored, widened
from ..target import Target
from .rowwise import RowProgram, Step, Work, sum_of


class Normalized:
    """A softmax or normalisation in a definition: an element of the result for each of the input, in the same place."""

    def __init__(self, anchored: Anchored, kept: list[bool], target: Target) -> None:
        self.anchored = anchored
        self.work = Work(anchored, kept)
        everywhere = [True] * len(kept)
        self.inputs, self.others = self.work.add_prologue(), self.work.add_epilogue(everywhere)
        self.outputs = self.work.add_outputs(everywhere)
        self.write = Writer(anchored.definition, target, anchored.title)
        self.type = anchored.node.results[0].dtype
        self.dtype = computed_type(self.type)

    @property
    def reads(self) -> list[int]:
        return list(self.inputs.values())

    def element(self, step: Step) -> str:
        """The variable of the input's element. Passes after the first one read it from scratch, if it is kept there and
        recomputing it would take longer."""
        is_kept = step.program.kept and (step.program.is_spread or self.anchored.prologue.nodes)
        if is_kept and step.program.has_kept:
            return step.kept()
        number = self.anchored.node.inputs[0]
        value = step.evaluate(self.anchored.prologue, {}, self.inputs)[number]
        if is_kept:
            step.keep(value)
        return value

    def exponential(self, step: Step) -> str:
        """The exponential of the input's element less `peak`, the greatest one."""
        function = "exp_of_negative" if self.dtype is DType.float32 else "exp"
        return f"{function}({self.element(step)} - {step.statistic('peak')})"

    def write_elements(self, program: RowProgram, value: Callable[[Step], str], reads: list[int]) -> None:
        """The last pass: the epilogue on `value`, and the stores."""

        def body(step: Step) -> Mapping[str, str]:
            name = f"v{self.anchored.number}{step.suffix}"
            step.write(f"{name} = {value(step)}")
            results = step.evaluate(self.anchored.epilogue, {self.anchored.number: name}, self.others)
            for tensor, number in zip(self.outputs, self.anchored.definition.outputs, strict=True):
                step.store(tensor, results[number])
            return {}

        program.reduce([], [*reads, *self.others.values()], self.outputs, body)

    def kernel(self, nanoseconds: float, passes: Callable[[RowProgram], None]) -> Kernel | None:
        """The kernel whose passes over a row `passes` writes. None if a tensor does not fit."""
        cost = nanoseconds + self.anchored.prologue.cost + self.anchored.epilogue.cost
        program = self.work.program(self.write, cost, self.dtype)
        if program is None:
            return None
        program.run(lambda: passes(program))
        return self.write.kernel(cost * estimate(dims.element_count(self.anchored.whole)), program.scratch_bytes)


def lower_softmax(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """exp(x - m) / Σ exp(x - m), with m the greatest of the row."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    rank = len(anchored.whole)
    axis = axis_of(anchored.attributes["axis"], rank)
    it = Normalized(anchored, [place != axis for place in range(rank)], target)
    # the exponentials are kept in the output, if nothing fused needs more precision or the output's old contents
    keeps = not anchored.epilogue.nodes and len(it.outputs) == 1 and it.type is it.dtype

    def passes(program: RowProgram) -> None:
        program.reduce_to_greatest(it.dtype, it.reads, it.element, anchored.prologue.cost)
        program.statistic("peak", "{greatest}", ["greatest"], it.dtype)

        def exponentials(step: Step) -> Mapping[str, str]:
            step.write(f"e{step.suffix} = {it.exponential(step)}")
            if program.kept:
                step.keep(f"e{step.suffix}")
            elif keeps:
                step.store(it.outputs[0], f"e{step.suffix}")
            return {"total": f"e{step.suffix}"}

        program.reduce([sum_of("total", it.dtype)], it.reads, it.outputs if keeps else [], exponentials)
        program.statistic("scale", "1.0 / {total}", ["total"], it.dtype)

        def result(step: Step) -> str:
            if program.kept:
                return f"{step.kept()} * {step.statistic('scale')}"
            if keeps:
                return f"{step.load(it.outputs[0])} * {step.statistic('scale')}"
            return f"{it.exponential(step)} * {step.statistic('scale')}"

        it.write_elements(program, result, it.outputs if keeps else it.reads)

    return it.kernel(costs.SOFTMAX_NS, passes)


def lower_log_softmax(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """x - m - log Σ exp(x - m), with m the greatest of the row."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    rank = len(anchored.whole)
    axis = axis_of(anchored.attributes["axis"], rank)
    it = Normalized(anchored, [place != axis for place in range(rank)], target)

    def passes(program: RowProgram) -> None:
        program.reduce_to_greatest(it.dtype, it.reads, it.element, anchored.prologue.cost)
        program.statistic("peak", "{greatest}", ["greatest"], it.dtype)

        def exponential(step: Step) -> Mapping[str, str]:
            return {"total": it.exponential(step)}

        program.reduce([sum_of("total", it.dtype)], it.reads, [], exponential)
        program.statistic("sum", "{total}", ["total"], it.dtype)
        program.define("log_sum", "log({sum})", ["sum"])
        it.write_elements(
            program,
            lambda step: f"({it.element(step)} - {step.statistic('peak')}) - {step.statistic('log_sum')}",
            it.reads,
        )

    return it.kernel(costs.SOFTMAX_NS, passes)


def _lower_standardized(
    anchored: Anchored,
    kept: list[bool],
    affine: list[tuple[Dim, ...]],
    target: Target,
    centered: bool = True,
    rest: Dim = 0,
) -> Kernel | None:
    """(x - mean) / √(variance + epsilon), times the second input, plus the third, which have the shapes `affine`.

    Without `centered` the mean is taken to be 0. The kernel fails where `rest` is not 0.
    """
    it = Normalized(anchored, kept, target)
    it.write.require_zero(rest)
    parameters = [anchored.parameter(place) for place in range(1, len(anchored.node.inputs))]
    if None in parameters:
        return None
    params = anchored.definition.params
    factors = [it.work.add(i, params[i], shape) for i, shape in zip(parameters, affine, strict=False) if i is not None]
    epsilon = literal(anchored.attributes["epsilon"], DType.float64)

    def deviation(step: Step) -> str:
        return f"({it.element(step)} - {step.statistic('mean')})" if centered else it.element(step)

    def passes(program: RowProgram) -> None:
        if centered:
            program.reduce([sum_of("total", it.dtype)], it.reads, [], lambda step: {"total": it.element(step)})
            program.statistic("mean", "{total} * share", ["total"], it.dtype)

        def square(step: Step) -> Mapping[str, str]:
            step.write(f"d{step.suffix} = {deviation(step)}")
            return {"squares": f"d{step.suffix} * d{step.suffix}"}

        program.reduce([sum_of("squares", it.dtype)], it.reads, [], square)
        program.statistic("scale", f"1.0 / sqrt({{squares}} * share + {epsilon})", ["squares"], it.dtype)

        def result(step: Step) -> str:
            text = f"{deviation(step)} * {step.statistic('scale')}"
            for symbol, tensor in zip("*+", factors, strict=False):
                text = f"{text} {symbol} {step.load(tensor)}"
            return text

        it.write_elements(program, result, [*it.reads, *factors])

    return it.kernel(costs.NORM_NS, passes)


def lower_layer(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """Layer and RMS normalisation: over the last axes; scale and bias have their shape."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    rank = len(anchored.whole)
    axis = axis_of(anchored.attributes["axis"], rank)
    kept = [place < axis for place in range(rank)]
    affine = [anchored.whole[axis:]] * 2
    return _lower_standardized(anchored, kept, affine, target, anchored.node.operator == "layer_normalization")


def lower_instance(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """Instance normalisation: over the axes after the channels; scale and bias have an element for each channel."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    rank = len(anchored.whole)
    channels = (anchored.whole[1], *[1] * (rank - 2))
    return _lower_standardized(anchored, [place < 2 for place in range(rank)], [channels] * 2, target)


def lower_group(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """Group normalisation, alone in its definition: with the channels seen as [groups, channels of a group]."""
    anchored = Anchored.of(definition)
    if anchored is None or len(definition.nodes) != 1:
        return None
    images, channels, *spatial = anchored.whole
    groups = anchored.attributes["groups"]
    view = (images, groups, dims.floordiv(channels, groups), *spatial)
    seen = TensorType(definition.params[0].dtype, view)
    node = dataclasses.replace(anchored.node, results=(seen,))
    definition = dataclasses.replace(definition, params=(seen, *definition.params[1:]), nodes=(node,))
    affine = (*view[1:3], *[1] * len(spatial))
    kept = [place < 2 for place in range(len(view))]
    rest = dims.modulo(channels, groups)  # the view itself does not check this
    return _lower_standardized(Anchored.of(definition) or anchored, kept, [affine] * 2, target, rest=rest)


def lower_batch(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """Batch normalisation: by given statistics of each channel."""
    anchored = Anchored.of(definition)
    parameters = [anchored.parameter(place) for place in range(1, 5)] if anchored else [None]
    if anchored is None or None in parameters:
        return None
    rank = len(anchored.whole)
    it = Normalized(anchored, [True] * rank, target)
    params, channels = definition.params, (anchored.whole[1], *[1] * (rank - 2))
    given = [it.work.add(i, params[i], channels) for i in parameters if i is not None]
    epsilon = literal(anchored.attributes["epsilon"], it.dtype)

    def result(step: Step) -> str:
        x = it.element(step)
        scale, bias, mean, variance = (step.load(tensor) for tensor in given)
        return f"({x} - {mean}) * ({scale} / sqrt({variance} + {epsilon})) + {bias}"

    return it.kernel(costs.BATCH_NORM_NS, lambda program: it.write_elements(program, result, [*it.reads, *given]))


def lower_local_response(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """x / (bias + alpha / size · Σ x²) ** beta, the sum over neighbouring channels; alone in its definition."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    attributes, dtype = bound_attributes(definition.nodes[0]), definition.params[0].dtype
    images, channels, *spatial = shape_of(definition.params[0])
    write, computed, itemsize = (
        Writer(definition, target, "local_response_normalization"),
        computed_type(dtype),
        dtype.itemsize,
    )
    size = attributes["size"]
    before, after = (size - 1) // 2, size // 2
    write.input("x", 0)
    write.output("y", 0)
    write.size("images", images)
    write.size("channels", channels)
    write.size("inner", dims.product(spatial))
    write.split("images * channels", f"images * channels * inner * {size + 10} // 20")
    with write.block("for row in range(first, last)"):
        write("channel = row % channels")
        write(f"low = row - min(channel, {before})", f"high = row + min(channels - 1 - channel, {after}) + 1")
        with write.block(f"for i in range(0, inner, {write.lanes})"):
            write("rest = inner - i", f"squares = splat_{computed.name}(0)")
            with write.block("for neighbour in range(low, high)"):
                place = scaled("neighbour * inner + i", itemsize)
                write("v = " + widened(f"vload_{dtype.name}(x, {place}, rest)", dtype), "squares = fma(v, v, squares)")
            place = scaled("row * inner + i", itemsize)
            write("v = " + widened(f"vload_{dtype.name}(x, {place}, rest)", dtype))
            share, bias = (
                literal(number, DType.float64) for number in (attributes["alpha"] / size, attributes["bias"])
            )
            write(f"base = fma(squares, {share}, {bias})")
            result = _divided_by_power("v", "base", attributes["beta"])
            write(f"vstore(y, {place}, {stored(result, dtype)}, rest)")
    return write.kernel(estimate(dims.element_count(shape_of(definition.params[0]))) * (size + 10) / 20)


def _divided_by_power(value: str, base: str, exponent: float) -> str:
    if exponent == 0.75:  # every network's: two square roots
        return f"{value} / (sqrt({base}) * sqrt(sqrt({base})))"
    return f"{value} * exp(log({base}) * {literal(-exponent, DType.float64)})"
