"""Matrices of few elements (CSR: data, indices, indptr), sums over segments, and what is counted once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....compiler.builder import programs
from ....compiler.builder.programs import Expression, op
from ....formats import dims
from ..expr import as_expr
from .dynamic import full_of, sizes_of
from .table import Tensor, Tensors, as_dims, axis_of, behind, cut_to, known, like, minus, operator, shape_of, type_of

__all__ = ["cumprod", "dft", "matrix_set_diag", "segment_sum", "sparse_to_dense", "stft", "unique"]


# ---- sparse matrices ----


def _parts(matrix: Any) -> Any:
    """A matrix of SciPy's or of three tensors, as a tuple of tensors."""
    if hasattr(matrix, "indptr"):
        matrix = (matrix.data, matrix.indices, matrix.indptr)
    return as_expr(tuple(np.asarray(each) if isinstance(each, np.ndarray) else each for each in matrix))


def _dense(matrix: Any, rows: Any, columns: Any) -> Expression:
    """[rows, columns] of a CSR matrix."""
    data, indices, indptr = matrix
    if type_of(data).rank != 1:
        raise NotImplementedError("matrices of blocks (BSR); give a CSR matrix")
    at = op.stack(_rows(indices, indptr), op.cast(indices, dtype="int64"), axis=1)
    zeros = op.broadcast_to(like(data, 0), shape=(rows, columns))
    return op.scatter_nd(zeros, at, data, reduction="add")


def _rows(indices: Expression, indptr: Expression) -> Expression:
    """The row of each element of a CSR matrix, int64."""
    ends = op.slice(op.cast(indptr, dtype="int64"), starts=(1,), ends=(1 << 40,), axes=(0,))
    places = op.expand_dims(op.arange(stop=type_of(indices).shape[0]), axes=(1,))
    return op.sum(op.cast(op.less_equal(ends, places), dtype="int64"), axes=(1,))


@operator("nn.sparse_dense")
def _sparse_dense(dense_mat: Tensor, sparse_mat: Tensors, sparse_lhs: bool = False) -> Expression:
    """The product of a dense matrix and a sparse one."""
    columns = type_of(dense_mat).shape[-1]
    rows = type_of(sparse_mat[2]).shape[0]
    matrix = _dense(sparse_mat, minus(rows, 1), columns)  # type: ignore[arg-type]
    if sparse_lhs:
        return op.matmul(matrix, op.permute_dims(dense_mat, axes=(1, 0)))
    return op.matmul(dense_mat, op.permute_dims(matrix, axes=(1, 0)))


def sparse_dense(dense_mat: Any, sparse_mat: Any, sparse_lhs: bool = False) -> Any:
    """dense · sparseᵀ, or with `sparse_lhs` sparse · denseᵀ; the sparse matrix is CSR, SciPy's or (data, indices, indptr)."""
    return _sparse_dense(dense_mat, _parts(sparse_mat), bool(sparse_lhs))


@operator("nn.sparse_add")
def _sparse_add(dense_mat: Tensor, sparse_mat: Tensors) -> Expression:
    """The sum of a dense matrix and a sparse one."""
    dense_mat, (rows, columns) = shape_of(dense_mat)
    return op.add(dense_mat, _dense(sparse_mat, rows, columns))


def sparse_add(dense_mat: Any, sparse_mat: Any) -> Any:
    """dense + sparse; the sparse matrix is CSR, SciPy's or (data, indices, indptr)."""
    return _sparse_add(dense_mat, _parts(sparse_mat))


@operator("nn.sparse_transpose", results=3)
def _sparse_transpose(data: Tensor, indices: Tensor, indptr: Tensor) -> Expression:
    """The three tensors of a square matrix's transpose."""
    kind, size = type_of(indptr).dtype, minus(type_of(indptr).shape[0], 1)  # type: ignore[arg-type]
    rows, columns = _rows(indices, indptr), op.cast(indices, dtype="int64")
    columns, (count,) = shape_of(columns)
    order = op.top_k(columns, k=count, axis=0, largest=False)[1]  # stable: rows stay in order
    ones = op.broadcast_to(programs.constant(1), shape=(count,))
    zeros = op.broadcast_to(programs.constant(0), shape=(size,))
    many = op.scatter_nd(zeros, op.expand_dims(columns, axes=(1,)), ones, reduction="add")
    ends = op.pad(op.cumulative_sum(many, axis=0), pads=(1, 0))
    moved = [op.take(each, order, axis=0) for each in (data, op.cast(rows, dtype=type_of(indices).dtype))]
    return programs.tuple_(*moved, op.cast(ends, dtype=kind))


def sparse_transpose(x: Any) -> Any:
    """(data, indices, indptr) of the transpose of a square CSR matrix, SciPy's or (data, indices, indptr)."""
    matrix = (x.data, x.indices, x.indptr) if hasattr(x, "indptr") else tuple(x)
    return _sparse_transpose(*matrix)


@operator("sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Any, sparse_values: Tensor, default_value: Any = 0
) -> Expression:
    """A tensor of a default, values at places: a number, a vector of them, or rows of places."""
    value = default_value if isinstance(default_value, Expression) else like(sparse_values, default_value)
    base = full_of(op.cast(value, dtype=type_of(sparse_values).dtype), output_shape)
    places = op.cast(sparse_indices, dtype="int64")
    if type_of(places).rank == 0:
        places = op.reshape(places, shape=(1,))
    if type_of(places).rank == 1:
        places = op.expand_dims(places, axes=(1,))
    count = type_of(places).shape[0]
    values = op.broadcast_to(sparse_values, shape=(count,)) if type_of(sparse_values).rank == 0 else sparse_values
    return op.scatter_nd(base, places, values)


# ---- along an axis ----


@operator("segment_sum")
def segment_sum(data: Tensor, segment_ids: Tensor, num_segments: Any = None) -> Expression:
    """The sums of rows whose segment is the same; as many segments as told, or as the greatest number says. Rows after the
    last number are in none."""
    data, shape = shape_of(data)
    ids, (count,) = shape_of(segment_ids)
    places = op.cast(ids, dtype="int64")
    data = cut_to(data, {0: count}, [ids])
    known = as_dims(num_segments) if num_segments is not None else None
    waits: list[Expression] = []
    if known is None:
        many = op.add(op.max(places), programs.constant(1)) if num_segments is None else num_segments
        waits, known = sizes_of(op.reshape(op.cast(many, dtype="int64"), shape=(1,)))
    zeros = behind("broadcast_to", like(data, 0), [data, *waits], shape=(known[0], *shape[1:]))
    return op.scatter_nd(zeros, op.expand_dims(places, axes=(1,)), data, reduction="add")


@operator("cumprod")
def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Expression:
    """The products of the elements up to each place; of all of them in order where no axis is given."""
    if axis is None:
        data, axis = op.reshape(data, shape=(-1,)), 0
    kind = dtype or ("int32" if type_of(data).dtype.name == "bool" else type_of(data).dtype.name)
    data, along = op.cast(data, dtype=kind), axis_of(data, axis)
    (length,) = known("cumprod: the length", type_of(data).shape[along])
    data = _behind_ones(data, along, 1, length) if exclusive else data
    step = 1
    while step < length:  # each pass multiplies by what lies `step` before
        data = op.multiply(data, _behind_ones(data, along, step, length))
        step *= 2
    return data


def _behind_ones(data: Expression, axis: int, step: int, length: int) -> Expression:
    pads = [0] * (2 * type_of(data).rank)
    pads[axis] = step
    kind = type_of(data).dtype
    front = op.slice(data, starts=(0,), ends=(max(length - step, 0),), axes=(axis,))
    return op.pad(front, pads=pads, value=1.0 if kind.is_float else 1)


@operator("matrix_set_diag")
def matrix_set_diag(data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> Expression:
    """Matrices with the diagonals k, or k[0] to k[1], replaced; shorter diagonals are aligned left or right."""
    first, last = (k, k) if isinstance(k, int) else (int(k[0]), int(k[-1]))
    sizes = (*type_of(data).shape[-2:], type_of(diagonal).shape[-1])
    rows, columns, longest = known("matrix_set_diag: the matrices' size", *sizes)
    y, x = np.indices((rows, columns))
    number = x - y
    inside = (number >= first) & (number <= last)
    length = np.minimum(columns - np.maximum(number, 0), rows + np.minimum(number, 0))
    upper, lower = align.split("_")
    right = np.where(number >= 0, upper == "RIGHT", lower == "RIGHT") if first != last else np.zeros_like(inside)
    place = np.minimum(y, x) + np.where(right, longest - length, 0)
    flat = np.where(inside, (last - number) * longest + place, 0)
    lead = type_of(data).shape[:-2]
    values = op.reshape(diagonal, shape=(*lead, -1))
    taken = op.take(values, programs.constant(flat.reshape(-1).astype("int64")), axis=len(lead))
    taken = op.reshape(taken, shape=(*lead, rows, columns))
    return op.where(programs.constant(inside), taken, data)


@operator("unique", results=lambda bound: 5 if bound["return_counts"] else 4)
def unique(data: Tensor, is_sorted: bool = True, return_counts: bool = False) -> Expression:
    """The values of a vector, each once, in order or as they come first; of each the first place; of each element the number of
    its value; how many values; how often each. What lies after the values has no meaning."""
    data, (count,) = shape_of(data)
    length = op.take(op.shape(data), programs.constant(0), axis=0)
    ordered, order = op.top_k(data, k=count, axis=0, largest=False)
    place = op.arange(stop=count)
    before = op.take(ordered, op.maximum(op.subtract(place, programs.constant(1)), programs.constant(0)), axis=0)
    changed = op.logical_or(op.not_equal(ordered, before), op.equal(place, programs.constant(0)))
    group = op.subtract(op.cumulative_sum(op.cast(changed, dtype="int64"), axis=0), programs.constant(1))
    many = op.add(op.max(group), programs.constant(1))
    rows = op.expand_dims(group, axes=(1,))
    last = op.broadcast_to(length, shape=(count,))
    first = op.scatter_nd(last, rows, order, reduction="min")  # of each value the first place
    if not is_sorted:
        first, places = op.top_k(first, k=count, axis=0, largest=False)
        zeros = op.multiply(places, programs.constant(0))
        number = op.put_along_axis(zeros, places, op.arange(stop=count), axis=0)
        group = op.take(number, group, axis=0)
        rows = op.expand_dims(group, axes=(1,))
    inverse = op.put_along_axis(op.multiply(order, programs.constant(0)), order, group, axis=0)
    values = op.take(data, op.minimum(first, op.subtract(length, programs.constant(1))), axis=0)
    found = [values, *(op.cast(each, dtype="int32") for each in (first, inverse, op.reshape(many, shape=(1,))))]
    if return_counts:
        zeros = op.broadcast_to(programs.constant(np.int32(0)), shape=(count,))
        ones = op.broadcast_to(programs.constant(np.int32(1)), shape=(count,))
        found.append(op.scatter_nd(zeros, rows, ones, reduction="add"))
    return programs.tuple_(*found)


# ---- Fourier transforms ----


@operator("dft", results=2)
def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False) -> Expression:
    """The discrete Fourier transform along the last axis, real and imaginary parts."""
    (size,) = known("dft: the length", type_of(re_data).shape[-1])
    turns = np.outer(np.arange(size), np.arange(size)) % size / size
    factors = np.exp((2j if inverse else -2j) * np.pi * turns) / (size if inverse else 1)
    kind = type_of(re_data).dtype.numpy
    real, imaginary = (programs.constant(part.astype(kind)) for part in (factors.real, factors.imag))
    return programs.tuple_(
        op.subtract(op.matmul(re_data, real), op.matmul(im_data, imaginary)),
        op.add(op.matmul(re_data, imaginary), op.matmul(im_data, real)),
    )


@operator("stft")
def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> Expression:
    """The Fourier transforms of windows along a signal: [N, frequencies, windows, 2]."""
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    batched = data if type_of(data).rank == 2 else op.expand_dims(data, axes=(0,))
    batched, (_, length) = shape_of(batched)
    count = dims.add(dims.floordiv(minus(length, n_fft), hop), 1)
    starts = op.multiply(op.expand_dims(op.arange(stop=count), axes=(1,)), programs.constant(hop))
    frames = op.take(batched, op.add(starts, programs.constant(np.arange(n_fft))), axis=1)
    if window is not None:
        side = (n_fft - width) // 2
        window = op.cast(window, dtype=type_of(data).dtype)
        frames = op.multiply(frames, op.pad(window, pads=(side, n_fft - width - side)))
    bins = n_fft // 2 + 1 if onesided else n_fft
    factors = np.exp(-2j * np.pi * (np.outer(np.arange(n_fft), np.arange(bins)) % n_fft / n_fft))
    factors = factors / np.sqrt(n_fft) if normalized else factors
    kind = type_of(data).dtype.numpy
    parts = [op.matmul(frames, programs.constant(part.astype(kind))) for part in (factors.real, factors.imag)]
    return op.permute_dims(op.stack(*parts, axis=3), axes=(0, 2, 1, 3))
