"""Products and convolutions of 8-bit integers as their kernels take them: unsigned values times signed packed weights.

    Σ (a - z)(w - y) = Σ a·w - z·Σ (w - y) - y·Σ a

Conversions between signed and unsigned shift the zero points, too; zeros are subtracted from weights
if that fits, so that the last term, with a sum of each row of a, is rare.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....formats import dims
from .....formats.dtypes import DType
from .....formats.types import TensorType
from .... import ir
from ....operators.shapes import integer
from ....operators.table import lookup
from ....passes.rewriting import Emitter, constant, tensor_type
from ..operators.blocked import is_for_depthwise
from ..operators.integers import WORD
from ..operators.packing import BLOCK
from .layout_blocker import Blocker

_SIGN = 128  # the offset between signed and unsigned bytes
_EXACT_TERMS = (1 << 24) // (255 * 255)  # products of two 8-bit numbers whose sum a float32 holds exactly


def product(emitter: Emitter, call: ir.OperatorCall) -> ir.Atom:
    """A matmul_integer by a packed matrix, if that is a constant; else by floats."""
    a, b = call.args[:2]
    zeros = (*call.args[2:], None, None)
    is_matrix = isinstance(b, ir.Constant) and b.array.ndim == 2 and 0 not in b.array.shape and tensor_type(a).rank > 1
    weights = signed_weights(b, zeros[1]) if is_matrix else None
    if weights is None:
        return _by_floats(emitter, a, b, *zeros[:2])
    matrix, b_zero = weights
    unsigned, a_zero = as_unsigned(emitter, a, zeros[0])
    panels = constant(lookup("pack_integer_matrix").evaluate([matrix])[0])
    a_words = padded(emitter, unsigned, -len(matrix) % WORD)
    sums: ir.Atom = emitter.emit("matmul_integer_packed", a_words, panels, columns=matrix.shape[1])
    if a_zero is not None:
        columns = matrix.sum(axis=0, dtype=np.int32) - (0 if b_zero is None else len(matrix) * b_zero.value)
        sums = combined(emitter, "subtract", sums, combined(emitter, "multiply", a_zero, constant(columns)))
    if b_zero is not None:
        rows = emitter.emit("sum", emitter.emit("cast", unsigned, dtype=DType.int32), axes=(-1,), keepdims=True)
        sums = combined(emitter, "subtract", sums, combined(emitter, "multiply", rows, b_zero))
    return sums


def signed_weights(weights: ir.Atom, zero: ir.Atom | None) -> tuple[np.ndarray, ir.Constant | None] | None:
    """Constant weights as int8, and their zero points, as int32, if there are some; None if these are not constant."""
    assert isinstance(weights, ir.Constant)
    if not (zero is None or isinstance(zero, ir.Constant)):
        return None
    wide = weights.value.astype(np.int32)
    points = np.zeros((), np.int32) if zero is None else zero.value.astype(np.int32)
    centred = wide - points
    if np.all(centred == centred.astype(np.int8)):
        return centred.astype(np.int8), None
    shift = _SIGN if weights.array.dtype == np.uint8 else 0
    return (wide - shift).astype(np.int8), constant(points - shift)


def as_unsigned(emitter: Emitter, a: ir.Atom, zero: ir.Atom | None) -> tuple[ir.Atom, ir.Atom | None]:
    """Values as uint8, and their zero point, as int32, if there is one."""
    is_there = zero is not None and not (isinstance(zero, ir.Constant) and not zero.value.any())
    point = as_int32(emitter, zero) if zero is not None and is_there else None
    if tensor_type(a).dtype is DType.uint8:
        return a, point
    bits = emitter.emit("cast", a, dtype=DType.uint8)
    shifted = emitter.emit("bitwise_xor", bits, constant(np.asarray(_SIGN, np.uint8)))
    shift = constant(np.asarray(_SIGN, np.int32))
    return shifted, shift if point is None else combined(emitter, "add", point, shift)


# ---- convolutions ----


def convolution_sums(call: ir.OperatorCall) -> DType | None:
    """The type of the sums of a conv_integer in a kernel for channel-blocked images; None if there is no such kernel.

    Sums of few products, of separate channels or small groups, are exact in floats.
    """
    x, weight, *zeros = call.args
    x_zero, weight_zero = (*zeros, None, None)[:2]
    image, attributes = tensor_type(x), lookup(call.operator).bind(call.attributes)
    sizes = (image.shape[1], *(attributes["pads"] or ()))
    is_known = all(isinstance(size, int) for size in sizes) and 0 not in image.shape[1:] and 3 <= image.rank <= 5
    has_point = x_zero is None or all(dim == 1 for dim in tensor_type(x_zero).shape)
    is_known = is_known and (image.rank < 5 or all(isinstance(size, int) for size in image.shape[2:]))
    if not is_known or not has_point or not isinstance(weight, ir.Constant) or 0 in weight.array.shape:
        return None
    found = signed_weights(weight, weight_zero)
    if found is None or found[1] is not None:
        return None
    outputs, each, *window = weight.array.shape
    begins_in_blocks = each % BLOCK == outputs // attributes["groups"] % BLOCK == 0
    if attributes["groups"] == 1 or begins_in_blocks:
        return DType.int32
    channels = integer(image.shape[1])
    is_depthwise = image.rank == 4 and is_for_depthwise(channels, outputs, attributes["groups"], window[-1])
    is_short = each * math.prod(window) <= _EXACT_TERMS
    is_fixed = x_zero is None or isinstance(x_zero, ir.Constant)
    return DType.float32 if is_depthwise and is_short and is_fixed else None


def convolution(blocker: Blocker, call: ir.OperatorCall, type_: TensorType) -> ir.Var | None:
    """The rule of the layout pass for conv_integer."""
    if convolution_sums(call) is not type_.dtype:
        return None
    x, weight, *zeros = call.args
    found = signed_weights(weight, zeros[1] if len(zeros) > 1 else None)
    assert found is not None
    attributes = lookup(call.operator).bind(call.attributes)
    window = {name: attributes[name] for name in ("strides", "pads", "dilations")}
    image = blocker.as_blocked(x)
    if type_.dtype is DType.float32:  # each channel by itself, or in a small group
        zero = int(zeros[0].value.reshape(())) if zeros else 0  # type: ignore[union-attr]
        weights = blocker.packed("pack_planar_weights", constant(found[0].astype(np.float32)))
        return blocker.emit("conv_depthwise", image, weights, **window, zero=zero)
    window["groups"] = attributes["groups"]
    unsigned, point = as_unsigned(blocker, image, zeros[0] if zeros else None)
    if point is None:
        return _convolution(blocker, unsigned, found[0], window)
    point = blocker.packed("reshape", point, shape=(1,))
    padded = _around(blocker, unsigned, point, window["pads"])
    columns = constant(found[0].sum(axis=tuple(range(1, found[0].ndim)), dtype=np.int32))
    less = combined(blocker, "multiply", blocker.packed("pack_vector", columns, axes=type_.rank - 2), point)
    if isinstance(less, ir.Constant):
        return _convolution(blocker, padded, found[0], window | {"pads": None}, constant(-less.value))
    return blocker.emit("subtract", _convolution(blocker, padded, found[0], window | {"pads": None}), less)


def _convolution(blocker: Blocker, image: ir.Atom, weight: np.ndarray, window: Any, *start: ir.Atom) -> ir.Var:
    weights = blocker.packed("pack_integer_weights", constant(weight))
    return blocker.emit("conv_integer_blocked", image, weights, *start, **window)


def _around(blocker: Blocker, image: ir.Atom, zero: ir.Atom, pads: tuple[int, ...] | None) -> ir.Atom:
    """A blocked image padded with its zero point: terms that the kernel skips count as 0."""
    if not pads or not any(pads):
        return image
    axes = len(pads) // 2
    around = (0, 0, *pads[:axes], 0, 0, 0, *pads[axes:], 0)
    if isinstance(zero, ir.Constant):
        return blocker.emit("pad", image, pads=around, value=float(zero.value.item()))
    whole, edges = tensor_type(image).shape[2:-1], (*pads[:axes], 0, *pads[axes:], 0)
    if all(isinstance(size, int) for size in whole):
        inside = np.full((*map(integer, whole), 1), True)
        mask: ir.Atom = constant(np.pad(inside, list(zip(edges[: axes + 1], edges[axes + 1 :], strict=True))))
    else:
        ones = blocker.emit("full", shape=(*whole, 1), value=1.0, dtype=DType.uint8)
        mask = blocker.emit("cast", blocker.emit("pad", ones, pads=edges), dtype=DType.bool)
    point = blocker.emit("cast", zero, dtype=DType.uint8)
    return blocker.emit("where", mask, blocker.emit("pad", image, pads=around), point)


def convolution_by_floats(emitter: Emitter, call: ir.OperatorCall) -> ir.Atom:
    """A conv_integer in floats that hold its sums exactly."""
    x, weight, *zeros = call.args
    x_zero, weight_zero = (*zeros, None, None)[:2]
    attributes = lookup(call.operator).bind(call.attributes)
    result = attributes.pop("dtype")
    exact = DType.float32 if _are_exact_in_float32(weight, weight_zero) else DType.float64
    operands = _centred(emitter, x, x_zero, exact), _centred(emitter, weight, weight_zero, exact)
    return emitter.emit("cast", emitter.emit("conv", *operands, **attributes), dtype=result)


def _are_exact_in_float32(weight: ir.Atom, zero: ir.Atom | None) -> bool:
    """Whether every sum of 8-bit values times an output's weights, and every part of one, is exact in float32."""
    terms = dims.product(tensor_type(weight).shape[1:])  # type: ignore[arg-type]
    if isinstance(terms, int) and terms <= _EXACT_TERMS:
        return True
    if not isinstance(weight, ir.Constant) or not (zero is None or isinstance(zero, ir.Constant)):
        return False
    centred = weight.value.astype(np.int64) - (0 if zero is None else zero.value)
    return bool(np.all(255 * np.abs(centred).sum(axis=tuple(range(1, centred.ndim))) < 1 << 24))


def as_int32(emitter: Emitter, x: ir.Atom) -> ir.Atom:
    return (
        constant(x.value.astype(np.int32)) if isinstance(x, ir.Constant) else emitter.emit("cast", x, dtype=DType.int32)
    )


def combined(emitter: Emitter, operator: str, a: ir.Atom, b: ir.Atom) -> ir.Atom:
    """The result of an operator: a constant if both operands are."""
    if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
        return constant(lookup(operator).evaluate([a.value, b.value])[0])
    return emitter.emit(operator, a, b)


def padded(emitter: Emitter, a: ir.Atom, count: int) -> ir.Atom:
    """a with `count` more elements in each row; their weights are zero."""
    if not count:
        return a
    before = (0,) * tensor_type(a).rank
    return emitter.emit("pad", a, pads=(*before, *before[1:], count))


def _by_floats(emitter: Emitter, a: ir.Atom, b: ir.Atom, a_zero: ir.Atom | None, b_zero: ir.Atom | None) -> ir.Atom:
    """The sum in pieces short enough for float32 to be exact."""
    depth = tensor_type(a).shape[-1]
    is_known = isinstance(depth, int)
    dtype = DType.float32 if is_known else DType.float64
    a, b = _centred(emitter, a, a_zero, dtype), _centred(emitter, b, b_zero, dtype)
    length = max(depth, 1) if isinstance(depth, int) else 1
    if not is_known or length <= _EXACT_TERMS:
        return emitter.emit("cast", emitter.emit("matmul", a, b), dtype=DType.int32)
    inner, total = -2 if tensor_type(b).rank > 1 else -1, None
    for start in range(0, length, _EXACT_TERMS):
        part = {"starts": (start,), "ends": (min(start + _EXACT_TERMS, length),)}
        left, right = emitter.emit("slice", a, **part, axes=(-1,)), emitter.emit("slice", b, **part, axes=(inner,))
        term = emitter.emit("cast", emitter.emit("matmul", left, right), dtype=DType.int32)
        total = term if total is None else emitter.emit("add", total, term)
    assert total is not None
    return total


def _centred(emitter: Emitter, x: ir.Atom, zero: ir.Atom | None, dtype: DType) -> ir.Atom:
    number = emitter.emit("cast", x, dtype=dtype)
    return number if zero is None else emitter.emit("subtract", number, emitter.emit("cast", zero, dtype=dtype))
