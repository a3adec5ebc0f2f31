"""The contexts of a decoder's texts: what it keeps of each between two calls, and the call that makes them longer.

The engine knows no caches: it opens contexts, appends tokens to many of them at once, and gets logits. A context's logits do not
depend, to the bit, on the contexts beside it, nor on the pieces in which its tokens were appended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .adapters import Adapter, Bound


@dataclass(frozen=True)
class Appended:
    """Tokens that one context gets in a call, at least one; of the last `logits` of them, from 0 on, the logits are wanted."""

    context: int
    tokens: np.ndarray  # int64[n]
    logits: int = 1


class Contexts(ABC):
    """Contexts by number. `adapters` makes the inputs for those of their texts."""

    vocabulary: int
    adapters: Bound = Bound((), "the decoder")
    verifies = True  # whether several logits of a context take less time than as many calls

    @abstractmethod
    def open(self, adapter: Adapter | None = None) -> int:
        """A context of no tokens, which are computed with the adapter. Raises ArgumentError for one that the decoder does not
        take."""

    @abstractmethod
    def fork(self, context: int, length: int) -> int:
        """A context of the first `length` tokens of another one, which it shares or copies."""

    @abstractmethod
    def shorten(self, context: int, length: int) -> None:
        """Keeps the first `length` tokens."""

    @abstractmethod
    def close(self, context: int) -> None: ...

    @abstractmethod
    def length(self, context: int) -> int: ...

    @abstractmethod
    def room(self) -> int:
        """How many tokens can still be appended, to all contexts together, wherever they go."""

    @abstractmethod
    def append(self, batch: Sequence[Appended]) -> list[np.ndarray]:
        """The wanted logits of each, float32 [logits, vocabulary]. Contexts are distinct. Raises CacheFullError where there is no
        room, and what a call raises; then nothing is appended."""

    @abstractmethod
    def saved(self, context: int) -> dict[str, np.ndarray]:
        """What the decoder keeps of a context, by the names of its caches: copies."""

    @abstractmethod
    def restored(self, arrays: Mapping[str, np.ndarray], length: int) -> int:
        """A context of what was saved. Raises ArgumentError for anything else."""
