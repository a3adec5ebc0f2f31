"""From the tensors of an ONNX model to arrays.

Elements of fewer than 8 bits, of which ONNX packs several into a byte, have a byte each in memory.

External data is read only from files in the model's own folder, and only as much as the tensor declares.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...formats.constants import from_bytes
from ...formats.dtypes import DType
from ...formats.messages.errors import CompileError, DTypeError, FormatError, ModelError
from ...formats.strings import to_numbers
from ...formats.types import TensorType, size_problem
from .. import effort

if TYPE_CHECKING:
    import onnx


def element_type(code: int) -> DType:
    """The element type of that ONNX code. Raises DTypeError for one that Treadle does not have."""
    try:
        return DType.from_onnx(code)
    except DTypeError:
        import onnx

        known = {value: name for name, value in onnx.TensorProto.DataType.items()}
        raise DTypeError(f"tensors of {known.get(code, f'the unknown type {code}')} are not supported") from None


def to_array(tensor: onnx.TensorProto, folder: Path | None, raw: np.ndarray | None = None) -> np.ndarray:
    """The elements of a tensor of the model, read-only. `raw` are those that are not in the message, as bytes.

    Raises DTypeError for an element type that Treadle does not have, ModelError for data that do not fit the shape.
    """
    import onnx
    from onnx import numpy_helper

    dtype = element_type(tensor.data_type)
    bits = dtype.value.bits if dtype.value.bits < 8 else 0
    count = math.prod(tensor.dims)
    if size_problem(TensorType(dtype, tuple(tensor.dims))):
        raise ModelError(f"tensor {tensor.name!r} has the impossible shape {list(tensor.dims)}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        size = -(-count * bits // 8) if bits else count * dtype.itemsize
        content = _external_bytes(tensor, size, folder)
        if not bits:
            try:
                return from_bytes(TensorType(dtype, tuple(tensor.dims)), content)
            except FormatError as error:
                raise ModelError(f"tensor {tensor.name!r}: {error.message}") from None
        tensor = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=content.tobytes())
    if dtype.is_string:
        return _texts(tensor)
    try:
        array = numpy_helper.to_array(tensor) if raw is None else raw.view(dtype.numpy)
        array = np.ascontiguousarray(array).reshape(tuple(tensor.dims))
    except (ValueError, TypeError) as error:
        raise ModelError(f"tensor {tensor.name!r} of {dtype.name}{list(tensor.dims)}: {error}") from None
    array.flags.writeable = False
    return array


def dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray:
    """The elements of a sparse tensor, and the zeros between them, read-only. Indices are places in the tensor as one row, or a
    row of indices for each element. Raises as `to_array`, and CompileError for a tensor that takes more room than compiling may.
    """
    values, indices = to_array(sparse.values, folder), to_array(sparse.indices, folder)
    name, shape = sparse.values.name, tuple(sparse.dims)
    dtype = DType.of(values.dtype)
    type_ = TensorType(dtype, shape)
    if min(shape, default=0) < 0 or size_problem(type_):
        raise ModelError(f"sparse tensor {name!r} has the impossible shape {list(shape)}")
    count = len(values) if values.ndim == 1 else -1
    if dtype.is_string or indices.dtype != np.int64 or indices.shape not in ((count,), (count, len(shape))):
        raise ModelError(
            f"sparse tensor {name!r} of {type_}: expected values [n] and int64 indices [n] or [n, {len(shape)}], but got "
            f"{dtype.name}{list(values.shape)} and {indices.dtype}{list(indices.shape)}"
        )
    most = shape if indices.ndim == 2 else (math.prod(shape),)
    if indices.size and (indices.min() < 0 or (indices.reshape(count, -1).max(axis=0) >= np.array(most)).any()):
        raise ModelError(f"sparse tensor {name!r} of {type_}: an index is outside of it")
    given = [TensorType(DType.of(each.dtype), each.shape) for each in (values, indices)]
    if not effort.may_grow(given, [type_]) or not effort.take(0, type_.nbytes):
        raise CompileError(
            f"sparse tensor {name!r}: {type_} takes {type_.nbytes} bytes, more than the model's size explains"
        )
    array = np.zeros(shape, values.dtype)
    if indices.ndim == 2:
        array[tuple(indices.T)] = values
    else:
        array.reshape(-1)[indices] = values
    array.flags.writeable = False
    return array


def _texts(tensor: onnx.TensorProto) -> np.ndarray:
    """A string tensor's elements."""
    shape = tuple(tensor.dims)
    if len(tensor.string_data) != math.prod(shape):
        raise ModelError(f"tensor {tensor.name!r} of string{list(shape)} has {len(tensor.string_data)} texts")
    try:
        texts = np.array([text.decode() for text in tensor.string_data], object)
    except UnicodeDecodeError as error:
        raise ModelError(f"tensor {tensor.name!r}: a text is not UTF-8: {error}") from None
    array = to_numbers(texts.reshape(shape))
    array.flags.writeable = False
    return array


def _external_bytes(tensor: onnx.TensorProto, nbytes: int, folder: Path | None) -> np.ndarray:
    """Memory-maps `nbytes` of a tensor's external data."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise ModelError(
            f"tensor {tensor.name!r} lies in the file {location!r} beside the model: compile the model from its path"
        )
    path = _contained(folder, location, tensor.name)
    try:
        offset, length = int(fields.get("offset", 0)), int(fields.get("length", nbytes))
        size = path.stat().st_size
    except (ValueError, OSError) as error:
        raise ModelError(f"external data of tensor {tensor.name!r}: {error}") from None
    if length != nbytes or offset < 0 or offset > size - nbytes:
        raise ModelError(
            f"tensor {tensor.name!r} needs {nbytes} bytes from byte {offset} of {location!r} "
            f"(declared: {length}), which has {size}"
        )
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (nbytes,))


def _contained(folder: Path, location: str, tensor: str) -> Path:
    """The file `location` in `folder`. Raises ModelError for one that leads out of it, be it by a link."""
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or not path.is_relative_to(root) or not path.is_file():
        raise ModelError(f"tensor {tensor!r} refers to {location!r}, which is not a file in the model's folder")
    return path
