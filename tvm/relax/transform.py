"""`relax.transform`: Treadle's passes run when a program is compiled; what is here is done to the module at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...compiler import ir
from ...compiler.driver import bind_parameters
from ...formats.messages.errors import CheckError
from ..relay.build_module import array_of
from ..transform import ModulePass, Pass, PassInfo, Sequential
from .module import IRModule

__all__ = ["BindParams", "get_pipeline"]

# TVM's passes that Treadle's compiler does in its own way, or that have nothing to do here: the module as it is
_KEPT = """
    AllocateWorkspace AnnotateTIROpPattern AttachGlobalSymbol CallTIRRewrite CanonicalizeBindings CombineParallelMatmul
    ComputePrimValue ConvertLayout ConvertToDataflow DeadCodeElimination DecomposeOpsForInference EliminateCommonSubexpr
    ExpandTupleArguments FoldConstant FuseOps FuseTIR KillAfterLastUse LambdaLift LegalizeOps LowerAllocTensor
    LowerRuntimeBuiltin Normalize RemovePurityChecking RewriteCUDAGraph RewriteDataflowReshape StaticPlanBlockMemory
    ToNonDataflow TopologicalSort VMShapeLower
"""
KEPT = _KEPT.split()
PIPELINES = {
    "zero": ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR"),
    "default_build": (
        "LegalizeOps",
        "RewriteDataflowReshape",
        "ToNonDataflow",
        "CallTIRRewrite",
        "StaticPlanBlockMemory",
    ),
}


def kept(name: str) -> Callable[..., Pass]:
    """TVM's pass of that name, which gives the module as it is."""

    def make(*args: Any, **kwargs: Any) -> Pass:
        return ModulePass(PassInfo(0, name), lambda module, _: module)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"TVM's pass {name}: the module as it is; see the module's docstring."
    return make


globals().update({name: kept(name) for name in KEPT})


def get_pipeline(name: str = "zero") -> Pass:
    """TVM's passes of that name: the module as it is, since Treadle's run when it is built. Raises CheckError, a ValueError."""
    if name not in PIPELINES:
        raise CheckError(f"Unknown pre-built pipeline {name!r}; there are {', '.join(PIPELINES)}")
    return Sequential([kept(each)() for each in PIPELINES[name]], name=name)


def BindParams(func_name: str, params: Mapping[str, Any]) -> Callable[[ir.Module], ir.Module]:
    """Makes parameters of a function constants. Raises CompileError for one that does not fit."""
    arrays = {name: array_of(value) for name, value in params.items()}
    return lambda module: IRModule.of(bind_parameters(module, func_name, arrays))
