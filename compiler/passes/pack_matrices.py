"""Matrix products in the form that their kernel likes best: constant matrices packed into panels, transpositions of an
operand's last two axes done by the product itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from ...formats.dtypes import DType
from ...formats.types import TensorType
from .. import ir
from ..operators.table import lookup
from .rewriting import Rewriter


@dataclass(frozen=True)
class PackMatrices:
    name: str = "pack_matrices"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Packer(module).run()


class _Packer(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.permutations: dict[ir.Var, ir.OperatorCall] = {}
        self.panels: dict[ir.Constant, ir.Constant] = {}

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if not isinstance(call, ir.OperatorCall):
            return (binding,)
        if call.operator == "permute_dims":
            self.permutations[binding.var] = call
        if call.operator != "matmul" or any(_type(arg).dtype is not DType.float32 for arg in call.args):
            return (binding,)
        a, b = call.args
        if isinstance(b, ir.Constant) and b.value.ndim == 2 and _type(a).rank > 1:
            packed = ir.OperatorCall("matmul_packed", (a, self._packed(b)), (("columns", b.value.shape[1]),))
            return (dataclasses.replace(binding, value=packed),)
        return self._transposed(binding, a, b)

    def _packed(self, matrix: ir.Constant) -> ir.Constant:
        if matrix not in self.panels:
            (panels,) = lookup("pack_matrix").evaluate([matrix.value])
            panels.flags.writeable = False
            self.panels[matrix] = ir.Constant(panels)
        return self.panels[matrix]

    def _transposed(self, binding: ir.Binding, a: ir.Atom, b: ir.Atom) -> Iterable[ir.Binding]:
        if min(_type(a).rank, _type(b).rank) < 2:
            return (binding,)
        before: list[ir.Binding] = []
        operands, attributes = list[ir.Atom](), {}
        for name, operand in (("transpose_a", a), ("transpose_b", b)):
            source = self._untransposed(operand, binding.origin, before)
            attributes[name] = source is not None
            operands.append(operand if source is None else source)
        if not any(attributes.values()):
            return (binding,)
        entry = lookup("matmul_transposed")
        product = ir.OperatorCall(entry.name, tuple(operands), entry.canonical(attributes))
        return (*before, dataclasses.replace(binding, value=product))

    def _untransposed(self, operand: ir.Atom, origin: str, before: list[ir.Binding]) -> ir.Atom | None:
        """What the operand is with its last two axes exchanged, if that is less work; bindings it takes go to `before`."""
        call = self.permutations.get(operand) if isinstance(operand, ir.Var) else None
        if call is None:
            return None
        (x,) = call.args
        rank = _type(x).rank
        axes: tuple[int, ...] = tuple(dict(call.attributes).get("axes") or range(rank)[::-1])  # type: ignore[arg-type]
        axes = tuple(axis % rank for axis in axes)
        if rank < 2 or axes[-2] != rank - 1:
            return None
        axes = (*axes[:-2], axes[-1], axes[-2])
        if axes == tuple(range(rank)):
            return x
        entry = lookup("permute_dims")
        attributes = entry.canonical({"axes": axes})
        (type_,) = entry.result_types([_type(x)], attributes)
        var = ir.Var("permuted", type_)
        before.append(ir.Binding(var, ir.OperatorCall("permute_dims", (x,), attributes), origin))
        return var


def _type(atom: ir.Atom) -> TensorType:
    assert not isinstance(atom, ir.GlobalRef)
    assert isinstance(atom.type, TensorType)
    return atom.type
