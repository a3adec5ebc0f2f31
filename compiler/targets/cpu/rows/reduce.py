"""The template of reductions over any axes, with an elementwise prologue on the operand and an epilogue on the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition
from ....operators.shapes import axes_of
from .. import costs
from ..kernels.anchor import Anchored
from ..kernels.kernel import Kernel
from ..kernels.values import Code, Operand, Value, call, constant, select
from ..kernels.writer import estimate
from ..target import Target
from .rowwise import Accumulator, Result, RowProgram, Step, Work, sum_of


@dataclass(frozen=True)
class Reduction:
    """A reduction operator: what it accumulates of an element, and the result from the total over `length` elements."""

    combine: Callable[[Value, Value], Value] = lambda total, x: total + x
    identity: Operand | str = 0  # or one of NumPy's names for a type's limits: min, max
    horizontal: str = "horizontal_sum"
    element: Callable[[Value], Value] = lambda x: x
    result: Callable[[Value, Value], Value] = lambda total, length: total

    def accumulator(self, dtype: DType) -> Accumulator:
        identity = self.identity
        if isinstance(identity, str):
            limits: float = -np.inf if identity == "min" else np.inf
            identity = constant(limits if dtype.is_float else int(getattr(np.iinfo(dtype.numpy), identity)), dtype)
        return Accumulator("total", self.combine, identity, self.horizontal, dtype, self.horizontal == "horizontal_sum")


def _square(x: Value) -> Value:
    return x * x


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(),
    "mean": Reduction(result=lambda total, length: total / length),
    "sum_of_squares": Reduction(element=_square),
    "l1_norm": Reduction(element=lambda x: call("absolute", x)),
    "l2_norm": Reduction(element=_square, result=lambda total, length: call("sqrt", total)),
    "prod": Reduction(lambda total, x: total * x, 1, "horizontal_product"),
    # the element's NaN check does not wait for the accumulator
    "max": Reduction(lambda a, x: call("maximum", x, a), "min", "horizontal_maximum"),
    "min": Reduction(lambda a, x: call("minimum", x, a), "max", "horizontal_minimum"),
    "any": Reduction(lambda a, x: a | x, False, "any_lane"),
    "all": Reduction(lambda a, x: a & x, True, "all_lanes"),
}


class Reduced:
    """A reduction in a definition, ready to be written."""

    def __init__(self, anchored: Anchored, target: Target) -> None:
        self.anchored = anchored
        rank, attributes = len(anchored.whole), anchored.attributes
        reduced = axes_of(attributes["axes"], rank)
        kept = [axis not in reduced for axis in range(rank)]
        in_result = [True] * rank if attributes["keepdims"] else kept
        self.work = Work(anchored, kept)
        self.inputs, self.others = self.work.add_prologue(), self.work.add_epilogue(in_result)
        self.outputs = self.work.add_outputs(in_result)
        self.code = Code(anchored.definition, target, anchored.title)
        self.dtype = anchored.node.results[0].dtype.computed
        self.result = f"v{anchored.number}"

    @property
    def reads(self) -> list[int]:
        return list(self.inputs.values())

    def element(self, step: Step) -> Value:
        """The reduced element."""
        number = self.anchored.node.inputs[0]
        return step.evaluate(self.anchored.prologue, {}, self.inputs)[number]

    def finish(self, program: RowProgram, result: Result) -> None:
        """The epilogue on the result, and its stores."""
        for step in program.row_steps([*self.others.values(), *self.outputs]):
            given = {self.anchored.number: step.of(result)}
            results = step.evaluate(self.anchored.epilogue, given, self.others)
            for tensor, number in zip(self.outputs, self.anchored.definition.outputs, strict=True):
                step.store(tensor, results[number])

    def kernel(self, nanoseconds: float, passes: Callable[[RowProgram], None]) -> Kernel | None:
        itemsize = self.anchored.definition.values[self.anchored.node.inputs[0]].dtype.itemsize
        cost = self.anchored.prologue.cost + costs.CACHED_BYTE_NS * itemsize + nanoseconds
        program = self.work.program(self.code, cost)
        if program is None:
            return None
        program.run(lambda: passes(program))
        return self.code.kernel(cost * estimate(dims.element_count(self.anchored.whole)))


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of one of `REDUCTIONS`; None if a fused tensor does not fit."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    reduced, reduction = Reduced(anchored, target), REDUCTIONS[anchored.node.operator]
    accumulator = reduction.accumulator(reduced.dtype)

    def passes(program: RowProgram) -> None:
        total = program.reduce(accumulator, reduced.reads, lambda step: reduction.element(reduced.element(step)))
        made = program.statistic(
            reduced.result, reduced.dtype, lambda total: reduction.result(total, program.length), total
        )
        reduced.finish(program, made)

    return reduced.kernel(0.0, passes)


def lower_log_sum_exp(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of log(sum(exp(x))), computed as m + log(sum(exp(x - m))) with m the greatest element."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    reduced = Reduced(anchored, target)
    dtype = reduced.dtype

    def passes(program: RowProgram) -> None:
        greatest = program.greatest(dtype, reduced.reads, reduced.element, anchored.prologue.cost)
        peak = program.statistic("peak", dtype, lambda greatest: greatest, greatest)
        # avoids ∞ - ∞
        shift = program.define("shift", lambda peak: select(call("isfinite", peak), peak, 0.0), peak)

        def exponential(step: Step) -> Value:
            return call("exp", reduced.element(step) - step.of(shift))

        total = program.reduce(sum_of("total", dtype), reduced.reads, exponential)
        sum_ = program.statistic("sum", dtype, lambda total: total, total)
        result = program.define(reduced.result, lambda sum_, shift: call("log", sum_) + shift, sum_, shift)
        reduced.finish(program, result)

    return reduced.kernel(costs.LOG_SUM_EXP_NS, passes)
