"""Recurrent networks as PyTorch exports them: one node a layer, batch second, directions joined by Transpose and Reshape."""

import math

import onnx

from .layers import dense
from .writer import GraphWriter

_GATES = {"LSTM": 4, "GRU": 3}


def recurrent(
    cell: str = "LSTM",
    *,
    layers: int = 2,
    hidden: int = 128,
    features: int = 64,
    bidirectional: bool = False,
    batch: int = 1,
    steps: int = 50,
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """x float32[batch, steps, features] to y float32[batch, classes], of the last step; the cell is LSTM or GRU."""
    g = GraphWriter(cell.lower(), seed=seed)
    directions = 2 if bidirectional else 1
    x, inputs = g.op("Transpose", g.input("x", (batch, steps, features)), perm=[1, 0, 2]), features
    for layer in range(layers):
        x = _layer(g, x, f"/rnn/{layer}", cell, inputs, hidden, directions)
        inputs = hidden * directions
    last = g.op("Gather", x, g.integer(-1), axis=0)
    g.output(dense(g, last, "/fc", inputs, classes), "y", (batch, classes))
    return g.model()


def _layer(g: GraphWriter, x: str, scope: str, cell: str, inputs: int, hidden: int, directions: int) -> str:
    rows, name = _GATES[cell] * hidden, scope.strip("/").replace("/", ".")
    weights = [
        g.normal(f"{name}.{part}", directions, rows, *columns, deviation=deviation)
        for part, columns, deviation in (
            ("weight", (inputs,), 1 / math.sqrt(inputs)),
            ("recurrence", (hidden,), 1 / math.sqrt(hidden)),
            ("bias", (2,), 0.1),
        )
    ]
    weights[2] = g.op("Reshape", weights[2], g.integers(directions, 2 * rows), scope=scope)
    # linear_before_reset: how PyTorch, and cuDNN, define the GRU
    attributes = {"linear_before_reset": 1} if cell == "GRU" else {}
    direction = "bidirectional" if directions == 2 else "forward"
    y = g.op(cell, x, *weights, scope=scope, hidden_size=hidden, direction=direction, **attributes)
    y = g.op("Transpose", y, scope=scope, perm=[0, 2, 1, 3])
    return g.op("Reshape", y, g.integers(0, 0, -1), scope=scope)
