"""Attention (Vaswani et al., 2017), and rotary position embeddings (Su et al., RoFormer, 2021).

Attention's operands may have their axes in another order in memory, so that no transposition between a projection and its
heads moves anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.types import TensorType
from .linear import matmul
from .normalization import softmax
from .shapes import FLOAT, Shape, axes_of, broadcast, integer, lift, match_dim, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register
from .work import each_input, elements

_ORDER = "the axes of {} in the order batch …, {}, depth; None: as they are"
_PART = "(axis, index): {} is what a tensor of one more axis has at that index; None: all of it"
_ATTRIBUTES = {
    "scale": Attribute(Kind.FLOAT, "what the products of queries and keys are multiplied by", 1.0),
    "masked": Attribute(Kind.FLOAT, "the score where a mask of truth values does not hold", float("-inf")),
    "bias_last": Attribute(Kind.BOOL, "whether the bias is added behind the mask, and not before it", False),
    "nan_to_zero": Attribute(Kind.BOOL, "whether a query whose weights are NaN gets zeros", False),
    "repeat": Attribute(Kind.INT, "neighbours on the last axis of q's batch (heads) that share a matrix of k and v", 1),
    "q_axes": Attribute(Kind.INTS, _ORDER.format("q", "query"), None),
    "k_axes": Attribute(Kind.INTS, _ORDER.format("k", "key"), None),
    "v_axes": Attribute(Kind.INTS, _ORDER.format("v", "key"), None),
    "q_part": Attribute(Kind.INTS, _PART.format("q"), None),
    "k_part": Attribute(Kind.INTS, _PART.format("k"), None),
    "v_part": Attribute(Kind.INTS, _PART.format("v"), None),
    "result_axes": Attribute(
        Kind.INTS, "the result's axes in the order in which they are stored; None: as they are", None
    ),
    "narrow": Attribute(
        Kind.BOOL,
        "whether scaled queries, keys, values and weights that are not normalised yet are rounded to bfloat16",
        False,
    ),
}


def permuted(shape: Sequence[Any], axes: Sequence[int] | None) -> tuple[Any, ...]:
    """A shape with its axes in another order. Raises InferenceError for anything but an order of the axes."""
    if axes is None:
        return tuple(shape)
    if axes_of(axes, len(shape)) != tuple(range(len(shape))):
        raise mismatch(f"each of {len(shape)} axes once", axes)
    return tuple(shape[axis] for axis in axes)


def part_of(shape: Sequence[Any], part: Sequence[int] | None) -> tuple[Any, ...]:
    """The shape of a part. Raises InferenceError if there is none."""
    if part is None:
        return tuple(shape)
    axis, index = part if len(part) == 2 else (-1, -1)
    if not 0 <= axis < len(shape) or not isinstance(shape[axis], int) or not 0 <= index < shape[axis]:
        raise mismatch(f"an axis and an index of {list(shape)}", part)
    return (*shape[:axis], *shape[axis + 1 :])


def _infer(inputs: Sequence[TensorType], repeat: int, result_axes: tuple | None, **views: Any) -> TensorType:
    q, k, v = (
        permuted(part_of(type_.shape, views[f"{name}_part"]), views[f"{name}_axes"])
        for type_, name in zip(inputs, "qkv", strict=False)
    )
    dtype = same_dtype(inputs[:3], FLOAT)
    if min(len(q), len(k), len(v)) < 2 or not len(q) == len(k) == len(v):
        raise mismatch("q, k and v of one rank, 2 at least", " and ".join(map(str, inputs[:3])))
    if repeat < 1 or (repeat > 1 and len(q) < 3):
        raise mismatch("heads that are repeated", repeat)
    for shape in (k, v):
        for axis, dim in enumerate(shape[:-2]):
            times = repeat if axis == len(q) - 3 else 1
            match_dim(q[axis], lift(lambda dim, times=times: dims.multiply(dim, times), dim))
    match_dim(q[-1], k[-1])
    match_dim(k[-2], v[-2])
    if len(inputs) > 3:
        _check_mask(inputs[3], frozenset({dtype, DType.bool}), (*q[:-1], k[-2]))
    if len(inputs) > 4:
        require(inputs[3], frozenset({DType.bool}))
        _check_mask(inputs[4], frozenset({dtype}), (*q[:-1], k[-2]))
    return TensorType(dtype, permuted((*q[:-1], v[-1]), result_axes))


def _check_mask(mask: TensorType, dtypes: frozenset[DType], scores: Shape) -> None:
    require(mask, dtypes)
    if broadcast(mask.shape, scores) != scores:
        raise mismatch(f"a mask that broadcasts to the scores {scores}", mask)


def _attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    scale: float,
    masked: float,
    bias_last: bool,
    nan_to_zero: bool,
    repeat: int,
    result_axes: tuple | None,
    narrow: bool,
    **views: Any,
) -> np.ndarray:
    queries, keys, values = (
        transposed(_taken(x.astype(np.float64), views[f"{name}_part"]), views[f"{name}_axes"])
        for x, name in ((q, "q"), (k, "k"), (v, "v"))
    )
    if repeat > 1:
        keys, values = (x[..., np.arange(x.shape[-3] * repeat) // repeat, :, :] for x in (keys, values))
    if narrow:
        queries, keys, values, scale = _rounded(queries * scale), _rounded(keys), _rounded(values), 1.0
    scores = matmul(queries, np.swapaxes(keys, -1, -2)) * scale
    if bias is not None and not bias_last:
        scores = scores + bias
    if mask is not None:
        scores = np.where(mask, scores, masked) if mask.dtype == np.bool_ else scores + mask
    if bias is not None and bias_last:
        scores = scores + bias
    weights = _rounded_softmax(scores) if narrow else softmax(scores, -1)
    if nan_to_zero:
        weights = np.where(np.isnan(weights), 0, weights)
    return transposed(matmul(weights, values).astype(q.dtype), result_axes)


def _rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(DType.bfloat16.numpy).astype(np.float64)


def _rounded_softmax(scores: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        weights = _rounded(np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf)))
        return weights / weights.sum(-1, keepdims=True)


def _taken(x: np.ndarray, part: tuple[int, int] | None) -> np.ndarray:
    return x if part is None else np.take(x, part[1], part[0])


def _work(
    inputs: Sequence[TensorType],
    results: Sequence[TensorType],
    q_axes: tuple | None,
    k_axes: tuple | None,
    q_part: tuple | None,
    k_part: tuple | None,
    **attributes: Any,
) -> int:
    """Two products, and a softmax of the scores; masked scores count."""
    *queries, depth = map(integer, permuted(part_of(inputs[0].shape, q_part), q_axes))
    keys = integer(permuted(part_of(inputs[1].shape, k_part), k_axes)[-2])
    values = elements(results[0]) // max(1, math.prod(queries))
    return math.prod(queries) * keys * (2 * (depth + values) + 5)


def transposed(x: np.ndarray, axes: tuple | None) -> np.ndarray:
    return x if axes is None else np.transpose(x, axes)  # NumPy takes None for the reverse order


def _infer_rotary(inputs: Sequence[TensorType]) -> TensorType:
    x, *angles = inputs
    same_dtype(inputs, FLOAT)
    depth = x.shape[-1] if x.rank else 0
    if not isinstance(depth, int) or not depth or depth % 2:
        raise mismatch("x [batch …, depth] of a known, even depth", x)
    for each in angles:
        if not each.rank or each.shape[-1] != depth or broadcast(x.shape, each.shape) != x.shape:
            raise mismatch(f"cosines and sines [batch …, {depth}] that broadcast to {x}", each)
    return x


def _rotary(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    first, second = np.split(x.astype(np.float64), 2, -1)
    return (x * cosine.astype(np.float64) + np.concatenate([-second, first], -1) * sine).astype(x.dtype)


# fmt: off
register("attention", "q k v mask? bias?", _infer, _attention, Fusion.OPAQUE,
         "softmax(q kᵀ scale + mask) v, of queries [batch …, query, depth], keys and values [batch …, key, depth]; a bias goes "
         "with a mask of truth values", attributes=_ATTRIBUTES, work=_work)
register("rotary", "x cosine sine", _infer_rotary, _rotary, Fusion.OPAQUE,
         "x cosine + (-second, first) sine, of the halves of x along the last axis: x turned by angles",
         work=each_input(3))
# fmt: on
