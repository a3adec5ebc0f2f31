"""Elementwise operators as lines of a kernel: the body of a chain, and the prologue or epilogue of other templates.

An expression works on vectors: value number 7 of a definition is the variable `v7` of the text, LANES elements of it.
float16 and other types narrower than a register's elements are computed in float32 (or int8) and rounded after each operator,
as NumPy does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .....formats.dtypes import DType
from .....formats.primitive import PrimitiveDefinition, PrimitiveNode
from .....formats.types import TensorType
from ....operators.elementwise import INTEGER_DIVISIONS
from ....operators.table import bound_attributes
from .. import costs
from .kernel import Unsupported

# operator → its text; {0}, {1} … are the operands, names are attributes
_TEXTS: dict[str, str] = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} ^ {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "shift_left": "shift_left({0}, {1})",
    "shift_right": "shift_right({0}, {1})",
    "logical_not": "~{0}",
    "bitwise_invert": "~{0}",
    "negative": "-{0}",
    "reciprocal": "1.0 / {0}",
    "rsqrt": "1.0 / sqrt({0})",
    "square": "{0} * {0}",
    "identity": "{0}",
    "abs": "absolute({0})",
    "round": "round_even({0})",
    "where": "select({0}, {1}, {2})",
    "round_bfloat16": "round_bfloat16({0})",
    "leaky_relu": "leaky_relu({0}, {alpha})",
    "elu": "elu({0}, {alpha})",
    "hard_sigmoid": "hard_sigmoid({0}, {alpha}, {beta})",
    "floor_divide": "floor_divide({0}, {1})",
    "remainder": "remainder({0}, {1})",
    "fmod": "fmod({0}, {1})",
    **{
        name: f"{name}({{0}})"
        for name in (
            "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
            "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc", "sign",
            "sigmoid", "relu", "silu", "hard_swish", "softplus", "softsign", "mish", "isnan", "isinf", "isfinite",
        )
    },
}  # fmt: skip

_CONSTANTS = frozenset({"constant", "full"})
_COMMUTATIVE = frozenset({"add", "multiply"})  # operand order does not change the text
_POWERS = {1: "{0}", 2: "{0} * {0}", 3: "{0} * {0} * {0}"}
_FLOAT_POWERS = {-1: "1.0 / {0}", 0.5: "power_half({0})"}


def literal(value: object, dtype: DType) -> str:
    """A number of that type as a literal of a kernel's text."""
    if dtype.is_string:  # only the empty text's number is known before a program runs
        if value:
            raise Unsupported("a text in a kernel")
        return "0"
    number = np.asarray(value).astype(dtype.numpy)[()]
    if not dtype.is_numpys:
        number = number.astype(dtype.computed.numpy)
    if not dtype.is_float:
        return str(number.item())
    if math.isfinite(number):
        return str(number)
    return "math.nan" if math.isnan(number) else "math.inf" if number > 0 else "-math.inf"


def _rounded_to(dtype: DType) -> str:
    return f"convert_{dtype.computed.name}(convert_{dtype.name}({{0}}))"


def computed_type(dtype: DType) -> DType:
    """The element type of a value in registers."""
    return dtype.computed


@dataclass(frozen=True)
class Expression:
    """The elementwise nodes of a definition between given values and wanted ones."""

    types: tuple[TensorType, ...]  # of each value number of the definition
    nodes: tuple[tuple[int, PrimitiveNode], ...]  # with the number of the result; an operand's node before its use
    results: tuple[int, ...]

    @staticmethod
    def of(definition: PrimitiveDefinition, results: Iterable[int], given: Iterable[int] = ()) -> Expression | None:
        """The nodes that compute `results` from the parameters and the values `given` (results of an anchor, say). None if
        that needs a node that is not elementwise, or has no native form."""
        numbered, number = {}, len(definition.params)
        for node in definition.nodes:
            numbered.update(dict.fromkeys(range(number, number + len(node.results)), node))
            number += len(node.results)
        results, needed, stack = tuple(results), set[int](), list(results)
        while stack:
            number = stack.pop()
            if number in given or number in needed or number < len(definition.params):
                continue
            needed.add(number)
            stack.extend(numbered[number].inputs)
        expression = Expression(definition.values, tuple((n, numbered[n]) for n in sorted(needed)), results)
        return expression if all(expression._text(node) is not None for _, node in expression.nodes) else None

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The value numbers that must be loaded, in order."""
        computed = {number for number, _ in self.nodes}
        used = [number for _, node in self.nodes for number in node.inputs] + list(self.results)
        return tuple(sorted(set(used) - computed))

    @property
    def cost(self) -> float:
        """Estimated nanoseconds an element."""
        return sum(costs.OPERATOR_NS.get(node.operator, costs.CHEAP_NS) for _, node in self.nodes)

    @property
    def operators(self) -> list[str]:
        return [node.operator for _, node in self.nodes if node.operator != "constant"]

    @property
    def stages(self) -> list[Expression]:
        """The expression in consecutive stages, each with at most one latency-bound operator."""
        parts: list[list[tuple[int, PrimitiveNode]]] = [[]]
        for number, node in self.nodes:
            if node.operator in _CONSTANTS:
                continue
            if _takes_long(node) and any(_takes_long(before) for _, before in parts[-1]):
                parts.append([])
            parts[-1].append((number, node))
        wanted, found = set(self.results), list[Expression]()
        for part in reversed(parts):
            made = {number for number, _ in part}
            used = {number for _, node in part for number in node.inputs}
            # values from earlier stages that later ones store pass through this one
            results = tuple(sorted(wanted & made)) if found else self.results
            constants = [(i, self._by_number[i]) for i in sorted(used | set(results)) if self.is_constant(i)]
            found.append(Expression(self.types, (*constants, *part), results))
            wanted = (wanted - made) | {number for number in used if not self.is_constant(number)}
        return found[::-1]

    def emit(self, loaded: Mapping[int, str], count: str = "", suffix: str = "") -> tuple[list[str], dict[int, str]]:
        """Lines that compute the results from vector variables, and the name of each result's variable.

        `loaded` names the variable of each of `inputs`. `count` is the variable with the number of active lanes, if not
        all are: an operator that can fail (it returns from the kernel) looks only at those.
        `suffix` is appended to the names when several vectors are interleaved.
        """
        names, lines = dict(loaded), list[str]()
        for number, node in self.nodes:
            operands = [self._operand(i, names, splatted=False) for i in node.inputs]
            first = 1 if node.operator == "where" else 0  # of the operands that make up the result
            if node.inputs and all(self.is_constant(i) for i in node.inputs[first:]):
                operands[first] = self._operand(node.inputs[first], names, splatted=True)
            if node.operator in _CONSTANTS:
                continue
            lines += self._checks(node, operands, count)
            if node.operator in _COMMUTATIVE:
                operands.sort()
            text = self._text(node)
            assert text is not None
            rounded = self._rounded(number, text.format(*operands, **_literals(node)))
            names[number] = f"v{number}{suffix}"
            lines.append(f"{names[number]} = {rounded}")
        for number in self.results:
            names[number] = self._operand(number, names, splatted=True)
        return lines, {number: names[number] for number in self.results}

    def _checks(self, node: PrimitiveNode, operands: Sequence[str], count: str) -> list[str]:
        if node.operator not in INTEGER_DIVISIONS or node.results[0].dtype.is_float:
            return []
        if self.is_constant(node.inputs[1]):
            return [] if self.constant(node.inputs[1]) else ["return 2"]
        condition = f"({operands[1]} == 0) & inside({count})" if count else f"{operands[1]} == 0"
        return [f"if any_lane({condition}):", "    return 2"]

    def _rounded(self, number: int, text: str) -> str:
        dtype = self.types[number].dtype
        return text if dtype.computed is dtype else _rounded_to(dtype).format(text)

    @cached_property
    def _by_number(self) -> dict[int, PrimitiveNode]:
        return dict(self.nodes)

    def is_constant(self, number: int) -> bool:
        return number in self._by_number and self._by_number[number].operator in _CONSTANTS

    def constant(self, number: int) -> Any:
        return bound_attributes(self._by_number[number])["value"]

    def _operand(self, number: int, names: Mapping[int, str], splatted: bool) -> str:
        if not self.is_constant(number):
            return names[number]
        dtype = self.types[number].dtype
        text = literal(self.constant(number), dtype)
        if splatted or dtype is DType.bool:
            return f"splat_{computed_type(dtype).name}({text})"
        return f"({text})" if text.startswith("-") else text

    def _text(self, node: PrimitiveNode) -> str | None:
        chosen = _CHOSEN.get(node.operator)
        return chosen(self, node) if chosen else _TEXTS.get(node.operator)


def _takes_long(node: PrimitiveNode) -> bool:
    return costs.OPERATOR_NS.get(node.operator, costs.CHEAP_NS) >= costs.LATENCY_BOUND_NS


# ---- operators whose text depends on attributes, types or constants ----


def _cast(expression: Expression, node: PrimitiveNode) -> str:
    source, dtype = expression.types[node.inputs[0]].dtype, node.results[0].dtype
    if not dtype.is_numpys or (dtype is DType.float16 and source is DType.float64):
        return _rounded_to(dtype)  # once
    return f"convert_{computed_type(node.results[0].dtype).name}({{0}})"


def _clip(expression: Expression, node: PrimitiveNode) -> str:
    attributes, dtype, text = bound_attributes(node), node.results[0].dtype, "{0}"
    for name, function in (("min", "maximum"), ("max", "minimum")):
        if attributes[name] is not None:
            text = f"{function}({literal(_saturated(attributes[name], dtype), dtype)}, {text})"
    return text


def _gelu(expression: Expression, node: PrimitiveNode) -> str:
    return "gelu_tanh({0})" if bound_attributes(node)["approximate"] == "tanh" else "gelu({0})"


def _extreme(expression: Expression, node: PrimitiveNode) -> str:
    # one instruction, if the constant comes first
    return (
        f"{node.operator}({{1}}, {{0}})" if expression.is_constant(node.inputs[1]) else f"{node.operator}({{0}}, {{1}})"
    )


def _divide(expression: Expression, node: PrimitiveNode) -> str:
    return "{0} / {1}" if node.results[0].dtype.is_float else "divide({0}, {1})"


def _pow(expression: Expression, node: PrimitiveNode) -> str | None:
    is_float, exponent = node.results[0].dtype.is_float, node.inputs[1]
    if expression.is_constant(exponent):
        value = expression.constant(exponent)
        if value in _POWERS or (is_float and value in _FLOAT_POWERS):
            return _POWERS.get(value) or _FLOAT_POWERS[value]
    return "power({0}, {1})" if is_float else None


def _saturated(value: float, dtype: DType) -> float:
    if dtype.is_float:
        return value
    least, greatest = dtype.bounds
    return int(min(max(value, least), greatest))


def _literals(node: PrimitiveNode) -> dict[str, str]:
    """The numeric attributes, which a text may name."""
    return {
        name: literal(value, DType.float64)
        for name, value in bound_attributes(node).items()
        if name in ("alpha", "beta")
    }


def _quantize(expression: Expression, node: PrimitiveNode) -> str:
    _, scale, zero = node.inputs
    steps = "{0}" if expression.is_constant(scale) and expression.constant(scale) == 1 else "{0} / {1}"
    point = "" if expression.is_constant(zero) and expression.constant(zero) == 0 else " + convert_float32({2})"
    return f"saturated_{node.results[0].dtype.name}(round_even({steps}){point})"


def _dequantize(expression: Expression, node: PrimitiveNode) -> str:
    x, _, zero = node.inputs
    if expression.is_constant(zero) and expression.constant(zero) == 0:
        return "convert_float32({0}) * {1}"
    if expression.types[x].dtype is DType.int32:
        return "convert_float32({0} - {2}) * {1}"
    return "(convert_float32({0}) - convert_float32({2})) * {1}"


_CHOSEN: dict[str, Callable[[Expression, PrimitiveNode], str | None]] = {
    "cast": _cast,
    "clip": _clip,
    "gelu": _gelu,
    "maximum": _extreme,
    "minimum": _extreme,
    "divide": _divide,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "pow": _pow,
    "constant": lambda expression, node: "",
    "full": lambda expression, node: "",
}
