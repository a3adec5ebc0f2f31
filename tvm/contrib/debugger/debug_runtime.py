"""`tvm.contrib.debugger.debug_runtime`: the debug executor, as it was called before 0.8."""

from .debug_executor import GraphModuleDebug, create

__all__ = ["GraphModuleDebug", "create"]
