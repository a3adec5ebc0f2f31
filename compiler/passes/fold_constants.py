"""Constant folding, by the operators' reference implementations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...formats import limits
from ...formats.messages.errors import ExecutionError, InferenceError
from ...formats.primitive import PrimitiveDefinition
from ...formats.types import TensorType, TupleType
from .. import effort, ir
from ..ir.analysis import expressions
from ..named_weights import results_of
from ..operators.table import Fusion, Operator, lookup
from .rewriting import Rewriter, constant


@dataclass(frozen=True)
class FoldConstants:
    """A result is kept as a constant if `effort.may_fold` has room for it; `free_bytes` are always allowed,
    however small the inputs are."""

    free_bytes: int = limits.FOLDED_BYTES
    name: str = "fold_constants"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Folder(module, self).run()


class _Folder(Rewriter):
    def __init__(self, module: ir.Module, options: FoldConstants) -> None:
        super().__init__(module)
        self.options = options
        self.needed: set[ir.Atom] = set()  # atoms that operators other than elementwise ones use

    def function(self, function: ir.Function) -> ir.Function:
        self.needed = {function.body.result}
        for binding in expressions(function.body):
            if not _is_elementwise(binding.value):
                self.needed.update(ir.atoms_of(binding.value))
            self.needed.update(block.result for block in ir.blocks_of(binding.value))
        return super().function(function)

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        if binding.var not in self.needed and _is_elementwise(binding.value) and not binding.value.args:  # type: ignore[union-attr]
            return (binding,)  # filling registers is faster than reading memory
        results = self._evaluate(binding)
        if results is None:
            return (binding,)
        constants = tuple(results)
        if isinstance(binding.var.type, TupleType):
            return (ir.Binding(binding.var, ir.MakeTuple(constants), binding.origin),)
        self.atoms[binding.var] = constants[0]
        return ()

    def _evaluate(self, binding: ir.Binding) -> list[ir.Constant] | None:
        call = binding.value
        if not isinstance(call, ir.OperatorCall):
            return None
        if call.operator == "shape":
            shape = _static_shape(call)
            return None if shape is None else list(map(constant, shape))
        if not all(isinstance(arg, ir.Constant) for arg in call.args):
            return None
        values = tuple(value for _, value in call.attributes)
        if PrimitiveDefinition.variables_of((), values):
            return None
        arrays = [arg.array for arg in call.args if isinstance(arg, ir.Constant)]
        try:
            if not self._is_small(lookup(call.operator), call, arrays):
                return None
            return results_of(call, lookup(call.operator).evaluate(arrays, call.attributes))
        except (ExecutionError, InferenceError):
            return None  # it fails when, and if, the program reaches it

    def _is_small(self, operator: Operator, call: ir.OperatorCall, arrays: list[np.ndarray]) -> bool:
        inputs = [ir.Constant(array).type for array in arrays]
        types = operator.result_types(inputs, call.attributes)
        return effort.may_fold(operator, inputs, types, call.attributes, arrays, self.options.free_bytes)


def _is_elementwise(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.OperatorCall) and lookup(expr.operator).fusion is Fusion.ELEMENTWISE


def _static_shape(call: ir.OperatorCall) -> list[np.ndarray] | None:
    type_ = call.args[0].type if isinstance(call.args[0], (ir.Var, ir.Constant)) else None
    if not isinstance(type_, TensorType) or not type_.is_static:
        return None
    return [np.array(type_.shape, np.int64)]
