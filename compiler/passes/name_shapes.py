"""Every unknown dimension that a kernel needs gets a name.

A kernel is compiled for shapes that are expressions over variables; a tensor whose type says ? is given to one behind a
`MatchShape` that binds a new variable to that dimension. Where the operator cannot be typed with names (two unknown shapes that
may or may not broadcast), it stays as it is, and will run as a host operator.

What an operator finds in its operand is counted first, so that the size of its result has a name as well, and a kernel may put
there what is found.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.errors import InferenceError
from ...formats.types import UNKNOWN, TensorType, TupleType, Type
from .. import ir
from ..analysis import dimension_uses
from ..operators.table import lookup
from .rewriting import Emitter, constant, tensor_type

# Operators whose results are as large as what they find in their operand: how an element that counts compares with 0, and the
# operator that is told their number.
_COUNTED = {"nonzero": ("not_equal", "counted_nonzero"), "listed_boxes": ("greater_equal", "counted_boxes")}


@dataclass(frozen=True)
class NameShapes:
    name: str = "name_shapes"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Namer(module).run()


class _Namer(Emitter):
    def function(self, function: ir.Function) -> ir.Function:
        used = set(dimension_uses(ir.Binding(ir.Var(""), function)))
        self.names = (name for number in itertools.count() if (name := f"s{number}") not in used)
        return super().function(function)

    def block(self, block: ir.Block) -> ir.Block:
        outer = self.atoms
        self.atoms = ChainMap({}, outer)  # a name is known in the block where it is given
        result = super().block(block)
        self.atoms = outer
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        call = binding.value
        if (
            isinstance(call, ir.OperatorCall)
            and call.operator in _COUNTED
            and not _has_unknown(tensor_type(call.args[0]))
        ):
            return self._counted(binding, call)
        if not isinstance(call, ir.OperatorCall) or not self._is_unknown(call, binding.var.type):
            return (binding,)
        named = {arg: self._name(arg) for arg in call.args if isinstance(arg, ir.Var) and _has_unknown(arg.type)}
        args = tuple(named[arg].var if arg in named else arg for arg in call.args)
        try:
            results = lookup(call.operator).result_types([arg.type for arg in args], call.attributes)  # type: ignore[union-attr,misc]
        except InferenceError:
            return (binding,)
        if any(map(_has_unknown, results)):
            return (binding,)
        var = ir.Var(binding.var.name, results[0] if isinstance(binding.var.type, TensorType) else TupleType(results))
        self.atoms.update({arg: found.var for arg, found in named.items()})
        self.atoms[binding.var] = var
        return (*named.values(), ir.Binding(var, dataclasses.replace(call, args=args), binding.origin))

    def _counted(self, binding: ir.Binding, call: ir.OperatorCall) -> Iterable[ir.Binding]:
        """The number of what an operator finds, a dimension of that size, and the operator that is told it."""
        (x,), (comparison, operator) = call.args, _COUNTED[call.operator]
        self.begin(binding)
        if tensor_type(x).dtype is not DType.bool:
            x = self.emit(comparison, x, constant(np.zeros((), tensor_type(x).dtype.numpy)))
        number = self.emit("sum", self.emit("cast", x, dtype=DType.int64))
        size = self._name(self.emit("extent", number))
        found = self.emit(operator, *call.args, count=tensor_type(size.var).shape[0])
        self.atoms[binding.var] = found
        return (*self.new[:-1], size, self.new[-1])

    def _is_unknown(self, call: ir.OperatorCall, type_: Type | None) -> bool:
        parts = type_.fields if isinstance(type_, TupleType) else (type_,)
        args = (arg.type for arg in call.args if isinstance(arg, ir.Var))
        return not lookup(call.operator).data_dependent and any(map(_has_unknown, (*parts, *args)))

    def _name(self, var: ir.Var) -> ir.Binding:
        """The same tensor with a new name for each unknown dimension."""
        assert isinstance(var.type, TensorType)
        shape = tuple(dims.variable(next(self.names)) if dim is UNKNOWN else dim for dim in var.type.shape)
        named = ir.Var(var.name, TensorType(var.type.dtype, shape))
        return ir.Binding(named, ir.MatchShape(var, shape))


def _has_unknown(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and UNKNOWN in type_.shape
