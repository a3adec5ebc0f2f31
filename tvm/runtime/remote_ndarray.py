"""Tensors of remote sessions, as `tvm.nd` has tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...remote.tensor import RemoteTensor
from ...vm.tensor import Tensor
from .ndarray import NDArray


class RemoteNDArray(RemoteTensor, NDArray):  # type: ignore[misc]  # `handle` is that of the server's value
    """A tensor at a server, whose elements come when they are asked for. What is written into it (`copyfrom`) goes there."""

    __slots__ = ()

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.element_type.name

    ctx = context = RemoteTensor.device

    def copyfrom(self, source: Any) -> RemoteNDArray:
        """Overwrites the elements, which go to the server. Raises ShapeError, ArgumentError for a tensor that was not put
        there, but computed."""
        from ...remote.tensor import write

        array = np.array(self._array)
        Tensor(array).copyfrom(source)
        write(self.handle.connection, array, self)
        return self

    def __repr__(self) -> str:
        return f"<tvm.nd.NDArray shape={self.shape}, {self.device}>"

    def __reduce__(self) -> tuple:
        return NDArray, (self._array,)


def as_ndarray(tensor: Tensor) -> Tensor:
    """A tensor that came from a server by TVM's names."""
    return tensor.as_kind(RemoteNDArray) if isinstance(tensor, RemoteTensor) else NDArray(tensor.array)
