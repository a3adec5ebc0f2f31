"""Whisper-like encoders (Radford et al., 2022): two convolutions along time, then transformer layers over 1,500 places."""

import onnx

from .layers import MultiHead, conv, gelu, layer_norm, perceptron
from .writer import GraphWriter

_BANDS = 80


def whisper(
    layers: int = 4, width: int = 384, heads: int = 6, *, batch: int = 1, frames: int = 3000, seed: int = 0
) -> onnx.ModelProto:
    """input_features float32[batch, 80, frames] to last_hidden_state float32[batch, frames / 2, width]."""
    g = GraphWriter("whisper_encoder", seed=seed)
    x = g.input("input_features", (batch, _BANDS, frames))
    x = gelu(g, conv(g, x, "/conv1", _BANDS, width, 3, rank=1), "/conv1")
    x = gelu(g, conv(g, x, "/conv2", width, width, 3, stride=2, rank=1, gain=2), "/conv2")
    lengths = batch, frames // 2
    x = g.op("Transpose", x, perm=[0, 2, 1])
    x = g.op("Add", x, g.normal("embed_positions.weight", lengths[1], width, deviation=0.2))
    attend = MultiHead(width, heads)
    for number in range(layers):
        scope = f"/layers.{number}"
        normal = layer_norm(g, x, f"{scope}/self_attn_layer_norm", width)
        x = g.op("Add", x, attend(g, normal, f"{scope}/self_attn", lengths), scope=scope)
        normal = layer_norm(g, x, f"{scope}/final_layer_norm", width)
        x = g.op("Add", x, perceptron(g, normal, scope, width, 4 * width), scope=scope)
    g.output(layer_norm(g, x, "/layer_norm", width), "last_hidden_state", (batch, frames // 2, width))
    return g.model()
