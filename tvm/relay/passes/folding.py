"""Constant folding and the elimination of common subexpressions, on Relay's expressions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ....formats.messages.errors import TreadleError
from ...transform import Pass
from ..expr import Constant, Expr, Function, If, Tuple, TupleGetItem
from ..module import IRModule
from ..op.table import TABLE
from ..text.attributes import same_values
from ..visit import postorder
from .core import as_constant, each_function, op_of, rewrite, static_shape, value_of

_STATEFUL = {"nn.dropout", "memory.alloc_storage"}

# what stays although its operands are constants: it is large, it is not the same each time, or it is for other passes
_KEPT = {
    *("zeros_like", "ones_like", "full_like", "full", "nn.dropout", "nn.batch_norm", "annotation.stop_fusion"),
    *("annotation.checkpoint", "annotation.compiler_begin", "annotation.compiler_end", "on_device"),
    *(name for name in TABLE if name.startswith("random.")),
}


def _plain(expr: Expr) -> Expr:
    """The expression, without what says where it is."""
    return expr.args[0] if op_of(expr) == "on_device" else expr  # type: ignore[attr-defined]


def _is_constant(expr: Expr) -> bool:
    expr = _plain(expr)
    return isinstance(expr, Constant) or (isinstance(expr, Tuple) and all(map(_is_constant, expr.fields)))


def folded(root: Expr, fold_qnn: bool = False) -> Expr:
    """`root` with calls of operators on constants replaced by their values, which Treadle's reference evaluator gives."""
    inside = {
        id(each)
        for function in postorder(root)
        if isinstance(function, Function) and function.attrs.get("Primitive")
        for each in postorder(function)
    }

    def rule(old: Expr, new: Any) -> Expr | None:
        if id(old) in inside:
            return old
        if isinstance(new, TupleGetItem) and isinstance(_plain(new.tuple_value), Tuple):
            return _plain(new.tuple_value).fields[new.index]  # type: ignore[attr-defined]
        if isinstance(new, If) and isinstance(_plain(new.cond), Constant):
            return new.true_branch if _plain(new.cond).array.all() else new.false_branch  # type: ignore[attr-defined]
        name = op_of(new)
        if name in ("shape_of", "ndarray_size") and (shape := static_shape(old.args[0])) is not None:  # type: ignore[attr-defined]
            return Constant(
                np.array(shape if name == "shape_of" else int(np.prod(shape)), new.attrs.get("dtype") or "int32")
            )
        if not name or name in _KEPT or not new.args or not all(map(_is_constant, new.args)):
            return None
        if name.startswith("qnn.") and not fold_qnn:
            return None
        with contextlib.suppress(TreadleError, NotImplementedError):
            return as_constant(value_of(new))
        return None

    return rewrite(root, rule, lambda let, value: _is_constant(value))


def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Calls on constants as their values (`fold_constant.cc`); with `fold_qnn` those of quantized operators too."""
    return each_function("FoldConstant", lambda function, _: folded(function, fold_qnn), level=2)


def FoldConstantExpr(expr: Expr, mod: IRModule | None = None, fold_qnn: bool = False) -> Expr:
    """`FoldConstant` of an expression."""
    return folded(expr, fold_qnn)


def EliminateCommonSubexpr(fskip: Callable[[Expr], bool] | None = None) -> Pass:
    """Calls of one operator on the same operands as one, unless `fskip` says otherwise (`eliminate_common_subexpr.cc`)."""

    def eliminate(function: Function, _: IRModule) -> Expr:
        known: dict[Any, list[Expr]] = {}

        def rule(old: Expr, new: Any) -> Expr | None:
            if isinstance(new, TupleGetItem):
                key: Any = ("item", id(new.tuple_value), new.index)
            elif op_of(new) and new.args and op_of(new) not in _STATEFUL and not (fskip and fskip(new)):
                key = (op_of(new), *map(_identity, new.args))
            else:
                return None
            several = known.setdefault(key, [])
            same = next((each for each in several if not op_of(new) or same_attributes(each, new)), None)
            if same is None:
                several.append(new)
            return same

        return rewrite(function, rule)

    return each_function("EliminateCommonSubexpr", eliminate, level=3)


def _identity(expr: Expr) -> Any:
    """What two operands have in common that are the same: an object, the value of a scalar, or those of a tuple's fields."""
    if isinstance(expr, Constant) and not expr.array.shape:
        return expr.array.dtype.name, expr.array.tobytes()
    return tuple(map(_identity, expr.fields)) if isinstance(expr, Tuple) else id(expr)


def same_attributes(a: Any, b: Any) -> bool:
    """Whether two calls have the same attributes."""
    return a.attrs.keys() == b.attrs.keys() and all(
        same_values(value, b.attrs[name]) for name, value in a.attrs.items()
    )
