"""Trains the digits model of the demo and writes it as ONNX: `python -m treadle.tools.dev.train_digits`.

The network is small and classic: two 3×3 convolutions, each with ReLU and 2×2 max pooling, then two dense layers.
Layers, gradients and the optimizer (Adam: Kingma and Ba, 2015) are written out in NumPy; everything is seeded. The
committed `models/digits.onnx` was made by this script with its defaults.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import digits

if TYPE_CHECKING:
    import onnx

Parameters = dict[str, np.ndarray]

CHANNELS = (24, 48)
HIDDEN = 96
CLASSES = 10


def initial_parameters(rng: np.random.Generator) -> Parameters:
    """Weights drawn as He et al. (2015) advise for ReLU, biases zero."""
    first, second = CHANNELS
    shapes = {
        "conv1.weight": (first, 1, 3, 3),
        "conv2.weight": (second, first, 3, 3),
        "dense1.weight": (HIDDEN, second * 2 * 2),
        "dense2.weight": (CLASSES, HIDDEN),
    }
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        parameters[name] = rng.normal(0, deviation, shape).astype(np.float32)
        parameters[name.replace("weight", "bias")] = np.zeros(shape[0], np.float32)
    return parameters


# ---- the layers: each gives its result and the function from the result's gradient to its inputs' gradients ----


def _patches(x: np.ndarray) -> np.ndarray:
    """The 3×3 neighbourhood of every pixel, zero-padded: [n, h, w, c, 3, 3]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5)


def _convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    out = np.tensordot(_patches(x), weight, axes=((3, 4, 5), (1, 2, 3))) + bias
    return out.transpose(0, 3, 1, 2)


def _convolution_gradients(
    x: np.ndarray, weight: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of the input, the weight and the bias."""
    of_weight = np.tensordot(gradient, _patches(x), axes=((0, 2, 3), (0, 1, 2)))
    mirrored = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    of_input = _convolution(gradient, mirrored, np.zeros(len(mirrored), np.float32))
    return of_input, of_weight, gradient.sum((0, 2, 3))


def _max_pool(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def _max_pool_gradient(x: np.ndarray, pooled: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    def enlarge(small: np.ndarray) -> np.ndarray:
        return small.repeat(2, 2).repeat(2, 3)

    return (x == enlarge(pooled)) * enlarge(gradient)


# ---- the network ----


class Activations(NamedTuple):
    """The values between the layers, which the gradients need again."""

    convolved1: np.ndarray
    pooled1: np.ndarray
    convolved2: np.ndarray
    pooled2: np.ndarray
    flat: np.ndarray
    hidden: np.ndarray
    logits: np.ndarray


def forward(p: Parameters, images: np.ndarray) -> Activations:
    convolved1 = np.maximum(_convolution(images, p["conv1.weight"], p["conv1.bias"]), 0)
    pooled1 = _max_pool(convolved1)
    convolved2 = np.maximum(_convolution(pooled1, p["conv2.weight"], p["conv2.bias"]), 0)
    pooled2 = _max_pool(convolved2)
    flat = pooled2.reshape(len(images), -1)
    hidden = np.maximum(flat @ p["dense1.weight"].T + p["dense1.bias"], 0)
    logits = hidden @ p["dense2.weight"].T + p["dense2.bias"]
    return Activations(convolved1, pooled1, convolved2, pooled2, flat, hidden, logits)


def loss_and_gradients(p: Parameters, images: np.ndarray, labels: np.ndarray) -> tuple[float, Parameters]:
    """Mean cross entropy of a batch, and its gradient by every parameter."""
    a = forward(p, images)
    shifted = a.logits - a.logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(labels))
    loss = -log_probabilities[rows, labels].mean()

    g: Parameters = {}
    d_logits = np.exp(log_probabilities)
    d_logits[rows, labels] -= 1
    d_logits /= len(labels)
    g["dense2.weight"], g["dense2.bias"] = d_logits.T @ a.hidden, d_logits.sum(0)
    d_hidden = (d_logits @ p["dense2.weight"]) * (a.hidden > 0)
    g["dense1.weight"], g["dense1.bias"] = d_hidden.T @ a.flat, d_hidden.sum(0)
    d_pooled2 = (d_hidden @ p["dense1.weight"]).reshape(a.pooled2.shape)
    d_convolved2 = _max_pool_gradient(a.convolved2, a.pooled2, d_pooled2) * (a.convolved2 > 0)
    d_pooled1, g["conv2.weight"], g["conv2.bias"] = _convolution_gradients(a.pooled1, p["conv2.weight"], d_convolved2)
    d_convolved1 = _max_pool_gradient(a.convolved1, a.pooled1, d_pooled1) * (a.convolved1 > 0)
    _, g["conv1.weight"], g["conv1.bias"] = _convolution_gradients(images, p["conv1.weight"], d_convolved1)
    return float(loss), g


def accuracy(parameters: Parameters, data: digits.Digits) -> float:
    """The share of `data` that the network gets right."""
    return float((forward(parameters, data.images).logits.argmax(1) == data.labels).mean())


def _batches(rng: np.random.Generator, data: digits.Digits, size: int = 64) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All images once, in random order, each moved by up to one pixel: it teaches more than the bare images do."""
    order = rng.permutation(len(data.labels))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        padded = np.pad(data.images[chosen], ((0, 0), (0, 0), (1, 1), (1, 1)))
        down, right = rng.integers(0, 3, 2)
        yield padded[:, :, down : down + 8, right : right + 8], data.labels[chosen]


def train(data: digits.Digits, *, epochs: int = 60, seed: int = 1, learning_rate: float = 2e-3) -> Parameters:
    """Adam with a learning rate that falls to zero along half a cosine."""
    rng = np.random.default_rng(seed)
    parameters = initial_parameters(rng)
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    variance = {name: np.zeros_like(value) for name, value in parameters.items()}
    step = 0
    for epoch in range(epochs):
        rate = learning_rate * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        losses = []
        for images, labels in _batches(rng, data):
            loss, gradients = loss_and_gradients(parameters, images, labels)
            losses.append(loss)
            step += 1
            for name, gradient in gradients.items():
                mean[name] += 0.1 * (gradient - mean[name])
                variance[name] += 0.001 * (gradient**2 - variance[name])
                unbiased = mean[name] / (1 - 0.9**step)
                scale = np.sqrt(variance[name] / (1 - 0.999**step)) + 1e-8
                parameters[name] -= (rate * unbiased / scale).astype(np.float32)
        print(f"epoch {epoch + 1:3}: loss {np.mean(losses):.4f}")
    return parameters


# ---- ONNX ----


def to_onnx(parameters: Parameters) -> "onnx.ModelProto":
    """The network as an exporter would write it: images float32[batch, 1, 8, 8] to probabilities float32[batch, 10]."""
    from onnx import TensorProto, helper, numpy_helper

    def conv(number: int, source: str) -> list:
        weights = [f"conv{number}.weight", f"conv{number}.bias"]
        return [
            helper.make_node(
                "Conv", [source, *weights], [f"conv{number}"], f"/conv{number}", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
            ),
            helper.make_node("Relu", [f"conv{number}"], [f"relu{number}"], f"/relu{number}"),
            helper.make_node(
                "MaxPool", [f"relu{number}"], [f"pool{number}"], f"/pool{number}", kernel_shape=[2, 2], strides=[2, 2]
            ),
        ]

    def dense(number: int, source: str, target: str) -> "onnx.NodeProto":
        weights = [f"dense{number}.weight", f"dense{number}.bias"]
        return helper.make_node("Gemm", [source, *weights], [target], f"/dense{number}", transB=1)

    nodes = [
        *conv(1, "images"),
        *conv(2, "pool1"),
        helper.make_node("Flatten", ["pool2"], ["flat"], "/flatten", axis=1),
        dense(1, "flat", "hidden"),
        helper.make_node("Relu", ["hidden"], ["hidden_relu"], "/relu3"),
        dense(2, "hidden_relu", "logits"),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "/softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, producer_name="treadle", ir_version=8, opset_imports=[opset])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=digits.MODEL)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    training, held_out = digits.load_split()
    parameters = train(training, epochs=options.epochs, seed=options.seed)
    print(f"held-out accuracy {accuracy(parameters, held_out):.2%} of {len(held_out.labels)} images")
    content = to_onnx(parameters).SerializeToString(deterministic=True)
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_bytes(content)
    print(f"wrote {options.output} ({len(content) / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
