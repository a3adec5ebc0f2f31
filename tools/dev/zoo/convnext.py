"""ConvNeXt-atto (Liu et al., 2022): depthwise 7×7, then a perceptron over channels that lie last."""

import numpy as np
import onnx

from .layers import conv, dense, gelu, layer_norm, linear, weight_name
from .writer import GraphWriter

_WIDTHS, _DEPTHS = (40, 80, 160, 320), (2, 2, 6, 2)


def convnext(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("convnext_atto", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = conv(g, x, "/stem", 3, _WIDTHS[0], 4, stride=4, padding=0)
    x = _norm_channels(g, x, "/stem/norm", _WIDTHS[0])
    for stage, (width, depth) in enumerate(zip(_WIDTHS, _DEPTHS, strict=True)):
        scope = f"/stages.{stage}"
        if stage:
            narrow = _WIDTHS[stage - 1]
            x = _norm_channels(g, x, f"{scope}/downsample/norm", narrow)
            x = conv(g, x, f"{scope}/downsample/conv", narrow, width, 2, stride=2, padding=0)
        for block in range(depth):
            x = _block(g, x, f"{scope}/blocks.{block}", width)
    pooled = g.op("Flatten", g.op("GlobalAveragePool", x, scope="/head"), axis=1)
    pooled = layer_norm(g, pooled, "/head/norm", _WIDTHS[-1], 1e-6)
    g.output(dense(g, pooled, "/head/fc", _WIDTHS[-1], classes), "logits", (batch, classes))
    return g.model()


def _block(g: GraphWriter, x: str, scope: str, width: int) -> str:
    value = conv(g, x, f"{scope}/dwconv", width, width, 7, groups=width)
    value = layer_norm(g, _channels_last(g, value, scope), f"{scope}/norm", width, 1e-6)
    value = gelu(g, linear(g, value, f"{scope}/mlp/fc1", width, 4 * width), scope)
    value = linear(g, value, f"{scope}/mlp/fc2", 4 * width, width)
    gamma = g.weight(weight_name(scope, "gamma"), np.full(width, 0.5, np.float32))
    return g.op("Add", _channels_first(g, g.op("Mul", value, gamma, scope=scope), scope), x, scope=scope)


def _norm_channels(g: GraphWriter, x: str, scope: str, width: int) -> str:
    return _channels_first(g, layer_norm(g, _channels_last(g, x, scope), scope, width, 1e-6), scope)


def _channels_last(g: GraphWriter, x: str, scope: str) -> str:
    return g.op("Transpose", x, scope=scope, perm=[0, 2, 3, 1])


def _channels_first(g: GraphWriter, x: str, scope: str) -> str:
    return g.op("Transpose", x, scope=scope, perm=[0, 3, 1, 2])
