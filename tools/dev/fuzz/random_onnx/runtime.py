"""Steps of random graphs: onnxruntime's own operators, which onnxruntime alone judges."""

from __future__ import annotations

import numpy as np

from .walk import Value, Walk, Ways, step

RUNTIME = "com.microsoft"


def _floats(w: Walk, *shape: int, constant: bool | None = None) -> Value:
    return w.put(w.rng.normal(size=shape).astype(np.float32), constant)


def _bytes(w: Walk, *shape: int, dtype: str = "uint8") -> Value:
    bounds = np.iinfo(dtype)
    return w.put(w.rng.integers(bounds.min, bounds.max + 1, shape).astype(dtype))


def _scale(w: Walk, value: float = 0.25) -> Value:
    return w.put(np.asarray(value, np.float32), constant=True)


def _zero(w: Walk, dtype: str = "uint8") -> Value:
    return w.put(np.asarray(7, dtype), constant=True)


@step("Gelu", "FastGelu", "QuickGelu", "BiasGelu", domain=RUNTIME)
def _gelu(w: Walk, op: str) -> None:
    x = _floats(w, *w.shape((2, 3)))
    bias = [_floats(w, x.shape[-1])] if op == "BiasGelu" or (op == "FastGelu" and w.chance(0.5)) else []
    w.add(op, [x, *bias], domain=RUNTIME, alpha=0.75 if op == "QuickGelu" and w.chance(0.5) else None)


@step("SimplifiedLayerNormalization")
def _simplified(w: Walk, op: str) -> None:
    x = _floats(w, 2, 3, w.one(4, 17))
    w.add(op, [x, _floats(w, x.shape[-1])], known=False, axis=-1, epsilon=0.25, stash_type=1)


@step("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=RUNTIME)
def _skip(w: Walk, op: str) -> None:
    x, width = (2, 3, 8), 8
    operands: list[Value | None] = [_floats(w, *x), _floats(w, *x), _floats(w, width)]
    if op == "SkipLayerNormalization":
        operands.append(_floats(w, width) if w.chance(0.5) else None)
    operands.append(_floats(w, width) if w.chance(0.5) else None)
    w.add(op, operands, (True, False, False, True) if w.chance(0.5) else 1, domain=RUNTIME, epsilon=0.25)


@step("EmbedLayerNormalization", domain=RUNTIME)
def _embed(w: Walk, op: str) -> None:
    words, segments = (w.put(w.array("int32", (2, 3), 0, most)) for most in (9, 1))
    tables = [_floats(w, rows, 8) for rows in (10, 5, 2)]
    w.add(op, [words, segments, *tables, _floats(w, 8), _floats(w, 8)], (True, False), domain=RUNTIME, epsilon=0.25)


@step("FusedConv", domain=RUNTIME)
def _fused_conv(w: Walk, op: str) -> None:
    bias = _floats(w, 4) if w.chance(0.5) else None
    kernel = _floats(w, 4, 2, 3, 3, constant=True)
    activation = w.one("Relu", "Tanh", "Sigmoid")
    w.add(op, [_floats(w, 1, 2, 5, 6), kernel, bias], domain=RUNTIME, activation=activation, pads=[1, 1, 0, 1])


@step("FusedGemm", domain=RUNTIME)
def _fused_gemm(w: Walk, op: str) -> None:
    turned = w.one(0, 1)
    b = _floats(w, *((5, 4) if turned else (4, 5)))
    ways: Ways = {"transB": turned, "alpha": w.one(None, 0.5), "activation": w.one("Relu", "Tanh")}
    w.add(op, [_floats(w, 3, 4), b, _floats(w, 5)], domain=RUNTIME, **ways)


@step("FusedMatMul", "TransposeMatMul", domain=RUNTIME)
def _fused_matmul(w: Walk, op: str) -> None:
    first, second = w.one(0, 1), w.one(0, 1)
    a = _floats(w, 2, *((4, 3) if first else (3, 4)))
    b = _floats(w, 2, *((5, 4) if second else (4, 5)))
    w.add(op, [a, b], domain=RUNTIME, alpha=0.5, transA=first, transB=second)


@step("QuantizeLinear", "DequantizeLinear", domain=RUNTIME)
def _quantize(w: Walk, op: str) -> None:
    kind = w.one("uint8", "int8")
    x = w.tensor("float32", rank=2, exact=True) if op == "QuantizeLinear" else _bytes(w, 3, 4, dtype=kind)
    w.add(op, [x, _scale(w), _zero(w, kind)], domain=RUNTIME)


@step("QLinearAdd", "QLinearMul", domain=RUNTIME)
def _qlinear_binary(w: Walk, op: str) -> None:
    kind = w.one("uint8", "int8")
    a, b = _bytes(w, 3, 4, dtype=kind), _bytes(w, *w.one((3, 4), (4,), (1,)), dtype=kind)
    triples = [a, _scale(w), _zero(w, kind), b, _scale(w), _zero(w, kind)]
    w.add(op, [*triples, _scale(w, 8), _zero(w, kind)], domain=RUNTIME, slack=1)


@step("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=RUNTIME)
def _qlinear_unary(w: Walk, op: str) -> None:
    x = _bytes(w, 3, 4)
    ways: Ways = {"axis": -1, "opset": 13} if op == "QLinearSoftmax" else {}
    scale = 0.00390625 if op != "QLinearLeakyRelu" else 0.25
    w.add(op, [x, _scale(w, 0.03125), _zero(w), _scale(w, scale), _zero(w)], domain=RUNTIME, slack=1, **ways)


@step("QLinearAveragePool", "QLinearGlobalAveragePool", domain=RUNTIME)
def _qlinear_pool(w: Walk, op: str) -> None:
    ways: Ways = {"kernel_shape": [2, 2], "strides": [1, 2]} if op == "QLinearAveragePool" else {"channels_last": 0}
    w.add(op, [_bytes(w, 1, 3, 4, 5), _scale(w), _zero(w), _scale(w), _zero(w)], domain=RUNTIME, slack=1, **ways)


@step("QLinearConv", "NhwcMaxPool", domain=RUNTIME)
def _channels_last(w: Walk, op: str) -> None:
    x = _bytes(w, 1, 5, 6, 3)
    window: Ways = {"pads": [1, 0, 1, 1], "strides": [1, 2]}
    if op == "NhwcMaxPool":
        w.add(op, [x], domain=RUNTIME, kernel_shape=[3, 2], **window)
        return
    # two products with a byte fit into the 16 bits in which onnxruntime adds them on some CPUs
    weights = w.put(w.rng.integers(-64, 65, (4, 3, 3, 2)).astype(np.int8), constant=True)
    bias = w.put(w.array("int32", (4,), -99, 99), constant=True) if w.chance(0.5) else None
    triples = [x, _scale(w), _zero(w), weights, _scale(w), _zero(w, "int8"), _scale(w, 64), _zero(w)]
    w.add(op, [*triples, bias], domain=RUNTIME, slack=1, channels_last=1, **window)


@step("QLinearWhere", domain=RUNTIME)
def _qlinear_where(w: Walk, op: str) -> None:
    condition = w.put(w.rng.integers(0, 2, w.one((3, 4), (3, 1), (4,))).astype(bool))
    triples = [_bytes(w, 3, 4), _scale(w), _zero(w), _bytes(w, 4), _scale(w, 0.5), _zero(w)]
    w.add(op, [condition, *triples, _scale(w, 0.5), _zero(w)], domain=RUNTIME, slack=1)


@step("QLinearConcat", domain=RUNTIME)
def _qlinear_concat(w: Walk, op: str) -> None:
    triples = [_bytes(w, 2, 3), _scale(w), _zero(w), _bytes(w, 2, 4), _scale(w, 0.5), _zero(w)]
    w.add(op, [_scale(w, 0.5), _zero(w), *triples], domain=RUNTIME, slack=1, axis=1)


@step("QGemm", domain=RUNTIME)
def _qgemm(w: Walk, op: str) -> None:
    a, b = _bytes(w, 3, 4), _bytes(w, 4, 5)
    operands = [a, _scale(w), _zero(w), b, _scale(w), _zero(w), w.put(w.array("int32", (5,), -99, 99))]
    w.add(op, [*operands, _scale(w, 16), _zero(w)], domain=RUNTIME, slack=1, alpha=1.0)


@step("MatMulNBits", domain=RUNTIME)
def _matmul_n_bits(w: Walk, op: str) -> None:
    columns, depth, block = w.one(3, 8), 32, 16
    b = w.put(w.rng.integers(0, 256, (columns, depth // block, block // 2)).astype(np.uint8), constant=True)
    scales = _floats(w, columns * (depth // block), constant=True)
    ways: Ways = {"K": depth, "N": columns, "bits": 4, "block_size": block}
    w.add(op, [_floats(w, 2, depth), b, scales], domain=RUNTIME, **ways)


@step("GatherBlockQuantized", domain=RUNTIME)
def _gather_blocks(w: Walk, op: str) -> None:
    data = w.put(w.rng.integers(0, 256, (6, 16)).astype(np.uint8), constant=True)
    scales = _floats(w, 6, 2, constant=True)
    indices = w.put(w.array("int64", (2, 3), 0, 5))
    ways: Ways = {"block_size": 16, "bits": 4, "quantize_axis": 1, "gather_axis": 0}
    w.add(op, [data, indices, scales], domain=RUNTIME, **ways)


@step("RotaryEmbedding", domain=RUNTIME)
def _rotary(w: Walk, op: str) -> None:
    places = w.put(w.array("int64", (2, 3), 0, 9))
    tables = [_floats(w, 10, 4, constant=True) for _ in range(2)]
    w.add(op, [_floats(w, 2, 2, 3, 8), places, *tables], domain=RUNTIME, interleaved=w.one(0, 1))


@step("MultiHeadAttention", domain=RUNTIME)
def _multi_head(w: Walk, op: str) -> None:
    keys = w.one(3, 5)
    operands = [_floats(w, 2, 3, 16), _floats(w, 2, keys, 16), _floats(w, 2, keys, 16)]
    w.add(op, operands, domain=RUNTIME, num_heads=2, scale=w.one(None, 0.25))


@step("Attention", domain=RUNTIME)
def _attention(w: Walk, op: str) -> None:
    operands = [_floats(w, 2, 3, 12), _floats(w, 12, 48, constant=True), _floats(w, 48, constant=True)]
    w.add(op, operands, domain=RUNTIME, num_heads=2, unidirectional=w.one(0, 1))


@step("GroupQueryAttention", domain=RUNTIME)
def _group_query(w: Walk, op: str) -> None:
    length = w.one(1, 3)
    operands = [_floats(w, 1, length, 32), _floats(w, 1, length, 16), _floats(w, 1, length, 16)]
    past = [_floats(w, 1, 2, 2, 8), _floats(w, 1, 2, 2, 8)] if length == 1 else [None, None]
    total = length + (2 if length == 1 else 0)
    lengths = [w.put(np.array([total - 1], np.int32)), w.put(np.asarray(total, np.int32), constant=True)]
    w.add(op, [*operands, *past, *lengths], 3, domain=RUNTIME, num_heads=4, kv_num_heads=2)


@step("MatMulBnb4", domain=RUNTIME)
def _matmul_bnb4(w: Walk, op: str) -> None:
    columns, depth, block = w.one(3, 8), 32, w.one(16, 64)
    b = w.put(w.rng.integers(0, 256, columns * depth // 2).astype(np.uint8), constant=True)
    absmax = w.put(w.rng.uniform(0.5, 2, -(-columns * depth // block)).astype(np.float32), constant=True)
    ways: Ways = {"K": depth, "N": columns, "quant_type": w.one(0, 1), "block_size": block}
    w.add(op, [_floats(w, 2, depth), b, absmax], domain=RUNTIME, **ways)


@step("MoE", domain=RUNTIME)
def _experts(w: Walk, op: str) -> None:
    experts, features, inner, rows = 3, 8, 4, w.one(1, 5)
    first, second = _floats(w, experts, inner, features), _floats(w, experts, features, inner)
    biases = [_floats(w, experts, inner), _floats(w, experts, features)] if w.chance(0.5) else [None, None]
    ways: Ways = {"k": w.one(1, 2), "activation_type": w.one("relu", "silu", "gelu")}
    operands = [_floats(w, rows, features), _floats(w, rows, experts), first, biases[0], second, biases[1]]
    w.add(op, operands, domain=RUNTIME, normalize_routing_weights=w.one(0, 1), **ways)


@step("Trilu", "Unique", "ExpandDims", "Pad", domain=RUNTIME)
def _taken_over(w: Walk, op: str) -> None:
    """What ONNX has under the same name, or nearly so."""
    if op == "Unique":
        w.add(op, [w.put(w.array("float32", (w.one(0, 1, 7),), -2, 2))], 3, domain=RUNTIME)
        return
    x = _floats(w, 3, 4)
    if op == "Pad":
        pads = w.put(w.array("int64", (4,), 0, 2), constant=True)
        w.add(op, [x, pads], domain=RUNTIME, mode=w.one("constant", "reflect", "edge"))
        return
    number = w.one(-2, -1, 0, 1)
    constant = w.put(np.asarray(number, np.int64 if op == "Trilu" else np.int32), constant=True)
    w.add(op, [x, constant], domain=RUNTIME, upper=w.one(0, 1) if op == "Trilu" else None)


@step("CDist", domain=RUNTIME)
def _distances(w: Walk, op: str) -> None:
    w.add(op, [_floats(w, 3, 6), _floats(w, 5, 6)], domain=RUNTIME, metric=w.one("euclidean", "sqeuclidean"))
