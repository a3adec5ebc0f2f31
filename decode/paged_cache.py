"""Keys and values of many sequences in pages: what a language model keeps of the text that it has read.

    cache = PagedCache(layers=2, heads=8, kv_heads=2, head_size=64, pages=100, page_size=16, rotary=Rotary("normal"))
    cache.add(0)
    with cache.forward([0], [5]):  # sequence 0 gets five tokens
        for layer in range(2):
            y = cache.attend(layer, qkv)  # [5, heads + 2 kv_heads, head_size] → [5, heads, head_size]
    cache.fork(0, 1)  # a second sequence, in the same pages until one of them goes on
    with cache.forward([0, 1], [1, 1]):
        ...

Memory is that of the pages, taken when the cache is made. A page holds `page_size` tokens of one sequence, and is free again when
no sequence has it. `paged_sequences.py` says which page holds what.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..formats import limits
from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError, CheckError, DTypeError, IndexOutOfRangeError, ShapeError, naming
from ..vm.tensor import Tensor, empty
from .paged_attention import Past
from .paged_forward import Forward, Part
from .paged_sequences import Append, PagedSequences, Tokens
from .rotary import Rotary

MOST_TOKENS = 1 << 24  # of a forward: what is noted of them takes 1 GB; a window takes any number
MOST_NODES = 256  # of a sequence's tree of tokens, as in TVM


class PagedCache:
    """Keys and values of sequences that have numbers; see above. Not for several threads at once."""

    def __init__(
        self,
        layers: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        pages: int,
        page_size: int = 16,
        dtype: Any = "float32",
        rotary: Rotary = Rotary(),  # noqa: B008  it is immutable
        first_layer: int = 0,
        most_sequences: int | None = None,
        most_new_tokens: int | None = None,
        slides: bool = True,
    ) -> None:
        """`heads` of queries share `kv_heads` of keys and values, evenly. A forward has at most `most_sequences` and
        `most_new_tokens` (None: as many as there are); layers are numbered from `first_layer` on.

        Raises ArgumentError, CheckError, ShapeError, DTypeError, OutOfMemoryError.
        """
        sizes = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_size": head_size}
        sizes |= {"pages": pages, "page_size": page_size}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
                raise ArgumentError(f"PagedCache: {name} must be an integer, got {size!r}")
            if not 0 < size <= limits.DIMENSION:
                raise CheckError(f"PagedCache: {name} must be above 0, got {size}")
        if heads % kv_heads:
            raise CheckError(f"PagedCache: {heads} heads do not share {kv_heads} heads of keys and values evenly")
        rotary.check(head_size)
        self.element = DType.of(dtype).numpy
        if self.element.kind != "f":
            raise DTypeError(f"PagedCache: elements must be floats, got {self.element}")
        self.layers, self.heads, self.kv_heads, self.head_size = layers, heads, kv_heads, head_size
        self.rotary, self.first_layer, self.slides = rotary, first_layer, slides
        self.most_sequences, self.most_new_tokens = most_sequences, most_new_tokens
        shape = (layers, pages, 2, kv_heads, page_size, head_size)
        with naming(f"a cache of {' x '.join(map(str, shape))} elements of {self.element}"):
            self.pages = empty(shape, self.element)
            self.sequences = PagedSequences(pages, page_size)
        self._forward: Forward | None = None
        self._positions = np.zeros(0, np.int32)
        self._has_slid = False  # in this forward: what left is overwritten once a layer has attended
        self._attended: set[int] = set()
        self._table = np.zeros((0, head_size), np.float32)

    # ---- sequences ----

    def clear(self) -> None:
        """Forgets all sequences."""
        self._forward = None
        self.sequences.clear()

    def add(self, sequence: int) -> None:
        """A new sequence, of no tokens. Raises CheckError."""
        self.sequences.add(sequence)

    def remove(self, sequence: int) -> None:
        """Forgets a sequence. Raises CheckError."""
        self.sequences.remove(sequence)
        self._forward = None

    def fork(self, parent: int, child: int, position: int = -1) -> None:
        """A new sequence of the parent's tokens before `position` (-1: all), in the same pages. Raises CheckError."""
        self.sequences.fork(parent, child, position)
        self._forward = None

    def pop(self, sequence: int, count: int) -> None:
        """Takes the last tokens of a sequence away. Raises CheckError."""
        self.sequences.pop(sequence, count)
        self._forward = None

    def slide(self, sequence: int, window: int, sinks: int = 0) -> None:
        """From now on a sequence keeps `window` tokens: the first `sinks` and the last ones. Raises CheckError."""
        if not self.slides:
            raise CheckError("The KV cache does not support sliding window.")
        self.sequences.slide(sequence, window, sinks)

    @property
    def is_empty(self) -> bool:
        return not self.sequences.known

    @property
    def free_pages(self) -> int:
        return self.sequences.free

    @property
    def total_length(self) -> int:
        """Tokens of all sequences together, those that they share counted for each."""
        return sum(tokens.length for tokens in self.sequences.known.values())

    def length(self, sequence: int) -> int:
        """Tokens of one sequence. Raises CheckError."""
        return self.sequences[sequence].length

    # ---- a forward ----

    @contextlib.contextmanager
    def forward(
        self, sequences: Sequence[int], counts: Sequence[int], parents: Sequence[int] | None = None
    ) -> Iterator[None]:
        """`begin_forward`, and in the end `end_forward`."""
        self.begin_forward(sequences, counts, parents)
        try:
            yield
        finally:
            self.end_forward()

    def begin_forward(
        self, sequences: Sequence[int], counts: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        """Makes room for new tokens of some sequences; `attend`, for each layer, brings them.

        `parents` makes trees of them: of each new token the number of the token of its tree that it follows, -1 for a first one.
        Trees grow until `commit` keeps one path of each. Raises CheckError; CacheFullError where pages are missing: then nothing
        has changed.
        """
        self._forward = None
        self._check_batch(sequences, counts)
        trees = None if parents is None else self._trees(sequences, counts, parents)
        if trees is None:
            for name in sequences:
                if self.sequences[name].tree:
                    raise CheckError(
                        "The input batch does not form a tree, in which case the sequences in the input batch are expected to "
                        "have their accepted tokens token tree nodes committed. Please invoke CommitAcceptedTokenTreeNodes "
                        f"for sequence {name}"
                    )
        pasts = [self._past(self.sequences[name]) for name in sequences]
        plans, copies = self.sequences.append(sequences, counts)
        for source, target in copies:
            self.pages[:, target] = self.pages[:, source]
        copied = iter(copies)
        for plan, past in zip(plans, pasts, strict=True):
            if plan.shared is not None:
                past.pages[plan.shared] = next(copied)[1]
        parts, first = [], 0
        for number, (plan, past) in enumerate(zip(plans, pasts, strict=True)):
            grown = None if trees is None else trees[number]
            parts.append(self._part(first, plan, past, grown))
            first += plan.count
        self._forward = Forward(parts, self.rotary, self.heads)
        self._positions = self._forward.positions
        self._has_slid, self._attended = any(plan.dropped for plan in plans), set()

    def end_forward(self) -> None:
        """Nothing more comes to `attend`."""
        self._forward = None

    def _check_batch(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        if len(sequences) != len(counts):
            raise CheckError(f"The seq_ids size ({len(sequences)}) and append_lengths size ({len(counts)}) mismatch.")
        if not len(sequences):
            raise CheckError("begin_forward: expected at least one sequence")
        if len(set(sequences)) != len(sequences):
            raise CheckError(f"begin_forward: each sequence must appear once, got {list(sequences)[:8]}")
        if self.most_sequences is not None and len(sequences) > self.most_sequences:
            raise CheckError(
                f"begin_forward: got {len(sequences)} sequences, the cache was made for {self.most_sequences}"
            )
        for name, count in zip(sequences, counts, strict=True):
            self.sequences[name]  # raises where it is not known
            if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
                raise ArgumentError(f"begin_forward: a number of tokens must be an integer, got {count!r}")
            if count <= 0:
                raise CheckError(
                    f'Append with length {count} is not allowed: the sequence "{name}" is to get some tokens'
                )
        most = MOST_TOKENS if self.most_new_tokens is None else min(self.most_new_tokens, MOST_TOKENS)
        if sum(counts) > most:
            raise CheckError(f"begin_forward: got {sum(counts)} tokens, the cache was made for {most}")

    def _trees(self, sequences: Sequence[int], counts: Sequence[int], parents: Sequence[int]) -> list[list[int]]:
        """Of each sequence, the parents of all nodes of its tree, the new ones the last. Raises CheckError."""
        if self.slides:
            raise CheckError("Tree attention does not support sliding window.")
        if self.rotary.mode == "inline":
            raise CheckError("Tree attention does not support inline RoPE mode.")
        if sum(counts) != len(parents):
            raise CheckError(
                f'Invalid token tree size. The sum of "append_lengths" is {sum(counts)} while there are {len(parents)} elements '
                'in "token_tree_parent_ptr".'
            )
        trees, first = [], 0
        for number, (name, count) in enumerate(zip(sequences, counts, strict=True)):
            nodes = [*self.sequences[name].tree, *map(int, parents[first : first + count])]
            first += count
            if len(nodes) > MOST_NODES:
                raise CheckError(
                    f"The tree size is {len(nodes)} which exceeds the maximum tree size limit {MOST_NODES}"
                )
            for node, parent in enumerate(nodes):
                if not -1 <= parent < node:
                    raise CheckError(
                        f"Invalid token tree. The parent of node {node} in tree {number} is {parent}, which is not smaller than "
                        f"{node}, or less than -1"
                    )
            trees.append(nodes)
        return trees

    def _past(self, tokens: Tokens) -> Past:
        pages = np.array(tokens.pages, np.int64)
        return Past(pages, tokens.length, tokens.kept, tokens.start, self.sequences.page_size)

    def _part(self, first: int, plan: Append, past: Past, parents: list[int] | None) -> Part:
        tokens, new = plan.tokens, np.arange(plan.count)
        if parents is None:
            positions = past.length + new
        else:
            base = past.length - len(tokens.tree)
            tokens.tree, tokens.depths = parents, _depths(parents)
            positions = base + np.array(tokens.depths[-plan.count :])
        got = past.length + new
        stays = (got < plan.kept) | (got >= plan.kept + plan.dropped)
        staying, got = new[stays], got[stays]
        slots = tokens.slots(np.where(got < plan.kept, got, got - plan.dropped))
        pages = np.array([tokens.pages[number] for number in slots // self.sequences.page_size], np.int64)
        places = slots % self.sequences.page_size
        return Part(slice(first, first + plan.count), past, positions, parents, pages, places, staying)

    def attend(self, layer: int, qkv: Any, out: Any = None, scale: float = 1.0) -> Tensor:
        """Attention of the new tokens to their sequences, new tokens included, whose keys and values are kept.

        `qkv` is [tokens, heads + 2 kv_heads, head_size], sequence by sequence as `begin_forward` named them; the result, `out` if
        it is given, [tokens, heads, head_size]. Rows after the last token are left out. `scale` multiplies the products of
        queries and keys, besides 1 / √head_size. Raises CheckError, ShapeError, DTypeError, IndexOutOfRangeError.
        """
        forward, at = self._forward, layer - self.first_layer
        if forward is None:
            raise CheckError(
                "attend: no forward is under way, or its sequences were changed; begin_forward comes first"
            )
        if not 0 <= at < self.layers:
            raise IndexOutOfRangeError(
                f"attend: there is no layer {layer}; there are {self.first_layer} to {self.first_layer + self.layers - 1}"
            )
        if self._has_slid and at in self._attended:
            raise CheckError(
                f"attend: layer {layer} has attended already, and what left its window is not there any more"
            )
        given = self._rows(qkv, self.heads + 2 * self.kv_heads, "qkv")
        if out is None:
            out = Tensor(np.zeros((len(given), self.heads, self.head_size), self.element))
        result = self._rows(out, self.heads, "out")
        if len(given) < forward.total or len(result) != len(given):
            raise ShapeError(
                f"attend: expected {forward.total} rows of qkv and out, got {len(given)} and {len(result)}"
            )
        rows, waves = given[: forward.total], self._waves(forward)
        forward.attend(self.pages[at], rows, result, scale / self.head_size**0.5, waves)
        self._attended.add(at)
        return out if isinstance(out, Tensor) else Tensor(out)

    def _rows(self, value: Any, heads: int, name: str) -> np.ndarray:
        array = value.array if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype != self.element:
            raise DTypeError(f"attend: {name} must be of {self.element}, got {array.dtype}")
        if name == "out" and not array.flags.writeable:
            raise ArgumentError("attend: out is read-only")
        if array.ndim != 3 or array.shape[1:] != (heads, self.head_size):
            raise ShapeError(f"attend: {name} must be [tokens, {heads}, {self.head_size}], got {list(array.shape)}")
        return array

    def _waves(self, forward: Forward) -> np.ndarray:
        """Cosines and sines of all places, [places, head_size], for keys that are turned as they are read."""
        if self.rotary.mode != "inline":
            return self._table
        needed = max(part.past.length + part.count for part in forward.parts)
        if needed > len(self._table):
            waves = self.rotary.waves(
                np.arange(max(needed, 2 * len(self._table))), self.head_size, np.dtype(np.float32)
            )
            self._table = np.concatenate(waves, axis=1)
        return self._table

    @property
    def query_positions(self) -> np.ndarray:
        """Of the new tokens of the last `begin_forward`, the places in their sequences, int32."""
        return self._positions.copy()

    def commit(self, sequences: Sequence[int], leaves: Sequence[int]) -> None:
        """Of each sequence's tree, keeps the path from the first token to node `leaf`, -1: nothing. Raises CheckError."""
        if len(sequences) != len(leaves):
            raise CheckError("The given seq_ids and leaf_indices have different size.")
        for name, leaf in zip(sequences, leaves, strict=True):
            tokens = self.sequences[name]
            if leaf != -1 and not tokens.tree:
                raise CheckError(f"The accepted nodes of sequence {name} are already committed.")
            if leaf < -1:
                raise CheckError(f"Invalid tree index {leaf} which is less than -1")
            if leaf >= max(1, len(tokens.tree)):
                raise CheckError(
                    f"Invalid tree index {leaf} which is larger than or equals to the append length {len(tokens.tree)} of "
                    f"the sequence {name}"
                )
        for name, leaf in zip(sequences, leaves, strict=True):
            self._commit(self.sequences[name], leaf)
        self._forward = None

    def _commit(self, tokens: Tokens, leaf: int) -> None:
        path: list[int] = []
        while leaf != -1:
            path.append(leaf)
            leaf = tokens.tree[leaf]
        base, count = tokens.length - len(tokens.tree), len(tokens.tree)
        moved = [(base + node, base + depth) for depth, node in enumerate(reversed(path)) if node != depth]
        if moved:
            (sources, at), (targets, to) = (self._places(tokens, np.array(each)) for each in zip(*moved, strict=True))
            self.pages[:, targets, :, :, to] = self.pages[:, sources, :, :, at]
        tokens.tree, tokens.depths = [], []
        self.sequences.shorten(tokens, count - len(path))

    def _places(self, tokens: Tokens, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pages of tokens, and their places there."""
        slots = tokens.slots(which)
        return np.array(tokens.pages, np.int64)[slots // self.sequences.page_size], slots % self.sequences.page_size

    def keys_values(self, sequence: int, start: int = 0, end: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Copies of a sequence's keys and values, [layers, tokens, kv_heads, head_size]. Raises CheckError."""
        tokens = self.sequences[sequence]
        end = tokens.length if end is None else end
        if not 0 <= start <= end <= tokens.length:
            raise CheckError(
                f'tokens {start} to {end} of the sequence "{sequence}" are asked for, which has {tokens.length}'
            )
        pages, places = self._places(tokens, np.arange(start, end))
        found = self.pages[:, pages, :, :, places]  # [tokens, layers, 2, kv_heads, head_size]
        return found[:, :, 0].swapaxes(0, 1).copy(), found[:, :, 1].swapaxes(0, 1).copy()


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent == -1 else depths[parent] + 1)
    return depths
