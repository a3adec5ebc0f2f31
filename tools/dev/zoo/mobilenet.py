"""MobileNetV2 (Sandler et al., 2018) and MobileNetV3-small (Howard et al., 2019): inverted residuals, depthwise convolutions."""

from typing import NamedTuple

import onnx

from .layers import classifier, conv, dense, relu6, squeeze_excite
from .writer import GraphWriter

# expansion, channels, blocks, stride of the first
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class _Small(NamedTuple):
    kernel: int
    expanded: int
    channels: int
    squeeze: int  # 0: no squeeze-excite
    activation: str
    stride: int


_V3_SMALL = (
    _Small(3, 16, 16, 8, "Relu", 2),
    _Small(3, 72, 24, 0, "Relu", 2),
    _Small(3, 88, 24, 0, "Relu", 1),
    _Small(5, 96, 40, 24, "HardSwish", 2),
    _Small(5, 240, 40, 64, "HardSwish", 1),
    _Small(5, 240, 40, 64, "HardSwish", 1),
    _Small(5, 120, 48, 32, "HardSwish", 1),
    _Small(5, 144, 48, 40, "HardSwish", 1),
    _Small(5, 288, 96, 72, "HardSwish", 2),
    _Small(5, 576, 96, 144, "HardSwish", 1),
    _Small(5, 576, 96, 144, "HardSwish", 1),
)


def mobilenet_v2(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("mobilenet_v2", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = relu6(g, conv(g, x, "/features.0", 3, 32, 3, stride=2, gain=2), "/features.0")
    channels, number = 32, 1
    for expansion, outputs, blocks, first_stride in _V2:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(g, x, f"/features.{number}", channels, channels * expansion, outputs, stride)
            channels, number = outputs, number + 1
    x = relu6(g, conv(g, x, f"/features.{number}", channels, 1280, gain=2), f"/features.{number}")
    g.output(classifier(g, x, 1280, classes), "logits", (batch, classes))
    return g.model()


def _inverted_residual(
    g: GraphWriter, x: str, scope: str, inputs: int, expanded: int, outputs: int, stride: int
) -> str:
    value = x
    if expanded != inputs:
        value = relu6(g, conv(g, value, f"{scope}/expand", inputs, expanded, gain=2), scope)
    value = conv(g, value, f"{scope}/depthwise", expanded, expanded, 3, stride=stride, groups=expanded, gain=2)
    value = conv(g, relu6(g, value, scope), f"{scope}/project", expanded, outputs)
    return g.op("Add", x, value, scope=scope) if stride == 1 and inputs == outputs else value


def mobilenet_v3_small(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("mobilenet_v3_small", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = g.op("HardSwish", conv(g, x, "/features.0", 3, 16, 3, stride=2, gain=2))
    channels = 16
    for number, block in enumerate(_V3_SMALL, 1):
        x = _small_block(g, x, f"/features.{number}", channels, block)
        channels = block.channels
    x = g.op("HardSwish", conv(g, x, "/features.12", channels, 576, gain=2))
    x = g.op("Flatten", g.op("GlobalAveragePool", x, scope="/avgpool"), axis=1)
    x = g.op("HardSwish", dense(g, x, "/classifier.0", 576, 1024, gain=2))
    g.output(dense(g, x, "/classifier.3", 1024, classes), "logits", (batch, classes))
    return g.model()


def _small_block(g: GraphWriter, x: str, scope: str, inputs: int, block: _Small) -> str:
    value, expanded = x, block.expanded
    if expanded != inputs:
        value = g.op(block.activation, conv(g, value, f"{scope}/expand", inputs, expanded, gain=2), scope=scope)
    value = conv(
        g, value, f"{scope}/depthwise", expanded, expanded, block.kernel, stride=block.stride, groups=expanded, gain=2
    )
    value = g.op(block.activation, value, scope=scope)
    if block.squeeze:
        value = squeeze_excite(g, value, f"{scope}/se", expanded, block.squeeze, gate="HardSigmoid")
    value = conv(g, value, f"{scope}/project", expanded, block.channels)
    return g.op("Add", x, value, scope=scope) if block.stride == 1 and inputs == block.channels else value
