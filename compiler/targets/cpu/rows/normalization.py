"""The templates of softmax and of the normalisations: statistics of a row, then every element by them.

A row is read two or three times, which costs little: rows fit L1 or L2. Means and variances are taken in
two passes, since the difference of squares would cancel.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable

from .....formats import dims
from .....formats.dims import Dim
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from .....formats.types import TensorType
from ....operators.shapes import axis_of
from ....operators.table import bound_attributes
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.values import Code, Value, bracketed, call, constant, least
from ..kernels.writer import estimate, shape_of
from ..target import Target
from .rowwise import Result, RowProgram, Step, Work, sum_of


class Normalized:
    """A softmax or normalisation in a definition: an element of the result for each of the input, in the same place."""

    def __init__(self, anchored: Anchored, kept: list[bool], target: Target) -> None:
        self.anchored = anchored
        self.work = Work(anchored, kept)
        everywhere = [True] * len(kept)
        self.inputs, self.others = self.work.add_prologue(), self.work.add_epilogue(everywhere)
        self.outputs = self.work.add_outputs(everywhere)
        self.code = Code(anchored.definition, target, anchored.title)
        self.type = anchored.node.results[0].dtype
        self.dtype = self.type.computed

    @property
    def reads(self) -> list[int]:
        return list(self.inputs.values())

    def element(self, step: Step) -> Value:
        """The input's element. Passes after the first one read it from scratch, if it is kept there and
        recomputing it would take longer."""
        is_kept = step.program.kept and (step.program.is_spread or self.anchored.prologue.nodes)
        if is_kept and step.program.has_kept:
            return step.kept()
        number = self.anchored.node.inputs[0]
        value = step.evaluate(self.anchored.prologue, {}, self.inputs)[number]
        if is_kept:
            step.keep(value)
        return value

    def peak(self, program: RowProgram) -> Result:
        """The greatest element of a row."""
        found = program.greatest(self.dtype, self.reads, self.element, self.anchored.prologue.cost)
        return program.statistic("peak", self.dtype, lambda greatest: greatest, found)

    def exponential(self, step: Step, peak: Result) -> Value:
        """The exponential of the input's element less `peak`, the greatest one."""
        function = "exp_of_negative" if self.dtype is DType.float32 else "exp"
        return call(function, self.element(step) - step.of(peak))

    def write_elements(self, program: RowProgram, value: Callable[[Step], Value], reads: list[int]) -> None:
        """The last pass: the epilogue on `value`, and the stores."""

        def body(step: Step) -> None:
            found = step.let(f"v{self.anchored.number}", value(step))
            results = step.evaluate(self.anchored.epilogue, {self.anchored.number: found}, self.others)
            for tensor, number in zip(self.outputs, self.anchored.definition.outputs, strict=True):
                step.store(tensor, results[number])

        program.for_each([*reads, *self.others.values()], self.outputs, body)

    def kernel(self, nanoseconds: float, passes: Callable[[RowProgram], None]) -> Kernel | None:
        """The kernel whose passes over a row `passes` writes. None if a tensor does not fit."""
        cost = nanoseconds + self.anchored.prologue.cost + self.anchored.epilogue.cost
        program = self.work.program(self.code, cost, self.dtype)
        if program is None:
            return None
        program.run(lambda: passes(program))
        return self.code.kernel(cost * estimate(dims.element_count(self.anchored.whole)), program.scratch_bytes)


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
        peak = it.peak(program)

        def exponential(step: Step) -> Value:
            found = step.let("e", it.exponential(step, peak))
            if program.kept:
                step.keep(found)
            elif keeps:
                step.store(it.outputs[0], found)
            return found

        total = program.reduce(sum_of("total", it.dtype), it.reads, exponential, it.outputs if keeps else [])
        scale = program.statistic("scale", it.dtype, lambda total: 1.0 / total, total)

        def result(step: Step) -> Value:
            if program.kept:
                return step.kept() * step.of(scale)
            return (step.load(it.outputs[0]) if keeps else it.exponential(step, peak)) * step.of(scale)

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
        peak = it.peak(program)
        total = program.reduce(sum_of("total", it.dtype), it.reads, lambda step: it.exponential(step, peak))
        sum_ = program.statistic("sum", it.dtype, lambda total: total, total)
        log_sum = program.define("log_sum", lambda sum_: call("log", sum_), sum_)
        it.write_elements(
            program, lambda step: bracketed(it.element(step) - step.of(peak)) - step.of(log_sum), it.reads
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
    it.code.write.require_zero(rest)
    parameters = [anchored.parameter(place) for place in range(1, len(anchored.node.inputs))]
    if None in parameters:
        return None
    params = anchored.definition.params
    factors = [it.work.add(i, params[i], shape) for i, shape in zip(parameters, affine, strict=False) if i is not None]
    epsilon = constant(anchored.attributes["epsilon"])

    def passes(program: RowProgram) -> None:
        mean = None
        if centered:
            total = program.reduce(sum_of("total", it.dtype), it.reads, it.element)
            mean = program.statistic("mean", it.dtype, lambda total: total * program.share, total)

        def deviation(step: Step) -> Value:
            return it.element(step) if mean is None else it.element(step) - step.of(mean)

        def square(step: Step) -> Value:
            found = step.let("d", deviation(step) if mean is None else bracketed(deviation(step)))
            return found * found

        squares = program.reduce(sum_of("squares", it.dtype), it.reads, square)
        scale = program.statistic(
            "scale", it.dtype, lambda squares: 1.0 / call("sqrt", squares * program.share + epsilon), squares
        )

        def result(step: Step) -> Value:
            value = deviation(step) * step.of(scale)
            for combine, tensor in zip((operator.mul, operator.add), factors, strict=False):
                value = combine(value, step.load(tensor))
            return value

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
    epsilon = constant(anchored.attributes["epsilon"], it.dtype)

    def result(step: Step) -> Value:
        x = it.element(step)
        scale, bias, mean, variance = (step.load(tensor) for tensor in given)
        return (x - mean) * (scale / call("sqrt", variance + epsilon)) + bias

    return it.kernel(costs.BATCH_NORM_NS, lambda program: it.write_elements(program, result, [*it.reads, *given]))


def lower_local_response(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """x / (bias + alpha / size · Σ x²) ** beta, the sum over neighbouring channels; alone in its definition."""
    if len(definition.nodes) != 1 or definition.outputs != (1,):
        return None
    attributes, dtype = bound_attributes(definition.nodes[0]), definition.params[0].dtype
    images, channels, *spatial = shape_of(definition.params[0])
    code = Code(definition, target, "local_response_normalization")
    size = attributes["size"]
    before, after = (size - 1) // 2, size // 2
    x, y = code.input("x", 0), code.output("y", 0)
    count, width = code.size("images", images), code.size("channels", channels)
    inner = code.size("inner", dims.product(spatial))
    first, last = code.split(count * width, count * width * inner * (size + 10) // 20)
    share, bias = constant(attributes["alpha"] / size), constant(attributes["bias"])
    with code.loop("row", first, last) as row:
        channel = code.let("channel", row % width)
        low = code.let("low", row - least(channel, before))
        high = code.let("high", row + least(width - 1 - channel, after) + 1)
        with code.loop("i", 0, inner, code.lanes) as i:
            rest = code.let("rest", inner - i)
            squares = code.let("squares", constant(0).splat(dtype.computed))
            with code.loop("neighbour", low, high) as neighbour:
                v = code.let("v", x.vector(neighbour * inner + i, rest).computed())
                code.set(squares, call("fma", v, v, squares))
            v = code.let("v", x.vector(row * inner + i, rest).computed())
            base = code.let("base", call("fma", squares, share, bias))
            y.store(row * inner + i, _divided_by_power(v, base, attributes["beta"]), rest)
    return code.kernel(estimate(dims.element_count(shape_of(definition.params[0]))) * (size + 10) / 20)


def _divided_by_power(value: Value, base: Value, exponent: float) -> Value:
    if exponent == 0.75:  # every network's: two square roots
        root = call("sqrt", base)
        return value / (root * call("sqrt", root))
    return value * call("exp", call("log", base) * constant(-exponent))
