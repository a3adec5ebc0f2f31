"""`tvm.te`: symbolic dimensions under the names that Relay programs make them by. There are no tensor expressions here."""

from ._lazy import lazy
from .tir import Var as size_var
from .tir import Var as var
from .tir import max_value, min_value

__all__ = ["max_value", "min_value", "size_var", "var"]

_WHY = "Treadle's compiler makes the kernels itself, out of operators; a function of your own is handed over by register_func"
_ABSENT = (
    *("compute", "create_prim_func", "create_schedule", "decl_tensor_intrin", "extern", "gradient", "hybrid"),
    *("if_then_else", "max", "min", "placeholder", "reduce_axis", "scan", "sum", "tag_scope", "thread_axis"),
)

__getattr__, __dir__ = lazy(__name__, absent=dict.fromkeys(_ABSENT, _WHY))
