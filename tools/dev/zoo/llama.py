"""LLaMA-like decoders (Touvron et al., 2023): RMS normalisation, rotary places, grouped queries, gated perceptrons.

As with `gpt`, one graph serves for a prompt and for decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .layers import (
    attention,
    cache_inputs,
    cache_outputs,
    causal_mask,
    linear,
    merge_heads,
    reshape,
    rms_norm,
    shape_of,
    silu,
    size,
    split_heads,
    to_float,
)
from .writer import GraphWriter


@dataclass(frozen=True)
class _Run:
    """State shared by all layers: the writer, the shape of the model, and the values of this run's sizes and tables."""

    g: GraphWriter
    hidden: int
    heads: int
    groups: int
    lengths: tuple[str, str]
    total: str
    mask: str
    cosine: str
    sine: str

    @property
    def depth(self) -> int:
        return self.hidden // self.heads


def llama(
    layers: int = 4,
    hidden: int = 512,
    heads: int = 8,
    groups: int = 2,
    *,
    vocabulary: int = 10000,
    batch: int | str = 1,
    length: int | str = "length",
    past: int | str = "past",
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids int64[batch, length] and past.0.key … float32[batch, groups, past, hidden / heads] to logits
    float32[batch, length, vocabulary] and present.0.key …, which are longer by `length`."""
    g = GraphWriter("llama", seed=seed)
    depth = hidden // heads
    ids = g.input("input_ids", (batch, length), "int64")
    caches = cache_inputs(g, layers, (batch, groups, past, depth))
    lengths, before = (size(g, ids, 0), size(g, ids, 1)), size(g, caches[0][0], 2)
    total = g.op("Add", before, lengths[1])
    cosine, sine = _rotations(g, before, total, depth)
    run = _Run(g, hidden, heads, groups, lengths, total, causal_mask(g, before, lengths[1]), cosine, sine)
    x = g.op("Gather", g.normal("embed_tokens.weight", vocabulary, hidden, deviation=0.5), ids)
    presents = []
    for number, cache in enumerate(caches):
        scope = f"/layers.{number}"
        attended, present = _attention(run, rms_norm(g, x, f"{scope}/input_norm", hidden), f"{scope}/self_attn", cache)
        presents.append(present)
        x = g.op("Add", x, attended, scope=scope)
        x = g.op("Add", x, _gated(g, rms_norm(g, x, f"{scope}/post_norm", hidden), f"{scope}/mlp", hidden), scope=scope)
    x = rms_norm(g, x, "/norm", hidden)
    g.output(linear(g, x, "/lm_head", hidden, vocabulary, bias=False), "logits", (batch, length, vocabulary))
    cache_outputs(g, presents, (batch, groups, "total", depth))
    return g.model()


def _rotations(g: GraphWriter, before: str, total: str, depth: int) -> tuple[str, str]:
    """cos and sin of each place's angles, float32[1, 1, length, depth]."""
    scope = "/rotary_emb"
    frequencies = (10000 ** -(np.arange(0, depth, 2) / depth)).astype(np.float32)
    places = to_float(g, g.op("Range", before, total, g.integer(1), scope=scope), scope)
    places = g.op("Unsqueeze", places, g.integers(1), scope=scope)
    angles = g.op("MatMul", places, g.constant(frequencies[np.newaxis]), scope=scope)
    angles = g.op("Unsqueeze", g.op("Concat", angles, angles, scope=scope, axis=-1), g.integers(0, 1), scope=scope)
    return g.op("Cos", angles, scope=scope), g.op("Sin", angles, scope=scope)


def _rotated(run: _Run, x: str, scope: str) -> str:
    """x · cos + (-second half, first half) · sin (Su et al., 2021)."""
    g, half, axis = run.g, run.g.integers(run.depth // 2), run.g.integers(3)
    first = g.op("Slice", x, g.integers(0), half, axis, scope=scope)
    second = g.op("Slice", x, half, g.integers(np.iinfo(np.int64).max), axis, scope=scope)
    turned = g.op("Concat", g.op("Neg", second, scope=scope), first, scope=scope, axis=-1)
    straight = g.op("Mul", x, run.cosine, scope=scope)
    return g.op("Add", straight, g.op("Mul", turned, run.sine, scope=scope), scope=scope)


def _attention(run: _Run, x: str, scope: str, cache: tuple[str, str]) -> tuple[str, tuple[str, str]]:
    """The result, and keys and values for the next run."""
    g = run.g
    query, key, value = (
        split_heads(
            g,
            linear(g, x, f"{scope}/{name}_proj", run.hidden, count * run.depth, bias=False),
            scope,
            run.lengths,
            count,
            run.depth,
        )
        for name, count in (("q", run.heads), ("k", run.groups), ("v", run.groups))
    )
    key = g.op("Concat", cache[0], _rotated(run, key, scope), scope=scope, axis=2)
    value = g.op("Concat", cache[1], value, scope=scope, axis=2)
    query = _rotated(run, query, scope)
    context = attention(
        g, query, _repeated(run, key, scope), _repeated(run, value, scope), scope, run.depth, added=run.mask
    )
    merged = merge_heads(g, context, scope, run.lengths, run.hidden)
    return linear(g, merged, f"{scope}/o_proj", run.hidden, run.hidden, bias=False), (key, value)


def _repeated(run: _Run, x: str, scope: str) -> str:
    """[batch, groups, total, depth] to [batch, heads, total, depth]: each group serves several heads."""
    g, batch, times = run.g, run.lengths[0], run.heads // run.groups
    x = g.op("Unsqueeze", x, g.integers(2), scope=scope)
    x = g.op("Expand", x, shape_of(g, (batch, run.groups, times, run.total, run.depth), scope), scope=scope)
    return reshape(g, x, (batch, run.heads, run.total, run.depth), scope)


def _gated(g: GraphWriter, x: str, scope: str, width: int) -> str:
    """down(silu(gate(x)) · up(x)) (Shazeer, 2020); the hidden width is 8/3 of the outer one, in steps of 32."""
    hidden = -(-width * 8 // 3 // 32) * 32
    gate = silu(g, linear(g, x, f"{scope}/gate_proj", width, hidden, bias=False, gain=2), scope)
    product = g.op("Mul", gate, linear(g, x, f"{scope}/up_proj", width, hidden, bias=False), scope=scope)
    return linear(g, product, f"{scope}/down_proj", hidden, width, bias=False)
