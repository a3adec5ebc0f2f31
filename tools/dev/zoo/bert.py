"""BERT-like encoders (Devlin et al., 2019).

Layer normalisation and GELU come apart into arithmetic, and with symbolic sizes every reshape is preceded by the usual
chain of Shape, Gather, Unsqueeze and Concat.
"""

from __future__ import annotations

import numpy as np
import onnx

from .layers import LOWEST, MultiHead, dense, layer_norm, perceptron, size, to_float
from .writer import GraphWriter

_POSITIONS, _EPSILON = 512, 1e-12


def bert(
    layers: int = 2,
    hidden: int = 128,
    heads: int = 2,
    *,
    vocabulary: int = 1000,
    batch: int | str = 1,
    length: int | str = 32,
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids, attention_mask, token_type_ids, each int64[batch, length], to last_hidden_state
    float32[batch, length, hidden] and pooler_output float32[batch, hidden]. Strings are symbolic sizes; at most 512 tokens."""
    g = GraphWriter("bert", seed=seed)
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (g.input(name, (batch, length), "int64") for name in names)
    lengths = tuple(
        size(g, ids, axis) if isinstance(given, str) else given for axis, given in enumerate((batch, length))
    )
    scores_mask = _mask(g, mask)
    x = _embeddings(g, ids, types, lengths[1], vocabulary, hidden)
    attend = MultiHead(hidden, heads)
    for number in range(layers):
        scope = f"/encoder/layer.{number}"
        x = g.op("Add", attend(g, x, f"{scope}/attention", lengths, added=scores_mask), x, scope=scope)
        x = layer_norm(g, x, f"{scope}/attention/LayerNorm", hidden, _EPSILON)
        x = g.op("Add", perceptron(g, x, scope, hidden, 4 * hidden), x, scope=scope)
        x = layer_norm(g, x, f"{scope}/LayerNorm", hidden, _EPSILON)
    first = g.op("Gather", x, g.integer(0), scope="/pooler", axis=1)
    pooled = g.op("Tanh", dense(g, first, "/pooler/dense", hidden, hidden), scope="/pooler")
    g.output(x, "last_hidden_state", (batch, length, hidden))
    g.output(pooled, "pooler_output", (batch, hidden))
    return g.model()


def _embeddings(g: GraphWriter, ids: str, types: str, length: int | str, vocabulary: int, hidden: int) -> str:
    scope, zero = "/embeddings", g.integers(0)
    places = g.weight("embeddings.position_ids", np.arange(_POSITIONS, dtype=np.int64)[np.newaxis])
    end = g.integers(length) if isinstance(length, int) else g.op("Unsqueeze", length, zero, scope=scope)
    places = g.op("Slice", places, zero, end, g.integers(1), g.integers(1), scope=scope)
    tables = {"word": (ids, vocabulary), "token_type": (types, 2), "position": (places, _POSITIONS)}
    words, kinds, positions = (
        g.op("Gather", g.normal(f"embeddings.{name}_embeddings.weight", rows, hidden, deviation=0.5), read, scope=scope)
        for name, (read, rows) in tables.items()
    )
    total = g.op("Add", g.op("Add", words, kinds, scope=scope), positions, scope=scope)
    return layer_norm(g, total, "/embeddings/LayerNorm", hidden, _EPSILON)


def _mask(g: GraphWriter, attention_mask: str) -> str:
    """1 where a token counts and 0 elsewhere, as something to add to the scores."""
    mask = g.op("Unsqueeze", g.op("Unsqueeze", attention_mask, g.integers(1)), g.integers(2))
    return g.op("Mul", g.op("Sub", g.scalar(1), to_float(g, mask)), g.scalar(LOWEST))
