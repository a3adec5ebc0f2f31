"""The contexts of a decoder's texts: what it keeps of each between two calls, and the call that makes them longer.

The engine knows no caches: it opens contexts, appends tokens to many of them at once, and gets logits. A context's logits do not
depend, to the bit, on the contexts beside it, nor on the pieces in which its tokens were appended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..formats.messages.errors import ArgumentError, CheckError
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter, Bound

BYTES = 1 << 30  # of caches, if the number of tokens is not given


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
    shortens = True  # whether the last tokens can be dropped without computing the others again

    @abstractmethod
    def open(self, adapter: Adapter | None = None) -> int:
        """A context of no tokens, which are computed with the adapter. Raises ArgumentError for one that the decoder does not
        take."""

    @abstractmethod
    def fork(self, context: int, length: int) -> int:
        """A context of the first `length` tokens of another one, which it shares or copies."""

    @abstractmethod
    def shorten(self, context: int, length: int) -> None:
        """Keeps the first `length` tokens. Where these must be computed again and that fails, it has fewer."""

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
    def restored(self, arrays: Mapping[str, np.ndarray], length: int, adapter: Adapter | None = None) -> int:
        """A context of what was saved, which goes on with the adapter. Raises ArgumentError for anything else."""

    def _check_length(self, context: int, length: int) -> None:
        if not 0 <= length <= (known := self.length(context)):
            raise CheckError(f"context {context} has {known} tokens, not {length}")


def calling(machine: VirtualMachine, function: str, cancel: CancelToken | None) -> Callable[..., Any]:
    """A function by keywords, whose calls `cancel` ends if there is one."""
    return machine[function] if cancel is None else partial(_cancellable, machine, function, cancel)


def _cancellable(machine: VirtualMachine, function: str, cancel: CancelToken, **inputs: Any) -> Any:
    return machine.call(function, (), inputs, cancel=cancel)


def check_appended(batch: Sequence[Appended]) -> None:
    """Raises CheckError for pieces without tokens, more logits than tokens, and a context that is there twice."""
    for each in batch:
        if not len(each.tokens) or not 0 <= each.logits <= len(each.tokens):
            raise CheckError(f"context {each.context}: {each.logits} logits of {len(each.tokens)} tokens")
    names = [each.context for each in batch]
    if len(set(names)) < len(names):
        raise CheckError(f"append: each context must be there once, got {names[:8]}")


def check_restored(
    arrays: Mapping[str, np.ndarray], expected: Mapping[str, tuple[np.dtype, list[int]]], length: int
) -> None:
    """Raises ArgumentError for other arrays than those of the data types and shapes that are expected."""
    for name in {**expected, **arrays}:
        array = arrays.get(name)
        got = (array.dtype, list(array.shape)) if isinstance(array, np.ndarray) else None
        if got != expected.get(name):
            raise ArgumentError(f"restored: {name!r} of {length} tokens: expected {expected.get(name)}, got {got}")
