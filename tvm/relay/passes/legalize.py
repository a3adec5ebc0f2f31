"""Legalize: operators replaced by what registered rules make of them (`legalize.cc`)."""

from __future__ import annotations

from typing import Any

from ...transform import Pass
from ..expr import Expr, Function, Op, as_expr
from ..module import IRModule
from .core import each_function, op_of, rewrite, type_of


def Legalize(legalize_map_attr_name: str = "FTVMLegalize") -> Pass:
    """Each call of an operator that has a rule of this name, `(attrs, operands, types) → expression or None`, as what the rule
    gives. `relay.op.register_legalize` registers one; Treadle has none of its own, since its compiler takes operators as they
    are."""

    def legalize(function: Function, _: IRModule) -> Expr:
        def rule(old: Expr, new: Any) -> Expr | None:
            if not op_of(old):
                return None
            registered = Op.get(op_of(old)).get_attr(legalize_map_attr_name)
            if registered is None:
                return None
            types = [type_of(arg) for arg in old.args] + [type_of(old)]  # type: ignore[attr-defined]
            found = registered(new.attrs, new.args, types)
            return None if found is None else as_expr(found)

        return rewrite(function, rule)

    return each_function("Legalize", legalize)
