"""Attention of the new tokens of many texts to the texts' earlier ones, which lie in pages (Kwon et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats import dims
from ...formats.dtypes import DType
from ...formats.messages.errors import IndexOutOfRangeError
from ...formats.types import TensorType
from .attention import permuted, transposed
from .quantized import FACTS
from .shapes import FLOAT32, INT64, integer, lift, match_dim, mismatch, require, same_dtype
from .table import Attribute, Fusion, Kind, register
from .work import elements

LANES = 16  # neighbouring keys whose elements of one place lie side by side


@dataclass(frozen=True)
class Stored:
    """How keys and values of a type lie in pages."""

    facts: int = 0  # bytes behind a row
    together: int = 1  # elements of a key that are neighbours, before those of the next of LANES keys


# Rows in 8 bits, scale · (code - zero), have a scale in float32 and a zero point in int32, as `quantize_rows` makes them. Bytes
# from -127 to 127 with a scale for each 32 elements take as much memory, and their errors are larger.
STORED = {DType.float32: Stored(), DType.float16: Stored(), DType.bfloat16: Stored(), DType.uint8: Stored(4 * FACTS, 4)}
_ORDER = "the axes of {} in the order 1, heads, tokens, depth; None: as they are"
_ATTRIBUTES = {
    "scale": Attribute(Kind.FLOAT, "what the products of queries and keys are multiplied by", 1.0),
    "repeat": Attribute(Kind.INT, "neighbours among the heads of q that share a head of k and v", 1),
    "window": Attribute(Kind.INT, "how many keys a query sees, its own the last; 0: all up to its own", 0),
    "softcap": Attribute(Kind.FLOAT, "the bound c of scores x, which are c tanh(x / c) then; 0: none", 0.0),
    **{f"{name}_axes": Attribute(Kind.INTS, _ORDER.format(name), None) for name in "qkv"},
    "result_axes": Attribute(
        Kind.INTS, "the result's axes in the order in which they are stored; None: as they are", None
    ),
}


def _infer(
    inputs: Sequence[TensorType], repeat: int, window: int, softcap: float, result_axes: tuple | None, **orders: Any
) -> TensorType:
    stored = STORED[dtype := same_dtype(inputs[3:5], frozenset(STORED))]
    unit, facts = stored.together, stored.facts
    for type_ in (inputs[0], *inputs[7:]):
        require(type_, FLOAT32)
    for type_ in inputs[1:3]:
        require(type_, frozenset({dtype}) if facts else FLOAT32)
    for type_, rank in zip(inputs, (4, 4, 4, 5, 4, 2, 1, 1), strict=False):
        if type_.rank != rank:
            raise mismatch(f"a tensor of {rank} axes", type_)
    q, k, v = (permuted(type_.shape, orders[f"{name}_axes"]) for type_, name in zip(inputs, "qkv", strict=False))
    keys, values, texts = (type_.shape for type_ in inputs[3:6])
    for type_ in inputs[5:7]:
        require(type_, INT64)
    if repeat < 1 or window < 0 or not softcap >= 0:
        raise mismatch("a repetition above 0, a window and a bound from 0 on", f"{repeat}, {window} and {softcap}")
    for shape in (q, k, v):
        match_dim(shape[0], 1)
    match_dim(q[1], lift(lambda dim: dims.multiply(dim, repeat), k[1]))
    match_dim(k[1], v[1])
    match_dim(k[2], v[2])
    if k[2] != 0:
        match_dim(k[2], q[2])
    elif window:
        raise mismatch("no window where all keys lie in pages", window)
    match_dim(lift(lambda dim: dims.add(dim, facts), q[3]), k[3])
    for type_ in inputs[7:]:
        match_dim(type_.shape[0], q[1])
    match_dim(keys[0], values[0])
    for shape in (keys, values):
        match_dim(shape[1], k[1])
    match_dim(lift(lambda dim: dims.multiply(dim, unit), keys[3]), k[3])
    match_dim(keys[4], LANES * unit)
    match_dim(values[2], lift(lambda dim: dims.multiply(dim, LANES), keys[2]))
    match_dim(values[3], v[3])
    match_dim(texts[1], 4)
    width = lift(lambda dim: dims.add(dim, -facts), v[3])
    if isinstance(width, int) and width < 0:
        raise mismatch(f"rows of {facts} bytes at least", v[3])
    return TensorType(DType.float32, permuted((*q[:3], width), result_axes))


def _floats(rows: np.ndarray) -> np.ndarray:
    """Rows as float64."""
    if not (facts := STORED[DType.of(rows.dtype)].facts):
        return rows.astype(np.float64)
    scale, zero = (
        np.ascontiguousarray(rows[..., first : first + 4]).view(dtype).astype(np.float64)
        for first, dtype in zip(range(rows.shape[-1] - facts, rows.shape[-1], 4), (np.float32, np.int32), strict=True)
    )
    return (rows[..., :-facts] - zero) * scale


def _attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    texts: np.ndarray,
    tables: np.ndarray,
    sink: np.ndarray | None = None,
    *,
    scale: float,
    repeat: int,
    window: int,
    softcap: float,
    result_axes: tuple | None,
    **orders: Any,
) -> np.ndarray:
    q, k, v = (transposed(x, orders[f"{name}_axes"])[0] for name, x in (("q", q), ("k", k), ("v", v)))
    k, v = (_floats(x if x.dtype == keys.dtype else x.astype(keys.dtype)) for x in (k, v))
    panels = keys.reshape(*keys.shape[:4], LANES, -1).swapaxes(3, 4)  # of keys, which so are rows as values are
    rows, values = _floats(panels.reshape(*values.shape[:3], keys.shape[3] * keys.shape[4] // LANES)), _floats(values)
    is_causal, q = k.shape[1] == q.shape[1], q.astype(np.float64)
    size, row, result = values.shape[2], 0, np.zeros((*q.shape[:2], v.shape[-1]))
    for first, count, past, start in texts.tolist():
        last = start - (-past // size)
        pages = tables[max(0, start) : max(0, last)]
        is_there = 0 <= start <= last <= len(tables) and ((pages >= 0) & (pages < len(values))).all()
        if first != row or min(count, past) < 0 or row + count > q.shape[1] or not is_there:
            raise IndexOutOfRangeError(
                f"a text of {count} tokens from {first} on, {past} before them in the pages {pages.tolist()} of {len(values)}, "
                f"from entry {start} of {len(tables)} on; expected it from {row} on, of {q.shape[1]} tokens"
            )
        row += count
        new = slice(first, row)
        k_all, v_all = (
            np.concatenate([paged[pages].swapaxes(0, 1).reshape(len(x), -1, x.shape[2])[:, :past], x[:, new]], axis=1)
            for paged, x in ((rows, k), (values, v))
        )
        k_all, v_all = np.repeat(k_all, repeat, 0), np.repeat(v_all, repeat, 0)
        distance = np.arange(past, past + count)[:, None] - np.arange(k_all.shape[1])
        is_seen = (distance >= 0) & ((distance < window) if window else True) if is_causal else True
        scores = q[:, new] @ k_all.swapaxes(1, 2) * scale
        scores = np.where(is_seen, softcap * np.tanh(scores / softcap) if softcap else scores, -np.inf)
        alone = np.full((len(q), 1, 1), -np.inf) if sink is None else sink.astype(np.float64)[:, None, None]
        peak = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), alone)
        weights = np.exp(scores - peak)
        result[:, new] = weights / (weights.sum(-1, keepdims=True) + np.exp(alone - peak)) @ v_all
    if row != q.shape[1]:
        raise IndexOutOfRangeError(f"the texts have {row} of {q.shape[1]} tokens")
    return transposed(result[None].astype(np.float32), result_axes)


def _work(inputs: Sequence[TensorType], results: Sequence[TensorType], **_: object) -> int:
    """As if each text filled its pages: how many it has is not in the types."""
    tokens = integer(inputs[6].shape[0]) * integer(inputs[4].shape[2])
    return 4 * elements(results[0]) * max(1, tokens)


# fmt: off
register("paged_attention", "q k v keys values texts tables sink?", _infer, _attention, Fusion.OPAQUE,
         "softmax(q kᵀ scale) v of each new token of each text and those before it. Texts, [first row, rows, earlier tokens, "
         "first entry in tables], lie one after another in the rows; earlier keys and values lie in the pages whose numbers "
         "`tables` lists, in their type: [pages, heads, page / 16, depth, 16] and [pages, heads, page, depth]. "
         "In uint8, k, v and pages hold rows of quantize_rows, and depth counts the facts, too; keys lie in words of four "
         "codes: [pages, heads, page / 16, depth / 4, 64]. Where k and v have no rows, each token sees all that lies in its "
         "text's pages. `sink`, [heads of q], is one more score in a head's softmax, without a value",
         attributes=_ATTRIBUTES, work=_work, takes_bits=True)
# fmt: on
