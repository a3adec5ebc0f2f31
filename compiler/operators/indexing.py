"""Operators that gather or scatter elements by tensors of indices; sorting; running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.metering import CHARACTERS, spans
from ...formats.types import TensorType
from .movement import from_front
from .shapes import (
    ANY,
    INDEX,
    NUMERIC,
    axis_of,
    match_dim,
    mismatch,
    never_equal,
    replace_axis,
    require,
    require_rank,
    same_dtype,
)
from .table import Attribute, Fusion, Kind, register

_REDUCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_REDUCTION = Attribute(Kind.STRING, "what becomes of the element that was there", "none", tuple(_REDUCTIONS))

# ---- running sums ----


def _infer_cumulative(inputs: Sequence[TensorType], axis: int, exclusive: bool, reverse: bool) -> TensorType:
    (x,) = inputs
    require(x, NUMERIC)
    axis_of(axis, x.rank)
    return x


def _cumulative_sum(x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    return _cumulative(np.cumsum, 0, x, axis, exclusive, reverse)


def _cumulative_prod(x: np.ndarray, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
    return _cumulative(np.cumprod, 1, x, axis, exclusive, reverse)


def _cumulative(
    total: Callable[..., np.ndarray], start: int, x: np.ndarray, axis: int, exclusive: bool, reverse: bool
) -> np.ndarray:
    """Running totals, for floats in double precision; `start` is the empty total."""
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    wide = np.flip(wide, axis) if reverse else wide
    made = total(wide, axis, dtype=wide.dtype)
    if exclusive and x.shape[axis]:  # one place further along the axis
        first = np.full_like(np.take(made, [0], axis), start)
        made = np.concatenate([first, np.delete(made, -1, axis)], axis)
    return (np.flip(made, axis) if reverse else made).astype(x.dtype)


# ---- the largest ----


def _infer_top_k(
    inputs: Sequence[TensorType], k: Dim, axis: int, largest: bool, sorted: bool
) -> tuple[TensorType, TensorType]:
    (x,) = inputs
    require(x, NUMERIC)
    along = axis_of(axis, x.rank)
    length = x.shape[along]
    if isinstance(k, int) and (k < 0 or (isinstance(length, int) and k > length)):
        raise mismatch(f"a k from 0 to {length}, the length of axis {along}", k)
    shape = replace_axis(x.shape, along, k)
    return TensorType(x.dtype, shape), TensorType(DType.int64, shape)


def _top_k(x: np.ndarray, k: int, axis: int, largest: bool, sorted: bool) -> tuple[np.ndarray, np.ndarray]:
    """The first of equal elements comes first, as in ONNX."""
    if not 0 <= k <= x.shape[axis]:
        raise IndexOutOfRangeError(f"the {k} largest of {x.shape[axis]} elements are asked for")
    if largest:  # a stable sort of the reversed axis, read backwards, keeps the order of equal elements
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    chosen = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, chosen, axis), chosen.astype(np.int64)


# ---- places of several indices ----


def _infer_gather_nd(inputs: Sequence[TensorType], batch_axes: int) -> TensorType:
    x, indices = inputs
    require(indices, INDEX)
    depth = _depth(x, indices, batch_axes)
    return TensorType(x.dtype, (*indices.shape[:-1], *x.shape[batch_axes + depth :]))


def _depth(x: TensorType, indices: TensorType, batch_axes: int) -> int:
    """The number of axes that an index addresses."""
    if not 0 <= batch_axes < min(x.rank, indices.rank):
        raise mismatch(f"less batch axes than {x} and {indices} have axes", batch_axes)
    for axis in range(batch_axes):
        match_dim(x.shape[axis], indices.shape[axis])
    depth = indices.shape[-1]
    if not isinstance(depth, int) or not 1 <= depth <= x.rank - batch_axes:
        raise mismatch(f"indices whose last axis is 1 to {x.rank - batch_axes} long", indices)
    return depth


def _places(shape: Sequence[int], indices: np.ndarray, batch_axes: int) -> tuple[np.ndarray, ...]:
    """Index arrays for the first axes of a tensor of that shape. Raises IndexOutOfRangeError."""
    wide = indices.ndim - 1
    batch = np.indices(indices.shape[:batch_axes])
    own = [index.reshape(*index.shape, *(1,) * (wide - batch_axes)) for index in batch]
    told = [from_front(indices[..., i], shape[batch_axes + i], batch_axes + i) for i in range(indices.shape[-1])]
    return tuple(np.broadcast_arrays(*own, *told))


def _gather_nd(x: np.ndarray, indices: np.ndarray, batch_axes: int) -> np.ndarray:
    return x[_places(x.shape, indices, batch_axes)]


def _infer_scatter_nd(inputs: Sequence[TensorType], reduction: str) -> TensorType:
    x, indices, updates = inputs
    require(indices, INDEX)
    same_dtype((x, updates), ANY if reduction == "none" else NUMERIC)
    wanted = (*indices.shape[:-1], *x.shape[_depth(x, indices, 0) :])
    if len(wanted) != updates.rank or any(map(never_equal, wanted, updates.shape)):
        raise mismatch(f"updates {TensorType(x.dtype, wanted)}", updates)
    for want, got in zip(wanted, updates.shape, strict=True):
        match_dim(want, got)
    return x


def _scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    return _put(x, _places(x.shape, indices, 0), updates, reduction)


def _put(x: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    result, combine = x.copy(), _REDUCTIONS[reduction]
    if combine is None:
        result[places] = updates
    else:
        flat = [place.reshape(-1) for place in places]
        each = updates.shape[places[0].ndim :]
        rows = updates.reshape(len(flat[0]), *each)
        for span in spans(len(rows), max(1, CHARACTERS // max(1, math.prod(each)))):
            combine.at(result, tuple(place[span] for place in flat), rows[span])
    return result


# ---- along an axis ----


def _infer_put_along(inputs: Sequence[TensorType], axis: int, reduction: str) -> TensorType:
    x, indices, updates = inputs
    require(indices, INDEX)
    same_dtype((x, updates), ANY if reduction == "none" else NUMERIC)
    axis_of(axis, x.rank)
    if indices.rank != x.rank or updates.rank != x.rank:
        raise mismatch(f"indices and updates of rank {x.rank}", f"{indices} and {updates}")
    for want, got in zip(indices.shape, updates.shape, strict=True):
        match_dim(want, got)
    return x


def _put_along(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str) -> np.ndarray:
    if any(
        got > size
        for place, (size, got) in enumerate(zip(x.shape, indices.shape, strict=True))
        if place != axis % x.ndim
    ):
        raise IndexOutOfRangeError(f"indices {indices.shape} reach beyond a tensor {x.shape}")
    places: list[np.ndarray] = list(np.indices(indices.shape))
    places[axis] = from_front(indices, x.shape[axis], axis % x.ndim)
    return _put(x, tuple(places), updates, reduction)


# ---- order of rows ----


def _infer_order(inputs: Sequence[TensorType]) -> TensorType:
    (x,) = inputs
    require(x, NUMERIC)
    require_rank(x, 2)
    return TensorType(DType.int64, x.shape[:1])


def _order(x: np.ndarray) -> np.ndarray:
    if not x.shape[1]:
        return np.arange(len(x))
    return np.lexsort(x.T[::-1])


# fmt: off
register("lexicographic_order", "x", _infer_order, _order, Fusion.OPAQUE,
         "where the rows of x stand that are in order by their first elements, then by their second ones …")
_RUNNING = {"axis": Attribute(Kind.INT, "along which"),
            "exclusive": Attribute(Kind.BOOL, "without the element itself", False),
            "reverse": Attribute(Kind.BOOL, "from the end", False)}
register("cumulative_sum", "x", _infer_cumulative, _cumulative_sum, Fusion.OPAQUE,
         "the sums of the elements up to each place along an axis", attributes=_RUNNING, scratch=32)
register("cumulative_prod", "x", _infer_cumulative, _cumulative_prod, Fusion.OPAQUE,
         "the products of the elements up to each place along an axis", attributes=_RUNNING, scratch=32)
register("top_k", "x", _infer_top_k, _top_k, Fusion.OPAQUE,
         "the k largest elements along an axis, and their places; of equal ones the first",
         attributes={"k": Attribute(Kind.DIM, "how many"), "axis": Attribute(Kind.INT, "along which", -1),
                     "largest": Attribute(Kind.BOOL, "or the smallest", True),
                     "sorted": Attribute(Kind.BOOL, "whether their order matters", True)})
register("gather_nd", "x indices", _infer_gather_nd, _gather_nd, Fusion.OPAQUE,
         "the parts of x at places that the last axis of the indices tells",
         attributes={"batch_axes": Attribute(Kind.INT, "first axes that x and the indices share", 0)})
register("scatter_nd", "x indices updates", _infer_scatter_nd, _scatter_nd, Fusion.OPAQUE,
         "x, the updates put in at places that the last axis of the indices tells",
         attributes={"reduction": _REDUCTION})
register("put_along_axis", "x indices updates", _infer_put_along, _put_along, Fusion.OPAQUE,
         "x, each update put in at its own place, but for the axis, where the index says",
         attributes={"axis": Attribute(Kind.INT, "along which", 0), "reduction": _REDUCTION})
# fmt: on
