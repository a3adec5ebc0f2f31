"""Definitions of several nodes at random: an operator with elementwise ones before and after it, any values as results, and
parameters in any order, some of which nobody reads."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from treadle.compiler.targets.cpu.kernels.lower import TEMPLATES
from treadle.formats import dims
from treadle.formats.dims import Dim
from treadle.formats.messages.errors import InferenceError
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import TensorType, tensor

from ..examples import Example, examples
from ..harness import Builder
from ..trial import trials

_UNARY = ("relu", "exp", "negative", "identity", "tanh", "abs", "isnan", "logical_not")
_BINARY = ("add", "multiply", "maximum", "subtract", "less", "equal")
_SMALL = tensor("int64", (1,))
_EACH = 3


def fused(example: Example) -> Example:
    """One definition around an example's operator."""
    return _Fuser(example).made()


class _Fuser:
    """After the operator's operands come parameters for other operators."""

    def __init__(self, example: Example) -> None:
        self.random = random.Random(example.name)
        self.example = example
        definition = example.definition
        self.inputs = list(range(len(definition.params)))
        types = [*definition.results[:1] * 3, *definition.params[:1]]
        self.others = [TensorType(type_.dtype, self._broadcast(type_.shape)) for type_ in types]
        self.build = Builder(*definition.params, *self.others)

    def _broadcast(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        kept = tuple(self.random.choice((dim, dim, 1)) for dim in shape)
        return kept[self.random.choice((0, 0, self.random.randint(0, len(kept)))) :]

    def made(self) -> Example:
        build, values = self.build, self._nodes()
        chosen = self.random.sample(values, min(len(values), self.random.choice((1, 1, 1, 2, 3))))
        if self.random.random() < 0.1:
            chosen.append(self.random.choice([chosen[0], self.random.randrange(len(build.params))]))
        definition = replace(build.definition(*chosen), variables=self.example.definition.variables)
        arrays = [*self.example.arrays, *map(self._array, self.others)]
        definition, arrays = self._shuffled(definition, arrays)
        return replace(self.example, name=f"{self.example.name}, fused", definition=definition, arrays=arrays)

    def _array(self, type_: TensorType) -> np.ndarray:
        shape = tuple(dims.evaluate(dim, self.example.sizes) for dim in type_.shape)
        numbers = np.random.default_rng(1).standard_normal(shape)
        return (numbers > 0) if type_.dtype.name == "bool" else numbers.astype(type_.dtype.numpy)

    def _nodes(self) -> list[int]:
        """Adds nodes; the values that may be results."""
        build, (node,), inputs = self.build, self.example.definition.nodes, list(self.inputs)
        if inputs and self.random.random() < 0.4:
            place = self.random.choice([0, 0, self.random.choice(inputs)])
            computed = self._applied(place)
            inputs[place] = place if computed is None else computed
        try:
            first = build(node.operator, *inputs, **dict(node.attributes))
        except InferenceError:
            first = build(node.operator, *self.inputs, **dict(node.attributes))
        values = list(range(first, len(build.values)))
        for _ in range(self.random.choice((0, 1, 1, 2, 3, 6))):
            value = self._applied(self.random.choice(values))
            if value is not None:
                values.append(value)
        return values

    def _applied(self, value: int) -> int | None:
        """An elementwise operator on a value, and perhaps on another one."""
        build = self.build
        try:
            if self.random.random() < 0.4:
                return build(self.random.choice(_UNARY), value)
            same = [i for i, other in enumerate(build.values) if other.dtype is build.values[value].dtype]
            pair = [value, self.random.choice(same)]
            self.random.shuffle(pair)
            return build(self.random.choice(_BINARY), *pair)
        except InferenceError:
            return None

    def _shuffled(
        self, definition: PrimitiveDefinition, arrays: list[np.ndarray]
    ) -> tuple[PrimitiveDefinition, list[np.ndarray]]:
        """With parameters in another order, and one more that nobody reads."""
        params, count = [*definition.params, _SMALL], len(definition.params)
        order = list(range(count + 1))
        if self.random.random() < 0.5:
            self.random.shuffle(order)

        def number(old: int) -> int:
            return order.index(old) if old < count else old + 1

        nodes = tuple(replace(node, inputs=tuple(map(number, node.inputs))) for node in definition.nodes)
        outputs = tuple(map(number, definition.outputs))
        made = replace(definition, params=tuple(params[i] for i in order), nodes=nodes, outputs=outputs)
        return made, [[*arrays, np.zeros(1, np.int64)][i] for i in order]


@pytest.mark.parametrize("operator", TEMPLATES)
def test_fused_definitions_are_right_or_have_no_kernel(operator: str) -> None:
    assert trials([fused(example) for example in examples(operator, 50, _EACH)]) == {}
