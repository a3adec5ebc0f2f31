"""Importers of what prepares features in ai.onnx.ml: scaling, filling in, encoding, putting together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value
from .scores import DOMAIN

Floats = Sequence[float]
_TINY = 1e-30  # what a norm is at least, so that rows of zeros stay


def _float(g: GraphBuilder, x: Value) -> Value:
    return x if x.dtype is DType.float32 else g.op("cast", x, dtype=DType.float32)


def _per_column(g: GraphBuilder, name: str, values: Floats | None, x: Value, default: float) -> Value:
    """One number for all columns, or one for each."""
    array = np.asarray(values if values else (default,), np.float32)
    columns = x.shape[-1] if x.rank else 1
    if array.size != 1 and isinstance(columns, int) and array.size != columns:
        raise ModelError(f"{name} has {array.size} numbers, for {columns} columns")
    return g.constant(array, x.dtype)


@importer("Scaler", domain=DOMAIN)
def _scaler(g: GraphBuilder, x: Value, *, offset: Floats | None = None, scale: Floats | None = None) -> Value:
    x = _float(g, x)
    shifted = g.broadcast("subtract", x, _per_column(g, "offset", offset, x, 0))
    return g.broadcast("multiply", shifted, _per_column(g, "scale", scale, x, 1))


@importer("Normalizer", domain=DOMAIN)
def _normalizer(g: GraphBuilder, x: Value, *, norm: str = "MAX") -> Value:
    """MAX is of absolute values, as onnx.reference has it."""
    x = _float(g, x)
    axis = x.rank - 1
    if norm == "L2":
        size = g.op("sqrt", g.op("sum", g.op("multiply", x, x), axes=(axis,), keepdims=True))
    elif norm in ("MAX", "L1"):
        size = g.op("max" if norm == "MAX" else "sum", g.op("abs", x), axes=(axis,), keepdims=True)
    else:
        raise ModelError(f"norm is {norm!r}; there are MAX, L1 and L2")
    return g.op("divide", x, g.op("maximum", size, g.constant(_TINY, x.dtype)))


@importer("Binarizer", domain=DOMAIN)
def _binarizer(g: GraphBuilder, x: Value, *, threshold: float = 0.0) -> Value:
    return g.op("cast", g.op("greater", x, g.constant(threshold, x.dtype)), dtype=x.dtype)


@importer("Imputer", domain=DOMAIN)
def _imputer(
    g: GraphBuilder,
    x: Value,
    *,
    imputed_value_floats: Floats | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Value:
    """Replaces the marker of a missing number, which may be NaN, by its column's value."""
    if imputed_value_floats and imputed_value_int64s:
        raise ModelError("both imputed_value_floats and imputed_value_int64s are given")
    values, missing = (
        (imputed_value_floats, replaced_value_float)
        if x.dtype.is_float
        else (imputed_value_int64s, replaced_value_int64)
    )
    if not values:
        raise ModelError(f"no value is given for what is missing in {x.type}")
    columns = x.shape[-1] if x.rank else 1
    if len(values) != 1 and isinstance(columns, int) and len(values) != columns:
        raise ModelError(f"{len(values)} values are given for {columns} columns")
    if isinstance(missing, float) and np.isnan(missing):
        is_missing = g.op("isnan", x)
    else:
        is_missing = g.op("equal", x, g.constant(missing, x.dtype))
    return g.broadcast("where", is_missing, g.constant(list(values), x.dtype), x)


@importer("ArrayFeatureExtractor", domain=DOMAIN)
def _array_feature_extractor(g: GraphBuilder, x: Value, indices: Value) -> Value:
    """Columns by their numbers; a vector is a row."""
    flat = g.op("reshape", indices, shape=(-1,))
    taken = g.op("take", x, flat, axis=x.rank - 1)
    return g.op("expand_dims", taken, axes=(0,)) if x.rank == 1 else taken


def _rows(g: GraphBuilder, x: Value) -> Value:
    """One row for each first index, of all that it has: one-hot codes of a table are [rows, columns, categories]."""
    if x.rank < 2:
        return g.op("expand_dims", x, axes=(1,))
    return x if x.rank == 2 else g.op("reshape", x, shape=(x.shape[0], dims.product(x.shape[1:])))


@importer("FeatureVectorizer", domain=DOMAIN)
def _feature_vectorizer(g: GraphBuilder, *inputs: Value, inputdimensions: Sequence[int] | None = None) -> Value:
    """Columns side by side; each input is cut, or filled with zeros, to its number of columns."""
    widths = list(inputdimensions) if inputdimensions else [None] * len(inputs)
    if len(widths) != len(inputs):
        raise ModelError(f"inputdimensions has {len(widths)} numbers, for {len(inputs)} inputs")
    parts = []
    for x, width in zip(inputs, widths, strict=True):
        x = _float(g, _rows(g, x))
        if x.rank != 2 or not isinstance(x.shape[1], int):
            raise UnsupportedError(f"features whose number of columns is not known: {x.type}")
        if width is not None and width < 0:
            raise ModelError(f"inputdimensions holds {width}")
        columns = x.shape[1]
        if width is not None and width < columns:
            x = g.op("slice", x, starts=(0,), ends=(width,), axes=(1,), steps=(1,))
        elif width is not None and width > columns:
            x = g.op("pad", x, pads=(0, 0, 0, width - columns))
        parts.append(x)
    if len(parts) > 1:
        parts = [g.checked(part, (parts[0].shape[0], part.shape[1])) for part in parts]
    return g.op("concat", *parts, axis=1) if len(parts) > 1 else parts[0]
