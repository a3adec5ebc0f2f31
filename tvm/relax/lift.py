"""From Treadle's IR to Relax: a binding each, an operator under Relax's name where that lowers to the same call, else under
Treadle's (`R.treadle.…`). `lower.py` goes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...compiler import ir
from ...compiler.builder.anf import normalize
from ...compiler.builder.programs import Expression
from ...compiler.ir.infer import infer_types
from ...formats.messages.errors import TreadleError
from ...formats.types import FunctionType, TensorType
from . import expr
from .expr import OPERATOR_CALLS, Call, Function, GlobalVar, Op, SeqExpr, Var
from .op.calls import LOOP, UNTOLD
from .op.tensors import BINARY, OTHER_WORDS, REDUCTIONS, UNARY
from .packed import DPS, PACKED, registered_name
from .struct_info import ShapeExpr, TupleStructInfo, struct_info_of

Attributes = dict[str, Any]


def _shaped(args: list[Any], attrs: Attributes) -> tuple[list[Any], Attributes]:
    shape = attrs.pop("shape")
    return [*args, ShapeExpr(shape)], attrs


def _renamed(**names: str) -> Callable[..., Any]:
    return lambda args, attrs: (args, {names.get(name, name): value for name, value in attrs.items()})


def _conv(args: list[Any], attrs: Attributes) -> tuple[list[Any], Attributes]:
    """Raises ValueError for one with a bias, which Relax adds."""
    if len(args) != 2:
        raise ValueError("a bias")
    return args, {
        "strides": attrs["strides"],
        "padding": attrs["pads"],
        "dilation": attrs["dilations"],
        "groups": attrs["groups"],
    }


_SAME = _renamed()
# Treadle's operator → Relax's, and its arguments and attributes there
NAMES: dict[str, tuple[str, Callable[[list[Any], Attributes], tuple[list[Any], Attributes]]]] = {
    **{OTHER_WORDS.get(name, name): (name, _SAME) for name in (*UNARY, *BINARY)},
    **{name: (name, _renamed(axes="axis")) for name in (*REDUCTIONS, "expand_dims", "squeeze")},
    **{name: (f"nn.{name}", _SAME) for name in ("gelu", "log_softmax", "relu", "silu", "softmax")},
    **{name: (name, _shaped) for name in ("broadcast_to", "reshape")},
    **{name: (name, _SAME) for name in ("matmul", "permute_dims", "take", "where")},
    "cast": ("astype", _SAME),
    "conv": ("nn.conv{}d", _conv),
    "clip": ("clip", lambda args, attrs: ([*args, attrs["min"], attrs["max"]], {})),
    "concat": ("concat", lambda args, attrs: ([args], attrs)),
    "layer_normalization": (
        "nn.layer_norm",
        lambda args, attrs: (args, {"axes": list(range(attrs["axis"], 0)), "epsilon": attrs["epsilon"]}),
    ),
    "tile": ("tile", _renamed(repetitions="repeats")),
}


def lifted(module: ir.Module, params: Mapping[str, Sequence[Any]]) -> dict[str, Function]:
    """The functions of a program, by name."""
    typed = ir.Module(module.functions, module.data_types, module.imports, module.entries)
    if any(function.result_type is None for function in typed.functions.values()):
        typed = infer_types(typed)
    lifting = _Lifting(typed)
    return {name: lifting.function(name, each, params.get(name)) for name, each in typed.functions.items()}


class _Lifting:
    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.vars: dict[ir.Var, Any] = {}
        self.constants: dict[int, expr.Constant] = {}

    def function(self, name: str, function: ir.Function, weights: Sequence[Any] | None) -> Function:
        entries = self.module.entries
        attrs: Attributes = {"global_symbol": name} if not entries or name in entries else {}
        if weights is not None:
            attrs |= {"num_input": len(function.params) - len(weights), "params": list(weights)}
        made = self.closure(function, attrs)
        if function.result_names:
            made.result_names = function.result_names
        return made

    def closure(self, function: ir.Function, attrs: Attributes) -> Function:
        params = [self.bind(param) for param in function.params]
        return Function(params, self.body(function.body), struct_info_of(function.result_type), True, attrs)

    def bind(self, var: ir.Var, origin: str = "") -> Var:
        made = self.vars[var] = Var(var.name, struct_info_of(var.type))
        if origin:
            made.origin = origin  # type: ignore[attr-defined]
        return made

    def body(self, block: ir.Block) -> SeqExpr:
        made: list[expr.Binding] = []
        for each in block.bindings:
            value = self.value(each.value, made)
            made.append(expr.VarBinding(self.bind(each.var, each.origin), value) if not isinstance(each.value, ir.MatchShape)
                        else self.cast(each))  # fmt: skip
        return SeqExpr([expr.BindingBlock(made)] if made else [], self.atom(block.result))

    def cast(self, binding: ir.Binding) -> expr.MatchCast:
        assert isinstance(binding.value, ir.MatchShape)
        value = self.atom(binding.value.value)
        var = self.bind(binding.var, binding.origin)
        info = struct_info_of(TensorType(var.struct_info.dtype, binding.value.shape))
        return expr.MatchCast(var, value, info)

    def atom(self, atom: ir.Atom) -> Any:
        if isinstance(atom, ir.Var):
            return self.vars[atom]
        if isinstance(atom, ir.GlobalRef):
            return GlobalVar(atom.name, struct_info_of(_type_of(self.module.functions[atom.name])))
        if id(atom) not in self.constants:
            self.constants[id(atom)] = expr.Constant(np.asarray(atom.array))
        return self.constants[id(atom)]

    def atoms(self, atoms: Sequence[ir.Atom]) -> list[Any]:
        return list(map(self.atom, atoms))

    def value(self, value: ir.Expr, made: list[expr.Binding]) -> Any:
        if isinstance(value, (ir.Var, ir.Constant, ir.GlobalRef)):
            return self.atom(value)
        found = getattr(self, type(value).__name__, None)
        if found is None:  # values of data types, as sequences are: seen, and neither printed nor built anew
            return Call(Op(f"relax.{UNTOLD}{type(value).__name__}"), self.atoms(ir.atoms_of(value)))
        return found(value, made)

    def MatchShape(self, value: ir.MatchShape, made: list[expr.Binding]) -> Any:
        return None

    def OperatorCall(self, value: ir.OperatorCall, made: list[expr.Binding]) -> Any:
        if value.operator in NAMES:
            name, form = NAMES[value.operator]
            try:
                rank = len(getattr(value.args[0].type, "shape", "")) if value.args else 0  # type: ignore[union-attr]
                name = name.format(rank - 2)
                args, attrs = form(self.atoms(value.args), dict(value.attributes))
                call = OPERATOR_CALLS[name](*args, **attrs)
                if self.is_same(call, value):
                    return call
            except (TreadleError, TypeError, ValueError, KeyError, NotImplementedError):
                pass
        return Call(Op(f"relax.treadle.{value.operator}"), self.atoms(value.args), dict(value.attributes))

    def is_same(self, call: Call, value: ir.OperatorCall) -> bool:
        """Whether a call of Relax's operator lowers to this call and nothing else."""
        operands = {id(self.atom(each)): each for each in value.args}

        def operand(each: Any) -> Expression:
            atom = operands[id(each)]
            return Expression(atom=atom, type=atom.type)  # type: ignore[union-attr]

        block = normalize(OPERATOR_CALLS[call.op.name.removeprefix("relax.")].lowered(call, operand))
        if len(block.bindings) != 1 or not isinstance(block.bindings[0].value, ir.OperatorCall):
            return False
        found = block.bindings[0].value
        return (found.operator, found.attributes, found.args) == (value.operator, value.attributes, value.args)

    def Call(self, value: ir.Call, made: list[expr.Binding]) -> Any:
        return Call(self.atom(value.callee), self.atoms(value.args))

    def ImportCall(self, value: ir.ImportCall, made: list[expr.Binding]) -> Any:
        manner, name = value.name.partition(" ")[0], registered_name(value.name)
        result: Any = struct_info_of(self.module.imports[value.name].result)
        if manner == DPS:
            infos = list(result) if hasattr(result, "fields") else [result]
            return OPERATOR_CALLS["call_dps_packed"](name, self.atoms(value.args), infos)
        if manner != PACKED:
            return Call(Op(f"relax.{UNTOLD}import"), self.atoms(value.args))
        return Call(expr.ExternFunc(name), self.atoms(value.args), None, [result])

    def MakeTuple(self, value: ir.MakeTuple, made: list[expr.Binding]) -> Any:
        return expr.Tuple(self.atoms(value.fields))

    def GetItem(self, value: ir.GetItem, made: list[expr.Binding]) -> Any:
        return expr.TupleGetItem(self.atom(value.tuple), value.index)

    def Function(self, value: ir.Function, made: list[expr.Binding]) -> Any:
        return self.closure(value, {})

    def If(self, value: ir.If, made: list[expr.Binding]) -> Any:
        return expr.If(self.atom(value.condition), self.body(value.then), self.body(value.otherwise))

    def Loop(self, value: ir.Loop, made: list[expr.Binding]) -> Any:
        functions = []
        for name, block in (("condition", value.condition), ("body", value.body)):
            params = [self.bind(each) for each in value.variables]
            variable = Var(name)
            infos = [each.struct_info for each in params]
            body = self.body(block)
            ret = TupleStructInfo(infos) if name == "body" else None
            function = Function(params, body, ret)
            variable.struct_info_ = function.struct_info
            made.append(expr.VarBinding(variable, function))
            functions.append(variable)
        return Call(LOOP.op, [*functions, expr.Tuple(self.atoms(value.initial))])


def _type_of(function: ir.Function) -> Any:
    params = tuple(param.type for param in function.params)
    return FunctionType(params, function.result_type)  # type: ignore[arg-type]
