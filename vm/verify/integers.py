"""The verifier's integers: what is known of integer registers and dimensions without running the program.

A value is an `int` or a polynomial (`formats/dims.py`) over named unknowns. Two registers with equal polynomials hold
equal integers in every run. The machine's integers do not wrap around (an instruction whose result does not fit fails),
so the laws of polynomials hold. // % min max and comparisons make new unknowns, the same one for the same operands.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim, Variable
from .work import Work

TERMS = 32  # of a polynomial; a larger one is forgotten and becomes an unknown
FACTORS = 8  # of a monomial
NAME = 48  # characters of an unknown's name that still shows how it came about
INTEGERS = range(-(1 << 63), 1 << 63)  # what a register can hold


class Values:
    """Arithmetic on the values of one function. `sizes` are the unknowns that are dimensions of tensors."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._names: dict[tuple[str, Dim, Dim], SymbolicDim] = {}
        self.sizes: set[Dim] = set()

    def unknown(self, name: str) -> SymbolicDim:
        """An unknown of which nothing is known."""
        return dims.variable(name)

    def size(self, name: str) -> SymbolicDim:
        """An unknown that is a tensor's dimension: 0 … limits.DIMENSION."""
        value = dims.variable(name)
        self.sizes.add(value)
        return value

    def apply(self, operator: str, left: Dim, right: Dim) -> Dim:
        """`left operator right`, for the operators + - * // % min max == <."""
        self._work.spend(2)
        if operator == "-":
            operator, right = "+", self.apply("*", right, -1)
        count = _terms(left) * _terms(right) if operator == "*" else _terms(left) + _terms(right)
        self._work.spend(5 * count)
        if count <= 2 * TERMS:
            result = _compute(operator, left, right)
            if result is not None and _is_small(result):
                return result
        return self._unknown(operator, left, right)

    def substitute(self, dim: Dim, values: Mapping[str, Dim]) -> Dim:
        """`dim`, of a definition, with its variables replaced. Raises KeyError for one that `values` lacks."""
        if isinstance(dim, int):
            return dim
        self._work.spend(len(dim.terms))
        total: Dim = 0
        for monomial, coefficient in dim.terms:
            term: Dim = coefficient
            for atom in monomial:
                if isinstance(atom, Variable):
                    factor = values[atom.name]
                else:
                    operands = self.substitute(atom.left, values), self.substitute(atom.right, values)
                    factor = self.apply(atom.operator, *operands)
                term = factor if term == 1 else self.apply("*", term, factor)
            total = term if total == 0 else self.apply("+", total, term)
        return total

    def _unknown(self, operator: str, left: Dim, right: Dim) -> SymbolicDim:
        """The unknown that stands for this operation on these operands."""
        if operator in ("min", "max", "=="):
            left, right = sorted((left, right), key=str)
        key = (operator, left, right)
        value = self._names.get(key)
        if value is None:
            self._work.spend(5 * (_terms(left) + _terms(right)))
            name = f"({left} {operator} {right})"
            value = self._names[key] = dims.variable(name if len(name) <= NAME else f"value{len(self._names)}")
        return value


def _compute(operator: str, left: Dim, right: Dim) -> Dim | None:
    """The result as a polynomial, or None if it is none."""
    if operator in ("+", "*"):
        return dims.OPERATORS[operator](left, right)
    if operator in ("==", "<"):
        if not (isinstance(left, int) and isinstance(right, int)):
            return None
        return int(left == right if operator == "==" else left < right)
    if operator in ("//", "%") and not (isinstance(right, int) and right):  # formats/dims.py takes a // a for 1
        return None
    result = dims.OPERATORS[operator](left, right)
    if isinstance(result, SymbolicDim) and not all(isinstance(atom, Variable) for m, _ in result.terms for atom in m):
        return None
    return result


def _is_small(value: Dim) -> bool:
    if isinstance(value, int):
        return value in INTEGERS
    return len(value.terms) <= TERMS and all(len(m) <= FACTORS and c in INTEGERS for m, c in value.terms)


def _terms(value: Dim) -> int:
    return len(value.terms) if isinstance(value, SymbolicDim) else 1
