"""Importers of onnxruntime's own operators on floats, as its optimiser and its model builder write them into models: what other
models say in several nodes. Attention is in `attention.py`; mixtures of experts, weights of a few bits and what ONNX
has taken over since are in other modules `onnx_runtime_*.py`, quantised tensors in `quantized.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..operators import networks
from ..operators.elementwise import swish
from ..table import find, importer
from ..values import GraphBuilder, UnsupportedError, Value

DOMAIN = "com.microsoft"


def check_ranks(*ranks: int, **values: Value | None) -> None:
    """Raises ModelError, by name, for a value of another rank."""
    for name, value in values.items():
        if value is not None and value.rank not in ranks:
            raise ModelError(f"{name} must have {' or '.join(map(str, ranks))} axes, got {value.type}")


def times(g: GraphBuilder, x: Value, factor: float) -> Value:
    return x if factor == 1 else g.op("multiply", x, g.constant(factor, x.dtype))


@importer("Solve", domain=DOMAIN)
def _solve(g: GraphBuilder, a: Value, b: Value, *, lower: int = 0, transposed: int = 0) -> Value:
    """skl2onnx writes it into Gaussian processes that classify, as `scipy.linalg.solve` of a matrix of no special form, which
    `lower` says nothing of."""
    check_ranks(2, A=a, Y=b)
    return g.op("solve", g.op("permute_dims", a, axes=(1, 0)) if transposed else a, b)


# ---- normalisation ----


@importer("SimplifiedLayerNormalization", attributes_of=networks.rms_normalization)
def _simplified_layer_normalization(g: GraphBuilder, x: Value, scale: Value, **attributes: Any) -> tuple[Value, ...]:
    result = networks.rms_normalization(g, x, scale, **attributes)
    return (result,) if g.output_count == 1 else (result, networks.statistics(g, x, centred=False, **attributes)[1])


@importer("SkipLayerNormalization", domain=DOMAIN)
def _skip_layer_normalization(
    g: GraphBuilder,
    x: Value,
    skip: Value,
    scale: Value,
    shift: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Value, ...]:
    total = _sum(g, x, skip, bias)
    result, *statistics = networks.layer_normalization(g, total, scale, shift, epsilon=epsilon)
    return (result, *statistics, total)


@importer("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def _skip_simplified_layer_normalization(
    g: GraphBuilder, x: Value, skip: Value, scale: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> tuple[Value, ...]:
    total = _sum(g, x, skip, bias)
    result = networks.rms_normalization(g, total, scale, epsilon=epsilon)
    return (result, *networks.statistics(g, total, epsilon=epsilon, centred=False), total)


def _sum(g: GraphBuilder, first: Value, *others: Value | None) -> Value:
    for other in others:
        first = first if other is None else g.broadcast("add", first, other)
    return first


@importer("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    g: GraphBuilder,
    words: Value,
    segments: Value | None,
    word_table: Value,
    position_table: Value,
    segment_table: Value | None,
    scale: Value,
    shift: Value,
    mask: Value | None = None,
    positions: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,  # says whether the second output is used
) -> tuple[Value, ...]:
    """The normalised sum of a word's, a place's and a segment's embedding; how many words each mask lets through; the sum."""
    check_ranks(2, input_ids=words, position_embedding=position_table)
    if positions is None:
        places = g.op("slice", position_table, starts=(0,), ends=(words.shape[1],), axes=(0,))
    else:
        places = g.op("take", position_table, positions, axis=0)
    total = _sum(g, g.op("take", word_table, words, axis=0), places)
    if segments is not None and segment_table is not None:
        total = _sum(g, total, g.op("take", segment_table, segments, axis=0))
    (result, *_) = networks.layer_normalization(g, total, scale, shift, epsilon=epsilon)
    if mask is None:
        visible = g.op("broadcast_to", g.constant(0, DType.int32), shape=words.shape[:1])
    else:
        ones = g.op("cast", g.op("equal", mask, g.constant(1, mask.dtype)), dtype=DType.int32)
        visible = g.op("sum", ones, axes=(1,), keepdims=False)
    return result, visible, total


# ---- activations, and what they follow ----

_GELUS = {"Gelu": "none", "BiasGelu": "none", "FastGelu": "tanh"}


def _gelu(name: str, approximate: str) -> None:
    @importer(name, domain=DOMAIN)
    def _(g: GraphBuilder, x: Value, bias: Value | None = None) -> Value:
        return g.op("gelu", _sum(g, x, bias), approximate=approximate)


for _name, _approximate in _GELUS.items():
    _gelu(_name, _approximate)


@importer("QuickGelu", domain=DOMAIN)
def _quick_gelu(g: GraphBuilder, x: Value, *, alpha: float = 1.702) -> Value:
    return swish(g, x, alpha=alpha)


# What products and convolutions may be followed by, and the names of its parameters, in their order.
_ACTIVATIONS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
_WITH_ATTRIBUTES = 6  # the last opset in which parameters of all of them are attributes


def _activated(g: GraphBuilder, x: Value, activation: str, parameters: Mapping[str, float]) -> Value:
    """By ONNX's operator of that name."""
    if activation not in _ACTIVATIONS:
        raise UnsupportedError(f"activation {activation!r}; Treadle has {', '.join(_ACTIVATIONS)}")
    entry = find("", activation, _WITH_ATTRIBUTES)
    assert entry is not None
    (result,) = entry(g, [x], dict(parameters))
    assert isinstance(result, Value)
    return result


@importer("FusedConv", domain=DOMAIN, attributes_of=networks.convolved)
def _convolution(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    addend: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **window: Any,
) -> Value:
    result = _sum(g, networks.convolution(g, x, weight, bias, **window), addend)
    if not activation:
        return result
    names = _ACTIVATIONS.get(activation, ())
    if len(activation_params) > len(names):
        raise ModelError(f"{activation} has {len(names)} parameters, got activation_params {activation_params}")
    return _activated(g, result, activation, dict(zip(names, activation_params, strict=False)))


@importer("FusedGemm", domain=DOMAIN, attributes_of=networks.gemm)
def _gemm(
    g: GraphBuilder,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **product: Any,
) -> Value:
    result = networks.gemm(g, a, b, c, **product)
    given = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    parameters = {name: value for name, value in given.items() if value is not None}
    return _activated(g, result, activation, parameters) if activation else result


# ---- matrix products ----


@importer("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def _matmul(
    g: GraphBuilder,
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Value:
    return times(g, networks.product(g, _turned(g, a, transA, transBatchA), _turned(g, b, transB, transBatchB)), alpha)


def _turned(g: GraphBuilder, x: Value, matrix: int, batch: int) -> Value:
    """With the last two axes exchanged, and with the first one after the others of the batch."""
    axes = list(range(x.rank))
    if batch and x.rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if matrix and x.rank > 1:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return x if axes == sorted(axes) else g.op("permute_dims", x, axes=tuple(axes))
