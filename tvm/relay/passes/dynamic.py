"""DynamicToStatic: attributes that are computed of constants and known shapes, as numbers (`dynamic_to_static.cc`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...transform import Pass
from ..expr import Call, Constant, Expr, Function
from ..module import IRModule
from ..op.table import ROWS
from .core import each_function, op_of, rewrite, typed
from .folding import folded

# what may be an expression and is an operand of its own in TVM's static operators too
_OPERANDS = {"fill_value", "pad_value", "on_value", "off_value", "default_value", "sparse_values"}
_SIZES = {
    "size",
    "newshape",
    "shape",
    "axis",
    "k",
    "depth",
    "reps",
    "begin",
    "end",
    "strides",
    "pad_width",
    "output_shape",
}


def _number(name: str, value: np.ndarray) -> Any:
    """A constant as an attribute: sizes are integers, whatever their element type."""
    return (value.astype(np.int64) if name in _SIZES else value).tolist()


def _static(call: Any) -> Expr | None:
    row = ROWS.get(op_of(call))
    if row is None:
        return None
    names = call.names or tuple(row.signature.parameters)[: len(call.args)]
    kept, attributes = [], dict(call.attrs)
    for name, arg in zip(names, call.args, strict=True):
        is_attribute = str(row.signature.parameters[name].annotation) == "Any" and name not in _OPERANDS
        if is_attribute and isinstance(arg, Constant):
            attributes[name] = _number(name, arg.array)
        else:
            kept.append((name, arg))
    if len(kept) == len(names):
        return None
    ordered = {name: attributes[name] for name in row.signature.parameters if name in attributes}
    return Call(call.op, [arg for _, arg in kept], ordered, call.type_args, names=[name for name, _ in kept])


def DynamicToStatic() -> Pass:
    """Shapes, axes and counts that are computed of what is known, as attributes."""

    def static(function: Function, module: IRModule) -> Expr:
        before: Expr = Function([], Constant(np.array(0)))
        made: Any = function
        while made is not before:
            before = made
            made = rewrite(folded(made), lambda old, new: _static(new))
            if made is not before:
                typed(IRModule({**module._functions, "main": made}))
        return made

    return each_function("DynamicToStatic", static, level=2, keeps_type=False)
