"""Expressions with parts replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import adt
from .expr import Call, Expr, Function, If, Let, Op, Tuple, TupleGetItem, Var, as_expr
from .visit import children, postorder


def rebuilt(expr: Expr, parts: list[Expr]) -> Expr:
    """The expression with other expressions in it; `parts` as `children` gives them."""
    if all(new is old for new, old in zip(parts, children(expr), strict=True)):
        return expr
    made = _rebuilt(expr, parts)
    made.place, made.span = expr.place, expr.span
    return made


def _rebuilt(expr: Expr, parts: list[Expr]) -> Expr:
    if isinstance(expr, Call):
        if isinstance(expr.op, (Op, adt.Constructor)):
            return Call(expr.op, parts, expr.attrs, expr.type_args, names=expr.names)
        return Call(parts[0], parts[1:], expr.attrs, expr.type_args)
    if isinstance(expr, Function):
        return Function(parts[:-1], parts[-1], expr.ret_type, expr.type_params, expr.attrs)  # type: ignore[arg-type]
    if isinstance(expr, Let):
        return Let(*parts)  # type: ignore[arg-type]
    if isinstance(expr, If):
        return If(*parts)
    if isinstance(expr, Tuple):
        return Tuple(parts)
    if isinstance(expr, TupleGetItem):
        return TupleGetItem(parts[0], expr.index)
    assert isinstance(expr, adt.Match)
    clauses = [adt.Clause(clause.lhs, part) for clause, part in zip(expr.clauses, parts[1:], strict=True)]
    return adt.Match(parts[0], clauses, expr.complete)


def substitute(root: Expr, values: Mapping[Var, Expr]) -> Expr:
    """`root` with variables replaced. Functions lose the parameters that are."""
    made: dict[int, Any] = {id(variable): value for variable, value in values.items()}
    for expr in postorder(root):
        if id(expr) in made:
            continue
        if isinstance(expr, Function) and any(param in values for param in expr.params):
            params = [param for param in expr.params if param not in values]
            made[id(expr)] = Function(params, made[id(expr.body)], expr.ret_type, expr.type_params, expr.attrs)
        else:
            made[id(expr)] = rebuilt(expr, [made[id(child)] for child in children(expr)])
    return made[id(root)]


def bind(expr: Expr, binds: Mapping[Var, Any]) -> Expr:
    """The expression with free variables replaced."""
    return substitute(expr, {variable: as_expr(value) for variable, value in binds.items()})
