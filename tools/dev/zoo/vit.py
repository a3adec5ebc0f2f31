"""ViT-tiny (Dosovitskiy et al., 2021): an image as a sequence of patches, and a class token before them."""

import onnx

from .layers import MultiHead, conv, dense, layer_norm, perceptron
from .writer import GraphWriter

_WIDTH, _HEADS, _LAYERS, _PATCH, _EPSILON = 192, 3, 12, 16, 1e-6


def vit(*, batch: int = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("vit_tiny", seed=seed)
    patches = (size // _PATCH) ** 2
    x = g.input("x", (batch, 3, size, size))
    x = conv(g, x, "/patch_embed", 3, _WIDTH, _PATCH, stride=_PATCH, padding=0)
    x = g.op("Reshape", x, g.integers(batch, _WIDTH, patches))
    x = g.op("Transpose", x, perm=[0, 2, 1])
    token = g.op("Expand", g.normal("cls_token", 1, 1, _WIDTH, deviation=0.5), g.integers(batch, 1, _WIDTH))
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.normal("pos_embed", 1, patches + 1, _WIDTH, deviation=0.1))
    attend, lengths = MultiHead(_WIDTH, _HEADS), (batch, patches + 1)
    for number in range(_LAYERS):
        scope = f"/blocks.{number}"
        normal = layer_norm(g, x, f"{scope}/norm1", _WIDTH, _EPSILON)
        x = g.op("Add", x, attend(g, normal, f"{scope}/attn", lengths), scope=scope)
        normal = layer_norm(g, x, f"{scope}/norm2", _WIDTH, _EPSILON)
        x = g.op("Add", x, perceptron(g, normal, f"{scope}/mlp", _WIDTH, 4 * _WIDTH), scope=scope)
    x = layer_norm(g, x, "/norm", _WIDTH, _EPSILON)
    first = g.op("Gather", x, g.integer(0), axis=1)
    g.output(dense(g, first, "/head", _WIDTH, classes), "logits", (batch, classes))
    return g.model()
