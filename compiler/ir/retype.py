"""A module with fresh variables: nodes are immutable, so all that holds a variable is made anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...formats.types import Type
from .. import ir


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
        self.fresh: dict[ir.Var, ir.Var] = {}

    def function(self, function: ir.Function, result: Type | None) -> ir.Function:
        around = {
            var: self.fresh[var] for var in function.params if var in self.fresh
        }  # which a function within may hide
        params = tuple(map(self.var, function.params))
        made = dataclasses.replace(function, params=params, body=self.block(function.body), result_type=result)
        self.fresh.update(around)
        return made

    def var(self, var: ir.Var) -> ir.Var:
        self.fresh[var] = ir.Var(var.name, self.types.get(var, var.type))
        return self.fresh[var]

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
