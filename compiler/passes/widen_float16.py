"""Arithmetic on float16, and on the other floats narrower than float32, is done in float32: CPUs convert vectors of the
narrow type, and compute in the wide one.

Results are rounded to the narrow type only where they leave operators: for a caller, a loop, a data
value. In between they keep their precision, which is faster and more accurate. If a program itself
converts from another type, the value is rounded.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Iterable

from ...formats.dtypes import DType
from ...formats.types import TensorType, TupleType, Type
from .. import ir
from ..named_weights import computed
from ..operators.table import Fusion, lookup
from .rewriting import Emitter, operator_call, rewriting, tensor_type

# These only move elements: narrow ones, unless all have been computed. New entries of a cache of
# keys are rounded, so that the cache is not converted back and forth.
_CARRIERS = frozenset({Fusion.MOVEMENT, Fusion.VIEW})


class _Widener(Emitter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.wide: ChainMap[ir.Atom, ir.Atom] = ChainMap()  # narrow atoms to the same as float32
        self.constants: dict[ir.Atom, ir.Constant] = {}  # also
        self.computed: set[ir.Atom] = set()  # atoms computed as float32
        self.fields: dict[ir.Atom, tuple[ir.Var, ...]] = {}  # of operators' tuple results

    def block(self, block: ir.Block) -> ir.Block:
        self.wide = self.wide.new_child()
        result = super().block(block)
        self.wide = self.wide.parents
        return result

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        value, var = binding.value, binding.var
        self.begin(binding)
        if isinstance(value, ir.GetItem) and value.tuple in self.fields:
            self.atoms[var] = self.fields[value.tuple][value.index]
        elif _changes_nothing(binding):
            self.atoms[var] = value.args[0]  # type: ignore[union-attr]
        elif _is_widening(binding):
            self.atoms[var] = self._widened(value.args[0])  # type: ignore[union-attr]
        elif isinstance(value, ir.OperatorCall) and self._takes_wide(value):
            self._compute(var, dataclasses.replace(value, args=tuple(map(self._widened, value.args))))
        else:
            return (binding,)
        return self.new

    def _takes_wide(self, call: ir.OperatorCall) -> bool:
        """Whether the call takes float32 in place of narrower floats."""
        if call.operator in ("cast", "bitcast"):
            return False  # they take rounded values
        halves = [arg for arg in call.args if _is_half(tensor_type(arg))]
        if lookup(call.operator).fusion in _CARRIERS:
            variables = [arg for arg in halves if not isinstance(arg, ir.Constant)]
            return bool(variables) and self.computed.issuperset(variables)
        return bool(halves)

    def _widened(self, atom: ir.Atom) -> ir.Atom:
        if not _is_half(tensor_type(atom)):
            return atom
        if isinstance(atom, ir.Constant):
            if atom not in self.constants:
                self.constants[atom] = computed("cast", atom, dtype=DType.float32)
            return self.constants[atom]
        if atom not in self.wide:
            self.wide[atom] = self.emit("cast", atom, dtype=DType.float32)
        return self.wide[atom]

    def _compute(self, var: ir.Var, value: ir.Expr) -> None:
        """Binds `var` to a float32 value, rounded to the variable's narrower type."""
        if isinstance(var.type, TupleType):
            whole = self.bind(value, TupleType(tuple(map(_wide_type, var.type.fields))), var.name)
            self.fields[var] = tuple(ir.Var(var.name, field) for field in var.type.fields)
            for index, field in enumerate(self.fields[var]):
                self._compute(field, ir.GetItem(whole, index))
            value = ir.MakeTuple(self.fields[var])
        elif isinstance(var.type, TensorType) and _is_half(var.type):
            self.computed.add(var)
            self.wide[var] = self.bind(value, _wide_type(var.type), var.name)
            value = operator_call("cast", self.wide[var], dtype=var.type.dtype)
        self.new.append(ir.Binding(var, value, self.origin))


def _is_half(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.is_float and type_.dtype.computed is not type_.dtype


def _wide_type(type_: Type) -> Type:
    return TensorType(DType.float32, type_.shape) if isinstance(type_, TensorType) and _is_half(type_) else type_


def _changes_nothing(binding: ir.Binding) -> bool:
    """Whether the call converts to its operand's own type."""
    call = binding.value
    if not isinstance(call, ir.OperatorCall) or call.operator != "cast":
        return False
    return tensor_type(call.args[0]).dtype is tensor_type(binding.var).dtype


def _is_widening(binding: ir.Binding) -> bool:
    """Whether the call converts a narrower float to float32."""
    call = binding.value
    if not isinstance(call, ir.OperatorCall) or call.operator != "cast":
        return False
    return _is_half(tensor_type(call.args[0])) and tensor_type(binding.var).dtype is DType.float32


WidenFloat16 = rewriting("widen_float16", _Widener)
