"""`relax.transform`: passes that act on a module's syntax, and those whose work Treadle's compiler does when it builds.

LegalizeOps, FuseOps and their like lower to TIR, which there is none of: they give the module as it is (`KEPT`). What changes a
program in a manner that would be seen, and is not here, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...compiler.driver import bind_parameters
from ...formats.messages.errors import CheckError
from .._lazy import lazy
from ..relay.build_module import array_of
from ..transform import ModulePass, Pass, PassInfo, Sequential
from . import passes
from .expr import Function
from .module import IRModule

__all__ = ["BindParams", "BindSymbolicVars", "DeadCodeElimination", "get_pipeline"]

_KEPT = """
    AllocateWorkspace AnnotateTIROpPattern CallTIRRewrite ComputePrimValue DecomposeOpsForInference FuseOps FuseTIR
    KillAfterLastUse LegalizeOps LowerAllocTensor LowerRuntimeBuiltin RewriteCUDAGraph RewriteDataflowReshape
    StaticPlanBlockMemory VMShapeLower
"""
KEPT = _KEPT.split()
PIPELINES = {
    "zero": ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"),
    "default_build": (
        "LegalizeOps",
        "RewriteDataflowReshape",
        "CallTIRRewrite",
        "StaticPlanBlockMemory",
    ),
}
_MISSING = """
    AlterOpImpl BundleModelParams CombineParallelMatmul ConvertLayout ConvertToDataflow DataflowUseInplaceCalls
    DecomposeOpsForTraining ExpandMatmulOfSum ExpandTupleArguments FewShotTuning FuseOpsByPattern Gradient LambdaLift
    LazyGetInput LazySetOutput LiftTransformParams MergeCompositeFunctions MetaScheduleApplyDatabase
    MetaScheduleTuneIRMod MetaScheduleTuneTIR RealizeVDevice RemoveUnusedOutputs RemoveUnusedParameters
    ReorderPermuteDimsAfterConcat ReorderTakeAfterMatmul RunCodegen SplitCallTIRByPattern SplitLayoutRewritePreproc
    ToMixedPrecision TopologicalSort UpdateParamStructInfo UpdateVDevice
"""
_WHY = "the pass is not here; treadle.compile and relax.build fold, lay out and fuse programs themselves"


def kept(name: str) -> Callable[..., Pass]:
    """TVM's pass of that name, which gives the module as it is."""

    def make(*args: Any, **kwargs: Any) -> Pass:
        return ModulePass(PassInfo(0, name), lambda module, _: module)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"TVM's pass {name}: the module as it is; see the module's docstring."
    return make


def _over_functions(name: str, change: Callable[[Function], Function]) -> Callable[..., Pass]:
    """A pass that changes each function of Relax; a module of which nothing changes is given as it is."""

    def run(module: Any, _: Any) -> Any:
        changed = {}
        for key, each in module._functions.items():
            made = change(each) if isinstance(each, Function) else each
            if made is not each:
                changed[key] = made
        if not changed:
            return module
        result = module.shallow_copy()
        for key, made in changed.items():
            result[key] = made
        return result

    def make(*_: Any, **__: Any) -> Pass:
        return ModulePass(PassInfo(0, name), run)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = change.__doc__
    return make


def _with_symbol(module: Any, _: Any) -> Any:
    result = module.shallow_copy()
    for name, each in module._functions.items():
        if isinstance(each, Function) and "global_symbol" not in each.attrs:
            result[name] = each.with_attr("global_symbol", name)
    return result


def AttachGlobalSymbol() -> Pass:
    """Each function is public, under its name."""
    return ModulePass(PassInfo(0, "AttachGlobalSymbol"), _with_symbol)


def _unchecked(function: Function) -> Function:
    """A function whose effects are known to be none says so no more."""
    return Function(function.params, function.body, function.ret_struct_info, False, function.attrs)


_ACTING: dict[str, Callable[[Function], Function]] = {
    "CanonicalizeBindings": lambda function: passes.CanonicalizeBindings().function(function),
    "EliminateCommonSubexpr": lambda function: passes.EliminateCommonSubexpr().function(function),
    "FoldConstant": lambda function: passes.FoldConstant().function(function),
    "Normalize": lambda function: passes.Normalize().function(function),
    "RemovePurityChecking": _unchecked,
    "ToNonDataflow": passes.to_non_dataflow,
}
globals().update({name: _over_functions(name, change) for name, change in _ACTING.items()})
globals().update({name: kept(name) for name in KEPT})
__getattr__, __dir__ = lazy(__name__, others={"transform": "."}, absent=dict.fromkeys(_MISSING.split(), _WHY))


def DeadCodeElimination(entry_functions: Any = None) -> Pass:
    """Without bindings that nobody uses, and without private functions that no entry reaches."""

    def run(module: Any, _: Any) -> Any:
        result: Any = _over_functions("DeadCodeElimination", passes.dead_code_eliminated)()(module)
        entries = [name for name, each in result._functions.items() if "global_symbol" in each.attrs]
        reached = passes.reached(result, [*(entry_functions or ()), *entries])
        unused = [name for name in result._functions if name not in reached]
        if unused:
            result = result.shallow_copy()
            for name in unused:
                del result[name]
        return result

    return ModulePass(PassInfo(0, "DeadCodeElimination"), run)


def BindSymbolicVars(binding_map: Mapping[Any, int], func_name: str | None = None) -> Pass:
    """Sizes of these names are these numbers, in one function or in all."""
    sizes = {str(name): value for name, value in binding_map.items()}

    def run(module: Any, _: Any) -> Any:
        result = module.shallow_copy()
        for name, each in module._functions.items():
            if isinstance(each, Function) and func_name in (None, name):
                result[name] = passes.with_sizes(each, sizes)
        return result

    return ModulePass(PassInfo(0, "BindSymbolicVars"), run)


def get_pipeline(name: str = "zero") -> Pass:
    """TVM's passes of that name: the module as it is, since Treadle's run when it is built. Raises CheckError, a ValueError."""
    if name not in PIPELINES:
        raise CheckError(f"Unknown pre-built pipeline {name!r}; there are {', '.join(PIPELINES)}")
    return Sequential([kept(each)() for each in PIPELINES[name]], name=name)


def BindParams(func_name: str, params: Mapping[Any, Any]) -> Callable[[IRModule], IRModule]:
    """Makes parameters of a function constants: by name, or by variable. Raises CompileError for one that does not fit."""
    arrays = {getattr(name, "name_hint", name): array_of(value) for name, value in params.items()}

    def run(module: IRModule) -> IRModule:
        if module.source is not None:
            return IRModule.of(bind_parameters(module.source, func_name, arrays))
        function, result = module[func_name], module.shallow_copy()
        result[func_name] = passes.with_params(function, arrays)
        return result

    return run
