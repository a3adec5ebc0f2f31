"""GPT-2-like decoders (Radford et al., 2019), with keys and values of earlier tokens as inputs and outputs.

One graph serves for a prompt (no earlier tokens) and for decoding (one token, many earlier ones).
"""

from __future__ import annotations

import onnx

from .layers import (
    attention,
    cache_inputs,
    cache_outputs,
    causal_mask,
    gelu_tanh,
    layer_norm,
    linear,
    merge_heads,
    size,
    split_heads,
)
from .writer import GraphWriter

_POSITIONS = 1024


def gpt(
    layers: int = 4,
    hidden: int = 512,
    heads: int = 8,
    *,
    vocabulary: int = 10000,
    batch: int | str = 1,
    length: int | str = "length",
    past: int | str = "past",
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids int64[batch, length] and past.0.key … float32[batch, heads, past, hidden / heads] to logits
    float32[batch, length, vocabulary] and present.0.key …, which are longer by `length`."""
    g = GraphWriter("gpt2", seed=seed)
    depth = hidden // heads
    ids = g.input("input_ids", (batch, length), "int64")
    caches = cache_inputs(g, layers, (batch, heads, past, depth))
    lengths = size(g, ids, 0), size(g, ids, 1)
    before = size(g, caches[0][0], 2)
    total = g.op("Add", before, lengths[1])
    words = g.normal("wte.weight", vocabulary, hidden, deviation=0.5)
    places = g.op(
        "Gather", g.normal("wpe.weight", _POSITIONS, hidden, deviation=0.1), g.op("Range", before, total, g.integer(1))
    )
    x = g.op("Add", g.op("Gather", words, ids), places)
    mask = causal_mask(g, before, lengths[1])
    presents = []
    for number, cache in enumerate(caches):
        scope = f"/h.{number}"
        normal = layer_norm(g, x, f"{scope}/ln_1", hidden)
        joined = linear(g, normal, f"{scope}/attn/c_attn", hidden, 3 * hidden)
        parts = g.ops("Split", joined, g.integers(hidden, hidden, hidden), outputs=3, scope=scope, axis=2)
        query, key, value = (split_heads(g, part, scope, lengths, heads, depth) for part in parts)
        key, value = (
            g.op("Concat", old, new, scope=scope, axis=2) for old, new in zip(cache, (key, value), strict=True)
        )
        presents.append((key, value))
        context = attention(g, query, key, value, scope, depth, added=mask)
        context = merge_heads(g, context, scope, lengths, hidden)
        x = g.op("Add", x, linear(g, context, f"{scope}/attn/c_proj", hidden, hidden), scope=scope)
        wide = linear(g, layer_norm(g, x, f"{scope}/ln_2", hidden), f"{scope}/mlp/c_fc", hidden, 4 * hidden)
        x = g.op("Add", x, linear(g, gelu_tanh(g, wide, scope), f"{scope}/mlp/c_proj", 4 * hidden, hidden), scope=scope)
    x = layer_norm(g, x, "/ln_f", hidden)
    g.output(linear(g, x, "/lm_head", hidden, vocabulary, bias=False), "logits", (batch, length, vocabulary))
    cache_outputs(g, presents, (batch, heads, "total", depth))
    return g.model()
