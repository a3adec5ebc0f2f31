"""`tvm.contrib.debugger`: the debug executor, and its older name."""

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, "debug_executor debug_result", others={"debug_runtime": ".debug_executor"})
