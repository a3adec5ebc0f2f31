"""A recommendation model (DLRM: Naumov et al., 2019): embeddings of categories, their inner products, and two perceptrons."""

import itertools

import numpy as np
import onnx

from .layers import dense
from .writer import GraphWriter

_DENSE, _TABLES, _ROWS, _WIDTH = 13, 26, 10000, 64
_BOTTOM, _TOP = (_DENSE, 512, 256, _WIDTH), (512, 256, 1)


def dlrm(*, batch: int = 16, seed: int = 0) -> onnx.ModelProto:
    """dense float32[batch, 13] and sparse int64[batch, 26] to probability float32[batch, 1]."""
    g = GraphWriter("dlrm", seed=seed)
    bottom = _perceptron(g, g.input("dense", (batch, _DENSE)), "/bottom", _BOTTOM)
    sparse = g.input("sparse", (batch, _TABLES), "int64")
    rows = [bottom]
    for number in range(_TABLES):
        table = g.normal(f"embedding.{number}.weight", _ROWS, _WIDTH, deviation=0.3)
        rows.append(g.op("Gather", table, g.op("Gather", sparse, g.integer(number), axis=1)))
    stacked = g.op("Reshape", g.op("Concat", *rows, axis=1), g.integers(batch, _TABLES + 1, _WIDTH))
    products = g.op("MatMul", stacked, g.op("Transpose", stacked, perm=[0, 2, 1]))
    below = np.ravel_multi_index(np.tril_indices(_TABLES + 1, -1), (_TABLES + 1, _TABLES + 1))
    pairs = g.op("Gather", g.op("Flatten", products, axis=1), g.constant(below), axis=1)
    x = _perceptron(g, g.op("Concat", bottom, pairs, axis=1), "/top", (_WIDTH + len(below), *_TOP))
    g.output(g.op("Sigmoid", x), "probability", (batch, 1))
    return g.model()


def _perceptron(g: GraphWriter, x: str, scope: str, widths: tuple[int, ...]) -> str:
    """ReLU between the layers."""
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        x = g.op("Relu", x, scope=scope) if number else x
        x = dense(g, x, f"{scope}.{number}", inputs, outputs, gain=2 if number else 1)
    return x
