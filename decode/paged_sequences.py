"""Which page holds which token: the bookkeeping of a paged cache, without the pages' contents (`paged_cache.py`).

A sequence has a list of pages. A token's *slot* counts through that list, a page's places one after another. Sequences that share
a beginning share its pages, which are counted; a page that several hold is copied when one of them writes to it.

A sequence with a window keeps its first tokens (sinks) and its last ones. What lies between them leaves page by page, so the
slots of the last ones begin anywhere in a page:

    slots   0 … kept          start … start + length - kept
            the sinks         the window
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..formats.messages.errors import ArgumentError, CacheFullError, CheckError


@dataclass
class Tokens:
    """The state of one sequence."""

    pages: list[int] = field(default_factory=list)
    length: int = 0  # of tokens, of which the first `kept` lie in slots of their own
    kept: int = 0
    start: int = 0
    window: int | None = None
    sinks: int = 0
    tree: list[int] = field(default_factory=list)  # the parents of its last tokens, which are not accepted yet
    depths: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The slot of the next token."""
        return self.start + self.length - self.kept

    def slots(self, which: np.ndarray) -> np.ndarray:
        """Of tokens, counted from the first one that is there."""
        return np.where(which < self.kept, which, which - self.kept + self.start)


@dataclass(frozen=True)
class Append:
    """The changes of a sequence's pages when tokens are appended."""

    tokens: Tokens
    count: int
    kept: int
    dropped: int  # of the tokens after the sinks, old and new ones, those that leave
    # Of the pages, by their numbers in its list, it has then those before `sunk`, and those from `first` up to `last`.
    # The ones between leave; those after the end of the list are new.
    sunk: int
    first: int
    last: int
    shared: int | None  # the number of the page that is to be copied first

    @property
    def new(self) -> int:
        """How many pages come."""
        known = len(self.tokens.pages)
        return max(0, self.sunk - known) + max(0, self.last - max(self.first, known))


def _require_integers(what: str, *values: object) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise ArgumentError(f"{what}: expected an integer, got a {type(value).__name__}")


class PagedSequences:
    """Sequences, by the numbers that their owner gives them, and their pages, by number from 0 to `count`."""

    def __init__(self, count: int, page_size: int) -> None:
        self.count, self.page_size = count, page_size
        self.clear()

    def clear(self) -> None:
        self.known: dict[int, Tokens] = {}
        self.holders = np.zeros(self.count, np.int32)  # of each page
        self._released: list[int] = []
        self._unused = 0  # the first page that nobody has ever had

    @property
    def free(self) -> int:
        """How many pages are free."""
        return len(self._released) + self.count - self._unused

    @property
    def used(self) -> int:
        """How many pages somebody has ever had: the first ones."""
        return self._unused

    def __getitem__(self, sequence: int) -> Tokens:
        """Raises CheckError."""
        found = self.known.get(sequence)
        if found is None:
            raise CheckError(f'The sequence "{sequence}" cannot be found in KV cache; it holds {self._some()}')
        return found

    def _some(self) -> str:
        names = sorted(self.known)
        return f"{names[:8]}{' and others' if len(names) > 8 else ''}" if names else "none"

    def add(self, sequence: int) -> Tokens:
        _require_integers("a sequence's name", sequence)
        if sequence in self.known:
            raise CheckError(f'The sequence "{sequence}" is already in the KV cache.')
        self.known[sequence] = tokens = Tokens()
        return tokens

    def remove(self, sequence: int) -> None:
        """Its pages are free if no other sequence has them."""
        self._release(self[sequence].pages)
        del self.known[sequence]

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """A new sequence of the parent's tokens before `position`, -1: of all. It has the same pages."""
        _require_integers("a fork's position", position)
        source = self[parent]
        if position < -1:
            raise CheckError(
                f"The forked position should be non-negative, or -1 for last position as default, got {position}"
            )
        if position > source.length:
            raise CheckError(
                f"The forked position should not exceed the total length of parent sequence: got {position}, "
                f'the sequence "{parent}" has {source.length} tokens'
            )
        count = source.length if position == -1 else position
        self._committed(parent, "fork")
        if source.window is not None and count > source.sinks:
            raise CheckError(
                f'The parent sequence "{parent}" is enabled with sliding window and thus only can be forked within sink '
                f"size = {source.sinks}. But the forked position = {count}."
            )
        tokens = self.add(child)
        tokens.pages, tokens.length = source.pages[: -(-count // self.page_size)], count
        for page in tokens.pages:
            self.holders[page] += 1

    def pop(self, sequence: int, count: int) -> None:
        """Takes the last tokens away."""
        _require_integers("the number of tokens", count)
        tokens = self[sequence]
        if count < 0:
            raise CheckError(f"The length of popping {count} cannot be negative.")
        if count > tokens.length:
            raise CheckError(
                f'The sequence "{sequence}" only has length {tokens.length}, while the length of pop is {count} which '
                "exceeds the whole sequence length."
            )
        self._committed(sequence, "pop")
        self.shorten(tokens, count)

    def shorten(self, tokens: Tokens, count: int) -> None:
        """Takes the last tokens away, and the pages that hold no others."""
        tokens.length -= count
        if tokens.length <= tokens.kept:
            tokens.kept = tokens.start = 0
        used = -(-max(tokens.kept, tokens.end) // self.page_size)
        self._release(tokens.pages[used:])
        del tokens.pages[used:]

    def slide(self, sequence: int, window: int, sinks: int) -> None:
        """From now on the sequence keeps its first `sinks` tokens and the last ones, together `window`."""
        _require_integers("a window and its sinks", window, sinks)
        tokens = self[sequence]
        if sinks < 0:
            raise CheckError(f"The specified attention sink size is expected to be non negative, got {sinks}")
        if window <= 0:
            raise CheckError(f"The specified sliding window size should be positive, got {window}")
        if sinks >= window:
            raise CheckError(
                f"The attn sink size should be less than the sliding window size, got {sinks} and {window}"
            )
        if tokens.window is not None:
            raise CheckError(f'A sequence cannot be enabled twice for sliding window: "{sequence}" is')
        tokens.window, tokens.sinks = window, sinks

    def _committed(self, sequence: int, doing: str) -> None:
        if self[sequence].tree:
            raise CheckError(
                f'{doing}: the tree of tokens of sequence "{sequence}" has not been committed with accepted nodes; '
                "commit_accepted_token_tree_nodes does that"
            )

    # ---- appending ----

    def append(self, sequences: Sequence[int], counts: Sequence[int]) -> tuple[list[Append], list[tuple[int, int]]]:
        """Makes room for new tokens: what happened to each sequence, and the pages to be copied, (from, to).

        Raises CheckError, and CacheFullError where pages are missing; then nothing has happened.
        """
        plans = [self._plan(self[name], count) for name, count in zip(sequences, counts, strict=True)]
        left = Counter[int]()  # holders that pages lose
        copied, new, freed = 0, 0, 0
        for position, plan in enumerate(plans):
            pages = plan.tokens.pages
            if plan.shared is not None and self.holders[pages[plan.shared]] - left[pages[plan.shared]] > 1:
                left[pages[plan.shared]] += 1
                copied += 1
            elif plan.shared is not None:  # a sequence before it in this batch takes a copy: it is alone then
                plans[position] = replace(plan, shared=None)
            new += plan.new
            for page in pages[plan.sunk : plan.first]:
                left[page] += 1
                freed += left[page] == self.holders[page]
        # A copy is made at once, so its page must be free already; others are written when all has been read.
        if copied > self.free or copied + new > self.free + freed:
            raise CacheFullError(
                f"The KV cache is full. No page can be allocated: {copied + new} pages of {self.page_size} tokens are needed "
                f"for {sum(counts)} tokens of the sequences {list(sequences)[:8]}, {self.free + freed} of {self.count} "
                "are free; remove sequences, pop tokens, or make the cache larger"
            )
        copies = [self._own(plan.tokens, plan.shared) for plan in plans if plan.shared is not None]
        for plan in plans:
            self._release(plan.tokens.pages[plan.sunk : plan.first])
        for plan in plans:
            self._apply(plan)
        return plans, copies

    def _plan(self, tokens: Tokens, count: int) -> Append:
        size, total, kept, start = self.page_size, tokens.length + count, tokens.kept, tokens.start
        dropped = 0 if tokens.window is None else max(0, total - tokens.window)
        if dropped and not start:  # the first time
            kept = start = tokens.sinks
        sunk, first = -(-kept // size), (start + dropped) // size
        last = -(-(start + total - kept) // size)
        first, tail = max(sunk, first), tokens.end // size
        stays = tokens.end % size and not sunk <= tail < first  # the page that the last token so far is in
        shared = tail if stays and self.holders[tokens.pages[tail]] > 1 else None
        return Append(tokens, count, kept, dropped, sunk, first, last, shared)

    def _apply(self, plan: Append) -> None:
        tokens, new = plan.tokens, plan.new
        del tokens.pages[plan.sunk : plan.first]
        tokens.pages += [self._take() for _ in range(new)]
        start, left = tokens.start or plan.kept, plan.first - plan.sunk
        tokens.length += plan.count - plan.dropped
        tokens.kept, tokens.start = plan.kept, start + plan.dropped - left * self.page_size

    def _take(self) -> int:
        if self._released:
            page = self._released.pop()
        else:
            page, self._unused = self._unused, self._unused + 1
        self.holders[page] = 1
        return page

    def _own(self, tokens: Tokens, number: int) -> tuple[int, int]:
        shared, copy = tokens.pages[number], self._take()
        tokens.pages[number] = copy
        self.holders[shared] -= 1
        return shared, copy

    def _release(self, pages: Iterable[int]) -> None:
        for page in pages:
            self.holders[page] -= 1
            if not self.holders[page]:
                self._released.append(page)
