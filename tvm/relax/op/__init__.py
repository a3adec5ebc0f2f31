"""`relax.op`: the operators of Treadle's table that Relax has, under Relax's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....compiler.builder.programs import Expression, constant
from ....compiler.builder.programs import op as own
from . import nn  # noqa: F401
from .nn import flattened as _flattened
from .packed import call_dps_packed, call_packed, call_pure_packed  # noqa: F401

_SAME_WORDS = """
    abs acos acosh add asin asinh atan atanh bitwise_and bitwise_or bitwise_xor ceil cos cosh divide equal erf exp floor
    floor_divide greater greater_equal isfinite isinf isnan less less_equal log logical_and logical_not logical_or
    logical_xor maximum minimum multiply negative not_equal round rsqrt sigmoid sign sin sinh sqrt square subtract tan tanh
    where
"""
_SAME = _SAME_WORDS.split()
_REDUCTIONS = ("sum", "mean", "max", "min", "prod")

_OWN = """
    argmax astype broadcast_to call_dps_packed call_packed call_pure_packed clip concat expand_dims flatten full linear matmul
    nn ones permute_dims power reshape squeeze take tile zeros
"""
__all__ = [*_OWN.split(), *_SAME, *_REDUCTIONS]


def __getattr__(name: str) -> Any:
    if name in _SAME:
        return getattr(own, name)
    if name in _REDUCTIONS:

        def reduce(x: Expression, axis: Any = None, keepdims: bool = False) -> Expression:
            return getattr(own, name)(x, axes=_axes(axis), keepdims=keepdims)

        return reduce
    raise AttributeError(f"relax.op has no {name!r}; it has {', '.join(sorted(__all__))}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _axes(axis: Any) -> Any:
    return None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def matmul(x1: Expression, x2: Expression, out_dtype: str | None = None) -> Expression:
    made = own.matmul(x1, x2)
    return own.cast(made, dtype=out_dtype) if out_dtype else made


def linear(
    data: Expression, weight: Expression, bias: Expression | None = None, out_dtype: str | None = None
) -> Expression:
    """data @ weightᵀ + bias."""
    made = matmul(data, own.permute_dims(weight), out_dtype)
    return made if bias is None else own.add(made, bias)


def power(x1: Expression, x2: Expression) -> Expression:
    return own.pow(x1, x2)


def reshape(x: Expression, shape: Sequence[Any]) -> Expression:
    return own.reshape(x, shape=tuple(shape))


def flatten(x: Expression) -> Expression:
    return _flattened(x)


def permute_dims(x: Expression, axes: Sequence[int] | None = None) -> Expression:
    return own.permute_dims(x, axes=_axes(axes))


def concat(tensors: Sequence[Expression], axis: int | None = 0) -> Expression:
    return own.concat(*tensors, axis=0 if axis is None else axis)


def expand_dims(x: Expression, axis: Any) -> Expression:
    return own.expand_dims(x, axes=_axes(axis))


def squeeze(x: Expression, axis: Any = None) -> Expression:
    """Without axes of one element; which ones must be said."""
    return own.squeeze(x, axes=_axes(axis))


def broadcast_to(x: Expression, shape: Sequence[Any]) -> Expression:
    return own.broadcast_to(x, shape=tuple(shape))


def tile(x: Expression, repeats: Any) -> Expression:
    return own.tile(x, repetitions=_axes(repeats))


def take(x: Expression, indices: Expression, axis: int | None = 0) -> Expression:
    return own.take(x, indices, axis=0 if axis is None else axis)


def clip(x: Expression, min: float, max: float) -> Expression:
    return own.clip(x, min=min, max=max)


def astype(x: Expression, dtype: str) -> Expression:
    return own.cast(x, dtype=dtype)


def argmax(x: Expression, axis: int, keepdims: bool = False) -> Expression:
    return own.argmax(x, axis=axis, keepdims=keepdims)


def full(shape: Sequence[int], fill_value: float, dtype: str = "float32") -> Expression:
    return constant(np.full(tuple(shape), fill_value), dtype)


def zeros(shape: Sequence[int], dtype: str = "float32") -> Expression:
    return full(shape, 0, dtype)


def ones(shape: Sequence[int], dtype: str = "float32") -> Expression:
    return full(shape, 1, dtype)
