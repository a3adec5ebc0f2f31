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
from ..kernels.expression import computed_type, literal
from ..kernels.kernel import Kernel
from ..kernels.writer import Writer, estimate
from ..target import Target
from .rowwise import Accumulator, RowProgram, Step, Work, sum_of


@dataclass(frozen=True)
class Reduction:
    """A reduction operator: texts of an accumulated element {x}, and of the result from the {total} over `length` elements."""

    combine: str = "{a} + {v}"
    identity: str = "0"  # or one of NumPy's names for a type's limits: min, max
    horizontal: str = "horizontal_sum"
    element: str = "{x}"
    result: str = "{total}"

    def accumulator(self, dtype: DType) -> Accumulator:
        identity = self.identity
        if identity in ("min", "max"):
            limits: float = -np.inf if identity == "min" else np.inf
            identity = literal(limits if dtype.is_float else getattr(np.iinfo(dtype.numpy), identity), dtype)
        return Accumulator("total", self.combine, identity, self.horizontal, dtype, self.horizontal == "horizontal_sum")


_SQUARE = "{x} * {x}"
REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(),
    "mean": Reduction(result="{total} / length"),
    "sum_of_squares": Reduction(element=_SQUARE),
    "l1_norm": Reduction(element="absolute({x})"),
    "l2_norm": Reduction(element=_SQUARE, result="sqrt({total})"),
    "prod": Reduction("{a} * {v}", "1", "horizontal_product"),
    # the element's NaN check does not wait for the accumulator
    "max": Reduction("maximum({v}, {a})", "min", "horizontal_maximum"),
    "min": Reduction("minimum({v}, {a})", "max", "horizontal_minimum"),
    "any": Reduction("{a} | {v}", "False", "any_lane"),
    "all": Reduction("{a} & {v}", "True", "all_lanes"),
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
        self.write = Writer(anchored.definition, target, anchored.title)
        self.dtype = computed_type(anchored.node.results[0].dtype)
        self.result = f"v{anchored.number}"

    @property
    def reads(self) -> list[int]:
        return list(self.inputs.values())

    def element(self, step: Step) -> str:
        """The variable of the reduced element."""
        number = self.anchored.node.inputs[0]
        return step.evaluate(self.anchored.prologue, {}, self.inputs)[number]

    def finish(self, program: RowProgram) -> None:
        """The epilogue on the result, and its stores."""
        for step in program.row_steps([*self.others.values(), *self.outputs]):
            given = {self.anchored.number: step.statistic(self.result)}
            results = step.evaluate(self.anchored.epilogue, given, self.others)
            for tensor, number in zip(self.outputs, self.anchored.definition.outputs, strict=True):
                step.store(tensor, results[number])

    def kernel(self, nanoseconds: float, passes: Callable[[RowProgram], None]) -> Kernel | None:
        itemsize = self.anchored.definition.values[self.anchored.node.inputs[0]].dtype.itemsize
        cost = self.anchored.prologue.cost + costs.CACHED_BYTE_NS * itemsize + nanoseconds
        program = self.work.program(self.write, cost)
        if program is None:
            return None
        program.run(lambda: passes(program))
        return self.write.kernel(cost * estimate(dims.element_count(self.anchored.whole)))


def lower(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of one of `REDUCTIONS`; None if a fused tensor does not fit."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    reduced, reduction = Reduced(anchored, target), REDUCTIONS[anchored.node.operator]
    accumulator = reduction.accumulator(reduced.dtype)

    def passes(program: RowProgram) -> None:
        def body(step: Step) -> dict[str, str]:
            return {"total": reduction.element.format(x=reduced.element(step))}

        program.reduce([accumulator], reduced.reads, [], body)
        program.statistic(reduced.result, reduction.result, ["total"], reduced.dtype)
        reduced.finish(program)

    return reduced.kernel(0.0, passes)


def lower_log_sum_exp(definition: PrimitiveDefinition, target: Target) -> Kernel | None:
    """The kernel of log(sum(exp(x))), computed as m + log(sum(exp(x - m))) with m the greatest element."""
    anchored = Anchored.of(definition)
    if anchored is None:
        return None
    reduced = Reduced(anchored, target)
    dtype = reduced.dtype

    def passes(program: RowProgram) -> None:
        program.reduce_to_greatest(dtype, reduced.reads, reduced.element, anchored.prologue.cost)
        program.statistic("peak", "{greatest}", ["greatest"], dtype)
        program.define("shift", "select(isfinite({peak}), {peak}, 0.0)", ["peak"])  # avoids ∞ - ∞

        def body(step: Step) -> dict[str, str]:
            return {"total": f"exp({reduced.element(step)} - {step.statistic('shift')})"}

        program.reduce([sum_of("total", dtype)], reduced.reads, [], body)
        program.statistic("sum", "{total}", ["total"], dtype)
        program.define(reduced.result, "log({sum}) + {shift}", ["sum", "shift"])
        reduced.finish(program)

    return reduced.kernel(costs.LOG_SUM_EXP_NS, passes)
