"""Weights by name: what a compilation makes of them, remembered so that it can be made of others.

    executable = compile(module, params=weights, named_weights=True)

A weight is an `ir.Weight`, a constant with a name. What passes compute of constants they compute by operators (`computed`), and
the result knows how it was made. In the end, a table says for each constant of the program how it is made of weights, and which
weights are settled, since something was decided by what they hold: folded otherwise, found to be a pattern, counted. Each weight
is a constant of the program itself, though no code may read it: so a constant that is made of several can be made again of one
that is given and of what the others are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..formats import mapped
from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError, CompileError, ExecutionError, InferenceError
from ..formats.primitive import PrimitiveNode
from ..formats.program import Program
from ..formats.types import TensorType
from ..formats.weight_table import NamedWeight, WeightTable, digest
from . import effort, ir
from .codegen import spill
from .ir.evaluate import apply_operator
from .operators.table import lookup


def computed(operator: str, *args: ir.Constant, **attributes: Any) -> ir.Constant:
    """The one result of an operator on constants, by its reference implementation."""
    entry = lookup(operator)
    call = ir.OperatorCall(operator, args, entry.canonical(attributes))
    types = [arg.type for arg in args]
    if not effort.may_grow(types, results := entry.result_types(types, call.attributes)):
        made = ", ".join(map(str, results))
        raise CompileError(
            f"{operator} of {', '.join(map(str, types))} would make a constant of {made}, which is too large"
        )
    (result,) = results_of(call, entry.views([arg.array for arg in args], call.attributes))
    return result


def results_of(call: ir.OperatorCall, arrays: list[np.ndarray]) -> list[ir.Constant]:
    """Constants of the results of an operator on constants."""
    weights = [arg for arg in call.args if isinstance(arg, ir.Weight)]
    arrays = [spill.kept(array) for array in arrays]
    for arg in call.args:
        if isinstance(arg, ir.Constant):
            mapped.release(arg.array)  # what it is made of is rarely asked for again
    if not weights:
        return [ir.Constant(ir.frozen(array)) for array in arrays]
    names = frozenset().union(*(weight.names for weight in weights))
    return [ir.Weight(ir.frozen(array), names, weights[0].settled, (call, index)) for index, array in enumerate(arrays)]


# A literal that takes more is not a choice of rows any more: weights that are made with it are settled.
_LITERAL_BYTES = 1 << 20


class Weights:
    """The weights of one compilation, by name."""

    def __init__(self) -> None:
        self._leaves: dict[str, ir.Weight] = {}
        self._settled: set[str] = set()

    @property
    def settled(self) -> frozenset[str]:
        """Names of weights that something was decided by; set again where passes run once more from there."""
        return frozenset(self._settled)

    @settled.setter
    def settled(self, names: frozenset[str]) -> None:
        self._settled.clear()
        self._settled.update(names)

    def add(self, name: str, array: np.ndarray) -> ir.Weight:
        """The constant of a weight. The array must not change any more."""
        weight = self._leaves[name] = ir.Weight(ir.frozen(array), frozenset([name]), self._settled)
        return weight

    def kept(
        self, program: Program, constants: Mapping[int, ir.Weight]
    ) -> tuple[tuple[np.ndarray, ...], dict[int, ir.Weight]]:
        """The constants of a program and each weight that is none of them yet; and those that are made of weights, by place."""
        held = set(constants.values())
        added = [leaf for leaf in self._leaves.values() if leaf not in held]
        places = dict(enumerate(added, len(program.constants)))
        return (*program.constants, *(leaf.array for leaf in added)), {**constants, **places}

    def table(self, constants: Mapping[int, ir.Weight]) -> WeightTable:
        """How the constants of a program, by their places, are made of the weights."""
        return _Writer(self._leaves, constants).table()


class _Writer:
    """Numbers values: the weights in their order, then literals, then the results of nodes."""

    def __init__(self, leaves: Mapping[str, ir.Weight], constants: Mapping[int, ir.Weight]) -> None:
        self.leaves, self.constants = leaves, constants
        self.settled = self._settled()
        self.nodes: list[PrimitiveNode] = []
        made = sorted(constants.items())
        self.free = {place: each for place, each in made if each.made is None or not each.names & self.settled}
        self.literals = list(dict.fromkeys(each for constant in self.free.values() for each in _literals(constant)))
        self.numbers: dict[Any, int] = {
            value: number for number, value in enumerate([*leaves.values(), *self.literals])
        }
        self.count = len(self.numbers)

    def table(self) -> WeightTable:
        made = tuple((place, self._number(constant)) for place, constant in self.free.items())
        literals = tuple(literal.array for literal in self.literals)
        named = tuple(
            NamedWeight(name, leaf.type, digest(leaf.array) if name in self.settled else "")
            for name, leaf in self.leaves.items()
        )
        return WeightTable(named, literals, tuple(self.nodes), made)

    def _settled(self) -> set[str]:
        """A constant that is made of a settled weight is never made again: so nor are others that share its weights with it."""
        settled = {name for leaf in self.leaves.values() for name in leaf.settled}
        for constant in self.constants.values():
            if any(literal.array.nbytes > _LITERAL_BYTES for literal in _literals(constant)):
                settled |= constant.names
        count = -1
        while count != len(settled):
            count = len(settled)
            for constant in self.constants.values():
                if constant.names & settled:
                    settled |= constant.names
        return settled

    def _number(self, constant: ir.Constant) -> int:
        """The number of a value, whose nodes are written now, after those that it is made of."""
        pending = [constant]
        while pending:
            each = pending[-1]
            if each in self.numbers:
                pending.pop()
                continue
            assert isinstance(each, ir.Weight)
            assert each.made is not None
            call, index = each.made
            args = _constants(call)
            missing = [arg for arg in args if arg not in self.numbers]
            if missing and call not in self.numbers:
                pending += reversed(missing)
                continue
            if call not in self.numbers:
                types = lookup(call.operator).result_types([arg.type for arg in args], call.attributes)
                inputs = tuple(self.numbers[arg] for arg in args)
                self.numbers[call] = self._node(call.operator, inputs, types, call.attributes)
            self.numbers[each] = self.numbers[call] + index
        return self.numbers[constant]

    def _node(self, operator: str, inputs: tuple[int, ...], types: tuple[TensorType, ...], attributes: Any) -> int:
        self.nodes.append(PrimitiveNode(operator, inputs, tuple(types), tuple(sorted(attributes))))
        first, self.count = self.count, self.count + len(types)
        return first


def _literals(constant: ir.Constant) -> list[ir.Constant]:
    """The literals that a constant is made of, besides weights, in order of first use."""
    found: dict[ir.Constant, None] = {}
    seen, pending = {constant}, [constant]
    while pending:
        each = pending.pop()
        if not isinstance(each, ir.Weight):
            found[each] = None
        elif each.made is not None:
            fresh = [arg for arg in reversed(_constants(each.made[0])) if arg not in seen]
            seen.update(fresh)
            pending += fresh
    return list(found)


def _constants(call: ir.OperatorCall) -> list[ir.Constant]:
    """The operands of a call that has been made."""
    return [arg for arg in call.args if isinstance(arg, ir.Constant)]


# ---- other weights ----


def remade(table: WeightTable, arrays: Mapping[int, np.ndarray], places: Collection[int]) -> dict[int, np.ndarray]:
    """The constants at some places, made of `arrays`, the weights by number, which these need.

    What is not needed any more is given up before the next is made. Raises ArgumentError where the compiler chose what
    suits the first weights alone, InferenceError, and CompileError where the table asks for more work than its weights explain.
    """
    users = _users(table, [number for place, number in table.constants if place in places])
    first = len(table.weights)
    values = dict(arrays) | dict(enumerate(table.literals, first))
    room = sum(array.nbytes for array in arrays.values())
    with effort.bounded(room):
        first += len(table.literals)
        for node in table.nodes:
            numbers = range(first, first + len(node.results))
            first = numbers.stop
            if users.keys().isdisjoint(numbers):
                continue
            inputs = [values[number] for number in node.inputs]
            _check_work(node, inputs)
            try:
                results = apply_operator(node.operator, inputs, node.attributes, {})
            except ExecutionError as error:
                raise ArgumentError(
                    f"these weights cannot take the place of those that the program was compiled with: {error}; compile anew"
                ) from None
            values.update(zip(numbers, results, strict=True))
            for number in {*node.inputs, *numbers}:
                users[number] = users.get(number, 0) - node.inputs.count(number)
                if not users[number]:
                    del values[number]
    return {place: values[number] for place, number in table.constants if place in places}


def _users(table: WeightTable, wanted: Collection[int]) -> dict[int, int]:
    """How often each value that is needed is used, by nodes that are needed, or as a constant."""
    users = dict.fromkeys(wanted, 1)  # what is wanted twice is one value
    first = len(table.values)
    for node in reversed(table.nodes):
        first -= len(node.results)
        if not users.keys().isdisjoint(range(first, first + len(node.results))):
            for number in node.inputs:
                users[number] = users.get(number, 0) + 1
    return users


def _check_work(node: PrimitiveNode, inputs: Sequence[np.ndarray]) -> None:
    types = [TensorType(DType.of(array.dtype), array.shape) for array in inputs]
    operator = lookup(node.operator)
    if tuple(operator.result_types(types, node.attributes)) != node.results:
        raise InferenceError(
            f"{node.operator} of {', '.join(map(str, types))} does not give {', '.join(map(str, node.results))}"
        )
    if not effort.may_fold(operator, types, node.results, node.attributes, inputs):
        raise CompileError(f"weights are made by {node.operator} of {', '.join(map(str, types))}, which takes too long")
