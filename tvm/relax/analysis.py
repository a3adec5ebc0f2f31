"""`relax.analysis`: what can be said of programs without running them."""

from __future__ import annotations

from typing import Any

from .block_builder import loose_dataflow
from .expr import Binding, Function, GlobalVar, Var, free_vars, post_order_visit, walk
from .module import IRModule
from .passes import dead_code_eliminated as remove_all_unused

__all__ = [
    *("all_global_vars", "all_vars", "bound_vars", "free_vars", "get_var2val", "name_to_binding", "post_order_visit"),
    *("remove_all_unused", "udchain", "well_formed"),
]


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


def all_vars(expr: Any) -> list[Var]:
    """The variables of an expression, those that are bound and those that are used, each once."""
    return list(dict.fromkeys([*bound_vars(expr), *(each for each in walk(expr) if isinstance(each, Var))]))


def all_global_vars(expr: Any) -> list[GlobalVar]:
    """The functions of the module that an expression names, each once."""
    return list(dict.fromkeys(each for each in walk(expr) if isinstance(each, GlobalVar)))


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """The bindings of variables by their names."""
    found: dict[str, list[Binding]] = {}
    for each in walk(func):
        if isinstance(each, Binding):
            found.setdefault(each.var.name_hint, []).append(each)
    return found


def udchain(dfb: Any) -> dict[Var, list[Var]]:
    """For each variable of a block, those whose values it is used for."""
    users: dict[Var, list[Var]] = {each.var: [] for each in dfb.bindings}
    for binding in dfb.bindings:
        for each in dict.fromkeys(found for found in walk(binding.value) if isinstance(found, Var)):
            users.setdefault(each, []).append(binding.var)
    return users
