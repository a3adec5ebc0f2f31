"""`tvm.relax.testing`: what TVM's tests of the Relax VM use."""

from ..._lazy import lazy

__getattr__, __dir__ = lazy(__name__, "lib_comparator nn runtime_builtin vm")
