"""What a program is made of, and how much it computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from .. import adt
from ..expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Op,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from ..module import IRModule
from ..visit import children, free_vars, postorder

_WORDS = """
    fVar fGlobalVar fConstant fTuple fTupleGetItem fFunction fOp fCall fLet fIf fRefCreate fRefRead fRefWrite fConstructor fMatch
    fGraph fLetRec
"""
Feature = IntEnum("Feature", _WORDS.split(), start=0)  # type: ignore[misc]
Feature.__doc__ = "A kind of expression; sharing (fGraph) and recursion by let (fLetRec) too."

_KINDS: dict[type, Any] = {
    kind: Feature[f"f{kind.__name__}"]
    for kind in (Var, GlobalVar, Constant, Tuple, TupleGetItem, Function, Call, Let, If, RefCreate, RefRead, RefWrite)
}
_KINDS |= {adt.Constructor: Feature["fConstructor"], adt.Match: Feature["fMatch"], Op: Feature["fOp"]}
_ATOMIC = (Var, GlobalVar, Op, adt.Constructor, Constant)


def detect_feature(a: Any, b: Any = None) -> set:
    """What an expression or the functions of a module are made of; primitive functions are not looked into."""
    expr = b if isinstance(a, IRModule) and b is not None else a
    if isinstance(expr, IRModule):
        functions = [each for each in expr._functions.values() if isinstance(each, Function)]
        return set().union(*map(detect_feature, functions))
    found: set = set()
    seen: set[int] = set()
    stack = [expr]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            found |= set() if isinstance(each, _ATOMIC) else {Feature["fGraph"]}
            continue
        seen.add(id(each))
        found.add(_KINDS[type(each)])
        if isinstance(each, Call) and isinstance(each.op, (Op, adt.Constructor)):
            found.add(_KINDS[type(each.op)])
        if isinstance(each, Let) and each.var in free_vars(each.value):
            found.add(Feature["fLetRec"])
        if not (isinstance(each, Function) and each.attrs.get("Primitive")):
            stack += children(each)
    return found


def _conv(call: Any, shape: tuple, _: tuple, result: tuple) -> int:
    layout = call.attrs["data_layout"]
    channels = math.prod(shape[layout.index(each)] for each in "Cc" if each in layout)
    return math.prod(result) * math.prod(call.attrs["kernel_size"]) * channels // call.attrs["groups"]


# multiply-accumulates of a call, by the shapes of its operands and its result
_MACS: dict[str, Callable[[Any, tuple, tuple, tuple], int]] = {
    "nn.conv2d": _conv,
    "nn.conv2d_transpose": _conv,
    "nn.dense": lambda _, data, weight, result: data[0] * data[1] * weight[0],
    "nn.batch_matmul": lambda _, x, y, result: x[0] * x[1] * x[2] * y[1],
}


def get_total_mac_number(expr: Expr) -> int:
    """How many multiply-accumulates the typed expression's convolutions and products take: those of conv2d, conv2d_transpose,
    dense and batch_matmul."""
    total = 0
    for each in postorder(expr):
        if isinstance(each, Call) and isinstance(each.op, Op) and each.op.name in _MACS:
            shapes = [tuple(map(int, part.checked_type.shape)) for part in (*each.args[:2], each)]  # type: ignore[attr-defined]
            total += int(_MACS[each.op.name](each, *shapes))
    return total
