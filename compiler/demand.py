"""Lower bounds for a call of a primitive, from its definition: its arithmetic, and each operand moved once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..formats import dims
from ..formats.dims import SymbolicDim
from ..formats.primitive import PrimitiveDefinition
from ..formats.types import UNKNOWN, TensorType
from .operators.table import Fusion, lookup
from .operators.work import work_of


@dataclass(frozen=True)
class Demand:
    """The demand of one call. See `operators/work.py` for the definition of an operation."""

    done: int  # operations of the algorithm that the definition names
    defined: int  # operations that a plain algorithm would take
    read: tuple[int, ...]  # bytes of each input
    written: int  # bytes of all outputs


def demand_of(definition: PrimitiveDefinition, sizes: Sequence[int]) -> Demand | None:
    """`sizes` are the values of the definition's variables. None where a result's shape depends on elements."""
    if any(dim is UNKNOWN for type_ in definition.values for dim in type_.shape):
        return None
    bound = dict(zip(definition.variables, sizes, strict=True))
    values = [_known(type_, bound) for type_ in definition.values]
    done = defined = 0
    first = len(definition.params)
    for node in definition.nodes:
        operator, end = lookup(node.operator), first + len(node.results)
        attributes = operator.bind(tuple((name, _concrete(value, bound)) for name, value in node.attributes))
        work = work_of(operator, [values[number] for number in node.inputs], values[first:end], attributes)
        done, defined, first = done + work.done, defined + work.defined, end
    read = tuple(_bytes_read(definition, values, number) for number in range(len(definition.params)))
    return Demand(done, defined, read, sum(values[number].nbytes for number in definition.outputs))


def _bytes_read(definition: PrimitiveDefinition, values: Sequence[TensorType], number: int) -> int:
    """All of an input, unless every operator that reads it only picks elements: then at most its result's bytes."""
    picked, first = 0, len(definition.params)
    for node in definition.nodes:
        if number in node.inputs:
            if lookup(node.operator).fusion is not Fusion.MOVEMENT:
                return values[number].nbytes
            picked += sum(type_.nbytes for type_ in values[first : first + len(node.results)])
        first += len(node.results)
    return min(values[number].nbytes, picked)


def _known(type_: TensorType, bound: Mapping[str, int]) -> TensorType:
    return TensorType(type_.dtype, tuple(_concrete(dim, bound) for dim in type_.shape))


def _concrete(value: Any, bound: Mapping[str, int]) -> Any:
    """A dimension or an attribute with variables replaced by their values."""
    if isinstance(value, SymbolicDim):
        return dims.evaluate(value, bound)
    return tuple(_concrete(part, bound) for part in value) if isinstance(value, tuple) else value
