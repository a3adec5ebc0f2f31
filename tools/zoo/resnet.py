"""Residual networks (He et al., 2016), batch normalisation folded into the convolutions as PyTorch exports them."""

import math
from dataclasses import dataclass

import onnx

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
    value = g.op("Relu", _conv(g, value, "/conv1", 3, 64, 7, stride=2), scope="/relu")
    value = g.op("MaxPool", value, scope="/maxpool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, blocks in enumerate(config.blocks):
        for index in range(blocks):
            scope = f"/layer{stage + 1}/layer{stage + 1}.{index}"
            stride = 2 if stage and index == 0 else 1
            width = 64 << stage
            value = _block(g, value, scope, channels, width, stride, config.bottleneck)
            channels = width * 4 if config.bottleneck else width
    value = g.op("Flatten", g.op("GlobalAveragePool", value, scope="/avgpool"), axis=1)
    weight = g.normal("fc.weight", classes, channels, deviation=1 / math.sqrt(channels))
    bias = g.normal("fc.bias", classes, deviation=0.1)
    g.output(g.op("Gemm", value, weight, bias, scope="/fc", transB=1), "logits", (batch, classes))
    return g.model()


def _block(g: GraphWriter, x: str, scope: str, channels: int, width: int, stride: int, bottleneck: bool) -> str:
    out = width * 4 if bottleneck else width
    if bottleneck:
        value = g.op("Relu", _conv(g, x, f"{scope}/conv1", channels, width, 1), scope=scope)
        value = g.op("Relu", _conv(g, value, f"{scope}/conv2", width, width, 3, stride), scope=scope)
        value = _conv(g, value, f"{scope}/conv3", width, out, 1, gain=0.5)
    else:
        value = g.op("Relu", _conv(g, x, f"{scope}/conv1", channels, width, 3, stride), scope=scope)
        value = _conv(g, value, f"{scope}/conv2", width, out, 3, gain=0.5)
    if stride != 1 or channels != out:
        x = _conv(g, x, f"{scope}/downsample/downsample.0", channels, out, 1, stride, gain=1)
    return g.op("Relu", g.op("Add", value, x, scope=scope), scope=scope)


def _conv(
    g: GraphWriter, x: str, scope: str, inputs: int, outputs: int, kernel: int, stride: int = 1, gain: float = 2
) -> str:
    """A convolution whose result has about `gain` / 2 times the mean square of its input."""
    prefix = scope.strip("/").replace("/", ".")
    weight = g.normal(
        f"{prefix}.weight", outputs, inputs, kernel, kernel, deviation=math.sqrt(gain / (inputs * kernel * kernel))
    )
    bias = g.normal(f"{prefix}.bias", outputs, deviation=0.05)
    return g.op(
        "Conv",
        x,
        weight,
        bias,
        scope=scope,
        dilations=[1, 1],
        group=1,
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )
