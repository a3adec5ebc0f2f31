"""Algebraic simplification: rules that replace an expression by a cheaper one of the same value.

The rules are a table by operator. Each takes the rewriter and the call, and returns an atom, another expression, or
None if it does not apply. A sum with 0 is its other term, also if that is -0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Union

import numpy as np

from ...formats.dtypes import DType
from ...formats.types import UNKNOWN, TensorType, Type
from .. import ir
from ..operators.table import Fusion, lookup
from .rewriting import Rewriter, operator_call, rewriting

_Rule = Callable[["_Simplifier", ir.OperatorCall, TensorType], Union[ir.Expr, None]]


class _Simplifier(Rewriter):
    def __init__(self, module: ir.Module) -> None:
        super().__init__(module)
        self.definitions: dict[ir.Var, ir.Expr] = {}

    def binding(self, binding: ir.Binding) -> Iterable[ir.Binding]:
        binding = self.with_new_operands(binding)
        expr: ir.Expr | None = binding.value
        while (simpler := self._simplify(expr, binding.var.type)) is not None:  # type: ignore[arg-type]
            expr = simpler
        if isinstance(expr, (ir.Var, ir.Constant, ir.GlobalRef)):
            self.atoms[binding.var] = expr
            return ()
        if isinstance(expr, ir.If) and isinstance(expr.condition, ir.Constant):
            taken = expr.then if expr.condition.value.item() else expr.otherwise
            self.atoms[binding.var] = taken.result
            return taken.bindings
        self.definitions[binding.var] = expr  # type: ignore[assignment]
        return (binding if expr is binding.value else ir.Binding(binding.var, expr, binding.origin),)  # type: ignore[arg-type]

    def _simplify(self, expr: ir.Expr, type_: Type | None) -> ir.Expr | None:
        if isinstance(expr, ir.OperatorCall) and isinstance(type_, TensorType):
            rule = _view if lookup(expr.operator).fusion is Fusion.VIEW else RULES.get(expr.operator)
            return rule(self, expr, type_) if rule is not None else None
        if isinstance(expr, ir.GetItem):
            made = self.definition(expr.tuple)
            return made.fields[expr.index] if isinstance(made, ir.MakeTuple) else None
        if isinstance(expr, ir.MatchShape):
            known = type_of(expr.value)
            return expr.value if known == type_ and UNKNOWN not in expr.shape and _is_static(known) else None
        return None

    def definition(self, atom: ir.Atom) -> ir.Expr | None:
        return self.definitions.get(atom) if isinstance(atom, ir.Var) else None

    def operand(self, atom: ir.Atom, operator: str) -> ir.OperatorCall | None:
        """The call that `atom` is the result of, if it is one of `operator`."""
        made = self.definition(atom)
        return made if isinstance(made, ir.OperatorCall) and made.operator == operator else None


def type_of(atom: ir.Atom) -> Type | None:
    return None if isinstance(atom, ir.GlobalRef) else atom.type


def _is_static(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and type_.is_static


def _attributes(call: ir.OperatorCall) -> dict:
    return lookup(call.operator).bind(call.attributes)


# ---- rules ----


def _neutral(value: float, both_sides: bool) -> _Rule:
    """`x op value` is x, and `value op x` too where the operator commutes."""

    def rule(_: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
        left, right = call.args
        if type_of(left) == type_ and _is_filled_with(right, value):
            return left
        if both_sides and type_of(right) == type_ and _is_filled_with(left, value):
            return right
        return None

    return rule


def _is_filled_with(atom: ir.Atom, value: float) -> bool:
    """Whether an atom is a constant filled with `value`; named weights of several elements, which may change, never are."""
    if not isinstance(atom, ir.Constant) or (isinstance(atom, ir.Weight) and atom.array.size > 1):
        return False
    return atom.array.size > 0 and bool(np.all(atom.value == value))


def _involution(simplifier: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    inner = simplifier.operand(call.args[0], call.operator)
    return inner.args[0] if inner is not None else None


def _identity(_: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    return call.args[0]


def _cast(simplifier: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    source = call.args[0]
    source_type = type_of(source)
    if source_type == type_:
        return source
    inner = simplifier.operand(source, "cast")
    if inner is None or not isinstance(source_type, TensorType):
        return None
    first = type_of(inner.args[0])
    if isinstance(first, TensorType) and _keeps_values(first.dtype, source_type.dtype):
        return ir.OperatorCall("cast", inner.args, call.attributes)
    return None


def _keeps_values(source: DType, target: DType) -> bool:
    return bool(np.can_cast(source.numpy, target.numpy, casting="safe")) and target is not DType.bool


def _slice(_: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    """A slice as large as its operand is the operand, unless it reverses an axis."""
    is_forward = all(step > 0 for step in _attributes(call)["steps"] or ())
    return call.args[0] if is_forward and type_of(call.args[0]) == type_ and UNKNOWN not in type_.shape else None


def _permute(simplifier: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    source = call.args[0]
    order = _order(call, type_.rank)
    inner = simplifier.operand(source, "permute_dims")
    if inner is not None:
        first = _order(inner, type_.rank)
        return _permute_call(inner.args[0], [first[axis] for axis in order])
    if list(order) == list(range(type_.rank)):
        return source
    shape = type_of(source).shape  # type: ignore[union-attr]
    long = [axis for axis in order if shape[axis] != 1]
    if long == sorted(long) and UNKNOWN not in type_.shape:  # only axes of one element move
        return operator_call("reshape", source, shape=type_.shape)
    return None


def _order(call: ir.OperatorCall, rank: int) -> Sequence[int]:
    axes = _attributes(call)["axes"]
    return range(rank - 1, -1, -1) if axes is None else [axis % rank for axis in axes]


def _permute_call(source: ir.Atom, order: Sequence[int]) -> ir.OperatorCall:
    return operator_call("permute_dims", source, axes=tuple(order))


def _view(simplifier: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    """A view of a view is one view; one that changes nothing is removed. Shape [?] may differ from shape [?]."""
    if UNKNOWN in type_.shape:
        return None
    if type_of(call.args[0]) == type_:
        return call.args[0]
    inner = simplifier.definition(call.args[0])
    if isinstance(inner, ir.OperatorCall) and lookup(inner.operator).fusion is Fusion.VIEW:
        return operator_call("reshape", *inner.args, shape=type_.shape)
    return None


def _single(_: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    return call.args[0] if len(call.args) == 1 else None


def _padded(simplifier: _Simplifier, call: ir.OperatorCall, type_: TensorType) -> ir.Expr | None:
    """A convolution of a zero-padded image takes the padding as its own."""
    pad = simplifier.operand(call.args[0], "pad")
    if pad is None:
        return None
    around, attributes = _attributes(pad), _attributes(call)
    pads, rank = around["pads"], type_.rank
    own = attributes["pads"] or (0,) * (2 * (rank - 2))
    is_known = all(isinstance(size, int) and size >= 0 for size in (*pads, *own))
    if around["mode"] != "constant" or around["value"] != 0 or not is_known:
        return None
    if any((*pads[:2], *pads[rank : rank + 2])):
        return None
    attributes["pads"] = tuple(a + b for a, b in zip(own, (*pads[2:rank], *pads[rank + 2 :]), strict=True))
    return operator_call("conv", pad.args[0], *call.args[1:], **attributes)


RULES: dict[str, _Rule] = {
    "add": _neutral(0, both_sides=True),
    "subtract": _neutral(0, both_sides=False),
    "multiply": _neutral(1, both_sides=True),
    "divide": _neutral(1, both_sides=False),
    "pow": _neutral(1, both_sides=False),
    "logical_and": _neutral(True, both_sides=True),
    "logical_or": _neutral(False, both_sides=True),
    "bitwise_or": _neutral(0, both_sides=True),
    "bitwise_xor": _neutral(0, both_sides=True),
    "negative": _involution,
    "logical_not": _involution,
    "bitwise_invert": _involution,
    "identity": _identity,
    "cast": _cast,
    "permute_dims": _permute,
    "broadcast_to": lambda _, call, type_: (
        call.args[0] if type_of(call.args[0]) == type_ and UNKNOWN not in type_.shape else None
    ),
    "concat": _single,
    "conv": _padded,
    "slice": _slice,
}


Simplify = rewriting("simplify", _Simplifier)
