"""A U-Net (Ronneberger et al., 2015) with group normalisation, and with both ways up: transposed convolution and resize."""

import math

import numpy as np
import onnx

from .layers import conv, silu, weight_name
from .writer import GraphWriter

_WIDTHS, _GROUPS = (32, 64, 128, 256), 8


def unet(*, batch: int | str = 1, size: int = 128, classes: int = 4, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to scores float32[batch, classes, size, size]."""
    g = GraphWriter("unet", seed=seed)
    x, channels, side, passed = g.input("x", (batch, 3, size, size)), 3, size, []
    for level, width in enumerate(_WIDTHS):
        if level:
            passed.append(x)
            x, side = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), side // 2
        x, channels = _double(g, x, f"/down{level}", channels, width, side), width
    for level in reversed(range(len(_WIDTHS) - 1)):
        scope, width, side = f"/up{level}", _WIDTHS[level], side * 2
        up = _transposed if level % 2 else _resized
        x = g.op("Concat", passed.pop(), up(g, x, f"{scope}/up", channels, width), scope=scope, axis=1)
        x, channels = _double(g, x, scope, 2 * width, width, side), width
    g.output(conv(g, x, "/out", channels, classes), "scores", (batch, classes, size, size))
    return g.model()


def _double(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int, side: int) -> str:
    for number, channels in enumerate((inputs, outputs), 1):
        x = conv(g, x, f"{scope}/conv{number}", channels, outputs, 3, bias=False, gain=2)
        x = silu(g, _group_norm(g, x, f"{scope}/norm{number}", outputs, side), scope)
    return x


def _group_norm(g: GraphWriter, x: str, scope: str, channels: int, side: int) -> str:
    """Instance normalisation of groups, then scale and bias: what exporters make of it."""
    ones = g.constant(np.ones(_GROUPS, np.float32))
    zeros = g.constant(np.zeros(_GROUPS, np.float32))
    groups = g.op("Reshape", x, g.integers(0, _GROUPS, -1), scope=scope)
    normal = g.op("InstanceNormalization", groups, ones, zeros, scope=scope, epsilon=1e-5)
    normal = g.op("Reshape", normal, g.integers(0, channels, side, side), scope=scope)
    scale = 1 + 0.1 * g.rng.standard_normal((channels, 1, 1), np.float32)
    scaled = g.op("Mul", normal, g.weight(weight_name(scope, "weight"), scale.astype(np.float32)), scope=scope)
    return g.op("Add", scaled, g.normal(weight_name(scope, "bias"), channels, 1, 1, deviation=0.1), scope=scope)


def _transposed(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int) -> str:
    weight = g.normal(weight_name(scope, "weight"), inputs, outputs, 2, 2, deviation=1 / math.sqrt(inputs))
    bias = g.normal(weight_name(scope, "bias"), outputs, deviation=0.05)
    return g.op("ConvTranspose", x, weight, bias, scope=scope, kernel_shape=[2, 2], strides=[2, 2])


def _resized(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int) -> str:
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    x = g.op(
        "Resize",
        x,
        "",
        scales,
        scope=scope,
        coordinate_transformation_mode="asymmetric",
        mode="nearest",
        nearest_mode="floor",
    )
    return conv(g, x, f"{scope}/conv", inputs, outputs)
