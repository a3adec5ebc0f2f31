"""A module with fresh variables: nodes are immutable, so all that holds a variable is made anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.dims import Dim, SymbolicDim
from ...formats.types import Type, replace_dims
from .. import ir
from ..operators.shapes import substitute


def retype(
    module: ir.Module,
    types: Mapping[ir.Var, Type],
    results: Mapping[str, Type],
    closure_results: Mapping[ir.Function, Type],
    constants: Mapping[ir.Constant, ir.Constant],
) -> ir.Module:
    """The module with these types of variables, result types of global functions and of closures, and constants in the place of
    weak ones; the others stay."""
    rebuild = _Rebuilding(types, closure_results, constants)
    functions = {
        name: rebuild.function(function, results.get(name, function.result_type))
        for name, function in module.functions.items()
    }
    return dataclasses.replace(module, functions=functions)


def freshen(module: ir.Module) -> ir.Module:
    """The module with a variable of its own at every place that binds one."""
    return retype(module, {}, {}, {}, {})


class _Rebuilding:
    def __init__(
        self,
        types: Mapping[ir.Var, Type],
        closure_results: Mapping[ir.Function, Type],
        constants: Mapping[ir.Constant, ir.Constant],
    ) -> None:
        self.types = types
        self.constants = constants
        self.closure_results = closure_results
        self.fresh: dict[ir.Var, ir.Atom] = {}

    def function(self, function: ir.Function, result: Type | None) -> ir.Function:
        # which a function within may hide
        around = {var: self.fresh[var] for var in function.params if var in self.fresh}
        params = tuple(map(self.var, function.params))
        made = dataclasses.replace(function, params=params, body=self.block(function.body), result_type=result)
        self.fresh.update(around)
        return made

    def var(self, var: ir.Var) -> ir.Var:
        made = self.fresh[var] = ir.Var(var.name, self.types.get(var, var.type))
        return made

    def block(self, block: ir.Block) -> ir.Block:
        bindings = []
        for binding in block.bindings:
            value = self.expression(binding.value)
            bindings.append(ir.Binding(self.var(binding.var), value, binding.origin))
        return ir.Block(tuple(bindings), self.atom(block.result))

    def atom(self, atom: ir.Atom) -> ir.Atom:
        if isinstance(atom, ir.Constant) and atom.weak:
            return self.constants.get(atom) or (ir.Constant(atom.value) if self.types else atom)
        return self.fresh.get(atom, atom) if isinstance(atom, ir.Var) else atom

    def expression(self, expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Function):
            return self.function(expr, self.closure_results.get(expr, expr.result_type))
        if isinstance(expr, ir.Loop):
            expr = dataclasses.replace(expr, variables=tuple(map(self.var, expr.variables)))
        elif isinstance(expr, ir.Match):
            clauses = tuple((self.pattern(pattern), block) for pattern, block in expr.clauses)
            expr = dataclasses.replace(expr, clauses=clauses)
        return ir.map_atoms(expr, self.atom, self.block)

    def pattern(self, pattern: ir.Pattern) -> ir.Pattern:
        if isinstance(pattern, ir.Bind):
            return ir.Bind(self.var(pattern.var))
        if isinstance(pattern, (ir.ConstructorPattern, ir.TuplePattern)):
            return dataclasses.replace(pattern, fields=tuple(map(self.pattern, pattern.fields)))
        return pattern


def inlined(function: ir.Function, args: Sequence[ir.Atom], sizes: Mapping[str, Dim]) -> ir.Block:
    """A function's block with atoms for its parameters, and dimensions for the names of its sizes."""
    inlining = _Inlining(sizes)
    inlining.fresh.update(zip(function.params, args, strict=True))
    return inlining.block(function.body)


class _Inlining(_Rebuilding):
    def __init__(self, sizes: Mapping[str, Dim]) -> None:
        super().__init__({}, {}, {})
        self.sizes = dict(sizes)

    def var(self, var: ir.Var) -> ir.Var:
        type_ = None if var.type is None else replace_dims(var.type, self._size)
        made = self.fresh[var] = ir.Var(var.name, type_)
        return made

    def expression(self, expr: ir.Expr) -> ir.Expr:
        expr = super().expression(expr)
        if isinstance(expr, ir.OperatorCall):
            attributes = tuple((name, self._size(value)) for name, value in expr.attributes)
            return expr if attributes == expr.attributes else dataclasses.replace(expr, attributes=attributes)
        if isinstance(expr, ir.MatchShape):
            return dataclasses.replace(expr, shape=self._size(expr.shape))
        return expr

    def _size(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._size, value))
        return substitute(value, self.sizes) if isinstance(value, SymbolicDim) else value
