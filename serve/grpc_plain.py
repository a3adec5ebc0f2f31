"""Messages of which only a tensor's elements are new: the bytes before them are looked up, not read again.

Clients send the same request again and again, with other elements. Fields of a message come in the order of their numbers, and
raw_input_contents is the last: where a message has one tensor, and the bytes before its elements are known, so is all but these.
An answer's outputs are printed once, too, and their elements after that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..formats.dtypes import DType
from .datatypes import BY_NAME
from .grpc_calls import SCANNED
from .http_tensors import elements
from .service import Request, Response
from .texts import is_texts

_MOST = 256  # that are known, and answers of each
_RAW_INPUT, _RAW_OUTPUT = b"\x3a", b"\x32"  # the keys of raw_input_contents and raw_output_contents


@dataclass(frozen=True)
class Known:
    """A message that was found right, but for the elements after `prefix`."""

    prefix: bytes
    model: str
    version: str
    name: str
    dtype: DType
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    answers: dict[tuple, bytes] = field(default_factory=dict)  # before their elements, by the tensors' types and shapes

    def request(self, data: bytes) -> Request:
        """The request of a message with this prefix."""
        tensor = elements(self.name, memoryview(data)[len(self.prefix) :], self.dtype, self.shape)
        return Request(self.model, {self.name: tensor}, self.version, "", self.outputs)


class PlainMessages:
    """Those that are known, by their lengths: of each, one."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def find(self, data: bytes) -> Known | None:
        """The known form of a message."""
        known = self._known.get(len(data))
        return known if known is not None and data.startswith(known.prefix) else None

    def learn(self, data: bytes, message: Any) -> None:
        """Remembers a message that was answered, if there is nothing unusual about it."""
        if len(data) > SCANNED or len(message.inputs) != 1 or len(message.raw_input_contents) != 1:
            return
        (tensor,), (raw,) = message.inputs, message.raw_input_contents
        if message.id or message.parameters or tensor.parameters or any(each.parameters for each in message.outputs):
            return
        prefix = data[: len(data) - len(raw)]
        dtype, shape = BY_NAME[tensor.datatype], tuple(tensor.shape)
        if not prefix.endswith(_RAW_INPUT + _varint(len(raw))) or dtype is DType.string or tensor.HasField("contents"):
            return
        if len(raw) != math.prod(shape) * dtype.itemsize:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        outputs = tuple(each.name for each in message.outputs)
        self._known[len(data)] = Known(
            prefix, message.model_name, message.model_version, tensor.name, dtype, shape, outputs
        )

    @staticmethod
    def printed(known: Known, response: Response, print_: Any) -> bytes:
        """The bytes of an answer to a known message; `print_` makes its message."""
        tensors = response.outputs.values()
        if any(map(is_texts, tensors)):
            return print_().SerializeToString()
        key = (response.version, *response.outputs, *[(array.dtype, array.shape) for array in tensors])
        prefix = known.answers.get(key)
        if prefix is None:
            message = print_()
            del message.raw_output_contents[:]
            if len(known.answers) >= _MOST:
                known.answers.clear()
            prefix = known.answers[key] = message.SerializeToString()
        parts = [prefix]
        for array in tensors:
            data = array.tobytes()
            parts += _RAW_OUTPUT, _varint(len(data)), data
        return b"".join(parts)


def _varint(number: int) -> bytes:
    """A whole number as protobuf writes it."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)
