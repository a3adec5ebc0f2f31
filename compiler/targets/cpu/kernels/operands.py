"""The normal form of definitions that templates see: parameters are what its nodes read, in their order.

A file may number, repeat and omit parameters, and return any values. A template sees the definition in one
form, and only the writer of its text maps the form's tensors to the arguments of a call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .....formats.primitive import PrimitiveDefinition, PrimitiveNode


@dataclass(frozen=True)
class Rewired(PrimitiveDefinition):
    """A definition in the form that templates see.

    Of one node: parameter i is the node's operand i, and the outputs are its results, all of them, in order. Of several: the
    parameters are those that nodes read, in the order of their first use. `places` are the numbers of the form's parameters and
    outputs among the original's, which has `tensors` tensors.
    """

    places: tuple[int, ...] = ()
    tensors: int = 0


def rewired(definition: PrimitiveDefinition) -> PrimitiveDefinition | None:
    """The definition in that form: itself, if it has it already. None if an output is a parameter, or a duplicate, or if one
    node alone gives a result that is not an output: a kernel would have no memory for it."""
    params, outputs = len(definition.params), definition.outputs
    if not outputs or min(outputs) < params or len(set(outputs)) < len(outputs):
        return None
    if len(definition.nodes) == 1:
        (node,) = definition.nodes
        results = range(params, params + len(node.results))
        if sorted(outputs) != list(results) or any(number >= params for number in node.inputs):
            return None
        places = (*node.inputs, *(params + outputs.index(number) for number in results))
    else:
        used = dict.fromkeys(number for node in definition.nodes for number in node.inputs if number < params)
        places = (*used, *range(params, params + len(outputs)))
    if places == tuple(range(params + len(outputs))):
        return definition
    return _rewired(definition, places)


def _rewired(definition: PrimitiveDefinition, places: tuple[int, ...]) -> Rewired:
    before, outputs = len(definition.params), len(definition.outputs)
    after = len(places) - outputs
    params = tuple(definition.params[number] for number in places[:after])
    if len(definition.nodes) == 1:
        nodes = (replace(definition.nodes[0], inputs=tuple(range(after))),)
        chosen = tuple(range(after, after + outputs))
    else:
        numbers = {old: new for new, old in enumerate(places[:after])}

        def number(old: int) -> int:
            return numbers[old] if old < before else old - before + after

        def renumbered(node: PrimitiveNode) -> PrimitiveNode:
            return replace(node, inputs=tuple(map(number, node.inputs)))

        nodes = tuple(map(renumbered, definition.nodes))  # type: ignore[assignment]
        chosen = tuple(map(number, definition.outputs))
    return Rewired(params, nodes, chosen, definition.variables, places, before + outputs)
