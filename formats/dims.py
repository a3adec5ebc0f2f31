"""Symbolic dimensions: integers or integer expressions over named variables, in one canonical form.

A `Dim` is an `int` or a `SymbolicDim`, a polynomial with integer coefficients over *atoms*: variables, and the
indivisible results of floor division, remainder, minimum and maximum. Two expressions that are equal as
polynomials are equal (`==`) as values: `(n + 1) * 2 == 2 * n + 2`. The same form serves the types of the IR, the
signatures in an executable, and the verifier, whose variables are the values of integer registers.
"""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import limits
from .messages.calling import Suggesting, told
from .messages.errors import InferenceError, LimitError, ParseError
from .messages.names import NAME


@dataclass(frozen=True)
class Variable:
    """An atom: a named, non-negative integer known at run time."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Opaque:
    """An atom: `operator` (//, %, min, max) of two dimensions that do not simplify."""

    operator: str
    left: Dim
    right: Dim

    def __str__(self) -> str:
        if self.operator in ("min", "max"):
            return f"{self.operator}({self.left}, {self.right})"
        left, right = _parenthesized(self.left, product=True), _parenthesized(self.right, product=False)
        return f"({left} {self.operator} {right})"


def _parenthesized(dim: Dim, product: bool) -> str:
    """An operand of // or %, in parentheses unless it is an atom, or a product where one may stand."""
    bare = isinstance(dim, int) or (len(dim.terms) == 1 and (product or is_variable(dim)))
    return str(dim) if bare else f"({dim})"


Atom = Union[Variable, Opaque]
Monomial = tuple[Atom, ...]  # a product, atoms sorted by their text; () is the constant 1


def _arithmetic(sign: str, compute: Callable[[SymbolicDim, Dim], Dim]) -> Callable[[SymbolicDim, Any], Any]:
    """An operator on two sizes. What else computes with sizes, as expressions do, says so itself."""

    def operator(self: SymbolicDim, other: Any) -> Any:
        if isinstance(other, (int, SymbolicDim, np.integer)):
            return compute(self, other if isinstance(other, SymbolicDim) else int(other))
        return _not_a_size(self, sign, other)

    return operator


def _of_a_run(sign: str, function: str) -> Callable[[SymbolicDim, Any], Any]:
    """An operator whose result is not a size: it is known only at run time, and an operator of the program computes it."""

    def operator(self: SymbolicDim, other: Any) -> Any:
        if isinstance(other, (int, float, SymbolicDim, np.generic)):
            raise InferenceError(
                f"{sign} of {self}, a size known only at run time: {function} takes it as an operand, an int64 scalar"
            )
        return _not_a_size(self, sign, other)

    return operator


def _not_a_size(dim: SymbolicDim, sign: str, other: object) -> Any:
    if isinstance(other, Suggesting):  # an expression
        return NotImplemented
    raise InferenceError(
        f"{sign} of {dim}, a size known only at run time, and {told(other)}: sizes compute with integers and sizes; "
        "as an operand of an operator a size is a number like others"
    )


@dataclass(frozen=True, eq=True)
class SymbolicDim:
    """A polynomial that is not a constant: ((monomial, coefficient), …), sorted, no coefficient 0."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def atoms(self) -> int:
        """How many atoms it has written out, those inside of atoms too: the length of its text, about."""
        inner = (atom for monomial, _ in self.terms for atom in monomial)
        return sum(1 if isinstance(atom, Variable) else 1 + _atoms(atom.left) + _atoms(atom.right) for atom in inner)

    @property
    def name(self) -> str:
        """Of a variable, its name. Raises AttributeError for another dimension."""
        if not is_variable(self):
            raise AttributeError(f"the dimension {self} is not a variable, and has no name")
        return str(self)

    __add__ = __radd__ = _arithmetic("+", lambda self, other: add(self, other))
    __mul__ = __rmul__ = _arithmetic("*", lambda self, other: multiply(self, other))
    __sub__ = _arithmetic("-", lambda self, other: add(self, multiply(other, -1)))
    __rsub__ = _arithmetic("-", lambda self, other: add(other, multiply(self, -1)))
    __floordiv__ = _arithmetic("//", lambda self, other: floordiv(self, other))
    __rfloordiv__ = _arithmetic("//", lambda self, other: floordiv(other, self))
    __mod__ = _arithmetic("%", lambda self, other: modulo(self, other))
    __rmod__ = _arithmetic("%", lambda self, other: modulo(other, self))
    __truediv__ = __rtruediv__ = _of_a_run("/", "op.divide")
    __pow__ = __rpow__ = _of_a_run("**", "op.pow")
    __lt__, __le__ = _of_a_run("<", "op.less"), _of_a_run("<=", "op.less_equal")
    __gt__, __ge__ = _of_a_run(">", "op.greater"), _of_a_run(">=", "op.greater_equal")

    def __neg__(self) -> Dim:
        return multiply(self, -1)

    if not TYPE_CHECKING:  # what raises always is not a number to a type checker

        def __index__(self) -> int:
            raise InferenceError(
                f"the size {self._text} is known when the program runs; here it is a symbol, not an integer"
            )

        __int__ = __float__ = __index__

    @cached_property
    def _text(self) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            factors = [str(atom) for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else "+" if parts else ""
            parts.append(f"{sign} {'*'.join(factors)}" if parts else sign + "*".join(factors))
        return " ".join(parts)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self._text!r})"


Dim = Union[int, SymbolicDim]


# ---- how much arithmetic may be done ----


class _Steps(threading.local):
    left: float = math.inf


_steps = _Steps()


@contextlib.contextmanager
def bounded(steps: float) -> Iterator[None]:
    """Within this, arithmetic of this thread takes at most `steps` steps, of some microseconds each: one for each term that an
    operation makes or reads. Raises LimitError where it would take more; an outer bound holds too."""
    before = _steps.left
    _steps.left = given = min(steps, before)
    try:
        yield
    finally:
        _steps.left = before - (given - _steps.left) if before < math.inf else before


def _spend(steps: int) -> None:
    if steps > limits.DIM_PRODUCTS:
        raise LimitError(f"an operation on dimensions of {steps} terms; at most {limits.DIM_PRODUCTS} are computed")
    _steps.left -= steps
    if _steps.left < 0:
        raise LimitError(
            "arithmetic on the symbolic dimensions takes more steps than are allowed; use simpler expressions"
        )


def _count(dim: Dim) -> int:
    return len(dim.terms) if isinstance(dim, SymbolicDim) else 1


def variable(name: str) -> SymbolicDim:
    """The dimension that the variable `name` stands for."""
    return SymbolicDim((((Variable(name),), 1),))


def _atoms(dim: Dim) -> int:
    return dim.atoms if isinstance(dim, SymbolicDim) else 1


def _terms(dim: Dim) -> dict[Monomial, int]:
    if isinstance(dim, SymbolicDim):
        return dict(dim.terms)
    return {(): int(dim)} if dim else {}


def _from_terms(terms: dict[Monomial, int]) -> Dim:
    kept = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    if not kept:
        return 0
    if kept.keys() == {()}:
        return kept[()]
    # higher degree first, the constant last: "2*n + 1"
    key: Callable = lambda item: (-len(item[0]), tuple(str(atom) for atom in item[0]))  # noqa: E731
    return SymbolicDim(tuple(sorted(kept.items(), key=key)))


def add(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    _spend(_count(left) + _count(right))
    terms = _terms(left)
    for monomial, coefficient in _terms(right).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _from_terms(terms)


def multiply(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    _spend(_count(left) * _count(right))
    terms: dict[Monomial, int] = {}
    for a, m in _terms(left).items():
        for b, n in _terms(right).items():
            if len(a) + len(b) > limits.DIM_FACTORS:
                raise LimitError(
                    f"a product of {len(a) + len(b)} dimensions; at most {limits.DIM_FACTORS} are computed"
                )
            product = tuple(sorted(a + b, key=str))
            terms[product] = terms.get(product, 0) + m * n
    return _from_terms(terms)


def product(dims: Iterable[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = multiply(result, dim)
    return result


def _opaque(operator: str, left: Dim, right: Dim) -> Dim:
    atoms = _atoms(left) + _atoms(right)
    if atoms > limits.DIM_ATOMS:  # parts are shared in memory, so it doubles with each operation
        raise LimitError(f"a dimension of {atoms} parts; at most {limits.DIM_ATOMS} are computed")
    return SymbolicDim((((Opaque(operator, left, right),), 1),))


def _divide_exactly(left: Dim, right: Dim) -> Dim | None:
    """left / right where that is a polynomial with integer coefficients, else None.

    Long division by leading terms: terms are sorted by degree, then by their atoms, an order that products respect.
    """
    (leading, coefficient), *others = _terms(right).items()
    quotient: dict[Monomial, int] = {}
    rest = _terms(left)
    while rest:
        factors, multiple = next(iter(rest.items()))
        monomial = _without(factors, leading)
        if monomial is None or multiple % coefficient:
            return None
        quotient[monomial] = multiple // coefficient
        del rest[factors]
        if others:
            _spend(len(rest) + len(others))
            subtracted = multiply(_from_terms({monomial: -quotient[monomial]}), _from_terms(dict(others)))
            rest = _terms(add(_from_terms(rest), subtracted))
    return _from_terms(quotient)


def _without(factors: Monomial, divisor: Monomial) -> Monomial | None:
    """The factors that are left of a product, or None where it is not divisible."""
    rest = list(factors)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def content(dim: SymbolicDim) -> tuple[int, Dim]:
    """The greatest integer that divides all coefficients, and the dimension divided by it."""
    factor = math.gcd(*(coefficient for _, coefficient in dim.terms))
    return factor, _from_terms({monomial: coefficient // factor for monomial, coefficient in dim.terms})


def floordiv(left: Dim, right: Dim) -> Dim:
    """⌊left / right⌋. Division by the constant 0 raises ZeroDivisionError; variables are taken to be non-zero divisors."""
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    if right == 0:
        raise ZeroDivisionError("a symbolic dimension is divided by 0")
    if left == right:
        return 1
    exact = _divide_exactly(left, right)
    return exact if exact is not None else _opaque("//", left, right)


def modulo(left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return left % right
    if right == 0:
        raise ZeroDivisionError("a symbolic dimension is divided by 0")
    return 0 if _divide_exactly(left, right) is not None else _opaque("%", left, right)


def minimum(left: Dim, right: Dim) -> Dim:
    difference = add(left, multiply(right, -1))
    if isinstance(difference, int):
        return left if difference <= 0 else right
    return _opaque("min", *sorted((left, right), key=str))


def maximum(left: Dim, right: Dim) -> Dim:
    difference = add(left, multiply(right, -1))
    if isinstance(difference, int):
        return left if difference >= 0 else right
    return _opaque("max", *sorted((left, right), key=str))


def ceildiv(left: Dim, right: Dim) -> Dim:
    """⌈left / right⌉."""
    return floordiv(add(left, add(right, -1)), right)


OPERATORS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": add,
    "*": multiply,
    "//": floordiv,
    "%": modulo,
    "min": minimum,
    "max": maximum,
}


def variables(dim: Dim) -> list[str]:
    """The names of the variables in `dim`, each once, in order of appearance."""
    found: dict[str, None] = {}

    def visit(dim: Dim) -> None:
        if isinstance(dim, SymbolicDim):
            for monomial, _ in dim.terms:
                for atom in monomial:
                    if isinstance(atom, Variable):
                        found[atom.name] = None
                    else:
                        visit(atom.left)
                        visit(atom.right)

    visit(dim)
    return list(found)


def substitute(
    dim: Dim, values: Mapping[str, Dim], operators: Mapping[str, Callable[[Dim, Dim], Dim]] = OPERATORS
) -> Dim:
    """`dim` with variables replaced; those that `values` does not name stay. `operators` compute what is made of them."""
    if not isinstance(dim, SymbolicDim):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for atom in monomial:
            if isinstance(atom, Variable):
                factor = values.get(atom.name)
                factor = variable(atom.name) if factor is None else factor
            else:
                left, right = (substitute(each, values, operators) for each in (atom.left, atom.right))
                factor = operators[atom.operator](left, right)
            term = multiply(term, factor)
        total = add(total, term)
    return total


def asks_a_run(shape: Iterable[Dim], other: Iterable[Dim]) -> bool:
    """Whether equality of two shapes of one rank is decided at run time. Numbers are equal, or never equal, which the inference
    of the operator that takes them says."""
    pairs = zip(shape, other, strict=True)
    return any(a != b and not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)


def is_variable(dim: Dim) -> bool:
    """True for a dimension that is one variable and nothing else."""
    return (
        isinstance(dim, SymbolicDim)
        and len(dim.terms) == 1
        and dim.terms[0][1] == 1
        and len(dim.terms[0][0]) == 1
        and isinstance(dim.terms[0][0][0], Variable)
    )


@dataclass(frozen=True)
class Solution:
    """`variable` is (size - rest) / coefficient, where `size` is that of dimension number `index`."""

    variable: SymbolicDim
    index: int
    coefficient: int
    rest: Dim


def solve(shape: Sequence[object], known: Iterable[str]) -> list[Solution]:
    """How the variables that are not known follow from sizes of the dimensions `shape`, each from what is known and those
    before it: variables that stand alone first, then those that a dimension is linear in. What does not follow is left out."""
    found, names = list[Solution](), set(known)
    symbolic = [(index, dim) for index, dim in enumerate(shape) if isinstance(dim, SymbolicDim)]
    pending = sorted(symbolic, key=lambda pair: not is_variable(pair[1]))
    missing = [set(variables(dim)) - names for _, dim in pending]
    users: dict[str, list[int]] = {}
    for number, absent in enumerate(missing):
        for name in absent:
            users.setdefault(name, []).append(number)
    ready = [number for number, absent in enumerate(missing) if len(absent) == 1]  # a heap: in order, therefore
    while ready:
        number = heappop(ready)
        if not missing[number]:  # it followed from another one
            continue
        (name,) = missing[number]
        solution = _solution(*pending[number], name)
        if solution is None:
            continue
        found.append(solution)
        for user in users[name]:
            missing[user].remove(name)
            if len(missing[user]) == 1:
                heappush(ready, user)
    return found


def _solution(index: int, dim: SymbolicDim, missing: str) -> Solution | None:
    coefficient = dict(dim.terms).get((Variable(missing),), 0)
    rest = add(dim, multiply(variable(missing), -coefficient))
    if not coefficient or missing in variables(rest):
        return None
    return Solution(variable(missing), index, coefficient, rest)


_TOKEN = re.compile(rf"\s*(?:[0-9]+(?![\w.])|{NAME}|//|[-+*%(),])")
_NAME = re.compile(NAME)


def named(name: object) -> SymbolicDim:
    """The variable of a name that a user or a file gives. Raises ParseError for text that is not a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParseError(
            f"{str(name)[:40]!r} is not the name of a dimension: expected a letter or _, then letters, digits, _ and ."
        )
    if len(name) > limits.DIM_NAME:
        raise ParseError(f"a name of {len(name)} characters, {name[:40]!r} …; at most {limits.DIM_NAME} are allowed")
    return variable(name)


def parse(text: str) -> Dim:
    """The inverse of `str`; texts are users', models' and files'. Raises ParseError; nesting and the length of names are bounded
    by `formats/limits.py`."""
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) > 16 * limits.DIM_TERMS:
            raise ParseError(f"{text[:80]!r} is not a dimension", line=1, column=position + 1)
        tokens.append(match.group().strip())
        position = match.end()
    tokens.append("")
    at = 0

    def fail() -> ParseError:
        return ParseError(f"{text[:80]!r} is not a dimension (at {tokens[at] or 'its end'!r})")

    def take(expected: str | None = None) -> str:
        nonlocal at
        token = tokens[at]
        if expected is not None and token != expected:
            raise fail()
        at += bool(token)  # never past the end, which is ""
        return token

    def atom(depth: int) -> Dim:
        if depth > limits.DIM_NESTING:
            raise ParseError(f"{text[:80]!r} nests deeper than {limits.DIM_NESTING}")
        token = take()
        if token.isdecimal() and len(token) <= 19:
            return int(token)
        if token == "(":
            inner = summation(depth + 1)
            take(")")
            return inner
        if token == "-":
            return multiply(atom(depth + 1), -1)
        if token in ("min", "max") and tokens[at] == "(":
            take("(")
            left = summation(depth + 1)
            take(",")
            right = summation(depth + 1)
            take(")")
            return OPERATORS[token](left, right)
        if _NAME.match(token):
            return named(token)
        raise fail()

    def term(depth: int) -> Dim:
        result = atom(depth)
        while tokens[at] in ("*", "//", "%"):
            operator = take()
            try:
                result = OPERATORS[operator](result, atom(depth))
            except ZeroDivisionError:
                raise fail() from None
            _check_size(result)
        return result

    def summation(depth: int) -> Dim:
        first = term(depth)
        if tokens[at] not in ("+", "-"):
            return first
        total = _terms(first)
        while tokens[at] in ("+", "-"):
            sign = 1 if take() == "+" else -1
            for monomial, coefficient in _terms(term(depth)).items():
                total[monomial] = total.get(monomial, 0) + sign * coefficient
        result = _from_terms(total)
        _check_size(result)
        return result

    result = summation(0)
    take("")
    return result


def has_large_coefficient(dim: Dim) -> bool:
    """Whether a coefficient is larger than those of a file may be."""
    return any(abs(coefficient) > limits.DIMENSION for coefficient in _terms(dim).values())


def _check_size(dim: Dim) -> None:
    terms = _terms(dim)
    if len(terms) > limits.DIM_TERMS or any(len(monomial) > limits.RANK for monomial in terms):
        raise ParseError(f"a dimension of more than {limits.DIM_TERMS} terms or {limits.RANK} factors")
    if has_large_coefficient(dim):
        raise ParseError(f"a dimension's coefficient exceeds {limits.DIMENSION}")


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The integer that `dim` is for the given variables. Raises KeyError for a variable without a value."""
    result = substitute(dim, values)
    if isinstance(result, SymbolicDim):
        raise KeyError(variables(result)[0])
    return result


def element_count(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a tensor of that shape."""
    shape = tuple(shape)
    if all(isinstance(dim, int) for dim in shape):
        return math.prod(shape)
    return product(shape)
