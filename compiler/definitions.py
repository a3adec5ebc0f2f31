"""Definitions of primitives: from operator calls of the IR to the graph that one kernel computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..formats.primitive import Attributes, PrimitiveDefinition, PrimitiveNode
from ..formats.types import TensorType, TupleType, Type
from . import ir
from .operators.table import Fusion, lookup

TypeOf = Callable[[ir.Atom], Type]


def result_tensors(type_: Type | None) -> tuple[TensorType, ...]:
    """The result types of an operator call: one tensor, or a tuple of them."""
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    assert all(isinstance(field, TensorType) for field in fields)
    return fields  # type: ignore[return-value]


def define(
    bindings: Sequence[ir.Binding], outputs: Sequence[ir.Var], type_of: TypeOf
) -> tuple[PrimitiveDefinition, tuple[ir.Atom, ...]]:
    """One primitive for operator calls that follow each other, and the atoms that it takes.

    `outputs` are those of the bindings' variables that are wanted outside; a call with several results stands alone, and gives
    all of them. Scalar constants that elementwise operators take become nodes, other atoms from outside parameters.
    """
    calls = [binding.value for binding in bindings]
    inside = {binding.var for binding in bindings}
    outside = dict.fromkeys(atom for call in calls for atom in call.args if atom not in inside)  # type: ignore[union-attr]
    immediate = [atom for atom in outside if _is_immediate(atom, calls)]  # type: ignore[arg-type]
    params = [atom for atom in outside if atom not in immediate]
    numbers: dict[ir.Atom, int] = {atom: number for number, atom in enumerate(params)}
    nodes: list[PrimitiveNode] = []
    for atom in immediate:
        numbers[atom] = len(params) + len(nodes)
        nodes.append(_constant_node(atom))  # type: ignore[arg-type]
    count = len(params) + len(nodes)
    for binding in bindings:
        call = binding.value
        assert isinstance(call, ir.OperatorCall)
        results = result_tensors(type_of(binding.var))
        inputs = tuple(numbers[arg] for arg in call.args)
        attributes = tuple(sorted(call.attributes, key=lambda attribute: attribute[0]))  # a text may have any order
        nodes.append(PrimitiveNode(call.operator, inputs, results, attributes, binding.origin))
        numbers[binding.var] = count
        count += len(results)
    if len(bindings) == 1:
        first = numbers[bindings[0].var]
        chosen = tuple(range(first, count))
    else:
        chosen = tuple(numbers[var] for var in outputs)
    types = tuple(type_of(atom) for atom in params)
    definition = PrimitiveDefinition(types, tuple(nodes), chosen, _variables(types, nodes))  # type: ignore[arg-type]
    return definition, tuple(params)


def _variables(params: Sequence[Type], nodes: Sequence[PrimitiveNode]) -> tuple[str, ...]:
    types = (*params, *(result for node in nodes for result in node.results))
    attributes = tuple(value for node in nodes for _, value in node.attributes)
    return PrimitiveDefinition.variables_of(types, attributes)  # type: ignore[arg-type]


def _is_immediate(atom: ir.Atom, calls: Sequence[ir.OperatorCall]) -> bool:
    """A scalar constant that elementwise operators alone take. NaN is none: as an attribute it would equal nothing."""
    if not isinstance(atom, ir.Constant) or atom.value.ndim or not math.isfinite(atom.value.item()):
        return False
    users = [call for call in calls if any(arg is atom for arg in call.args)]
    return all(lookup(call.operator).fusion is Fusion.ELEMENTWISE for call in users)


def _constant_node(constant: ir.Constant) -> PrimitiveNode:
    attributes: Attributes = (("dtype", constant.type.dtype), ("value", constant.value.item()))
    return PrimitiveNode("constant", (), (constant.type,), attributes)
