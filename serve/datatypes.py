"""The protocol's names of element types."""

from __future__ import annotations

import numpy as np

from ..formats.dtypes import DType
from ..formats.ports import Port
from ..formats.types import TensorType
from .errors import BadRequestError

NAMES = {dtype: dtype.protocol for dtype in DType}
BY_NAME = {name: dtype for dtype, name in NAMES.items()}


def described(port: Port) -> tuple[str, list[int]]:
    """A tensor's element type and shape, in which a size that may be any is -1."""
    assert isinstance(port.type, TensorType)
    return NAMES[port.type.dtype], [dim if isinstance(dim, int) else -1 for dim in port.type.shape]


def element_type(array: np.ndarray) -> DType:
    """That of an array; one of Python's objects has texts."""
    return DType.string if array.dtype.kind == "O" else DType.of(array.dtype)


def dtype_of(name: object, tensor: str) -> DType:
    """The element type of that name. Raises BadRequestError."""
    found = BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        raise BadRequestError(f"tensor {tensor!r}: no datatype {name!r}; there are {', '.join(BY_NAME)}")
    return found
