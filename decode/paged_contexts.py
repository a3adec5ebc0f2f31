"""Contexts in pages, and one call for all texts: of executables that have `main.batch` (`compiler/decoders/batch.py`).

A page holds PAGE tokens of one text, of all layers. Texts that share a beginning share its pages (`paged_sequences.py`). A call
reads pages where they lie, and gives the new rows of each cache, which are put into pages then: if it fails nothing has changed.
Keys lie in pages as panels, [heads, page / 16, size, 16], values as rows, [heads, page, size]; in 8 bits so lie words of four.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..formats.decoders import BATCH, BATCH_INPUTS, PAGE
from ..formats.messages.errors import naming
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter, Bound
from .contexts import BYTES, Appended, Contexts, calling, check_appended, check_restored
from .paged_sequences import PagedSequences

_OWN: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def has_pages(machine: VirtualMachine, function: str) -> bool:
    """Whether a function's texts can be kept in pages."""
    return machine._reads_in_place and f"{function}{BATCH}" in machine


class _Pool:
    """A cache's pages. `tokens`: the axis of the new rows along which tokens lie."""

    def __init__(self, shape: Sequence[int], dtype: Any, tokens: int) -> None:
        self.pages = np.zeros((0, *shape), dtype)
        self.is_panels = len(shape) == 4
        together = shape[3] * shape[1] // PAGE if self.is_panels else 1  # elements of a key between those of the next
        self._unit = self.pages.dtype if together == 1 else np.dtype(f"u{together * self.pages.itemsize}")
        self._units = self.pages.view(self._unit)
        self._tokens = tokens  # of two axes, heads and tokens, behind the batch's

    def grow(self, count: int) -> None:
        size = count * math.prod(self.pages.shape[1:]) * self.pages.dtype.itemsize
        try:
            memory = mmap.mmap(-1, size, **_OWN)  # of which the system gives what is written
        except OSError as error:
            raise MemoryError(f"{size} bytes: {error}") from None
        pages = np.frombuffer(memory, np.uint8).view(self.pages.dtype).reshape(count, *self.pages.shape[1:])
        pages[: len(self.pages)] = self.pages
        self.pages, self._units = pages, pages.view(self._unit)

    def put(self, pages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> None:
        """Puts each token's row into its page, at its slot. Rows are [1, heads, tokens, size], or with the axes exchanged."""
        units = rows[0].view(self._unit)
        by_token = units if self._tokens == 1 else units.swapaxes(0, 1)
        if len(pages) == 1:  # one element's place is found in a tenth of the time
            pages, slots = pages[0], slots[0]
        if self.is_panels:
            lanes = self._units.shape[-1]
            self._units[pages, :, slots // lanes, :, slots % lanes] = by_token
        else:
            self._units[pages, :, slots] = by_token

    def rows(self, pages: np.ndarray, count: int) -> np.ndarray:
        """The rows of a text's tokens, as `put` takes them."""
        held = self._units[pages]
        if self.is_panels:
            held = held.swapaxes(3, 4).reshape(*held.shape[:2], PAGE, held.shape[3])
        by_head = held.swapaxes(0, 1).reshape(held.shape[1], -1, held.shape[3])[None, :, :count]
        return np.ascontiguousarray(by_head if self._tokens == 2 else by_head.swapaxes(1, 2)).view(self.pages.dtype)


class PagedContexts(Contexts):
    """`tokens` bounds what all contexts hold together. `cancel` ends the calls."""

    def __init__(
        self,
        machine: VirtualMachine,
        function: str = "main",
        *,
        tokens: int | None = None,
        cancel: CancelToken | None = None,
    ) -> None:
        called = function + BATCH
        self._call = calling(machine, called, cancel)
        logits, *made = machine.outputs(called)
        assert logits.shape is not None
        self.vocabulary = logits.shape[-1] if isinstance(logits.shape[-1], int) else 0
        self._pools: dict[str, _Pool] = {}
        self.adapters = Bound(machine.inputs(called), function)
        self._own: dict[int, Adapter | None] = {}  # of each context
        caches = [port for port in machine.inputs(called)[len(BATCH_INPUTS) :] if port.name not in self.adapters.names]
        for port, new in zip(caches, made, strict=True):
            assert port.shape is not None
            assert new.shape is not None
            shape = [size for size in port.shape[1:] if isinstance(size, int)]
            tokens_axis = next(axis for axis, size in enumerate(new.shape) if not isinstance(size, int))
            self._pools[port.name] = _Pool(shape, port.dtype, tokens_axis)
        page_bytes = sum(pool.pages.itemsize * math.prod(pool.pages.shape[1:]) for pool in self._pools.values())
        count = max(1, BYTES // page_bytes) if tokens is None else max(1, -(-tokens // PAGE))
        self._sequences = PagedSequences(count, PAGE)
        # Pages that have addresses from the beginning; then there are twice as many each time, and the old ones are copied.
        self._first = max(1, BYTES // page_bytes)
        self._next = 0

    # ---- contexts ----

    def open(self, adapter: Adapter | None = None) -> int:
        self.adapters.check(adapter)
        number, self._next = self._next, self._next + 1
        self._sequences.add(number)
        self._own[number] = adapter
        return number

    def fork(self, context: int, length: int) -> int:
        self._check_length(context, length)
        number, self._next = self._next, self._next + 1
        self._sequences.fork(context, number, length)
        self._own[number] = self._own[context]
        return number

    def shorten(self, context: int, length: int) -> None:
        self._check_length(context, length)
        self._sequences.pop(context, self.length(context) - length)

    def close(self, context: int) -> None:
        self._sequences.remove(context)
        del self._own[context]

    def length(self, context: int) -> int:
        return self._sequences[context].length

    def room(self) -> int:
        """Each context may need a page that it does not fill, and one more if the page where it goes on is another's, too."""
        known, holders = self._sequences.known.values(), self._sequences.holders
        shared = sum(bool(each.length % PAGE) and holders[each.pages[-1]] > 1 for each in known)
        return max(0, self._sequences.free - len(known) - shared) * PAGE

    def saved(self, context: int) -> dict[str, np.ndarray]:
        tokens = self._sequences[context]
        pages = np.array(tokens.pages, np.int64)
        return {name: pool.rows(pages, tokens.length) for name, pool in self._pools.items()}

    def restored(self, arrays: Mapping[str, np.ndarray], length: int, adapter: Adapter | None = None) -> int:
        nothing = np.zeros(0, np.int64)
        shapes = {name: pool.rows(nothing, 0).shape for name, pool in self._pools.items()}
        expected = {
            name: (self._pools[name].pages.dtype, [size or length for size in shape]) for name, shape in shapes.items()
        }
        check_restored(arrays, expected, length)
        number = self.open(adapter)
        try:
            if length:
                self._make_room([number], [length])
        except BaseException:
            self.close(number)
            raise
        where = self._places([number], [0], [length])
        for name, pool in self._pools.items():
            pool.put(*where, arrays[name])
        return number

    # ---- a call ----

    def append(self, batch: Sequence[Appended]) -> list[np.ndarray]:
        if not batch:
            return []
        check_appended(batch)
        names = [each.context for each in batch]
        counts = [len(each.tokens) for each in batch]
        pasts = [self.length(name) for name in names]
        self._make_room(names, counts)
        try:
            logits, *made = self._call(**self._inputs(batch, counts, pasts))
        except BaseException:
            self._take_back(names, counts)
            raise
        where = self._places(names, pasts, counts)
        for pool, rows in zip(self._pools.values(), made, strict=True):
            pool.put(*where, rows.numpy())
        array = logits.numpy()
        ends = accumulate(each.logits for each in batch)
        return [array[end - each.logits : end] for each, end in zip(batch, ends, strict=True)]

    def _make_room(self, names: Sequence[int], counts: Sequence[int]) -> None:
        """Gives contexts pages for more tokens. Raises CacheFullError, and OutOfMemoryError: then they have got none."""
        _, copies = self._sequences.append(names, counts)
        try:
            self._grow()
        except BaseException:
            self._take_back(names, counts)
            raise
        for source, target in copies:
            for pool in self._pools.values():
                pool.pages[target] = pool.pages[source]

    def _take_back(self, names: Sequence[int], counts: Sequence[int]) -> None:
        for name, count in zip(names, counts, strict=True):
            self._sequences.pop(name, count)

    def _grow(self) -> None:
        """Takes memory for the pages that somebody has."""
        needed, first = self._sequences.used, next(iter(self._pools.values()))
        have = len(first.pages)
        if needed > have:
            count = min(self._sequences.count, max(needed, 2 * have, self._first))
            for name, pool in self._pools.items():
                with naming(f"pages of {name!r}"):
                    pool.grow(count)

    def _inputs(self, batch: Sequence[Appended], counts: Sequence[int], pasts: Sequence[int]) -> dict[str, np.ndarray]:
        # Sums and lists in Python: for few texts NumPy's functions take longer than the call.
        ends = list(accumulate(counts))
        wanted = [token for end, each in zip(ends, batch, strict=True) for token in range(end - each.logits, end)]
        listed: list[int] = []
        texts = []
        for each, end, count, past in zip(batch, ends, counts, pasts, strict=True):
            texts.append((end - count, count, past, len(listed)))
            listed += self._sequences[each.context].pages[: -(-past // PAGE)]
        ids = _joined([np.asarray(each.tokens, np.int64) for each in batch])
        arrays = ids, _ranges(pasts, counts), *(np.array(each, np.int64) for each in (wanted, texts, listed))
        adapters = self.adapters.inputs([self._own[each.context] for each in batch], counts)
        return (
            dict(zip(BATCH_INPUTS, arrays, strict=True))
            | adapters
            | {name: pool.pages for name, pool in self._pools.items()}
        )

    def _places(
        self, names: Sequence[int], pasts: Sequence[int], counts: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The page and the slot in it of each new token of contexts."""
        slots = _ranges([past % PAGE for past in pasts], counts)
        pages = [
            np.array(self._sequences[name].pages[past // PAGE :], np.int64)[
                np.arange(past % PAGE, past % PAGE + count) // PAGE
            ]
            for name, past, count in zip(names, pasts, counts, strict=True)
        ]
        return _joined(pages), slots % PAGE


def _ranges(starts: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    return _joined([np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
