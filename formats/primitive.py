"""The definition of a primitive: the small graph of operators that one kernel computes.

It is what an executable stores in place of native code: portable, and enough to rebuild the kernel for any
machine, or to evaluate it with the operators' reference implementations. Names of operators and attributes are looked
up in the operator table; nothing here is ever executed as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from . import dims
from .dims import Dim, SymbolicDim
from .dtypes import DType
from .types import TensorType

AttributeValue = Union[
    bool, int, float, str, None, DType, SymbolicDim, tuple["AttributeValue", ...]
]  # a Dim, or a tuple of them, is an ordinary value
Attributes = tuple[tuple[str, AttributeValue], ...]  # sorted by name, so that equal definitions have equal bytes


@dataclass(frozen=True)
class PrimitiveNode:
    """One operator application. `inputs` are value numbers: the parameters come first (0 … p-1), then the results of
    the nodes in order (a node with several results takes several numbers)."""

    operator: str
    inputs: tuple[int, ...]
    results: tuple[TensorType, ...]
    attributes: Attributes = ()
    origin: str = field(default="", compare=False)  # the model node; not part of the kernel's identity


@dataclass(frozen=True)
class PrimitiveDefinition:
    """A function from tensors to tensors. Shapes are integers or expressions over the variables of `variables`.

    A call passes the inputs, then the outputs, already allocated, then the values of `variables` in order. An output may
    share memory with an input only where the compiler knows that the kernel reads each element of the input before it
    writes the same element of the output.
    """

    params: tuple[TensorType, ...]
    nodes: tuple[PrimitiveNode, ...]
    outputs: tuple[int, ...]  # value numbers
    variables: tuple[str, ...] = ()

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


@dataclass(frozen=True)
class Primitive:
    """An entry of an executable's primitive table."""

    name: str  # unique in the executable, made of its operators' names: conv_add_relu_3
    definition: PrimitiveDefinition
