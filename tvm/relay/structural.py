"""Whether programs are the same but for the names of variables, and where two objects of the runtime begin to differ:
`tvm.ir.structural_equal`, `tvm.ir.get_first_structural_mismatch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...formats.dims import SymbolicDim
from ...vm.tensor import Tensor
from ..modules.containers import FloatImm, IntImm, ShapeTuple
from ..runtime.object_path import ObjectPath
from . import adt, ty
from .expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Op, Tuple, TupleGetItem, TupleWrapper, Var
from .module import IRModule
from .text.attributes import same_values, value_text
from .visit import children

Mismatch = tuple[ObjectPath, ObjectPath]
_CONTAINERS = (list, tuple, dict, str, int, float, Tensor, ShapeTuple)


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
        if isinstance(lhs, _CONTAINERS) and isinstance(rhs, _CONTAINERS):
            return get_first_structural_mismatch(lhs, rhs) is None
        return bool(lhs == rhs)
    return _Comparison(map_free_vars).same(lhs, rhs)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError for what is not equal by structure."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"the structures differ:\n{lhs}\nand\n{rhs}")


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that programs which are equal have in common, and others hardly ever."""
    if isinstance(node, TupleWrapper):
        node = node.tuple_value
    if isinstance(node, IRModule):
        functions = (
            (name, structural_hash(function, map_free_vars) if isinstance(function, Function) else id(function))
            for name, function in sorted(node._functions.items())
        )
        return hash((*functions, *sorted(node._data_types)))
    if isinstance(node, (list, tuple)):
        return hash(("list", *(structural_hash(each, map_free_vars) for each in node)))
    if isinstance(node, dict):
        return hash(frozenset((key, structural_hash(each, map_free_vars)) for key, each in node.items()))
    if isinstance(node, Tensor):
        return hash((node.array.dtype.name, node.array.shape, node.array.tobytes()))
    if not isinstance(node, Expr):
        return hash(node)
    return hash(tuple(_Content(map_free_vars).of(node)))


class _Content:
    """What an expression is made of, in order: variables by their numbers, what comes again by where it came first."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.variables: dict[Var, int] = {}

    def bind(self, variables: Iterable[Var]) -> None:
        for variable in variables:
            self.variables.setdefault(variable, len(self.variables))

    def of(self, root: Expr) -> Iterator[Any]:
        seen: dict[int, int] = {}
        stack = [root]
        while stack:
            expr = stack.pop()
            if _is_shared(expr) and id(expr) in seen:
                yield seen[id(expr)]
                continue
            seen[id(expr)] = len(seen)
            yield type(expr).__name__
            yield self._own(expr)
            stack += reversed(children(expr))

    def _own(self, expr: Any) -> Any:
        if isinstance(expr, Var):
            if self.map_free_vars:
                self.bind([expr])
            return self.variables.get(expr, id(expr))
        if isinstance(expr, Constant):
            return expr.array.dtype.name, expr.array.shape, expr.array.tobytes()
        if isinstance(expr, (GlobalVar, adt.Constructor)):
            return expr.name_hint
        if isinstance(expr, Op):
            return expr.name
        if isinstance(expr, Call):
            callee = self._own(expr.op) if isinstance(expr.op, (Op, adt.Constructor)) else None
            return callee, _attributes(expr.attrs), () if isinstance(expr.op, Op) else expr.type_args
        if isinstance(expr, Function):
            self.bind(expr.params)
            return len(expr.params), tuple(map(_annotation, expr.params)), _attributes(expr.attrs)
        if isinstance(expr, Let):
            self.bind([expr.var])
            return _annotation(expr.var)
        if isinstance(expr, TupleGetItem):
            return expr.index
        if isinstance(expr, adt.Match):
            for clause in expr.clauses:
                self.bind(adt.pattern_vars(clause.lhs))
            return expr.complete, len(expr.clauses)
        return None


def _is_shared(expr: Expr) -> bool:
    """Whether it matters that an expression is the same one in two places: its value is made once."""
    is_empty = isinstance(expr, Tuple) and not expr.fields
    return not is_empty and not isinstance(expr, (Var, GlobalVar, Op, Constant, adt.Constructor))


def _attributes(attrs: Any) -> tuple:
    return tuple(sorted((str(name), value_text(value, _kind)) for name, value in (attrs or {}).items()))


def _kind(value: Any) -> str:
    return str(value) if isinstance(value, SymbolicDim) else type(value).__name__


class _Comparison:
    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.bound: dict[Var, Var] = {}
        self.backward: dict[Var, Var] = {}
        self.known: dict[int, Expr] = {}  # by identity, an expression and its counterpart
        self.counterparts: dict[int, Expr] = {}

    def bind(self, a: Var, b: Var, typed: bool = True) -> bool:
        if typed and _annotation(a) != _annotation(b):
            return False
        self.bound[a], self.backward[b] = b, a
        return True

    def same(self, lhs: Expr, rhs: Expr) -> bool:
        waiting = [(lhs, rhs)]
        while waiting:
            a, b = waiting.pop()
            if id(a) in self.known or id(b) in self.counterparts:
                if self.known.get(id(a)) is b and self.counterparts.get(id(b)) is a:
                    continue
                return False
            if type(a) is not type(b) or not self._alike(a, b):
                return False
            if _is_shared(a):
                self.known[id(a)], self.counterparts[id(b)] = b, a
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
            if not isinstance(a.op, Op) and a.type_args != b.type_args:  # of an operator they follow from the arguments
                return False
            if isinstance(a.op, (Op, adt.Constructor)):
                return type(a.op) is type(b.op) and self._alike(a.op, b.op) and _same_attributes(a.attrs, b.attrs)
            return not isinstance(b.op, (Op, adt.Constructor)) and _same_attributes(a.attrs, b.attrs)
        if isinstance(a, Function):
            if len(a.params) != len(b.params) or not _same_attributes(a.attrs, b.attrs):
                return False
            if not _fits(_result(a), _result(b)):
                return False
            if not all(map(_same_parameter, a.params, b.params)):
                return False
            return all(self.bind(x, y, typed=False) for x, y in zip(a.params, b.params, strict=True))
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


def _same_parameter(a: Var, b: Var) -> bool:
    """Whether two parameters are of one type: declared, or inferred where it is not."""
    mine, other = (_annotation(each) or each._checked_type for each in (a, b))
    are_open = _annotation(a) is None and _annotation(b) is None
    return _fits(mine, other) if are_open else mine == other


def _annotation(variable: Var) -> ty.Type | None:
    return None if isinstance(variable.type_annotation, ty.IncompleteType) else variable.type_annotation


# ---- where objects of the runtime differ ----


def get_first_structural_mismatch(lhs: Any, rhs: Any) -> Mismatch | None:
    """The paths to the first difference; None where there is none."""
    return _mismatch(lhs, rhs, ObjectPath.root(), ObjectPath.root())


def _mismatch(a: Any, b: Any, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _of_maps(a, b, at, there)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return _of_lists(a, b, at, there)
    numbers = (IntImm, FloatImm)
    if isinstance(a, numbers) and isinstance(b, numbers) and type(a) is type(b):
        part = "dtype" if a.dtype != b.dtype else "value" if a != b else None
        return None if part is None else (at.attr(part), there.attr(part))
    return None if _equal(a, b) else (at, there)


def _of_maps(a: Mapping, b: Mapping, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    for key, value in a.items():
        if key not in b:
            return at.map_value(key), there.missing_map_entry()
        if found := _mismatch(value, b[key], at.map_value(key), there.map_value(key)):
            return found
    more = next((key for key in b if key not in a), None)
    return None if more is None else (at.missing_map_entry(), there.map_value(more))


def _of_lists(a: Sequence, b: Sequence, at: ObjectPath, there: ObjectPath) -> Mismatch | None:
    for index, (mine, other) in enumerate(zip(a, b, strict=False)):
        if found := _mismatch(mine, other, at.array_index(index), there.array_index(index)):
            return found
    shorter = min(len(a), len(b))
    if len(a) > shorter:
        return at.array_index(shorter), there.missing_array_element(shorter)
    return (at.missing_array_element(shorter), there.array_index(shorter)) if len(b) > shorter else None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array)
    if isinstance(a, _CONTAINERS) or isinstance(b, _CONTAINERS):
        return bool(a == b)
    return structural_equal(a, b)
