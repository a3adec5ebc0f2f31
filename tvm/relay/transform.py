"""`relay.transform`: type inference, and the names of TVM's other passes.

Treadle's compiler has passes of its own, which see the program after Relay. So `FuseOps()` and the others in `KEPT`
give the module as it is: a script that calls them runs, and its program is optimised all the same when it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...compiler import ir
from ...compiler.ir.infer import infer_types
from ...formats import dims, types
from ..transform import ModulePass, Pass, PassContext, PassInfo
from ..transform import Sequential as _Sequential
from . import ty
from .expr import Constant, Expr, Function, GlobalVar
from .lower import labelled
from .module import IRModule, as_module
from .op.table import SIZE
from .text import parse_module
from .visit import global_vars


def typed(module: IRModule, *entries: str) -> ir.Module:
    """Treadle's module of what the entries reach, typed. Raises InferenceError."""
    return infer_types(module.lowered(*entries))


def InferType() -> Pass:
    """Gives every expression its `checked_type`. Raises InferenceError, which names the operator or function."""
    return ModulePass(PassInfo(0, "InferType"), lambda module, _: infer_module(module))


def AnnotateSpans() -> Pass:
    """The module, printed and read again: its expressions are new objects."""
    return ModulePass(PassInfo(0, "AnnotateSpans"), lambda module, _: infer_module(parse_module(module.astext())))


def infer_module(module: IRModule) -> IRModule:
    """The module, its expressions typed."""
    functions = module._functions.items()
    own = [name for name, each in functions if isinstance(each, Function) and each.source is None]
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


def InferTypeLocal(expr: Expr) -> ty.Type:
    """The type of an expression."""
    module = infer_module(as_module(expr))
    main = module["main"]
    return main.checked_type if isinstance(expr, Function) else main.body.checked_type


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Pass:
    """Without functions that the entries do not reach."""

    def remove(module: IRModule, _: PassContext) -> IRModule:
        waiting, used = list(entry_functions or ["main"]), {}
        while waiting:
            name = waiting.pop()
            if name not in used and name in module._functions:
                used[name] = function = module._functions[name]
                waiting += global_vars(function) if isinstance(function, Function) else []
        made = module.shallow_copy()
        made._functions = {name: each for name, each in module._functions.items() if name in used}
        return made

    return ModulePass(PassInfo(1, "RemoveUnusedFunctions"), remove)


def build_config(
    opt_level: int = 2,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
    trace: Any = None,
    **config: Any,
) -> PassContext:
    """The older name of `tvm.transform.PassContext`."""
    return PassContext(opt_level, required_pass, disabled_pass, config=config.get("config"))


class FunctionPass(ModulePass):
    """A pass over each function of a module."""


def function_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Makes a pass of a function `(function, module, context) → function`, or of a class with `transform_function`."""
    if opt_level is None:
        raise ValueError("Please provide opt_level for the function pass.")

    def lifted(change: Callable[..., Function]) -> Callable[[IRModule, PassContext], IRModule]:
        def all_functions(module: IRModule, context: PassContext) -> IRModule:
            made = module.shallow_copy()
            for key, function in module._functions.items():
                if isinstance(function, Function):
                    made[key] = change(function, module, context)
            return made

        return all_functions

    def make(function: Any) -> Any:
        info = PassInfo(opt_level, name or function.__name__, required)
        if isinstance(function, type):
            return lambda *args, **kwargs: FunctionPass(info, lifted(function(*args, **kwargs).transform_function))
        return FunctionPass(info, lifted(function))

    return make if pass_func is None else make(pass_func)


# TVM's passes that Treadle's compiler does in its own way, or that have nothing to do here.
_KEPT_WORDS = """
    AlterOpLayout AnnotateTarget BackwardFoldScaleAxis CanonicalizeCast CanonicalizeOps CombineParallelBatchMatmul
    CombineParallelConv2D CombineParallelDense ConvertLayout DeadCodeElimination Defunctionalization DefuseOps
    DynamicToStatic EliminateCommonSubexpr EtaExpand FakeQuantizationToInteger FastMath FirstOrderGradient FlattenAtrousConv
    FlexibleShapeDispatch FoldConstant FoldExplicitPadding FoldScaleAxis ForwardFoldScaleAxis FuseOps Inline LambdaLift
    LazyGradientInit Legalize MergeCompilerRegions MergeComposite ManifestLifetimes
    OutlineCompilerFunctionsWithExistingGlobalSymbols PartialEvaluate PartitionGraph PlanDevices SimplifyExpr
    SimplifyFCTranspose SimplifyInference SplitArgs ToANormalForm ToBasicBlockNormalForm ToGraphNormalForm
"""
KEPT = _KEPT_WORDS.split()


def kept(name: str) -> Callable[..., Pass]:
    """TVM's pass of that name, which gives the module as it is."""

    def make(*args: Any, **kwargs: Any) -> Pass:
        return ModulePass(PassInfo(0, name), lambda module, _: module)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"TVM's pass {name}: the module as it is; see the module's docstring."
    return make


globals().update({name: kept(name) for name in KEPT})
Sequential = _Sequential
