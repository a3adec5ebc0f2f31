"""Importers of operators that were experiments of opsets 1 to 9. Models for Windows ML have them, and onnxruntime runs them."""

from __future__ import annotations

import numpy as np

from ....formats import dims
from ....formats.messages.errors import ModelError
from ...operators.shapes import never_equal
from ..table import importer
from ..values import GraphBuilder, Value


@importer("Affine")
def _affine(g: GraphBuilder, x: Value, *, alpha: float = 1.0, beta: float = 0.0) -> Value:
    return g.op("add", g.op("multiply", x, g.constant(alpha, x.dtype)), g.constant(beta, x.dtype))


@importer("ScaledTanh")
def _scaled_tanh(g: GraphBuilder, x: Value, *, alpha: float, beta: float) -> Value:
    scaled = g.op("multiply", x, g.constant(beta, x.dtype))
    return g.op("multiply", g.op("tanh", scaled), g.constant(alpha, x.dtype))


@importer("ParametricSoftplus")
def _parametric_softplus(g: GraphBuilder, x: Value, *, alpha: float, beta: float) -> Value:
    scaled = g.op("multiply", x, g.constant(beta, x.dtype))
    return g.op("multiply", g.op("softplus", scaled), g.constant(alpha, x.dtype))


@importer("ImageScaler")
def _image_scaler(g: GraphBuilder, x: Value, *, scale: float = 1.0, bias: tuple[float, ...] = ()) -> Value:
    """Images [N, C, H, W]; the bias has a number for each channel."""
    if x.rank != 4 or (bias and never_equal(x.shape[1], len(bias))):
        raise ModelError(f"ImageScaler: expected images [N, C, H, W] and {len(bias)} channels, but got {x.type}")
    scaled = g.op("multiply", x, g.constant(scale, x.dtype))
    if not bias:
        return scaled
    by_channel = g.constant(np.array(bias).reshape(-1, 1, 1), x.dtype)
    return g.op("add", g.checked(scaled, (x.shape[0], len(bias), *x.shape[2:])), by_channel)


@importer("Crop")
def _crop(g: GraphBuilder, x: Value, *, border: tuple[int, ...] = (), scale: tuple[int, ...] = ()) -> Value:
    """Images [N, C, H, W] without a border of (left, top, right, bottom), or `scale` = (height, width) of them from there on."""
    if x.rank != 4 or len(border) != 4 or min(border) < 0 or len(scale) not in (0, 2):
        raise ModelError(f"Crop: expected images [N, C, H, W] and a border of 4 numbers, but got {x.type}, {border}")
    left, top, right, bottom = border
    sizes = scale or (dims.add(x.shape[2], -top - bottom), dims.add(x.shape[3], -left - right))
    ends = [dims.add(first, size) for first, size in zip((top, left), sizes, strict=True)]
    if any(
        isinstance(end, int) and isinstance(size, int) and end > size
        for end, size in zip(ends, x.shape[2:], strict=True)
    ):
        raise ModelError(f"Crop: border {border} and scale {scale} leave the images of {x.type}")
    return g.op("slice", x, starts=(top, left), ends=tuple(ends), axes=(2, 3))
