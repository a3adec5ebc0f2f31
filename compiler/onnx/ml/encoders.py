"""Importers of LabelEncoder, CategoryMapper and OneHotEncoder of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ....formats.strings import to_numbers, to_texts
from ..table import importer
from ..values import GraphBuilder, Value
from .scores import DOMAIN, only

_FEW = 256  # keys with which each element is compared


def _equal(g: GraphBuilder, x: Value, keys: np.ndarray) -> Value:
    """[..., keys]: which key each element is. NaN is the key NaN."""
    apart = g.op("expand_dims", x, axes=(x.rank,))
    found = g.op("equal", apart, g.constant(keys, x.dtype))
    if x.dtype.is_float and np.isnan(keys).any():
        both = g.op("logical_and", g.op("isnan", apart), g.constant(np.isnan(keys)))
        found = g.op("logical_or", found, both)
    return found


@importer("LabelEncoder", domain=DOMAIN, since=2)
def _label_encoder(
    g: GraphBuilder,
    x: Value,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: np.ndarray | None = None,
) -> Value:
    """The value of an element's key, the first one of equals; of no key, the default."""
    keys = only("keys", floats=keys_floats, int64s=keys_int64s, strings=keys_strings, tensor=keys_tensor)
    values = only("values", floats=values_floats, int64s=values_int64s, strings=values_strings, tensor=values_tensor)
    if len(keys) != len(values):
        raise ModelError(f"there are {len(keys)} keys and {len(values)} values")
    dtype = DType.of(values.dtype)
    default: object = default_float if values.dtype.kind == "f" else default_int64
    if dtype.is_string:
        default = default_string
    if default_tensor is not None:
        if default_tensor.size != 1:
            raise ModelError(f"default_tensor has {default_tensor.size} elements")
        default = to_texts(default_tensor).reshape(()).item()
    return _looked_up(g, x, keys, values, g.constant(default, dtype))


def _looked_up(g: GraphBuilder, x: Value, keys: np.ndarray, values: np.ndarray, default: Value) -> Value:
    """Among few keys each element is compared with all of them, in a kernel; among many the host looks it up."""
    kind = DType.of(keys.dtype)
    if x.dtype is not kind:
        raise ModelError(f"expected keys of type {kind.name}, got {x.type}")
    if len(keys) > _FEW:
        return g.op("look_up", x, g.constant(keys), g.constant(values), default)
    found = _equal(g, x, keys)
    place = g.op("argmax", g.op("cast", found, dtype=DType.uint8), axis=x.rank, keepdims=False)
    is_known = g.op("max", g.op("cast", found, dtype=DType.uint8), axes=(x.rank,), keepdims=False)
    value = g.op("take", g.constant(values), place, axis=0)
    return g.op("where", g.op("cast", is_known, dtype=DType.bool), value, default)


def _between_texts_and_numbers(
    g: GraphBuilder, x: Value, texts: Sequence[str], numbers: Sequence[int], default_int64: int, default_string: str
) -> Value:
    if len(texts) != len(numbers) or not len(texts):
        raise ModelError(f"there are {len(texts)} strings and {len(numbers)} integers")
    names, places = to_numbers(np.array(list(texts), object)), np.asarray(numbers, np.int64)
    if x.dtype.is_string:
        return _looked_up(g, x, names, places, g.constant(default_int64, DType.int64))
    return _looked_up(g, x, places, names, g.constant(default_string, DType.string))


@importer("LabelEncoder", domain=DOMAIN)
def _label_encoder_before_2(
    g: GraphBuilder,
    x: Value,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:
    """A text becomes its place among the classes, a place the text."""
    numbers = range(len(classes_strings))
    return _between_texts_and_numbers(g, x, classes_strings, numbers, default_int64, default_string)


@importer("CategoryMapper", domain=DOMAIN)
def _category_mapper(
    g: GraphBuilder,
    x: Value,
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Value:
    return _between_texts_and_numbers(g, x, cats_strings, cats_int64s, default_int64, default_string)


@importer("OneHotEncoder", domain=DOMAIN)
def _one_hot_encoder(
    g: GraphBuilder,
    x: Value,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Value:
    """With `zeros`, an element of no category is zeros; without, a call fails that has one."""
    categories = only("categories", int64s=cats_int64s, strings=cats_strings)
    is_text = DType.of(categories.dtype).is_string
    if x.dtype.is_string != is_text:
        raise ModelError(f"expected categories of type {DType.of(categories.dtype).name}, got {x.type}")
    if not is_text and x.dtype is not DType.int64:  # floats are cut to integers, as onnxruntime has it
        x = g.op("cast", x, dtype=DType.int64)
    found = _equal(g, x, categories)
    ones = g.op("cast", found, dtype=DType.float32)
    return ones if zeros else g.op("multiply", ones, _one_if_any(g, found))


def _one_if_any(g: GraphBuilder, found: Value) -> Value:
    """1 for each row in which something is true. A call fails that has another row: of a table of one number it asks for the
    second one."""
    missing = g.op("cast", g.op("logical_not", g.op("any", found, axes=(-1,), keepdims=True)), dtype=DType.int64)
    return g.op("take", g.constant(np.ones(1, np.float32)), missing, axis=0)
