"""Walks over expressions, as classes with a method for each kind: `visit_call`, `visit_var`, …"""

from __future__ import annotations

from typing import Any

from . import adt
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var
from .rewrite import rebuilt
from .visit import children

_METHODS = {
    Function: "visit_function",
    Call: "visit_call",
    Let: "visit_let",
    Var: "visit_var",
    GlobalVar: "visit_global_var",
    If: "visit_if",
    Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem",
    Constant: "visit_constant",
    Op: "visit_op",
    adt.Match: "visit_match",
    adt.Constructor: "visit_constructor",
}


class ExprFunctor:
    """`visit` calls the method of an expression's kind, once for each expression."""

    def __init__(self) -> None:
        self.memo_map: dict[Expr, Any] = {}

    def visit(self, expr: Expr) -> Any:
        if expr not in self.memo_map:
            method = getattr(self, _METHODS[type(expr)], None)
            if method is None:
                raise NotImplementedError(f"{type(self).__name__} has no {_METHODS[type(expr)]}")
            self.memo_map[expr] = method(expr)
        return self.memo_map[expr]


class ExprVisitor(ExprFunctor):
    """Sees every expression; override the methods of those that matter."""

    def _children(self, expr: Expr) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, (Op, adt.Constructor)):
            self.visit(expr.op)
        for child in children(expr):
            self.visit(child)

    visit_function = visit_call = visit_let = visit_var = visit_global_var = visit_if = _children
    visit_tuple = visit_tuple_getitem = visit_constant = visit_op = visit_match = visit_constructor = _children


class ExprMutator(ExprFunctor):
    """Builds every expression anew of what its parts have become."""

    def _rebuilt(self, expr: Expr) -> Expr:
        return rebuilt(expr, [self.visit(child) for child in children(expr)])

    visit_function = visit_call = visit_let = visit_var = visit_global_var = visit_if = _rebuilt
    visit_tuple = visit_tuple_getitem = visit_constant = visit_op = visit_match = visit_constructor = _rebuilt
