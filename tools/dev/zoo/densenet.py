"""DenseNet-121 (Huang et al., 2017): every layer reads all that came before it, joined by Concat."""

import onnx

from .layers import batch_norm, classifier, conv
from .writer import GraphWriter

_GROWTH, _BLOCKS = 32, (6, 12, 24, 16)


def densenet(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("densenet121", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = g.op("Relu", conv(g, x, "/features/conv0", 3, 64, 7, stride=2, gain=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for number, layers in enumerate(_BLOCKS, 1):
        parts = [x]
        for layer in range(1, layers + 1):
            joined = g.op("Concat", *parts, axis=1) if len(parts) > 1 else x
            parts.append(_layer(g, joined, f"/features/denseblock{number}/denselayer{layer}", channels))
            channels += _GROWTH
        x, scope = g.op("Concat", *parts, axis=1), f"/features/transition{number}"
        if number < len(_BLOCKS):
            x = g.op("Relu", batch_norm(g, x, f"{scope}/norm", channels), scope=scope)
            x = conv(g, x, f"{scope}/conv", channels, channels // 2, bias=False, gain=2)
            x = g.op("AveragePool", x, scope=scope, kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    x = g.op("Relu", batch_norm(g, x, "/features/norm5", channels))
    g.output(classifier(g, x, channels, classes), "logits", (batch, classes))
    return g.model()


def _layer(g: GraphWriter, x: str, scope: str, channels: int) -> str:
    x = g.op("Relu", batch_norm(g, x, f"{scope}/norm1", channels), scope=scope)
    x = conv(g, x, f"{scope}/conv1", channels, 4 * _GROWTH, gain=2)  # its batch normalisation is folded in
    return conv(g, g.op("Relu", x, scope=scope), f"{scope}/conv2", 4 * _GROWTH, _GROWTH, 3, bias=False, gain=2)
