"""ShuffleNetV2 1.0× (Ma et al., 2018): channels are split, half of them convolved, joined and shuffled."""

import onnx

from .layers import classifier, conv
from .writer import GraphWriter

_STAGES = ((4, 116), (8, 232), (4, 464))  # blocks, channels


def shufflenet(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("shufflenet_v2", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = g.op("Relu", conv(g, x, "/conv1", 3, 24, 3, stride=2, gain=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels, side = 24, size // 4
    for stage, (blocks, outputs) in enumerate(_STAGES, 2):
        side //= 2
        for block in range(blocks):
            scope = f"/stage{stage}/stage{stage}.{block}"
            if block:
                kept, read = _split(g, x, scope, channels // 2)
                changed = _branch(g, read, f"{scope}/branch2", channels // 2, channels // 2, stride=1)
            else:
                kept = _shortcut(g, x, f"{scope}/branch1", channels, outputs // 2)
                changed = _branch(g, x, f"{scope}/branch2", channels, outputs // 2, stride=2)
            channels = outputs
            x = _shuffle(g, g.op("Concat", kept, changed, scope=scope, axis=1), scope, channels, side)
    x = g.op("Relu", conv(g, x, "/conv5", channels, 1024, gain=2))
    g.output(classifier(g, x, 1024, classes), "logits", (batch, classes))
    return g.model()


def _split(g: GraphWriter, x: str, scope: str, half: int) -> tuple[str, str]:
    """By two slices, as exporters write chunk()."""
    first, last, axis = g.integers(0), g.integers(2 * half), g.integers(1)
    middle = g.integers(half)
    return g.op("Slice", x, first, middle, axis, scope=scope), g.op("Slice", x, middle, last, axis, scope=scope)


def _branch(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int, stride: int) -> str:
    x = g.op("Relu", conv(g, x, f"{scope}/0", inputs, outputs, gain=2), scope=scope)
    x = conv(g, x, f"{scope}/3", outputs, outputs, 3, stride=stride, groups=outputs)
    return g.op("Relu", conv(g, x, f"{scope}/5", outputs, outputs, gain=2), scope=scope)


def _shortcut(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int) -> str:
    x = conv(g, x, f"{scope}/0", inputs, inputs, 3, stride=2, groups=inputs)
    return g.op("Relu", conv(g, x, f"{scope}/2", inputs, outputs, gain=2), scope=scope)


def _shuffle(g: GraphWriter, x: str, scope: str, channels: int, side: int) -> str:
    """0 stands for the batch, whatever its size."""
    x = g.op("Reshape", x, g.integers(0, 2, channels // 2, side, side), scope=scope)
    x = g.op("Transpose", x, scope=scope, perm=[0, 2, 1, 3, 4])
    return g.op("Reshape", x, g.integers(0, channels, side, side), scope=scope)
