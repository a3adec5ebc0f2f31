"""Shared parts of the classifiers and regressors of ai.onnx.ml: rows of features, post transforms, labels.

Where the standard is silent, scores and labels are onnxruntime's, which exporters are tested with: a classifier of two labels
and one score has scores of both, and the sign of the score, or, where all weights are positive, whether it is above 1/2, tells
the label.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ....formats.strings import ELEMENT, to_numbers
from ..values import GraphBuilder, UnsupportedError, Value

DOMAIN = "ai.onnx.ml"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_ZERO = 1e-7  # scores that SOFTMAX_ZERO takes for 0
_WINITZKI = 0.147  # the constant of Winitzki's approximation of the inverse of erf


def rows(g: GraphBuilder, x: Value, dtype: DType | None = None) -> Value:
    """Features as a matrix, of which one vector is a row, of a float type: that of x, or float32."""
    if x.rank == 1:
        x = g.op("expand_dims", x, axes=(0,))
    if x.rank != 2:
        raise ModelError(f"expected rows of features, got {x.type}")
    wanted = dtype or (x.dtype if x.dtype in (DType.float32, DType.float64) else DType.float32)
    return x if x.dtype is wanted else g.op("cast", x, dtype=wanted)


def array_of(
    name: str, values: Sequence[float] | np.ndarray | None, tensor: np.ndarray | None = None, dtype: type = np.float32
) -> np.ndarray | None:
    """A list of numbers that a model gives as an attribute, or as another one that is a tensor."""
    if values is not None and tensor is not None and len(values) and tensor.size:
        raise ModelError(f"both {name!r} and '{name}_as_tensor' are given")
    if tensor is not None and tensor.size:
        return tensor.reshape(-1)
    if values is None:
        return None
    return np.asarray(values, dtype)


def transformed(g: GraphBuilder, scores: Value, transform: str) -> Value:
    """Scores [N, classes] after a post transform."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return g.op("sigmoid", scores)
    if transform == "SOFTMAX":
        return g.op("softmax", scores, axis=-1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(g, scores)
    if transform == "PROBIT":
        return _probit(g, scores)
    raise UnsupportedError(f"post_transform={transform!r}; there are {', '.join(TRANSFORMS)}")


def _softmax_zero(g: GraphBuilder, scores: Value) -> Value:
    """Softmax that leaves a score of 0 at 0."""
    shifted = g.op("exp", g.op("subtract", scores, g.op("max", scores, axes=(1,), keepdims=True)))
    is_zero = g.op("less_equal", g.op("abs", scores), g.constant(_ZERO, scores.dtype))
    weights = g.op("where", is_zero, g.constant(0, scores.dtype), shifted)
    total = g.op("sum", weights, axes=(1,), keepdims=True)
    # of zeros alone all are as likely; the standard says nothing of them, and onnx.reference 1/2
    nothing = g.op("equal", total, g.constant(0, scores.dtype))
    return g.op("where", nothing, g.constant(0.5, scores.dtype), g.op("divide", weights, total))


def _probit(g: GraphBuilder, scores: Value) -> Value:
    """sqrt(2) erfinv(2 s - 1), by Winitzki's approximation, as onnxruntime and onnx.reference have it."""
    number = lambda value: g.constant(value, scores.dtype)  # noqa: E731
    x = g.op("subtract", g.op("multiply", scores, number(2)), number(1))
    log = g.op("log", g.op("multiply", g.op("subtract", number(1), x), g.op("add", number(1), x)))
    v = g.op("add", number(2 / (math.pi * _WINITZKI)), g.op("multiply", log, number(0.5)))
    root = g.op("sqrt", g.op("subtract", g.op("multiply", v, v), g.op("multiply", log, number(1 / _WINITZKI))))
    inverse = g.op("sqrt", g.op("subtract", root, v))
    signed = g.op("where", g.op("less", x, number(0)), g.op("negative", inverse), inverse)
    return g.op("multiply", signed, number(1.41421356))


# ---- labels ----


def labels_of(ints: Sequence[int] | None, strings: Sequence[str] | None) -> np.ndarray:
    """A classifier's labels; of texts, an array of objects."""
    if strings:
        return np.array(strings, object)
    return np.array(ints if ints is not None else (), np.int64)


def only(what: str, **given: Sequence[Any] | np.ndarray | None) -> np.ndarray:
    """The one list among several attributes that is given. Raises ModelError."""
    found = [(name, value) for name, value in given.items() if value is not None and _size(value)]
    if len(found) != 1:
        raise ModelError(f"expected one list of {what}, got {', '.join(name for name, _ in found) or 'none'}")
    (name, value) = found[0]
    if name == "strings":
        return to_numbers(np.array(list(value), object))
    array = np.asarray(value)
    if array.dtype == ELEMENT:
        return array.reshape(-1)
    types = {"int64s": np.int64, "floats": np.float32}
    return array.astype(types.get(name.rsplit("_", 1)[-1], array.dtype)).reshape(-1)


def _size(values: Sequence[Any] | np.ndarray) -> int:
    return values.size if isinstance(values, np.ndarray) else len(values)


def chosen(g: GraphBuilder, labels: np.ndarray, places: Value) -> Value:
    """The labels at places [N]."""
    dtype = DType.string if labels.dtype == object else DType.int64
    return g.op("take", g.constant(labels, dtype), places, axis=0)


def best(g: GraphBuilder, scores: Value, labels: np.ndarray) -> Value:
    """Of each row of scores the label of the best one, the first of equals; without labels its place."""
    places = g.op("argmax", scores, axis=1, keepdims=False)
    return chosen(g, labels, places) if len(labels) else places


def above(g: GraphBuilder, scores: Value, threshold: float, labels: np.ndarray) -> Value:
    """The second of two labels where the one column of scores is above a threshold, else the first."""
    one = g.op("squeeze", scores, axes=(1,))
    places = g.op("cast", g.op("greater", one, g.constant(threshold, scores.dtype)), dtype=DType.int64)
    return chosen(g, labels, places)


def both(g: GraphBuilder, scores: Value, transform: str, is_positive: bool) -> Value:
    """The scores of two labels, by that of the second one [N, 1]: transforms other than LOGISTIC are of several scores."""
    if transform == "LOGISTIC":
        return g.op("sigmoid", g.op("concat", g.op("negative", scores), scores, axis=1))
    other = g.op("subtract", g.constant(1, scores.dtype), scores) if is_positive else g.op("negative", scores)
    if transform == "PROBIT":
        scores, other = _probit(g, scores), _probit(g, other)
    return g.op("concat", other, scores, axis=1)
