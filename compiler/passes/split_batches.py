"""Keeps batch axes of matrices separate that exporters merge for a product, and split again after it.

    reshape(matmul(reshape(q), reshape(k)))    →  matmul(q, k)
    reshape(permute_dims(reshape(k)))          →  permute_dims(k)

of q[batch, heads, …] seen as [batch · heads, …]. Heads are then visible as transpositions of their projections, and scores have
the masks' axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ...formats.types import TensorType
from .. import ir
from ..operators.shapes import element_count, is_unknown
from ..operators.table import lookup
from .patterns import number_of
from .rewriting import Emitter, operator_call, order_of, rewriting, tensor_type


class _Splitter(Emitter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.whole: dict[ir.Atom, ir.Atom] = {}  # tensors by those with their first two axes merged
        self.results: set[ir.Atom] = set()  # of split products, and values computed from these
        self.definitions: dict[ir.Atom, ir.OperatorCall] = {}

    def call(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        var = binding.var
        if not all(map(_is_known, (var, *call.args))):
            return (binding,)
        self.begin(binding)
        self.definitions[var] = call
        if call.operator == "reshape":
            source = call.args[0]
            if source in self.whole and self.whole[source].type == var.type:  # type: ignore[union-attr]
                self.atoms[var] = self.whole[source]
                return ()
            if _is_merged(tensor_type(source), tensor_type(var)):
                self.whole[var] = source
            turned = self._turned(call, tensor_type(var))
            if turned is not None:
                self.atoms[var] = turned
                return self.new
            return (binding,)
        apart = self._apart(call)
        if apart is None:
            return (binding,)
        self.whole[var] = apart
        if call.operator not in ("permute_dims", "softmax"):
            self.results.add(var)
        merged = operator_call("reshape", apart, shape=tensor_type(var).shape)
        self.definitions.update((new.var, new.value) for new in self.new if isinstance(new.value, ir.OperatorCall))
        return *self.new, dataclasses.replace(binding, value=merged)

    def _apart(self, call: ir.OperatorCall) -> ir.Atom | None:
        """The call's result with its first two axes separate."""
        if call.operator == "matmul":
            made = self._product(call)
        elif call.operator == "permute_dims":
            made = self._transposition(call)
        elif call.operator == "softmax":
            made = self._softmax(call)
        elif call.operator in ("add", "multiply", "divide"):
            made = self._elementwise(call)
        else:
            made = None
        return made

    def _transposition(self, call: ir.OperatorCall) -> ir.Atom | None:
        """A transposition of matrices, perhaps after another one."""
        if call.args[0] not in self.whole or order_of(call) != (0, 2, 1):
            return None
        matrices = self.whole[call.args[0]]
        before = self.definitions.get(matrices)
        if before is None or before.operator != "permute_dims":
            return self.emit("permute_dims", matrices, axes=(0, 1, 3, 2))
        order = order_of(before)
        return self.emit("permute_dims", before.args[0], axes=(order[0], order[1], order[3], order[2]))

    def _turned(self, call: ir.OperatorCall, view: TensorType) -> ir.Atom | None:
        """A view that splits the batch axis of matrices again, after a merge that only served to transpose them."""
        turned = self.definitions.get(call.args[0])
        if turned is None or turned.operator != "permute_dims" or order_of(turned) != (0, 2, 1):
            return None
        merged = self.definitions.get(turned.args[0])
        rows, columns = tensor_type(call.args[0]).shape[1:]
        if merged is None or merged.operator != "reshape" or view.rank < 3 or view.shape[-2:] != (rows, columns):
            return None
        matrices = self.emit("reshape", merged.args[0], shape=(*view.shape[:-2], columns, rows))
        outer = range(view.rank - 2)
        return self.emit("permute_dims", matrices, axes=(*outer, view.rank - 1, view.rank - 2))

    def _product(self, call: ir.OperatorCall) -> ir.Atom | None:
        left, right = map(self._operand, call.args)
        if left is None and right is not None:
            left = self._beside(call.args[0], right)
        if right is None and left is not None:
            right = self._beside(call.args[1], left)
        if left is None or right is None or tensor_type(right).rank != 4:
            return None
        if tensor_type(left).shape[:2] != tensor_type(right).shape[:2]:
            return None
        return self.emit("matmul", left, right)

    def _operand(self, atom: ir.Atom) -> ir.Atom | None:
        """An operand of a product with its first two axes separate, perhaps scaled."""
        if atom in self.whole:
            return self.whole[atom]
        call = self.definitions.get(atom)
        if call is None or call.operator not in ("multiply", "divide"):
            return None
        for scaled, number in (call.args, call.args[::-1])[: 1 if call.operator == "divide" else 2]:
            if number_of(number) is not None and scaled in self.whole:
                return self.emit(call.operator, self.whole[scaled], number)
        return None

    def _softmax(self, call: ir.OperatorCall) -> ir.Atom | None:
        """A softmax of scores along rows, which may be split already."""
        (scores,) = call.args
        axis = lookup("softmax").bind(call.attributes)["axis"]
        if scores not in self.whole or axis not in (-1, 2):
            return None
        return self.emit("softmax", self.whole[scores], axis=-1)

    def _elementwise(self, call: ir.OperatorCall) -> ir.Atom | None:
        """An elementwise operator on a product's result and another operand of any shape, such as a mask."""
        if not any(arg in self.results for arg in call.args):
            return None
        scores = next(self.whole[arg] for arg in call.args if arg in self.results)
        first, second = (self._beside(arg, scores) for arg in call.args)
        if first is None or second is None:
            return None
        return self.emit(call.operator, first, second)

    def _beside(self, atom: ir.Atom, scores: ir.Atom) -> ir.Atom | None:
        """An operand as it broadcasts to scores with separate first two axes."""
        if atom in self.whole:
            return (
                self.whole[atom] if tensor_type(self.whole[atom]).shape[:2] == tensor_type(scores).shape[:2] else None
            )
        shape, batch = tensor_type(atom).shape, tensor_type(scores).shape[:2]
        if len(shape) < 3:
            return atom
        if len(shape) > 3 or shape[0] not in (1, element_count(batch)):
            return None
        return self.emit("reshape", atom, shape=(*((1, 1) if shape[0] == 1 else batch), *shape[1:]))


def _is_merged(source: TensorType, view: TensorType) -> bool:
    """Whether a view merges the first two axes of its source."""
    return (
        source.rank == 4
        and view.rank == 3
        and source.shape[2:] == view.shape[1:]
        and element_count(source.shape[:2]) == view.shape[0]
    )


def _is_known(atom: ir.Atom) -> bool:
    """Whether an atom is a tensor all whose dimensions are known or have names."""
    type_ = None if isinstance(atom, ir.GlobalRef) else atom.type
    return isinstance(type_, TensorType) and not any(map(is_unknown, type_.shape))


SplitBatches = rewriting("split_batches", _Splitter)
