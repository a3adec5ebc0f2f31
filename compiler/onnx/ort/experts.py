"""Importers of onnxruntime's mixtures of experts: each row goes through the few of many small networks that a router chooses.

An expert takes the rows that chose it, and only these: their number is known only at run time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..operators import networks
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value, constant
from .floats import DOMAIN, check_ranks
from .packed_weights import check_bits, constant_numbers, points_of

_Layer = Callable[[Value], Value]


class _Swiglu(NamedTuple):
    """Half of the columns gate the other half: `gate · sigmoid(alpha · gate) · (other + beta)`, both bounded by the limit."""

    alpha: float
    beta: float
    limit: float  # none, if it is 0
    fusion: int  # 1: the halves alternate, 2: one after the other


class _Routing(NamedTuple):
    """How many experts a row goes through, and whether their weights are to sum up to 1."""

    k: int
    normalize: bool


def _by_experts(g: GraphBuilder, x: Value, router: Value, routing: _Routing, experts: Sequence[_Layer]) -> Value:
    """x [..., features] after the experts that the router scores [rows, experts] highest, in the parts that softmax gives."""
    check_ranks(2, 3, input=x)
    check_ranks(2, router_probs=router)
    is_other = isinstance(router.shape[1], int) and router.shape[1] != len(experts)
    if is_other or not 1 <= routing.k <= len(experts):
        raise ModelError(
            f"expected scores of {len(experts)} experts and no larger k, got {router.type} and k = {routing.k}"
        )
    router = networks.along(g, router, 1, len(experts))
    rows = g.op("reshape", x, shape=(dims.product(x.shape[:-1]), x.shape[-1]))
    rows = networks.along(g, rows, 0, router.shape[0])
    _, chosen = g.ops("top_k", router, k=routing.k, axis=1, largest=True)
    parts = g.op("take_along_axis", networks.softmax(g, router), chosen, axis=1)
    if routing.normalize:
        parts = g.op("divide", parts, g.op("sum", parts, axes=(1,), keepdims=True))
    total = g.op("full", shape=rows.shape, value=0, dtype=x.dtype)
    for number, expert in enumerate(experts):
        is_chosen = g.op("equal", chosen, g.constant(number, chosen.dtype))
        places = g.op("nonzero", g.op("any", is_chosen, axes=(1,), keepdims=False))
        places = g.op("reshape", places, shape=places.shape[1:])
        part = g.op("sum", g.op("where", is_chosen, parts, g.constant(0, parts.dtype)), axes=(1,), keepdims=True)
        result = expert(g.op("take", rows, places, axis=0))
        result = g.op("multiply", result, g.op("take", part, places, axis=0))
        at = g.op("expand_dims", places, axes=(1,))
        total = g.op("scatter_nd", total, at, result, reduction="add")
    return g.op("reshape", total, shape=x.shape)


def _activated(g: GraphBuilder, x: Value, name: str, swiglu: _Swiglu) -> Value:
    if name == "swiglu":
        return _gated(g, x, swiglu)
    if name == "identity":
        return x
    if name == "gelu":
        return g.op("gelu", x, approximate="tanh")
    if name not in ("relu", "silu"):
        raise ModelError(f"activation_type {name!r} is none of relu, gelu, silu, swiglu, identity")
    return g.op(name, x)


def _gated(g: GraphBuilder, x: Value, swiglu: _Swiglu) -> Value:
    columns = x.shape[1]
    if not isinstance(columns, int) or columns % 2 or swiglu.fusion not in (1, 2):
        raise UnsupportedError(f"swiglu_fusion = {swiglu.fusion} of {x.type}")
    if swiglu.fusion == 1:
        gate, other = (g.op("slice", x, starts=(i,), ends=(columns,), axes=(1,), steps=(2,)) for i in range(2))
    else:
        gate, other = g.ops("split", x, axis=1, sizes=(columns // 2,) * 2)
    if swiglu.limit:
        gate = g.op("clip", gate, max=swiglu.limit)
        other = g.op("clip", other, min=-swiglu.limit, max=swiglu.limit)
    share = g.op("sigmoid", g.op("multiply", gate, g.constant(swiglu.alpha, x.dtype)))
    return g.op("multiply", g.op("multiply", gate, share), g.op("add", other, g.constant(swiglu.beta, x.dtype)))


def _expert(g: GraphBuilder, layers: Sequence[_Layer | None], activation: str, swiglu: _Swiglu, x: Value) -> Value:
    """The second layer of what the activation makes of the first one, times the third one where there is one."""
    first, second, third = layers
    assert first is not None
    assert second is not None
    inner = _activated(g, first(x), activation, swiglu)
    if third is not None:
        inner = g.op("multiply", inner, third(x))
    return second(inner)


def _unsupported(**options: int | str) -> None:
    """Raises UnsupportedError for the first option that is given."""
    for name, value in options.items():
        if value:
            raise UnsupportedError(f"{name} = {value}")


class _Options(NamedTuple):
    """What a mixture is like, whatever its weights are."""

    routing: _Routing
    activation: str
    swiglu: _Swiglu


def _options(
    *,
    activation_type: str = "relu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = 0.0,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> _Options:
    _unsupported(use_sparse_mixer=use_sparse_mixer, swiglu_limit_after_activation=swiglu_limit_after_activation)
    swiglu = _Swiglu(activation_alpha, activation_beta, swiglu_limit, swiglu_fusion)
    return _Options(_Routing(k, bool(normalize_routing_weights)), activation_type, swiglu)


@importer("MoE", domain=DOMAIN, attributes_of=_options)
def _mixture(
    g: GraphBuilder,
    x: Value,
    router_probs: Value,
    fc1_weights: Value,
    fc1_bias: Value | None,
    fc2_weights: Value,
    fc2_bias: Value | None = None,
    fc3_weights: Value | None = None,
    fc3_bias: Value | None = None,
    **options: Any,
) -> Value:
    """Weights are [experts, outputs, inputs], biases [experts, outputs]."""
    asked = _options(**options)
    layers = [
        _layers_of_floats(g, weights, bias, name)
        for name, weights, bias in (
            ("fc1", fc1_weights, fc1_bias),
            ("fc2", fc2_weights, fc2_bias),
            ("fc3", fc3_weights, fc3_bias),
        )
    ]
    return _mixed(g, x, router_probs, layers, asked)


def _mixed(
    g: GraphBuilder, x: Value, router: Value, layers: Sequence[Sequence[_Layer] | None], options: _Options
) -> Value:
    first = layers[0]
    assert first is not None
    counts = [len(each) for each in layers if each]
    if len(set(counts)) > 1:
        raise ModelError(f"expected the same number of experts in each layer, got {', '.join(map(str, counts))}")
    experts = [
        functools.partial(_expert, g, [each[number] if each else None for each in layers], *options[1:])
        for number in range(len(first))
    ]
    return _by_experts(g, x, router, options.routing, experts)


def _layers_of_floats(g: GraphBuilder, weights: Value | None, bias: Value | None, name: str) -> list[_Layer] | None:
    if weights is None:
        return None
    check_ranks(3, **{f"{name}_experts_weights": weights})
    count, outputs, inputs = weights.shape
    if not isinstance(count, int):
        raise UnsupportedError(f"{name}_experts_weights: a number of experts known only at run time")

    def layer(number: int, x: Value) -> Value:
        matrix = g.op("reshape", _of_expert(g, weights, number), shape=(outputs, inputs))
        return _plus(g, networks.product(g, x, g.op("permute_dims", matrix, axes=(1, 0))), bias, number, name)

    return [functools.partial(layer, number) for number in range(count)]


def _of_expert(g: GraphBuilder, x: Value, number: int) -> Value:
    return g.op("slice", x, starts=(number,), ends=(number + 1,), axes=(0,))


def _plus(g: GraphBuilder, x: Value, bias: Value | None, number: int, name: str) -> Value:
    if bias is None:
        return x
    check_ranks(2, **{f"{name}_experts_bias": bias})
    return g.broadcast("add", x, g.op("cast", _of_expert(g, bias, number), dtype=x.dtype))


@importer("QMoE", domain=DOMAIN, attributes_of=_options)
def _mixture_of_few_bits(
    g: GraphBuilder,
    x: Value,
    router_probs: Value,
    fc1_weights: Value,
    fc1_scales: Value,
    fc1_bias: Value | None,
    fc2_weights: Value,
    fc2_scales: Value,
    fc2_bias: Value | None = None,
    fc3_weights: Value | None = None,
    fc3_scales: Value | None = None,
    fc3_bias: Value | None = None,
    fc1_zeros: Value | None = None,
    fc2_zeros: Value | None = None,
    fc3_zeros: Value | None = None,
    *,
    accuracy_level: int = 0,  # what activations may be rounded to: here they are not
    block_size: int = 0,
    expert_weight_bits: int = 4,
    quant_type: str = "int",
    weights_prepacked: int = -1,
    **options: Any,
) -> Value:
    """Weights are packed [experts, outputs, inputs], with a scale for each row, or each block of one."""
    asked = _options(**options)
    _unsupported(
        quant_type="" if quant_type == "int" else quant_type,
        # -1 is left to the processor, for which a CPU's kernels take them as they are; 1 is an order of its kernels
        weights_prepacked="" if weights_prepacked in (-1, 0) else weights_prepacked,
    )
    check_bits(expert_weight_bits, "weights")
    layers = [
        _layers_of_few_bits(g, parts, bias, expert_weight_bits, block_size, name)
        for name, parts, bias in (
            ("fc1", (fc1_weights, fc1_scales, fc1_zeros), fc1_bias),
            ("fc2", (fc2_weights, fc2_scales, fc2_zeros), fc2_bias),
            ("fc3", (fc3_weights, fc3_scales, fc3_zeros), fc3_bias),
        )
    ]
    return _mixed(g, x, router_probs, layers, asked)


def _layers_of_few_bits(
    g: GraphBuilder,
    parts: tuple[Value | None, Value | None, Value | None],
    bias: Value | None,
    bits: int,
    block_size: int,
    name: str,
) -> list[_Layer] | None:
    weights, scales, zeros = parts
    if weights is None or scales is None:
        return None
    check_ranks(3, **{f"{name}_experts_weights": weights})
    content, scale = weights.content, scales.content
    if content is None or scale is None:
        raise UnsupportedError(f"{name}_experts_weights: weights that are not constant")
    count, outputs, inputs = *content.shape[:2], content.shape[2] * 8 // bits
    size = block_size or inputs
    if size < 1 or inputs % size or scale.size != count * outputs * (inputs // size):
        raise ModelError(f"{name}_scales: expected a scale for each {size} of {inputs} inputs, got {scales.type}")
    blocks = inputs // size
    numbers = constant_numbers(weights, bits, (count, outputs, blocks, size), f"{name}_experts_weights")
    points = points_of(zeros, bits, count * outputs, blocks).reshape(count, outputs, blocks)
    by_block = scale.reshape(count, outputs, blocks, 1)

    def layer(number: int, x: Value) -> Value:
        matrix = g.op(
            "dequantize",
            constant(numbers[number]),
            g.constant(by_block[number], DType.float32),
            g.constant(points[number, :, :, None]),
        )
        rows = g.op("reshape", matrix, shape=(outputs, inputs))
        product = networks.product(g, g.op("cast", x, dtype=DType.float32), g.op("permute_dims", rows, axes=(1, 0)))
        return _plus(g, g.op("cast", product, dtype=x.dtype), bias, number, name)

    return [functools.partial(layer, number) for number in range(count)]
