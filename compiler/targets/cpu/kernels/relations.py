"""Run-time checks of sizes: what operators require and inference could not prove. Kernels check before they work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....formats import dims, limits
from .....formats.dims import Atom, Dim, SymbolicDim, Variable
from .....formats.primitive import PrimitiveDefinition
from ....operators.movement import unfilled
from ....operators.shapes import is_nonnegative
from ....operators.table import bound_attributes

WORD = 1 << 62  # one bit below the limit of a word

_Shapes = Sequence[tuple[Any, ...]]
_Rule = Callable[[_Shapes, dict[str, Any]], Iterable[Dim]]


@dataclass(frozen=True)
class Relation:
    """The relation that a dimension is 0, or that it is not negative."""

    dim: SymbolicDim
    is_zero: bool

    @property
    def failure(self) -> str:
        """The condition, of the dimension's variable, on which a call fails."""
        return "!= 0" if self.is_zero else "< 0"


def _groups(shapes: _Shapes, attributes: dict[str, Any]) -> list[Dim]:
    return [dims.modulo(shapes[0][1], attributes["groups"])]


def _conv(shapes: _Shapes, attributes: dict[str, Any]) -> list[Dim]:
    return [dims.modulo(channels, attributes["groups"]) for channels in (shapes[0][1], shapes[1][0])]


def _parts(name: str) -> _Rule:
    return lambda shapes, attributes: [dims.modulo(shapes[0][1], dims.product(attributes[name]))]


def _pads(shapes: _Shapes, attributes: dict[str, Any]) -> Iterable[Dim]:
    return attributes["pads"] or ()


def _put_slice(shapes: _Shapes, attributes: dict[str, Any]) -> Iterable[Dim]:
    start, (length, count) = attributes["start"], (shape[attributes["axis"]] for shape in shapes)
    return start, unfilled(length, count, start)


# operator → what must be 0, from the shapes of the operands and the attributes
_ZERO: dict[str, _Rule] = {
    "group_normalization": _groups,
    "conv": _conv,
    "depth_to_space": _parts("blocks"),
    "col2im": _parts("kernel"),
}

# operator → what must not be negative. `pad` looks itself
_NOT_NEGATIVE: dict[str, _Rule] = {
    **dict.fromkeys(("max_pool", "average_pool", "conv", "conv_blocked", "conv_planar", "conv_to_few"), _pads),
    **dict.fromkeys(("conv_integer_blocked", "conv_int8_blocked", "conv_bfloat16_blocked", "conv_depthwise"), _pads),
    "put_slice": _put_slice,
}


# ---- what does not fit into a word ----


def unbounded(definition: PrimitiveDefinition) -> list[SymbolicDim]:
    """Operands of divisions, remainders, minima and maxima among the dimensions that may not fit into a word. Sums and products
    that wrap around are right in the end; the results of these operations are not."""
    attributes = [value for node in definition.nodes for _, value in node.attributes]
    found: dict[SymbolicDim, None] = {}

    def visit(value: Any) -> None:
        if isinstance(value, tuple):
            for each in value:
                visit(each)
        elif isinstance(value, SymbolicDim):
            for operand in (each for monomial, _ in value.terms for atom in monomial for each in _operands(atom)):
                visit(operand)
                if isinstance(operand, SymbolicDim) and _bound(operand) >= WORD:
                    found[operand] = None

    visit(tuple(type_.shape for type_ in definition.values))
    visit(tuple(attributes))
    return list(found)


def _operands(atom: Atom) -> tuple[Dim, ...]:
    return () if isinstance(atom, Variable) else (atom.left, atom.right)


def _bound(dim: Dim) -> int:
    """An upper bound of the dimension's absolute value for all sizes of its variables."""
    if isinstance(dim, int):
        return abs(dim)
    return sum(abs(factor) * math.prod(map(_atom_bound, monomial)) for monomial, factor in dim.terms)


def _atom_bound(atom: Atom) -> int:
    return limits.DIMENSION if isinstance(atom, Variable) else max(map(_bound, _operands(atom)))


def magnitude(dim: Dim, names: Mapping[str, str]) -> str:
    """The text of a float64 no smaller than the dimension's absolute value; `names` are those of the variables."""
    if isinstance(dim, int):
        return f"{abs(float(dim))}"
    terms = (
        " * ".join([f"{abs(float(factor))}", *(_atom_magnitude(atom, names) for atom in monomial)])
        for monomial, factor in dim.terms
    )
    return " + ".join(terms)


def _atom_magnitude(atom: Atom, names: Mapping[str, str]) -> str:
    if isinstance(atom, Variable):
        return f"convert_float64({names[atom.name]})"
    return f"({' + '.join(magnitude(operand, names) for operand in _operands(atom))})"


# ---- what does not fit each other ----


def relations(definition: PrimitiveDefinition) -> Iterator[Relation]:
    """Relations that must hold in every call of the definition, and that its types do not imply."""
    values = definition.values
    for node in definition.nodes:
        for is_zero, rules in ((True, _ZERO), (False, _NOT_NEGATIVE)):
            if node.operator in rules:
                shapes = [values[number].shape for number in node.inputs]
                for dim in rules[node.operator](shapes, bound_attributes(node)):
                    if isinstance(dim, SymbolicDim) and (is_zero or not is_nonnegative(dim)):
                        yield Relation(dim, is_zero)
