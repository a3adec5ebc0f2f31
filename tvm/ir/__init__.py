"""`tvm.ir`: modules, types and expressions under their older and newer homes."""

from .._lazy import lazy

_MODULES = {"transform": "..transform", "instrument": "..instrument"}

_NAMES = {
    "..relay.module": ("IRModule",),
    "..relay.expr": ("BaseFunc", "GlobalVar", "Op", "RelayExpr"),
    "..relay.ty": (
        "FuncType",
        "GlobalTypeVar",
        "IncompleteType",
        "TensorType",
        "TupleType",
        "Type",
        "TypeCall",
        "TypeKind",
        "TypeVar",
    ),
    "..tir": ("FloatImm", "IntImm"),
    "..relay.equal": ("assert_structural_equal", "structural_equal", "structural_hash"),
}

__getattr__, __dir__ = lazy(__name__, _MODULES, _NAMES)
