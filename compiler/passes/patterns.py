"""Patterns of operators, written as Python expressions, and their matches among the definitions of variables.

    parse("x * (erf(x * 0.70710678) + 1)")

A name matches any atom, the same for each occurrence in a pattern; a number matches a constant of one element, of that value.
Commutative operators match in both orders, and a product with a number also matches a quotient. Reductions keep their
axes, which are the same in all of a pattern and are bound to the name `axes`. Keywords are attributes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Union

import numpy as np

from ...formats.types import TensorType
from .. import ir
from ..operators.shapes import axes_of
from ..operators.table import lookup

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "pow",
}
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
_TOLERANCE = 1e-5  # exporters write constants with six digits at least


@dataclass(frozen=True)
class Node:
    operator: str
    operands: tuple[Pattern, ...]
    attributes: tuple[tuple[str, float], ...] = ()


Pattern = Union[Node, str, float]
Found = Mapping[str, Any]  # atoms by name, and `axes`


@cache
def parse(text: str) -> Node:
    """The pattern of an expression. Raises ValueError for a name or a number alone."""
    pattern = _convert(ast.parse(text, mode="eval").body)
    if not isinstance(pattern, Node):
        raise ValueError(f"no operator: {text}")
    return pattern


def may_match(pattern: Node, operator: str) -> bool:
    """Whether a call of that operator can be the root of the pattern."""
    return pattern.operator == operator or (pattern.operator == "multiply" and operator == "divide")


def _convert(tree: ast.expr) -> Pattern:
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.Constant):
        return float(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.BinOp):
        return Node(_OPERATORS[type(tree.op)], (_convert(tree.left), _convert(tree.right)))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return Node("negative", (_convert(tree.operand),))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        attributes = tuple((word.arg or "", float(ast.literal_eval(word.value))) for word in tree.keywords)
        return Node(tree.func.id, tuple(map(_convert, tree.args)), attributes)
    raise ValueError(f"no pattern: {ast.unparse(tree)}")


def number_of(atom: object) -> float | None:
    """The value of a constant of one element."""
    if isinstance(atom, ir.Constant) and atom.array.size == 1 and atom.array.dtype.kind == "f":
        return float(atom.value.item())
    return None


@dataclass(frozen=True)
class Matcher:
    """`definitions`: the defining calls of variables."""

    definitions: Mapping[ir.Var, ir.OperatorCall]

    def find(self, pattern: Node, call: ir.OperatorCall) -> Iterator[Found]:
        """The bindings of a pattern's names, for each way in which the call matches it."""
        return self._call(pattern, call, {})

    def _atom(self, pattern: Pattern, atom: ir.Atom, found: Found) -> Iterator[Found]:
        if isinstance(pattern, str):
            if found.get(pattern, atom) is atom:
                yield {**found, pattern: atom}
        elif isinstance(pattern, float):
            value = number_of(atom)
            if value is not None and math.isclose(value, pattern, rel_tol=_TOLERANCE):
                yield found
        elif isinstance(atom, ir.Var) and atom in self.definitions:
            yield from self._call(pattern, self.definitions[atom], found)

    def _call(self, pattern: Node, call: ir.OperatorCall, found: Found) -> Iterator[Found]:
        if pattern.operator == "multiply" and call.operator == "divide":
            call = _as_product(call) or call
        if call.operator != pattern.operator or len(call.args) != len(pattern.operands):
            return
        with_axes = _with_axes(call, found)
        if with_axes is None or not _has(call, pattern.attributes):
            return
        yield from self._operands(pattern.operands, call.args, with_axes)
        if pattern.operator in _COMMUTATIVE:
            yield from self._operands(pattern.operands, call.args[::-1], with_axes)

    def _operands(self, patterns: tuple[Pattern, ...], atoms: tuple[ir.Atom, ...], found: Found) -> Iterator[Found]:
        if not patterns:
            yield found
            return
        for first in self._atom(patterns[0], atoms[0], found):
            yield from self._operands(patterns[1:], atoms[1:], first)


def _as_product(call: ir.OperatorCall) -> ir.OperatorCall | None:
    """x / 2 as x * 0.5."""
    x, divisor = call.args
    value = number_of(divisor)
    if not value or not isinstance(divisor, ir.Constant):
        return None
    reciprocal = np.full_like(divisor.value, 1 / value)
    reciprocal.flags.writeable = False
    return ir.OperatorCall("multiply", (x, ir.Constant(reciprocal)))


def _with_axes(call: ir.OperatorCall, found: Found) -> Found | None:
    """`found` with the axes of a reduction; None if they differ, or are not kept."""
    attributes = lookup(call.operator).bind(call.attributes)
    if "keepdims" not in attributes:
        return found
    type_ = call.args[0].type  # type: ignore[union-attr]
    if not attributes["keepdims"] or not isinstance(type_, TensorType):
        return None
    axes = axes_of(attributes["axes"], type_.rank)
    return {**found, "axes": axes} if found.get("axes", axes) == axes else None


def _has(call: ir.OperatorCall, attributes: tuple[tuple[str, float], ...]) -> bool:
    bound = lookup(call.operator).bind(call.attributes)
    return all(
        bound[name] is not None and math.isclose(bound[name], value, rel_tol=_TOLERANCE) for name, value in attributes
    )
