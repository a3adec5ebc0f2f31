"""`treadle bench paged`: a decode step of a layer over a paged cache, against NumPy that gathers the pages, and against a plain
read of as many bytes, on one thread, in turns.

    8 sequences of 1024 tokens in pages of 16, which lie anywhere; 32 heads of 128 elements share 8 of keys and values
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .race import in_turns, threads_put_back

if TYPE_CHECKING:
    from ....decode.paged_cache import PagedCache

_SEQUENCES, _TOKENS, _HEADS, _KV_HEADS, _SIZE, _PAGE = 8, 1024, 32, 8, 128, 16


def measure_paged(repeat: int) -> dict[str, Any]:
    """Medians of milliseconds a step of all sequences."""
    from .... import set_num_threads
    from ...machine_limits import PlainRead

    with threads_put_back():
        set_num_threads(1)
        cache, names = _filled(), list(range(_SEQUENCES))
        qkv = np.random.default_rng(1).normal(size=(_SEQUENCES, _HEADS + 2 * _KV_HEADS, _SIZE)).astype(np.float32)
        size = _SEQUENCES * _TOKENS * _KV_HEADS * _SIZE * 2 * 4
        read = PlainRead(size, 1)
        expected = _gathered(cache, qkv)
        with cache.forward(names, [1] * _SEQUENCES):
            found = cache.attend(0, qkv).numpy()
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
            calls: dict[str, Callable[[], Any]] = {
                "ms_a_step": lambda: cache.attend(0, qkv),
                "gathering_ms": lambda: _gathered(cache, qkv),
                "plain_read_ms": read.seconds,
            }
            times = in_turns(calls, repeat)
    medians = {name: 1e3 * statistics.median(each) for name, each in times.items()}
    share = medians["plain_read_ms"] / medians["ms_a_step"]
    return {
        **medians,
        "megabytes": size / 1e6,
        "tokens_a_second": 1e3 * _SEQUENCES / medians["ms_a_step"],
        "share_of_a_plain_read": share,
    }


def _filled() -> PagedCache:
    """The pages of a sequence come in turns with those of the others."""
    from ....decode.paged_cache import PagedCache

    pages = _SEQUENCES * (_TOKENS // _PAGE + 1)
    cache = PagedCache(1, _HEADS, _KV_HEADS, _SIZE, pages, _PAGE)
    cache.pages[...] = np.random.default_rng(0).normal(size=cache.pages.shape[3:])
    names = list(range(_SEQUENCES))
    for name in names:
        cache.add(name)
    for _ in range(_TOKENS // _PAGE):
        cache.begin_forward(names, [_PAGE] * _SEQUENCES)
    cache.end_forward()
    return cache


def _gathered(cache: PagedCache, qkv: np.ndarray) -> np.ndarray:
    """The obvious implementation: each sequence's keys and values side by side, then two products."""
    results = []
    for name in range(_SEQUENCES):
        table = cache.sequences[name].pages[: _TOKENS // _PAGE]
        keys, values = cache.pages[0, table].transpose(1, 2, 0, 3, 4).reshape(2, _KV_HEADS, _TOKENS, _SIZE)
        new = qkv[name, _HEADS:].reshape(2, _KV_HEADS, 1, _SIZE)
        keys, values = np.concatenate([keys, new[0]], axis=1), np.concatenate([values, new[1]], axis=1)
        queries = qkv[name, :_HEADS].reshape(_KV_HEADS, _HEADS // _KV_HEADS, _SIZE)
        scores = queries @ keys.transpose(0, 2, 1) / _SIZE**0.5
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        results.append((weights / weights.sum(axis=-1, keepdims=True) @ values).reshape(_HEADS, _SIZE))
    return np.stack(results)
