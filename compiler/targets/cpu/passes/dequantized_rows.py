"""Rows of constant tables that are dequantised from 4 or 8-bit integers, such as embeddings: they are taken before they are
dequantised, so that the table stays narrow."""

from __future__ import annotations

import math

import numpy as np

from .....formats.dtypes import DType
from .... import ir
from ....passes.rewriting import Emitter, constant, tensor_type

_BITS, _EACH = 4, 8  # of a number in a word; how many a word holds


def rows(emitter: Emitter, numbers: np.ndarray, scale: np.ndarray, zero: np.ndarray, places: ir.Atom) -> ir.Var:
    """The rows at these places of a table [rows, columns], (number - zero) · scale."""
    columns = numbers.shape[1]
    group = _group(scale, zero)
    taken = _taken(emitter, numbers, places)
    shape = tensor_type(places).shape
    apart = emitter.emit("reshape", taken, shape=(*shape, columns // group, group))
    shifts = [("subtract", zero)] if np.any(zero) else []
    for operator, shared in (*shifts, ("multiply", scale)):
        each = emitter.emit("take", constant(shared[:, ::group].astype(np.float32)), places, axis=0)
        apart = emitter.emit(operator, apart, emitter.emit("expand_dims", each, axes=(-1,)))
    return emitter.emit("reshape", apart, shape=(*shape, columns))


def _group(scale: np.ndarray, zero: np.ndarray) -> int:
    """The number of neighbours in a row that share scales and zero points."""
    begins = [np.any(array[:, 1:] != array[:, :-1], axis=0) for array in (scale, zero)]
    return math.gcd(*(np.flatnonzero(begins[0] | begins[1]) + 1).tolist(), scale.shape[1])


def _taken(emitter: Emitter, numbers: np.ndarray, places: ir.Atom) -> ir.Var:
    """Rows of the integers, as float32. Those of 4 bits are kept in words, if they fill them."""
    least = int(numbers.min())
    if int(numbers.max()) - least >= 1 << _BITS or numbers.shape[1] % _EACH:
        return emitter.emit("cast", emitter.emit("take", constant(numbers), places, axis=0), dtype=DType.float32)
    shifts = np.arange(0, _EACH * _BITS, _BITS, dtype=np.uint32)
    apart = (numbers.astype(np.int16) - least).reshape(len(numbers), -1, _EACH).astype(np.uint32)
    words = np.bitwise_or.reduce(apart << shifts, axis=-1)
    taken = emitter.emit("expand_dims", emitter.emit("take", constant(words), places, axis=0), axes=(-1,))
    shifted = emitter.emit("shift_right", taken, constant(shifts))
    low = emitter.emit("bitwise_and", shifted, constant(np.full(1, (1 << _BITS) - 1, np.uint32)))
    signed = emitter.emit("cast", emitter.emit("cast", low, dtype=DType.int32), dtype=DType.float32)
    return emitter.emit("add", signed, constant(np.full(1, least, np.float32))) if least else signed
