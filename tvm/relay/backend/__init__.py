"""`relay.backend`: where TVM keeps the Relay VM's compiler."""

from ..._lazy import lazy

_OTHERS = {
    "compile_engine": ".te_compiler",
    "executor": ".options",
    "executor_factory": "...graphs.factory",
    "profiler_vm": "...runtime.profiler_vm",
    "runtime": ".options",
    "vm": "..vm",
    "vmobj": "..vm",
}

_STEPS = "a step of TVM's compiler; relay.build makes them all"
_ABSENT = dict.fromkeys(("_backend", "aot", "graph_executor_codegen", "utils"), _STEPS)
_NAMES = {".options": "Executor Runtime"}

__getattr__, __dir__ = lazy(__name__, "interpreter te_compiler", others=_OTHERS, names=_NAMES, absent=_ABSENT)
