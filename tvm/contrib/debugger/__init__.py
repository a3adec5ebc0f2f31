"""`tvm.contrib.debugger`: the debug executor, and its older name."""

from ..._lazy import lazy

_MODULES = {"debug_executor": ".debug_executor", "debug_result": ".debug_result", "debug_runtime": ".debug_runtime"}

__getattr__, __dir__ = lazy(__name__, _MODULES, {})
