"""The definition of a primitive: the small graph of operators that one kernel computes.

It is what an executable stores in place of native code: portable, and enough to rebuild the kernel for any
machine, or to evaluate it with the operators' reference implementations. Names of operators and attributes are looked
up in the operator table; nothing here is ever executed as text.

A definition has one form, `form_problem` says what breaks it: parameters are numbered by first use, and all are used; every
result of a node is used or an output; outputs are results of nodes, each once. A node of several results is alone, and they
are the outputs, in their order. Compilers make that form, and everything that reads definitions may rely on it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Union

from . import dims, limits
from .dims import Dim, SymbolicDim
from .dtypes import DType
from .messages.readable import Readable, brief
from .types import TensorType

# a Dim, or a tuple of them, is an ordinary value
AttributeValue = Union[bool, int, float, str, None, DType, SymbolicDim, tuple["AttributeValue", ...]]
Attributes = tuple[tuple[str, AttributeValue], ...]  # sorted by name, so that equal definitions have equal bytes


def exactly(value: AttributeValue | Attributes) -> Hashable:
    """Equal for attribute values that are the same to the last bit, unlike Python's ==: 0.0 == -0.0, and 1 == 1.0 == True."""
    if isinstance(value, tuple):
        return tuple(map(exactly, value))
    return value.hex() if type(value) is float else (type(value), value)


@dataclass(frozen=True, repr=False)
class PrimitiveNode(Readable):
    """One operator application. `inputs` are value numbers: the parameters come first (0 … p-1), then the results of
    the nodes in order (a node with several results takes several numbers)."""

    operator: str
    inputs: tuple[int, ...]
    results: tuple[TensorType, ...]
    attributes: Attributes = ()
    origin: str = field(default="", compare=False)  # the model node; not part of the kernel's identity

    def _shown(self) -> str:
        results = ", ".join(map(str, self.results))
        return f"{brief(self.operator)}({', '.join(f'%{number}' for number in self.inputs)}) -> {results}"

    def _brief(self) -> str:
        return self.operator

    def __eq__(self, other: object) -> bool:
        """Nodes are equal where their kernels are: x / 0.0 is not x / -0.0."""
        if not isinstance(other, PrimitiveNode):
            return NotImplemented
        mine, theirs = (self.operator, self.inputs, self.results), (other.operator, other.inputs, other.results)
        return mine == theirs and exactly(self.attributes) == exactly(other.attributes)


@dataclass(frozen=True, repr=False)
class PrimitiveDefinition(Readable):
    """A function from tensors to tensors. Shapes are integers or expressions over the variables of `variables`.

    A call passes the inputs, then the outputs, already allocated, then the values of `variables` in order. An output may
    share memory with an input only where the compiler knows that the kernel reads each element of the input before it
    writes the same element of the output.
    """

    params: tuple[TensorType, ...]
    nodes: tuple[PrimitiveNode, ...]
    outputs: tuple[int, ...]  # value numbers
    variables: tuple[str, ...] = ()

    def _shown(self) -> str:
        return f"{brief(self.nodes)[1:-1]}: fn({', '.join(map(str, self.params))})"

    def _brief(self) -> str:
        return brief(self.nodes)

    @property
    def values(self) -> tuple[TensorType, ...]:
        """The type of each value number."""
        return self.params + tuple(result for node in self.nodes for result in node.results)

    @property
    def results(self) -> tuple[TensorType, ...]:
        values = self.values
        return tuple(values[i] for i in self.outputs)

    @staticmethod
    def variables_of(types: tuple[TensorType, ...], attributes: tuple[AttributeValue, ...] = ()) -> tuple[str, ...]:
        """The dimension variables in types and attribute values, in order of appearance."""
        found: dict[str, None] = {}

        def visit(value: AttributeValue | Dim) -> None:
            if isinstance(value, SymbolicDim):
                found.update(dict.fromkeys(dims.variables(value)))
            elif isinstance(value, tuple):
                for element in value:
                    visit(element)

        for type_ in types:
            visit(type_.shape)  # type: ignore[arg-type]
        for value in attributes:
            visit(value)
        return tuple(found)


def form_problem(definition: PrimitiveDefinition) -> str:
    """The reason why a definition is not in normal form; "" if it is.

    It needs no operator table, so that it is asked on every load, whatever the cache of kernels holds.
    """
    count = len(definition.params)
    if max(count, len(definition.outputs), len(definition.variables)) > limits.OPERANDS:
        return f"it has more than {limits.OPERANDS} parameters, outputs or variables"
    if not definition.nodes or not definition.outputs:
        return f"it has no {'outputs' if definition.nodes else 'nodes'}"
    if len(definition.nodes) > limits.PRIMITIVE_NODES:
        return f"it has {len(definition.nodes)} nodes; at most {limits.PRIMITIVE_NODES} are allowed"
    used: set[int] = set()
    next_param = 0  # the one that must be the first new one to be used
    for node in definition.nodes:
        problem = _node_problem(node, count)
        if problem:
            return problem
        for number in node.inputs:
            if next_param <= number < len(definition.params):
                if number != next_param:
                    return (
                        f"node {node.operator!r} uses parameter %{number} before %{next_param}; "
                        "parameters are numbered by first use"
                    )
                next_param += 1
        used.update(node.inputs)
        count += len(node.results)
    if next_param < len(definition.params):
        return f"parameter %{next_param} is used by no node"
    return _outputs_problem(definition, used, count) or _variables_problem(definition)


def _node_problem(node: PrimitiveNode, count: int) -> str:
    """The problem of a node that follows `count` values; "" if there is none."""
    place = f"node {node.operator!r}"
    if max(len(node.inputs), len(node.results)) > limits.OPERANDS:
        return f"{place} has more than {limits.OPERANDS} inputs or results"
    if not node.results:
        return f"{place} has no results"
    for number in node.inputs:
        if not 0 <= number < count:
            return f"{place} uses the value {number}; {count} values come before it"
    names = [name for name, _ in node.attributes]
    if names != sorted(set(names)):
        return f"the attributes of {place} are not sorted by name, each once: {names[:20]}"
    return ""


def _outputs_problem(definition: PrimitiveDefinition, used: set[int], count: int) -> str:
    outputs, first = definition.outputs, len(definition.params)
    for number in outputs:
        if not 0 <= number < count:
            return f"its outputs uses the value {number}; {count} values come before it"
        if number < first:
            return f"its output %{number} is a parameter; an output is the result of a node"
    if len(set(outputs)) < len(outputs):
        twice = next(number for number, later in pairwise(sorted(outputs)) if number == later)
        return f"its output %{twice} is given twice; outputs are different values"
    several = next((node for node in definition.nodes if len(node.results) > 1), None)
    if several is not None and (len(definition.nodes) > 1 or outputs != tuple(range(first, count))):
        return (
            f"node {several.operator!r} has several results: then it is the only node, "
            "and all its results are the outputs, in order"
        )
    unused = set(range(first, count)) - used - set(outputs)
    return f"value %{min(unused)} is neither used nor an output" if unused else ""


def _variables_problem(definition: PrimitiveDefinition) -> str:
    variables = definition.variables
    if len(set(variables)) < len(variables):
        return f"it has two dimension variables of one name: {', '.join(variables[:20])}"
    attributes = tuple(value for node in definition.nodes for _, value in node.attributes)
    appearing = PrimitiveDefinition.variables_of(definition.values, attributes)
    if foreign := set(appearing) - set(variables):
        known = ", ".join(variables) or "none"
        return f"it uses the dimension variable {min(foreign)!r}; its variables are: {known}"
    if unused := set(variables) - set(appearing):
        return f"its dimension variable {min(unused)!r} appears nowhere"
    return ""


@dataclass(frozen=True, repr=False)
class Primitive(Readable):
    """An entry of an executable's primitive table."""

    name: str  # unique in the executable, made of its operators' names: conv_add_relu_3
    definition: PrimitiveDefinition
    device: str = ""  # where all of its tensors lie; the definition's types, which are its meaning alone, do not say

    def _shown(self) -> str:
        return f"{brief(self.name)}: {self.definition._shown()}{f' on {self.device}' if self.device else ''}"
