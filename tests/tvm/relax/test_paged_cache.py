"""What TVM's relax/test_runtime_builtin_paged_attention_kv_cache_tir.py does, without its kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import treadle.tvm as tvm
from treadle.decode.rotary import Rotary
from treadle.formats.messages.errors import CacheFullError
from treadle.tvm.runtime import ShapeTuple

from ...decode.paged_reference import Reference

LAYERS, HEADS, KV_HEADS, PAGE_SIZE = 2, 8, 2, 16
NONE, NORMAL, INLINE = range(3)


def builtin(name: str):
    return tvm.get_global_func(f"vm.builtin.{name}")


class Cache:
    """A cache by TVM's names, and the reference."""

    def __init__(self, mode: int, slides: bool, dtype: str, size: int, capacity: int = 2048) -> None:
        config = ShapeTuple([32, capacity, 512, PAGE_SIZE, int(slides)])
        create = builtin("paged_attention_kv_cache_create_reduced")
        shape = (ShapeTuple([0, LAYERS]), HEADS, KV_HEADS, size)
        self.cache = create(config, *shape, mode, 1.0, 1e4, tvm.nd.empty((), dtype), *[None] * 13, None)
        mode = INLINE if slides and mode else mode
        self.reference = Reference(LAYERS, HEADS, KV_HEADS, size, Rotary(("none", "normal", "inline")[mode]))
        self.size, self.dtype, self.slides, self.random = size, dtype, slides, np.random.default_rng(0)

    def forward(self, batch: list, trees: list[list[int]] | None = None, leaves: list[int] | None = None) -> None:
        """`batch`: (sequence, new tokens), where a sequence may be (child, parent, position)."""
        names = []
        for name, _ in batch:
            if isinstance(name, tuple):
                child, parent, position = name
                builtin("kv_state_fork_sequence")(self.cache, parent, child, position)
                self.reference.fork(parent, child, position)
                name = child
            elif name not in self.reference.stories:
                builtin("kv_state_add_sequence")(self.cache, name)
                self.reference.add(name)
            names.append(name)
        counts = [count for _, count in batch]
        parents = None if trees is None else ShapeTuple(itertools.chain(*trees))
        builtin("kv_state_begin_forward")(self.cache, ShapeTuple(names), ShapeTuple(counts), parents)
        shape = (HEADS + 2 * KV_HEADS, self.size)
        qkv = [self.random.random((LAYERS, count, *shape)).astype(self.dtype) for count in counts]
        expected = self.reference.forward(names, qkv, trees)
        for layer in range(LAYERS):
            rows = tvm.nd.array(np.concatenate(qkv, axis=1)[layer])
            out = tvm.nd.empty((sum(counts), HEADS, self.size), self.dtype)
            builtin("attention_kv_cache_attention_with_fused_qkv")(self.cache, layer, 1.0, rows, out)
            tvm.testing.assert_allclose(out.numpy(), expected[layer], 1e-3, 1e-3)
        builtin("kv_state_end_forward")(self.cache)
        if leaves is not None:
            commit = builtin("attention_kv_cache_commit_accepted_token_tree_nodes")
            commit(self.cache, ShapeTuple(names), ShapeTuple(leaves))
            for name, leaf in zip(names, leaves, strict=True):
                self.reference.commit(name, leaf)
        self.verify(names)

    def verify(self, names) -> None:
        for name in names:
            story = self.reference.stories[name]
            if not story.length:
                continue
            shape = (LAYERS, story.length, KV_HEADS, self.size)
            keys, values = (tvm.nd.empty(shape, self.dtype) for _ in range(2))
            builtin("attention_kv_cache_debug_get_kv")(self.cache, name, 0, story.length, keys, values)
            tvm.testing.assert_allclose(keys.numpy(), story.keys, 1e-3, 1e-3)
            tvm.testing.assert_allclose(values.numpy(), story.values, 1e-3, 1e-3)

    def pop(self, name: int, count: int) -> None:
        builtin("kv_state_popn")(self.cache, name, count)
        self.reference.pop(name, count)

    def remove_all(self) -> None:
        for name in sorted(self.reference.stories):
            builtin("kv_state_remove_sequence")(self.cache, name)
            del self.reference.stories[name]
            self.verify(self.reference.stories)
        assert builtin("attention_kv_cache_empty")(self.cache)

    def slide(self, name: int, window: int, sinks: int) -> None:
        if name not in self.reference.stories:
            builtin("kv_state_add_sequence")(self.cache, name)
            self.reference.add(name)
        builtin("attention_kv_cache_enable_sliding_window_for_seq")(self.cache, name, window, sinks)
        self.reference.stories[name].window, self.reference.stories[name].sinks = window, sinks


CONFIGURATIONS = [
    (NORMAL, False, "float32", 64),
    (NORMAL, False, "float16", 128),
    (NONE, False, "float16", 128),
    (INLINE, False, "float16", 128),
    (NONE, True, "float16", 128),
    (INLINE, True, "float32", 128),
]


@pytest.fixture(params=CONFIGURATIONS, ids=lambda each: "-".join(map(str, each)))
def cache(request) -> Cache:
    return Cache(*request.param)


def test_prefill_and_decode(cache: Cache) -> None:
    for batch in (
        [[(0, 6)], [(1, 8)], [(2, 11)], [(3, 16)], [(4, 19), (5, 20)], [(6, 21), (7, 24)]]
        + [[(2, 5), (4, 7), (8, 24)], [(6, 13)], [(8, 19)], [(0, 1)], [(1, 3), (3, 8), (5, 12), (7, 11)]]
        + [[(name, 1) for name in range(9)]] * 2
        + [[(name, 1) for name in range(0, 9, 2)], [(name, 1) for name in range(4, 9)]]
    ):
        cache.forward(batch)


def test_forks(cache: Cache) -> None:
    cache.forward([(0, 60), (1, 88), (2, 17), (3, 4)])
    for batch in ([((4, 3, -1), 35)], [((5, 0, -1), 20)], [((6, 5, -1), 102)], [((7, 0, -1), 3)]):
        cache.forward(batch)
    cache.forward([((8, 5, -1), 71), ((9, 5, -1), 20)])
    for names in ([2, 4, 7, 6, 8, 9], [7, 6, 8, 9], [7, 1, 6, 2, 8, 4, 9]):
        cache.forward([(name, 1) for name in names])
    cache.forward([(7, 10), (6, 2), (8, 3), (9, 4)])
    cache.forward([((10, 1, 33), 11)])
    cache.forward([((11, 0, 60), 45), ((12, 0, 15), 14)])
    cache.forward([((13, 0, 16), 19), ((14, 0, 17), 19)])
    cache.forward([((15, 5, 60), 8), ((16, 5, 80), 10), ((17, 5, 76), 45)])
    cache.forward([(10, 10), (6, 2), (8, 3), (17, 4)])
    cache.remove_all()
    cache.forward([(0, 7), (1, 24)])
    cache.forward([((2, 1, -1), 10), ((3, 0, -1), 200)])
    cache.forward([(2, 1), (3, 1)])


def test_popn(cache: Cache) -> None:
    cache.forward([(0, 35), (1, 88), (2, 17), (3, 4)])
    cache.forward([((4, 3, -1), 35)])
    for name, count in ((0, 17), (1, 57), (2, 16), (3, 0), (4, 37)):
        cache.pop(name, count)
        cache.verify(range(5))
    cache.remove_all()


def test_sliding_windows(cache: Cache) -> None:
    if not cache.slides:
        with pytest.raises(tvm.TVMError, match="does not support sliding window"):
            cache.slide(0, 20, 6)
        return
    for name, (window, sinks) in enumerate([(20, 6), (25, 4), (30, 8), (35, 3), (40, 7)]):
        cache.slide(name, window, sinks)
    for batch in ([(0, 4)], [(1, 6)], [(2, 6), (3, 7), (4, 7)], [(0, 20), (1, 19), (2, 30), (3, 35), (4, 40)]):
        cache.forward(batch)
    for _ in range(20):
        cache.forward([(name, 1) for name in range(5)])


def test_forks_of_sliding_windows(cache: Cache) -> None:
    if not cache.slides:
        return
    for name, (window, sinks) in enumerate([(30, 15), (35, 20), (40, 25)]):
        cache.slide(name, window, sinks)
    cache.forward([(0, 12), (1, 18), (2, 28)])
    cache.forward([((3, 0, 10), 8), ((4, 1, -1), 20), ((5, 2, 18), 18)])
    cache.forward([(0, 9), (1, 15), (2, 4), (3, 10), (4, 3), (5, 7)])
    builtin("kv_state_fork_sequence")(cache.cache, 3, 6, 18)
    cache.reference.fork(3, 6, 18)
    cache.slide(6, 25, 24)
    cache.forward([(3, 10), (6, 12)])
    with pytest.raises(tvm.TVMError, match="can be forked within sink size = 15"):
        builtin("kv_state_fork_sequence")(cache.cache, 0, 7, 16)


def test_trees(cache: Cache) -> None:
    trees = [
        [-1, 0, 0, 1, 1, 2, 2],
        [-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6],
        [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        [-1, 0, 0, 1, 1, 2, 2, -1, 7, 7, 8, 8, 9, 9],
    ]
    cache.forward([(0, 10), (1, 20), (2, 30), (3, 40)])
    batch = [(name, len(tree)) for name, tree in enumerate(trees)]
    if cache.slides or cache.reference.rotary.mode == "inline":
        with pytest.raises(tvm.TVMError, match="Tree attention does not support"):
            cache.forward(batch, trees, [6, 11, 6, 13])
        return
    cache.forward(batch, trees, [6, 11, 6, 13])
    for _ in range(3):
        cache.forward([(name, 1) for name in range(4)])
    chains = [[*range(-1, count - 1)] for count in (7, 15, 10, 14)]
    cache.forward([(name, len(tree)) for name, tree in enumerate(chains)], chains, [2, 6, -1, 4])
    for leaves in range(5):  # trees that grow
        first, count = 2**leaves - 1, 2**leaves
        nodes = [(node - 1) // 2 for node in range(first, first + count)]
        cache.forward([(name, count) for name in range(4)], [nodes] * 4, [2, 6, -1, 4] if leaves == 4 else None)


def test_layers_positions_and_pages() -> None:
    create = builtin("paged_attention_kv_cache_create")
    config = ShapeTuple([4, 100, 64, 16, 0])
    factors = tvm.nd.array(np.linspace(1, 4, 8, dtype="float32"))
    init = tvm.nd.empty((), "float32")
    cache = create(config, ShapeTuple([3, 5]), 4, 2, 16, NORMAL, 1.0, 1e4, init, *[None] * 19, factors)
    pages = builtin("attention_kv_cache_get_num_available_pages")
    assert pages(cache) == 8  # 100 tokens are 7 pages, and one more
    builtin("kv_state_add_sequence")(cache, 0)
    builtin("kv_state_begin_forward")(cache, [0], [20])
    qkv, out = tvm.nd.empty((20, 8, 16)), tvm.nd.empty((20, 4, 16))
    with pytest.raises(tvm.TVMError, match="there is no layer 0; there are 3 to 4"):
        builtin("attention_kv_cache_attention_with_fused_qkv")(cache, 0, 1.0, qkv, out)
    builtin("attention_kv_cache_attention_with_fused_qkv")(cache, 3, 1.0, qkv, out)
    builtin("kv_state_end_forward")(cache)
    builtin("kv_state_begin_forward")(cache, [0], [2])
    assert builtin("attention_kv_cache_get_query_positions")(cache).numpy().tolist() == [20, 21]
    assert builtin("attention_kv_cache_get_total_sequence_length")(cache) == 22
    assert pages(cache) == 6
    with pytest.raises(tvm.TVMError, match="got 65 tokens, the cache was made for 64"):
        builtin("kv_state_begin_forward")(cache, [0], [65])
    builtin("kv_state_begin_forward")(cache, [0], [64])
    with pytest.raises(CacheFullError, match="No page can be allocated"):
        builtin("kv_state_begin_forward")(cache, [0], [64])
    builtin("kv_state_clear")(cache)
    assert pages(cache) == 8


def test_a_program_makes_a_cache_and_goes_on_in_it() -> None:
    """As compiled programs do: the cache is a value in their registers."""
    ib = tvm.relax.ExecBuilder()

    def call(name: str, *args, dst: int | None = None) -> None:
        ib.emit_call(f"vm.builtin.{name}", args=list(args), dst=None if dst is None else ib.r(dst))

    with ib.function("create_cache", num_inputs=1):
        numbers = [ib.imm(each) for each in (4, 2, 16, NORMAL)]
        shapes = [ib.convert_constant(ShapeTuple(each)) for each in ([4, 100, 64, 16, 0], [0, 1])]
        floats = [ib.convert_constant(each) for each in (1.0, 1e4)]
        nothing = [ib.void_arg()] * 13
        call("paged_attention_kv_cache_create_reduced", *shapes, *numbers, *floats, ib.r(0), *nothing, dst=1)
        ib.emit_ret(ib.r(1))
    with ib.function("decode", num_inputs=3):  # cache, qkv, out
        scale = ib.convert_constant(1.0)
        call("attention_kv_cache_attention_with_fused_qkv", ib.r(0), ib.imm(0), scale, ib.r(1), ib.r(2))
        ib.emit_ret(ib.r(2))
    vm = tvm.relax.VirtualMachine(ib.get(), tvm.cpu())
    cache = vm["create_cache"](tvm.nd.empty((), "float32"))
    reference = Reference(1, 4, 2, 16, Rotary("normal"))
    builtin("kv_state_add_sequence")(cache, 0)
    reference.add(0)
    for count in (5, 1, 1):
        qkv = np.random.default_rng(count).random((count, 8, 16), "float32")
        builtin("kv_state_begin_forward")(cache, ShapeTuple([0]), ShapeTuple([count]))
        found = vm["decode"](cache, tvm.nd.array(qkv), tvm.nd.empty((count, 4, 16)))
        builtin("kv_state_end_forward")(cache)
        tvm.testing.assert_allclose(found.numpy(), reference.forward([0], [qkv[None]])[0], 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({0: ShapeTuple([4, 100, 64, 16])}, "expected .sequences, tokens"),
        ({0: ShapeTuple([4, 100, 64, 0, 0])}, "a page holds at least one token"),
        ({3: 3}, "do not share"),
        ({5: 3}, "the RoPE mode must be 0"),
        ({22: tvm.nd.empty((8,))}, "The RoPE mode must be normal"),
        ({8: 5}, "expect a Tensor"),
    ],
)
def test_what_creation_refuses(change: dict, text: str) -> None:
    args = [ShapeTuple([4, 100, 64, 16, 0]), ShapeTuple([0, 1]), 4, 2, 16, NONE, 1.0, 1e4, tvm.nd.empty(())]
    args += [None] * 14
    for place, value in change.items():
        args[place] = value
    with pytest.raises(tvm.TVMError, match=text):
        builtin("paged_attention_kv_cache_create_reduced")(*args)
    with pytest.raises(tvm.TVMError, match="Invalid number of KV cache constructor args: 20"):
        builtin("paged_attention_kv_cache_create_reduced")(*args[:20])
