"""Normalisations. The references compute in double precision; means and variances are of the elements, without correction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...formats.types import ShapeDim, TensorType
from .reduction import mean
from .shapes import FLOAT, axis_of, match_dim, mismatch, require, require_rank, same_dtype, text
from .table import Attribute, Fusion, Kind, register
from .work import each_input

EPSILON = Attribute(Kind.FLOAT, "added to the variance", 1e-5)
_AXIS = {"axis": Attribute(Kind.INT, "along which the elements sum to 1", -1)}
_FIRST_AXIS = Attribute(Kind.INT, "the first of the axes that are normalised, up to the last", -1)
_LAYER = {"axis": _FIRST_AXIS, "epsilon": EPSILON}


def _infer_softmax(inputs: Sequence[TensorType], axis: int) -> TensorType:
    require(inputs[0], FLOAT)
    axis_of(axis, inputs[0].rank)
    return inputs[0]


def _log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    shifted = wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
    return (shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))).astype(x.dtype)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Exponentials divided by their sum along an axis, in float64, rounded once."""
    wide = x.astype(np.float64)
    exponentials = np.exp(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))
    return (exponentials / np.sum(exponentials, axis=axis, keepdims=True)).astype(x.dtype)


def _check_channels(inputs: Sequence[TensorType], what: str) -> None:
    """x [N, C, …], and for each channel an element of every other input."""
    x, *others = inputs
    same_dtype(inputs, FLOAT)
    if x.rank < 2:
        raise mismatch("x of shape [N, C, …]", x)
    for other in others:
        require_rank(other, 1, what)
        match_dim(x.shape[1], other.shape[0])


def _by_channel(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    return values.astype(np.float64).reshape(-1, *[1] * (x.ndim - 2))


def _infer_batch(inputs: Sequence[TensorType], epsilon: float) -> TensorType:
    _check_channels(inputs, "scale, bias, mean and variance")
    return inputs[0]


def _batch_normalization(
    x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray, epsilon: float
) -> np.ndarray:
    scale, bias, mean, variance = (_by_channel(values, x) for values in (scale, bias, mean, variance))
    return ((x - mean) / np.sqrt(variance + epsilon) * scale + bias).astype(x.dtype)


def _standardized(wide: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    centred = wide - mean(wide, axes, keepdims=True)
    return centred / np.sqrt(mean(centred * centred, axes, keepdims=True) + epsilon)


def _infer_layer(inputs: Sequence[TensorType], axis: int, epsilon: float) -> TensorType:
    x, *others = inputs
    same_dtype(inputs, FLOAT)
    normalized = x.shape[axis_of(axis, x.rank) :]
    for other in others:
        require_rank(other, len(normalized), f"a scale or bias of shape {text(normalized)}")
        for expected, got in zip(normalized, other.shape, strict=True):
            match_dim(expected, got)
    return x


def _scaled(result: np.ndarray, scale: np.ndarray | None, bias: np.ndarray | None, x: np.ndarray) -> np.ndarray:
    result = result if scale is None else result * scale
    return (result if bias is None else result + bias).astype(x.dtype)


def _layer_normalization(
    x: np.ndarray, scale: np.ndarray | None = None, bias: np.ndarray | None = None, *, axis: int, epsilon: float
) -> np.ndarray:
    over = tuple(range(axis_of(axis, x.ndim), x.ndim))
    return _scaled(_standardized(x.astype(np.float64), over, epsilon), scale, bias, x)


def _rms_normalization(x: np.ndarray, scale: np.ndarray | None = None, *, axis: int, epsilon: float) -> np.ndarray:
    over = tuple(range(axis_of(axis, x.ndim), x.ndim))
    wide = x.astype(np.float64)
    return _scaled(wide / np.sqrt(mean(wide * wide, over, keepdims=True) + epsilon), scale, None, x)


def _infer_instance(inputs: Sequence[TensorType], epsilon: float) -> TensorType:
    _check_channels(inputs, "scale and bias")
    return inputs[0]


def _infer_group(inputs: Sequence[TensorType], groups: int, epsilon: float) -> TensorType:
    _check_channels(inputs, "scale and bias")
    channels: ShapeDim = inputs[0].shape[1]
    if groups < 1 or (isinstance(channels, int) and channels % groups):
        raise mismatch(f"channels that {groups} groups divide", channels)
    return inputs[0]


def group_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, groups: int, epsilon: float) -> np.ndarray:
    """Each group of channels of [N, C, …] standardised, then scaled and shifted by [C], in float64, rounded once."""
    grouped = x.astype(np.float64).reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    result = _standardized(grouped, tuple(range(2, grouped.ndim)), epsilon).reshape(x.shape)
    return _scaled(result, _by_channel(scale, x), _by_channel(bias, x), x)


def _instance_normalization(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    return group_normalization(x, scale, bias, x.shape[1], epsilon)


def _infer_local_response(
    inputs: Sequence[TensorType], size: int, alpha: float, beta: float, bias: float
) -> TensorType:
    _check_channels(inputs, "")
    if size < 1:
        raise mismatch("a size of at least 1", size)
    return inputs[0]


def _local_response_normalization(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    squares = np.square(x.astype(np.float64))
    before, after = (size - 1) // 2, size // 2
    sums = np.stack(
        [squares[:, max(0, c - before) : c + after + 1].sum(axis=1) for c in range(x.shape[1])]
        or [squares[:, 0:0].sum(1)],
        axis=1,
    )[:, : x.shape[1]]
    return (x / (bias + alpha / size * sums) ** beta).astype(x.dtype)


_ANCHOR = Fusion.ANCHOR
# fmt: off
register("softmax", "x", _infer_softmax, softmax, _ANCHOR,
         "exp(x) / sum(exp(x))", attributes=_AXIS, work=each_input(5), in_place=True)
register("log_softmax", "x", _infer_softmax, _log_softmax, _ANCHOR,
         "log(softmax(x))", attributes=_AXIS, work=each_input(5), in_place=True)
register("batch_normalization", "x scale bias mean variance", _infer_batch, _batch_normalization, _ANCHOR,
         "(x - mean) / sqrt(variance + epsilon) scale + bias, of each channel (axis 1)",
         attributes={"epsilon": EPSILON}, work=each_input(2), in_place=True)
register("layer_normalization", "x scale? bias?", _infer_layer, _layer_normalization, _ANCHOR,
         "x with mean 0 and variance 1 over the last axes, times a scale, plus a bias, both of those axes' shape",
         attributes=_LAYER, work=each_input(8), in_place=True)
register("rms_normalization", "x scale?", _infer_layer, _rms_normalization, _ANCHOR,
         "x divided by the root of its mean square over the last axes, times a scale of those axes' shape",
         attributes=_LAYER, work=each_input(4), in_place=True)
register("instance_normalization", "x scale bias", _infer_instance, _instance_normalization, _ANCHOR,
         "x [N, C, …] with mean 0 and variance 1 in each channel, times a scale [C], plus a bias [C]",
         attributes={"epsilon": EPSILON}, work=each_input(7), in_place=True)
register("group_normalization", "x scale bias", _infer_group, group_normalization, _ANCHOR,
         "x [N, C, …] with mean 0 and variance 1 in each group of channels, times a scale [C], plus a bias [C]",
         attributes={"groups": Attribute(Kind.INT, "how many groups the channels are parted into"), "epsilon": EPSILON},
         work=each_input(7), in_place=True)
register("local_response_normalization", "x", _infer_local_response, _local_response_normalization, _ANCHOR,
         "x / (bias + alpha / size · the sum of squares over `size` neighbouring channels) to the beta",
         attributes={"size": Attribute(Kind.INT, "channels in a neighbourhood"),
                     "alpha": Attribute(Kind.FLOAT, "weight of the squares", 0.0001),
                     "beta": Attribute(Kind.FLOAT, "exponent", 0.75),
                     "bias": Attribute(Kind.FLOAT, "offset", 1.0)}, work=each_input(5))
# fmt: on
