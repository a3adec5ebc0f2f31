"""Contexts that texts with the same beginning share.

Tokens are hashed in blocks, each hash over the one before it, so that a block's hash stands for all tokens up to its end. A
context that no text holds any more stays, until room is needed: then the one that was used least recently goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np

from ..formats.messages.errors import CacheFullError
from .adapters import Adapter
from .contexts import Contexts

BLOCK = 16  # tokens
MOST = 512  # contexts of no text: each step looks at all contexts


def chain(ids: np.ndarray, salt: bytes = b"") -> list[bytes]:
    """The hash of each whole block of int64[n]."""
    hashes, last = [], salt
    data = np.ascontiguousarray(ids, "<i8").tobytes()
    for start in range(0, len(data) - 8 * BLOCK + 1, 8 * BLOCK):
        last = blake2b(last + data[start : start + 8 * BLOCK], digest_size=16).digest()
        hashes.append(last)
    return hashes


class Prefixes:
    """Which contexts hold which beginnings. `hold` records the context of a text, `keep` one whose text is over."""

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._holders: dict[bytes, dict[int, None]] = {}  # of each block
        self._held: dict[int, tuple[np.ndarray, list[bytes]]] = {}  # tokens and hashes of each context
        self._idle: dict[int, None] = {}  # of no text, the least recently used first

    def hold(self, context: int, ids: np.ndarray, salt: bytes = b"") -> None:
        """The context has these tokens."""
        self._hold(context, ids, chain(ids, salt))

    def _hold(self, context: int, ids: np.ndarray, hashes: list[bytes]) -> None:
        self.forget(context)
        self._held[context] = ids, hashes
        for each in hashes:
            self._holders.setdefault(each, {})[context] = None

    def forget(self, context: int) -> None:
        for each in self._held.pop(context, (None, []))[1]:
            holders = self._holders[each]
            del holders[context]
            if not holders:
                del self._holders[each]
        self._idle.pop(context, None)

    def keep(self, context: int, ids: np.ndarray, salt: bytes = b"") -> None:
        """The same, of a context that no text has any more."""
        self.hold(context, ids, salt)
        self._idle[context] = None
        if len(self._idle) > MOST:
            self.drop()

    def find(self, ids: Sequence[int] | np.ndarray, hashes: list[bytes]) -> tuple[int, int] | None:
        """A context with the longest known beginning of these tokens, and its length; that context is used now."""
        count = len(hashes)
        while count and hashes[count - 1] not in self._holders:
            count -= 1
        if not count:
            return None
        length, context = max((self._common(each, ids, count), each) for each in self._holders[hashes[count - 1]])
        if context in self._idle:
            del self._idle[context]
            self._idle[context] = None
        return context, length

    def _common(self, context: int, ids: Sequence[int] | np.ndarray, count: int) -> int:
        """How many tokens are the same, of which `count` blocks are known to be."""
        start, held = count * BLOCK, self._held[context][0]
        end = min(len(held), len(ids))
        differ = np.flatnonzero(held[start:end] != np.asarray(ids[start:end], np.int64))
        return start + int(differ[0]) if len(differ) else end

    def would_move(self, context: int, length: int) -> bool:
        """Whether a text gets the context itself: no text has it, and no block is lost by that."""
        return context in self._idle and len(self._held[context][0]) - length < BLOCK

    def take(self, context: int, length: int) -> int:
        """A context of the first `length` tokens of a known one: itself, which then still holds these, or a fork."""
        if self.would_move(context, length):
            ids, hashes = self._held[context]
            self._hold(context, ids[:length], hashes[: length // BLOCK])
            if length < self._contexts.length(context):
                self._contexts.shorten(context, length)
            return context
        return self._contexts.fork(context, length)

    def drop(self, keep: int | None = None) -> bool:
        """Closes the context that was used least recently; False where there is none."""
        for context in self._idle:
            if context != keep:
                self.forget(context)
                self._contexts.close(context)
                return True
        return False

    def make_room(self, count: int, keep: int | None = None) -> None:
        """Drops contexts until `count` tokens have room, as far as there are any."""
        while self._contexts.room() < count and self.drop(keep):
            pass

    def saved(self, ids: np.ndarray, salt: bytes) -> tuple[int, dict[str, np.ndarray]]:
        """Of the longest known beginning of these tokens, the length, and what the decoder keeps of it."""
        found = self.find(ids, chain(ids, salt))
        if found is None:
            return 0, {}
        context, length = found
        if length == self._contexts.length(context):
            return length, self._contexts.saved(context)
        self.make_room(length, keep=context)
        try:
            part = self._contexts.fork(context, length)
        except CacheFullError:
            return 0, {}
        try:
            return length, self._contexts.saved(part)
        finally:
            self._contexts.close(part)

    def restore(self, ids: np.ndarray, arrays: Mapping[str, np.ndarray], salt: bytes, adapter: Adapter | None) -> None:
        """The inverse. Raises ArgumentError, CacheFullError."""
        self.make_room(len(ids))
        context = self._contexts.restored(arrays, len(ids), adapter)
        if len(ids) >= BLOCK:
            self.keep(context, ids, salt)
        else:  # nobody would find it
            self._contexts.close(context)
