"""Type inference: Treadle's, whose types are put on Relay's expressions."""

from __future__ import annotations

from ...compiler import ir
from ...compiler.ir.infer import infer_types
from ...formats import dims, types
from . import ty
from .expr import Constant, Function, GlobalVar
from .lower import labelled
from .module import IRModule
from .op.table import SIZE


def infer_module(module: IRModule) -> IRModule:
    """The module, its expressions typed."""
    own = [name for name, each in module._functions.items() if isinstance(each, Function) and each.source is None]
    if not own:
        return module
    made, lowering = labelled(module._functions, module._data_types, own)
    found = infer_types(made)
    by_label = _labels(found)
    for expr in lowering._kept:
        if isinstance(expr, GlobalVar):
            continue
        if isinstance(expr, Constant):
            expr._checked_type = expr._known_type
            continue
        expression = lowering.expressions[id(expr)]
        type_ = expression.type or by_label.get(expression.origin)
        if type_ is not None:
            expr._checked_type = relay_type(type_)
    for name in own:
        _type_function(module._functions[name], found.functions[name])  # type: ignore[arg-type]
    return module


def _type_function(source: Function, function: ir.Function) -> None:
    for param, var in zip(source.params, function.params, strict=True):
        assert var.type is not None
        param._checked_type = param._known_type or relay_type(var.type)
    assert function.result_type is not None
    parameters = tuple(param._checked_type for param in source.params)
    result = relay_type(function.result_type)
    source.ret_type = source.ret_type or result
    source._checked_type = ty.FuncType(parameters, result, source.type_params)  # type: ignore[arg-type]
    if source.body._checked_type is None:
        source.body._checked_type = result


def _labels(module: ir.Module) -> dict[str, types.Type]:
    """The types of the bindings that carry a label."""
    found: dict[str, types.Type] = {}
    waiting = [function.body for function in module.functions.values()]
    while waiting:
        for binding in waiting.pop().bindings:
            if binding.origin and binding.var.type is not None:
                found[binding.origin] = binding.var.type
            waiting += ir.blocks_of(binding.value)
    return found


def relay_type(type_: types.Type) -> ty.Type:
    """Relay's type; dimensions that lowering named are `Any` to Relay."""
    if isinstance(type_, types.TensorType):
        shape = tuple(
            types.UNKNOWN
            if isinstance(dim, dims.SymbolicDim) and any(name.startswith(SIZE) for name in dims.variables(dim))
            else dim
            for dim in type_.shape
        )
        return ty.from_type(types.TensorType(type_.dtype, shape))
    if isinstance(type_, types.TupleType):
        return ty.TupleType(tuple(map(relay_type, type_.fields)))
    if isinstance(type_, types.FunctionType):
        return ty.FuncType(tuple(map(relay_type, type_.params)), relay_type(type_.result))
    if isinstance(type_, types.DataType):
        return ty.TypeCall(ty.GlobalTypeVar(type_.name), tuple(map(relay_type, type_.arguments)))
    return ty.from_type(type_)
