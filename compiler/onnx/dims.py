"""Arithmetic on tensors whose elements are dimensions: one table, operator → function of arrays of objects.

NumPy's own functions do it: an array of dtype object adds, concatenates and slices whatever is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dims import Dim, SymbolicDim
from ...formats.dtypes import DType
from ..operators.shapes import is_nonnegative, maximum, minimum


class NotKnownError(Exception):
    """The result depends on what the dimensions are."""


def evaluate_symbolically(
    operator: str, arrays: Sequence[np.ndarray], attributes: dict[str, Any], *, is_float: bool
) -> np.ndarray:
    """An operator on elements that are integers, truth values or dimensions; `is_float`: held in a float tensor.

    Raises NotKnownError.
    """
    function = _FLOAT_TABLE.get(operator) if is_float else None
    function = function or TABLE.get(operator)
    if function is None or any(map(_has_symbol, attributes.values())):
        raise NotKnownError
    result = np.asarray(function(*arrays, **attributes), object)
    if any(isinstance(each, SymbolicDim) and dims.has_large_coefficient(each) for each in result.flat):
        raise NotKnownError  # a bound of 2^63 and a size: a run computes it
    return result


def _has_symbol(value: object) -> bool:
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_has_symbol, value)))


def _divide(a: Dim, b: Dim) -> Dim:
    """Division towards zero, which for numbers that are not negative is division downwards."""
    if b == 0 or not (is_nonnegative(a) and is_nonnegative(b)):
        raise NotKnownError
    return dims.floordiv(a, b)


def _divide_exactly(a: Dim, b: Dim) -> Dim:
    """Division of floats: known where it leaves no fraction."""
    if b == 0 or dims.modulo(a, b) != 0:
        raise NotKnownError
    return dims.floordiv(a, b)


def _remainder(a: Dim, b: Dim) -> Dim:
    if b == 0 or not (is_nonnegative(a) and is_nonnegative(b)):
        raise NotKnownError
    return dims.modulo(a, b)


def _equal(a: Dim, b: Dim) -> bool:
    difference = dims.add(a, dims.multiply(b, -1))
    if isinstance(difference, int):
        return difference == 0
    if is_nonnegative(dims.add(difference, -1)) or is_nonnegative(dims.add(dims.multiply(difference, -1), -1)):
        return False
    raise NotKnownError


def _less(a: Dim, b: Dim) -> bool:
    difference = dims.add(a, dims.multiply(b, -1))
    if is_nonnegative(difference):
        return False
    if is_nonnegative(dims.add(dims.multiply(difference, -1), -1)):
        return True
    raise NotKnownError


def _cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    if dtype.is_integer or (dtype.is_float and dtype.itemsize > 2):
        return x * 1  # truth values become integers
    raise NotKnownError


def _same(x: np.ndarray, **_: Any) -> np.ndarray:
    return x


def _where(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition.astype(bool), a, b)


def _indices(indices: np.ndarray, length: int) -> np.ndarray:
    if any(isinstance(index, SymbolicDim) or not -length <= index < length for index in indices.flat):
        raise NotKnownError
    return indices.astype(np.int64)


def _slice(x: np.ndarray, starts: tuple, ends: tuple, axes: tuple | None, steps: tuple | None) -> np.ndarray:
    picks = [slice(None)] * x.ndim
    for i, axis in enumerate(range(len(starts)) if axes is None else axes):
        picks[axis] = slice(starts[i], ends[i], None if steps is None else steps[i])
    return x[tuple(picks)]


def _reduce(function: np.ufunc) -> Callable[..., Any]:
    def wrapped(x: np.ndarray, axes: tuple | None, keepdims: bool) -> np.ndarray:
        return function.reduce(x, axis=axes, keepdims=keepdims)

    return wrapped


TABLE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "negative": np.negative,
    "divide": np.frompyfunc(_divide, 2, 1),
    "floor_divide": np.frompyfunc(dims.floordiv, 2, 1),
    "remainder": np.frompyfunc(_remainder, 2, 1),
    "fmod": np.frompyfunc(_remainder, 2, 1),
    "maximum": np.frompyfunc(maximum, 2, 1),
    "minimum": np.frompyfunc(minimum, 2, 1),
    "equal": np.frompyfunc(_equal, 2, 1),
    "not_equal": np.frompyfunc(lambda a, b: not _equal(a, b), 2, 1),
    "less": np.frompyfunc(_less, 2, 1),
    "less_equal": np.frompyfunc(lambda a, b: not _less(b, a), 2, 1),
    "greater": np.frompyfunc(lambda a, b: _less(b, a), 2, 1),
    "greater_equal": np.frompyfunc(lambda a, b: not _less(a, b), 2, 1),
    "where": _where,
    "cast": _cast,
    "identity": _same,
    "floor": _same,
    "ceil": _same,
    "round": _same,
    "trunc": _same,
    "reshape": lambda x, shape: x.reshape(shape),
    "expand_dims": lambda x, axes: np.expand_dims(x, axes),
    "squeeze": lambda x, axes: np.squeeze(x, axes),
    "permute_dims": lambda x, axes: np.transpose(x, axes),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "tile": lambda x, repetitions: np.tile(x, repetitions),
    "concat": lambda *tensors, axis: np.concatenate(tensors, axis),
    "slice": _slice,
    "take": lambda x, indices, axis: np.take(x, _indices(indices, x.shape[axis]), axis),
    "sum": _reduce(np.add),
    "prod": _reduce(np.multiply),
}

_FLOAT_TABLE: dict[str, Callable[..., Any]] = {"divide": np.frompyfunc(_divide_exactly, 2, 1)}
