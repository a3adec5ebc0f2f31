"""Products of 8-bit integers in the form that their kernels take: numbers without signs times packed weights that have some.

    Σ (a - z)(w - y) = Σ a·w - z·Σ (w - y) - y·Σ a

What shifts numbers into the range of the other kind of bytes shifts their zero points too; weights are made less their zeros
where that fits, so that the last term, which takes a sum of each row of a, is rarely there.
"""

from __future__ import annotations

import numpy as np

from ...formats.dtypes import DType
from .. import ir
from ..operators.quantized import WORD
from ..operators.table import lookup
from .rewriting import Emitter, constant, tensor_type

_SIGN = 128  # the distance of the two kinds of bytes
_EXACT_TERMS = (1 << 24) // (255 * 255)  # products of two 8-bit numbers whose sum a float32 holds exactly


def product(emitter: Emitter, call: ir.OperatorCall) -> ir.Atom:
    """A matmul_integer by a packed matrix, if that is a constant; else by floats."""
    a, b = call.args[:2]
    zeros = (*call.args[2:], None, None)
    is_matrix = isinstance(b, ir.Constant) and b.value.ndim == 2 and 0 not in b.value.shape and tensor_type(a).rank > 1
    weights = signed_weights(b, zeros[1]) if is_matrix else None
    if weights is None:
        return _by_floats(emitter, a, b, *zeros[:2])
    matrix, b_zero = weights
    unsigned, a_zero = as_unsigned(emitter, a, zeros[0])
    panels = constant(lookup("pack_integer_matrix").evaluate([matrix])[0])
    a_words = _padded(emitter, unsigned, -len(matrix) % WORD)
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
    shift = _SIGN if weights.value.dtype == np.uint8 else 0
    return (wide - shift).astype(np.int8), constant(points - shift)


def as_unsigned(emitter: Emitter, a: ir.Atom, zero: ir.Atom | None) -> tuple[ir.Atom, ir.Atom | None]:
    """Numbers as uint8, and their zero point, as int32, if there is one."""
    is_there = zero is not None and not (isinstance(zero, ir.Constant) and not zero.value.any())
    point = as_int32(emitter, zero) if zero is not None and is_there else None
    if tensor_type(a).dtype is DType.uint8:
        return a, point
    bits = emitter.emit("cast", a, dtype=DType.uint8)
    shifted = emitter.emit("bitwise_xor", bits, constant(np.asarray(_SIGN, np.uint8)))
    shift = constant(np.asarray(_SIGN, np.int32))
    return shifted, shift if point is None else combined(emitter, "add", point, shift)


def as_int32(emitter: Emitter, x: ir.Atom) -> ir.Atom:
    return (
        constant(x.value.astype(np.int32)) if isinstance(x, ir.Constant) else emitter.emit("cast", x, dtype=DType.int32)
    )


def combined(emitter: Emitter, operator: str, a: ir.Atom, b: ir.Atom) -> ir.Atom:
    """The result of an operator: a constant if both operands are."""
    if isinstance(a, ir.Constant) and isinstance(b, ir.Constant):
        return constant(lookup(operator).evaluate([a.value, b.value])[0])
    return emitter.emit(operator, a, b)


def _padded(emitter: Emitter, a: ir.Atom, count: int) -> ir.Atom:
    """a with so many more elements in each row, which meet weights of zero."""
    if not count:
        return a
    before = (0,) * tensor_type(a).rank
    return emitter.emit("pad", a, pads=(*before, *before[1:], count))


def _by_floats(emitter: Emitter, a: ir.Atom, b: ir.Atom, a_zero: ir.Atom | None, b_zero: ir.Atom | None) -> ir.Atom:
    """Sums of so many terms at a time as a float holds exactly."""
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
