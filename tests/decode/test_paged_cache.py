"""Paged caches of keys and values: what they compute, and what pages they need."""

from __future__ import annotations

import gc
import re
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
import treadle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from treadle.decode.paged_cache import PagedCache
from treadle.decode.paged_kernel import kernel_for
from treadle.decode.rotary import Rotary
from treadle.formats.messages.errors import CacheFullError, CompileError, TreadleError
from treadle.vm import library

from .paged_reference import Reference

LAYERS, HEADS, KV_HEADS, SIZE = 2, 4, 2, 8
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2}


class Both:
    """A paged cache and the reference, to which the same happens."""

    def __init__(
        self,
        rotary: Rotary,
        pages: int = 200,
        page_size: int = 4,
        slides: bool = True,
        dtype: str = "float64",
        heads: tuple[int, int, int] = (HEADS, KV_HEADS, SIZE),
    ) -> None:
        self.cache = PagedCache(LAYERS, *heads, pages, page_size, dtype, rotary, slides=slides)
        self.reference = Reference(LAYERS, *heads, rotary)
        self.random = np.random.default_rng(0)
        self.dtype = dtype

    def forward(self, batch: Sequence[tuple[int, int]], trees: Sequence[Sequence[int]] | None = None) -> None:
        """New tokens for sequences, new ones too; all results and all that is kept are compared."""
        for name, _ in batch:
            if name not in self.reference.stories:
                self.cache.add(name)
                self.reference.add(name)
        names, counts = [name for name, _ in batch], [count for _, count in batch]
        shape = (self.cache.heads + 2 * self.cache.kv_heads, self.cache.head_size)
        qkv = [self.random.normal(size=(LAYERS, count, *shape)).astype(self.dtype) for count in counts]
        parents = None if trees is None else [node for tree in trees for node in tree]
        with self.cache.forward(names, counts, parents):
            rows = np.concatenate(qkv, axis=1)
            found = np.stack([self.cache.attend(layer, rows[layer]).numpy() for layer in range(LAYERS)])
        expected = self.reference.forward(names, qkv, trees)
        tolerance = TOLERANCE[self.dtype]
        np.testing.assert_allclose(found, expected, tolerance, tolerance)
        self.compare()

    def compare(self) -> None:
        for name, story in self.reference.stories.items():
            keys, values = self.cache.keys_values(name)
            tolerance = TOLERANCE[self.dtype]
            np.testing.assert_allclose(keys, story.keys, tolerance, tolerance)
            np.testing.assert_allclose(values, story.values, tolerance, tolerance)

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        self.cache.fork(parent, child, position)
        self.reference.fork(parent, child, position)

    def pop(self, name: int, count: int) -> None:
        self.cache.pop(name, count)
        self.reference.pop(name, count)

    def remove(self, name: int) -> None:
        self.cache.remove(name)
        del self.reference.stories[name]

    def slide(self, name: int, window: int, sinks: int) -> None:
        self.cache.add(name)
        self.reference.add(name)
        self.cache.slide(name, window, sinks)
        self.reference.stories[name].window, self.reference.stories[name].sinks = window, sinks

    def commit(self, names: Sequence[int], leaves: Sequence[int]) -> None:
        self.cache.commit(names, leaves)
        for name, leaf in zip(names, leaves, strict=True):
            self.reference.commit(name, leaf)
        self.compare()


ROTARIES = [
    Rotary("none"),
    Rotary("normal", theta=100.0, scale=0.5),
    Rotary("inline", theta=100.0),
    Rotary("normal", factors=(1.0, 2.0, 4.0, 8.0), magnitude=1.25),
]


@pytest.fixture(params=ROTARIES, ids=lambda each: each.mode + ("-factors" if each.factors else ""))
def both(request) -> Both:
    return Both(request.param)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sequences_of_different_lengths_go_on_together(both: Both, dtype: str) -> None:
    both = Both(both.cache.rotary, dtype=dtype)
    for batch in ([(0, 6)], [(1, 8)], [(2, 11), (3, 5)], [(0, 1), (1, 3), (3, 8)], [(0, 1), (1, 1), (2, 1), (3, 1)]):
        both.forward(batch)


def test_forks_share_pages_until_they_go_on(both: Both) -> None:
    both.forward([(0, 10)])  # pages of 4: two full ones and a half one
    free = both.cache.free_pages
    both.fork(0, 1)
    both.fork(0, 2, 8)
    assert both.cache.free_pages == free
    both.forward([(1, 1)])  # takes a copy of the half one
    assert both.cache.free_pages == free - 1
    both.forward([(0, 1), (2, 1)])  # 0 has its own now; 2 begins a page
    assert both.cache.free_pages == free - 2
    for name in (0, 2, 1):
        both.remove(name)
    assert both.cache.is_empty
    assert both.cache.free_pages == 200


def test_chains_of_forks(both: Both) -> None:
    both.forward([(0, 30)])
    for child, parent, count in (
        (1, 0, 15),
        (2, 1, 5),
        (3, 2, 20),
        (4, 3, 6),
        (5, 3, 8),
        (6, 5, 2),
        (7, 5, 12),
        (8, 7, 9),
    ):
        both.fork(parent, child)
        both.forward([(child, count)])
    both.forward([(3, 1), (6, 1), (8, 2)])
    for name in range(9):
        both.remove(name)
        both.compare()
    assert both.cache.free_pages == 200


def test_tokens_are_taken_back(both: Both) -> None:
    both.forward([(0, 35), (1, 17)])
    both.fork(0, 2)
    for name, count in ((0, 17), (1, 16), (2, 0), (2, 33), (0, 18)):
        both.pop(name, count)
        both.compare()
    both.forward([(0, 5), (1, 2), (2, 3)])


def test_windows_slide_and_sinks_stay() -> None:
    for rotary in (Rotary("none"), Rotary("inline")):
        both = Both(rotary)
        for name, (window, sinks) in enumerate([(20, 6), (25, 4), (8, 0), (5, 4), (16, 8)]):
            both.slide(name, window, sinks)
        for batch in ([(0, 4)], [(1, 6)], [(2, 6), (3, 7), (4, 7)], [(0, 20), (1, 19), (2, 30), (3, 35), (4, 40)]):
            both.forward(batch)
        for _ in range(20):
            both.forward([(name, 1) for name in range(5)])
        # a window takes the pages of its tokens, and one more where it begins in one
        assert both.cache.free_pages >= 200 - sum(-(-window // 4) + 2 for window in (20, 25, 8, 5, 16))
        both.fork(0, 9, 5)
        both.forward([(9, 7), (0, 3)])


def test_a_window_needs_no_pages_for_what_leaves_it() -> None:
    both = Both(Rotary("inline"), pages=4)
    both.slide(0, 8, 2)
    both.forward([(0, 50)])
    both.forward([(0, 30)])
    assert both.cache.length(0) == 8


def test_pages_go_from_one_sequence_to_another_within_a_forward() -> None:
    both = Both(Rotary("none"), pages=5)
    both.slide(0, 8, 0)
    both.forward([(0, 8), (1, 12)])
    assert both.cache.free_pages == 0
    both.forward([(0, 8)])
    both.slide(2, 4, 0)
    with pytest.raises(CacheFullError):
        both.cache.begin_forward([2], [1])
    both.pop(1, 12)
    both.forward([(2, 4), (0, 8)])
    both.forward([(0, 8), (1, 8)])


TREES = [
    [-1, 0, 0, 1, 1, 2, 2],
    [-1, 0, 1, 2, 3],
    [-1, 0, 0, -1, 3, 3, 4],
]


@pytest.mark.parametrize("rotary", [ROTARIES[0], ROTARIES[1]], ids=["none", "normal"])
def test_trees_of_tokens_and_what_is_accepted_of_them(rotary: Rotary) -> None:
    both = Both(rotary, slides=False)
    both.forward([(0, 10), (1, 7), (2, 4)])
    both.forward([(0, 7), (1, 5), (2, 7)], TREES)
    both.commit([2, 0, 1], [6, 5, -1])
    both.forward([(0, 1), (1, 1), (2, 1)])
    # trees that grow before one path is taken
    for depth in range(4):
        first, count = 2**depth - 1, 2**depth
        nodes = [(node - 1) // 2 for node in range(first, first + count)]
        both.forward([(name, count) for name in range(3)], [nodes] * 3)
    both.commit([0, 1, 2], [14, 3, 0])
    both.forward([(0, 2), (1, 1), (2, 1)])


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["forward", "fork", "pop", "remove", "slide"]), st.integers(0, 1 << 30)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(OPERATIONS, st.sampled_from(ROTARIES), st.sampled_from([1, 3, 4, 16]))
def test_whatever_happens_the_reference_says_the_same(operations, rotary: Rotary, page_size: int) -> None:
    compared(operations, Both(rotary, 40, page_size))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(OPERATIONS, st.sampled_from(["none", "normal", "inline"]), st.sampled_from([1, 3, 4, 16]))
def test_whatever_happens_the_kernel_agrees(operations, mode, page_size: int) -> None:
    compared(operations, Both(Rotary(mode), 40, page_size, dtype="float32", heads=(4, 2, 32)))


def compared(operations: Sequence[tuple[str, int]], both: Both) -> None:
    """Does what the operations say, each by random numbers of its own."""
    pages, fresh = both.cache.sequences.count, 0
    for operation, seed in operations:
        random = np.random.default_rng(seed)
        names = sorted(both.reference.stories)
        if operation == "forward" or not names:
            some = [int(name) for name in random.permutation([*names, fresh])[: random.integers(1, 4)]]
            fresh += fresh in some
            before = both.cache.free_pages
            try:
                both.forward([(name, int(random.integers(1, 9))) for name in some])
            except CacheFullError:
                assert both.cache.free_pages == before
            continue
        name = int(random.choice(names))
        story = both.reference.stories[name]
        if operation == "fork":
            most = story.length if story.window is None else min(story.sinks, story.length)
            both.fork(name, fresh, int(random.integers(0, most + 1)))
            fresh += 1
        elif operation == "pop":
            both.pop(name, int(random.integers(0, story.length + 1)))
        elif operation == "remove":
            both.remove(name)
        else:
            window = int(random.integers(1, 12))
            both.slide(fresh, window, int(random.integers(0, window)))
            fresh += 1
        both.compare()
        used = {page for tokens in both.cache.sequences.known.values() for page in tokens.pages}
        assert both.cache.free_pages == pages - len(used)
    for name in sorted(both.reference.stories):
        both.remove(name)
    assert both.cache.is_empty
    assert both.cache.free_pages == pages


def test_a_layer_that_attends_again_gives_the_same() -> None:
    """Also where a forward took copies of shared pages, which others write to."""
    cache = PagedCache(1, HEADS, KV_HEADS, SIZE, 20, 4)
    cache.add(0)
    random = np.random.default_rng(0)
    rows = [random.normal(size=(count, 8, SIZE)).astype(np.float32) for count in (6, 6)]
    with cache.forward([0], [6]):
        cache.attend(0, rows[0])
    cache.fork(0, 1, 5)
    with cache.forward([0, 1], [3, 3]):
        first, second = cache.attend(0, rows[1]), cache.attend(0, rows[1])
    assert np.array_equal(first.numpy(), second.numpy())


# ---- the kernel ----


@pytest.mark.parametrize("heads", [(4, 4, 32), (8, 2, 64), (12, 1, 96), (5, 1, 32)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mode", ["none", "normal", "inline"])
def test_the_kernel_reads_pages_where_they_lie(heads: tuple[int, int, int], dtype: str, mode) -> None:
    count, kv_heads, size = heads
    assert kernel_for(size, count // kv_heads, dtype, mode == "inline") is not None
    both = Both(Rotary(mode), dtype=dtype, heads=heads)
    both.slide(9, 11, 3)
    both.forward([(0, 70), (1, 5), (9, 2)])  # this many tokens are computed by NumPy
    both.fork(0, 2, 33)
    both.forward([(2, 3), (9, 20), (0, 1)])
    both.pop(0, 8)
    for _ in range(5):
        both.forward([(0, 1), (9, 1), (1, 7), (2, 1)])


def test_numpy_does_what_no_kernel_can_be_built_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CompileError("no compiler today")

    monkeypatch.setattr(library.compiler(), "paged_attention", refuse)
    both = Both(Rotary("normal"), dtype="float32", heads=(3, 1, 160))  # heads of no other test
    with pytest.warns(RuntimeWarning, match="NumPy's, which is slower: no compiler today"):
        both.forward([(0, 5)])
    both.forward([(0, 1), (1, 3)])


def test_a_step_takes_no_memory_that_grows_with_the_cache() -> None:
    cache = PagedCache(1, 8, 2, 64, 600, 16)
    cache.add(0)
    with cache.forward([0], [8192]):
        pass
    row = np.ones((1, 12, 64), np.float32)
    for _ in range(2):  # the first builds the kernel
        tracemalloc.start()
        with cache.forward([0], [1]):
            cache.attend(0, row)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < cache.pages.nbytes / 20


def test_threads_share_a_step_and_the_bits_are_the_same() -> None:
    before, random, results = treadle.get_num_threads(), np.random.default_rng(0), []
    cache = PagedCache(1, 8, 2, 64, 600, 16)
    cache.pages[...] = random.normal(size=cache.pages.shape)
    row = random.normal(size=(4, 12, 64)).astype(np.float32)
    for sequence in range(3):
        cache.add(sequence)
    cache.begin_forward(range(3), [3000, 2000, 1000])
    try:
        for threads in (1, 2, 5):
            treadle.set_num_threads(threads)
            with cache.forward(range(3), [1, 2, 1]):
                results.append(cache.attend(0, row).numpy())
            for sequence, count in enumerate([1, 2, 1]):
                cache.pop(sequence, count)
    finally:
        treadle.set_num_threads(before)
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


# ---- what it refuses ----


def test_a_full_cache_says_so_and_loses_nothing() -> None:
    both = Both(Rotary("none"), pages=3)
    both.forward([(0, 5)])
    both.cache.add(1)
    both.reference.add(1)
    with pytest.raises(
        CacheFullError, match=r"3 pages of 4 tokens are needed for 12 tokens of the sequences \[0, 1\], 1 of 3 are free"
    ):
        both.cache.begin_forward([0, 1], [4, 8])
    both.compare()
    both.forward([(0, 3), (1, 4)])


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda c: c.add(0), 'sequence "0" is already in the KV cache'),
        (lambda c: c.remove(7), 'sequence "7" cannot be found in KV cache; it holds [0]'),
        (lambda c: c.fork(0, 1, 6), "should not exceed the total length of parent sequence"),
        (lambda c: c.fork(0, 1, -2), "should be non-negative, or -1"),
        (lambda c: c.fork(0, 0), "already in the KV cache"),
        (lambda c: c.pop(0, 6), "only has length 5"),
        (lambda c: c.pop(0, -1), "cannot be negative"),
        (lambda c: c.begin_forward([0], [1, 2]), "size (1) and append_lengths size (2) mismatch"),
        (lambda c: c.begin_forward([0], [0]), "Append with length 0 is not allowed"),
        (lambda c: c.begin_forward([0], [1 << 40]), "got 1099511627776 tokens, the cache was made for 16777216"),
        (lambda c: c.begin_forward([0], [1.5]), "a number of tokens must be an integer, got 1.5"),
        (lambda c: c.pop(0, None), "expected an integer, got a NoneType"),
        (lambda c: c.add("a"), "expected an integer, got a str"),
        (lambda c: c.begin_forward([0, 0], [1, 1]), "each sequence must appear once"),
        (lambda c: c.begin_forward([0], [2], [-1]), 'Invalid token tree size. The sum of "append_lengths" is 2'),
        (lambda c: c.begin_forward([0], [2], [-1, 1]), "The parent of node 1 in tree 0 is 1"),
        (lambda c: c.begin_forward([0], [257], [-1] * 257), "exceeds the maximum tree size limit 256"),
        (lambda c: c.commit([0], [1]), "are already committed"),
        (lambda c: c.attend(0, np.zeros((1, 8, 8), np.float32)), "begin_forward comes first"),
        (lambda c: c.keys_values(0, 2, 9), "tokens 2 to 9"),
        (lambda c: c.slide(0, 4, 1), "does not support sliding window"),
    ],
)
def test_what_it_refuses(act, text: str) -> None:
    cache = PagedCache(LAYERS, HEADS, KV_HEADS, SIZE, 400, 4, "float32", slides=False)
    cache.add(0)
    with cache.forward([0], [5]):
        for layer in range(LAYERS):
            cache.attend(layer, np.ones((5, 8, 8), np.float32))
    before = cache.free_pages, cache.length(0), cache.keys_values(0)[0].sum()
    with pytest.raises(TreadleError, match=re.escape(text)):
        act(cache)
    assert before == (cache.free_pages, cache.length(0), cache.keys_values(0)[0].sum())


def test_trees_wait_for_their_acceptance() -> None:
    cache = PagedCache(LAYERS, HEADS, KV_HEADS, SIZE, 10, 4, slides=False)
    cache.add(0)
    with cache.forward([0], [2], [-1, 0]):
        pass
    for act in (lambda: cache.begin_forward([0], [1]), lambda: cache.fork(0, 1), lambda: cache.pop(0, 1)):
        with pytest.raises(TreadleError, match="commit"):
            act()
    with pytest.raises(TreadleError, match="Invalid tree index 2"):
        cache.commit([0], [2])
    cache.remove(0)
    assert cache.free_pages == 10


def test_shapes_and_element_types_are_checked() -> None:
    cache = PagedCache(LAYERS, HEADS, KV_HEADS, SIZE, 10, 4, first_layer=3)
    cache.add(0)
    cache.begin_forward([0], [2])
    rows = np.zeros((2, 8, 8), np.float32)
    for layer, qkv, text in (
        (2, rows, "there is no layer 2; there are 3 to 4"),
        (3, rows[:1], "expected 2 rows"),
        (3, rows[:, :7], r"qkv must be \[tokens, 8, 8\]"),
        (3, rows.astype(np.float16), "qkv must be of float32, got float16"),
    ):
        with pytest.raises(TreadleError, match=text):
            cache.attend(layer, qkv)
    for wrong in (
        {"kv_heads": 3},
        {"pages": 0},
        {"dtype": "int8"},
        {"dtype": "bfloat16"},
        {"rotary": Rotary("sideways")},
    ):
        with pytest.raises(TreadleError):
            PagedCache(**{"layers": 1, "heads": 4, "kv_heads": 2, "head_size": 8, "pages": 4, **wrong})
    with pytest.raises(TreadleError, match="bytes at most"):
        PagedCache(1000, 64, 64, 128, 1 << 30)


def test_memory_is_taken_once_and_given_back() -> None:
    tracemalloc.start()
    try:
        cache = PagedCache(2, 4, 4, 64, 256, 16)
        held = tracemalloc.get_traced_memory()[0]
        assert held >= cache.pages.nbytes
        for name in range(8):
            cache.add(name)
            with cache.forward([name], [400]):
                cache.attend(0, np.zeros((400, 12, 64), np.float32))
        assert tracemalloc.get_traced_memory()[0] - held < cache.pages.nbytes / 10
        del cache
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < held / 10
    finally:
        tracemalloc.stop()
