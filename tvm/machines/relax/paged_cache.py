"""`vm.builtin.paged_attention_kv_cache_*`, `attention_kv_cache_*` of pages, and `kv_state_*`: faces of `PagedCache`, and of
`RecurrentState`, which has the same methods for sequences."""

from __future__ import annotations

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
from .values import sizes, tensor

_ROTARY = ("none", "normal", "inline")


@register_crossing
class KVCache(PagedCache, Object):
    """A paged cache as a value of TVM's."""


def _cache(value: Any, doing: str) -> PagedCache:
    if not isinstance(value, PagedCache):
        raise ArgumentError(f"{doing}: expected a paged cache, got a {type(value).__name__}")
    return value


def _state(value: Any, doing: str) -> PagedCache | RecurrentState:
    if not isinstance(value, (PagedCache, RecurrentState)):
        raise ArgumentError(f"{doing}: expected a paged cache or a recurrent state, got a {type(value).__name__}")
    return value


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


@builtin
def kv_state_clear(state: Any) -> None:
    """Forgets all sequences."""
    _state(state, "kv_state_clear").clear()


@builtin
def kv_state_add_sequence(state: Any, sequence: int) -> None:
    _state(state, "kv_state_add_sequence").add(sequence)


@builtin
def kv_state_remove_sequence(state: Any, sequence: int) -> None:
    _state(state, "kv_state_remove_sequence").remove(sequence)


@builtin
def kv_state_fork_sequence(state: Any, parent: int, child: int, position: int = -1) -> None:
    """A new sequence that begins as the parent's first `position` tokens, -1: all."""
    _state(state, "kv_state_fork_sequence").fork(parent, child, position)


@builtin
def kv_state_popn(state: Any, sequence: int, count: int) -> None:
    """Takes the last tokens of a sequence away."""
    _state(state, "kv_state_popn").pop(sequence, count)


@builtin
def kv_state_begin_forward(state: Any, sequences: Any, counts: Any, parents: Any = None) -> None:
    """New tokens are to come to some sequences; `parents` makes trees of them."""
    doing = "kv_state_begin_forward"
    nodes = None if parents is None else _integers(parents, doing)
    _state(state, doing).begin_forward(_integers(sequences, doing), _integers(counts, doing), nodes)


@builtin
def kv_state_end_forward(state: Any) -> None:
    _state(state, "kv_state_end_forward").end_forward()


def _integers(value: Any, doing: str) -> list[int]:
    if not isinstance(value, (ShapeTuple, tuple, list)) or not all(
        isinstance(each, (int, np.integer)) for each in value
    ):
        raise ArgumentError(f"{doing}: expected integers, got {value!r}")
    return list(map(int, value))


# ---- the paged cache ----


@builtin
def attention_kv_cache_enable_sliding_window_for_seq(cache: Any, sequence: int, window: int, sinks: int) -> None:
    """From now on a sequence keeps its first `sinks` tokens and the last ones, together `window`."""
    _cache(cache, "attention_kv_cache_enable_sliding_window_for_seq").slide(sequence, window, sinks)


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
