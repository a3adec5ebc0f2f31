"""Remote values: handles, and tensors whose elements are fetched on demand."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..formats.constants import aligned_copy
from ..formats.dtypes import DType
from ..formats.messages.errors import ArgumentError, RemoteError
from ..vm.device import Device
from ..vm.in_process import InProcess
from ..vm.tensor import Tensor
from ..vm.values import Closure, DataValue
from .connection import Connection
from .values import Reader, Writer, array_of, as_array, plain, read_type
from .wire import INLINE, NAME


class Handle(InProcess):
    """A value at a server, let go of when this object goes."""

    __slots__ = ("__weakref__", "connection", "constants", "number", "owner", "word")

    instead = "read the elements of its tensor, or the fields of its value"

    def __init__(self, connection: Connection, number: Any, owner: object = None) -> None:
        """Raises RemoteError for anything but a number."""
        if type(number) is not int:
            raise RemoteError(f"{connection.address}: the server gave a handle that is not a number")
        self.connection, self.number = connection, number
        self.owner, self.word, self.constants = owner, 1, None  # as values of this process have them
        weakref.finalize(self, connection.release, number).atexit = False


class RemoteTensor(Tensor):
    """A tensor at a server. Its elements come when they are asked for, once; what is written into these stays here."""

    __slots__ = ("_dtype", "_found", "_shape", "handle")

    def __init__(self, handle: Handle, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.handle, self._dtype, self._shape = handle, dtype, shape
        self._found: np.ndarray | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """As a tensor with its elements."""
        return Tensor, (self._array,)

    @property
    def _array(self) -> np.ndarray:  # type: ignore[override]
        if self._found is None:
            data = self.handle.connection.download({"handle": self.handle.number})
            self._found = array_of(data, self._dtype, self._shape)
        return self._found

    @property
    def is_here(self) -> bool:
        """Whether its elements have come."""
        return self._found is not None

    def forget(self) -> None:
        """Its elements at the server are others now: they come again when they are asked for."""
        self._found = None

    @property
    def element_type(self) -> np.dtype:
        """As NumPy has it."""
        return self._dtype

    def as_kind(self, kind: type[RemoteTensor]) -> RemoteTensor:
        """The same tensor as another class has it."""
        return kind(self.handle, self._dtype, self._shape)

    def in_shape(self, shape: tuple[int, ...]) -> RemoteTensor:
        """The same elements in another shape."""
        return type(self)(self.handle, self._dtype, shape)

    @property
    def device(self) -> Device:
        return self.handle.connection.device

    @property
    def dtype(self) -> DType:
        return DType.of(self._dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        return self.size * self._dtype.itemsize

    def __len__(self) -> int:
        return self._shape[0] if self._shape else len(self._array)

    def alias(self) -> Tensor:
        return self

    def __repr__(self) -> str:
        place = self.handle.connection.address
        return f"{type(self).__name__}({self._dtype.name}{list(self._shape)}, at {place!r})"


def put(connection: Connection, value: Any) -> RemoteTensor:
    """A copy of a tensor at the server."""
    array = as_array(value)
    handle = Handle(connection, connection.upload_array(array))
    return RemoteTensor(handle, plain(array[:0] if array.ndim else array)[0].dtype, array.shape)


def shared(connection: Connection, array: np.ndarray) -> RemoteTensor:
    """An array at the server that nobody writes to: the same elements are put there once, as long as anybody uses them."""
    array, name = plain(array)
    made = hashlib.sha256(f"{name}{array.shape}".encode())
    made.update(array.reshape(-1).view(np.uint8).data)
    found = connection.shared.get(made.digest())
    if found is None:
        found = connection.shared[made.digest()] = Handle(connection, connection.upload_array(array))
    return RemoteTensor(found, array.dtype, array.shape)


def copied(connection: Connection, value: RemoteTensor) -> Tensor:
    """A copy at the server."""
    header = {"do": "copy", "args": [0], "values": [["handle", value.handle.number]]}
    answer, data = connection.ask(header)
    reader = Reader(answer.get("values"), data, lambda node: tensor_at(connection, node), taken)
    return reader.take(answer.get("result"))


def write(connection: Connection, value: Any, target: RemoteTensor) -> None:
    """Copies a tensor into one that was put there, which has its shape and element type."""
    kept: list[Any] = []
    writer = Writer(lambda writer, each: node_of(connection, each, kept, writer))
    header = {"do": "copy", "args": [writer.add(value)], "into": [target.handle.number]}
    connection.ask({**header, "values": writer.nodes}, writer.parts)
    target.forget()


def has_function(connection: Connection, name: str) -> bool:
    """Whether the server's owner has registered a function."""
    return connection.ask({"do": "has_function", "name": name})[0].get("has") is True


def taken(array: np.ndarray) -> Tensor:
    """A result that came along; it is the caller's, who may write to it."""
    return Tensor(aligned_copy(array))


def tensor_at(connection: Connection, node: Sequence[Any]) -> RemoteTensor:
    """The tensor that a node of an answer describes. Raises RemoteError."""
    if len(node) != 4 or node[0] != "remote":
        raise RemoteError(f"{connection.address}: the server gave something else than tensors")
    return RemoteTensor(Handle(connection, node[1]), *read_type(*node[2:]))


def node_of(connection: Connection, value: Any, kept: list[Any], writer: Writer) -> list[Any] | None:
    """The node of what lies at the server, or is too large to travel with the request; `kept` is to live until that is over."""
    handle: Any = value.handle if isinstance(value, RemoteTensor) else None
    if isinstance(value, (DataValue, Closure)):
        handle = value.native if isinstance(value.native, Handle) else None
    if handle is not None and handle.connection is connection:
        kept.append(value)
        return ["handle", handle.number]
    if isinstance(value, (DataValue, Closure, bool, int, float, list, tuple)) or value is None:
        return None
    try:
        array = as_array(value)
    except ArgumentError:  # the machine says which argument that is
        return ["alien", type(value).__name__[:NAME]]
    if array.nbytes + sum(map(len, writer.parts)) <= INLINE:
        return None
    uploaded = Handle(connection, connection.upload_array(array))
    kept.append(uploaded)
    return ["handle", uploaded.number]


def call_registered(
    connection: Connection,
    name: str | Handle,
    args: Sequence[Any],
    tensor: Callable[[Tensor], Any] = lambda tensor: tensor,
) -> Any:
    """Calls a function that the server's owner has registered, or one that such a function gave: tensors, numbers, text, bytes
    and tuples of these in and out, functions out. `tensor` makes what tensors of the result become."""
    kept: list[Any] = []

    def special(writer: Writer, value: Any) -> list[Any] | None:
        if isinstance(value, str):
            return ["text", str(value)]
        if isinstance(value, (bytes, bytearray)):
            return ["bytes", bytes(value)]
        return node_of(connection, value, kept, writer)

    def result(node: list[Any]) -> Any:
        if node[0] in ("text", "bytes", "number") and len(node) == 2:
            return node[1]
        if node[0] == "function" and len(node) == 2:
            handle = Handle(connection, node[1])
            return lambda *args: call_registered(connection, handle, args, tensor)
        return tensor(tensor_at(connection, node))

    writer = Writer(special)
    numbers = [writer.add(value) for value in args]
    what = {"function": name} if isinstance(name, str) else {"held": name.number}
    header = {"do": "function", **what, "values": writer.nodes, "args": numbers}
    answer, data = connection.ask(header, writer.parts)
    return Reader(answer.get("values"), data, result, lambda array: tensor(taken(array))).take(answer.get("result"))


def require_remote(connection: Connection, place: str, value: Any) -> RemoteTensor:
    """The value, if it is a tensor of this session: nothing else can be used where it lies. Raises ArgumentError."""
    if not isinstance(value, RemoteTensor) or value.handle.connection is not connection:
        raise ArgumentError(
            f"{place}: expected a tensor that lies at {connection.address}, got a {type(value).__name__}; "
            "device.put(array) makes one"
        )
    return value
