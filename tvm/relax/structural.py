"""Whether pieces of Relax's syntax are the same but for the names of variables and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...formats import dims
from ...vm.tensor import Tensor
from .expr import SYNTAX, Binding, ExternFunc, Function, GlobalVar, Var
from .module import IRModule
from .node import Node
from .struct_info import Condition, StructInfo


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two are equal by structure. With `map_free_vars` free variables may be others."""
    return _Comparison(map_free_vars).same(lhs, rhs)


class _Comparison:
    """Sizes are compared by their names, bound to each other where a function or a cast names them first."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.vars: tuple[dict[Var, Var], dict[Var, Var]] = {}, {}
        self.names: tuple[dict[str, str], dict[str, str]] = {}, {}
        self.defining = map_free_vars

    def same(self, a: Any, b: Any) -> bool:
        if isinstance(a, Var) and isinstance(b, Var):
            known = self.vars[0].get(a) is b and self.vars[1].get(b) is a
            is_new = a not in self.vars[0] and b not in self.vars[1]
            return known or (is_new and (a is b or (self.map_free_vars and self.bind(a, b))))
        if isinstance(a, IRModule) and isinstance(b, IRModule):
            return self.modules(a, b)
        if isinstance(a, GlobalVar) and isinstance(b, GlobalVar):
            return a.name_hint == b.name_hint
        if isinstance(a, (int, dims.SymbolicDim)) and isinstance(b, (int, dims.SymbolicDim)):
            return self.sizes(a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a.array.dtype == b.array.dtype and np.array_equal(a.array, b.array)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.dtype == b.dtype and np.array_equal(a, b)
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            return len(a) == len(b) and all(map(self.same, a, b))
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return a.keys() == b.keys() and all(self.same(a[key], b[key]) for key in a)
        if type(a) is not type(b):
            return False
        if isinstance(a, ExternFunc):
            return a.global_symbol == b.global_symbol
        if isinstance(a, (StructInfo, Condition)):
            fields: Any = type(a)
            return all(self.same(getattr(a, name), getattr(b, name)) for name in fields.__dataclass_fields__)
        if isinstance(a, Function):
            return self.functions(a, b)
        if isinstance(a, Binding):
            defines, self.defining = self.defining, True
            same = self.same(getattr(a, "struct_info", None), getattr(b, "struct_info", None))
            self.defining = defines
            if isinstance(a.value, Function):  # which may call itself
                return same and self.bind(a.var, b.var) and self.same(a.value, b.value)
            return same and self.same(a.value, b.value) and self.bind(a.var, b.var)
        if isinstance(a, SYNTAX):
            return all(self.same(getattr(a, name), getattr(b, name)) for name in a.parts)
        return bool(a == b)

    def bind(self, a: Var, b: Var) -> bool:
        if type(a) is not type(b) or not self.same(a.struct_info, b.struct_info):
            return False
        self.vars[0][a], self.vars[1][b] = b, a
        return True

    def functions(self, a: Function, b: Function) -> bool:
        if len(a.params) != len(b.params) or a.is_pure != b.is_pure or not self.same(a.attrs, b.attrs):
            return False
        outer, defines = self.names, self.defining
        self.names, self.defining = (dict(outer[0]), dict(outer[1])), True
        alike = all(map(self.bind, a.params, b.params))
        self.defining = defines
        alike = alike and self.same(a.body, b.body) and self.same(a.ret_struct_info, b.ret_struct_info)
        self.names = outer
        return alike

    def modules(self, a: IRModule, b: IRModule) -> bool:
        mine, other = a._functions, b._functions
        alike = mine.keys() == other.keys() and self.same(a.attrs, b.attrs) and a.global_infos == b.global_infos
        return alike and all(_Comparison(self.map_free_vars).same(mine[name], other[name]) for name in mine)

    def sizes(self, a: Any, b: Any) -> bool:
        if self.defining and dims.is_variable(a) and dims.is_variable(b):
            mine, other = str(a), str(b)
            if mine not in self.names[0] and other not in self.names[1]:
                self.names[0][mine], self.names[1][other] = other, mine
        known = {name: dims.variable(self.names[0].get(name, name)) for name in dims.variables(a)}
        return dims.substitute(a, known) == b


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A number that pieces of syntax which are equal have in common: their classes, in order."""
    if isinstance(node, IRModule):
        return hash(tuple((name, structural_hash(each)) for name, each in sorted(node._functions.items())))
    if isinstance(node, SYNTAX):
        return hash(
            (type(node).__name__, *(structural_hash(getattr(node, name)) for name in node.parts if name != "name_hint"))
        )
    if isinstance(node, (tuple, list)):
        return hash(tuple(map(structural_hash, node)))
    if isinstance(node, StructInfo):
        return hash(type(node).__name__)
    return hash(node) if isinstance(node, (str, int, float, bool)) else 0


def is_relax(value: Any) -> bool:
    """Whether a value is syntax of Relax, or a list of such."""
    if isinstance(value, (tuple, list)) and not isinstance(value, Node):
        return bool(value) and all(map(is_relax, value))
    return isinstance(value, (Node, Condition))
