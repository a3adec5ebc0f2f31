"""BERT-like encoders (Devlin et al., 2019) as PyTorch exports them below opset 17.

Layer normalisation and GELU come apart into arithmetic, and with symbolic sizes every reshape is preceded by the usual
chain of Shape, Gather, Unsqueeze and Concat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .writer import GraphWriter

_POSITIONS = 512


@dataclass(frozen=True)
class _Encoder:
    g: GraphWriter
    hidden: int
    heads: int
    batch: int | str
    length: int | str

    @property
    def is_symbolic(self) -> bool:
        return isinstance(self.batch, str) or isinstance(self.length, str)

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """MatMul with a transposed weight, then the bias: exporters write Gemm only for rank 2."""
        scope = "/" + name.replace(".", "/")
        weight = self.g.normal(f"{name}.weight_T", inputs, outputs, deviation=1 / math.sqrt(inputs))
        bias = self.g.normal(f"{name}.bias", outputs, deviation=0.1)
        return self.g.op("Add", bias, self.g.op("MatMul", x, weight, scope=scope), scope=scope)

    def layer_norm(self, x: str, name: str) -> str:
        g, scope = self.g, "/" + name.replace(".", "/")
        centred = g.op("Sub", x, g.op("ReduceMean", x, scope=scope, axes=[-1]), scope=scope)
        squared = g.op("Pow", centred, g.scalar(2), scope=scope)
        variance = g.op("Add", g.op("ReduceMean", squared, scope=scope, axes=[-1]), g.scalar(1e-12), scope=scope)
        normal = g.op("Div", centred, g.op("Sqrt", variance, scope=scope), scope=scope)
        weight = g.weight(f"{name}.weight", (1 + 0.1 * g.rng.standard_normal(self.hidden)).astype(np.float32))
        bias = g.normal(f"{name}.bias", self.hidden, deviation=0.1)
        return g.op("Add", g.op("Mul", normal, weight, scope=scope), bias, scope=scope)

    def gelu(self, x: str, scope: str) -> str:
        g = self.g
        erf = g.op("Erf", g.op("Div", x, g.scalar(math.sqrt(2)), scope=scope), scope=scope)
        product = g.op("Mul", x, g.op("Add", erf, g.scalar(1), scope=scope), scope=scope)
        return g.op("Mul", product, g.scalar(0.5), scope=scope)

    def size(self, x: str, axis: int, scope: str) -> str:
        """A dimension of x as a tensor of rank 1."""
        g = self.g
        index = g.constant(np.array(axis, np.int64))
        size = g.op("Gather", g.op("Shape", x, scope=scope), index, scope=scope, axis=0)
        return g.op("Unsqueeze", size, g.integers(0), scope=scope)

    def reshape(self, x: str, tail: tuple[int, ...], scope: str) -> str:
        """x[batch, length, …] as [batch, length, *tail]."""
        g = self.g
        if not self.is_symbolic:
            return g.op("Reshape", x, g.integers(int(self.batch), int(self.length), *tail), scope=scope)
        parts = [self.size(x, 0, scope), self.size(x, 1, scope), *(g.integers(dim) for dim in tail)]
        return g.op("Reshape", x, g.op("Concat", *parts, scope=scope, axis=0), scope=scope)

    def attention(self, x: str, mask: str, name: str) -> str:
        g, scope, depth = self.g, "/" + name.replace(".", "/"), self.hidden // self.heads
        split = (self.heads, depth)
        query, key, value = (
            self.reshape(self.linear(x, f"{name}.{part}", self.hidden, self.hidden), split, scope)
            for part in ("query", "key", "value")
        )
        query = g.op("Transpose", query, scope=scope, perm=[0, 2, 1, 3])
        key = g.op("Transpose", key, scope=scope, perm=[0, 2, 3, 1])
        value = g.op("Transpose", value, scope=scope, perm=[0, 2, 1, 3])
        scores = g.op("Div", g.op("MatMul", query, key, scope=scope), g.scalar(math.sqrt(depth)), scope=scope)
        weights = g.op("Softmax", g.op("Add", scores, mask, scope=scope), scope=scope, axis=-1)
        context = g.op("Transpose", g.op("MatMul", weights, value, scope=scope), scope=scope, perm=[0, 2, 1, 3])
        return self.reshape(context, (self.hidden,), scope)

    def layer(self, x: str, mask: str, number: int) -> str:
        g, name = self.g, f"encoder.layer.{number}"
        attended = self.linear(
            self.attention(x, mask, f"{name}.attention.self"),
            f"{name}.attention.output.dense",
            self.hidden,
            self.hidden,
        )
        x = self.layer_norm(g.op("Add", attended, x), f"{name}.attention.output.LayerNorm")
        wide = self.linear(x, f"{name}.intermediate.dense", self.hidden, 4 * self.hidden)
        wide = self.gelu(wide, f"/encoder/layer.{number}/intermediate")
        narrow = self.linear(wide, f"{name}.output.dense", 4 * self.hidden, self.hidden)
        return self.layer_norm(g.op("Add", narrow, x), f"{name}.output.LayerNorm")

    def embeddings(self, ids: str, types: str, vocabulary: int) -> str:
        g, scope = self.g, "/embeddings"
        positions = g.weight("embeddings.position_ids", np.arange(_POSITIONS, dtype=np.int64)[np.newaxis])
        length = self.size(ids, 1, scope) if self.is_symbolic else g.integers(int(self.length))
        positions = g.op("Slice", positions, g.integers(0), length, g.integers(1), g.integers(1), scope=scope)
        words = g.op("Gather", self._table("word", vocabulary), ids, scope=scope)
        kinds = g.op("Gather", self._table("token_type", 2), types, scope=scope)
        places = g.op("Gather", self._table("position", _POSITIONS), positions, scope=scope)
        total = g.op("Add", g.op("Add", words, kinds, scope=scope), places, scope=scope)
        return self.layer_norm(total, "embeddings.LayerNorm")

    def _table(self, name: str, rows: int) -> str:
        return self.g.normal(f"embeddings.{name}_embeddings.weight", rows, self.hidden, deviation=0.5)

    def mask(self, attention_mask: str) -> str:
        """1 where a token counts and 0 elsewhere, as something to add to the scores."""
        g = self.g
        mask = g.op("Unsqueeze", g.op("Unsqueeze", attention_mask, g.integers(1)), g.integers(2))
        mask = g.op("Sub", g.scalar(1), g.op("Cast", mask, to=onnx.TensorProto.FLOAT))
        return g.op("Mul", mask, g.scalar(float(np.finfo(np.float32).min)))


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
    g = GraphWriter("bert", seed=seed, opset=14)
    encoder = _Encoder(g, hidden, heads, batch, length)
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (g.input(name, (batch, length), "int64") for name in names)
    scores_mask = encoder.mask(mask)
    x = encoder.embeddings(ids, types, vocabulary)
    for number in range(layers):
        x = encoder.layer(x, scores_mask, number)
    first = g.op("Gather", x, g.constant(np.array(0, np.int64)), scope="/pooler", axis=1)
    weight = g.normal("pooler.dense.weight", hidden, hidden, deviation=1 / math.sqrt(hidden))
    bias = g.normal("pooler.dense.bias", hidden, deviation=0.1)
    pooled = g.op("Tanh", g.op("Gemm", first, weight, bias, scope="/pooler/dense", transB=1), scope="/pooler")
    g.output(x, "last_hidden_state", (batch, length, hidden))
    g.output(pooled, "pooler_output", (batch, hidden))
    return g.model()
