"""Operators that make tensors from attributes, or from values known only at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...formats import dims, limits
from ...formats.dims import Dim
from ...formats.dtypes import DType
from ...formats.messages.errors import ShapeError
from ...formats.types import UNKNOWN, TensorType
from .shapes import INTEGER, maximum, mismatch, require, require_rank, require_value
from .table import Attribute, Fusion, Kind, register

_DTYPE = Attribute(Kind.DTYPE, "of the result")


def _infer_constant(inputs: Sequence[TensorType], value: float, dtype: DType) -> TensorType:
    require_value(value, dtype)
    return TensorType(dtype, ())


def _constant(value: float, dtype: DType) -> np.ndarray:
    return np.asarray(value).astype(dtype.numpy)


def _infer_full(inputs: Sequence[TensorType], shape: tuple[Dim, ...], value: float, dtype: DType) -> TensorType:
    require_value(value, dtype)
    return TensorType(dtype, shape)


def _full(shape: tuple[int, ...], value: float, dtype: DType) -> np.ndarray:
    return np.full(shape, _constant(value, dtype))


def _infer_arange(inputs: Sequence[TensorType], start: Dim, stop: Dim, step: int, dtype: DType) -> TensorType:
    require_value(None, dtype)
    if step == 0:
        raise mismatch("a step other than 0", step)
    distance = dims.add(stop, dims.multiply(start, -1))
    count = dims.ceildiv(distance, step) if step > 0 else dims.ceildiv(dims.multiply(distance, -1), -step)
    return TensorType(dtype, (maximum(count, 0),))


def _arange(start: int, stop: int, step: int, dtype: DType) -> np.ndarray:
    return np.arange(start, stop, step).astype(dtype.numpy)


def _infer_shape_tensor(inputs: Sequence[TensorType], dims: tuple[Dim, ...]) -> TensorType:
    return TensorType(DType.int64, (len(dims),))


def _shape_tensor(dims: tuple[int, ...]) -> np.ndarray:
    return np.asarray(dims, np.int64)


def _infer_shape(inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(DType.int64, (inputs[0].rank,))


def _infer_nonzero(inputs: Sequence[TensorType]) -> TensorType:
    return TensorType(DType.int64, (inputs[0].rank, UNKNOWN))


def _nonzero(x: np.ndarray) -> np.ndarray:
    return np.argwhere(x).T.astype(np.int64)


def _infer_counted_nonzero(inputs: Sequence[TensorType], count: Dim) -> TensorType:
    return TensorType(DType.int64, (inputs[0].rank, count))


def _counted_nonzero(x: np.ndarray, count: int) -> np.ndarray:
    return counted(_nonzero(x), 1, count)


def counted(found: np.ndarray, axis: int, count: int) -> np.ndarray:
    """The found positions, which must be `count`. Raises ShapeError."""
    if found.shape[axis] != count:
        raise ShapeError(f"{found.shape[axis]} were found, not {count}")
    return found


def _infer_extent(inputs: Sequence[TensorType]) -> TensorType:
    require(inputs[0], INTEGER)
    require_rank(inputs[0], 0)
    return TensorType(DType.bool, (UNKNOWN,))


def _infer_extents(inputs: Sequence[TensorType]) -> TensorType:
    require(inputs[0], INTEGER)
    require_rank(inputs[0], 1)
    count = inputs[0].shape[0]
    if not isinstance(count, int) or count >= limits.RANK:
        raise mismatch(f"a vector of at most {limits.RANK - 1} numbers", inputs[0])
    return TensorType(DType.bool, (0, *(UNKNOWN,) * count))


def _extents(numbers: np.ndarray) -> np.ndarray:
    if (numbers < 0).any():
        raise ShapeError(f"sizes must be at least 0, got {numbers.tolist()}")
    return np.zeros((0, *map(int, numbers)), np.bool_)


def _infer_device_copy(inputs: Sequence[TensorType], device: str) -> TensorType:
    return inputs[0].on("")  # the pass `devices` says where it lies


def _device_copy(x: np.ndarray, device: str) -> np.ndarray:
    return x.copy()


# fmt: off
register("constant", "", _infer_constant, _constant, Fusion.ELEMENTWISE,
         "a scalar: how the definition of a primitive holds one",
         attributes={"value": Attribute(Kind.NUMBER, "the scalar"), "dtype": _DTYPE})
register("full", "", _infer_full, _full, Fusion.ELEMENTWISE,
         "one value everywhere",
         attributes={"shape": Attribute(Kind.DIMS, "of the result"),
                     "value": Attribute(Kind.NUMBER, "every element", 0.0),
                     "dtype": _DTYPE})
register("arange", "", _infer_arange, _arange, Fusion.OPAQUE,
         "start, start + step, … short of stop",
         attributes={"start": Attribute(Kind.DIM, "first element", 0),
                     "stop": Attribute(Kind.DIM, "bound that is not reached"),
                     "step": Attribute(Kind.INT, "not 0", 1),
                     "dtype": Attribute(Kind.DTYPE, "of the result", DType.int64)})
register("shape_tensor", "", _infer_shape_tensor, _shape_tensor, Fusion.OPAQUE,
         "dimensions as an int64 tensor of rank 1", attributes={"dims": Attribute(Kind.DIMS, "its elements")})
register("shape", "x", _infer_shape, lambda x: np.asarray(x.shape, np.int64), Fusion.OPAQUE,
         "the dimensions of x as an int64 tensor of rank 1")
register("device_copy", "x", _infer_device_copy, _device_copy, Fusion.OPAQUE,
         "x, and what is computed of it from there on, on a device of the program: by its name, or \"host\"",
         attributes={"device": Attribute(Kind.STRING, "where the result lies")}, takes_bits=True, varies=True)
register("nonzero", "x", _infer_nonzero, _nonzero, Fusion.OPAQUE,
         "the indices of the elements that are not zero, a column each, in row-major order", data_dependent=True)
register("counted_nonzero", "x", _infer_counted_nonzero, _counted_nonzero, Fusion.OPAQUE,
         "nonzero, where it is known how many there are",
         attributes={"count": Attribute(Kind.DIM, "of the elements that are not zero")})
register("extent", "count", _infer_extent, lambda count: np.zeros(max(int(count), 0), np.bool_), Fusion.OPAQUE,
         "as many elements as a number says, none of them true: for their dimension", data_dependent=True)
register("extents", "numbers", _infer_extents, _extents, Fusion.OPAQUE,
         "no elements, [0, numbers …]: for these dimensions, which are at least 0", data_dependent=True)
# fmt: on
