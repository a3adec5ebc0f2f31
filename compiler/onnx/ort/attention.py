"""Importers of onnxruntime's own operators of attention: with heads that share keys, caches of keys and values, rotary places.

They become products and softmax, of which `passes/recognise_attention.py` makes attention again. Letters in shapes: batch B, N
heads of queries and K of keys, S new tokens, P earlier ones in the cache, T keys in all, H elements of a head.
"""

from __future__ import annotations

import numpy as np

from ....formats import dims
from ....formats.dims import Dim
from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import never_equal
from ..operators import networks
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value, constant
from .floats import DOMAIN, check_ranks, times

FILTER = -10000.0  # what is added to scores of keys that a mask hides


def refuse(**attributes: tuple[object, object]) -> None:
    """Raises UnsupportedError for an attribute or input that is not what it must be."""
    for name, (expected, got) in attributes.items():
        if got != expected:
            here = "a tensor" if isinstance(got, Value) else repr(got)
            wanted = "be left out" if expected is None else f"be {expected!r}"
            raise UnsupportedError(f"{name} must {wanted}, got {here}: export the model without it")


# ---- attention ----


def _attention(
    g: GraphBuilder,
    q: Value,
    k: Value,
    v: Value,
    *,
    scale: float,
    bias: Value | None = None,
    visible: Value | None = None,
    softcap: float = 0.0,
    sink: Value | None = None,
) -> Value:
    """[B, S, N·H] of queries [B, N, S, H], and keys and values [B, K, T, H]. A bias is added to scores; those that are not
    `visible` count as -∞; `sink`, [N], is one more score of each query, of a key without a value. A scale of 0: 1 / √H."""
    depth, dtype = q.shape[-1], q.dtype
    if not isinstance(depth, int) or depth < 1:
        raise UnsupportedError(f"queries whose heads have no known number of elements: {q.type}")
    q, k, v = (g.op("cast", each, dtype=DType.float32) for each in (q, k, v))
    k, v = (_repeated(g, each, q.shape[1]) for each in (k, v))
    scores = networks.product(g, q, g.op("permute_dims", k, axes=(0, 1, 3, 2)))
    scores = times(g, scores, scale or depth**-0.5)
    if softcap:
        scores = times(g, g.op("tanh", times(g, scores, 1 / softcap)), softcap)
    if bias is not None:
        scores = g.broadcast("add", scores, g.op("cast", bias, dtype=DType.float32))
    if visible is not None:
        scores = g.broadcast("where", visible, scores, g.constant(-float("inf"), DType.float32))
    result = networks.product(g, _weights(g, scores, sink), v)
    batch, heads, length, width = result.shape
    result = g.op("reshape", g.op("permute_dims", result, axes=(0, 2, 1, 3)), shape=(batch, length, heads * width))
    return g.op("cast", result, dtype=dtype)


def _repeated(g: GraphBuilder, x: Value, heads: Dim) -> Value:
    """Each of the heads as often as there are heads of queries for it."""
    batch, own, length, width = x.shape
    if own == heads:
        return x
    times = dims.floordiv(heads, own)
    spread = g.op("broadcast_to", g.op("expand_dims", x, axes=(2,)), shape=(batch, own, times, length, width))
    return g.op("reshape", spread, shape=(batch, heads, length, width))


def _weights(g: GraphBuilder, scores: Value, sink: Value | None) -> Value:
    if sink is None:
        return g.op("softmax", scores, axis=-1)
    *outer, keys = scores.shape
    column = g.op("reshape", g.op("cast", sink, dtype=DType.float32), shape=(1, scores.shape[1], 1, 1))
    column = g.op("broadcast_to", column, shape=(*outer, 1))
    weights = g.op("softmax", g.op("concat", scores, column, axis=-1), axis=-1)
    return g.op("slice", weights, starts=(0,), ends=(keys,), axes=(3,))


def _heads(g: GraphBuilder, x: Value, count: int) -> Value:
    """[B, S, N·H] as [B, S, N, H]."""
    batch, length, width = x.shape
    if count < 1 or (isinstance(width, int) and width % count):
        raise ModelError(f"{x.type} cannot be parted into {count} heads")
    return g.op("reshape", x, shape=(batch, length, count, dims.floordiv(width, count)))


def with_heads(g: GraphBuilder, x: Value, own: int, heads: int) -> Value:
    """[B, S, K·H] as [B, S, N·H], each head as often as there are heads of queries for it."""
    repeated = _by_head(g, _repeated(g, _by_head(g, _heads(g, x, own)), heads))
    return g.op("reshape", repeated, shape=(*x.shape[:2], dims.multiply(repeated.shape[3], heads)))


def _by_head(g: GraphBuilder, x: Value) -> Value:
    """[B, S, N, H] as [B, N, S, H], or the other way round."""
    return g.op("permute_dims", x, axes=(0, 2, 1, 3))


def _parted(g: GraphBuilder, x: Value, *sizes: Dim) -> tuple[Value, ...]:
    """x cut into these sizes along its last axis."""
    return g.ops("split", x, axis=x.rank - 1, sizes=sizes)


def _after(g: GraphBuilder, past: Value | None, new: Value) -> Value:
    """Keys or values of earlier tokens, and new ones after them."""
    if past is None:
        return new
    return g.op("concat", _suiting(g, past, new, past.shape[2]), new, axis=2)


def _suiting(g: GraphBuilder, past: Value, new: Value, length: Dim) -> Value:
    return g.checked(past, (*new.shape[:2], length, new.shape[3]))


def _up_to_now(g: GraphBuilder, first: Dim | Value, queries: Dim, keys: Dim, window: int = -1) -> Value:
    """Which keys [B or 1, 1, S, T] queries see: those up to their own place, and no more than `window`. `first`: the place of the
    first query, or, of dtype int32, of each sequence's."""
    if isinstance(first, Value):
        rows = g.op("add", g.op("reshape", first, shape=(*first.shape, 1, 1)), _places(g, queries))
    else:
        rows = g.op("arange", start=first, stop=dims.add(first, queries), dtype=DType.int32)
        rows = g.op("reshape", rows, shape=(1, 1, queries))
    rows = g.op("expand_dims", rows, axes=(3,))
    visible = g.op("less_equal", _places(g, keys), rows)
    if window < 0:
        return visible
    nearest = g.op("greater", _places(g, keys), g.op("subtract", rows, g.constant(window, DType.int32)))
    return g.op("logical_and", visible, nearest)


def _places(g: GraphBuilder, count: Dim) -> Value:
    return g.op("arange", stop=count, dtype=DType.int32)


def _mask(g: GraphBuilder, mask: Value, batch: Dim, keys: Dim, filter_value: float) -> Value:
    """The addend of scores [B, N, S, T]: `filter_value` at hidden keys. A mask is an int32 for each key, [B, T] or [B, S, T];
    or, for each sequence, the end of its keys, [B], then perhaps the beginnings, [2 B]; of [3 B + 2], the rest repeats it."""
    if mask.rank in (2, 3):
        visible = g.op("greater", mask, g.constant(0, mask.dtype))
        visible = g.op("expand_dims", visible, axes=(1, 2) if mask.rank == 2 else (1,))
    elif mask.rank == 1:
        with_begins = mask.shape[0] == dims.multiply(batch, 2)
        is_longer = with_begins or mask.shape[0] == dims.add(dims.multiply(batch, 3), 2)
        ends = g.op("slice", mask, starts=(0,), ends=(batch,), axes=(0,)) if is_longer else mask
        visible = g.op("less", _places(g, keys), g.op("reshape", ends, shape=(*ends.shape, 1, 1, 1)))
        if with_begins:
            begins = g.op("slice", mask, starts=(batch,), ends=mask.shape, axes=(0,))
            begun = g.op("greater_equal", _places(g, keys), g.op("reshape", begins, shape=(*begins.shape, 1, 1, 1)))
            visible = g.broadcast("logical_and", visible, begun)
    else:
        raise UnsupportedError(
            f"a mask of {mask.rank} axes, {mask.type}; onnxruntime's CPU kernels have those of 1 to 3"
        )
    return g.op("where", visible, g.constant(0, DType.float32), g.constant(filter_value, DType.float32))


def _biased(g: GraphBuilder, mask: Value | None, bias: Value | None) -> Value | None:
    return mask if bias is None else bias if mask is None else g.broadcast("add", bias, mask)


@importer("MultiHeadAttention", domain=DOMAIN)
def _multi_head_attention(
    g: GraphBuilder,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    past_sequence_length: Value | None = None,
    cache_indirection: Value | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Value, ...]:
    """Keys and values may come as [B, N, T, H], which are those of another sequence then."""
    refuse(past_sequence_length=(None, past_sequence_length), cache_indirection=(None, cache_indirection))
    if key is None or value is None:
        raise UnsupportedError(
            f"queries, keys and values in one tensor, {query.type}, which onnxruntime's CPU kernel refuses"
        )
    check_ranks(3, query=query)
    check_ranks(3, 4, key=key, value=value)
    check_ranks(4, past_key=past_key, past_value=past_value)
    is_ready = key.rank == 4
    if bias is not None:
        check_ranks(1, bias=bias)
        own, others = query.shape[-1], bias.shape[0]
        sizes = (own, own, dims.add(others, dims.multiply(own, -2)))
        biases = _parted(g, bias, *sizes)
        query = g.op("add", query, biases[0])
        if not is_ready:
            key, value = g.op("add", key, biases[1]), g.op("add", value, biases[2])
    q = _by_head(g, _heads(g, query, num_heads))
    k, v = (key, value) if is_ready else (_by_head(g, _heads(g, each, num_heads)) for each in (key, value))
    k, v = _after(g, past_key, k), _after(g, past_value, v)
    length, keys = q.shape[2], k.shape[2]
    earlier: Dim = 0 if past_key is None else past_key.shape[2]
    visible = None
    if unidirectional and length != 1:
        if keys != dims.add(earlier, length):
            raise UnsupportedError(
                f"unidirectional must be 0 where {length} queries meet {keys} keys of another sequence"
            )
        visible = _up_to_now(g, earlier, length, keys)
    mask = None if key_padding_mask is None else _mask(g, key_padding_mask, q.shape[0], keys, mask_filter_value)
    result = _attention(g, q, k, v, scale=scale, bias=_biased(g, mask, attention_bias), visible=visible)
    return result, k, v


@importer("Attention", domain=DOMAIN)
def attention_of_one_product(
    g: GraphBuilder,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    past_sequence_length: Value | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: tuple[int, ...] = (),
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
    unidirectional: int = 0,
    do_rotary: int = 0,
    rotary_embedding_dim: int = 0,
    past_present_share_buffer: int = 0,
) -> tuple[Value, ...]:
    """Queries, keys and values are one product of x; `past`, and the second result, are [2, B, N, tokens, H]."""
    refuse(
        past_sequence_length=(None, past_sequence_length),
        do_rotary=(0, do_rotary),
        past_present_share_buffer=(0, past_present_share_buffer),
    )
    check_ranks(3, input=x)
    check_ranks(2, weights=weights)
    check_ranks(5, past=past)
    product = networks.product(g, x, weights)
    product = product if bias is None else g.broadcast("add", product, bias)
    sizes = qkv_hidden_sizes or (dims.floordiv(weights.shape[-1], 3),) * 3
    q, k, v = (_by_head(g, _heads(g, part, num_heads)) for part in _parted(g, product, *sizes))
    earlier: Dim = 0
    if past is not None:
        earlier = past.shape[3]
        k, v = (_after(g, g.op("take", past, g.constant(i), axis=0), each) for i, each in enumerate((k, v)))
    length, keys = q.shape[2], k.shape[2]
    visible = _up_to_now(g, earlier, length, keys) if unidirectional and length != 1 else None
    mask = None if mask_index is None else _mask(g, mask_index, q.shape[0], keys, mask_filter_value)
    result = _attention(g, q, k, v, scale=scale, bias=_biased(g, mask, attention_bias), visible=visible)
    if g.output_count == 1:
        return (result,)
    return result, g.op("concat", *(g.op("expand_dims", each, axes=(0,)) for each in (k, v)), axis=0)


# ---- rotary places ----


def _rotary(g: GraphBuilder, x: Value, places: Value, cosines: Value, sines: Value, *, interleaved: int) -> Value:
    """x [B, S, N, H], whose first elements are turned by the angles of each token's place, [B, S]: neighbours if they are
    interleaved, else those of two halves. The tables are [places, half]."""
    return _turned(g, x, *(g.op("take", table, places, axis=0) for table in (cosines, sines)), interleaved=interleaved)


def _turned(g: GraphBuilder, x: Value, cosines: Value, sines: Value, *, interleaved: int) -> Value:
    """The same by the angles of each token, [B, S, half]."""
    half, depth = cosines.shape[-1], x.shape[-1]
    if not isinstance(half, int) or not isinstance(depth, int) or 2 * half > depth:
        raise ModelError(f"a table of angles {cosines.type} does not suit {x.type}")
    angles = (g.op("expand_dims", each, axes=(2,)) for each in (cosines, sines))
    angles = (g.op("concat", each, each, axis=3) for each in angles)
    turned, *rest = _parted(g, x, 2 * half, depth - 2 * half) if depth > 2 * half else (x,)
    turned = _exchanged(g, turned, half, 2) if interleaved else turned
    turned = g.op("rotary", *g.aligned([turned, *angles], slice(0, 2)))
    turned = _exchanged(g, turned, 2, half) if interleaved else turned
    return g.op("concat", turned, *rest, axis=3) if rest else turned


def _exchanged(g: GraphBuilder, x: Value, outer: int, inner: int) -> Value:
    """Rows seen as matrices of that size, transposed."""
    matrices = g.op("reshape", x, shape=(*x.shape[:3], outer, inner))
    return g.op("reshape", g.op("permute_dims", matrices, axes=(0, 1, 2, 4, 3)), shape=x.shape)


@importer("RotaryEmbedding", domain=DOMAIN)
def _rotary_embedding(
    g: GraphBuilder,
    x: Value,
    position_ids: Value,
    cosines: Value,
    sines: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,  # the tables say it, too
    scale: float = 1.0,  # of the tables where they are made; kernels do not look at it
) -> Value:
    """x is [B, S, N·H] or [B, N, S, H]; a single place is that of the first token."""
    refuse(is_packed_batching=(0, is_packed_batching))
    check_ranks(3, 4, input=x)
    check_ranks(1, 2, position_ids=position_ids)
    check_ranks(2, cos_cache=cosines, sin_cache=sines)
    heads = _rotary_heads(g, x, cosines, num_heads)
    places = position_ids
    if places.rank == 1:
        offsets = g.op("arange", stop=heads.shape[1], dtype=places.dtype)
        places = g.op("broadcast_to", g.op("add", places, offsets), shape=heads.shape[:2])
    turned = _rotary(g, heads, places, cosines, sines, interleaved=interleaved)
    return _by_head(g, turned) if x.rank == 4 else g.op("reshape", turned, shape=x.shape)


def _rotary_heads(g: GraphBuilder, x: Value, cosines: Value, count: int) -> Value:
    """[B, S, N, H] of [B, S, N·H], or of [B, N, S, H]."""
    if x.rank == 4:
        return _by_head(g, x)
    width, half = x.shape[-1], cosines.shape[1]
    return _heads(
        g, x, count or (width // (2 * half) if isinstance(width, int) and isinstance(half, int) and half else 0)
    )


@importer("MRotaryEmbedding", domain=DOMAIN)
def _rotary_embedding_of_three(
    g: GraphBuilder,
    x: Value,
    position_ids: Value,
    cosines: Value,
    sines: Value,
    *,
    mrope_section: tuple[int, ...],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """The places of a token are three, [3, B, S]: in time, height and width, which are one in a text. Each turns its section of
    the angles: one section after another, or every third angle as far as the section goes (layout 1)."""
    refuse(is_packed_batching=(0, is_packed_batching))
    check_ranks(3, 4, input=x)
    check_ranks(3, position_ids=position_ids)
    check_ranks(2, cos_cache=cosines, sin_cache=sines)
    if never_equal(position_ids.shape[0], 3) or mrope_layout not in (0, 1):
        raise ModelError(
            f"expected position_ids [3, batch, length] and mrope_layout 0 or 1, got {position_ids.type} and {mrope_layout}"
        )
    if len(mrope_section) != 3 or min(mrope_section) < 0 or sum(mrope_section) != cosines.shape[1]:
        raise ModelError(f"mrope_section {list(mrope_section)} does not part a table of angles {cosines.type}")
    stream = np.repeat(np.arange(3), mrope_section)
    if mrope_layout:
        stream = np.zeros(sum(mrope_section), np.int64)
        for number in (1, 2):
            stream[number : 3 * mrope_section[number] : 3] = number
    places = [g.op("take", position_ids, g.constant(number), axis=0) for number in range(3)]

    def angles(table: Value) -> Value:
        first, *others = (g.op("take", table, each, axis=0) for each in places)
        for number, each in enumerate(others, 1):
            first = g.broadcast("where", constant(stream == number), each, first)
        return first

    turned = _turned(
        g, _rotary_heads(g, x, cosines, num_heads), angles(cosines), angles(sines), interleaved=interleaved
    )
    return _by_head(g, turned) if x.rank == 4 else g.op("reshape", turned, shape=x.shape)


# ---- groups of heads that share keys and values, and a cache of these ----


@importer("GroupQueryAttention", domain=DOMAIN)
def _group_query_attention(
    g: GraphBuilder,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm_weight: Value | None = None,
    k_norm_weight: Value | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    causal: int = 1,
    local_window_size: int = -1,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    smooth_softmax: int = 0,
    qk_output: int = 0,
    qk_norm_epsilon: float = 1e-6,  # says nothing without weights of norms
    sliding_window_cache: int = 0,
    kv_cache_bit_width: int = 0,
    k_quant_type: str = "NONE",
    v_quant_type: str = "NONE",
) -> tuple[Value, ...]:
    """seqlens_k, [B] or [B, 1], says of each sequence how many tokens it has with its new ones, less one. Caches of a window
    (`sliding_window_cache`) are taken as others are, with all tokens: a longer cache than the window says the same. Caches of
    8 bits hold int8, which are multiplied by `k_scale` and `v_scale`; new rows are rounded so before they are read, too."""
    bits = None if k_quant_type == v_quant_type == "NONE" else 8
    refuse(
        q_norm_weight=(None, q_norm_weight),
        k_norm_weight=(None, k_norm_weight),
        qk_output=(0, qk_output),
        **({} if bits else {"k_scale": (None, k_scale), "v_scale": (None, v_scale)}),
        kv_cache_bit_width=(bits or 0, kv_cache_bit_width),
    )
    check_ranks(3, query=query, key=key, value=value)
    check_ranks(4, past_key=past_key, past_value=past_value)
    check_ranks(2, cos_cache=cos_cache, sin_cache=sin_cache)
    if min(num_heads, kv_num_heads) < 1 or num_heads % kv_num_heads:
        raise ModelError(f"{num_heads} heads of queries cannot share {kv_num_heads} heads of keys")
    if key is None or value is None:
        depth = dims.floordiv(query.shape[-1], num_heads + 2 * kv_num_heads)
        sizes = (dims.multiply(depth, count) for count in (num_heads, kv_num_heads, kv_num_heads))
        query, key, value = _parted(g, query, *sizes)
    q, k, v = (_heads(g, x, n) for x, n in ((query, num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    batch, length, *_ = q.shape
    # of a first prompt that is padded, the shorter sequences begin at 0, too
    first = g.op("reshape", seqlens_k, shape=(batch,))
    first = g.op("add", first, g.from_dims(dims.add(1, dims.multiply(length, -1)), DType.int32))
    first = g.op("maximum", first, g.constant(0, DType.int32))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ModelError("do_rotary needs cos_cache and sin_cache")
        places = position_ids or g.op("add", g.op("reshape", first, shape=(*first.shape, 1)), _places(g, length))
        q, k = (_rotary(g, x, places, cos_cache, sin_cache, interleaved=rotary_interleaved) for x in (q, k))
    q, k, v = (_by_head(g, x) for x in (q, k, v))
    if bits:
        k_facts = _quantization(g, "k", k_quant_type, k_scale, k)
        v_facts = _quantization(g, "v", v_quant_type, v_scale, v)
        k, v = (g.op("cast", x, dtype=DType.float32) for x in (k, v))
        k, v = g.broadcast("quantize", k, *k_facts), g.broadcast("quantize", v, *v_facts)
    if past_key is not None and past_value is not None:
        k, v = _cached(g, past_key, past_value, k, v, first, total_sequence_length)
    keys, stored = k.shape[2], (k, v)
    if bits:
        k, v = g.broadcast("dequantize", k, *k_facts), g.broadcast("dequantize", v, *v_facts)
    visible = None
    if causal and not (past_key is None and length == 1):
        visible = _up_to_now(g, first, length, keys, local_window_size)
    if head_sink is None and smooth_softmax == 1:
        head_sink = g.constant([0.0] * num_heads, DType.float32)
    result = _attention(g, q, k, v, scale=scale, bias=attention_bias, visible=visible, softcap=softcap, sink=head_sink)
    return result, *stored


def _quantization(g: GraphBuilder, name: str, kind: str, scale: Value | None, rows: Value) -> tuple[Value, Value]:
    """Scale and zero point of a cache of int8 that holds such rows, [batch, heads, length, depth]."""
    shapes = {"PER_TENSOR": (1, 1, 1, 1), "PER_CHANNEL": (1, rows.shape[1], 1, rows.shape[3])}
    if kind not in shapes:
        raise UnsupportedError(f"{name}_quant_type must be one of {', '.join(shapes)}, got {kind!r}")
    if scale is None:
        raise ModelError(f"{name}_quant_type={kind!r} needs {name}_scale")
    return g.op("reshape", scale, shape=shapes[kind]), g.constant(0, DType.int8)


def _cached(
    g: GraphBuilder, past_key: Value, past_value: Value, key: Value, value: Value, first: Value, total: Value
) -> tuple[Value, ...]:
    """The caches with new rows, each sequence's after its earlier ones. Where all of them fill the given cache, the new rows
    are joined to it; else they are put into it, where it may have more room than is used. A total known only at run time is
    taken to be that of all its tokens, as if there were no such room."""
    (batch, _, length, _), earlier = key.shape, past_key.shape[2]
    joined = dims.add(earlier, length)
    known = total.elements
    size = joined if known is None else dims.maximum(earlier, known.flat[0])
    pairs = [(_suiting(g, past, new, earlier), new) for past, new in ((past_key, key), (past_value, value))]

    def join() -> list[Value]:
        made = [_after(g, past, new) for past, new in pairs]
        return [g.checked(each, (*each.shape[:2], size, each.shape[3])) for each in made]

    def put() -> list[Value]:
        rows = g.op("add", g.op("reshape", first, shape=(*first.shape, 1, 1, 1)), _column(g, length))
        room = dims.add(size, dims.multiply(earlier, -1))
        made = []
        for past, new in pairs:
            whole = g.op("pad", past, pads=(0, 0, 0, 0, 0, 0, room, 0))
            indices = g.op("broadcast_to", rows, shape=new.shape)
            made.append(g.op("put_along_axis", whole, indices, new, axis=2))
        return made

    if batch == 1 and size == joined:
        return tuple(join())
    if never_equal(size, joined):
        return tuple(put())
    fits = g.op("equal", first, g.from_dims(earlier, DType.int32))
    return g.choose(g.op("all", fits), join, put)


def _column(g: GraphBuilder, count: Dim) -> Value:
    return g.op("reshape", _places(g, count), shape=(count, 1))
