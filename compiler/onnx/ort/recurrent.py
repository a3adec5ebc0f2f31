"""Importers of what onnxruntime's model builder writes into decoders with states (Gated DeltaNet, LFM2): convolutions and linear
attention that go on from a state, and the gates around them. The standard has the first two since opset 27, and defines them."""

from __future__ import annotations

from ....formats import dims
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ..operators import networks
from ..table import importer
from ..values import GraphBuilder, Value
from .attention import refuse, with_heads
from .floats import DOMAIN, check_ranks

_STANDARD = 27


def _check_choice(name: str, got: str, *choices: str) -> None:
    """Raises ModelError for an attribute that is none of these."""
    if got not in choices:
        raise ModelError(f"{name} {got!r}; expected {', '.join(choices[:-1])} or {choices[-1]}")


@importer("CausalConvWithState", domain=DOMAIN)
def _causal_convolution(
    g: GraphBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    past_state: Value | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Value, ...]:
    refuse(channels_last=(0, channels_last), dilation=(1, dilation), ndim=(1, ndim), state_window=(0, state_window))
    _check_choice("activation", activation, "silu", "swish", "none")
    return g.standard("CausalConvWithState", _STANDARD, [x, weight, bias, past_state], {"activation": activation})


@importer("LinearAttention", since=_STANDARD)
@importer("LinearAttention", domain=DOMAIN)
def _linear_attention(
    g: GraphBuilder,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Value, ...]:
    """Unlike the standard's, several heads of values may share one of queries and keys."""
    refuse(state_window=(0, state_window))
    _check_choice("update_rule", update_rule, "linear", "gated", "delta", "gated_delta")
    for each, rule, gate in (("decay", "gated", decay), ("beta", "delta", beta)):
        if rule in update_rule and gate is None:
            raise ModelError(f"update_rule {update_rule!r} needs an input {each}, got none")
    check_ranks(3, query=query, key=key, value=value)
    if min(q_num_heads, kv_num_heads) < 1 or max(q_num_heads, kv_num_heads) % q_num_heads:
        raise ModelError(f"{q_num_heads} heads of queries and {kv_num_heads} of values")
    if q_num_heads < kv_num_heads:
        query, key = (with_heads(g, each, q_num_heads, kv_num_heads) for each in (query, key))
        q_num_heads = kv_num_heads
    given = (query, value, *(each for each in (decay, beta) if each is not None))
    if q_num_heads == kv_num_heads and all(isinstance(each.shape[2], int) for each in given):
        return _remembered(g, query, key, value, past_state, decay, beta, kv_num_heads, scale, update_rule)
    attributes = {
        "q_num_heads": q_num_heads,
        "kv_num_heads": kv_num_heads,
        "chunk_size": chunk_size,
        "scale": scale,
        "update_rule": update_rule,
    }
    return g.standard("LinearAttention", _STANDARD, [query, key, value, past_state, decay, beta], attributes)


def _remembered(
    g: GraphBuilder,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None,
    decay: Value | None,
    beta: Value | None,
    heads: int,
    scale: float,
    rule: str,
) -> tuple[Value, ...]:
    """Where each head of queries has a state of its own."""

    def parts(x: Value) -> Value:
        """[B, T, heads, …] in float32."""
        size = dims.floordiv(x.shape[2], heads)
        return g.op("reshape", g.op("cast", x, dtype=DType.float32), shape=(*rows, heads, size))

    def gate(x: Value | None) -> Value:
        """The same of one number for all heads, too, or of ones."""
        if x is None:
            return g.op("full", shape=(*rows, heads, 1), value=1.0, dtype=DType.float32)
        return parts(g.op("broadcast_to", x, shape=(*rows, heads)) if x.shape[2] == 1 else x)

    rows = query.shape[:2]
    q, k, v = map(parts, (query, key, value))
    depth, width = q.shape[3], v.shape[3]
    if depth == 0:
        raise ModelError(f"expected queries with elements for each head, got {query.type} of {heads} heads")
    if past_state is None:
        state = g.op("full", shape=(rows[0], heads, depth, width), value=0.0, dtype=DType.float32)
    else:
        state = g.op("cast", g.checked(past_state, (rows[0], heads, depth, width)), dtype=DType.float32)
    is_gated, is_delta = "gated" in rule, "delta" in rule
    kept = g.op("exp", gate(decay)) if is_gated else gate(None)
    written = gate(beta if is_delta else None)
    result, new = g.ops("linear_attention", q, k, v, state, kept, written, scale=scale or depth**-0.5, delta=is_delta)
    result = g.op("reshape", result, shape=(*rows, dims.multiply(width, heads)))
    dtype = query.dtype if past_state is None else past_state.dtype
    return g.op("cast", result, dtype=query.dtype), g.op("cast", new, dtype=dtype)


@importer("LinearAttentionGate", domain=DOMAIN)
def _linear_attention_gate(
    g: GraphBuilder, a: Value, dt_bias: Value, decay_scale: Value, b: Value | None = None
) -> tuple[Value, ...]:
    wide = g.broadcast("add", g.op("cast", a, dtype=DType.float32), dt_bias)
    decay = g.op("cast", g.broadcast("multiply", g.op("softplus", wide), decay_scale), dtype=a.dtype)
    return (decay,) if b is None else (decay, g.op("sigmoid", b))


@importer("GatedRMSNorm", domain=DOMAIN)
def _gated_rms_normalization(
    g: GraphBuilder, x: Value, scale: Value, gate: Value, *, activation: str = "silu", epsilon: float = 1e-6
) -> Value:
    """Of every part of a row that is as long as the scale."""
    _check_choice("activation", activation, "silu", "swish", "sigmoid")
    check_ranks(1, scale=scale)
    (size,) = scale.shape
    if size == 0:
        raise ModelError(f"a scale {scale.type} of no elements")
    parts = (*x.shape[:-1], dims.floordiv(x.shape[-1], size), size)
    wide = g.op("reshape", g.op("cast", x, dtype=DType.float32), shape=parts)
    normal = networks.rms_normalization(g, wide, g.op("cast", scale, dtype=DType.float32), epsilon=epsilon)
    opened = g.op("reshape", g.op("cast", gate, dtype=DType.float32), shape=parts)
    gated = g.op("sigmoid", opened)
    gated = gated if activation == "sigmoid" else g.op("multiply", opened, gated)
    result = g.op("reshape", g.op("multiply", normal, gated), shape=x.shape)
    return g.op("cast", result, dtype=x.dtype)


@importer("GatedAdd", domain=DOMAIN)
def _gated_add(g: GraphBuilder, x: Value, y: Value, gate: Value, gate_weight: Value | None = None) -> Value:
    refuse(gate_weight=(None, gate_weight))
    return g.op("add", x, g.broadcast("multiply", y, gate))
