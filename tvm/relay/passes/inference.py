"""Passes that write operators with others: SimplifyInference, CanonicalizeOps, CanonicalizeCast, FastMath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...transform import Pass
from .. import ty
from ..expr import Constant, Expr, Function, TupleGetItem
from ..module import IRModule
from .core import along_axis, constant_like, dtype_of, each_function, make, op_of, replaced, rewrite, shape_of
from .fuse import BROADCAST, PATTERN_OF


def _affine(out: Expr, attrs: Any, gamma: Expr, beta: Expr, rank: int) -> Expr:
    """Scaled and shifted along an axis, as the attributes say."""
    if attrs["scale"]:
        out = out * along_axis(gamma, rank, attrs["axis"])
    return out + along_axis(beta, rank, attrs["axis"]) if attrs["center"] else out


def _normalised(data: Expr, old: Any, axes: Any) -> Expr:
    """Without mean, and of variance 1, over these axes."""
    mean = make("mean", data, axes, True, False)
    variance = make("variance", data, axes, True, False, False, mean)
    return (data - mean) / make("sqrt", variance + constant_like(old.attrs["epsilon"], old.args[0]))


def _batch_norm(old: Any, new: Any) -> Expr:
    data, gamma, beta, mean, variance = new.args
    attrs, rank = new.attrs, len(shape_of(old.args[0]) or ())
    scale = constant_like(1.0, old.args[0]) / make("sqrt", variance + constant_like(attrs["epsilon"], old.args[0]))
    scale = scale * gamma if attrs["scale"] else scale
    shift = -mean * scale
    shift = shift + beta if attrs["center"] else shift
    return data * along_axis(scale, rank, attrs["axis"]) + along_axis(shift, rank, attrs["axis"])


def _layer_norm(old: Any, new: Any) -> Expr:
    data, gamma, beta = new.args
    return _affine(
        _normalised(data, old, [new.attrs["axis"]]), new.attrs, gamma, beta, len(shape_of(old.args[0]) or ())
    )


def _instance_norm(old: Any, new: Any) -> Expr:
    data, gamma, beta = new.args
    rank = len(shape_of(old.args[0]) or ())
    axes = [axis for axis in range(1, rank) if axis != new.attrs["axis"] % rank]
    return _affine(_normalised(data, old, axes), new.attrs, gamma, beta, rank)


def _group_norm(old: Any, new: Any) -> Expr:
    data, gamma, beta = new.args
    shape = list(shape_of(old.args[0]) or ())
    axis, groups = new.attrs["axis"] % len(shape), new.attrs["num_groups"]
    grouped = make("reshape", data, [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]])
    out = make("reshape", _normalised(grouped, old, list(range(axis + 1, len(shape) + 1))), shape)
    return _affine(out, new.attrs, gamma, beta, len(shape))


def _l2_normalize(old: Any, new: Any) -> Expr:
    (data,) = new.args
    total = make("sum", data * data, new.attrs["axis"], True, False)
    return data / make("sqrt", make("maximum", total, Constant(np.float32(new.attrs["eps"]))))


_NORMS: dict[str, Callable[[Any, Any], Expr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}


def _simplified(old: Any, new: Any) -> Expr | None:
    if op_of(old) in _NORMS:
        return _NORMS[op_of(old)](old, new)
    if isinstance(new, TupleGetItem) and new.index == 0 and isinstance(old, TupleGetItem):
        if op_of(new.tuple_value) == "nn.batch_norm":
            return _batch_norm(old.tuple_value, new.tuple_value)
        if op_of(inner := new.tuple_value) == "nn.dropout":
            return inner.args[0]  # type: ignore[attr-defined]
    return new.args[0] if op_of(new) == "nn.dropout" and isinstance(old._checked_type, ty.TensorType) else None


def SimplifyInference() -> Pass:
    """Normalisations as arithmetic, without dropout (`simplify_inference.cc`)."""
    return each_function("SimplifyInference", lambda function, _: rewrite(function, _simplified), level=0)


def _canonical(old: Expr, new: Any) -> Expr | None:
    if op_of(old) != "nn.bias_add":
        return None
    data, bias = new.args
    return data + along_axis(bias, len(shape_of(old.args[0]) or ()), new.attrs["axis"])  # type: ignore[attr-defined]


def CanonicalizeOps() -> Pass:
    """`nn.bias_add` as a broadcasting sum (`canonicalize_ops.cc`)."""
    return each_function("CanonicalizeOps", lambda function, _: rewrite(function, _canonical), level=3)


def CanonicalizeCast() -> Pass:
    """A cast to a wider type that several elementwise operators use is made by each of them (`canonicalize_cast.cc`)."""

    def canonical(function: Function, _: IRModule) -> Expr:
        uses: dict[int, int] = {}

        def rule(old: Any, new: Any) -> Expr | None:
            if PATTERN_OF.get(op_of(old), BROADCAST + 1) > BROADCAST:
                return None
            args = []
            for before, arg in zip(old.args, new.args, strict=True):
                if op_of(before) == "cast" and _widens(before):
                    uses[id(before)] = uses.get(id(before), 0) + 1
                    arg = make("cast", arg.args[0], arg.attrs["dtype"]) if uses[id(before)] > 1 else arg
                args.append(arg)
            same = all(mine is other for mine, other in zip(args, new.args, strict=True))
            return None if same else replaced(new, {id(a): b for a, b in zip(new.args, args, strict=True)})

        return rewrite(function, rule)

    return each_function("CanonicalizeCast", canonical, level=3)


def _widens(cast: Any) -> bool:
    return np.dtype(dtype_of(cast.args[0]) or "float64").itemsize < np.dtype(cast.attrs["dtype"]).itemsize


_FAST = {"exp": "fast_exp", "erf": "fast_erf", "tanh": "fast_tanh", "nn.softmax": "nn.fast_softmax"}


def FastMath() -> Pass:
    """The names of TVM's faster approximations (`fast_math.cc`). Treadle's own functions are as fast, and stand for both."""

    def rule(old: Expr, new: Any) -> Expr | None:
        return make(_FAST[op_of(old)], *new.args, **new.attrs) if op_of(old) in _FAST else None

    return each_function("FastMath", lambda function, _: rewrite(function, rule), level=4)
