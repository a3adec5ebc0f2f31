"""`tvm.relay`: programs as people wrote them for TVM, on Treadle's compiler."""

from .._lazy import lazy
from . import op as _operators
from . import qnn as qnn
from . import text as _text  # noqa: F401  what `astext` gives
from .op import annotation, image, nn, random, vision  # noqa: F401

globals().update({name: getattr(_operators, name) for name in _operators.FUNCTIONS})

_OWN = """
    adt analysis backend build_module dataflow_pattern expr expr_functor frontend loops parser prelude
    scope_builder testing transform ty vm
"""

_OTHERS = {
    "base": ".expr",
    "function": ".expr",
    "param_dict": "..runtime.params",
    "profiler_vm": "..runtime.profiler_vm",
}

_NAMES = {
    ".ty": """
        Any FuncType GlobalTypeVar IncompleteType TensorType TupleType Type TypeCall TypeKind TypeRelation TypeVar scalar_type
    """,
    ".expr": """
        Call Constant Expr ExprWithOp Function GlobalVar If Let RefCreate RefRead RefWrite RelayExpr SourceName Span Tuple
        TupleGetItem TupleWrapper Var const var
    """,
    ".adt": """
        Clause Constructor Match Pattern PatternConstructor PatternTuple PatternVar PatternWildcard TypeData
    """,
    ".build_module": "build create_executor optimize",
    ".parser": "SpanCheck fromtext parse parse_expr",
    ".expr_functor": "ExprFunctor ExprMutator ExprVisitor",
    "..runtime.params": "load_param_dict save_param_dict",
    ".module": "IRModule Module",
    ".prelude": "Prelude",
    ".rewrite": "bind",
    ".scope_builder": "ScopeBuilder",
    ".transform": "build_config",
}

_ABSENT = {
    **_operators.absent.RELAY,
    "debug": _operators.absent.OP["debug"],
    "quantize": "quantized models come in as ONNX",
}

__getattr__, __dir__ = lazy(__name__, _OWN, others=_OTHERS, names=_NAMES, absent=_ABSENT)
