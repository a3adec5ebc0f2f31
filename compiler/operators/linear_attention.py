"""Linear attention (Katharopoulos et al., 2020) with gates and the delta rule (Yang et al., Gated DeltaNet, 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.types import TensorType
from .shapes import FLOAT, INT64, match_dim, require, require_rank, same_dtype
from .table import Attribute, Fusion, Kind, register
from .work import elements

_ATTRIBUTES = {
    "scale": Attribute(Kind.FLOAT, "what results are multiplied by", 1.0),
    "delta": Attribute(Kind.BOOL, "whether beta (v - state k) is written, not v", False),
}


def _infer(inputs: Sequence[TensorType], scale: float, delta: bool) -> tuple[TensorType, TensorType]:
    dtype = same_dtype(inputs[:6], FLOAT)
    for type_ in inputs[:6]:
        require_rank(type_, 4)
    q, k, v, state, decay, beta = (type_.shape for type_ in inputs[:6])
    for shape in (k, v, decay, beta):
        for axis in range(3):
            match_dim(shape[axis], q[axis])
    for got, wanted in ((k[3], q[3]), (state[2], q[3]), (state[3], v[3]), (state[1], q[2]), (beta[3], 1)):
        match_dim(got, wanted)
    if decay[3] != 1:
        match_dim(decay[3], q[3])
    if len(inputs) == 6:
        match_dim(state[0], q[0])
    else:
        require(inputs[6], INT64)
        match_dim(q[0], 1)
        require_rank(inputs[6], 2, "texts [texts, 4]")
        match_dim(inputs[6].shape[0], state[0])
        match_dim(inputs[6].shape[1], 4)
    return TensorType(dtype, (*q[:3], v[3])), inputs[3]


def _linear_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    state: np.ndarray,
    decay: np.ndarray,
    beta: np.ndarray,
    texts: np.ndarray | None = None,
    *,
    scale: float,
    delta: bool,
) -> tuple[np.ndarray, np.ndarray]:
    result, states = np.zeros((*q.shape[:3], v.shape[3])), state.astype(np.float64)
    q, k, v, decay, beta = (each.astype(np.float64) for each in (q, k, v, decay, beta))
    length = q.shape[1]
    spans = [(number, 0, length) for number in range(len(q))] if texts is None else _spans(texts, length)
    for number, (row, first, last) in enumerate(spans):
        held = states[number]
        for at in range(first, last):
            held = held * decay[row, at, :, :, None]
            read = np.einsum("hd,hdw->hw", k[row, at], held)
            written = beta[row, at] * (v[row, at] - read) if delta else v[row, at]
            held = held + k[row, at, :, :, None] * written[:, None]
            result[row, at] = scale * np.einsum("hd,hdw->hw", q[row, at], held)
        states[number] = held
    return result.astype(state.dtype), states.astype(state.dtype)


def _spans(texts: np.ndarray, length: int) -> list[tuple[int, int, int]]:
    spans, row = [], 0
    for first, count, *_ in texts.tolist():
        if first != row or count < 0:
            raise IndexOutOfRangeError(f"a text of {count} rows from {first} on; expected it from {row} on")
        row += count
        spans.append((0, first, row))
    if row != length:
        raise IndexOutOfRangeError(f"the texts have {row} of {length} rows")
    return spans


def _work(inputs: Sequence[TensorType], results: Sequence[TensorType], **_: Any) -> int:
    """Of each element of the state: its decay, what is read of it before, what is written to it, and the result."""
    depth = inputs[0].shape[3]
    return 7 * elements(results[0]) * (depth if isinstance(depth, int) else 1)


# fmt: off
register("linear_attention", "q k v state decay beta texts?", _infer, _linear_attention, Fusion.OPAQUE,
         "Token after token: state = state decay + k written, result = scale state q, where written is v, or beta (v - state k) "
         "with `delta`. q, k and decay (or one for all elements) are [batch, tokens, heads, depth], v [batch, tokens, heads, "
         "width], beta [batch, tokens, heads, 1], state [batch, heads, depth, width]. With texts, [first row, rows, …], a batch "
         "of one holds them one after another, each with a state of its own. Returns the results and the last states",
         attributes=_ATTRIBUTES, work=_work)
# fmt: on
