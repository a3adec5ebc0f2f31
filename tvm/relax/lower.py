"""From Relax to Treadle's IR: a binding of an operator is an operator's call, or several where Relax's says more.

What has no type of Treadle's (objects, shapes and numbers as values, tensors of unknown rank, closures of globals) raises
UntypedError; such modules are run by the Relax machine (`codegen.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ...compiler import ir
from ...compiler.builder.anf import normalize
from ...compiler.builder.programs import Expression
from ...compiler.operators import TABLE
from ...formats.messages.errors import CompileError
from ...formats.types import UNKNOWN, FunctionType, TensorType, TupleType, Type
from ..relay.op.table import naming_dims
from . import expr
from .expr import OPERATOR_CALLS, Call, Constant, Function, GlobalVar, Op, SeqExpr, Var, bindings_of
from .op.calls import Treadles
from .packed import DPS, PACKED
from .struct_info import FuncStructInfo, TensorStructInfo, TupleStructInfo, known_type

PACKED_OPERATORS = ("relax.call_pure_packed",)


class UntypedError(CompileError):
    """A value of which Treadle's types cannot say what it is."""


def lowered(given: Mapping[str, Any]) -> ir.Module:
    """Treadle's module of functions by name. Raises UntypedError, InferenceError."""
    lowering = _Lowering(given)
    with naming_dims():
        functions = {
            name: lowering.function(name, function)
            for name, function in given.items()
            if isinstance(function, Function)
        }
    public = [name for name, each in given.items() if "global_symbol" in each.attrs and name in functions]
    entries = tuple(public) if len(public) < len(functions) else ()
    return ir.Module(functions, {}, lowering.imports, entries)


class _Lowering:
    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.imports: dict[str, FunctionType] = {}
        self.atoms: dict[Var, ir.Atom] = {}
        self.nested: dict[Var, Function] = {}  # functions that are not values yet
        self.bindings: list[ir.Binding] = []
        self.constants: dict[int, ir.Constant] = {}
        self.function_name = ""

    def untyped(self, value: Any, what: str = "") -> Any:
        """Raises UntypedError."""
        name = getattr(value, "name_hint", "") or str(value).splitlines()[-1][:80]
        raise UntypedError(
            f"{self.function_name}: {name}: {what or getattr(value, 'struct_info', '')} has no type of Treadle's"
        )

    def type(self, value: Any) -> Type:
        found = known_type(value.struct_info)
        return found if found is not None else self.untyped(value)

    # ---- functions and bodies ----

    def function(self, name: str, function: Function, is_nested: bool = False) -> ir.Function:
        if not is_nested:
            self.function_name = name
            for param in function.params if "global_symbol" in function.attrs else ():
                if isinstance(param.struct_info, FuncStructInfo):
                    self.untyped(param, "a function that a caller gives")
        params = tuple(ir.Var(param.name_hint, self.type(param)) for param in function.params)
        self.atoms.update(zip(function.params, params, strict=True))
        body = self.block(function.body)
        self.type(function.body.body)
        results = function.result_names
        return ir.Function(params, body, None, name, result_names=results)

    def block(self, body: SeqExpr) -> ir.Block:
        outer, self.bindings = self.bindings, []
        for binding in bindings_of(body):
            self.binding(binding)
        result = self.atom(body.body)
        made, self.bindings = ir.Block(tuple(self.bindings), result), outer
        return made

    def binding(self, binding: Any) -> None:
        var, value = binding.var, binding.value
        if isinstance(binding, expr.MatchCast):
            self.cast(binding)
        elif isinstance(value, Function):
            self.nested[var] = value
        elif isinstance(value, (Var, Constant, GlobalVar)):
            self.atoms[var] = self.bound(self.atom(value), var)
        else:
            self.atoms[var] = self.value(value, var)

    def cast(self, binding: expr.MatchCast) -> None:
        info: Any = binding.struct_info
        own: Any = binding.value.struct_info
        if not isinstance(info, TensorStructInfo) or not isinstance(own, TensorStructInfo) or info.sizes is None:
            self.untyped(binding.var, f"a cast of {own} to {info}")
        if own.dtype != info.dtype or own.ndim != info.ndim:
            self.untyped(binding.value)
        atom = self.atom(binding.value)
        self.atoms[binding.var] = self.bound(ir.MatchShape(atom, info.sizes), binding.var)

    def bound(self, value: ir.Expr, var: Var | None, name: str = "value") -> ir.Var:
        made = ir.Var(var.name_hint if var is not None else name)
        self.bindings.append(ir.Binding(made, value, getattr(var, "origin", "")))
        return made

    # ---- values ----

    def atom(self, value: Any) -> ir.Atom:
        if isinstance(value, Var):
            if value in self.nested and value not in self.atoms:
                function = self.nested[value]
                self.atoms[value] = self.bound(self.function(value.name_hint, function, is_nested=True), value)
            if value not in self.atoms:
                self.untyped(value, "what is not bound before")
            return self.atoms[value]
        if isinstance(value, Constant):
            if id(value) not in self.constants:
                self.constants[id(value)] = ir.Constant(ir.nodes.frozen(value.data.array))
            return self.constants[id(value)]
        if isinstance(value, GlobalVar):
            if not isinstance(self.given.get(value.name_hint), Function):
                self.untyped(value, "a registered function as a value")
            return ir.GlobalRef(value.name_hint)
        if isinstance(value, (expr.Tuple, expr.TupleGetItem, Call, expr.If)):
            return self.value(value, None)
        return self.untyped(value)

    def expression(self, value: Any) -> Expression:
        """An operand of an operator, whose type is known."""
        return Expression(atom=self.atom(value), type=self.type(value))

    def value(self, value: Any, var: Var | None) -> ir.Atom:
        if isinstance(value, expr.Tuple):
            return self.bound(ir.MakeTuple(tuple(map(self.atom, value.fields))), var, "tuple")
        if isinstance(value, expr.TupleGetItem):
            return self.bound(ir.GetItem(self.atom(value.tuple_value), value.index), var, "item")
        if isinstance(value, expr.If):
            condition = self.atom(value.cond)
            branches = self.block(value.true_branch), self.block(value.false_branch)
            self.type(value)
            return self.bound(ir.If(condition, *branches), var)
        if isinstance(value, Call):
            return self.call(value, var)
        if isinstance(value, SeqExpr):
            for binding in bindings_of(value):
                self.binding(binding)
            return self.atom(value.body)
        return self.untyped(value)

    def call(self, value: Call, var: Var | None) -> ir.Atom:
        op = value.op
        if isinstance(op, expr.ExternFunc):
            return self.packed(PACKED, op, value.args, value, var)
        if not isinstance(op, Op):
            info = op.struct_info
            if not isinstance(info, FuncStructInfo) or not (known_type(info) is not None or isinstance(op, GlobalVar)):
                self.untyped(op)
            self.type(value)
            return self.bound(ir.Call(self.atom(op), tuple(map(self.atom, value.args))), var)
        if op.name in PACKED_OPERATORS:
            return self.packed(PACKED, value.args[0], value.args[1:], value, var)
        if op.name == "relax.call_dps_packed":
            operands = value.args[1]
            if not isinstance(operands, expr.Tuple):
                self.untyped(operands, "arguments in a variable")
            return self.packed(DPS, value.args[0], operands.fields, value, var)
        if op.name == "relax.treadle.loop":
            return self.loop(value, var)
        row = OPERATOR_CALLS[op.name.removeprefix("relax.")]
        if isinstance(row, Treadles):
            atoms = tuple(map(self.atom, value.args))
            name = row.__name__
            return self.bound(ir.OperatorCall(name, atoms, TABLE[name].canonical(value.attrs)), var)
        if row.body is None or any(isinstance(each, Var) and not _is_tensor(each) for each in value.args):
            self.untyped(value, f"relax.{row.name}")
        return self.spliced(row.lowered(value, self.expression), var)

    def spliced(self, made: Any, var: Var | None) -> ir.Atom:
        """The bindings of an expression of the builder, the last under the variable's name."""
        block = normalize(made)
        result = block.result
        for each in block.bindings:
            is_last = each.var is result and var is not None
            bound = ir.Var(var.name_hint) if is_last and var is not None else each.var
            self.bindings.append(dataclasses.replace(each, var=bound, origin=getattr(var, "origin", "")))
            result = bound if is_last else result
        return result

    def packed(self, manner: str, func: Any, args: Sequence[Any], value: Call, var: Var | None) -> ir.Atom:
        """The call of a registered function, whose import says how it is called and of which type it is."""
        if not isinstance(func, expr.ExternFunc):
            self.untyped(func, "a registered function in a variable")
        result = TupleType(()) if not value.sinfo_args and manner == PACKED else known_type(value.struct_info)
        types = tuple(map(self.type, args))
        if result is None or not _is_of_tensors(result):
            self.untyped(value)
        type_ = FunctionType(types, result)  # type: ignore[arg-type]
        name = f"{manner} {func.global_symbol} {type_}"
        self.imports[name] = type_
        return self.bound(ir.ImportCall(name, tuple(map(self.atom, args))), var)

    def loop(self, value: Call, var: Var | None) -> ir.Atom:
        condition, body = (self.nested[each] for each in value.args[:2])
        variables = tuple(ir.Var(param.name_hint, self.type(param)) for param in body.params)
        initial = tuple(map(self.atom, value.args[2].fields))
        blocks = []
        for each in (condition, body):
            self.atoms.update(zip(each.params, variables, strict=True))
            blocks.append(self.block(each.body))
        return self.bound(ir.Loop(variables, initial, *blocks), var)


def _is_tensor(value: Any) -> bool:
    return isinstance(value.struct_info, (TensorStructInfo, TupleStructInfo))


def _is_of_tensors(type_: Type) -> bool:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return all(
        _is_of_tensors(each)
        if isinstance(each, TupleType)
        else isinstance(each, TensorType) and UNKNOWN not in each.shape
        for each in fields
    )
