"""Loops, as functions that call themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .expr import Call, Expr, Function, If, Let, Tuple, Var, var
from .scope_builder import ScopeBuilder
from .visit import children, postorder


def while_loop(cond: Callable[..., Any], loop_vars: Sequence[Any], loop_bodies: Callable[..., Any]) -> Let:
    """A function of the variables: while `cond(*variables)` they become `loop_bodies(*variables)`; the tuple of their
    last values."""
    name = Var("while_loop")
    types = ScopeBuilder()
    fresh = [
        var(each.name_hint if isinstance(each, Var) else f"arg{place}", types.type_of(each))
        for place, each in enumerate(loop_vars)
    ]
    body = If(cond(*fresh), name(*loop_bodies(*fresh)), Tuple(fresh))
    return Let(name, Function(fresh, body), name)


@dataclass(frozen=True)
class WhileLoop:
    """`let %f = fn (params) { if (condition) { … %f(…) } else { (params) } }; %f(initial)`, the parts."""

    params: Sequence[Var]
    initial: Sequence[Expr]
    condition: Expr
    following: Expr  # lets, then the call

    def let(self, name: Var) -> Let:
        """The expression."""
        body = If(self.condition, self.following, Tuple(self.params))
        return Let(name, Function(self.params, body), Call(name, self.initial))


def while_loop_of(let: Let) -> WhileLoop | None:
    """The loop that an expression is, whose condition shares nothing with what is computed in a round; None for any other."""
    function, entry = let.value, let.body
    if not isinstance(function, Function) or not isinstance(entry, Call) or entry.op is not let.var:
        return None
    body, count = function.body, len(function.params)
    if not isinstance(body, If) or not isinstance(body.false_branch, Tuple) or len(entry.args) != count:
        return None
    again, computed = body.true_branch, []
    while isinstance(again, Let):
        computed.append(again.value)
        again = again.body
    if not isinstance(again, Call) or again.op is not let.var or len(again.args) != count:
        return None
    is_typed = all(param.type_annotation is not None for param in function.params)
    if not is_typed or tuple(body.false_branch.fields) != function.params:
        return None
    tested, rounds = set(postorder(body.cond)), set(postorder(Tuple([*computed, *again.args])))
    if any(let.var in several for several in (tested, rounds, set(postorder(Tuple(entry.args))))):
        return None
    bound: set[Expr] = set(function.params)
    for each in postorder(body.cond):
        if not bound.isdisjoint(children(each)):
            bound.add(each)
    shares = any(children(each) for each in bound & tested & rounds)
    return None if shares else WhileLoop(function.params, entry.args, body.cond, body.true_branch)
