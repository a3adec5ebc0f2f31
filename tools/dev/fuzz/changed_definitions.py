"""Random changes of primitives' definitions, for the fuzzer: how values are wired, attributes, shapes, element types, operators.

Most mutants are mended afterwards: types inferred again, parameters numbered again, so that the checks let them through and
templates meet what nobody has made by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ....compiler.operators import TABLE, lookup
from ....formats.dtypes import DType
from ....formats.messages.errors import TreadleError
from ....formats.primitive import PrimitiveDefinition, PrimitiveNode
from ....formats.types import TensorType
from .changes import change, change_dim

Change = Callable[[Random, PrimitiveDefinition], PrimitiveDefinition]

_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100)
_MENDED = 0.7  # of the mutants


def mutate_definition(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """`definition` with one to four changes."""
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        definition = random.choice(_CHANGES)(random, definition)
    return mended(definition) if random.random() < _MENDED else definition


def rewired(random: Random, values: tuple) -> tuple:
    """The same values, of which some changed places, one is left out, or one is there twice."""
    if not values:
        return values
    at, other = random.randrange(len(values)), random.randrange(len(values))
    choice = random.randrange(5)
    if choice == 0:
        shuffled = list(values)
        random.shuffle(shuffled)
        return tuple(shuffled)
    if choice == 1:
        return values[:at] + values[at + 1 :]
    if choice == 2:
        return (*values[:at], values[other], *values[at:])
    if choice == 3:
        return (*values[:at], values[other], *values[at + 1 :])
    return (*values[1:], values[0])


def _params(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """Only types move: nodes take what is at their places now."""
    return replace(definition, params=rewired(random, definition.params))


def _outputs(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    return replace(definition, outputs=rewired(random, definition.outputs))


def _other_output(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    outputs = list(definition.outputs) or [0]
    outputs[random.randrange(len(outputs))] = random.randrange(len(definition.values) or 1)
    return replace(definition, outputs=tuple(outputs))


def _node(random: Random, definition: PrimitiveDefinition, changed: Callable[[PrimitiveNode], PrimitiveNode]) -> Any:
    if not definition.nodes:
        return definition
    at = random.randrange(len(definition.nodes))
    nodes = definition.nodes
    return replace(definition, nodes=(*nodes[:at], changed(nodes[at]), *nodes[at + 1 :]))


def _operands(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    return _node(random, definition, lambda node: replace(node, inputs=rewired(random, node.inputs)))


def _other_operand(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    def changed(node: PrimitiveNode) -> PrimitiveNode:
        inputs = list(node.inputs) or [0]
        inputs[random.randrange(len(inputs))] = random.randrange(len(definition.params) + 1)
        return replace(node, inputs=tuple(inputs))

    return _node(random, definition, changed)


def _results(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    return _node(random, definition, lambda node: replace(node, results=rewired(random, node.results)))


def _attributes(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """Another value for an attribute that is given, or any that the operator has."""

    def changed(node: PrimitiveNode) -> PrimitiveNode:
        given = dict(node.attributes)
        entry = TABLE.get(node.operator)
        names = [*given, *(entry.attributes if entry else ())]
        if not names:
            return node
        name = random.choice(names)
        before = given.get(name, entry.attributes[name].default if entry and name in entry.attributes else None)
        before = before if isinstance(before, (bool, int, float, str, tuple, DType)) or before is None else 1
        after = _near(random, before) if random.random() < 0.8 else change(random, before)
        return replace(node, attributes=tuple(sorted((given | {name: after}).items(), key=lambda item: item[0])))

    return _node(random, definition, changed)


def _near(random: Random, value: Any) -> Any:
    """A value that an operator may well take."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((-2, -1, 0, 1, 2, 3, 4, 5, 7, 16, value - 1, value + 1, 2 * value))
    if isinstance(value, float):
        return random.choice((0.0, -0.0, 1.0, -1.0, 0.5, 1e-5, 1e30, value * 2))
    if isinstance(value, tuple) and value:
        at = random.randrange(len(value))
        if random.random() < 0.3:
            return rewired(random, value)
        return (*value[:at], _near(random, value[at]), *value[at + 1 :])
    if value is None:
        return random.choice((0, 1, (0,), (1,), (0, 1), (1, 1), (2, 2), (1, 1, 1, 1), 1.0, True))
    return change(random, value)


def _shape(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """Another extent, or rank, of a parameter; often of all that had the same."""
    known = [(place, axis) for place, type_ in enumerate(definition.params) for axis in range(len(type_.shape))]
    if not known:
        return definition
    place, axis = random.choice(known)
    before = definition.params[place].shape[axis]
    after = random.choice(_SIZES) if random.random() < 0.8 else change_dim(random, before)
    everywhere = random.random() < 0.5

    def changed(at: int, type_: TensorType) -> TensorType:
        shape = tuple(
            after if (at, i) == (place, axis) or (everywhere and dim == before) else dim
            for i, dim in enumerate(type_.shape)
        )
        return TensorType(type_.dtype, shape)

    return replace(definition, params=tuple(changed(at, type_) for at, type_ in enumerate(definition.params)))


def _rank(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    if not definition.params:
        return definition
    at = random.randrange(len(definition.params))
    type_ = definition.params[at]
    changed = TensorType(type_.dtype, rewired(random, type_.shape))
    return replace(definition, params=(*definition.params[:at], changed, *definition.params[at + 1 :]))


def _dtype(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    if not definition.params:
        return definition
    place, after = random.randrange(len(definition.params)), random.choice(list(DType))
    before, everywhere = definition.params[place].dtype, random.random() < 0.6
    params = tuple(
        TensorType(after, type_.shape) if at == place or (everywhere and type_.dtype is before) else type_
        for at, type_ in enumerate(definition.params)
    )
    return replace(definition, params=params)


def _behind(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """One more node behind the others, which becomes an output."""
    values = definition.values
    if not values:
        return definition
    operator = random.choice(("relu", "exp", "add", "multiply", "negative", "cast", "sum", "softmax", "maximum"))
    count = 2 if operator in ("add", "multiply", "maximum") else 1
    inputs = tuple(random.randrange(len(values)) for _ in range(count))
    attributes = (("dtype", random.choice(list(DType))),) if operator == "cast" else ()
    node = PrimitiveNode(operator, inputs, (values[inputs[0]],), attributes)
    outputs = (*(definition.outputs if random.random() < 0.3 else ()), len(values))
    return replace(definition, nodes=(*definition.nodes, node), outputs=outputs)


def _before(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """A parameter is computed first, by one more node before the others."""
    if not definition.params:
        return definition
    count, at = len(definition.params), random.randrange(len(definition.params))
    node = PrimitiveNode(random.choice(("relu", "sigmoid", "abs")), (at,), (definition.params[at],))

    def moved(number: int) -> int:
        return count if number == at else number + (number >= count)

    nodes = tuple(replace(each, inputs=tuple(map(moved, each.inputs))) for each in definition.nodes)
    outputs = tuple(number + (number >= count) for number in definition.outputs)
    return replace(definition, nodes=(node, *nodes), outputs=outputs)


def _operator(random: Random, definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """Another operator that takes as many inputs."""

    def changed(node: PrimitiveNode) -> PrimitiveNode:
        alike = sorted(name for name, entry in TABLE.items() if len(entry.inputs) == len(node.inputs))
        return replace(node, operator=random.choice(alike or [node.operator]))

    return _node(random, definition, changed)


_CHANGES: Sequence[Change] = (
    *(
        _params,
        _outputs,
        _other_output,
        _operands,
        _other_operand,
        _results,
        _rank,
        _dtype,
        _behind,
        _before,
        _operator,
    ),
    *(_attributes, _attributes, _attributes, _shape, _shape, _shape),
)


def mended(definition: PrimitiveDefinition) -> PrimitiveDefinition:
    """The definition in the form that definitions have, with the types that inference gives; as it is, where there is none."""
    values = list(definition.params)
    starts: list[int] = []
    nodes: list[PrimitiveNode] = []
    try:
        for node in definition.nodes:
            starts.append(len(values))
            results = lookup(node.operator).result_types([values[number] for number in node.inputs], node.attributes)
            nodes.append(replace(node, results=results))
            values += results
    except (TreadleError, IndexError):
        return definition
    first = len(definition.params)
    outputs = tuple(dict.fromkeys(number for number in definition.outputs if first <= number < len(values)))
    if not nodes:
        return definition
    if any(len(node.results) > 1 for node in nodes) or not outputs:
        outputs = tuple(range(starts[-1], len(values)))
    return _renumbered(definition.params, nodes, starts, outputs)


def _renumbered(
    params: tuple[TensorType, ...], nodes: Sequence[PrimitiveNode], starts: Sequence[int], outputs: tuple[int, ...]
) -> PrimitiveDefinition:
    """Without what the outputs do not need, parameters in order of their first use."""
    needed, kept = set(outputs), list[tuple[PrimitiveNode, int]]()
    for node, start in reversed(list(zip(nodes, starts, strict=True))):
        if needed & set(range(start, start + len(node.results))):
            kept.insert(0, (node, start))
            needed.update(node.inputs)
    used = list(dict.fromkeys(number for node, _ in kept for number in node.inputs if number < len(params)))
    numbers = {number: place for place, number in enumerate(used)}
    count = len(used)
    made = []
    for node, start in kept:
        made.append(replace(node, inputs=tuple(numbers[number] for number in node.inputs)))
        for offset in range(len(node.results)):
            numbers[start + offset] = count + offset
        count += len(node.results)
    definition = PrimitiveDefinition(
        tuple(params[number] for number in used), tuple(made), tuple(numbers[number] for number in outputs)
    )
    attributes = tuple(value for node in made for _, value in node.attributes)
    return replace(definition, variables=PrimitiveDefinition.variables_of(definition.values, attributes))
