"""What passes share: application to every function of a module, rewriting bottom up, and the value of constant expressions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....compiler.ir.evaluate import evaluate
from ....compiler.ir.infer import infer_types
from ....formats.messages.errors import TreadleError
from ...transform import ModulePass, PassInfo
from .. import ty
from ..expr import OPERATOR_CALLS, Call, Constant, Expr, Function, Let, Op, Tuple, Var
from ..infer import infer_module
from ..lower import lowered
from ..module import IRModule
from ..rewrite import rebuilt
from ..visit import children, postorder

Rule = Callable[
    [Any, Expr], "Expr | None"
]  # the expression as it was, and with new parts → what replaces it; None: the latter


def typed(module: IRModule) -> IRModule:
    """The module, its expressions typed as far as inference gets."""
    with contextlib.suppress(TreadleError, NotImplementedError):
        infer_module(module)
    return module


def each_function(
    name: str, change: Callable[[Function, IRModule], Expr], level: int = 1, keeps_type: bool = True
) -> ModulePass:
    """A pass that makes `change(function, module)` of each function of the module, typed before and after. `keeps_type` False:
    the result may be of another type. Functions for other compilers stay as they are."""

    def run(module: IRModule, _: Any) -> IRModule:
        made = typed(module).shallow_copy()
        for key, function in module._functions.items():
            if (
                isinstance(function, Function)
                and "Compiler" not in function.attrs
                and "SkipOptimization" not in function.attrs
            ):
                function = annotated(function)
                changed = change(function, made)
                if changed is not function and not keeps_type:
                    changed = Function(changed.params, changed.body, None, changed.type_params, changed.attrs)  # type: ignore[attr-defined]
                made._functions[key] = changed  # type: ignore[assignment]
        return typed(made)

    return ModulePass(PassInfo(level, name), run)


def annotated(function: Function) -> Function:
    """The function, parameters whose types were inferred declared with them: what follows may be of other operators, which say
    nothing of their types."""
    made = {
        id(param): Var(param.name_hint, param._checked_type)
        for param in function.params
        if param._known_type is None and param._checked_type is not None
    }
    return rewrite(function, lambda old, new: made.get(id(old))) if made else function  # type: ignore[return-value]


def rewrite(root: Expr, rule: Rule | None = None, inline: Callable[[Let, Expr], bool | Var] | None = None) -> Expr:
    """`root` with each expression replaced by what the rule makes of it, parts first. A replacement has the type of what it
    replaces, until inference says otherwise. A let gives way to its body, and its variable to its value, where
    `inline(let, new value)` says so; or it gives the let another variable."""
    made: dict[int, Expr] = {}
    lets_of: dict[int, list[Let]] = {}
    if inline is not None:
        for expr in postorder(root):
            if isinstance(expr, Let):
                lets_of.setdefault(id(expr.value), []).append(expr)
    for expr in postorder(root):
        if id(expr) in made:
            continue
        parts = [made[id(child)] for child in children(expr)]
        if isinstance(expr, Let) and parts[0] is not expr.var and parts[0] is parts[1]:
            made[id(expr)] = parts[2]
            continue
        new = rebuilt(expr, parts)
        found = rule(expr, new) if rule else None
        new = new if found is None else found
        if new is not expr and new._checked_type is None:
            new._checked_type = expr._checked_type
        made[id(expr)] = new
        for let in lets_of.get(id(expr), ()):
            if inline is not None and (stands := inline(let, new)):
                made[id(let.var)] = stands if isinstance(stands, Var) else new
    return made[id(root)]


def replaced(root: Expr, values: Mapping[int, Expr]) -> Expr:
    """`root` with expressions, by identity, replaced by others, in which expressions are replaced too."""
    made: dict[int, Expr] = {}
    stack = [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in made:
            continue
        target = values.get(id(expr), expr)
        if ready:
            made[id(expr)] = rebuilt(target, [made[id(child)] for child in children(target)])
            if made[id(expr)]._checked_type is None:
                made[id(expr)]._checked_type = expr._checked_type
        else:
            stack.append((expr, True))
            stack += [(child, False) for child in reversed(children(target)) if id(child) not in made]
    return made[id(root)]


def op_of(expr: Any) -> str:
    """The name of the operator that an expression calls, or ""."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def make(name: str, *args: Any, **attributes: Any) -> Any:
    """A call of an operator."""
    return OPERATOR_CALLS[name](*args, **attributes)


def again(call: Call, args: Sequence[Expr], **changed: Any) -> Call:
    """The call of the same operator on other arguments, with some attributes changed."""
    return Call(call.op, args, {**(call.attrs or {}), **changed}, call.type_args, names=call.names)


def type_of(expr: Expr) -> ty.Type | None:
    """The type, where it is known."""
    return expr._checked_type or expr._known_type


def shape_of(expr: Expr) -> tuple[Any, ...] | None:
    """The shape of a tensor, where it is known."""
    type_ = type_of(expr)
    return tuple(type_.shape) if isinstance(type_, ty.TensorType) else None


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor, where all of it is known."""
    shape = shape_of(expr)
    return None if shape is None or not all(isinstance(dim, int) for dim in shape) else tuple(map(int, shape))


def dtype_of(expr: Expr) -> str:
    """The name of the element type, or ""."""
    type_ = type_of(expr)
    return type_.dtype if isinstance(type_, ty.TensorType) else ""


def scalar_value(expr: Expr) -> Any:
    """The number that a constant is, if all its elements are one; else None."""
    if isinstance(expr, Constant) and expr.array.size and (expr.array == expr.array.flat[0]).all():
        return expr.array.flat[0].item()
    return None


def constant_like(value: Any, expr: Expr) -> Constant:
    """A scalar of the element type of a tensor."""
    return Constant(np.array(value, dtype_of(expr) or "float32"))


def value_of(expr: Expr, module: IRModule | None = None) -> Any:
    """The value of an expression without free variables, by Treadle's reference evaluator: an array, or a tuple. Raises
    TreadleError where there is none."""
    functions: Mapping[str, Any] = {} if module is None else module._functions
    data_types = {} if module is None else module._data_types
    made = lowered({**functions, "value of": Function([], expr)}, data_types, ["value of"])
    return evaluate(infer_types(made), "value of")


def as_constant(value: Any) -> Expr:
    """An array, or a tuple of them, as an expression."""
    return Tuple([as_constant(each) for each in value]) if isinstance(value, tuple) else Constant(np.array(value))


def users(root: Expr) -> dict[int, list[Expr]]:
    """By identity, the expressions in which an expression is a part."""
    found: dict[int, list[Expr]] = {}
    for expr in postorder(root):
        for child in children(expr):
            found.setdefault(id(child), []).append(expr)
    return found


def fresh(variable: Var) -> Var:
    """Another variable of that name and type."""
    return Var(variable.name_hint, variable.type_annotation)


def let_chain(expr: Expr) -> tuple[list[tuple[Var, Expr]], Expr]:
    """The bindings of nested lets, and what is inside."""
    bindings = []
    while isinstance(expr, Let):
        bindings.append((expr.var, expr.value))
        expr = expr.body
    return bindings, expr


def lets(bindings: Sequence[tuple[Var, Expr]], body: Expr) -> Expr:
    """Nested lets."""
    for variable, value in reversed(bindings):
        body = Let(variable, value, body)
    return body


def along_axis(vector: Expr, rank: int, axis: int) -> Expr:
    """A vector as what broadcasts along an axis of a tensor of that rank (`ExpandBiasToMatchAxis`)."""
    behind = rank - axis % rank - 1
    return make("expand_dims", vector, axis=1, num_newaxis=behind) if behind else vector
