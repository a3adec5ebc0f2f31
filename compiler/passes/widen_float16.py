"""Arithmetic on float16, and on the other floats that are narrower than float32, is done in float32: CPUs convert vectors of the
one to the other, and calculate with the other.

What operators compute is rounded to such a type only where something else than an operator takes it: a caller, a loop, a data
value. In between it keeps the bits that it has, which is faster, and nearer to the true result. Where a program itself
converts to one from another type, it is rounded.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Iterable
from dataclasses import dataclass

from ...formats.dtypes import DType
from ...formats.types import TensorType, TupleType, Type
from .. import ir
from ..operators.table import Fusion, lookup
from ..weights import computed
from .rewriting import Emitter, operator_call, tensor_type

# These only carry elements from place to place: narrow ones, unless all have been computed. What is joined to a cache of
# keys is rounded, rather than that the cache is converted to and fro.
_CARRIERS = frozenset({Fusion.MOVEMENT, Fusion.VIEW})


@dataclass(frozen=True)
class WidenFloat16:
    name: str = "widen_float16"

    def __call__(self, module: ir.Module) -> ir.Module:
        return _Widener(module).run()


class _Widener(Emitter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.wide: ChainMap[ir.Atom, ir.Atom] = ChainMap()  # by what is narrow, the same as float32
        self.constants: dict[ir.Atom, ir.Constant] = {}  # also
        self.computed: set[ir.Atom] = set()  # what has been computed as float32
        self.fields: dict[ir.Atom, tuple[ir.Var, ...]] = {}  # of tuples that operators give

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
        """Whether it is given float32 in place of narrower floats."""
        if call.operator in ("cast", "bitcast"):
            return False  # they take what is rounded
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
        """Binds `var` to a value that has float32 where the variable's type is narrower, rounded."""
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
    """Whether it converts to the type that its operand has."""
    call = binding.value
    if not isinstance(call, ir.OperatorCall) or call.operator != "cast":
        return False
    return tensor_type(call.args[0]).dtype is tensor_type(binding.var).dtype


def _is_widening(binding: ir.Binding) -> bool:
    """Whether it converts a narrower float to float32."""
    call = binding.value
    if not isinstance(call, ir.OperatorCall) or call.operator != "cast":
        return False
    return _is_half(tensor_type(call.args[0])) and tensor_type(binding.var).dtype is DType.float32
