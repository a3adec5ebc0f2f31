"""Definitions of primitives: from operator calls of the IR to the graph that one kernel computes.

Each size that is computed is a variable of the definition: layers that differ only in how they compute it share one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ...formats.messages.errors import InferenceError
from ...formats.primitive import Attributes, PrimitiveDefinition, PrimitiveNode
from ...formats.types import UNKNOWN, TensorType, TupleType, Type
from .. import ir
from ..operators.table import Fusion, lookup

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

    `outputs` are the bindings' variables that are used outside; a call with several results stands alone, and returns
    all of them. Scalar constants of elementwise operators become nodes, other outside atoms parameters, in order
    of their first use. Bindings that the outputs do not need are left out: the result is in normal form (`form_problem`). Its
    types do not say where values lie.
    """
    bindings = _needed(bindings, outputs)
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
        results = tuple([result.on("") for result in result_tensors(type_of(binding.var))])
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
    types = tuple([type_of(atom).on("") for atom in params])  # type: ignore[union-attr]
    definition = PrimitiveDefinition(types, tuple(nodes), chosen, _variables(types, nodes))
    return definition, tuple(params)


def _needed(bindings: Sequence[ir.Binding], outputs: Sequence[ir.Var]) -> Sequence[ir.Binding]:
    needed: set[ir.Atom] = set(outputs)
    for binding in reversed(bindings):
        if binding.var in needed:
            needed.update(ir.atoms_of(binding.value))
    return [binding for binding in bindings if binding.var in needed]


def _variables(params: Sequence[Type], nodes: Sequence[PrimitiveNode]) -> tuple[str, ...]:
    types = (*params, *(result for node in nodes for result in node.results))
    attributes = tuple(value for node in nodes for _, value in node.attributes)
    return PrimitiveDefinition.variables_of(types, attributes)  # type: ignore[arg-type]


def abstracted(definition: PrimitiveDefinition) -> tuple[PrimitiveDefinition, dict[str, Dim]]:
    """The definition with a variable for each dimension of its parameters that is computed, such as (h - 1) // 2 + 1, and
    the variables' values. So layers whose sizes are computed differently share a primitive.

    The definition is unchanged if its types do not follow from those of the parameters alone.
    """
    own: dict[str, Dim] = {name: dims.variable(name) for name in definition.variables}
    found = dict.fromkeys(
        dim
        for type_ in definition.params
        for dim in type_.shape
        if isinstance(dim, SymbolicDim) and str(dim) not in own
    )
    if not found or any(UNKNOWN in type_.shape for type_ in definition.values):
        return definition, own
    free = (name for number in range(len(found) + len(own)) if (name := f"size{number}") not in own)
    names = dict(zip(found, free, strict=False))
    meanings = own | {name: dim for dim, name in names.items()}
    try:
        general = _retyped(definition, {dim: dims.variable(name) for dim, name in names.items()})
    except InferenceError:
        return definition, own
    back = tuple(_with_dims(type_, lambda dim: dims.substitute(dim, meanings)) for type_ in general.values)
    return (general, meanings) if back == definition.values else (definition, own)


def _retyped(definition: PrimitiveDefinition, names: Mapping[Any, Dim]) -> PrimitiveDefinition:
    """The definition with some dimensions replaced; the types of its values follow. Raises InferenceError."""

    def renamed(value: Any) -> Any:
        return tuple(map(renamed, value)) if isinstance(value, tuple) else names.get(value, value)

    params = tuple(_with_dims(type_, renamed) for type_ in definition.params)
    values, nodes = list(params), []
    for node in definition.nodes:
        attributes = tuple((name, renamed(value)) for name, value in node.attributes)
        results = lookup(node.operator).result_types([values[number] for number in node.inputs], attributes)
        nodes.append(dataclasses.replace(node, results=results, attributes=attributes))
        values += results
    return PrimitiveDefinition(params, tuple(nodes), definition.outputs, _variables(params, nodes))


def _with_dims(type_: TensorType, change: Callable[[Any], Any]) -> TensorType:
    return TensorType(type_.dtype, tuple(map(change, type_.shape)))


def _is_immediate(atom: ir.Atom, calls: Sequence[ir.OperatorCall]) -> bool:
    """Whether an atom is a scalar constant used only by elementwise operators. Not NaN, which as an attribute equals nothing,
    nor an integer beyond the int64 of attributes in files."""
    if not isinstance(atom, ir.Constant) or atom.type.rank or atom.type.dtype.is_string:
        return False
    if not math.isfinite(atom.value.item()):
        return False
    if atom.type.dtype is DType.uint64 and atom.value.item() >= 1 << 63:
        return False
    users = [call for call in calls if any(arg is atom for arg in call.args)]
    return all(lookup(call.operator).fusion is Fusion.ELEMENTWISE for call in users)


def _constant_node(constant: ir.Constant) -> PrimitiveNode:
    attributes: Attributes = (("dtype", constant.type.dtype), ("value", constant.value.item()))
    return PrimitiveNode("constant", (), (constant.type,), attributes)
