"""Walks Relax's syntax by the `parts` of its classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .expr import Binding, BindingBlock, Constant, Expr, Function, GlobalVar, Op, SeqExpr, Var

_SYNTAX = (Expr, Binding, BindingBlock)


def children(node: Any) -> Iterator[Any]:
    """The expressions, bindings and blocks that a piece of syntax is made of, in order."""
    for name in node.parts if isinstance(node, _SYNTAX) else ():
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) and not isinstance(value, Expr) else (value,):
            if isinstance(each, _SYNTAX):
                yield each


def walk(node: Any) -> Iterator[Any]:
    """A piece of syntax and all in it, in the order of its text."""
    yield node
    for each in children(node):
        yield from walk(each)


def post_order_visit(expr: Any, fvisit: Callable[[Any], Any]) -> None:
    """Calls a function for each expression, after those in it."""
    for each in children(expr):
        post_order_visit(each, fvisit)
    if isinstance(expr, Expr):
        fvisit(expr)


def bindings_of(body: SeqExpr) -> Iterator[Binding]:
    """The bindings of a body's blocks."""
    for block in body.blocks:
        yield from block.bindings


def replaced(node: Any, change: Callable[[Any], Any]) -> Any:
    """The syntax with what `change` gives for an expression in its place, None: made anew of its parts."""
    if not isinstance(node, _SYNTAX):
        if type(node) is not tuple:
            return node
        parts = tuple(replaced(each, change) for each in node)
        return node if all(new is each for new, each in zip(parts, node, strict=True)) else parts
    found = change(node) if isinstance(node, Expr) else None
    if found is not None:
        return found
    if isinstance(node, (Var, GlobalVar, Op, Constant)):
        return node
    made = [replaced(getattr(node, name), change) for name in node.parts]
    if all(
        new is getattr(node, name) or new == () == getattr(node, name)
        for new, name in zip(made, node.parts, strict=True)
    ):
        return node
    return type(node)(*made)


def substituted(node: Any, values: Mapping[Var, Any]) -> Any:
    """The syntax with variables replaced."""
    return replaced(node, lambda each: values.get(each) if isinstance(each, Var) else None)


def free_vars(node: Any) -> list[Var]:
    """The variables that are used and not bound within, each once, in order."""
    bound = {each.var for each in walk(node) if isinstance(each, Binding)}
    bound |= {param for each in walk(node) if isinstance(each, Function) for param in each.params}
    return list(dict.fromkeys(each for each in walk(node) if isinstance(each, Var) and each not in bound))
