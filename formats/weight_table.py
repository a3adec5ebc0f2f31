"""How constants of a program are made of weights that have names: enough to make them again of others.

Values are numbered: the weights in their order, then the literals, then the results of the nodes. A weight with a `digest` is
settled: the compiler decided something by what it holds, so that it can only be what it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .constants import constant_bytes, constant_type, from_bytes
from .messages.errors import FormatError
from .primitive import PrimitiveNode
from .types import TensorType

SECTION = "weights"


@dataclass(frozen=True)
class NamedWeight:
    """A weight of the model: its type there, and the `digest` of its elements if it is settled."""

    name: str
    type: TensorType
    digest: str = ""


@dataclass(frozen=True)
class WeightTable:
    """`constants` are pairs: the place of a constant of the program, and the number of the value that it is. `literals` are what
    else the nodes take, such as the rows that are chosen of a table."""

    weights: tuple[NamedWeight, ...] = ()
    literals: tuple[np.ndarray, ...] = ()
    nodes: tuple[PrimitiveNode, ...] = ()
    constants: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def held(self) -> dict[int, int]:
        """By the number of a weight, the place of the constant that it is itself. Files of before have few of them."""
        return {number: place for place, number in self.constants if number < len(self.weights)}

    def is_like(self, other: WeightTable) -> bool:
        """Whether constants of the one are in the places of the other's, and made in the same way of the same weights, to the
        bit. It says what two tables mean; memory is safe by `constants.check_replacements`."""
        mine, others = (self.weights, self.nodes, self.constants), (other.weights, other.nodes, other.constants)
        if not len(self) or mine != others or self.values != other.values:
            return False
        return all(constant_bytes(a) == constant_bytes(b) for a, b in zip(self.literals, other.literals, strict=True))

    @property
    def values(self) -> tuple[TensorType, ...]:
        """The type of each value."""
        literals = map(constant_type, self.literals)
        results = (result for node in self.nodes for result in node.results)
        return (*(weight.type for weight in self.weights), *literals, *results)


def digest(array: np.ndarray) -> str:
    """By which a settled weight is known again: the SHA-256 of its elements as they lie in a file, in hex."""
    return hashlib.sha256(constant_bytes(array)).hexdigest()


def literal(type_: TensorType, elements: bytes) -> np.ndarray:
    """The tensor of these elements, little-endian. Raises FormatError."""
    try:
        return from_bytes(type_, elements)
    except FormatError as error:
        raise type(error)(f"a literal: {error.message}", section=SECTION) from None


def check(table: WeightTable, constants: Sequence[TensorType]) -> None:
    """Raises FormatError for a table that does not suit a program with these constants. What the nodes do is not asked."""
    names = [weight.name for weight in table.weights]
    if len(set(names)) < len(names) or "" in names:
        raise FormatError("a weight has no name, or two have the same", section=SECTION)
    known = len(names) + len(table.literals)
    for node in table.nodes:
        if not node.results or any(not 0 <= number < known for number in node.inputs):
            raise FormatError(
                f"a node ({node.operator}) has no result, or uses a value that is not known", section=SECTION
            )
        known += len(node.results)
    values = table.values
    if texts := next((type_ for type_ in values if type_.dtype.is_string), None):
        raise FormatError(f"a value is a {texts}: weights are numbers", section=SECTION)
    places = [place for place, _ in table.constants]
    if places != sorted(set(places)):
        raise FormatError("the places of constants are not in order, each once", section=SECTION)
    for place, number in table.constants:
        if not 0 <= place < len(constants) or not 0 <= number < known:
            raise FormatError(
                f"constant {place} is value {number}; there are {len(constants)} and {known}", section=SECTION
            )
        if values[number] != constants[place]:
            raise FormatError(f"constant {place} is {constants[place]}, but made as {values[number]}", section=SECTION)
