"""Walks over expressions that use no stack of Python's: programs may be as deep as they like."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from . import adt
from .expr import Call, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, Var

Walk = Generator[Any, Any, Any]


def run(walk: Walk) -> Any:
    """What a generator returns that yields generators whose results it wants: recursion without a stack.

    An error ends the whole: no generator on the way sees it, so that an error in the depth costs no more than another.
    """
    stack, value = [walk], None
    while stack:
        try:
            following = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            stack.append(following)
            value = None
    return value


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that lie directly in one."""
    if isinstance(expr, Call):
        callee = () if isinstance(expr.op, (Op, adt.Constructor)) else (expr.op,)
        return (*callee, *expr.args)
    if isinstance(expr, Function):
        return (*expr.params, expr.body)
    if isinstance(expr, Let):
        return (expr.var, expr.value, expr.body)
    if isinstance(expr, If):
        return (expr.cond, expr.true_branch, expr.false_branch)
    if isinstance(expr, Tuple):
        return expr.fields
    if isinstance(expr, TupleGetItem):
        return (expr.tuple_value,)
    if isinstance(expr, adt.Match):
        return (expr.data, *(clause.rhs for clause in expr.clauses))
    return ()


def postorder(root: Expr) -> Iterator[Expr]:
    """The expressions that `root` is made of, itself the last; each once, after those in it."""
    seen, stack = {id(root)}, [(root, iter(children(root)))]
    while stack:
        expr, rest = stack[-1]
        child = next((child for child in rest if id(child) not in seen), None)
        if child is None:
            stack.pop()
            yield expr
        else:
            seen.add(id(child))
            stack.append((child, iter(children(child))))


def bound_vars(root: Expr) -> list[Var]:
    """The variables that something in `root` binds: functions, lets and patterns."""
    found: dict[Var, None] = {}
    for expr in _in_order(root):
        if isinstance(expr, Function):
            found.update(dict.fromkeys(expr.params))
        elif isinstance(expr, Let):
            found[expr.var] = None
        elif isinstance(expr, adt.Match):
            for clause in expr.clauses:
                found.update(dict.fromkeys(adt.pattern_vars(clause.lhs)))
    return list(found)


def all_vars(root: Expr) -> list[Var]:
    """The variables in `root`, in the order in which they come."""
    return [expr for expr in _in_order(root) if isinstance(expr, Var)]


def preorder(root: Expr) -> Iterator[Expr]:
    """The expressions that `root` is made of, each once, before those in it."""
    seen, stack = {id(root)}, [root]
    while stack:
        expr = stack.pop()
        yield expr
        for child in reversed(children(expr)):
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)


def free_vars(root: Expr) -> list[Var]:
    """The variables that `root` uses and does not bind, in the order in which they come."""
    bound = set(bound_vars(root))
    return [variable for variable in all_vars(root) if variable not in bound]


def _in_order(root: Expr) -> Iterator[Expr]:
    """What `root` is made of, each once, in the order of the text: an expression before its parts, a clause's variables before
    what the match is then."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        yield expr
        if isinstance(expr, adt.Match):
            for clause in reversed(expr.clauses):
                stack += [clause.rhs, *reversed(adt.pattern_vars(clause.lhs))]
            stack.append(expr.data)
        else:
            stack += reversed(children(expr))


def global_vars(root: Expr) -> list[str]:
    """The names of the functions that `root` refers to."""
    return list(dict.fromkeys(expr.name_hint for expr in postorder(root) if isinstance(expr, GlobalVar)))
