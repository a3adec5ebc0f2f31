"""Attention of few new tokens to a paged cache, in place: nothing is gathered, each key and value is read once.

It is not the kernel of an operator: `decode/paged_kernel.py` calls it, with the words `WORDS` instead of arguments.
Its scratch, for each thread: scores, [heads_of(group), most], then sums of values, [heads_of(group), size], float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import costs
from ..kernels.kernel import Kernel
from ..products.tile import BLOCK
from ..target import Target

WORDS = (
    "pages",  # address of a layer's pages: [pages, 2, kv_heads, page_size, size]
    "queries",  # float32 [new tokens, kv_heads, group, size], rotated and scaled
    "keys",  # of the new tokens: [new tokens, kv_heads, size]
    "values",
    "out",  # float32, as `queries`
    "batch",  # of each sequence `ENTRY`, words
    "sequences",
    "kv_heads",
    "page_size",
    "waves",  # float32: of each position, the cosines, then the sines, `size` numbers
    "most",  # room for scores, a multiple of BLOCK: more than tokens
)
ENTRY = (
    "first",  # its first new token
    "rows",  # number of its new tokens
    "table",  # address of the numbers of its pages, words
    "length",  # tokens before this call
    "kept",  # of them, those in the first slots
    "start",  # slot of the others
)
_MOST_HEADS = 8  # that share keys in one pass: their scores are written out


def heads_of(group: int) -> int:
    """Heads in one pass."""
    return max(heads for heads in range(1, _MOST_HEADS + 1) if group % heads == 0)


def is_possible(size: int, element: str, turns: bool) -> bool:
    """Whether there is a kernel for heads of that size."""
    step = 2 * BLOCK if turns else BLOCK
    return element in ("float32", "float16") and 0 < size <= costs.ATTENTION_ROW and size % step == 0


def kernel(size: int, group: int, element: str, turns: bool, target: Target) -> Kernel:
    """The kernel for heads of `size` elements, `group` of which share keys and values; `turns`: keys are rotated when read."""
    return Kernel("\n".join(_Text(size, group, element, turns, target).lines), BLOCK, description="paged attention")


class _Text:
    """The text, line by line."""

    def __init__(self, size: int, group: int, element: str, turns: bool, target: Target) -> None:
        self.size, self.group, self.element, self.turns = size, group, element, turns
        self.heads, self.bytes = heads_of(group), size * (4 if element == "float32" else 2)
        self.blocks = [*range(0, size, BLOCK)]
        self.chunk = max(1, target.block_registers // 2 // self.heads)  # blocks whose sums fit into registers
        self.lines = ["def kernel(args, scratch, part, parts):", '    """Paged attention"""']
        self.depth = 1
        self._write()

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def _open(self, *heads: str) -> None:
        for head in heads:
            self(f"{head}:")
            self.depth += 1

    def _write(self) -> None:
        passes = self.group // self.heads
        self(*(f"{name} = word(args, {at})" for at, name in enumerate(WORDS)))
        self(f"sums = scratch + most * {4 * self.heads}", f"units = sequences * kv_heads * {passes}")
        self._open("for unit in range(units * part // parts, units * (part + 1) // parts)")
        self(f"entry = batch + unit // (kv_heads * {passes}) * {8 * len(ENTRY)}")
        self(f"rest = unit % (kv_heads * {passes})")
        self(f"head = rest // {passes}", f"first_head = rest % {passes} * {self.heads} + head * {self.group}")
        self(*(f"{name} = load_int64(entry, {8 * at})" for at, name in enumerate(ENTRY)))
        self._open("for row in range(rows)")
        self(f"place = ((first + row) * kv_heads * {self.group} + first_head) * {4 * self.size}")
        self("q = queries + place")
        self._each_run(is_key=True)
        self._write_weights()
        for at in range(0, self.heads * self.size, BLOCK):
            self(f"vstore(sums, {4 * at}, splat_float32(0.0))")
        self._each_run(is_key=False)
        for head in range(self.heads):
            for at in self.blocks:
                where = 4 * (head * self.size + at)
                self(f"vstore(out + place, {where}, vload_float32(sums, {where}) * norm_{head})")
        self.depth = 1
        self("return 0", "")

    def _each_run(self, is_key: bool) -> None:
        """Loops over each run of keys, or of values: first those in pages, then those of the new tokens."""
        write = self._write_scores if is_key else self._write_sums
        self("key = 0")
        self._open("while key < length")
        self("slot = key if key < kept else key - kept + start", "inside_page = slot % page_size")
        self("count = min(page_size - inside_page, (kept if key < kept else length) - key)")
        self(
            f"matrix = load_int64(table, slot // page_size * 8) * 2 * kv_heads + head{'' if is_key else ' + kv_heads'}"
        )
        self(f"source = pages + (matrix * page_size + inside_page) * {self.bytes}", f"step = {self.bytes}")
        write()
        self.depth -= 1
        name = "keys" if is_key else "values"
        self(f"step = kv_heads * {self.bytes}", f"source = {name} + first * step + head * {self.bytes}")
        self("count = row + 1")
        write()

    def _row(self, name: str) -> list[str]:
        """Loads a row of the source, as vectors of float32."""
        load = f"vload_{self.element}(source, {{}})"
        load = load if self.element == "float32" else f"convert_float32({load})"
        width = self.bytes // self.size
        return [f"{name}_{at} = {load.format(at * width)}" for at in self.blocks]

    def _write_scores(self) -> None:
        self._open("for at in range(count)")
        self(*self._row("k"))
        if self.turns:
            half = self.size // 2
            self(f"wave = waves + key * {4 * self.size}")
            for at in range(0, half, BLOCK):
                self(f"cos = vload_float32(wave, {4 * at})", f"sin = vload_float32(wave, {4 * (at + half)})")
                self(f"turned = k_{at} * cos - k_{at + half} * sin")
                self(f"k_{at + half} = k_{at + half} * cos + k_{at} * sin", f"k_{at} = turned")
        for head in range(self.heads):
            terms = [f"k_{at} * vload_float32(q, {4 * (head * self.size + at)})" for at in self.blocks]
            self(f"score = horizontal_sum({' + '.join(terms)})")
            self(f"store_float32(scratch, (key + most * {head}) * 4, score)")
        self("source += step", "key += 1")
        self.depth -= 1

    def _write_weights(self) -> None:
        """Turns scores into exponentials; `norm_…` is the final factor of the sums."""
        for head in range(self.heads):
            self(f"scores = scratch + most * {4 * head}", "greatest = splat_float32(-math.inf)")
            self._open(f"for at in range(0, key, {BLOCK})")
            self("some = select(inside(key - at), vload_float32(scores, at * 4), splat_float32(-math.inf))")
            self("greatest = select(some > greatest, some, greatest)", "vstore(scores, at * 4, some)")
            self.depth -= 1
            self("peak = splat_float32(horizontal_maximum(greatest))", "total = splat_float32(0.0)")
            self._open(f"for at in range(0, key, {BLOCK})")
            self("some = exp(vload_float32(scores, at * 4) - peak)", "vstore(scores, at * 4, some)")
            self("total = total + some")
            self.depth -= 1
            self(f"norm_{head} = splat_float32(1.0 / horizontal_sum(total))")

    def _write_sums(self) -> None:
        for first in range(0, len(self.blocks), self.chunk):
            blocks = self.blocks[first : first + self.chunk]
            places = [(head, at) for head in range(self.heads) for at in blocks]
            self(*(f"sum_{head}_{at} = vload_float32(sums, {self._sum(head, at)})" for head, at in places))
            self("line = source")
            self._open("for at in range(count)")
            self(*(line.replace("source", "line") for line in self._row_of(blocks)))
            for head in range(self.heads):
                self(f"weight = splat_float32(load_float32(scratch, (key + at + most * {head}) * 4))")
                self(*(f"sum_{head}_{at} = sum_{head}_{at} + weight * v_{at}" for at in blocks))
            self("line += step")
            self.depth -= 1
            self(*(f"vstore(sums, {self._sum(head, at)}, sum_{head}_{at})" for head, at in places))
        self("key += count")

    def _row_of(self, blocks: Sequence[int]) -> list[str]:
        return [line for line, at in zip(self._row("v"), self.blocks, strict=True) if at in blocks]

    def _sum(self, head: int, at: int) -> int:
        return 4 * (head * self.size + at)
