"""`tvm.nd`: tensors, and the devices that they may be on."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...formats.constants import aligned_copy
from ...formats.data_type import DataType, DataTypeCode
from ...rpc.tensor import RemoteTensor, write
from ...vm import device as devices
from ...vm import tensor
from ...vm.device import Device
from ...vm.dlpack import import_dlpack
from ...vm.tensor import Tensor, require_cpu

__all__ = ["DataType", "DataTypeCode", "Device", "NDArray", "array", "cpu", "device", "empty", "from_dlpack"]


class NDArray(Tensor):
    """A tensor as TVM has it: `dtype` is text, `numpy()` copies, `==` asks whether both are one tensor."""

    __slots__ = ("__weakref__",)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self._array.dtype.name

    ctx = context = Tensor.device  # as it was called before 0.8

    @property
    def handle(self) -> ctypes.c_void_p:
        """The address of its elements."""
        return ctypes.c_void_p(self._array.ctypes.data)

    is_view = False

    @staticmethod
    def of(tensor: Tensor) -> NDArray:
        """A tensor of the machine's over the same memory; one that lies at a server stays there."""
        if type(tensor) is Tensor:
            return over(tensor)
        if isinstance(tensor, NDArray):
            return tensor
        as_kind = getattr(type(tensor), "as_kind", None)  # of those that lie at a server
        return NDArray(tensor.array) if as_kind is None else as_kind(tensor, NDArray.remote_class())

    @staticmethod
    def remote_class() -> Any:
        """What a tensor of this kind is that lies at a server."""
        return RemoteNDArray

    def numpy(self) -> np.ndarray:
        """A copy of the elements."""
        return self._array.copy()

    def asnumpy(self) -> np.ndarray:
        """`numpy()`, as it was called before."""
        warnings.warn("NDArray.asnumpy is deprecated; use NDArray.numpy", DeprecationWarning, stacklevel=2)
        return self.numpy()

    def same_as(self, other: object) -> bool:
        """Whether both have the same elements in the same memory."""
        if not isinstance(other, Tensor):
            return False
        ours, theirs = self._array, other.array
        return ours is theirs or ours.__array_interface__ == theirs.__array_interface__

    def __eq__(self, other: object) -> bool:
        return self.same_as(other)

    def __ne__(self, other: object) -> bool:
        return not self.same_as(other)

    def __hash__(self) -> int:
        return hash(self._array.ctypes.data)

    def copyto(self, target: Tensor | Device, mem_scope: str | None = None) -> NDArray:
        """Copies the elements into another tensor, or into a new one on a device. Raises TypeError, ValueError."""
        return super().copyto(target)  # type: ignore[return-value]

    def to_dlpack(self) -> Any:
        """A capsule of DLPack's."""
        return self.__dlpack__()

    def _create_view(self, shape: Sequence[int], dtype: Any = None, relative_byte_offset: int = 0) -> NDArray:
        """A part of the same memory, in another shape. Raises ShapeError, a ValueError, for one that it does not hold."""
        kind = None if dtype is None else DataType(dtype).numpy
        return NDArray(self.view(shape, kind, relative_byte_offset))

    def __str__(self) -> str:
        return str(self._array)

    def __repr__(self) -> str:
        return f"<tvm.nd.NDArray shape={self.shape}, {self.device}>\n{self._array!r}"

    def __reduce__(self) -> tuple:
        return NDArray, (self._array,)


def over(tensor: Tensor) -> NDArray:
    """A tensor of this process by TVM's names."""
    made = _new(NDArray)
    made._array = tensor._array
    return made


_new = NDArray.__new__
NDArrayBase = NDArray


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


def device(dev_type: str | int, dev_id: int = 0) -> Device:
    """The device that text such as "cuda:1" names, or a code. Raises FormatError, a ValueError, ArgumentError, a TypeError."""
    return devices.device(dev_type, dev_id)


TVMContext, context = Device, device  # as they were called before 0.8


def cpu(dev_id: int = 0) -> Device:
    """The CPU, under whatever number."""
    return Device("cpu", dev_id)


def array(
    arr: Any, device: Device | None = None, mem_scope: str | None = None, *, ctx: Device | None = None
) -> NDArray:
    """A new tensor with the elements of an array, a tensor, or lists; `ctx` is what `device` was called before 0.8. Raises
    ArgumentError for a device that does not exist."""
    where: Any = device or ctx or cpu()
    if hasattr(where, "put"):  # a remote one
        return where.put(arr if isinstance(arr, Tensor) else np.asarray(arr)).as_kind(NDArray.remote_class())
    require_cpu(where, "array")
    source = arr.array if isinstance(arr, Tensor) else np.asarray(arr)
    return NDArray(aligned_copy(source))


def empty(
    shape: Sequence[int] | int,
    dtype: Any = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
    *,
    ctx: Device | None = None,
) -> NDArray:
    """A new tensor, which holds zeros; `ctx` is what `device` was called before 0.8. Raises ShapeError, FormatError for a type
    of elements, ArgumentError for a device."""
    where = device or ctx or cpu()
    if hasattr(where, "put"):
        return array(empty(shape, dtype), where)
    require_cpu(where, "empty")
    return NDArray(tensor.empty(shape, DataType(dtype).numpy))


def from_dlpack(dltensor: Any) -> NDArray:
    """A tensor over the memory of another library's tensor, or of a capsule of DLPack's. Raises ArgumentError."""
    return NDArray(import_dlpack(dltensor))


def numpyasarray(np_data: np.ndarray) -> NDArray:
    """A tensor over an array's memory."""
    return NDArray(np_data)


def gpu(dev_id: int = 0) -> Device:
    """`cuda`, as it was called before 0.8."""
    warnings.warn("tvm.gpu is deprecated; use tvm.cuda", DeprecationWarning, stacklevel=2)
    return Device("cuda", dev_id)


def _named(kind: str) -> Any:
    def make(dev_id: int = 0) -> Device:
        return Device(kind, dev_id)

    make.__name__ = make.__qualname__ = kind
    make.__doc__ = f"A device of the kind {kind}: a name, which does not exist here."
    return make


cuda, rocm, opencl, metal, vpi, vulkan, ext_dev, hexagon, webgpu = map(
    _named, ("cuda", "rocm", "opencl", "metal", "vpi", "vulkan", "ext_dev", "hexagon", "webgpu")
)
cl, mtl = opencl, metal
