"""Definitions of primitives for tests: an honest one for each kernel template, and what becomes of it when wired wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.compiler.operators import lookup
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES
from treadle.formats.primitive import PrimitiveDefinition, PrimitiveNode
from treadle.formats.types import TensorType, tensor

from .operators.test_operators import EXAMPLES

F = "float32"

# Of operators on blocked channels, which only passes make; like `EXAMPLES`.
_BLOCKED: list[tuple[str, list, dict]] = [
    ("conv_blocked", [(F, ("n", 2, "h", 9, 16)), (F, (2, 2, 3, 3, 16, 16)), (F, (2, 16))], {"channels": 21}),
    ("conv_planar", [(F, ("n", 3, "h", 9)), (F, (2, 3, 3, 3, 16))], {"strides": (2, 2)}),
    ("conv_to_few", [(F, (1, 2, 9, 9, 16)), (F, (3, 2, 3, 3, 16))], {"channels": 21}),
    ("conv_depthwise", [(F, (1, 2, 9, 9, 16)), (F, (2, 1, 3, 3, 16))], {"pads": (1, 1, 1, 1)}),
    ("conv_winograd", [(F, (1, 1, 20, 24, 16)), (F, (3, 6, 6, 16, 16))], {"channels": 16, "pads": (1, 1, 1, 1)}),
    ("conv_winograd_raw", [(F, (1, 2, 9, 7, 16)), (F, (3, 2, 3, 3, 16, 16))], {"channels": 20, "pads": (1, 1, 1, 1)}),
    ("join_channels", [(F, (2, 1, 9, 7, 16)), (F, (2, 2, 9, 7, 16))], {"channels": (16, 32), "start": 16, "count": 32}),
    ("group_normalization_blocked", [(F, (2, 3, 5, 6, 16)), (F, (3, 16)), (F, (3, 16))], {"groups": 4, "channels": 48}),
    ("matmul_packed", [(F, ("n", 30)), (F, (9, 30, 16))], {"columns": 141}),
    ("matmul_transposed", [(F, (30, "n")), (F, (30, 9))], {"transpose_a": True}),
]


def alone(operator: str, params: Sequence[TensorType], attributes: dict) -> PrimitiveDefinition:
    """The definition of one operator on its own."""
    entry = lookup(operator)
    canonical = entry.canonical(attributes)
    results = entry.result_types(params, canonical)
    node = PrimitiveNode(operator, tuple(range(len(params))), results, canonical)
    variables = PrimitiveDefinition.variables_of((*params, *results), tuple(value for _, value in canonical))
    return PrimitiveDefinition(tuple(params), (node,), tuple(range(len(params), len(params) + len(results))), variables)


def of_templates() -> dict[str, PrimitiveDefinition]:
    """Definitions of one operator each, several of some, of all kernel templates."""
    found: dict[str, PrimitiveDefinition] = {}
    for operator, inputs, attributes in [*EXAMPLES, *_BLOCKED]:
        if operator in TEMPLATES:
            name = next(name for i in range(99) if (name := f"{operator} {i}") not in found)
            found[name] = alone(operator, [tensor(*parts) for parts in inputs], attributes)
    return found


def rewired(definition: PrimitiveDefinition) -> dict[str, PrimitiveDefinition]:
    """A definition of one node with its values wired as no compiler does it, by what was done."""
    (node,) = definition.nodes
    params, results, outputs = definition.params, node.results, definition.outputs
    count = len(params)

    def wired(params: tuple, inputs: tuple, outputs: tuple, *more: PrimitiveNode) -> PrimitiveDefinition:
        return replace(definition, params=params, nodes=(replace(node, inputs=inputs), *more), outputs=outputs)

    behind = tuple(number + 1 for number in outputs)
    inputs, extra = node.inputs, tensor("float32", (4096,))
    found = {
        "an unused parameter behind": wired((*params, extra), inputs, behind),
        "an unused parameter before": wired((extra, *params), tuple(number + 1 for number in inputs), behind),
        "no outputs": wired(params, inputs, ()),
        "an output twice": wired(params, inputs, (*outputs, outputs[0])),
        "an output in place of the others": wired(params, inputs, (outputs[0],) * len(outputs) + (outputs[0],)),
        "an unused node": wired(params, inputs, outputs, _relu(results[0], count)),
        "a parameter as an unused node's operand": wired(params, inputs, outputs, _relu(extra, count)),
    }
    if params:
        found["an output is a parameter"] = wired(params, inputs, (*outputs[:-1], 0))
        found["a parameter is another output"] = wired(params, inputs, (*outputs, 0))
    if count > 1:
        swapped = (params[1], params[0], *params[2:])
        found["parameters in another order"] = wired(swapped, (1, 0, *inputs[2:]), outputs)
        found["parameters from last to first"] = wired(params[::-1], inputs[::-1], outputs)
        found["operands in another order"] = wired(params, (1, 0, *inputs[2:]), outputs)
        found["an operand twice"] = wired(params, (0, 0, *inputs[2:]), outputs)
        found["an operand left out"] = wired(params, inputs[:-1], outputs)
    if len(outputs) > 1:
        found["results in another order"] = wired(params, inputs, outputs[::-1])
        found["a result left out"] = wired(params, inputs, outputs[1:])
        found["only the last result"] = wired(params, inputs, outputs[-1:])
        found["work behind several results"] = wired(
            params, inputs, (*outputs[1:], count + len(results)), _relu(results[0], count)
        )
    return found


def _relu(type_: TensorType, number: int) -> PrimitiveNode:
    return PrimitiveNode("relu", (number,), (type_,))
