"""A definition as its templates see it: one anchor, with elementwise operators before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .....formats.dims import Dim
from .....formats.primitive import PrimitiveDefinition, PrimitiveNode
from ....operators.table import Fusion, bound_attributes, lookup
from .expression import Expression
from .writer import shape_of


def anchor_of(definition: PrimitiveDefinition) -> tuple[PrimitiveNode, int] | None:
    """The first node that is not elementwise, and the number of its first result. None if all are."""
    number = len(definition.params)
    for node in definition.nodes:
        if lookup(node.operator).fusion is not Fusion.ELEMENTWISE:
            return node, number
        number += len(node.results)
    return None


@dataclass(frozen=True)
class Anchored:
    """An anchor with an elementwise prologue on its first input and an elementwise epilogue on its result."""

    definition: PrimitiveDefinition
    node: PrimitiveNode
    number: int  # of its result
    prologue: Expression
    epilogue: Expression

    @staticmethod
    def of(definition: PrimitiveDefinition) -> Anchored | None:
        """None for a definition of another form, or whose outputs are not all of the anchor's shape."""
        found = anchor_of(definition)
        if found is None or not found[0].inputs:
            return None
        node, number = found
        if any(operand >= len(definition.params) for operand in node.inputs[1:]):
            return None
        prologue = Expression.of(definition, [node.inputs[0]])
        epilogue = Expression.of(definition, definition.outputs, given=[number])
        if prologue is None or epilogue is None or len(node.results) != 1:
            return None
        if any(result.shape != node.results[0].shape for result in definition.results):
            return None
        return Anchored(definition, node, number, prologue, epilogue)

    @property
    def whole(self) -> tuple[Dim, ...]:
        """The shape of the anchor's first input."""
        return shape_of(self.definition.values[self.node.inputs[0]])

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return bound_attributes(self.node)

    @property
    def takes_parameters(self) -> bool:
        """Whether all inputs of the anchor are parameters: nothing is computed before it."""
        return all(number < len(self.definition.params) for number in self.node.inputs)

    @property
    def title(self) -> str:
        return ", ".join([*self.prologue.operators, self.node.operator, *self.epilogue.operators])

    def parameter(self, place: int) -> int | None:
        """The number of the parameter that is input `place` of the anchor; None if it is computed, or not given."""
        inputs = self.node.inputs
        return inputs[place] if place < len(inputs) and inputs[place] < len(self.definition.params) else None
