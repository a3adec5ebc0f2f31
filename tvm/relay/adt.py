"""Data types of Relay: constructors, patterns and `Match`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...formats.messages.errors import ArgumentError
from .expr import Call, Expr, Var, as_expr
from .ty import GlobalTypeVar, Type, TypeVar


class Constructor(Expr):
    """A constructor of a data type; call it to make a value."""

    def __init__(self, name_hint: str, inputs: Sequence[Type], belong_to: GlobalTypeVar) -> None:
        self.name_hint, self.inputs, self.belong_to = name_hint, tuple(inputs), belong_to
        self.tag = -1  # its place in the type, once that is in a module

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)

    def __repr__(self) -> str:
        return f"Constructor({self.name_hint})"


@dataclass(eq=False)
class TypeData:
    """A data type's definition: `mod[header] = TypeData(header, type_vars, constructors)`."""

    header: GlobalTypeVar
    type_vars: Sequence[TypeVar]
    constructors: Sequence[Constructor]


class Pattern:
    """What a clause fits."""


class PatternWildcard(Pattern):
    """Fits everything."""


@dataclass(eq=False)
class PatternVar(Pattern):
    """Fits everything, and names it."""

    var: Var


class PatternConstructor(Pattern):
    def __init__(self, constructor: Constructor, patterns: Sequence[Pattern] | None = None) -> None:
        self.constructor, self.patterns = constructor, tuple(patterns or ())


class PatternTuple(Pattern):
    def __init__(self, patterns: Sequence[Pattern] | None = None) -> None:
        self.patterns = tuple(patterns or ())


class Clause:
    """A pattern, and what the match is then."""

    def __init__(self, lhs: Pattern, rhs: Any) -> None:
        self.lhs, self.rhs = lhs, as_expr(rhs)


class Match(Expr):
    """The first clause that fits. A value that none fits ends the program with an error."""

    def __init__(self, data: Any, clauses: Sequence[Clause], complete: bool = True) -> None:
        self.data, self.clauses, self.complete = as_expr(data), tuple(clauses), complete
        for clause in self.clauses:
            if not isinstance(clause, Clause):
                raise ArgumentError(f"Match: expected clauses, got a {type(clause).__name__}")


def pattern_vars(pattern: Pattern) -> list[Var]:
    """The variables that a pattern binds, from left to right."""
    if isinstance(pattern, PatternVar):
        return [pattern.var]
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return [variable for part in pattern.patterns for variable in pattern_vars(part)]
    return []
