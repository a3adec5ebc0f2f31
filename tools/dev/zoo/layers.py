"""Layers that several families share, taken apart as exporters do.

A layer is a function of the graph writer, the value it works on and its scope ("/layer1/conv1"); its weights are named after
the scope ("layer1.conv1.weight"). `gain` is the ratio between the mean squares of result and input, about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from .writer import GraphWriter, Shape

LOWEST = float(np.finfo(np.float32).min)  # what exporters add to the scores that a mask hides


def weight_name(scope: str, name: str) -> str:
    """ "layer1.conv1.weight" for "/layer1/conv1"."""
    return f"{scope.strip('/').replace('/', '.')}.{name}"


# ---- convolutional networks ----


def conv(
    g: GraphWriter,
    x: str,
    scope: str,
    inputs: int,
    outputs: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    gain: float = 1,
    rank: int = 2,
    bias: bool = True,
    padding: int | None = None,
) -> str:
    """A convolution over `rank` axes, padded by half its kernel unless told otherwise."""
    fan_in = inputs // groups * kernel**rank
    shape = (outputs, inputs // groups, *(kernel,) * rank)
    values = [x, g.normal(weight_name(scope, "weight"), *shape, deviation=math.sqrt(gain / fan_in))]
    values += [g.normal(weight_name(scope, "bias"), outputs, deviation=0.05)] if bias else []
    return g.op(
        "Conv",
        *values,
        scope=scope,
        dilations=[1] * rank,
        group=groups,
        kernel_shape=[kernel] * rank,
        pads=[kernel // 2 if padding is None else padding] * (2 * rank),
        strides=[stride] * rank,
    )


def batch_norm(g: GraphWriter, x: str, scope: str, channels: int) -> str:
    """One that exporters could not fold into a convolution before it."""
    uniform = {"weight": (0.5, 1.0), "bias": (-0.1, 0.1), "running_mean": (-0.1, 0.1), "running_var": (0.5, 1.5)}
    weights = [
        g.weight(weight_name(scope, name), g.rng.uniform(low, high, channels).astype(np.float32))
        for name, (low, high) in uniform.items()
    ]
    return g.op("BatchNormalization", x, *weights, scope=scope, epsilon=1e-5, momentum=0.9)


def relu6(g: GraphWriter, x: str, scope: str) -> str:
    return g.op("Clip", x, g.scalar(0), g.scalar(6), scope=scope)


def silu(g: GraphWriter, x: str, scope: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x, scope=scope), scope=scope)


def squeeze_excite(
    g: GraphWriter, x: str, scope: str, channels: int, squeezed: int, activation: str = "Relu", gate: str = "Sigmoid"
) -> str:
    """Channels weighed by what their means say (Hu et al., 2018). Activation "SiLU" is the decomposed one."""
    mean = g.op("GlobalAveragePool", x, scope=scope)
    narrow = conv(g, mean, f"{scope}/fc1", channels, squeezed)
    narrow = silu(g, narrow, scope) if activation == "SiLU" else g.op(activation, narrow, scope=scope)
    return g.op("Mul", x, g.op(gate, conv(g, narrow, f"{scope}/fc2", squeezed, channels), scope=scope), scope=scope)


def classifier(g: GraphWriter, x: str, channels: int, classes: int) -> str:
    """Global average, then one dense layer."""
    flat = g.op("Flatten", g.op("GlobalAveragePool", x, scope="/avgpool"), axis=1)
    return dense(g, flat, "/classifier", channels, classes)


def dense(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int, *, gain: float = 1) -> str:
    """Gemm, as exporters write linear layers of matrices."""
    weight = g.normal(weight_name(scope, "weight"), outputs, inputs, deviation=math.sqrt(gain / inputs))
    bias = g.normal(weight_name(scope, "bias"), outputs, deviation=0.05)
    return g.op("Gemm", x, weight, bias, scope=scope, alpha=1.0, beta=1.0, transB=1)


# ---- transformers ----


def linear(g: GraphWriter, x: str, scope: str, inputs: int, outputs: int, *, bias: bool = True, gain: float = 1) -> str:
    """MatMul with a transposed weight, then the bias: exporters write Gemm only for matrices."""
    weight = g.normal(weight_name(scope, "weight_T"), inputs, outputs, deviation=math.sqrt(gain / inputs))
    product = g.op("MatMul", x, weight, scope=scope)
    if not bias:
        return product
    return g.op("Add", g.normal(weight_name(scope, "bias"), outputs, deviation=0.05), product, scope=scope)


def layer_norm(g: GraphWriter, x: str, scope: str, width: int, epsilon: float = 1e-5) -> str:
    """Over the last axis, in arithmetic."""
    axes = g.integers(-1)
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes, scope=scope), scope=scope)
    squared = g.op("Pow", centred, g.scalar(2), scope=scope)
    variance = g.op("Add", g.op("ReduceMean", squared, axes, scope=scope), g.scalar(epsilon), scope=scope)
    normal = g.op("Div", centred, g.op("Sqrt", variance, scope=scope), scope=scope)
    scaled = g.op("Mul", normal, _scale(g, scope, width), scope=scope)
    return g.op("Add", scaled, g.normal(weight_name(scope, "bias"), width, deviation=0.1), scope=scope)


def rms_norm(g: GraphWriter, x: str, scope: str, width: int) -> str:
    """Over the last axis (Zhang, Sennrich, 2019), in arithmetic."""
    mean = g.op("ReduceMean", g.op("Pow", x, g.scalar(2), scope=scope), g.integers(-1), scope=scope)
    root = g.op("Sqrt", g.op("Add", mean, g.scalar(1e-6), scope=scope), scope=scope)
    normal = g.op("Mul", x, g.op("Div", g.scalar(1), root, scope=scope), scope=scope)
    return g.op("Mul", _scale(g, scope, width), normal, scope=scope)


def _scale(g: GraphWriter, scope: str, width: int) -> str:
    values = 1 + 0.1 * g.rng.standard_normal(width, np.float32)
    return g.weight(weight_name(scope, "weight"), values.astype(np.float32))


def gelu(g: GraphWriter, x: str, scope: str) -> str:
    erf = g.op("Erf", g.op("Div", x, g.scalar(math.sqrt(2)), scope=scope), scope=scope)
    product = g.op("Mul", x, g.op("Add", erf, g.scalar(1), scope=scope), scope=scope)
    return g.op("Mul", product, g.scalar(0.5), scope=scope)


def gelu_tanh(g: GraphWriter, x: str, scope: str) -> str:
    """GPT-2's approximation."""
    cube = g.op("Mul", g.op("Pow", x, g.scalar(3), scope=scope), g.scalar(0.044715), scope=scope)
    inner = g.op("Mul", g.op("Add", x, cube, scope=scope), g.scalar(math.sqrt(2 / math.pi)), scope=scope)
    outer = g.op("Add", g.op("Tanh", inner, scope=scope), g.scalar(1), scope=scope)
    return g.op("Mul", g.op("Mul", x, g.scalar(0.5), scope=scope), outer, scope=scope)


def size(g: GraphWriter, x: str, axis: int, scope: str = "") -> str:
    """A dimension of x, as a tensor of rank 0."""
    return g.op("Gather", g.op("Shape", x, scope=scope), g.integer(axis), scope=scope, axis=0)


def reshape(g: GraphWriter, x: str, dims: Sequence[int | str], scope: str = "") -> str:
    """To dimensions that are numbers, or values of rank 0 (see `size`)."""
    return g.op("Reshape", x, shape_of(g, dims, scope), scope=scope)


def shape_of(g: GraphWriter, dims: Sequence[int | str], scope: str = "") -> str:
    """Dimensions as one tensor: a constant, or the exporters' chain of Unsqueeze and Concat."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if len(numbers) == len(dims):
        return g.integers(*numbers)
    parts = [
        g.integers(dim) if isinstance(dim, int) else g.op("Unsqueeze", dim, g.integers(0), scope=scope) for dim in dims
    ]
    return g.op("Concat", *parts, scope=scope, axis=0)


def split_heads(g: GraphWriter, x: str, scope: str, lengths: Sequence[int | str], heads: int, depth: int) -> str:
    """[batch, length, heads · depth] to [batch, heads, length, depth]."""
    return g.op("Transpose", reshape(g, x, (*lengths, heads, depth), scope), scope=scope, perm=[0, 2, 1, 3])


def attention(
    g: GraphWriter, query: str, key: str, value: str, scope: str, depth: int, *, added: str = "", scaled: bool = True
) -> str:
    """softmax(query · keyᵀ / √depth + added) · value, all of shape [batch, heads, length, depth]."""
    scores = g.op("MatMul", query, g.op("Transpose", key, scope=scope, perm=[0, 1, 3, 2]), scope=scope)
    if scaled:
        scores = g.op("Div", scores, g.scalar(math.sqrt(depth)), scope=scope)
    if added:
        scores = g.op("Add", scores, added, scope=scope)
    return g.op("MatMul", g.op("Softmax", scores, scope=scope, axis=-1), value, scope=scope)


def merge_heads(g: GraphWriter, x: str, scope: str, lengths: Sequence[int | str], width: int) -> str:
    """[batch, heads, length, depth] to [batch, length, width]."""
    return reshape(g, g.op("Transpose", x, scope=scope, perm=[0, 2, 1, 3]), (*lengths, width), scope)


def causal_mask(g: GraphWriter, past: str, length: str) -> str:
    """float32[1, 1, length, past + length] to add to scores: no token sees a later one. Sizes are values of rank 0."""
    scope, one = "/mask", g.integer(1)
    total = g.op("Add", past, length, scope=scope)
    rows = g.op("Unsqueeze", g.op("Range", past, total, one, scope=scope), g.integers(1), scope=scope)
    zero = g.integer(0)
    columns = g.op("Unsqueeze", g.op("Range", zero, total, one, scope=scope), g.integers(0), scope=scope)
    seen = g.op("LessOrEqual", columns, rows, scope=scope)
    mask = g.op("Where", seen, g.scalar(0), g.scalar(LOWEST), scope=scope)
    return g.op("Unsqueeze", mask, g.integers(0, 1), scope=scope)


def cache_inputs(g: GraphWriter, layers: int, shape: Shape) -> list[tuple[str, str]]:
    """Keys and values of earlier tokens, [batch, heads, past, depth], of each layer."""
    return [(g.input(f"past.{number}.key", shape), g.input(f"past.{number}.value", shape)) for number in range(layers)]


def cache_outputs(g: GraphWriter, presents: Sequence[tuple[str, str]], shape: Shape) -> None:
    """Keys and values for the next run."""
    for number, (key, value) in enumerate(presents):
        g.output(key, f"present.{number}.key", shape)
        g.output(value, f"present.{number}.value", shape)


def to_float(g: GraphWriter, x: str, scope: str = "") -> str:
    return g.op("Cast", x, scope=scope, to=onnx.TensorProto.FLOAT)


@dataclass(frozen=True)
class MultiHead:
    """Multi-head attention (Vaswani et al., 2017) from `width` to `width`, with projections named like Hugging Face's."""

    width: int
    heads: int
    bias: bool = True
    scaled: bool = True

    def __call__(
        self,
        g: GraphWriter,
        x: str,
        scope: str,
        lengths: Sequence[int | str],
        *,
        added: str = "",
        source: str = "",
        source_lengths: Sequence[int | str] = (),
    ) -> str:
        """Of x[*lengths, width] to itself, or to `source`[*source_lengths, width]."""
        depth = self.width // self.heads
        places = {"query": (x, lengths), "key": (source or x, source_lengths or lengths)}
        places["value"] = places["key"]
        query, key, value = (
            split_heads(g, self._project(g, read, f"{scope}/{name}"), scope, sizes, self.heads, depth)
            for name, (read, sizes) in places.items()
        )
        context = attention(g, query, key, value, scope, depth, added=added, scaled=self.scaled)
        return self._project(g, merge_heads(g, context, scope, lengths, self.width), f"{scope}/output")

    def _project(self, g: GraphWriter, x: str, scope: str) -> str:
        return linear(g, x, scope, self.width, self.width, bias=self.bias)


def perceptron(g: GraphWriter, x: str, scope: str, width: int, hidden: int) -> str:
    """Two linear layers with GELU between them."""
    return linear(g, gelu(g, linear(g, x, f"{scope}/fc1", width, hidden), scope), f"{scope}/fc2", hidden, width)
