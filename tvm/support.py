"""`tvm.support`: what this is made of."""

from __future__ import annotations

from .modules.registry import PackedFunc
from .runtime.module import Module


def libinfo() -> dict[str, str]:
    """How TVM would say that it was built."""
    return {
        "TVM_VERSION": "0.14.0",
        "LLVM_VERSION": "the one in llvmlite",
        "USE_LLVM": "ON",
        "USE_PROFILER": "ON",
        "USE_RPC": "OFF",
        "USE_GRAPH_EXECUTOR": "ON",
        "USE_GRAPH_EXECUTOR_CUDA_GRAPH": "OFF",
        "USE_CUDA": "OFF",
        "USE_MICRO": "OFF",
    }


def FrontendTestModule() -> Module:
    """A module to try calls with: `__add_one` adds one."""
    return _TestModule({"add_one": PackedFunc(lambda x: x + 1)}, "frontend_test")


class _TestModule(Module):
    """A module to which functions can be added."""

    def __setitem__(self, name: str, function: object) -> None:
        self._functions[name] = PackedFunc.of(function)  # type: ignore[arg-type]
