"""RegNetX-400MF (Radosavovic et al., 2020): bottlenecks of grouped convolutions."""

import onnx

from .layers import classifier, conv
from .writer import GraphWriter

_GROUP_WIDTH, _STAGES = 16, ((32, 1), (64, 2), (160, 7), (400, 12))


def regnet(*, batch: int | str = 1, size: int = 224, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, 3, size, size] to logits float32[batch, classes]."""
    g = GraphWriter("regnet_x_400mf", seed=seed)
    x = g.input("x", (batch, 3, size, size))
    x = g.op("Relu", conv(g, x, "/stem", 3, 32, 3, stride=2, gain=2))
    channels = 32
    for stage, (width, blocks) in enumerate(_STAGES, 1):
        for block in range(blocks):
            x = _block(g, x, f"/block{stage}/block{stage}-{block}", channels, width, stride=1 if block else 2)
            channels = width
    g.output(classifier(g, x, channels, classes), "logits", (batch, classes))
    return g.model()


def _block(g: GraphWriter, x: str, scope: str, inputs: int, width: int, stride: int) -> str:
    value = g.op("Relu", conv(g, x, f"{scope}/a", inputs, width, gain=2), scope=scope)
    groups = width // _GROUP_WIDTH
    value = g.op(
        "Relu", conv(g, value, f"{scope}/b", width, width, 3, stride=stride, groups=groups, gain=2), scope=scope
    )
    value = conv(g, value, f"{scope}/c", width, width, gain=0.5)
    if stride != 1 or inputs != width:
        x = conv(g, x, f"{scope}/proj", inputs, width, stride=stride)
    return g.op("Relu", g.op("Add", x, value, scope=scope), scope=scope)
