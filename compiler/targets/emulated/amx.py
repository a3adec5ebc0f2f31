"""AMX, interpreted: the registers of a part, and the instructions of `cpu/vectors/amx.py` on them."""

from __future__ import annotations

import numpy as np

from ..cpu.vectors.amx import OPERANDS, ROW_BYTES, SUMS
from . import emitted
from .functions import lower_halves, normal, upper_halves
from .memory import Fault
from .vectors import Array

_MOST_ROWS = 16


class Registers:
    """Words of 32 bits, row by row, in the shapes that LDTILECFG takes."""

    def __init__(self, shapes: np.ndarray) -> None:
        widths, rows = shapes[16:48].view(np.uint16), shapes[48:64]
        if shapes[0] != 1 or shapes[1:16].any() or widths[8:].any() or rows[8:].any():
            raise Fault("these 64 bytes are no shapes of AMX registers")
        for width, count in zip(widths[:8], rows[:8], strict=True):
            if not 0 < count <= _MOST_ROWS or not 0 < width <= ROW_BYTES or width % 4:
                raise Fault(f"an AMX register of {count} rows of {width} bytes")
        shape = [(int(count), int(width) // 4) for width, count in zip(widths[:8], rows[:8], strict=True)]
        self.words = {number: np.zeros(shape[number], np.int32) for number in (*SUMS, *OPERANDS)}

    def operands(self, number: int) -> tuple[Array, Array, Array]:
        """The sums, and what is multiplied: words of rows, and of columns."""
        sums, rows, columns = (self.words[each] for each in (number, 4 + number // 2, 6 + number % 2))
        if sums.shape != (len(rows), columns.shape[1]) or rows.shape[1] != len(columns):
            raise Fault(f"AMX registers of {rows.shape} and {columns.shape} words do not make sums of {sums.shape}")
        return sums, rows, columns


def dpbusd(sums: Array, rows: Array, columns: Array) -> Array:
    """Bytes without sign by bytes with one."""
    numbers = rows.view(np.uint8).astype(np.int64)
    weights = np.ascontiguousarray(columns.T).view(np.int8).astype(np.int64)
    return (sums + numbers @ weights.T).astype(np.int32)


def dpbf16ps(sums: Array, rows: Array, columns: Array) -> Array:
    """Even terms and odd ones apart, from zero; subnormal numbers are zeros."""
    parts = []
    for half in (lower_halves, upper_halves):
        part = np.zeros(sums.shape, np.float32)
        for x, w in zip(normal(half(rows)).T[..., None], normal(half(columns)), strict=True):
            part = normal(emitted.fma(x, w, part))
        parts.append(part)
    return normal(normal(sums.view(np.float32)) + normal(parts[0] + parts[1])).view(np.int32)


PRODUCTS = {"dpbf16ps": dpbf16ps, "dpbusd": dpbusd}
