"""Whether programs are the same but for the names of variables: `tvm.ir.structural_equal`."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import adt, ty
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, TupleWrapper, Var
from .module import IRModule
from .text.attributes import same_values
from .visit import children


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two expressions, modules or types are equal by structure. With `map_free_vars` free variables may differ too."""
    if isinstance(lhs, IRModule) and isinstance(rhs, IRModule):
        mine, other = lhs._functions, rhs._functions
        return (
            mine.keys() == other.keys()
            and lhs._data_types == rhs._data_types
            and all(
                mine[name] is other[name] or structural_equal(mine[name], other[name], map_free_vars) for name in mine
            )
        )
    if isinstance(lhs, TupleWrapper):
        lhs = lhs.tuple_value
    if isinstance(rhs, TupleWrapper):
        rhs = rhs.tuple_value
    if not isinstance(lhs, Expr) or not isinstance(rhs, Expr):
        return bool(lhs == rhs)
    return _Comparison(map_free_vars).same(lhs, rhs)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError for what is not equal by structure."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"the structures differ:\n{lhs}\nand\n{rhs}")


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that programs which are equal have in common."""
    if isinstance(node, IRModule):
        return hash(tuple(sorted(node._functions)))
    if not isinstance(node, Expr):
        return hash(node)
    from .visit import postorder

    return hash(tuple(type(each).__name__ for each in postorder(node)))


class _Comparison:
    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.bound: dict[Var, Var] = {}
        self.backward: dict[Var, Var] = {}
        self.known: set[tuple[int, int]] = set()

    def bind(self, a: Var, b: Var, typed: bool = True) -> bool:
        if typed and _annotation(a) != _annotation(b):
            return False
        self.bound[a], self.backward[b] = b, a
        return True

    def same(self, lhs: Expr, rhs: Expr) -> bool:
        waiting = [(lhs, rhs)]
        while waiting:
            a, b = waiting.pop()
            if (id(a), id(b)) in self.known:
                continue
            if type(a) is not type(b) or not self._alike(a, b):
                return False
            self.known.add((id(a), id(b)))
            parts, others = children(a), children(b)
            if len(parts) != len(others):
                return False
            waiting += reversed(list(zip(parts, others, strict=True)))
        return True

    def _alike(self, a: Any, b: Any) -> bool:
        """Whether two expressions of one kind are alike but for what lies in them. Binds their variables."""
        if isinstance(a, Var):
            if a in self.bound or b in self.backward:
                return self.bound.get(a) is b
            return a is b or (self.map_free_vars and self.bind(a, b))
        if isinstance(a, Constant):
            return (
                a.array.dtype == b.array.dtype and a.array.shape == b.array.shape and np.array_equal(a.array, b.array)
            )
        if isinstance(a, (GlobalVar, Op, adt.Constructor)):
            return (a.name if isinstance(a, Op) else a.name_hint) == (b.name if isinstance(b, Op) else b.name_hint)
        if isinstance(a, Call):
            if isinstance(a.op, (Op, adt.Constructor)):
                return type(a.op) is type(b.op) and self._alike(a.op, b.op) and _same_attributes(a.attrs, b.attrs)
            return not isinstance(b.op, (Op, adt.Constructor)) and _same_attributes(a.attrs, b.attrs)
        if isinstance(a, Function):
            if len(a.params) != len(b.params) or not _same_attributes(a.attrs, b.attrs):
                return False
            if not _fits(_result(a), _result(b)):
                return False
            return all(self.bind(x, y) for x, y in zip(a.params, b.params, strict=True))
        if isinstance(a, Let):
            return self.bind(a.var, b.var)
        if isinstance(a, TupleGetItem):
            return a.index == b.index
        if isinstance(a, adt.Match):
            pairs = zip(a.clauses, b.clauses, strict=False)
            return (
                a.complete == b.complete
                and len(a.clauses) == len(b.clauses)
                and all(self._patterns(x.lhs, y.lhs) for x, y in pairs)
            )
        return isinstance(a, (If, Tuple))

    def _patterns(self, a: adt.Pattern, b: adt.Pattern) -> bool:
        if isinstance(a, adt.PatternVar) and isinstance(b, adt.PatternVar):
            return _fits(_annotation(a.var), _annotation(b.var)) and self.bind(a.var, b.var, typed=False)
        if isinstance(a, adt.PatternConstructor) and isinstance(b, adt.PatternConstructor):
            if a.constructor.name_hint != b.constructor.name_hint:
                return False
        elif not (isinstance(a, adt.PatternTuple) and isinstance(b, adt.PatternTuple)):
            return type(a) is type(b)
        return len(a.patterns) == len(b.patterns) and all(map(self._patterns, a.patterns, b.patterns))


def _same_attributes(a: Any, b: Any) -> bool:
    mine, other = a or {}, b or {}
    return mine.keys() == other.keys() and all(same_values(value, other[name]) for name, value in mine.items())


def _result(function: Function) -> ty.Type | None:
    """The type of a function's result: declared, or inferred."""
    inferred = function._checked_type
    return function.ret_type or (inferred.ret_type if isinstance(inferred, ty.FuncType) else None)


def _fits(a: ty.Type | None, b: ty.Type | None) -> bool:
    return a is None or b is None or a == b


def _annotation(variable: Var) -> ty.Type | None:
    return None if isinstance(variable.type_annotation, ty.IncompleteType) else variable.type_annotation
