"""Loops, as functions that call themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .expr import Function, If, Let, Tuple, Var, var
from .scope_builder import ScopeBuilder


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
