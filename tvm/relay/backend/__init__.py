"""`relay.backend`: where TVM keeps the Relay VM's compiler."""

from ..._lazy import lazy

_OTHERS = {
    "compile_engine": ".te_compiler",
    "executor_factory": "...contrib.factory",
    "executor": ".options",
    "profiler_vm": "...runtime.profiler_vm",
    "runtime": ".options",
    "vm": "..vm",
    "vmobj": "..vm",
}

__getattr__, __dir__ = lazy(__name__, "interpreter te_compiler", others=_OTHERS, names={".options": "Executor Runtime"})
