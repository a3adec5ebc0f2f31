"""What a paged cache is to compute, in float64 and without pages: the oracle of `test_paged_cache.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from treadle.decode.rotary import Rotary


def turned(x: np.ndarray, positions: Sequence[int], rotary: Rotary) -> np.ndarray:
    """x, [tokens, heads, size], by complex numbers."""
    half = x.shape[-1] // 2
    steps = rotary.scale * rotary.theta ** (-np.arange(half) / half) / np.array(rotary.factors or [1.0])
    pairs = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * np.multiply.outer(positions, steps))[:, None]
    return np.concatenate([pairs.real, pairs.imag], axis=-1) * rotary.magnitude


@dataclass
class Story:
    """The keys and values of a sequence, [layers, tokens, heads, size], turned if positions are for good."""

    keys: np.ndarray
    values: np.ndarray
    window: int | None = None
    sinks: int = 0
    tree: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.keys.shape[1]

    def cut(self, which: slice | np.ndarray | list[int]) -> Story:
        return Story(self.keys[:, which], self.values[:, which])

    def keep(self, which: slice | np.ndarray | list[int]) -> None:
        self.keys, self.values = self.keys[:, which], self.values[:, which]

    def slide(self) -> None:
        if self.window is not None and self.length > self.window:
            last = self.window - self.sinks
            self.keep([*range(self.sinks), *range(self.length - last, self.length)])


def depths(tree: Sequence[int]) -> list[int]:
    found: list[int] = []
    for parent in tree:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


class Reference:
    """The same functions as `PagedCache`, for one batch at a time."""

    def __init__(self, layers: int, heads: int, kv_heads: int, size: int, rotary: Rotary) -> None:
        self.layers, self.heads, self.kv_heads, self.size, self.rotary = layers, heads, kv_heads, size, rotary
        self.stories: dict[int, Story] = {}

    def add(self, name: int) -> None:
        empty = np.zeros((self.layers, 0, self.kv_heads, self.size))
        self.stories[name] = Story(empty, empty)

    def fork(self, parent: int, child: int, position: int) -> None:
        story = self.stories[parent]
        self.stories[child] = story.cut(slice(story.length if position < 0 else position))

    def pop(self, name: int, count: int) -> None:
        self.stories[name].keep(slice(self.stories[name].length - count))

    def commit(self, name: int, leaf: int) -> None:
        story, path = self.stories[name], []
        while leaf >= 0:
            path.insert(0, leaf)
            leaf = story.tree[leaf]
        base = story.length - len(story.tree)
        story.keep([*range(base), *(base + node for node in path)])
        story.tree = []

    def forward(
        self, names: Sequence[int], qkv: Sequence[np.ndarray], trees: Sequence[Sequence[int]] | None = None
    ) -> np.ndarray:
        """`qkv` of each sequence: [layers, new, heads + 2 kv_heads, size]. The results of all, [layers, new, heads, size]."""
        results = []
        for number, (name, rows) in enumerate(zip(names, qkv, strict=True)):
            results.append(self._one(self.stories[name], rows.astype(np.float64), trees and trees[number]))
            self.stories[name].slide()
        return np.concatenate(results, axis=1)

    def _one(self, story: Story, rows: np.ndarray, new_nodes: Sequence[int] | None) -> np.ndarray:
        new = rows.shape[1]
        queries, keys, values = np.split(rows, [self.heads, self.heads + self.kv_heads], axis=2)
        base = story.length - len(story.tree)
        story.tree = [] if new_nodes is None else [*story.tree, *new_nodes]
        places = range(new) if new_nodes is None else depths(story.tree)[-new:]
        positions = [base + place for place in places]
        if self.rotary.mode != "none":
            queries = np.stack([turned(each, positions, self.rotary) for each in queries])
        if self.rotary.mode == "normal":
            keys = np.stack([turned(each, positions, self.rotary) for each in keys])
        story.keys = np.concatenate([story.keys, keys], axis=1)
        story.values = np.concatenate([story.values, values], axis=1)
        compared = story.keys
        if self.rotary.mode == "inline":
            compared = np.stack([turned(each, range(story.length), self.rotary) for each in story.keys])
        groups = np.arange(self.heads) // (self.heads // self.kv_heads)
        result = np.zeros(queries.shape)
        for row in range(new):
            seen = self._seen(story, base, story.length - new + row)
            scores = np.einsum("lthd,lhd->lht", compared[:, seen][:, :, groups], queries[:, row]) / self.size**0.5
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            result[:, row] = np.einsum("lht,lthd->lhd", weights, story.values[:, seen][:, :, groups])
        return result

    @staticmethod
    def _seen(story: Story, base: int, token: int) -> list[int]:
        if not story.tree:
            return list(range(token + 1))
        path, node = [], token - base
        while node >= 0:
            path.append(base + node)
            node = story.tree[node]
        return [*range(base), *path]
