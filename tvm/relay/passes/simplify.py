"""SimplifyExpr: rules that make expressions shorter, applied until none fits (`simplify_expr.cc`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....formats.dtypes import DType
from ...transform import Pass
from .. import ty
from ..expr import Call, Constant, Expr, Function
from ..module import IRModule
from ..op.layouts import parse as axes_of_layout
from .core import again, dtype_of, each_function, make, op_of, rewrite, scalar_value, shape_of, static_shape, type_of
from .folding import FoldConstantExpr
from .fuse import BROADCAST, PATTERN_OF

Simplification = Callable[[Any], "Expr | None"]  # a call → what is shorter, or None


def _typed_as(made: Expr, type_: ty.Type | None) -> Expr:
    made._checked_type = made._checked_type or type_
    return made


# ---- …_like: shapes and element types as they are known ----

_CONCRETE: dict[str, Callable[..., Expr]] = {
    "zeros_like": lambda args, shape, dtype: make("zeros", shape, dtype),
    "ones_like": lambda args, shape, dtype: make("ones", shape, dtype),
    "full_like": lambda args, shape, dtype: make("full", args[1], shape, dtype),
    "reshape_like": lambda args, shape, dtype: make("reshape", args[0], shape),
    "broadcast_to_like": lambda args, shape, dtype: make("broadcast_to", args[0], shape),
    "collapse_sum_like": lambda args, shape, dtype: make("collapse_sum_to", args[0], shape),
}


def _concrete(call: Any) -> Expr | None:
    if op_of(call) == "cast_like" and dtype_of(call):
        return make("cast", call.args[0], dtype_of(call))
    shape = static_shape(call)
    return (
        _CONCRETE[op_of(call)](call.args, shape, dtype_of(call))
        if op_of(call) in _CONCRETE and shape is not None
        else None
    )


# ---- arithmetic ----

_NEUTRAL = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1}
_COMMUTATIVE = ("add", "multiply")


def _fill_of(expr: Any) -> Any:
    """The number that all elements of a made tensor are, or None."""
    name = op_of(expr)
    if name in ("zeros", "zeros_like", "ones", "ones_like"):
        return 0 if name.startswith("zeros") else 1
    return scalar_value(expr.args[-1]) if name in ("full", "full_like") else None


def _identity(call: Any) -> Expr | None:
    """x + 0, x - 0, x * 1, x / 1."""
    name = op_of(call)
    for x, other in _operands(call, name) if name in _NEUTRAL else ():
        made = _fill_of(other)
        value = scalar_value(other) if isinstance(other, Constant) and not other.array.shape else made
        if value == _NEUTRAL[name] and value is not None and type_of(x) == type_of(call):
            return x
    return None


def _operands(call: Any, name: str) -> Sequence[tuple[Any, Any]]:
    """A binary call's operands, in both orders where these do not matter."""
    a, b = call.args
    return [(a, b), (b, a)] if name in _COMMUTATIVE else [(a, b)]


def _full(call: Any) -> Expr | None:
    """A made tensor of the other operand's shape as a number."""
    if PATTERN_OF.get(op_of(call)) != BROADCAST or len(call.args) != 2:
        return None
    for place, (other, x) in enumerate([call.args, call.args[::-1]]):
        value = _fill_of(other)
        if value is not None and type_of(x) == type_of(call):
            number = Constant(np.array(value, dtype_of(call)))
            return again(call, [x, number] if place else [number, x])
    return None


def _double(call: Any) -> Expr | None:
    """x + x."""
    if op_of(call) != "add" or call.args[0] is not call.args[1]:
        return None
    return make("multiply", call.args[0], Constant(np.array(2, dtype_of(call))))


def _rsqrt(call: Any) -> Expr | None:
    """y / sqrt(x)."""
    if op_of(call) != "divide" or op_of(call.args[1]) != "sqrt":
        return None
    return make("multiply", call.args[0], _typed_as(make("rsqrt", call.args[1].args[0]), type_of(call.args[1])))


def _constants_last(call: Any, name: str) -> tuple[Any, Constant] | None:
    """x and c of a sum or product of an expression and a constant."""
    if op_of(call) == name:
        for x, other in _operands(call, name):
            if isinstance(other, Constant) and not isinstance(x, Constant):
                return x, other
    return None


def _joined(call: Any) -> Expr | None:
    """(x + a) * b, (x + a) + b, (x * a) * b."""
    name = op_of(call)
    outer = _constants_last(call, name) if name in _COMMUTATIVE else None
    if outer is None:
        return None
    inner = _constants_last(outer[0], name)
    if inner is not None:
        return make(name, inner[0], FoldConstantExpr(make(name, inner[1], outer[1])))
    inner = _constants_last(outer[0], "add") if name == "multiply" else None
    if inner is None:
        return None
    product = _typed_as(make("multiply", inner[0], outer[1]), type_of(call))
    return make("add", product, FoldConstantExpr(make("multiply", inner[1], outer[1])))


def _term(expr: Any) -> tuple[float, list[Any]]:
    """A product as its number and its other factors."""
    if op_of(expr) == "multiply":
        (a, x), (b, y) = map(_term, expr.args)
        return a * b, x + y
    value = scalar_value(expr) if isinstance(expr, Constant) and not expr.array.shape else None
    return (1, [expr]) if value is None else (value, [])


def _sum(expr: Any) -> list[Any]:
    return [*_sum(expr.args[0]), *_sum(expr.args[1])] if op_of(expr) == "add" else [expr]


def _binomial(call: Any) -> Expr | None:
    """a x x + b x y + c y y as a (x + p y) (x + q y), where p and q are numbers of the element type."""
    terms = [_term(each) for each in _sum(call)] if op_of(call) == "add" else []
    if len(terms) != 3 or any(len(factors) != 2 for _, factors in terms):
        return None
    squares = [(number, factors[0]) for number, factors in terms if factors[0] is factors[1]]
    mixed = [(number, factors) for number, factors in terms if factors[0] is not factors[1]]
    if len(squares) != 2 or {id(squares[0][1]), id(squares[1][1])} != {id(each) for each in mixed[0][1]}:
        return None
    (a, x), (c, y) = squares
    if c == 1 and a > 1:
        (a, x), (c, y) = (c, y), (a, x)
    b = mixed[0][0]
    if b * b < 4 * a * c or a == 0:
        return None
    root = math.sqrt(b * b - 4 * a * c)
    numbers = [(b + root) / (2 * a), (b - root) / (2 * a)]
    dtype = DType[dtype_of(call)]
    if not dtype.is_float and any(number != int(number) for number in numbers):
        return None

    def factor(number: float) -> Expr:
        product = make("multiply", y, Constant(np.array(number, dtype.numpy)))
        return _typed_as(make("add", x, _typed_as(product, type_of(call))), type_of(call))

    first = factor(numbers[0])
    second = first if root == 0 else factor(numbers[1])
    product = _typed_as(make("multiply", first, second), type_of(call))
    return make("multiply", Constant(np.array(a, dtype.numpy)), product)


# ---- shapes ----

_RESHAPES = ("reshape", "contrib_reverse_reshape")
_TRANSPOSES = ("transpose", "layout_transform")


def _reshape(call: Any) -> Expr | None:
    """A reshape of a reshape."""
    shape = static_shape(call)
    if op_of(call) not in _RESHAPES or op_of(call.args[0]) not in _RESHAPES or shape is None:
        return None
    return make("reshape", call.args[0].args[0], shape)


def _order(call: Any, rank: int) -> list[int] | None:
    """The order of axes that a transposition makes; None for one that changes the rank."""
    if op_of(call) == "transpose":
        axes = call.attrs["axes"]
        return [axis % rank for axis in axes] if axes else list(range(rank))[::-1]
    source, target = (axes_of_layout(call.attrs[name]) for name in ("src_layout", "dst_layout"))
    return [source.index(axis) for axis in target] if sorted(source) == sorted(target) else None


def _layout(axes: Sequence[Any]) -> str:
    return "".join(f"{size or ''}{letter}" for letter, size in axes)


def _transposes(call: Any) -> Expr | None:
    """A transposition of a transposition."""
    if op_of(call) not in _TRANSPOSES or op_of(call.args[0]) not in _TRANSPOSES:
        return None
    inner = call.args[0]
    x = inner.args[0]
    shape = shape_of(x)
    if shape is None:
        return None
    first = _order(inner, len(shape))
    if first is None:
        source = axes_of_layout(inner.attrs["src_layout"])
        middle = axes_of_layout(inner.attrs["dst_layout"])
        second = _order(call, len(middle))
        if second is not None:
            target = [middle[axis] for axis in second]
        elif axes_of_layout(call.attrs["src_layout"]) == middle:
            target = axes_of_layout(call.attrs["dst_layout"])
        else:
            return None
        return x if source == target else make("layout_transform", x, _layout(source), _layout(target))
    second = _order(call, len(shape))
    if second is None:  # the inner one permutes what the outer one takes apart
        middle = axes_of_layout(call.attrs["src_layout"])
        source = [axis for _, axis in sorted(zip(first, middle, strict=True))]
        return make("layout_transform", x, _layout(source), call.attrs["dst_layout"])
    return make("transpose", x, [first[axis] for axis in second])


def _no_transpose(call: Any) -> Expr | None:
    """A transposition that changes nothing."""
    shape = shape_of(call)
    if op_of(call) not in _TRANSPOSES or shape is None:
        return None
    return call.args[0] if _order(call, len(shape)) == list(range(len(shape))) else None


# ---- element types ----

_CASTS = ("cast", "cast_like")
_KINDS = {"i": 0, "u": 1, "b": 1, "f": 2}


def _holds(narrow: str, wide: str) -> bool:
    """Whether a cast loses nothing, as TVM says it."""
    a, b = np.dtype(DType[narrow].numpy), np.dtype(DType[wide].numpy)
    if "bfloat16" in (narrow, wide) or a.kind not in _KINDS or b.kind not in _KINDS:
        return narrow == wide
    return _KINDS[a.kind] <= _KINDS[b.kind] and a.itemsize <= b.itemsize


def _range(dtype: str) -> tuple[float, float]:
    known = DType[dtype]
    if dtype == "bool":
        return 0, 1
    info = (
        np.finfo("float32")
        if dtype == "bfloat16"
        else np.finfo(known.numpy)
        if known.is_float
        else np.iinfo(known.numpy)
    )
    return float(info.min), float(info.max)


def _casts(call: Any) -> Expr | None:
    """A cast to the same type, or of a cast that lost nothing."""
    if op_of(call) not in _CASTS:
        return None
    inner = call.args[0]
    if dtype_of(inner) == dtype_of(call) and dtype_of(call):
        return inner
    if op_of(inner) in _CASTS and dtype_of(inner.args[0]) and _holds(dtype_of(inner.args[0]), dtype_of(inner)):
        return make("cast", inner.args[0], dtype_of(call))
    return None


def _clipped_casts(call: Any) -> Expr | None:
    """Casts of what was clipped, without those that hold all that is left."""
    casts, inner = [], call
    while op_of(inner) in _CASTS:
        casts.append(inner)
        inner = inner.args[0]
    if not casts or op_of(inner) != "clip" or not all(dtype_of(each) for each in (*casts, inner)):
        return None
    low, high = inner.attrs["a_min"], inner.attrs["a_max"]
    kept = [each for each in casts if not (_range(dtype_of(each))[0] <= low and high <= _range(dtype_of(each))[1])]
    made: Expr = inner
    for each in reversed(kept):
        made = _typed_as(make("cast", made, dtype_of(each)), type_of(each))
    last = dtype_of(kept[0] if kept else inner)
    made = make("cast", made, dtype_of(call)) if last != dtype_of(call) else made
    count, same = 0, made
    while isinstance(same, Call) and op_of(same) in _CASTS:
        count, same = count + 1, same.args[0]
    return made if count < len(casts) else None


def _clip(call: Any) -> Expr | None:
    """A clip to all that the element type holds."""
    if op_of(call) != "clip" or op_of(call.args[0]) in ("qnn.requantize", "qnn.add") or not dtype_of(call):
        return None
    low, high = _range(dtype_of(call))
    return call.args[0] if call.attrs["a_min"] <= low and high <= call.attrs["a_max"] else None


def _ordered(call: Any) -> Expr | None:
    """The order of what was dequantized is that of the integers."""
    if op_of(call) in ("argmax", "argmin", "argsort") and op_of(call.args[0]) == "qnn.dequantize":
        return again(call, call.args[0].args[:1])
    return None


_RULES: tuple[Simplification, ...] = (
    *(_concrete, _double, _rsqrt, _identity, _reshape, _transposes, _no_transpose, _casts, _full, _joined, _ordered),
    *(_clipped_casts, _clip, _binomial),
)
_AFTER_LAYOUTS = (_identity, _reshape, _casts, _clipped_casts, _clip)


def _simplify(rules: Sequence[Simplification]) -> Callable[[Function, IRModule], Expr]:
    def rule(old: Expr, new: Expr) -> Expr | None:
        found: Expr | None = new
        best = new
        while found is not None and isinstance(best, Call):
            best._checked_type = best._checked_type or old._checked_type
            found = next((made for each in rules if (made := each(best)) is not None), None)
            best = best if found is None else found
        return best

    def all_of(function: Function, _: IRModule) -> Expr:
        before, made = None, function
        while made is not before:
            before, made = made, rewrite(made, rule)  # type: ignore[assignment]
        return made

    return all_of


def SimplifyExpr() -> Pass:
    """Shorter expressions for what casts, reshapes, transpositions, numbers and …_like make long."""
    return each_function("SimplifyExpr", _simplify(_RULES), level=0)


def SimplifyExprPostAlterOp() -> Pass:
    """The rules of `SimplifyExpr` for what changes of layouts leave."""
    return each_function("SimplifyExprPostAlterOp", _simplify(_AFTER_LAYOUTS), level=0)


def _reciprocal(old: Expr, new: Any) -> Expr | None:
    divisor = new.args[1] if op_of(new) == "divide" else None
    if not isinstance(divisor, Constant) or divisor.array.dtype.kind != "f" or not divisor.array.all():
        return None
    return make("multiply", new.args[0], Constant((1 / divisor.array).astype(divisor.array.dtype)))


def DivToMul() -> Pass:
    """Quotients by constants as products."""
    return each_function("DivToMul", lambda function, _: rewrite(function, _reciprocal), level=0)
