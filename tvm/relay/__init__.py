"""`tvm.relay`: programs as people wrote them for TVM, on Treadle's compiler."""

from .._lazy import lazy
from . import op as _operators
from . import text as _text  # noqa: F401  what `astext` gives
from .adt import (  # noqa: F401
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from .expr import (  # noqa: F401
    Call,
    Constant,
    Expr,
    ExprWithOp,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    SourceName,
    Span,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from .module import IRModule, Module  # noqa: F401
from .op import annotation, image, nn, random, vision  # noqa: F401
from .prelude import Prelude  # noqa: F401
from .rewrite import bind  # noqa: F401
from .scope_builder import ScopeBuilder  # noqa: F401
from .ty import (  # noqa: F401
    Any,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeVar,
    scalar_type,
)

globals().update({name: getattr(_operators, name) for name in _operators.FUNCTIONS})

_MODULES = {
    "adt": ".adt",
    "analysis": ".analysis",
    "backend": ".backend",
    "base": ".expr",
    "build_module": ".build_module",
    "dataflow_pattern": ".dataflow_pattern",
    "expr": ".expr",
    "expr_functor": ".expr_functor",
    "frontend": ".frontend",
    "function": ".expr",
    "loops": ".loops",
    "param_dict": ".param_dict",
    "parser": ".parser",
    "prelude": ".prelude",
    "profiler_vm": "..runtime.profiler_vm",
    "scope_builder": ".scope_builder",
    "testing": ".testing",
    "transform": ".transform",
    "ty": ".ty",
    "vm": ".vm",
}

_NAMES = {
    ".build_module": ("build", "create_executor", "optimize"),
    ".parser": ("SpanCheck", "fromtext", "parse", "parse_expr"),
    ".expr_functor": ("ExprFunctor", "ExprMutator", "ExprVisitor"),
    ".param_dict": ("load_param_dict", "save_param_dict"),
    ".transform": ("build_config",),
}

_ABSENT = {
    **_operators.absent.RELAY,
    "debug": _operators.absent.OP["debug"],
    "quantize": "quantized models come in as ONNX",
}

__getattr__, __dir__ = lazy(__name__, _MODULES, _NAMES, _ABSENT)
