"""Decoders as onnxruntime-genai's builder writes them: packed projections, GroupQueryAttention with caches of named sizes, caches
of a window (Gemma, gpt-oss), layers of a convolution with a state (LFM2), weights of float32, or of 4 bits and tied.

Inputs and outputs have the builder's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from .layers import silu
from .writer import GraphWriter

RUNTIME = "com.microsoft"
ATTENTION, WINDOW, CONVOLUTION = "attention", "window", "conv"
_BLOCK = 32  # numbers of a row that share a scale


@dataclass(frozen=True)
class _Decoder:
    g: GraphWriter
    width: int
    heads: int
    groups: int
    bits: int
    window: int
    keeps_windows: bool  # whether caches of windows drop old tokens

    @property
    def depth(self) -> int:
        return self.width // self.heads

    def product(self, x: str, name: str, inputs: int, outputs: int) -> str:
        if not self.bits:
            return self.g.op("MatMul", x, self.g.normal(f"{name}.weight", inputs, outputs, deviation=inputs**-0.5))
        packed, scales = self.quantized(name, outputs, inputs)
        sizes: dict[str, Any] = {"K": inputs, "N": outputs, "bits": self.bits, "block_size": _BLOCK}
        return self.g.op("MatMulNBits", x, packed, scales, domain=RUNTIME, accuracy_level=4, **sizes)

    def quantized(self, name: str, rows: int, columns: int) -> tuple[str, str]:
        """Weights of 4 bits, two in a byte, and the scale of each block."""
        g, blocks = self.g, columns // _BLOCK
        packed = g.rng.integers(0, 256, (rows, blocks, _BLOCK // 2), np.uint8)
        scales = g.rng.uniform(0.5, 1, (rows, blocks)).astype(np.float32) * np.float32(columns**-0.5 / 3)
        return g.weight(f"{name}.weight_Q4", packed), g.weight(f"{name}.weight_scales", scales)

    def normal(self, x: str, name: str) -> str:
        scale = self.g.normal(f"{name}.weight", self.width, deviation=0.1)
        return self.g.op("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5, stash_type=1)

    def attention(self, x: str, number: int, kind: str, lengths: Sequence[str], tables: Sequence[str]) -> str:
        g, scope = self.g, f"model.layers.{number}.attn"
        names = (
            "batch_size",
            self.groups,
            f"past_{'sliding' if kind == WINDOW else 'sequence'}_length",
            "kv_cache_dim",
        )
        past = [g.input(f"past_key_values.{number}.{part}", names) for part in ("key", "value")]
        packed = self.product(x, f"{scope}.qkv_proj", self.width, (self.heads + 2 * self.groups) * self.depth)
        attributes: dict[str, Any] = {"num_heads": self.heads, "kv_num_heads": self.groups, "do_rotary": 1}
        if kind == WINDOW:
            attributes |= {"local_window_size": self.window, "sliding_window_cache": int(self.keeps_windows)}
        result, *present = g.ops(
            "GroupQueryAttention", packed, "", "", *past, *lengths, *tables, outputs=3, domain=RUNTIME, **attributes
        )
        names = (*names[:2], names[2].replace("past", "total"), names[3])
        for part, each in zip(("key", "value"), present, strict=True):
            g.output(each, f"present.{number}.{part}", names)
        return self.product(result, f"{scope}.o_proj", self.width, self.width)

    def convolution(self, x: str, number: int) -> str:
        g, scope, width = self.g, f"model.layers.{number}.conv", self.width
        past = g.input(f"past.{number}.conv", ("batch_size", width, 2))
        parts = g.op("Transpose", self.product(x, f"{scope}.in_proj", width, 3 * width), perm=[0, 2, 1])
        before, after, value = g.ops("Split", parts, g.integers(width, width, width), outputs=3, axis=1)
        weight = g.normal(f"{scope}.conv.weight", width, 1, 3, deviation=0.6)
        attributes: dict[str, Any] = {"activation": "none", "ndim": 1, "state_window": 0}
        convolved, present = g.ops(
            "CausalConvWithState",
            g.op("Mul", before, value),
            weight,
            "",
            past,
            outputs=2,
            domain=RUNTIME,
            **attributes,
        )
        g.output(present, f"present.{number}.conv", ("batch_size", width, 2))
        result = g.op("Transpose", g.op("Mul", after, convolved), perm=[0, 2, 1])
        return self.product(result, f"{scope}.out_proj", width, width)

    def perceptron(self, x: str, number: int) -> str:
        name, hidden = f"model.layers.{number}.mlp", 2 * self.width
        gate = silu(self.g, self.product(x, f"{name}.gate_proj", self.width, hidden), f"/{name}")
        product = self.g.op("Mul", gate, self.product(x, f"{name}.up_proj", self.width, hidden))
        return self.product(product, f"{name}.down_proj", hidden, self.width)


def decoder(
    layers: Sequence[str] = (ATTENTION, ATTENTION),
    *,
    width: int = 64,
    heads: int = 4,
    groups: int = 2,
    vocabulary: int = 64,
    longest: int = 64,
    bits: int = 0,
    window: int = 4,
    keeps_windows: bool = True,
    head: str = "all",
    seed: int = 5,
) -> onnx.ModelProto:
    """input_ids int64[batch_size, sequence_length], attention_mask and caches to logits and longer caches. With `bits` of 4
    embeddings are those of the head, tied. `head`: of "all" tokens, of the "last" one (`prune_lm_head`), or "none", which
    gives hidden_states (`exclude_lm_head`)."""
    g = GraphWriter("main_graph", seed=seed, opset=22)
    made = _Decoder(g, width, heads, groups, bits, window, keeps_windows)
    ids = g.input("input_ids", ("batch_size", "sequence_length"), "int64")
    mask = g.input("attention_mask", ("batch_size", "total_sequence_length"), "int64")
    counts = g.op("Sub", g.op("ReduceSum", mask, g.integers(1), keepdims=0), g.integers(1))
    total = g.op("Gather", g.op("Shape", mask), g.integer(1), axis=0)
    lengths = [g.op("Cast", each, to=onnx.TensorProto.INT32) for each in (counts, total)]
    angles = np.outer(np.arange(longest), 1e4 ** -(np.arange(made.depth // 2) / (made.depth // 2))).astype(np.float32)
    given = lengths, [g.weight("cos_cache", np.cos(angles)), g.weight("sin_cache", np.sin(angles))]
    if bits:
        packed, scales = made.quantized("lm_head", vocabulary, width)
        rows = g.op("Reshape", packed, g.integers(vocabulary, width // 2))
        attributes: dict[str, Any] = {"bits": bits, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
        x = g.op("GatherBlockQuantized", rows, ids, scales, domain=RUNTIME, **attributes)
    else:
        x = g.op("Gather", g.normal("embed_tokens.weight", vocabulary, width, deviation=1), ids)
    for number, kind in enumerate(layers):
        normal = made.normal(x, f"model.layers.{number}.input_layernorm")
        is_attention = kind != CONVOLUTION
        mixed = made.attention(normal, number, kind, *given) if is_attention else made.convolution(normal, number)
        scale = g.normal(f"model.layers.{number}.post_attention_layernorm.weight", width, deviation=1)
        normal, _, _, x = g.ops(
            "SkipSimplifiedLayerNormalization", x, mixed, scale, outputs=4, domain=RUNTIME, epsilon=1e-5
        )
        x = g.op("Add", x, made.perceptron(normal, number))
    x = made.normal(x, "model.norm")
    if head == "none":
        g.output(x, "hidden_states", ("batch_size", "sequence_length", width))
        return g.model()
    if head == "last":
        x = g.op("Unsqueeze", g.op("Gather", x, g.integer(-1), axis=1), g.integers(1))
    if bits:
        sizes: dict[str, Any] = {"K": width, "N": vocabulary, "bits": bits, "block_size": _BLOCK}
        logits = g.op("MatMulNBits", x, packed, scales, domain=RUNTIME, accuracy_level=4, **sizes)
    else:
        logits = made.product(x, "lm_head", width, vocabulary)
    g.output(logits, "logits", ("batch_size", 1 if head == "last" else "sequence_length", vocabulary))
    return g.model()


def listener(
    *, width: int = 32, heads: int = 2, frames: int = 6, bands: int = 8, vocabulary: int = 40, seed: int = 7
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """An encoder of sounds, and the decoder that takes its keys and values, in the manner of Whisper: audio_features to
    hidden_states and present_key_cross_0 …, input_ids and past_key_self_0 …, past_key_cross_0 … to logits."""
    g, depth = GraphWriter("encoder", seed=seed, opset=22), width // heads
    sound = g.op("Transpose", g.input("audio_features", ("batch_size", bands, frames)), perm=[0, 2, 1])
    hidden = g.op("Tanh", g.op("MatMul", sound, g.normal("conv.weight", bands, width, deviation=bands**-0.5)))
    g.output(hidden, "hidden_states", ("batch_size", frames, width))
    for part in ("key", "value"):
        x = g.op("MatMul", hidden, g.normal(f"{part}.weight", width, width, deviation=2 * width**-0.5))
        x = g.op("Transpose", g.op("Reshape", x, g.integers(0, 0, heads, depth)), perm=[0, 2, 1, 3])
        g.output(x, f"present_{part}_cross_0", ("batch_size", heads, frames, depth))
    encoder = g.model()
    g = GraphWriter("decoder", seed=seed + 1, opset=22)
    ids = g.input("input_ids", ("batch_size", "sequence_length"), "int64")
    names = ("batch_size", heads, "past_sequence_length", depth)
    past = [g.input(f"past_{part}_self_0", names) for part in ("key", "value")]
    cross = [g.input(f"past_{part}_cross_0", (*names[:2], frames, depth)) for part in ("key", "value")]
    x = g.op("Gather", g.normal("embed_tokens.weight", vocabulary, width, deviation=1), ids)
    parts = [g.op("MatMul", x, g.normal(f"{part}_proj.weight", width, width, deviation=width**-0.5)) for part in "qkv"]
    attributes: dict[str, Any] = {"domain": RUNTIME, "num_heads": heads}
    own = g.ops("MultiHeadAttention", *parts, "", "", "", *past, outputs=3, unidirectional=1, **attributes)
    for part, present in zip(("key", "value"), own[1:], strict=True):
        g.output(present, f"present_{part}_self_0", (*names[:2], "total_sequence_length", depth))
    x = g.op("Add", x, own[0])
    x = g.op("Add", x, g.op("MultiHeadAttention", x, *cross, **attributes))
    logits = g.op("MatMul", x, g.normal("lm_head.weight", width, vocabulary, deviation=1))
    g.output(logits, "logits", ("batch_size", "sequence_length", vocabulary))
    return encoder, g.model()
