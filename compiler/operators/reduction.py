"""Reductions over axes. Sums of floats are accumulated in double precision; an empty sum is 0, a product 1, a maximum the
least value of the type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...formats.dtypes import DType
from ...formats.messages.errors import ExecutionError
from ...formats.types import TensorType
from .shapes import BOOL, FLOAT, NUMERIC, Shape, axes_of, axis_of, mismatch, require
from .table import Attribute, Fusion, Kind, register
from .work import each_input

_KEEPDIMS = Attribute(Kind.BOOL, "reduced axes stay, with size 1", False)
AXES = {"axes": Attribute(Kind.INTS, "what to reduce over; None: all", None), "keepdims": _KEEPDIMS}
_LAST = Attribute(Kind.BOOL, "of equal elements, take the last", False)
AXIS = {"axis": Attribute(Kind.INT, "what to reduce over"), "keepdims": _KEEPDIMS, "select_last_index": _LAST}


def reduced(shape: Shape, axes: Sequence[int] | None, keepdims: bool) -> Shape:
    """The shape that reducing over `axes` leaves."""
    gone = axes_of(axes, len(shape))
    if keepdims:
        return tuple(1 if axis in gone else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in gone)


def _infer(
    inputs: Sequence[TensorType], axes: Sequence[int] | None, keepdims: bool, kinds: frozenset[DType]
) -> TensorType:
    require(inputs[0], kinds)
    return TensorType(inputs[0].dtype, reduced(inputs[0].shape, axes, keepdims))


def _infer_index(inputs: Sequence[TensorType], axis: int, keepdims: bool, select_last_index: bool) -> TensorType:
    require(inputs[0], NUMERIC)
    if inputs[0].shape[axis_of(axis, inputs[0].rank)] == 0:
        raise mismatch("at least one element along the axis", inputs[0])
    return TensorType(DType.int64, reduced(inputs[0].shape, (axis,), keepdims))


def _reference(reduce: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A NumPy reduction as an operator's reference: floats are reduced in double precision."""

    def wrapped(x: np.ndarray, axes: Sequence[int] | None, keepdims: bool) -> np.ndarray:
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        result = reduce(wide, axis=axes_of(axes, x.ndim), keepdims=keepdims)
        return np.asarray(result).astype(x.dtype)

    return wrapped


def _extreme(reduce: Callable[..., np.ndarray], worst: str) -> Callable[..., np.ndarray]:
    """max or min; without elements, the type's `worst` value."""

    def wrapped(x: np.ndarray, axes: Sequence[int] | None, keepdims: bool) -> np.ndarray:
        initial = {"min": -np.inf, "max": np.inf}[worst] if x.dtype.kind == "f" else getattr(np.iinfo(x.dtype), worst)
        return reduce(x, axis=axes_of(axes, x.ndim), keepdims=keepdims, initial=initial)

    return wrapped


def mean(x: np.ndarray, axis: Sequence[int], keepdims: bool) -> np.ndarray:
    """The mean; NaN without elements (and, unlike NumPy's, no warning)."""
    count = np.float64(np.prod([x.shape[a] for a in axis]))
    return np.sum(x, axis=tuple(axis), keepdims=keepdims) / count


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: Any) -> np.ndarray:
    return np.logaddexp.reduce(x, axis=axis, keepdims=keepdims) if axis else x


def _norm(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))


def _index(pick: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def wrapped(x: np.ndarray, axis: int, keepdims: bool, select_last_index: bool) -> np.ndarray:
        if x.shape[axis] == 0:
            raise ExecutionError(f"an axis of size 0 has no greatest or least element: the shape is {x.shape}")
        if select_last_index:
            last = x.shape[axis] - 1
            return np.asarray(last - pick(np.flip(x, axis), axis=axis, keepdims=keepdims)).astype(np.int64)
        return np.asarray(pick(x, axis=axis, keepdims=keepdims)).astype(np.int64)

    return wrapped


# name, what it takes, reference, doc
REDUCTIONS: list[tuple[str, frozenset[DType], Callable[..., np.ndarray], str]] = [
    ("sum", NUMERIC, _reference(np.sum), "the sum; integers wrap around"),
    ("mean", FLOAT, _reference(mean), "the sum divided by the number of elements"),
    ("prod", NUMERIC, _reference(np.prod), "the product; integers wrap around"),
    ("max", NUMERIC, _extreme(np.max, "min"), "the greatest; NaN if one is"),
    ("min", NUMERIC, _extreme(np.min, "max"), "the least; NaN if one is"),
    ("any", BOOL, _reference(np.any), "true if one is"),
    ("all", BOOL, _reference(np.all), "true if all are"),
    ("sum_of_squares", NUMERIC, _reference(lambda x, **over: np.sum(x * x, **over)), "the sum of squares"),
    ("l1_norm", NUMERIC, _reference(lambda x, **over: np.sum(np.abs(x), **over)), "the sum of absolute values"),
    ("l2_norm", FLOAT, _reference(_norm), "the square root of the sum of squares"),
    ("log_sum_exp", FLOAT, _reference(_log_sum_exp), "the logarithm of the sum of exponentials"),
]

for _name, _kinds, _function, _doc in REDUCTIONS:
    register(_name, "x", partial(_infer, kinds=_kinds), _function, Fusion.REDUCTION, _doc, attributes=AXES)
for _name, _pick, _doc in (
    ("argmax", np.argmax, "index of the greatest element"),
    ("argmin", np.argmin, "index of the least element"),
):
    register(_name, "x", _infer_index, _index(_pick), Fusion.OPAQUE, _doc, attributes=AXIS, work=each_input(1))
