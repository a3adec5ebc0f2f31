"""Residual networks (He et al., 2016), batch normalisation folded into the convolutions as PyTorch exports them."""

from dataclasses import dataclass

import onnx

from .layers import classifier, conv
from .writer import GraphWriter


@dataclass(frozen=True)
class _Config:
    bottleneck: bool
    blocks: tuple[int, ...]


_CONFIGS = {18: _Config(False, (2, 2, 2, 2)), 34: _Config(False, (3, 4, 6, 3)), 50: _Config(True, (3, 4, 6, 3))}


def resnet(
    depth: int = 50, *, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]; depth 18, 34 or 50."""
    config = _CONFIGS[depth]
    g = GraphWriter(f"resnet{depth}", seed=seed)
    value = g.input("x", (batch, 3, size, size))
    value = g.op("Relu", conv(g, value, "/conv1", 3, 64, 7, stride=2, gain=2), scope="/relu")
    value = g.op("MaxPool", value, scope="/maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, blocks in enumerate(config.blocks):
        for index in range(blocks):
            scope = f"/layer{stage + 1}/layer{stage + 1}.{index}"
            stride = 2 if stage and index == 0 else 1
            width = 64 << stage
            value = _block(g, value, scope, channels, width, stride, config.bottleneck)
            channels = width * 4 if config.bottleneck else width
    g.output(classifier(g, value, channels, classes), "logits", (batch, classes))
    return g.model()


def _block(g: GraphWriter, x: str, scope: str, channels: int, width: int, stride: int, bottleneck: bool) -> str:
    out = width * 4 if bottleneck else width
    if bottleneck:
        value = g.op("Relu", conv(g, x, f"{scope}/conv1", channels, width, gain=2), scope=scope)
        value = g.op("Relu", conv(g, value, f"{scope}/conv2", width, width, 3, stride=stride, gain=2), scope=scope)
        value = conv(g, value, f"{scope}/conv3", width, out, gain=0.5)
    else:
        value = g.op("Relu", conv(g, x, f"{scope}/conv1", channels, width, 3, stride=stride, gain=2), scope=scope)
        value = conv(g, value, f"{scope}/conv2", width, out, 3, gain=0.5)
    if stride != 1 or channels != out:
        x = conv(g, x, f"{scope}/downsample/downsample.0", channels, out, stride=stride)
    return g.op("Relu", g.op("Add", value, x, scope=scope), scope=scope)
