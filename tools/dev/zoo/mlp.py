"""Multilayer perceptrons: dense layers with ReLU between them."""

import itertools
import math

import onnx

from .writer import GraphWriter


def mlp(sizes: tuple[int, ...] = (16, 64, 64, 4), *, batch: int | str = 1, seed: int = 0) -> onnx.ModelProto:
    """x float32[batch, sizes[0]] to y float32[batch, sizes[-1]]."""
    g = GraphWriter("mlp", seed=seed)
    value = g.input("x", (batch, sizes[0]))
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 1):
        scope = f"/fc{number}"
        weight = g.normal(f"fc{number}.weight", outputs, inputs, deviation=math.sqrt(2 / inputs))
        bias = g.normal(f"fc{number}.bias", outputs, deviation=0.1)
        value = g.op("Gemm", value, weight, bias, scope=scope, transB=1)
        if number < len(sizes) - 1:
            value = g.op("Relu", value, scope=scope)
    g.output(value, "y", (batch, sizes[-1]))
    return g.model()
