"""`vm.builtin.attention_kv_cache_*`: a tensor that grows along its first axis, or is written round and round."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....formats.messages.errors import CheckError
from ....vm.tensor import Tensor
from ...modules.containers import Array, Object, ShapeTuple
from .registering import builtin
from .values import required, sizes, tensor


class AttentionKVCache(Object):
    """Rows, of which `filled` are in use; in a window, the next one goes to `place`."""

    def __init__(self, rows: np.ndarray, filled: int) -> None:
        self.rows, self.filled, self.place = rows, filled, filled

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.rows.shape[1:]

    def taking(self, value: Any, doing: str) -> np.ndarray:
        """New rows. Raises ArgumentError, CheckError."""
        array = tensor(value, doing).array
        if array.shape[1:] != self.row_shape or array.ndim < 1 or array.dtype != self.rows.dtype:
            raise CheckError(
                f"{doing}: expected rows of {self.rows.dtype}{list(self.row_shape)}, got {array.dtype}{list(array.shape)}"
            )
        return array


def _cache(value: Any, doing: str) -> AttentionKVCache:
    return required(value, AttentionKVCache, "a cache", doing)


@builtin
def attention_kv_cache_create(init: Tensor, reserve_shape: ShapeTuple, init_fill_count: int = -1) -> AttentionKVCache:
    """A cache with room for `reserve_shape`; it begins with the rows of `init`, of which `init_fill_count` count (-1: all)."""
    doing = "attention_kv_cache_create"
    array, reserved = tensor(init, doing).array, sizes(reserve_shape, doing)
    if not array.ndim or array.shape[1:] != reserved[1:] or array.shape[0] > reserved[0]:
        raise CheckError(f"{doing}: {list(array.shape)} does not fit into {list(reserved)}")
    filled = array.shape[0] if init_fill_count < 0 else init_fill_count
    if filled > reserved[0]:
        raise CheckError(f"{doing}: {filled} rows are more than {reserved[0]}")
    rows = np.zeros(reserved, array.dtype)
    rows[: len(array)] = array
    return AttentionKVCache(rows, filled)


@builtin
def attention_kv_cache_append(cache: AttentionKVCache, value: Tensor) -> AttentionKVCache:
    """Puts rows after the last; room is doubled where it does not suffice."""
    taken = _cache(cache, "attention_kv_cache_append").taking(value, "attention_kv_cache_append")
    needed = cache.filled + len(taken)
    if needed > len(cache.rows):
        rows = np.zeros((max(needed, 2 * len(cache.rows)), *cache.row_shape), cache.rows.dtype)
        rows[: cache.filled] = cache.rows[: cache.filled]
        cache.rows = rows
    cache.rows[cache.filled : needed] = taken
    cache.filled = cache.place = needed
    return cache


@builtin
def attention_kv_cache_update(cache: AttentionKVCache, value: Tensor) -> AttentionKVCache:
    """Writes over the last rows."""
    taken = _cache(cache, "attention_kv_cache_update").taking(value, "attention_kv_cache_update")
    if len(taken) > cache.filled:
        raise CheckError(f"attention_kv_cache_update: got {len(taken)} rows for the last ones of {cache.filled}")
    cache.rows[cache.filled - len(taken) : cache.filled] = taken
    return cache


@builtin
def attention_kv_cache_view(cache: AttentionKVCache, *shape: Any) -> Tensor:
    """The rows in use, in the cache's memory; a shape, if given, must be theirs."""
    filled = _cache(cache, "attention_kv_cache_view").rows[: cache.filled]
    if shape and sizes(shape[0], "attention_kv_cache_view") != filled.shape:
        raise CheckError(
            f"attention_kv_cache_view: the cache holds {list(filled.shape)}, {list(shape[0])} is asked for"
        )
    return Tensor(filled)


@builtin
def attention_kv_cache_array_clear(caches: Array) -> None:
    """Empties caches; their room stays."""
    for each in caches:
        cache = _cache(each, "attention_kv_cache_array_clear")
        cache.filled = cache.place = 0


@builtin
def attention_kv_cache_array_popn(caches: Array, count: int) -> None:
    """Takes the last rows out of caches. Raises CheckError if there are fewer than `count`."""
    for each in caches:
        cache = _cache(each, "attention_kv_cache_array_popn")
        if not 0 <= count <= cache.filled:
            raise CheckError(f"attention_kv_cache_array_popn: {count} rows are to go, {cache.filled} are there")
        cache.filled = cache.place = cache.filled - count


@builtin
def attention_kv_cache_window_override(cache: AttentionKVCache, value: Tensor, max_cache_size: int) -> AttentionKVCache:
    """Writes rows where the last ones ended, from the beginning again after row `max_cache_size`."""
    return _override(cache, value, max_cache_size, 0, "attention_kv_cache_window_override")


@builtin
def attention_kv_cache_window_override_with_sinks(
    cache: AttentionKVCache, value: Tensor, max_cache_size: int, num_attention_sinks: int
) -> AttentionKVCache:
    """`window_override` in which the first rows, once written, stay."""
    return _override(cache, value, max_cache_size, num_attention_sinks, "attention_kv_cache_window_override_with_sinks")


def _override(cache: AttentionKVCache, value: Tensor, most: int, sinks: int, doing: str) -> AttentionKVCache:
    taken = _cache(cache, doing).taking(value, doing)
    if not 0 < most <= len(cache.rows) or not 0 <= sinks < most:
        raise CheckError(
            f"{doing}: a window of {most} rows with {sinks} that stay is not one of a cache of {len(cache.rows)}"
        )
    if len(taken) > most:
        raise CheckError(f"{doing}: got {len(taken)} rows for a window of {most}")
    for row in taken:
        if cache.place >= most:
            cache.place = sinks
        cache.rows[cache.place] = row
        cache.place += 1
        cache.filled = max(cache.filled, cache.place)
    return cache
