"""Contexts in pages, and one call for all texts: of executables that have `main.batch` (`compiler/decoders/batch.py`).

A page holds PAGE tokens of one text, of all layers. Texts that share a beginning share its pages (`paged_sequences.py`). A call
reads pages where they lie, and gives the new rows of each cache, which are put into pages then: if it fails nothing has changed.
Keys lie in pages as panels, [heads, page / 16, size, 16], values as rows, [heads, page, size]; 8-bit keys as panels of words of
four elements.

Of a decoder with states a call takes and gives those of its texts (`text_states.py`). A state cannot be shortened: that of fewer
tokens is computed again.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..formats.decoders import BATCH, BATCH_INPUTS, ENCODED_INPUTS, NEW_ROWS, PAGE, is_cache
from ..formats.messages.errors import ArgumentError, naming
from ..formats.ports import Port
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter, Bound
from .contexts import BYTES, Appended, Contexts, calling, check_appended, check_restored
from .paged_sequences import PagedSequences
from .text_states import TextStates, joined

_PIECE = 256  # tokens that are computed again in one call
_TOKENS = BATCH_INPUTS[0]  # the name of a context's tokens in what is saved, if it has states
_OWN: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def has_pages(machine: VirtualMachine, function: str) -> bool:
    """Whether a function's texts can be kept in pages."""
    return machine._reads_in_place and f"{function}{BATCH}" in machine


def encoded_inputs(machine: VirtualMachine, function: str) -> list[Port]:
    """The inputs of the function of many texts that take what an encoder has made."""
    called = function + BATCH
    own = {name.removeprefix(NEW_ROWS) for name in machine.outputs(called).names}
    return [port for port in machine.inputs(called) if is_cache(port.name) and port.name not in own]


class _Pool:
    """A cache's pages. `tokens`: the axis of the new rows along which tokens lie."""

    def __init__(self, shape: Sequence[int], dtype: Any, tokens: int) -> None:
        self.pages = np.zeros((0, *shape), dtype)
        self.is_panels = len(shape) == 4
        together = shape[3] * shape[1] // PAGE if self.is_panels else 1  # consecutive elements of one key
        self._unit = self.pages.dtype if together == 1 else np.dtype(f"u{together * self.pages.itemsize}")
        self._units = self.pages.view(self._unit)
        self._tokens = tokens  # of two axes, heads and tokens, behind the batch's

    def grow(self, count: int) -> None:
        size = count * math.prod(self.pages.shape[1:]) * self.pages.dtype.itemsize
        try:
            memory = mmap.mmap(-1, size, **_OWN)  # the system provides a page when it is first written
        except OSError as error:
            raise MemoryError(f"{size} bytes: {error}") from None
        pages = np.frombuffer(memory, np.uint8).view(self.pages.dtype).reshape(count, *self.pages.shape[1:])
        pages[: len(self.pages)] = self.pages
        self.pages, self._units = pages, pages.view(self._unit)

    def make_room(self, sequences: PagedSequences, name: str, first: int = 0) -> None:
        """Allocates the pages that are in use; at least `first` the first time."""
        needed, have = sequences.used, len(self.pages)
        if needed > have:
            with naming(f"pages of {name!r}"):
                self.grow(min(sequences.count, max(needed, 2 * have, first)))

    def put(self, pages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> None:
        """Puts each token's row into its page, at its slot. Rows are [1, heads, tokens, size], or with the axes exchanged."""
        units = rows[0].view(self._unit)
        by_token = units if self._tokens == 1 else units.swapaxes(0, 1)
        if len(pages) == 1:  # integers as subscripts take a tenth of the time of arrays
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


def _tables(
    sequences: PagedSequences, contexts: Sequence[int], counts: Sequence[int], pasts: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """int64[texts, 4]: of each text the first new row, their number, that of the rows before them, and where its pages begin in
    int64[pages], which hold the rows before of all texts."""
    # Sums and lists in Python: for few texts NumPy's functions take longer than the call.
    pages: list[int] = []
    texts = []
    for context, end, count, past in zip(contexts, accumulate(counts), counts, pasts, strict=True):
        texts.append((end - count, count, past, len(pages)))
        pages += sequences[context].pages[: -(-past // PAGE)]
    return np.array(texts, np.int64), np.array(pages, np.int64)


class _Encoded:
    """The keys and values that an encoder has made of each text, in `count` pages. Forks share them."""

    def __init__(self, ports: Sequence[Port], count: int) -> None:
        self.pools: dict[str, _Pool] = {}
        for port in ports:
            assert port.shape is not None
            self.pools[port.name] = _Pool([each for each in port.shape if isinstance(each, int)], port.dtype, 2)
        self.sequences = PagedSequences(count, PAGE)

    def open(self, context: int, arrays: Mapping[str, np.ndarray], seen: np.ndarray | None) -> None:
        """`arrays`: [1, heads, rows, size], of which those that are `seen`, bool[rows], are kept. Raises OutOfMemoryError."""
        rows = {name: each if seen is None else each[:, :, seen] for name, each in arrays.items()}
        count = next(iter(rows.values())).shape[2]
        self.sequences.add(context)
        try:
            self.sequences.append([context], [count])
            for name, pool in self.pools.items():
                pool.make_room(self.sequences, name)
                places = np.arange(count)
                pool.put(np.array(self.sequences[context].pages, np.int64)[places // PAGE], places % PAGE, rows[name])
        except BaseException:
            self.sequences.remove(context)
            raise

    def inputs(self, contexts: Sequence[int], counts: Sequence[int]) -> dict[str, np.ndarray]:
        pasts = [self.sequences[context].length for context in contexts]
        places = dict(zip(ENCODED_INPUTS, _tables(self.sequences, contexts, counts, pasts), strict=True))
        return places | {name: pool.pages for name, pool in self.pools.items()}


class PagedContexts(Contexts):
    """`tokens` bounds what all contexts hold together, `encoded` the rows of what an encoder has made of them, page by page.
    `cancel` ends the calls. Raises ArgumentError for a decoder after an encoder without `encoded`."""

    def __init__(
        self,
        machine: VirtualMachine,
        function: str = "main",
        *,
        tokens: int | None = None,
        encoded: int = 0,
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
        ports = encoded_inputs(machine, function)
        taken = {*self.adapters.names, *(port.name for port in ports), *BATCH_INPUTS, *ENCODED_INPUTS}
        caches = [port for port in machine.inputs(called) if port.name not in taken]
        if ports and not encoded:
            raise ArgumentError(
                f"{function} takes what an encoder has made, {', '.join(each.name for each in ports[:2])} …: "
                "treadle.generate takes that as feeds"
            )
        self._encoded = _Encoded(ports, -(-encoded // PAGE)) if ports else None
        self._names = [port.name for port in caches]  # in the order of the results
        self.states = TextStates(port for port, new in zip(caches, made, strict=True) if port.name == new.name)
        self.verifies = self.shortens = not self.states
        self._tokens: dict[int, list[int]] = {}  # of each context, if there are states
        for port, new in zip(caches, made, strict=True):
            if port.name in self.states.empty:
                continue
            assert port.shape is not None
            assert new.shape is not None
            shape = [size for size in port.shape[1:] if isinstance(size, int)]
            tokens_axis = next(axis for axis, size in enumerate(new.shape) if not isinstance(size, int))
            self._pools[port.name] = _Pool(shape, port.dtype, tokens_axis)
        page_bytes = sum(pool.pages.itemsize * math.prod(pool.pages.shape[1:]) for pool in self._pools.values())
        count = max(1, BYTES // page_bytes) if tokens is None else max(1, -(-tokens // PAGE))
        self._sequences = PagedSequences(count, PAGE)
        # Without `tokens`, pages are bounded by their memory: that of a text's states is counted in pages.
        self._pages_of_states = 0 if tokens is not None else -(-self.states.bytes // page_bytes)
        # Pages that have addresses from the beginning; then there are twice as many each time, and the old ones are copied.
        self._first = max(1, BYTES // page_bytes)
        self._next = 0

    # ---- contexts ----

    def open(self, adapter: Adapter | None = None) -> int:
        self.adapters.check(adapter)
        number, self._next = self._next, self._next + 1
        self._sequences.add(number)
        self._own[number] = adapter
        if self.states:
            self.states.set(number)
            self._tokens[number] = []
        return number

    def open_encoded(self, arrays: Mapping[str, np.ndarray], seen: np.ndarray | None, adapter: Adapter | None) -> int:
        """A context after an encoder's results: of each input that takes them [1, heads, rows, size]. `seen` are the rows that a
        mask does not hide, None: all."""
        number = self.open(adapter)
        assert self._encoded is not None
        try:
            self._encoded.open(number, arrays, seen)
        except BaseException:
            self.close(number)
            raise
        return number

    def fork(self, context: int, length: int) -> int:
        self._check_length(context, length)
        if self.states and length < self.length(context):
            number = self.fork(context, self.length(context))
            try:
                self.shorten(number, length)
            except BaseException:
                self.close(number)
                raise
            return number
        number, self._next = self._next, self._next + 1
        self._sequences.fork(context, number, length)
        self._own[number] = self._own[context]
        if self._encoded is not None:
            self._encoded.sequences.fork(context, number)
        if self.states:
            self.states.set(number, self.states.of(context))
            self._tokens[number] = self._tokens[context].copy()
        return number

    def shorten(self, context: int, length: int) -> None:
        self._check_length(context, length)
        if not self.states:
            self._sequences.pop(context, self.length(context) - length)
        elif length < self.length(context):
            tokens = self._tokens[context][:length]
            self._sequences.pop(context, self.length(context))
            self.states.set(context)
            self._tokens[context] = []
            for start in range(0, length, _PIECE):
                self.append([Appended(context, np.array(tokens[start : start + _PIECE], np.int64), 0)])

    def close(self, context: int) -> None:
        self._sequences.remove(context)
        del self._own[context]
        if self._encoded is not None and context in self._encoded.sequences.known:
            self._encoded.sequences.remove(context)
        if self.states:
            self.states.remove(context)
            del self._tokens[context]

    def length(self, context: int) -> int:
        return self._sequences[context].length

    def room(self) -> int:
        """Each context may need a page that it does not fill, and one more if the page where it goes on is another's, too."""
        known, holders = self._sequences.known.values(), self._sequences.holders
        shared = sum(bool(each.length % PAGE) and holders[each.pages[-1]] > 1 for each in known)
        return max(0, self._sequences.free - len(known) * (1 + self._pages_of_states) - shared) * PAGE

    def saved(self, context: int) -> dict[str, np.ndarray]:
        tokens = self._sequences[context]
        pages = np.array(tokens.pages, np.int64)
        held = {name: pool.rows(pages, tokens.length) for name, pool in self._pools.items()}
        if self.states:
            held |= {name: state.copy() for name, state in self.states.of(context).items()}
            held[_TOKENS] = np.array([self._tokens[context]], np.int64)
        return held

    def restored(self, arrays: Mapping[str, np.ndarray], length: int, adapter: Adapter | None = None) -> int:
        nothing = np.zeros(0, np.int64)
        shapes = {name: pool.rows(nothing, 0).shape for name, pool in self._pools.items()}
        expected = {
            name: (self._pools[name].pages.dtype, [size or length for size in shape]) for name, shape in shapes.items()
        }
        if self.states:
            expected |= {name: (each.dtype, [*each.shape]) for name, each in self.states.empty.items()}
            expected[_TOKENS] = np.dtype(np.int64), [1, length]
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
        if self.states:
            self.states.set(number, {name: arrays[name].copy() for name in self.states.empty})
            self._tokens[number] = arrays[_TOKENS][0].tolist()
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
            logits, *made = self._call(**self._inputs(batch, names, counts, pasts))
        except BaseException:
            self._take_back(names, counts)
            raise
        where = self._places(names, pasts, counts)
        given = {name: rows.numpy() for name, rows in zip(self._names, made, strict=True)}
        for name, pool in self._pools.items():
            pool.put(*where, given[name])
        if self.states:
            self.states.put(names, {name: given[name] for name in self.states.empty})
            for each in batch:
                self._tokens[each.context] += each.tokens.tolist()
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
        """Allocates the pages that are in use."""
        for name, pool in self._pools.items():
            pool.make_room(self._sequences, name, self._first)

    def _inputs(
        self, batch: Sequence[Appended], names: list[int], counts: Sequence[int], pasts: Sequence[int]
    ) -> dict[str, np.ndarray]:
        wanted = [
            token
            for end, each in zip(accumulate(counts), batch, strict=True)
            for token in range(end - each.logits, end)
        ]
        ids = joined([np.asarray(each.tokens, np.int64) for each in batch])
        arrays = (
            ids,
            _ranges(pasts, counts),
            np.array(wanted, np.int64),
            *_tables(self._sequences, names, counts, pasts),
        )
        adapters = self.adapters.inputs([self._own[name] for name in names], counts)
        encoded = {} if self._encoded is None else self._encoded.inputs(names, counts)
        return (
            dict(zip(BATCH_INPUTS, arrays, strict=True))
            | adapters
            | encoded
            | {name: pool.pages for name, pool in self._pools.items()}
            | self.states.inputs(names)
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
        return joined(pages), slots % PAGE


def _ranges(starts: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    return joined([np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])
