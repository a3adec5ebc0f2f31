"""What passes share: a walk that rebuilds a function binding by binding, with variables replaced on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, MutableMapping

from .. import ir


class Rewriter:
    """Rebuilds functions. A pass overrides `binding`, and notes in `atoms` which variables have become other atoms."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.atoms: MutableMapping[ir.Var, ir.Atom] = {}

    def run(self) -> ir.Module:
        functions = {name: self.function(function) for name, function in self.module.functions.items()}
        return dataclasses.replace(self.module, functions=functions)

    def function(self, function: ir.Function) -> ir.Function:
        return dataclasses.replace(function, body=self.block(function.body))

    def block(self, block: ir.Block) -> ir.Block:
        bindings: list[ir.Binding] = []
        for binding in block.bindings:
            bindings.extend(self.binding(binding))
        return ir.Block(tuple(bindings), self.atom(block.result))

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        """What a binding becomes: its operands have been replaced, its blocks rebuilt."""
        return (self.with_new_operands(binding),)

    def with_new_operands(self, binding: ir.Binding) -> ir.Binding:
        if isinstance(binding.value, ir.OperatorCall) and not any(arg in self.atoms for arg in binding.value.args):
            return binding  # the common case, unchanged
        return dataclasses.replace(binding, value=ir.map_atoms(binding.value, self.atom, self.block))

    def atom(self, atom: ir.Atom) -> ir.Atom:
        while isinstance(atom, ir.Var) and atom in self.atoms:
            atom = self.atoms[atom]
        return atom
