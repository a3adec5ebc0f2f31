"""Dead code: bindings that nothing uses, and functions that no entry point reaches."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ...formats.types import FunctionType
from .. import ir
from ..ir.analysis import atoms_in, expressions
from ..ir.effects import Effects


@dataclass(frozen=True)
class DeadCode:
    """`entries`: the functions that may be called from outside; if empty, all are kept."""

    entries: tuple[str, ...] = ()
    name: str = "dead_code"

    def __call__(self, module: ir.Module) -> ir.Module:
        effects = Effects(module)
        functions = {
            name: dataclasses.replace(function, body=_Sweep(effects).block(function.body))
            for name, function in module.functions.items()
        }
        if self.entries:
            live = _reachable(functions, self.entries)
            functions = {name: function for name, function in functions.items() if name in live}
            module = dataclasses.replace(module, imports=_called_imports(module, functions))
        return dataclasses.replace(module, functions=functions)


class _Sweep:
    """Walks blocks backwards and collects uses."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.used: set[ir.Atom] = set()

    def block(self, block: ir.Block) -> ir.Block:
        self.used.add(block.result)
        kept = []
        for binding in reversed(block.bindings):
            # a MatchShape is a check, and binds dimensions of types
            is_kept = isinstance(binding.value, ir.MatchShape) or self.effects.has(binding.value)
            if binding.var in self.used or is_kept:
                value = ir.map_atoms(binding.value, lambda atom: atom, self.block)
                self.used.update(ir.atoms_of(value))
                kept.append(binding if value is binding.value else dataclasses.replace(binding, value=value))
        return ir.Block(tuple(reversed(kept)), block.result)


def _called_imports(module: ir.Module, functions: dict[str, ir.Function]) -> dict[str, FunctionType]:
    bindings = (binding for function in functions.values() for binding in expressions(function.body))
    called = {binding.value.name for binding in bindings if isinstance(binding.value, ir.ImportCall)}
    return {name: type_ for name, type_ in module.imports.items() if name in called}


def _reachable(functions: dict[str, ir.Function], entries: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    pending = [name for name in entries if name in functions]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        body = functions[name].body
        pending += [atom.name for atom in atoms_in(body) if isinstance(atom, ir.GlobalRef)]
        pending += [b.value.function for b in expressions(body) if isinstance(b.value, ir.MakeClosure)]
    return found
