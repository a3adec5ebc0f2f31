"""Attention of new tokens to those of a sequence in pages, and to one another: the plain form, in NumPy (`paged_cache.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MOST_SCORES = 1 << 22  # at once: 16 MB, whatever the number of queries


@dataclass(frozen=True)
class Past:
    """The tokens that were there before: a sequence's pages by number, and where in them its tokens lie."""

    pages: np.ndarray  # int64
    length: int
    kept: int  # tokens in the slots from 0 on
    start: int  # slot of the others
    page_size: int

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each token, its page and its place in there."""
        tokens = np.arange(self.length)
        slots = np.where(tokens < self.kept, tokens, tokens - self.kept + self.start)
        return self.pages[slots // self.page_size], slots % self.page_size


def chain(count: int) -> np.ndarray:
    """Each new token sees itself and those before it."""
    return np.tri(count, dtype=bool)


def tree(parents: list[int], count: int) -> np.ndarray:
    """Each of the last `count` nodes sees itself and its ancestors."""
    seen = np.eye(len(parents), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            seen[node] |= seen[parent]
    return seen[len(parents) - count :]


def attend(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, seen: np.ndarray, out: np.ndarray) -> None:
    """softmax(q kᵀ) v. Queries are [new, heads, size], keys and values [tokens, groups, size], a group for each run of
    neighbouring heads; `seen` tells which of the last tokens a query sees: [new, last ones]. All others are seen."""
    count, heads, size = queries.shape
    tokens, groups = keys.shape[:2]
    each = heads // groups
    step = max(1, _MOST_SCORES // (each * tokens))
    hidden = ~seen
    for group in range(groups):
        ours = slice(group * each, (group + 1) * each)
        turned, ours_values = np.ascontiguousarray(keys[:, group].T), np.ascontiguousarray(values[:, group])
        for first in range(0, count, step):
            rows = slice(first, min(first + step, count))
            scores = queries[rows, ours].reshape(-1, size) @ turned
            scores = scores.reshape(-1, each, tokens)
            scores[..., tokens - seen.shape[1] :][
                np.broadcast_to(hidden[rows, None], (len(scores), each, seen.shape[1]))
            ] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            out[rows, ours] = (scores.reshape(-1, tokens) @ ours_values).reshape(-1, each, size)
