"""`relax.analysis`: what can be said of programs without running them."""

from __future__ import annotations

from typing import Any

from ...formats import dims
from .block_builder import loose_dataflow
from .expr import (
    Binding,
    Call,
    DataflowBlock,
    Function,
    GlobalVar,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    free_vars,
    post_order_visit,
    walk,
)
from .module import IRModule
from .passes import dead_code_eliminated as remove_all_unused
from .passes import is_leaf, is_pure
from .struct_info import ObjectStructInfo, ShapeExpr, TensorStructInfo, defined_names, sizes_in

__all__ = [
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "free_vars",
    "get_var2val",
    "name_to_binding",
    "post_order_visit",
    "remove_all_unused",
    "udchain",
    "well_formed",
]


def well_formed(obj: Any, check_struct_info: bool = True) -> bool:
    """Whether each variable is bound once before it is used, each function that is called is there, under its own name, values
    are in normal form, sizes are parameters' or a match_cast's, effects are where they may be, and variables of dataflow blocks
    stay in them; and, with `check_struct_info`, whether what is said of variables agrees with their values."""
    functions = obj._functions if isinstance(obj, IRModule) else {None: obj}
    for name, function in functions.items():
        if not isinstance(function, Function):
            continue
        bound = bound_vars(function)
        if free_vars(function) or len(bound) != len(set(bound)) or _loose(function):
            return False
        nodes = list(walk(function))
        calls = {each.name_hint for each in nodes if isinstance(each, GlobalVar)}
        if name is not None and not (calls <= functions.keys() and function.attrs.get("global_symbol", name) == name):
            return False
        if not (all(map(_is_normal, nodes)) and _has_effects_in_place(function) and _knows_sizes(function)):
            return False
        values = [each for each in nodes if isinstance(each, Binding)]
        if check_struct_info and any(_conflict(each.var.struct_info, each.value.struct_info) for each in values):
            return False
    return True


def _is_normal(node: Any) -> bool:
    """Whether what an expression is made of are variables, constants and tuples of such."""
    if isinstance(node, Call):
        return all(map(is_leaf, (node.op, *node.args)))
    if isinstance(node, If):
        return is_leaf(node.cond)
    if isinstance(node, Binding):
        return not isinstance(node.value, SeqExpr)
    if isinstance(node, SeqExpr):
        return is_leaf(node.body)
    if isinstance(node, Tuple):
        return is_leaf(node)
    return not isinstance(node, TupleGetItem) or is_leaf(node.tuple_value)


def _has_effects_in_place(function: Function) -> bool:
    """Whether a pure function, unless it says that it knows better, and dataflow blocks have no effects, nor these branches."""
    is_forced = bool(function.attrs.get("relax.force_pure", False))
    if is_forced and not function.is_pure:
        return False
    inner = [each for each in walk(function.body) if isinstance(each, Function)]
    within = {id(each) for own in inner for each in walk(own.body)}
    for each in walk(function.body):
        if isinstance(each, DataflowBlock):
            if not all(is_pure(own.value) and not isinstance(own.value, If) for own in each.bindings):
                return False
        elif (
            isinstance(each, Call)
            and id(each) not in within
            and function.is_pure
            and not is_forced
            and not is_pure(each)
        ):
            return False
    return all(map(_has_effects_in_place, inner))


def _knows_sizes(function: Function) -> bool:
    """Whether sizes are made of those that parameters and casts define."""
    inside = [each for each in walk(function.body) if isinstance(each, (Binding, Call, Function))]
    casts = [each.struct_info for each in inside if isinstance(each, MatchCast)]
    params = [param for each in (function, *inside) if isinstance(each, Function) for param in each.params]
    known = defined_names([*(param.struct_info for param in params), *casts])
    said = [function.ret_struct_info]
    for each in inside:
        said += [each.var.struct_info] if isinstance(each, Binding) else getattr(each, "sinfo_args", ())
    return all(
        set(dims.variables(size)) <= known
        for info in said
        for size in sizes_in(info)
        if isinstance(size, dims.SymbolicDim)
    )


def _conflict(said: Any, found: Any) -> bool:
    """Whether two struct infos cannot both be true of one value."""
    if said is None or found is None or ObjectStructInfo in (type(said), type(found)):
        return False
    if not (isinstance(said, TensorStructInfo) and isinstance(found, TensorStructInfo)):
        return type(said) is not type(found)
    shapes = [each.shape if isinstance(each.shape, ShapeExpr) else () for each in (said, found)]
    return (
        ("" not in (said.dtype, found.dtype) and said.dtype != found.dtype)
        or (-1 not in (said.ndim, found.ndim) and said.ndim != found.ndim)
        or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(*shapes, strict=False))
    )


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
