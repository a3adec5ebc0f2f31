"""The protocol's names of element types. Strings (BYTES) and BF16 are no elements of Treadle's tensors."""

from __future__ import annotations

from ..formats.dtypes import DType
from ..formats.ports import Port
from ..formats.types import TensorType
from .errors import BadRequestError

NAMES: dict[DType, str] = {
    DType.bool: "BOOL",
    DType.int8: "INT8",
    DType.int16: "INT16",
    DType.int32: "INT32",
    DType.int64: "INT64",
    DType.uint8: "UINT8",
    DType.uint16: "UINT16",
    DType.uint32: "UINT32",
    DType.uint64: "UINT64",
    DType.float16: "FP16",
    DType.float32: "FP32",
    DType.float64: "FP64",
}
BY_NAME = {name: dtype for dtype, name in NAMES.items()}


def described(port: Port) -> tuple[str, list[int]]:
    """A tensor's element type and shape, in which a size that may be any is -1."""
    assert isinstance(port.type, TensorType)
    return NAMES[port.type.dtype], [dim if isinstance(dim, int) else -1 for dim in port.type.shape]


def dtype_of(name: object, tensor: str) -> DType:
    """The element type of that name. Raises BadRequestError."""
    found = BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        raise BadRequestError(f"tensor {tensor!r}: no datatype {name!r}; there are {', '.join(BY_NAME)}")
    return found
