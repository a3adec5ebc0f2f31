"""Importers of onnxruntime's own products with weights of a few bits, packed into bytes, blocks of which share a scale."""

from __future__ import annotations

import math

import numpy as np

from ....formats.dtypes import DType
from ....formats.messages.errors import ModelError
from ...operators.shapes import axis_of
from ..operators import networks
from ..operators.quantized import dequantize_linear
from ..table import importer
from ..values import GraphBuilder, UnsupportedError, Value, constant
from .floats import DOMAIN

_BITS = (2, 4, 8)
_INT8 = 4  # level of accuracy: activations may be rounded to int8


@importer("MatMulNBits", domain=DOMAIN)
def _matmul_n_bits(
    g: GraphBuilder,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
) -> Value:
    """a [..., K] times the transposed [N, K] numbers of `bits` bits in b, block_size of which, neighbours in a row, share a scale
    and a zero point. Each row of b and of packed zero points begins with a byte. The level of accuracy says what a may be
    rounded to."""
    check_bits(bits, "weights")
    if min(K, N, block_size) < 1 or block_size * bits % 8:
        raise ModelError(f"K, N and block_size must be positive, blocks whole bytes, got {K}, {N}, {block_size}")
    if a.rank == 0 or a.shape[-1] != K:
        raise ModelError(f"a must have rows of K = {K} elements, got {a.type}")
    _check_order(g_idx, K, block_size)
    blocks = -(-K // block_size)
    numbers = constant_numbers(b, bits, (N, blocks, block_size), "b")
    weights = _of_numbers(g, numbers, bits, _of_blocks(g, scales, N, blocks, "scales"), zero_points)
    rows = g.op("reshape", weights, shape=(N, blocks * block_size))
    if blocks * block_size > K:
        rows = g.op("slice", rows, starts=(0,), ends=(K,), axes=(1,))
    matrix, int8_rows = g.op("permute_dims", rows, axes=(1, 0)), accuracy_level == _INT8
    result = networks.product(g, g.op("cast", a, dtype=DType.float32), matrix, int8_rows=int8_rows)
    if bias is not None:
        result = g.broadcast("add", result, g.op("cast", bias, dtype=DType.float32))
    return g.op("cast", result, dtype=a.dtype)


def _of_numbers(g: GraphBuilder, numbers: np.ndarray, bits: int, scale: Value, zero_points: Value | None) -> Value:
    """The floats [rows, blocks, block size] that numbers without sign stand for; without zero points, these are half way."""
    rows, blocks, _ = numbers.shape
    if zero_points is not None and zero_points.dtype.is_float:
        centre = _of_blocks(g, zero_points, rows, blocks, "zero_points")
        centred = g.op("subtract", g.op("cast", constant(numbers), dtype=DType.float32), centre)
        return g.op("multiply", centred, scale)
    points = points_of(zero_points, bits, rows, blocks)
    return g.op("dequantize", constant(numbers), scale, g.constant(points[..., np.newaxis]))


def check_bits(bits: int, what: str) -> None:
    if bits not in _BITS:
        raise UnsupportedError(f"{what} of {bits} bits; Treadle has those of {' and '.join(map(str, _BITS))}")


def points_of(zero_points: Value | None, bits: int, rows: int, blocks: int) -> np.ndarray:
    """Packed zero points, an element each; half way where there are none."""
    if zero_points is None:
        return np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    return constant_numbers(zero_points, bits, (rows, blocks), "zero_points")


def _check_order(g_idx: Value | None, depth: int, block_size: int) -> None:
    """Raises UnsupportedError for blocks that are not neighbours."""
    if g_idx is None:
        return
    order = g_idx.content
    if order is None or not np.array_equal(order.reshape(-1)[:depth], np.arange(depth) // block_size):
        raise UnsupportedError("g_idx: blocks of weights that are not neighbours")


def constant_numbers(
    packed: Value, bits: int, shape: tuple[int, ...], name: str, is_first_high: bool = False
) -> np.ndarray:
    """Constants that are packed into bytes, the first one into the lowest bits, or the highest, an element each."""
    content = packed.content
    if content is None:
        raise UnsupportedError(f"{name}: weights that are not constant")
    each = 8 // bits
    size = -(-shape[-1] // each)
    if packed.dtype is not DType.uint8 or content.size != math.prod(shape[:-1]) * size:
        expected = "x".join(map(str, (*shape[:-1], size)))
        raise ModelError(f"{name} must have {expected} elements of uint8, got {packed.type}")
    rows = content.reshape(*shape[:-1], size)
    places = reversed(range(each)) if is_first_high else range(each)
    parts = [rows >> (bits * place) & ((1 << bits) - 1) for place in places]
    numbers = np.stack(parts, axis=-1).reshape(*shape[:-1], each * size)[..., : shape[-1]]
    numbers = np.ascontiguousarray(numbers)
    numbers.flags.writeable = False
    return numbers


def _of_blocks(g: GraphBuilder, parameter: Value, rows: int, blocks: int, name: str) -> Value:
    """One number for each block of each row, float32[rows, blocks, 1]."""
    if not parameter.dtype.is_float or math.prod(parameter.shape) != rows * blocks:
        raise ModelError(f"{name} must have {rows}x{blocks} floats, got {parameter.type}")
    return g.op("reshape", g.op("cast", parameter, dtype=DType.float32), shape=(rows, blocks, 1))


# The numbers that four bits stand for, as bitsandbytes has them, by `quant_type`: a sign, two bits of exponent and one of
# fraction (FP4), and 16 quantiles of the normal distribution (NF4; Dettmers et al., QLoRA, 2023, appendix E).
_MAGNITUDES = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
_QUANTILES = [
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]
_CODES = np.array([[*_MAGNITUDES, *(-magnitude for magnitude in _MAGNITUDES)], _QUANTILES], np.float32)


@importer("MatMulBnb4", domain=DOMAIN)
def _matmul_bnb4(
    g: GraphBuilder,
    a: Value,
    b: Value,
    absmax: Value,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,  # what a backward pass is to find; the product is the same
    transB: int = 1,
) -> Value:
    """a [..., K] times the transposed [N, K] weights in b: two codes to a byte, the first one in its upper bits. Each block_size
    of them, counted through all rows, are shares of one greatest magnitude. As floats they take eight times the memory."""
    if transB != 1 or quant_type not in range(len(_CODES)):
        raise UnsupportedError(f"transB = {transB}, quant_type = {quant_type}")
    if min(K, N, block_size) < 1:
        raise ModelError(f"K, N and block_size must be positive, got {K}, {N}, {block_size}")
    if a.rank == 0 or a.shape[-1] != K:
        raise ModelError(f"a must have rows of K = {K} elements, got {a.type}")
    codes = constant_numbers(b, 4, (N * K,), "b", is_first_high=True)
    blocks = -(-codes.size // block_size)
    greatest = absmax.content
    if greatest is None:
        raise UnsupportedError("absmax: magnitudes that are not constant")
    if greatest.size != blocks:
        raise ModelError(f"absmax must have {blocks} elements, one for each block, got {absmax.type}")
    by_place = np.repeat(greatest.reshape(-1).astype(np.float32), block_size)[: codes.size]
    weights = (_CODES[quant_type][codes] * by_place).reshape(N, K)
    weights.flags.writeable = False
    floats = g.op("cast", a, dtype=DType.float32)
    result = networks.product(g, floats, g.op("permute_dims", constant(weights), axes=(1, 0)))
    return g.op("cast", result, dtype=a.dtype)


@importer("GatherBlockQuantized", domain=DOMAIN)
def _gather_block_quantized(
    g: GraphBuilder,
    data: Value,
    indices: Value,
    scales: Value,
    zero_points: Value | None = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
) -> Value:
    """Rows of a table that is dequantised by blocks along them. Numbers that come as bytes are packed, `bits` each, and their
    zero points, if they have none, half way."""
    if axis_of(gather_axis, data.rank) != 0 or axis_of(quantize_axis, data.rank) != 1 or data.rank != 2:
        raise UnsupportedError(f"gathering along axis {gather_axis} of {data.type}, blocks along axis {quantize_axis}")
    if data.dtype.is_numpys:
        check_bits(bits, "numbers")
        rows, size = data.shape
        if not isinstance(rows, int) or not isinstance(size, int):
            raise UnsupportedError("data: a table that is not constant")
        columns = size * 8 // bits
        blocks = -(-columns // block_size)
        data = constant(constant_numbers(data, bits, (rows, columns), "data"))
        zero_points = constant(points_of(zero_points, bits, rows, blocks))
    table = dequantize_linear(g, data, scales, zero_points, axis=1, block_size=block_size)
    return g.op("take", table, indices, axis=0)
