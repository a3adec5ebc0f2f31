"""`tvm.ir`: modules, types and expressions under their older and newer homes."""

from .._lazy import lazy

_OTHERS = {
    "base": ".",
    "container": "..runtime.container",
    "expr": "..relay.expr",
    "instrument": "..instrument",
    "module": "..relay.module",
    "op": "..relay.expr",
    "transform": "..transform",
    "type": "..relay.ty",
}

_NAMES = {
    ".json_text": "load_json save_json",
    ".nodes": "make_node",
    "..runtime.container": "Array Map",
    "..relay.module": "IRModule",
    "..relay.expr": "BaseFunc GlobalVar Op RelayExpr SourceName Span",
    "..relay.ty": "FuncType GlobalTypeVar IncompleteType TensorType TupleType Type TypeCall TypeKind TypeVar",
    "..relay.op.table": "register_op_attr",
    "..tir": "FloatImm IntImm",
    "..relay.structural": "get_first_structural_mismatch",
    "..relax.module": "DummyGlobalInfo VDevice",
    ".structural": "assert_structural_equal structural_equal structural_hash",
}

__getattr__, __dir__ = lazy(__name__, "diagnostics", others=_OTHERS, names=_NAMES)
