"""Types: their kinds, their variables, and the element types of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....formats.messages.errors import InferenceError
from .. import adt, ty
from ..adt import Match
from ..expr import Call, Expr, Function, Let, Var
from ..module import IRModule
from ..ty import TypeKind
from ..visit import preorder

_NAMES = {value: name for name, value in vars(TypeKind).items() if isinstance(value, int)}


def check_kind(t: Any, mod: IRModule | None = None) -> int:
    """The kind of a type. Raises InferenceError for a type that is made of parts of the wrong kinds."""
    if isinstance(t, (ty.TypeVar, ty.GlobalTypeVar)):
        return t.kind
    if isinstance(t, adt.TypeData):
        return TypeKind.TypeData
    if isinstance(t, ty.TypeCall):
        _require(TypeKind.AdtHandle, (t.func,), t, mod)
        _require(TypeKind.Type, t.args, t, mod)
        expected = (
            len(mod[t.func].type_vars) if mod is not None and isinstance(t.func, ty.GlobalTypeVar) else len(t.args)
        )
        if len(t.args) != expected:
            raise InferenceError(f"check_kind: {t} has {len(t.args)} arguments; the data type takes {expected}")
        return TypeKind.Type
    if isinstance(t, ty.FuncType):
        _require(TypeKind.Type, (*t.arg_types, t.ret_type), t, mod)
        _require(TypeKind.Constraint, t.type_constraints, t, mod)
        return TypeKind.Type
    _require(TypeKind.Type, _parts(t), t, mod)
    return TypeKind.Constraint if isinstance(t, ty.TypeRelation) else TypeKind.Type


def _require(kind: int, parts: Any, whole: Any, mod: IRModule | None) -> None:
    for part in parts:
        if (found := check_kind(part, mod)) != kind:
            raise InferenceError(
                f"check_kind: {part} in {whole} is of the kind {_NAMES[found]}, expected {_NAMES[kind]}"
            )


def _parts(t: Any) -> tuple:
    """The types in a type, in order."""
    if isinstance(t, ty.FuncType):
        return (*t.type_params, *t.arg_types, t.ret_type)
    if isinstance(t, ty.TypeCall):
        return (t.func, *t.args)
    if isinstance(t, ty.TupleType):
        return t.fields
    if isinstance(t, ty.TypeRelation):
        return t.args
    return (t.value,) if hasattr(t, "value") else ()  # a reference


def _types(root: Any) -> Iterator[Any]:
    """The types in a type, or that an expression states, in the order of its text."""
    if not isinstance(root, Expr):
        yield root
        for part in _parts(root):
            yield from _types(part)
        return
    for expr in preorder(root):
        stated: tuple = ()
        if isinstance(expr, Var):
            stated = (expr.type_annotation,)
        elif isinstance(expr, Function):
            stated = (*expr.type_params, *(param.type_annotation for param in expr.params), expr.ret_type)
        elif isinstance(expr, Let):
            stated = (expr.var.type_annotation,)
        elif isinstance(expr, Call):
            stated = expr.type_args
        elif isinstance(expr, Match):
            stated = tuple(v.type_annotation for clause in expr.clauses for v in adt.pattern_vars(clause.lhs))
        for type_ in stated:
            if isinstance(type_, ty.Type) and not isinstance(type_, ty.IncompleteType):
                yield from _types(type_)


def all_type_vars(expr: Any, mod: IRModule | None = None) -> list[ty.TypeVar]:
    """The type variables in an expression or a type."""
    return list(dict.fromkeys(each for each in _types(expr) if isinstance(each, ty.TypeVar)))


def bound_type_vars(expr: Any, mod: IRModule | None = None) -> list[ty.TypeVar]:
    """The type variables that a function, or the type of one, declares."""
    found: dict[ty.TypeVar, None] = {}
    for each in preorder(expr) if isinstance(expr, Expr) else ():
        if isinstance(each, Function):
            found.update(dict.fromkeys(each.type_params))
    for type_ in _types(expr):
        if isinstance(type_, ty.FuncType):
            found.update(dict.fromkeys(type_.type_params))
    return list(found)


def free_type_vars(expr: Any, mod: IRModule | None = None) -> list[ty.TypeVar]:
    """The type variables that are not declared in the expression or type."""
    bound = set(bound_type_vars(expr))
    return [each for each in all_type_vars(expr) if each not in bound]


def all_dtypes(expr: Expr) -> set[str]:
    """The names of the element types of a typed expression's parts."""
    known = (each._checked_type or each._known_type for each in preorder(expr))
    return {
        part.dtype for each in known if each is not None for part in _types(each) if isinstance(part, ty.TensorType)
    }
