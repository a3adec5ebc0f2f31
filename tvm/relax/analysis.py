"""`relax.analysis`: what can be said of programs without running them."""

from __future__ import annotations

from typing import Any

from .block_builder import loose_dataflow
from .expr import Binding, Function, GlobalVar, Var, free_vars, post_order_visit, walk
from .module import IRModule

__all__ = ["bound_vars", "free_vars", "get_var2val", "post_order_visit", "well_formed"]


def well_formed(obj: Any, check_struct_info: bool = True) -> bool:
    """Whether each variable is bound once before it is used, each function that is called is there, and variables of dataflow
    blocks stay in them."""
    functions = list(obj._functions.values()) if isinstance(obj, IRModule) else [obj]
    for function in functions:
        if not isinstance(function, Function):
            continue
        bound = bound_vars(function)
        if free_vars(function) or len(bound) != len(set(bound)) or _loose(function):
            return False
        calls = {each.name_hint for each in walk(function) if isinstance(each, GlobalVar)}
        if isinstance(obj, IRModule) and not calls <= obj._functions.keys():
            return False
    return True


def _loose(function: Function) -> bool:
    inner = [each for each in walk(function.body) if isinstance(each, Function)]
    return loose_dataflow(function.body) is not None or any(map(_loose, inner))


def bound_vars(expr: Any) -> list[Var]:
    """The variables that are bound within, parameters among them."""
    params = [param for each in walk(expr) if isinstance(each, Function) for param in each.params]
    return params + [each.var for each in walk(expr) if isinstance(each, Binding)]


def get_var2val(func: Function) -> dict[Var, Any]:
    """What each variable of a function is bound to."""
    return {each.var: each.value for each in walk(func) if isinstance(each, Binding)}
