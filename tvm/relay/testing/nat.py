"""Unary numbers: as expressions, as values, and back to Python's."""

from __future__ import annotations

from typing import Any

from ...runtime.container import ADT
from ..backend.interpreter import ConstructorValue
from ..expr import Expr


def count(prelude: Any, n: ADT) -> int:
    """The number that a value stands for."""
    number = 0
    while len(n.fields):
        n, number = n.fields[0], number + 1
    return number


def make_nat_value(prelude: Any, n: int) -> ADT:
    """The value of a number."""
    _, zero, successor = prelude.mod.get_type("nat")
    make: Any = ConstructorValue
    value = make(zero.tag, [], zero)
    for _ in range(n):
        value = make(successor.tag, [value], successor)
    return value


def make_nat_expr(prelude: Any, n: int) -> Expr:
    """The expression of a number, which must not be negative."""
    assert n >= 0
    _, zero, successor = prelude.mod.get_type("nat")
    value = zero()
    for _ in range(n):
        value = successor(value)
    return value
