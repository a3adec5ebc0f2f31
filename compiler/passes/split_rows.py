"""Keeps row axes separate that exporters merge for a product, and split again after it.

    reshape(gelu(matmul(reshape(x), w) + b))    →  gelu(matmul(x, w) + b)

of x[batch, token, …] seen as [batch · token, …]. Operators after the view then join the product's kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...formats.types import TensorType
from .. import ir
from ..operators.shapes import element_count, is_unknown
from ..operators.table import Fusion, lookup
from .rewriting import Emitter, rewriting, tensor_type

_Outer = tuple  # the dimensions that rows have


class _Splitter(Emitter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.definitions: dict[ir.Atom, ir.OperatorCall] = {}

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        var = binding.var
        self.definitions[var] = call
        if call.operator != "reshape" or not _parts_rows(tensor_type(call.args[0]), tensor_type(var)):
            return (binding,)
        self.begin(binding)
        apart = self._apart(call.args[0], tensor_type(var).shape[:-1])
        if apart is None:
            return (binding,)
        self.atoms[var] = apart
        self.definitions.update((new.var, new.value) for new in self.new if isinstance(new.value, ir.OperatorCall))
        return self.new

    def _apart(self, atom: ir.Atom, outer: _Outer) -> ir.Atom | None:
        """A product, or an elementwise function of one, with separate rows; None for anything else, and for one that is
        also used with merged rows."""
        call = self.definitions.get(atom)
        if call is None or self.uses[atom] != 1:
            return None
        if call.operator == "matmul":
            rows, matrix = call.args
            if tensor_type(matrix).rank != 2:
                return None
            return self.emit("matmul", self._apart(rows, outer) or self._view(rows, outer), matrix)
        if lookup(call.operator).fusion is not Fusion.ELEMENTWISE:
            return None
        operands = [self._apart(arg, outer) for arg in call.args]
        if not any(operands):
            return None
        count = tensor_type(atom).shape[0]
        beside = [
            made or (self._view(arg, outer) if _has_rows(tensor_type(arg), count) else arg)
            for made, arg in zip(operands, call.args, strict=True)
        ]
        return self.emit(call.operator, *beside, **lookup(call.operator).bind(call.attributes))

    def _view(self, atom: ir.Atom, outer: _Outer) -> ir.Atom:
        """The separate rows that a view merges, if it does."""
        shape = (*outer, tensor_type(atom).shape[-1])
        merged = self.definitions.get(atom)
        source = merged.args[0] if merged is not None and merged.operator == "reshape" else atom
        return source if tensor_type(source).shape == shape else self.emit("reshape", source, shape=shape)


def _parts_rows(source: TensorType, view: TensorType) -> bool:
    """Whether a view splits the rows of a matrix into several axes of the same total, also if there are no columns."""
    is_known = not any(map(is_unknown, (*source.shape, *view.shape)))
    if not is_known or not source.rank == 2 < view.rank or source.shape[-1] != view.shape[-1]:
        return False
    rows, columns = source.shape
    return (isinstance(columns, int) and columns > 0) or element_count(view.shape[:-1]) == rows


def _has_rows(type_: TensorType, count: object) -> bool:
    return type_.rank == 2 and type_.shape[0] == count


SplitRows = rewriting("split_rows", _Splitter)
