"""One forward of a paged cache: which rows are whose, where they go, and attention by the kernel or by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .paged_attention import Past, attend, chain, tree
from .paged_kernel import Batch, kernel_for
from .rotary import Rotary, Waves

# New tokens of a sequence, up to which the kernel reads the pages. Of 32, NumPy takes 1.8 times as long on one thread of an EPYC
# with AVX-512 (2048 tokens, 32 heads on 8, 128 elements), of 128 as long.
_FEW = 64


@dataclass(frozen=True)
class Part:
    """One sequence: which rows are its new tokens, what was there before, and where the new ones go."""

    rows: slice
    past: Past
    positions: np.ndarray  # of the new tokens
    tree: list[int] | None  # parents of the last tokens
    pages: np.ndarray  # of those new tokens that stay
    places: np.ndarray
    staying: np.ndarray  # which those are, counted from 0

    @property
    def count(self) -> int:
        return self.rows.stop - self.rows.start

    @cached_property
    def seen(self) -> np.ndarray:
        """Which of the last tokens each new one sees."""
        return chain(self.count) if self.tree is None else tree(self.tree, self.count)

    @property
    def suits_kernel(self) -> bool:
        return self.tree is None and self.count <= _FEW


class Forward:
    """All layers' attention of some new tokens. Nothing is written in a layer before all sequences have read: a page may go from
    one to another."""

    def __init__(self, parts: Sequence[Part], rotary: Rotary, heads: int) -> None:
        self.parts, self.rotary, self.heads = parts, rotary, heads
        self.total = parts[-1].rows.stop
        self.positions = np.concatenate([part.positions for part in parts]).astype(np.int32)
        self.rows = np.concatenate([part.rows.start + part.staying for part in parts])
        self.pages = np.concatenate([part.pages for part in parts])
        self.places = np.concatenate([part.places for part in parts])
        self._waves: Waves | None = None

    def attend(self, pages: np.ndarray, qkv: np.ndarray, out: np.ndarray, scale: float, table: np.ndarray) -> None:
        """`pages` of a layer. `table`: the waves of all places, for keys that are turned as they are read."""
        kv_heads, rotary = pages.shape[2], self.rotary
        wide = np.float64 if qkv.dtype == np.float64 else np.float32
        queries, keys, values = np.split(qkv, [self.heads, self.heads + kv_heads], axis=1)
        queries, turned = queries.astype(wide), keys.astype(wide)
        if rotary.mode != "none":
            if self._waves is None:
                self._waves = rotary.waves(self.positions, qkv.shape[2], np.dtype(wide))
            queries, turned = rotary.turn(queries, self._waves), rotary.turn(turned, self._waves)
        queries *= scale
        stored = turned.astype(qkv.dtype) if rotary.mode == "normal" else np.ascontiguousarray(keys)
        values = np.ascontiguousarray(values)
        if not self._attend_natively(pages, queries, stored, values, out, table):
            for part in self.parts:
                self._attend_plainly(part, pages, queries, turned, values, out)
        pages[self.pages, 0, :, self.places] = stored[self.rows]
        pages[self.pages, 1, :, self.places] = values[self.rows]

    @cached_property
    def _batch(self) -> Batch:
        return Batch.of([(part.rows, part.past) for part in self.parts])

    def _attend_natively(
        self,
        pages: np.ndarray,
        queries: np.ndarray,
        keys: np.ndarray,
        values: np.ndarray,
        out: np.ndarray,
        table: np.ndarray,
    ) -> bool:
        """Whether the kernel has done it."""
        if not all(part.suits_kernel for part in self.parts):
            return False
        group, turns = self.heads // pages.shape[2], self.rotary.mode == "inline"
        kernel = kernel_for(pages.shape[4], group, pages.dtype.name, turns)
        if kernel is None:
            return False
        is_own = out.dtype == np.float32 and out.flags.c_contiguous
        result = out[: self.total] if is_own else np.empty(queries.shape, np.float32)
        kernel(self._batch, pages, np.ascontiguousarray(queries), keys, values, result, table)
        if not is_own:
            out[: self.total] = result
        return True

    def _attend_plainly(
        self, part: Part, pages: np.ndarray, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, out: np.ndarray
    ) -> None:
        numbers, places = part.past.places()
        known = pages[numbers, 0, :, places].astype(queries.dtype)
        if self.rotary.mode == "inline":
            every = self.rotary.waves(np.arange(part.past.length), known.shape[2], known.dtype)
            known = self.rotary.turn(known, every)
        own = part.rows
        known_values = np.concatenate([pages[numbers, 1, :, places], values[own]]).astype(queries.dtype)
        attend(queries[own], np.concatenate([known, keys[own]]), known_values, part.seen, out[own])
