"""A row has the same bits beside any others: products of any number of rows sum in one order (`decode/paged_contexts.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from treadle.compiler.targets.cpu.operators.packing import pack_matrix
from treadle.formats.primitive import PrimitiveDefinition
from treadle.formats.types import tensor

from ..harness import NARROW, TARGET, Builder, evaluate, run_kernel, without
from .test_dequantized import operands, product_of

DEPTH, COLUMNS = 300, 40
NUMBERS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 33, 70)
_random = np.random.default_rng(0)


def of_matrix(
    operator: str, pack: str | None, rows: Any, dtype: str = "float32"
) -> tuple[PrimitiveDefinition, list[np.ndarray]]:
    """Of rows with a matrix, and an epilogue."""
    matrix = _random.standard_normal((DEPTH, COLUMNS)).astype("f")
    packed = matrix if pack is None else pack_matrix(matrix) if pack == "pack_matrix" else evaluate(pack, matrix)
    packed = packed.astype(dtype) if pack is None else packed
    build = Builder(tensor(str(rows.dtype), ("n", *rows.shape[1:])), tensor(str(packed.dtype), packed.shape))
    columns = {} if pack is None else {"columns": COLUMNS}
    return build.definition(build("silu", build(operator, 0, 1, **columns))), [rows, packed]


def floats() -> np.ndarray:
    return _random.standard_normal((max(NUMBERS), DEPTH)).astype("f")


def dequantized(bits: int, zeros: bool, int8_rows: bool = False) -> Any:
    arrays = operands(max(NUMBERS), DEPTH, COLUMNS, 32, zeros, bits)
    return product_of(arrays, COLUMNS, 32, "n", ("silu",), bits, int8_rows), arrays


KINDS: dict[str, Callable[[], tuple[PrimitiveDefinition, list[np.ndarray]]]] = {
    "float32": lambda: of_matrix("matmul_packed", "pack_matrix", floats()),
    "float32, as it lies": lambda: of_matrix("matmul", None, floats()),
    "4 bits": lambda: dequantized(4, zeros=True),
    "8 bits": lambda: dequantized(8, zeros=False),
    "4 bits, rows of 8": lambda: dequantized(4, zeros=True, int8_rows=True),
    "8 bits, rows of 8": lambda: of_matrix(
        "matmul_int8_packed", "pack_int8_matrix", evaluate("quantize_rows", floats())
    ),
    "16 bits": lambda: of_matrix(
        "matmul_bfloat16_packed", "pack_bfloat16_matrix", evaluate("cast", floats(), dtype="bfloat16")
    ),
}


OTHERS = [pytest.param(each, marks=pytest.mark.thorough) for each in (*NARROW, without(NARROW[0], "vnni"))]


@pytest.mark.parametrize("target", [TARGET, *OTHERS], ids=lambda each: f"{each.vector_bytes} {each.dot}")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_beside_any_others(kind: str, target: Any):
    definition, (rows, *others) = KINDS[kind]()
    alone = [run_kernel(definition, [rows[at : at + 1], *others], {"n": 1}, 1, target)[1][0] for at in range(20)]
    for number in NUMBERS:
        code, (made,) = run_kernel(definition, [rows[:number], *others], {"n": number}, 1 + number % 3, target)
        assert code == 0
        for at in range(min(number, 20)):
            np.testing.assert_array_equal(made[at : at + 1], alone[at], err_msg=f"row {at} of {number}")
