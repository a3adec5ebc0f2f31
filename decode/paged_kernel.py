"""Attention of few new tokens by the native kernel, which reads pages where they lie (`rows/paged_attention.py`)."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..formats.messages.calling import warn_user
from ..formats.messages.errors import CompileError, naming
from ..native.once import once
from ..vm import library
from ..vm.threads import MAX_THREADS, get_num_threads
from .paged_attention import Past

_BLOCK = 16  # scores that the kernel takes at once
_PART_BYTES = 1 << 20  # of keys and values, that are worth a thread: about 0.1 ms


@dataclass(frozen=True)
class Batch:
    """The sequences of a forward that the kernel takes, as it reads them."""

    entries: np.ndarray  # int64: first new token, their number, address of the table, length, kept, start
    tables: tuple[np.ndarray, ...]  # of pages, which live as long
    most: int  # places for scores
    tokens: int  # of all, read once for each new one

    @staticmethod
    def of(parts: Sequence[tuple[slice, Past]]) -> Batch:
        tables = tuple(past.pages for _, past in parts)
        rows = [
            (rows.start, rows.stop - rows.start, past.pages.ctypes.data, past.length, past.kept, past.start)
            for rows, past in parts
        ]
        longest = max(count + length for _, count, _, length, _, _ in rows)
        tokens = sum(count * (count + length) for _, count, _, length, _, _ in rows)
        return Batch(np.array(rows, np.int64), tables, -(-longest // _BLOCK) * _BLOCK + _BLOCK, tokens)


class PagedKernel:
    """The kernel for one size of heads."""

    def __init__(self, built: library.BuiltKernel, size: int) -> None:
        self._call = library.PROTOTYPE(library.address_of(built))
        self.heads, self.size = built.words[0], size

    def __call__(
        self,
        batch: Batch,
        pages: np.ndarray,
        queries: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
        out: np.ndarray,
        waves: np.ndarray,
    ) -> None:
        """`pages` of a layer; float32 queries, which are scaled, and `out`: [new, heads, size]; keys and values of the new tokens
        [new, kv_heads, size]. All are contiguous."""
        _, _, kv_heads, page_size, size = pages.shape
        addresses = [array.ctypes.data for array in (pages, queries, keys, values, out, batch.entries)]
        words = np.array([*addresses, len(batch.entries), kv_heads, page_size, waves.ctypes.data, batch.most], np.int64)
        read = batch.tokens * kv_heads * size * 2 * pages.itemsize
        parts = max(1, min(get_num_threads(), read // _PART_BYTES, len(batch.entries) * kv_heads))
        run = functools.partial(self._run, words, 4 * self.heads * (batch.most + size), parts)
        if parts == 1:
            run(0)
        else:
            with naming("threads of paged attention"):
                list(_helpers(os.getpid()).map(run, range(parts)))

    def _run(self, words: np.ndarray, scratch_bytes: int, parts: int, part: int) -> None:
        scratch = np.empty(scratch_bytes + 64, np.uint8)
        outcome = (ctypes.c_int64 * 2)()
        at = ctypes.addressof(outcome)
        self._call(at, at + 8, words.ctypes.data, -(-scratch.ctypes.data // 64) * 64, part, parts)


@once
def kernel_for(size: int, group: int, element: str, turns: bool) -> PagedKernel | None:
    """The kernel, if there is one and it can be built here."""
    try:
        built = library.compiler().paged_attention(size, group, element, turns)
    except CompileError as error:
        warn_user(f"attention over pages will be NumPy's, which is slower: {error}", RuntimeWarning)
        return None
    return None if built is None else PagedKernel(built, size)


@once
def _helpers(process: int) -> ThreadPoolExecutor:
    """Of this process: a child of fork has none of its parent's threads."""
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="treadle-paged")
