"""`relay.transform`: type inference, and the names of TVM's other passes, which `passes/` has.

They act on Relay's expressions. Treadle's compiler has passes of its own, which see the program after Relay: a program is
optimised when it is built, whether these ran or not. A pass of TVM's that is not here is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...compiler import ir
from ...compiler.ir.infer import infer_types
from .._lazy import lazy
from ..transform import ModulePass, Pass, PassContext, PassInfo
from ..transform import Sequential as _Sequential
from . import ty
from .expr import Expr, Function
from .infer import infer_module
from .module import IRModule, as_module
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


# where passes are
_PASSES = {
    "..passes.compilers": "AnnotateTarget MergeComposite MergeCompilerRegions PartitionGraph",
    "..passes.dynamic": "DynamicToStatic",
    "..passes.folding": "EliminateCommonSubexpr FoldConstant FoldConstantExpr",
    "..passes.functions": "DefuseOps EtaExpand Inline LambdaLift PartialEvaluate",
    "..passes.fuse": "FuseOps",
    "..passes.gradient": "FirstOrderGradient gradient",
    "..passes.inference": "CanonicalizeCast CanonicalizeOps FastMath SimplifyInference",
    "..passes.layouts": "AlterOpLayout ConvertLayout",
    "..passes.legalize": "Legalize",
    "..passes.normal": "DeadCodeElimination ToANormalForm ToANormalFormExpr ToBasicBlockNormalForm ToGraphNormalForm",
    "..passes.precision": "ToMixedPrecision",
    "..passes.quantized": "FakeQuantizationToInteger",
    "..passes.scale_axis": "BackwardFoldScaleAxis FoldScaleAxis ForwardFoldScaleAxis",
    "..passes.simplify": "DivToMul SimplifyExpr SimplifyExprPostAlterOp",
    "..passes.padding": "FlattenAtrousConv FoldExplicitPadding",
    "..passes.parallel": """
        BatchingOps CombineParallelBatchMatmul CombineParallelConv2D CombineParallelDense CombineParallelOpBatch
    """,
}

# TVM's passes that are not here: why, and what to do instead
_BUILT = "leave it out: Treadle's compiler does this itself when the module is built"
_CLOSURES = (
    "leave it out: Treadle's machine calls functions that are values; PartialEvaluate puts known ones in their place"
)
_EXTERNAL = "register relay.ext.<name>, a Python function that is given the functions of that compiler"
_SPARSE = "call nn.sparse_dense in the program, or prune the ONNX model"
_WRITTEN = "write it as a relay.ExprMutator in a relay.transform.function_pass"
_ABSENT = {
    **dict.fromkeys(
        ("LazyGradientInit", "ManifestLifetimes", "PlanDevices", "SplitArgs", "SimplifyFCTranspose"), _BUILT
    ),
    **dict.fromkeys(("Defunctionalization", "ToCPS", "to_cps", "un_cps"), _CLOSURES),
    **dict.fromkeys(("InlineCompilerFunctionsBoundTo", "MarkCompilerFunctionsAsExtern", "CollagePartition"), _EXTERNAL),
    "OutlineCompilerFunctionsWithExistingGlobalSymbols": _EXTERNAL,
    **dict.fromkeys(("Conv2dToSparse", "Conv2dToSparse2", "DenseToSparse"), _SPARSE),
    **dict.fromkeys(("CapturePostDfsIndexInSpans", "ChangeBatch", "LayoutConfig", "recast"), _WRITTEN),
    "FlexibleShapeDispatch": "give the input a dimension relay.Any(): one executable runs all sizes",
}

__getattr__, __dir__ = lazy(__name__, names=_PASSES, absent=_ABSENT)
Sequential = _Sequential
