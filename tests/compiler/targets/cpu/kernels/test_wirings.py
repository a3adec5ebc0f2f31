"""Definitions whose parameters and results are numbered as nobody would number them: a kernel is right for these, too, or there
is none. `lower` is asked directly: what checks definitions is another defence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES, lower, supports
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import TensorType, tensor

from ..examples import Example, examples
from ..harness import TARGET, Builder, definition_of
from ..trial import trials

SMALL = [tensor("float32", (1,)), tensor("int64", (1,))]


def wired(
    definition: PrimitiveDefinition, params: Sequence[TensorType], places: Sequence[int], outputs: Sequence[int]
) -> PrimitiveDefinition:
    """The definition of one node with other parameters, its operands at these places, and outputs told by result number; negative
    ones are parameters."""
    node = replace(definition.nodes[0], inputs=tuple(places))
    count = len(params)
    chosen = tuple(count + number if number >= 0 else ~number for number in outputs)
    return replace(definition, params=tuple(params), nodes=(node,), outputs=chosen)


def mutants(example: Example) -> Iterator[Example]:
    """The same operator's call, wired in other ways."""
    definition, arrays = example.definition, example.arrays
    count, results = len(definition.params), list(range(len(definition.nodes[0].results)))
    params, operands = list(definition.params), list(range(count))

    def mutant(what: str, params: Sequence[TensorType], places: Sequence[int], outputs: Sequence[int]) -> Example:
        made = [
            arrays[places.index(i)] if i in places else np.zeros(1, type_.dtype.numpy) for i, type_ in enumerate(params)
        ]
        return replace(
            example, name=f"{example.name}, {what}", definition=wired(definition, params, places, outputs), arrays=made
        )

    yield mutant("as it is", params, operands, results)
    yield mutant("parameters reversed", params[::-1], [count - 1 - i for i in operands], results)
    yield mutant("unused parameters first", [*SMALL, *params], [2 + i for i in operands], results)
    yield mutant("unused parameters last", [*params, *SMALL], operands, results)
    yield mutant("results reversed", params, operands, results[::-1])
    yield mutant("a result twice", params, operands, [*results, results[0]])
    yield mutant("the first result alone", params, operands, results[:1])
    yield mutant("parameters as results", [*params, *SMALL], operands, [~(count + i) for i in range(2)][: len(results)])
    yield mutant("a parameter beside results", [*params, *SMALL], operands, [~count, *results])
    for i in operands:
        equal = [j for j in operands[:i] if definition.params[j] == definition.params[i]]
        if equal:  # one parameter is two operands
            places = [equal[0] if j == i else j - (j > i) for j in operands]
            yield mutant("one parameter for two operands", [*params[:i], *params[i + 1 :]], places, results)


def chained(example: Example) -> Iterator[Example]:
    """An operator after each operand, and results that nobody uses."""
    definition = example.definition
    node, count = definition.nodes[0], len(definition.params)
    for place in range(count):
        build = Builder(*definition.params)
        try:
            computed = build("identity", place)
            inputs = [computed if i == place else i for i in range(count)]
            first = build(node.operator, *inputs, **dict(node.attributes))
        except InferenceError:
            continue
        outputs = range(first, first + len(node.results))
        made = replace(build.definition(*outputs), variables=definition.variables)
        yield replace(example, name=f"{example.name}, operand {place} computed", definition=made)
        unused = replace(made, nodes=(*made.nodes, replace(node, inputs=tuple(range(count)))))
        yield replace(example, name=f"{example.name}, a node nobody uses, operand {place} computed", definition=unused)


@pytest.mark.parametrize("operator", TEMPLATES)
def test_kernels_do_not_rely_on_how_parameters_and_results_are_numbered(operator: str) -> None:
    found = (each for each in examples(operator, 0, 100, symbolic=0.0) if all(array.size for array in each.arrays))
    example = next(each for each in found if lower(each.definition, TARGET) is not None)
    cases = [*mutants(example), *chained(example)]
    assert trials(cases) == {}
    taken = [case for case in cases if supports(case.definition, TARGET)]
    assert len(taken) >= (3 if example.arrays else 1), "most have kernels"


def test_a_result_is_copied_to_none_of_the_other_parameters() -> None:
    """A whole row of places, of which the caller has given room for one."""
    types = [tensor("float32", (4096,)), *SMALL]
    definition = definition_of("top_k", types[:1], k=4096)
    assert lower(wired(definition, types, [0], [~1, ~2]), TARGET) is None
