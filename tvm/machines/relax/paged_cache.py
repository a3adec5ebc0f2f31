"""`vm.builtin.paged_attention_kv_cache_*`, `attention_kv_cache_*` of pages, and `kv_state_*`: faces of `PagedCache`, and of
`RecurrentState`, which has the same methods for sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....decode.paged_cache import PagedCache
from ....decode.recurrent_state import RecurrentState
from ....decode.rotary import Rotary
from ....formats.messages.errors import ArgumentError, CheckError
from ....vm.tensor import Tensor
from ...modules.containers import Object, ShapeTuple
from ...modules.registry import register_crossing
from .registering import builtin
from .values import required, sizes, tensor

_ROTARY = ("none", "normal", "inline")


@register_crossing
class KVCache(PagedCache, Object):
    """A paged cache as a value of TVM's."""


def _cache(value: Any, doing: str) -> PagedCache:
    return required(value, PagedCache, "a paged cache", doing)


def _state(value: Any, doing: str) -> PagedCache | RecurrentState:
    return required(value, (PagedCache, RecurrentState), "a paged cache or a recurrent state", doing)


def _method(name: str, method: str, of: Callable[[Any, str], Any] = _state) -> None:
    """Registers a method of what `of` checks."""
    builtin(lambda state, *args: getattr(of(state, name), method)(*args), name)


# ---- making one ----


@builtin
def paged_attention_kv_cache_create(*args: Any) -> PagedCache:
    """28 or 29 arguments: `(sequences, tokens, new tokens, page size, slides)`, the layers' bounds, heads of queries, of keys and
    values, a head's size, the rotary mode, scale and theta, a tensor of the element type, then TVM's kernels, which are not
    called, and rotary factors."""
    return _create("paged_attention_kv_cache_create", args, 28)


@builtin
def paged_attention_kv_cache_create_reduced(*args: Any) -> PagedCache:
    """The same with 22 or 23 arguments."""
    return _create("paged_attention_kv_cache_create_reduced", args, 22)


def _create(doing: str, args: tuple, count: int) -> PagedCache:
    if len(args) not in (count, count + 1):
        raise ArgumentError(
            f"{doing}: Invalid number of KV cache constructor args: {len(args)}, expected {count} or {count + 1}"
        )
    config, bounds, heads, kv_heads, head_size, mode, scale, theta, init = args[:9]
    config, bounds = sizes(config, doing), sizes(bounds, doing)
    if len(config) != 5 or len(bounds) != 2:
        raise CheckError(
            f"{doing}: expected (sequences, tokens, new tokens, page size, sliding) and (first layer, end), "
            f"got {config} and {bounds}"
        )
    sequences, capacity, most_new, page_size, slides = config
    if not page_size:
        raise CheckError(f"{doing}: a page holds at least one token")
    if isinstance(mode, bool) or not isinstance(mode, int) or not 0 <= mode < len(_ROTARY):
        raise CheckError(f"{doing}: the RoPE mode must be 0 (none), 1 (normal) or 2 (inline), got {mode!r}")
    # in a window, places change: keys are stored as given
    name = _ROTARY[mode] if not (slides and mode) else "inline"
    factors = _factors(args[count] if len(args) > count else None, name, doing)
    return KVCache(
        bounds[1] - bounds[0],
        heads,
        kv_heads,
        head_size,
        -(-capacity // page_size) + 1 + (2 * sequences if slides else 0),
        page_size,
        tensor(init, doing).array.dtype,
        Rotary(name, float(theta), float(scale), factors),  # type: ignore[arg-type]
        bounds[0],
        sequences,
        most_new,
        bool(slides),
    )


def _factors(value: Any, mode: str, doing: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    if mode != "normal":
        raise CheckError(f"{doing}: The RoPE mode must be normal to support RoPE extension factors.")
    return tuple(np.ravel(tensor(value, doing).array).tolist())


# ---- sequences ----


_method("kv_state_clear", "clear")  # forgets all sequences
_method("kv_state_add_sequence", "add")
_method("kv_state_remove_sequence", "remove")
_method("kv_state_fork_sequence", "fork")  # parent, child, and how many of the parent's tokens it begins with, -1: all
_method("kv_state_popn", "pop")  # takes the last tokens of a sequence away
_method("kv_state_end_forward", "end_forward")


@builtin
def kv_state_begin_forward(state: Any, sequences: Any, counts: Any, parents: Any = None) -> None:
    """New tokens are to come to some sequences; `parents` makes trees of them."""
    doing = "kv_state_begin_forward"
    nodes = None if parents is None else _integers(parents, doing)
    _state(state, doing).begin_forward(_integers(sequences, doing), _integers(counts, doing), nodes)


def _integers(value: Any, doing: str) -> list[int]:
    if not isinstance(value, (ShapeTuple, tuple, list)) or not all(
        isinstance(each, (int, np.integer)) for each in value
    ):
        raise ArgumentError(f"{doing}: expected integers, got {value!r}")
    return list(map(int, value))


# ---- the paged cache ----


# from now on a sequence keeps its first `sinks` tokens and the last ones, together `window`
_method("attention_kv_cache_enable_sliding_window_for_seq", "slide", _cache)


@builtin
def attention_kv_cache_commit_accepted_token_tree_nodes(cache: Any, sequences: Any, leaves: Any) -> None:
    """Of each sequence's tree, keeps the path to one node; -1: nothing of it."""
    doing = "attention_kv_cache_commit_accepted_token_tree_nodes"
    _cache(cache, doing).commit(_integers(sequences, doing), _integers(leaves, doing))


@builtin
def attention_kv_cache_empty(cache: Any) -> bool:
    return _cache(cache, "attention_kv_cache_empty").is_empty


@builtin
def attention_kv_cache_get_num_available_pages(cache: Any) -> int:
    return _cache(cache, "attention_kv_cache_get_num_available_pages").free_pages


@builtin
def attention_kv_cache_get_total_sequence_length(cache: Any) -> int:
    return _cache(cache, "attention_kv_cache_get_total_sequence_length").total_length


@builtin
def attention_kv_cache_get_query_positions(cache: Any) -> Tensor:
    """Where the new tokens of this forward are in their sequences, int32."""
    return Tensor(_cache(cache, "attention_kv_cache_get_query_positions").query_positions)


@builtin
def attention_kv_cache_attention_with_fused_qkv(cache: Any, layer: int, scale: float, qkv: Tensor, out: Tensor) -> None:
    """Attention of the new tokens in one layer, into `out`; their keys and values are kept."""
    doing = "attention_kv_cache_attention_with_fused_qkv"
    _cache(cache, doing).attend(layer, tensor(qkv, doing), tensor(out, doing), scale)


@builtin
def attention_kv_cache_debug_get_kv(
    cache: Any, sequence: int, start: int, end: int, keys: Tensor, values: Tensor
) -> None:
    """What is kept of tokens, into two tensors of [layers, tokens, heads, size]."""
    doing = "attention_kv_cache_debug_get_kv"
    found = _cache(cache, doing).keys_values(sequence, start, end)
    for target, array in zip((keys, values), found, strict=True):
        tensor(target, doing).copyfrom(array)
