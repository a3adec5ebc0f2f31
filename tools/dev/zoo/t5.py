"""T5-like encoder and decoder (Raffel et al., 2020): RMS normalisation, no biases, learned numbers for distances of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .layers import LOWEST, MultiHead, linear, rms_norm
from .writer import GraphWriter

_BUCKETS, _FARTHEST = 32, 128


@dataclass(frozen=True)
class _Stack:
    """The layers of an encoder, or of a decoder, which sees what the encoder made."""

    name: str
    width: int
    heads: int
    lengths: tuple[int, int]
    added: str
    source: str = ""
    source_lengths: tuple[int, int] = (0, 0)

    def layer(self, g: GraphWriter, x: str, number: int) -> str:
        scope, attend = f"/{self.name}/block.{number}", MultiHead(self.width, self.heads, bias=False, scaled=False)
        normal = rms_norm(g, x, f"{scope}/norm0", self.width)
        x = g.op("Add", x, attend(g, normal, f"{scope}/SelfAttention", self.lengths, added=self.added), scope=scope)
        if self.source:
            normal, crossed = rms_norm(g, x, f"{scope}/norm1", self.width), f"{scope}/EncDecAttention"
            value = attend(g, normal, crossed, self.lengths, source=self.source, source_lengths=self.source_lengths)
            x = g.op("Add", x, value, scope=scope)
        wide = linear(
            g, rms_norm(g, x, f"{scope}/norm2", self.width), f"{scope}/wi", self.width, 4 * self.width, bias=False
        )
        narrow = linear(g, g.op("Relu", wide, scope=scope), f"{scope}/wo", 4 * self.width, self.width, bias=False)
        return g.op("Add", x, narrow, scope=scope)


def t5(
    layers: int = 4,
    width: int = 512,
    heads: int = 8,
    *,
    vocabulary: int = 10000,
    batch: int = 1,
    length: int = 64,
    decoded: int = 16,
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids int64[batch, length] and decoder_input_ids int64[batch, decoded] to logits
    float32[batch, decoded, vocabulary]."""
    g = GraphWriter("t5", seed=seed)
    words = g.normal("shared.weight", vocabulary, width, deviation=0.5)
    ids, decoder_ids = (
        g.input("input_ids", (batch, length), "int64"),
        g.input("decoder_input_ids", (batch, decoded), "int64"),
    )
    bias = _distances(g, "/encoder/relative_attention_bias", length, heads, causal=False)
    encoder = _Stack("encoder", width, heads, (batch, length), bias)
    x = _through(g, encoder, g.op("Gather", words, ids), layers)
    bias = _distances(g, "/decoder/relative_attention_bias", decoded, heads, causal=True)
    decoder = _Stack("decoder", width, heads, (batch, decoded), bias, x, (batch, length))
    x = _through(g, decoder, g.op("Gather", words, decoder_ids), layers)
    x = g.op("Mul", x, g.scalar(1 / math.sqrt(width)))
    logits = g.op("MatMul", x, g.op("Transpose", words, perm=[1, 0]), scope="/lm_head")
    g.output(logits, "logits", (batch, decoded, vocabulary))
    return g.model()


def _through(g: GraphWriter, stack: _Stack, x: str, layers: int) -> str:
    for number in range(layers):
        x = stack.layer(g, x, number)
    return rms_norm(g, x, f"/{stack.name}/final_layer_norm", stack.width)


def _distances(g: GraphWriter, scope: str, length: int, heads: int, *, causal: bool) -> str:
    """float32[1, heads, length, length]: a learned number for each bucket of distances; later tokens hidden if causal."""
    table = g.normal(f"{scope.strip('/').replace('/', '.')}.weight", _BUCKETS, heads, deviation=0.3)
    values = g.op("Gather", table, g.constant(_buckets(length, causal)), scope=scope)
    values = g.op("Unsqueeze", g.op("Transpose", values, scope=scope, perm=[2, 0, 1]), g.integers(0), scope=scope)
    if not causal:
        return values
    ones = g.constant(np.ones((length, length), np.float32))
    seen = g.op("Cast", g.op("Trilu", ones, scope=scope, upper=0), scope=scope, to=onnx.TensorProto.BOOL)
    return g.op("Add", values, g.op("Where", seen, g.scalar(0), g.scalar(LOWEST), scope=scope), scope=scope)


def _buckets(length: int, causal: bool) -> np.ndarray:
    """int64[length, length]: near distances have a bucket each, far ones share them, by logarithm."""
    offsets = np.arange(length)[np.newaxis] - np.arange(length)[:, np.newaxis]
    count = _BUCKETS if causal else _BUCKETS // 2
    distances = np.maximum(-offsets, 0) if causal else np.abs(offsets)
    exact = count // 2
    ratio = np.log(np.maximum(distances, 1) / exact) / math.log(_FARTHEST / exact)
    far = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
    return np.where(distances < exact, distances, far) + (0 if causal else count * (offsets > 0))
