"""ToMixedPrecision: operators in 16 bits where that is safe, by lists (`to_mixed_precision.cc`, `mixed_precision.py`)."""

from __future__ import annotations

from typing import Any

from ....formats.messages.errors import CompileError
from ...transform import ModulePass, PassContext, PassInfo
from .. import ty
from ..expr import Call, Constant, Expr, Function, Let, Op, Tuple, TupleGetItem, Var
from ..module import IRModule
from .core import make, op_of, rewrite, type_of, typed
from .functions import own_functions

ALWAYS, FOLLOW, NEVER = 0, 1, 2
_LISTS = {
    ALWAYS: """
        nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.dense nn.batch_matmul
    """,
    NEVER: """
        exp power nn.cross_entropy nn.cross_entropy_with_logits nn.softmax nn.l2_normalize erf arange nn.global_avg_pool2d
        nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d sum mean variance nn.layer_norm
    """,
}
CATEGORIES = {name: category for category, names in _LISTS.items() for name in names.split()}  # all others: FOLLOW


def _converted(type_: Any, source: str, target: str) -> Any:
    """A type with tensors of one element type of another one."""
    if isinstance(type_, ty.TupleType):
        return ty.TupleType(tuple(_converted(field, source, target) for field in type_.fields))
    is_source = isinstance(type_, ty.TensorType) and type_.dtype == source
    return ty.TensorType(type_.shape, target) if is_source else type_


def _dtypes(type_: Any) -> set[str]:
    """The floating-point element types in a type."""
    if isinstance(type_, ty.TupleType):
        return set().union(*map(_dtypes, type_.fields)) if type_.fields else set()
    return {type_.dtype} if isinstance(type_, ty.TensorType) and "float" in type_.dtype else set()


class _Mixed:
    """The change of one function. Casts are made once."""

    def __init__(self, mixed: str) -> None:
        self.mixed = mixed
        self.casts: dict[tuple[int, str], tuple[Expr, Expr]] = {}

    def cast(self, expr: Any, dtype: str) -> Any:
        type_ = type_of(expr)
        if isinstance(type_, ty.TupleType):
            if _dtypes(type_) <= {dtype}:
                return expr
            fields = (
                expr.fields if isinstance(expr, Tuple) else [self._field(expr, at) for at in range(len(type_.fields))]
            )
            made: Expr = Tuple([self.cast(field, dtype) for field in fields])
            made._checked_type = ty.TupleType(tuple(type_of(field) for field in made.fields))  # type: ignore[misc, attr-defined]
            return made
        if not _dtypes(type_) or type_.dtype == dtype:  # type: ignore[union-attr]
            return expr
        key = id(expr), dtype
        if key not in self.casts:
            made = make("cast", expr, dtype)
            made._checked_type = ty.TensorType(type_.shape, dtype)  # type: ignore[union-attr]
            self.casts[key] = expr, made
        return self.casts[key][1]

    @staticmethod
    def _field(expr: Any, at: int) -> Expr:
        made = TupleGetItem(expr, at)
        made._checked_type = type_of(expr).fields[at]  # type: ignore[union-attr]
        return made

    @staticmethod
    def variable(let: Let, value: Expr) -> bool | Var:
        """Another variable for a let, where its value is of another type now."""
        type_ = type_of(value)
        return Var(let.var.name_hint, type_) if type_ is not None and type_ != type_of(let.var) else False

    def rule(self, old: Any, new: Any) -> Expr | None:
        if isinstance(new, Tuple):
            new._checked_type = ty.TupleType(tuple(type_of(field) for field in new.fields))  # type: ignore[misc]
        if isinstance(new, TupleGetItem) and isinstance(type_of(new.tuple_value), ty.TupleType):
            new._checked_type = type_of(new.tuple_value).fields[new.index]  # type: ignore[union-attr]
        name = op_of(old)
        if not name:
            is_function = isinstance(new, Call) and isinstance(new.op, Function)
            return Call(new.op, [self.cast(arg, "float32") for arg in new.args], new.attrs) if is_function else None
        registered = Op.get(name).get_attr("FTVMMixedPrecisionConversionType")
        category, accumulation, output = CATEGORIES.get(name, FOLLOW), self.mixed, self.mixed
        if registered is not None:
            category, accumulation, output = registered(old, self.mixed)
        if category == FOLLOW:
            fits = all(isinstance(arg, (Var, Constant)) or _dtypes(type_of(arg)) <= {self.mixed} for arg in new.args)
            category = ALWAYS if fits else NEVER
        if name == "clip" and self.mixed == "float16" and max(abs(new.attrs["a_min"]), abs(new.attrs["a_max"])) > 65504:
            category = NEVER  # bounds that float16 does not have
        if category == ALWAYS and any(new.attrs.get(key) == "float64" for key in ("dtype", "out_dtype")):
            category = NEVER
        wanted = self.mixed if category == ALWAYS else "float32"
        attrs = dict(new.attrs)
        if category == ALWAYS:
            for key in ("dtype", "out_dtype"):
                if attrs.get(key) == "float32" or (key == "out_dtype" and key in attrs and not attrs[key]):
                    attrs[key] = accumulation
        made = Call(new.op, [self.cast(arg, wanted) for arg in new.args], attrs, new.type_args, names=new.names)
        made._checked_type = _converted(old._checked_type, "float32", accumulation if category == ALWAYS else "float32")
        return self.cast(made, output) if category == ALWAYS and accumulation != output else made


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> ModulePass:
    """Convolutions and products in `mixed_precision_type`, what follows them too where all of it is so already, and nothing of
    the list that needs float32. The option `relay.ToMixedPrecision.keep_orig_output_dtype` keeps main's type. Raises
    CompileError for another `missing_op_mode` than 0 to 2, which is what TVM takes."""
    if missing_op_mode not in (0, 1, 2):
        raise CompileError(f"ToMixedPrecision: missing_op_mode={missing_op_mode!r}: expected 0, 1 or 2")

    def run(module: IRModule, context: PassContext) -> IRModule:
        keeps = context.config.get("relay.ToMixedPrecision.keep_orig_output_dtype", False)
        made = typed(module).shallow_copy()
        for name, function in own_functions(module).items():
            mixed = _Mixed(mixed_precision_type)
            changed: Any = rewrite(function, mixed.rule, mixed.variable)
            body = changed.body
            if keeps and name == "main":
                kept = next(iter(_dtypes(type_of(function.body))), "float32")
                body = mixed.cast(body, kept)
            made._functions[name] = Function(changed.params, body, None, changed.type_params, changed.attrs)
        return typed(made)

    return ModulePass(PassInfo(0, "ToMixedPrecision"), run)
