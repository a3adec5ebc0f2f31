"""`relay.backend`: where TVM keeps the Relay VM's compiler."""

from ..._lazy import lazy

_MODULES = {
    "compile_engine": ".te_compiler",
    "executor_factory": "...contrib.factory",
    "interpreter": ".interpreter",
    "profiler_vm": "...runtime.profiler_vm",
    "te_compiler": ".te_compiler",
    "vm": "..vm",
    "vmobj": "..vm",
}

__getattr__, __dir__ = lazy(__name__, _MODULES, {".options": ("Executor", "Runtime")})
