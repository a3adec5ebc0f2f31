"""Steps of random graphs: quantised tensors. Scales are powers of two: only what is rounded twice may differ, by a unit."""

from __future__ import annotations

import numpy as np

from .walk import Value, Walk, step

BYTES = ("uint8", "int8")


def _scale(w: Walk, count: int | None = None) -> Value:
    if count is None:
        return w.put(np.asarray(w.one(0.125, 0.25, 0.5), np.float32), constant=w.chance(0.8))
    return w.put(w.rng.choice([0.125, 0.25, 0.5], count).astype(np.float32), constant=w.chance(0.8))


def _zero(w: Walk, dtype: str, count: int | None = None) -> Value:
    return w.put(w.array(dtype, () if count is None else (count,), 0, 9), constant=w.chance(0.8))


def _bytes(w: Walk, dtype: str, shape: tuple[int, ...]) -> Value:
    bounds = np.iinfo(dtype)
    if not w.chance(w.fresh):
        return w.tensor(dtype, shape)
    return w.put(w.rng.integers(bounds.min, bounds.max + 1, shape).astype(dtype))


@step("QuantizeLinear")
def _quantize(w: Walk, op: str) -> None:
    x = w.tensor("float32", rank=(0, 1, 2, 3), exact=True)
    kind = w.random.choice(BYTES)
    if x.rank and w.chance(0.4):
        axis = w.axis(x.rank)
        count = x.shape[axis]
        w.add(op, [x, _scale(w, count), _zero(w, kind, count)], axis=axis)
    else:
        w.add(op, [x, _scale(w), _zero(w, kind) if w.chance(0.7) else None])


@step("DequantizeLinear")
def _dequantize(w: Walk, op: str) -> None:
    x = w.tensor((*BYTES, "int32"), rank=(0, 1, 2, 3))
    axis = w.axis(x.rank) if x.rank and w.chance(0.4) else None
    count = None if axis is None else x.shape[axis]
    zero = _zero(w, x.dtype, count) if w.chance(0.7) and x.dtype != "int32" else None
    w.add(op, [x, _scale(w, count), zero], exact=True, axis=axis)


@step("DynamicQuantizeLinear")
def _dynamic(w: Walk, op: str) -> None:
    w.add(op, [w.tensor("float32", rank=(1, 2), fits=lambda s: len(s) > 0 and 0 not in s)], 3, slack=1)


@step("MatMulInteger")
def _matmul_integer(w: Walk, op: str) -> None:
    rows, inner, columns = (w.one(1, 2, 3, 5, 17) for _ in range(3))
    lead = w.one((), (), (2,))
    a_kind, b_kind = w.random.choice(BYTES), w.random.choice(BYTES)
    a, b = _bytes(w, a_kind, (*lead, rows, inner)), _bytes(w, b_kind, (inner, columns))
    zeros = [_zero(w, kind) if w.chance(0.5) else None for kind in (a_kind, b_kind)]
    w.add(op, [a, b, *zeros])


@step("ConvInteger")
def _conv_integer(w: Walk, op: str) -> None:
    x, weights = _bytes(w, "uint8", (1, 2, 5, 4)), _bytes(w, w.random.choice(BYTES), (3, 2, 2, 3))
    zeros = [_zero(w, "uint8") if w.chance(0.6) else None, _zero(w, weights.dtype) if w.chance(0.4) else None]
    w.add(op, [x, weights, *zeros], pads=w.one(None, [1, 1, 0, 1]), strides=w.one(None, [2, 1]))


@step("QLinearMatMul")
def _qlinear_matmul(w: Walk, op: str) -> None:
    rows, inner, columns = (w.one(1, 2, 3, 5) for _ in range(3))
    kind = w.random.choice(BYTES)
    a, b = _bytes(w, kind, (rows, inner)), _bytes(w, kind, (inner, columns))
    operands = [a, _scale(w), _zero(w, kind), b, _scale(w), _zero(w, kind)]
    w.add(op, [*operands, w.put(np.float32(4)), _zero(w, kind)], slack=1)


@step("QLinearConv")
def _qlinear_conv(w: Walk, op: str) -> None:
    kind = w.random.choice(BYTES)
    x, weights = _bytes(w, kind, (1, 2, 5, 4)), _bytes(w, kind, (3, 2, 2, 3))
    bias = w.put(w.array("int32", (3,), -99, 99), constant=True) if w.chance(0.5) else None
    operands = [x, _scale(w), _zero(w, kind), weights, _scale(w), w.setting(0, kind)]
    w.add(op, [*operands, w.put(np.float32(16)), _zero(w, kind), bias], slack=1, pads=w.one(None, [1, 1, 0, 1]))
