"""EfficientNet-B0 (Tan, Le, 2019): inverted residuals with squeeze-excite and SiLU."""

import onnx

from .layers import classifier, conv, silu, squeeze_excite
from .writer import GraphWriter

# expansion, channels, blocks, stride of the first, kernel
_B0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("efficientnet_b0", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = silu(g, conv(g, x, "/stem", 3, 32, 3, stride=2, gain=2), "/stem")
    channels = 32
    for stage, (expansion, outputs, blocks, first_stride, kernel) in enumerate(_B0):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _block(g, x, f"/blocks.{stage}.{block}", channels, channels * expansion, outputs, stride, kernel)
            channels = outputs
    x = silu(g, conv(g, x, "/head", channels, 1280, gain=2), "/head")
    g.output(classifier(g, x, 1280, classes), "logits", (batch, classes))
    return g.model()


def _block(
    g: GraphWriter, x: str, scope: str, inputs: int, expanded: int, outputs: int, stride: int, kernel: int
) -> str:
    value = x
    if expanded != inputs:
        value = silu(g, conv(g, value, f"{scope}/expand", inputs, expanded, gain=2), scope)
    value = conv(g, value, f"{scope}/depthwise", expanded, expanded, kernel, stride=stride, groups=expanded, gain=2)
    value = squeeze_excite(g, silu(g, value, scope), f"{scope}/se", expanded, inputs // 4, activation="SiLU")
    value = conv(g, value, f"{scope}/project", expanded, outputs, gain=2)
    return g.op("Add", value, x, scope=scope) if stride == 1 and inputs == outputs else value
