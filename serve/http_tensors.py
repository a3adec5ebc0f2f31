"""Requests and answers of the protocol over HTTP: JSON, and after it the elements of tensors that are sent as bytes."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np

from ..formats.dtypes import DType
from ..formats.limits import RANK
from ..formats.metering import CHARACTERS, ITEMS, spans
from .datatypes import BY_NAME, NAMES, dtype_of, element_type
from .errors import BadRequestError, NotImplementedHereError, TooLargeError
from .json_pieces import SHORT, discard, listed, loads
from .parameters import options, text, whole
from .service import Request, Response
from .shared_memory import Regions
from .texts import is_texts, of_json, packed, packed_size, unpacked

MAX_TENSORS = 4096  # of a request
MAX_ELEMENTS = 1 << 40  # of a tensor; sizes of bodies bound what is really there
# the product of the other sizes of a tensor that has no elements: what is computed of it may have some
MAX_EMPTY = 1 << 24
MAX_LISTED = 1 << 20  # elements of an answer that are printed as JSON: about 600 ns each
_TEXT_BYTES = 16  # of texts, that take as long as an element
_KNOWN_HEADS, _MAX_KNOWN_HEAD = 256, 1024  # heads and answers that are remembered; bytes of a head that is


@dataclass(frozen=True)
class Wanted:
    """How a client wants an output: as bytes after the JSON, or in a shared memory region."""

    is_binary: bool
    region: str = ""
    offset: int = 0
    size: int = 0


@dataclass
class Head:
    """The JSON part of a request: what it declares, before the bytes after it are read. Not changed but for `layout`."""

    values: dict[str, Any]
    binary: int  # bytes that follow
    wanted: dict[str, Wanted] = field(default_factory=dict)
    is_binary: bool = False  # outputs that are not named
    is_long: bool = False  # takes longer to read than other clients may wait
    layout: list[tuple] | None = (
        None  # once they were found right: the inputs, if all lie after the JSON; see `_layout`
    )

    @cached_property
    def takes_bytes(self) -> bool:
        """Whether all outputs are wanted as bytes after the JSON."""
        return (
            all(each.is_binary and not each.region for each in self.wanted.values()) if self.wanted else self.is_binary
        )


def read_head(data: bytes | memoryview) -> Head:
    """The JSON of a request. A short one is remembered: clients send the same again and again. Raises BadRequestError."""
    if len(data) > _MAX_KNOWN_HEAD:
        values = read_json(data)
        try:
            head = _read_head(values)
        except BaseException:
            discard(values)
            raise
        head.is_long = len(data) > SHORT
        return head
    key = bytes(data)
    known = _known_heads.get(key)
    if known is None:
        known = _read_head(read_json(key))
        if len(_known_heads) >= _KNOWN_HEADS:
            _known_heads.clear()
        _known_heads[key] = known
    return known


_known_heads: dict[bytes, Head] = {}


def _read_head(values: dict[str, Any]) -> Head:
    inputs = values.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(each, dict) for each in inputs) or len(inputs) > MAX_TENSORS:
        raise BadRequestError(f"inputs: expected a list of at most {MAX_TENSORS} tensors")
    binary = 0
    for each in inputs:
        parameters = _parameters(each)
        if "binary_data_size" in parameters:
            binary += whole(parameters["binary_data_size"], "binary_data_size")
    head = Head(values, binary, is_binary=_parameters(values).get("binary_data_output") is True)
    outputs = values.get("outputs", [])
    if (
        not isinstance(outputs, list)
        or not all(isinstance(each, dict) for each in outputs)
        or len(outputs) > MAX_TENSORS
    ):
        raise BadRequestError(f"outputs: expected a list of at most {MAX_TENSORS} tensors")
    for each in outputs:
        parameters = _parameters(each)
        if parameters.get("classification"):
            raise NotImplementedHereError("outputs cannot be classified here: take the scores")
        region = text(parameters.get("shared_memory_region", ""), "shared_memory_region")
        head.wanted[text(each.get("name"), "an output's name")] = Wanted(
            parameters.get("binary_data", head.is_binary) is True,
            region,
            whole(parameters.get("shared_memory_offset", 0), "shared_memory_offset"),
            whole(parameters.get("shared_memory_byte_size", 0), "shared_memory_byte_size"),
        )
    return head


def read_json(data: bytes | memoryview) -> dict[str, Any]:
    """A JSON object; {} of no bytes. Raises BadRequestError."""
    if not len(data):
        return {}
    values = loads(data)
    if not isinstance(values, dict):
        discard(values)
        raise BadRequestError(f"the body is no JSON object, but a {type(values).__name__}")
    return values


def make_request(head: Head, binary: memoryview, model: str, version: str, regions: Regions) -> Request:
    """The call that a request asks for; tensors lie where they were read. Raises BadRequestError."""
    values = head.values
    if head.layout is not None:
        inputs = {name: elements(name, binary[at:end], dtype, shape) for name, dtype, shape, at, end in head.layout}
    else:
        inputs = {}
        at = 0
        for each in values["inputs"]:
            name = text(each.get("name"), "an input's name")
            if name in inputs:
                raise BadRequestError(f"input {name!r} comes twice")
            inputs[name], at = _tensor(name, each, binary, at, regions)
        head.layout = _layout(values["inputs"])
    return Request(
        model, inputs, version, text(values.get("id", ""), "id"), tuple(head.wanted), *options(_parameters(values))
    )


def _layout(entries: list[dict]) -> list[tuple[str, DType, tuple[int, ...], int, int]] | None:
    """Of inputs that were found right: name, element type, shape, where the bytes begin and end; None unless all are bytes."""
    found, at = [], 0
    for each in entries:
        parameters = _parameters(each)
        if "binary_data_size" not in parameters or "shared_memory_region" in parameters:
            return None
        end = at + parameters["binary_data_size"]
        found.append((each["name"], BY_NAME[each["datatype"]], tuple(each["shape"]), at, end))
        at = end
    return found


def print_response(response: Response, head: Head, regions: Regions) -> tuple[bytes, list[np.ndarray]]:
    """The JSON of an answer, and the tensors whose bytes are after it. JSON that says no more than shapes is remembered. Raises
    BadRequestError for a region that does not suit."""
    tensors = response.outputs.values()
    if response.id or not head.takes_bytes or any(map(is_texts, tensors)):
        return _print_response(response, head, regions)
    layout = tuple([(array.dtype, array.shape) for array in tensors])
    key = (response.model, response.version, tuple(response.outputs), layout)
    text = _known_answers.get(key)
    if text is None:
        text, _ = _print_response(response, head, regions)
        if len(_known_answers) >= _KNOWN_HEADS:
            _known_answers.clear()
        _known_answers[key] = text
    return text, [np.ascontiguousarray(array) for array in tensors if array.size]


_known_answers: dict[tuple, bytes] = {}


def is_long(response: Response, head: Head) -> bool:
    """Whether an answer takes longer to print than other clients may wait."""
    if head.takes_bytes:
        return False
    tensors = response.outputs.values()
    if sum(array.size for array in tensors) > ITEMS:
        return True
    return sum(sum(map(len, array.reshape(-1).tolist())) for array in tensors if is_texts(array)) > CHARACTERS


def _print_response(response: Response, head: Head, regions: Regions) -> tuple[bytes, list[np.ndarray]]:
    outputs: list[str] = []
    binary: list[np.ndarray] = []
    unnamed = Wanted(head.is_binary)
    count = 0
    for name, array in response.outputs.items():
        wanted = head.wanted.get(name, unnamed)
        entry: dict[str, Any] = {"name": name, "datatype": NAMES[element_type(array)], "shape": list(array.shape)}
        if is_texts(array) and (wanted.region or wanted.is_binary):
            array = np.frombuffer(packed(array), np.uint8)
        if wanted.region:
            regions.write(wanted.region, wanted.offset, wanted.size, array)
            entry["parameters"] = {
                "shared_memory_region": wanted.region,
                "shared_memory_byte_size": array.nbytes,
                "shared_memory_offset": wanted.offset,
            }
        elif wanted.is_binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            if array.size:
                binary.append(np.ascontiguousarray(array))
        else:
            count += packed_size(array) // _TEXT_BYTES + array.size if is_texts(array) else array.size
            if count > MAX_LISTED:
                raise TooLargeError(
                    f"output {name!r}: more than {MAX_LISTED} elements of an answer as JSON; ask for bytes (binary_data)"
                )
            outputs.append(f'{json.dumps(entry)[:-1]}, "data": {listed(array)}}}')
            continue
        outputs.append(json.dumps(entry))
    answer = {"model_name": response.model, "model_version": response.version} | (
        {"id": response.id} if response.id else {}
    )
    return f'{json.dumps(answer)[:-1]}, "outputs": [{", ".join(outputs)}]}}'.encode(), binary


# ---- tensors ----


def _tensor(name: str, entry: dict, binary: memoryview, at: int, regions: Regions) -> tuple[np.ndarray, int]:
    """An input, and where the next one's bytes begin."""
    dtype, shape = dtype_of(entry.get("datatype"), name), read_shape(entry.get("shape"), name)
    parameters = _parameters(entry)
    count = math.prod(shape)
    if "shared_memory_region" in parameters:
        size = whole(parameters.get("shared_memory_byte_size"), "shared_memory_byte_size")
        check_size(name, dtype, shape, size)
        offset = whole(parameters.get("shared_memory_offset", 0), "shared_memory_offset")
        region = text(parameters["shared_memory_region"], "shared_memory_region")
        return elements(name, regions.read(region, offset, size).data, dtype, shape), at
    if "binary_data_size" in parameters:
        size = whole(parameters["binary_data_size"], "binary_data_size")
        check_size(name, dtype, shape, size)
        if at + size > len(binary):
            raise BadRequestError(f"input {name!r}: the body ends within its bytes")
        return elements(name, binary[at : at + size], dtype, shape), at + size
    data = entry.get("data")
    if not isinstance(data, list):
        raise BadRequestError(f"input {name!r}: it has no data")
    return _listed(name, data, dtype, shape, count), at


def elements(name: str, data: memoryview, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """The tensor whose elements, little-endian, are these bytes. A boolean is true where its byte is not 0. Raises
    BadRequestError."""
    if dtype is DType.string:
        return unpacked(name, data, shape, math.prod(shape))
    array = np.frombuffer(data, _wire(dtype), math.prod(shape)).reshape(shape)
    if dtype is DType.bool:
        return array != 0
    if not array.flags.aligned:  # as three of four are that lie after JSON: calls would take 25 us to do this
        return array.astype(dtype.numpy)
    return array.astype(dtype.numpy, copy=False)


@cache
def _wire(dtype: DType) -> np.dtype:
    """How elements travel. Where that is how they lie in memory, it is NumPy's own object: calls know it at a glance, an equal
    one costs them 17 us."""
    if dtype is DType.bool:
        return np.dtype(np.uint8)
    return dtype.numpy if sys.byteorder == "little" else dtype.numpy.newbyteorder("<")


def check_size(name: str, dtype: DType, shape: tuple[int, ...], size: int) -> None:
    """Raises BadRequestError unless a tensor takes `size` bytes."""
    if dtype is DType.string:
        return  # that is seen when they are read
    expected = math.prod(shape) * dtype.itemsize
    if size != expected:
        raise BadRequestError(f"input {name!r}: {NAMES[dtype]} {list(shape)} takes {expected} bytes, got {size}")


def read_shape(shape: Any, name: str) -> tuple[int, ...]:
    """Raises BadRequestError."""
    if not isinstance(shape, (list, tuple)) or len(shape) > RANK or not all(map(_is_size, shape)):
        raise BadRequestError(f"input {name!r}: its shape is not a list of at most {RANK} sizes")
    if math.prod(max(size, 1) for size in shape) > (MAX_ELEMENTS if all(shape) else MAX_EMPTY):
        raise TooLargeError(f"input {name!r}: a tensor of shape {list(shape)} has too many elements")
    return tuple(shape)


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size < 1 << 62


def _listed(name: str, data: list, dtype: DType, shape: tuple[int, ...], count: int) -> np.ndarray:
    """The tensor of numbers in lists, flat or nested. Types are looked at before NumPy makes elements of them: one long text
    among numbers would make each of them as long."""
    values, kinds = data, _kinds(data)
    while list in kinds:
        lengths = {len(each) if type(each) is list else -1 for each in values}
        if len(lengths) > 1:
            raise BadRequestError(f"input {name!r}: its data are lists of different lengths")
        flat: list[Any] = []
        for each in values:
            flat += each
        values = flat
        kinds = _kinds(values)
    if len(values) != count:
        raise BadRequestError(f"input {name!r}: {list(shape)} has {count} elements, got {len(values)}")
    if dtype is DType.string:
        if not kinds <= {str}:
            raise BadRequestError(f"input {name!r}: its data are not texts")
        return of_json(name, values, shape)
    if count == 0:
        return np.zeros(shape, dtype.numpy)
    if not kinds <= ({bool} if dtype is DType.bool else {int} if dtype.is_integer else {int, float}):
        raise BadRequestError(f"input {name!r}: its data are not elements of {NAMES[dtype]}")
    made = np.empty(count, dtype.numpy)
    for piece in spans(count):
        made[piece] = _converted(name, values[piece], dtype)
    return made.reshape(shape)


def _kinds(values: list) -> set[type]:
    found: set[type] = set()
    for piece in spans(len(values)):
        found.update(map(type, values[piece]))
    return found


def _converted(name: str, values: list, dtype: DType) -> np.ndarray:
    if dtype.is_integer:
        least, greatest = dtype.bounds
        if min(values) < least or max(values) > greatest:
            raise BadRequestError(f"input {name!r}: {NAMES[dtype]} holds {least} to {greatest}")
    try:
        with np.errstate(over="ignore"):
            return np.array(values, dtype.numpy)
    except OverflowError:
        raise BadRequestError(f"input {name!r}: a whole number is larger than any {NAMES[dtype]}") from None


# ---- fields ----


def _parameters(entry: dict) -> dict[str, Any]:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise BadRequestError("parameters: expected an object")
    return parameters
