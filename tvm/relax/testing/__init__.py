"""`tvm.relax.testing`: what TVM's tests of the Relax VM use."""

from ..._lazy import lazy

_MODULES = {
    "lib_comparator": ".lib_comparator",
    "nn": ".nn",
    "runtime_builtin": ".runtime_builtin",
    "vm": ".vm",
}

__getattr__, __dir__ = lazy(__name__, _MODULES, {})
