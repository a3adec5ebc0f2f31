"""Common subexpression elimination within a block and the blocks around it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable, Iterable

from ...formats.primitive import exactly
from .. import ir
from ..ir.effects import Effects
from .rewriting import Rewriter, rewriting

_SMALL_BYTES = 64  # constants up to this size are compared by value


class _Eliminator(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.effects = Effects(module)
        self.known: ChainMap[Hashable, ir.Var] = ChainMap()

    def block(self, block: ir.Block) -> ir.Block:
        self.known = self.known.new_child()
        result = super().block(block)
        self.known = self.known.parents
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        identity = None if self.effects.has(binding.value) else _identity(binding.value)
        if identity is None:
            return (binding,)
        key = (*identity, binding.var.type)
        earlier = self.known.get(key)
        if earlier is None:
            self.known[key] = binding.var
            return (binding,)
        self.atoms[binding.var] = earlier
        return ()


def _identity(expr: ir.Expr) -> tuple[Hashable, ...] | None:
    """A key, equal for expressions of equal values; None for those that are not compared, since they contain blocks."""
    atoms = tuple(map(_atom_identity, ir.atoms_of(expr)))
    if isinstance(expr, ir.OperatorCall):
        return expr.operator, exactly(expr.attributes), atoms
    if isinstance(expr, ir.PrimitiveCall):
        return expr.definition, atoms
    if isinstance(expr, ir.Call):
        return ir.Call, atoms
    if isinstance(expr, ir.MakeTuple):
        return ir.MakeTuple, atoms
    if isinstance(expr, ir.GetItem):
        return ir.GetItem, expr.index, atoms
    if isinstance(expr, ir.Construct):
        return ir.Construct, expr.data_type, expr.constructor, atoms
    if isinstance(expr, ir.MakeClosure):
        return ir.MakeClosure, expr.function, atoms
    return None


def _atom_identity(atom: ir.Atom) -> Hashable:
    if isinstance(atom, ir.GlobalRef):
        return atom.name
    if isinstance(atom, ir.Constant) and not isinstance(atom, ir.Weight) and atom.array.nbytes <= _SMALL_BYTES:
        return atom.array.dtype.str, atom.array.shape, atom.value.tobytes()
    return atom


CommonSubexpressions = rewriting("common_subexpressions", _Eliminator)
