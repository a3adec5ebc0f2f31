"""Two tensors that should hold the same: how far they differ, and in which order their elements lie.

An error of floats is the largest difference, in units of the largest magnitude of what was wanted; of integers and booleans it is
the largest difference. A bound is stated by element type and grows with the square root of the number of kernels before: so
grows the sum of roundings that know nothing of each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..compiler.targets.cpu.operators.packing import BLOCK, unpack_channels
from ..formats.dtypes import DType

# Of one kernel, as a share of the largest magnitude: of float32 64 units in the last place, which sums of thousands of products
# and Winograd's convolution stay under (MobileNet-V2: 7e-6 after 50 kernels). Of 8-bit integers, which quantised models round
# to, one step: ties may fall either way.
UNITS = {"float64": 2.0**-40, "float32": 2.0**-17, "float16": 2.0**-7, "int8": 1.0, "uint8": 1.0}
# Others as coarsely as their mantissas are shorter than float16's of 10 bits.
UNITS |= {dtype.name: 2.0 ** (3 - dtype.format.mantissa) for dtype in DType if dtype.format is not None}
UNITS |= {dtype.name: 1.0 for dtype in DType if dtype.is_integer and not dtype.is_numpys}
_LEAST = 1e-6  # a float tensor without a larger magnitude is measured as if it had this one
_MOST_TRANSPOSED = 5  # axes of a tensor for which an order of axes is looked for


def bound(found: np.dtype, wanted: np.dtype, depth: int, step: float = 0.0) -> float:
    """The error that may be between two tensors of these element types, after `depth` kernels: by the coarser of both, or by a
    `step` between codes that floats were made of, as a share of the largest magnitude."""
    unit = max(UNITS.get(found.name, 0.0), UNITS.get(wanted.name, 0.0), step if is_float(found) else 0.0)
    return unit * math.sqrt(max(depth, 1)) if is_float(found) or is_float(wanted) else unit


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or (dtype.name in UNITS and DType.of(dtype).is_float)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """How far `found` is from `wanted`, of the same shape. Infinite where NaNs or infinities stand in other places."""
    return float(np.abs(deviations(found, wanted)).max(initial=0.0))


def deviations(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The errors of all finite elements, with their signs; a single infinite one where the arrays cannot be compared."""
    # texts, and what else has no difference
    if found.shape != wanted.shape or any(
        array.dtype.kind not in "fiub" and array.dtype.name not in UNITS for array in (found, wanted)
    ):
        return np.zeros(0) if np.array_equal(found, wanted) else np.array([math.inf])
    a, b = (array if array.dtype == np.float64 else array.astype(np.float64) for array in (found, wanted))
    finite = np.isfinite(b)
    if not finite.all():
        if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return np.array([math.inf])
        a, b = a[finite], b[finite]
    elif not np.isfinite(a).all():
        return np.array([math.inf])
    if a.size == 0 or not (is_float(found.dtype) or is_float(wanted.dtype)):
        return a - b
    return (a - b) / max(float(np.abs(b).max()), _LEAST)


def forms(found: np.ndarray, shape: Sequence[int]) -> Iterator[np.ndarray]:
    """The ways to see an array as one of that shape: as it is, with channels in blocks, reshaped, its axes in another order."""
    shape = tuple(shape)
    if found.shape == shape:
        yield found
        return
    if _is_blocked(found.shape, shape):
        yield unpack_channels(found, shape[1])
        return
    if found.size != math.prod(shape):
        return
    yield found.reshape(shape)
    axes = [axis for axis, size in enumerate(found.shape) if size != 1]
    wanted = [size for size in shape if size != 1]
    if len(axes) == len(wanted) <= _MOST_TRANSPOSED and sorted(found.shape[axis] for axis in axes) == sorted(wanted):
        squeezed = found.reshape([found.shape[axis] for axis in axes])
        for order in _orders(squeezed.shape, wanted):
            yield squeezed.transpose(order).reshape(shape)


def _is_blocked(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether the one may be the other, an image, with its channels in blocks."""
    return (
        len(shape) >= 3
        and len(found) == len(shape) + 1
        and found[-1] == BLOCK
        and found[0] == shape[0]
        and found[2:-1] == shape[2:]
        and found[1] == -(-shape[1] // BLOCK)
    )


def _orders(sizes: Sequence[int], wanted: Sequence[int], taken: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """The orders of axes of `sizes` that give `wanted`, but for the one that changes nothing."""
    if len(taken) == len(wanted):
        if taken != tuple(range(len(wanted))):
            yield taken
        return
    for axis, size in enumerate(sizes):
        if axis not in taken and size == wanted[len(taken)]:
            yield from _orders(sizes, wanted, (*taken, axis))


def least_error(found: np.ndarray, wanted: np.ndarray) -> float | None:
    """The error in the form that fits best; None where there is none."""
    errors = [error(form, wanted) for form in forms(found, wanted.shape)]
    return min(errors) if errors else None
