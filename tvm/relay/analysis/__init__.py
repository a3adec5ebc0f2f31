"""`relay.analysis`: questions about expressions, types and matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._lazy import lazy
from ..adt import Match, pattern_vars
from ..expr import Call, Constant, Expr, Function, Let, Op, Tuple, Var
from ..module import IRModule
from ..visit import all_vars as all_vars
from ..visit import bound_vars as bound_vars
from ..visit import children, postorder
from ..visit import free_vars as free_vars

__getattr__, __dir__ = lazy(
    __name__,
    names={
        ".cases": "unmatched_cases",
        ".extract": """
            extract_fused_functions extract_intermdeiate_expr extract_intermediate_expr get_calibration_data
            list_fake_quantized_op_freqs
        """,
        ".features": "Feature detect_feature get_total_mac_number",
        ".kinds": "all_dtypes all_type_vars bound_type_vars check_kind free_type_vars",
        "..passes.normal": "check_basic_block_normal_form",
    },
    absent={
        "CallGraph": "relay.visit.global_vars says what a function calls",
        "search_fc_transpose": "Treadle's compiler transposes weights itself",
    },
)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], Any]) -> None:
    """Calls `fvisit` with each expression, those in it first."""
    for each in postorder(expr):
        fvisit(each)


def list_op_freqs(mod: Expr | IRModule) -> dict[str, int]:
    """How often each operator is called."""
    functions: Sequence[Any] = list(mod._functions.values()) if isinstance(mod, IRModule) else [mod]
    counts: dict[str, int] = {}
    for function in functions:
        for each in postorder(function) if isinstance(function, Expr) else ():
            if isinstance(each, Call) and isinstance(each.op, Op):
                counts[each.op.name] = counts.get(each.op.name, 0) + 1
    return counts


def count_layers(expr: Expr | IRModule, valid_ops: Sequence[str]) -> int:
    """How many calls of these operators lie at most one after another."""
    root = expr["main"] if isinstance(expr, IRModule) else expr
    depth: dict[int, int] = {}
    for each in postorder(root):
        below = max((depth[id(child)] for child in children(each)), default=0)
        counts = isinstance(each, Call) and isinstance(each.op, Op) and each.op.name in valid_ops
        depth[id(each)] = below + counts
    return depth[id(root)]


def well_formed(expr: Expr) -> bool:
    """Whether each variable is bound at most once."""
    seen: set[Var] = set()
    for each in postorder(expr):
        bound = list(each.params) if isinstance(each, Function) else [each.var] if isinstance(each, Let) else []
        if isinstance(each, Match):
            bound = [variable for clause in each.clauses for variable in pattern_vars(clause.lhs)]
        for variable in bound:
            if variable in seen:
                return False
            seen.add(variable)
    return True


def check_constant(expr: Expr) -> bool:
    """Whether the expression is made of constants and tuples alone."""
    return all(isinstance(each, (Constant, Tuple)) for each in postorder(expr))
