"""The protocol of remote devices: frames of msgpack followed by bytes, and errors.

Neither side ever unpickles anything: a header is plain msgpack, an error is a class of a fixed table and its text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from ..formats.messages import errors
from ..formats.messages.errors import ArgumentError, FormatError, RemoteError, TreadleError

SERVICE = "treadle.Remote"
VERSION = 2
MAX_HEADER = 4 << 20  # bytes of msgpack in a frame
CHUNK = 1 << 20  # bytes of a message of an upload or download
INLINE = 1 << 20  # bytes of tensors that travel within a request; larger ones are uploaded before
NAME = 1024  # characters of a name
SESSION_BYTES = 16
SESSION_KEY = "treadle-session-bin"  # of an upload's metadata: whose it is, is known before its first byte comes

_LENGTH = struct.Struct("<I")
STEPS = 3 << 20  # that a message may ask for: see `Steps`
_CONTAINER = 4  # steps to make an array or a map
_SMALL = 4096  # bytes of a header that is unpacked in one call
_KEYS = 64  # of a map
_NESTING = 64  # of arrays and maps
_PLACES = {
    "node": str,
    "function": str,
    "instruction": int,
    "depth": int,
    "iterations": str,
    "section": str,
    "offset": int,
}
_DETAILS = {"budget": str, "layer": str}
ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TreadleError)
}


class Steps:
    """The cost of a message, counted in advance: a step is about a microsecond, and one or two Python objects.

    One counter goes with a message from its first byte on: values of its header, values that these are made into, what it lets go
    of and asks for again and again.
    """

    __slots__ = ("_left",)

    def __init__(self, most: int = STEPS) -> None:
        self._left = most

    def spend(self, count: float) -> None:
        """Raises FormatError where too few are left."""
        self._left -= count  # type: ignore[assignment]
        if not self._left >= 0:
            raise FormatError("a message asks for more work than a server does for one; ask for it in several")


def pack(header: Any, parts: Sequence[Any] = ()) -> bytes:
    """A frame. Raises ArgumentError for what cannot be written, as a number of more than 64 bits, and FormatError where the
    header is too large."""
    try:
        head = msgpack.packb(header, use_bin_type=True)
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentError(f"a message to or from a remote device cannot be written: {error}") from None
    if len(head) > MAX_HEADER:
        raise FormatError(f"a message to or from a remote device has {len(head)} bytes of values, {MAX_HEADER} at most")
    return b"".join((_LENGTH.pack(len(head)), head, *parts))


def unpack(frame: bytes, steps: Steps | None = None) -> tuple[dict[str, Any], memoryview]:
    """The header of a frame, whose values `steps` counts, and the bytes after it. Raises FormatError."""
    if not isinstance(frame, bytes) or len(frame) < _LENGTH.size:
        raise FormatError("a message to or from a remote device is cut off")
    (length,) = _LENGTH.unpack_from(frame)
    end = _LENGTH.size + length
    if length > MAX_HEADER or end > len(frame):
        raise FormatError(f"a message of {len(frame)} bytes says that its header has {length}, {MAX_HEADER} at most")
    data = memoryview(frame)
    try:
        header = _value(data[_LENGTH.size : end], steps or Steps())
    except FormatError:
        raise
    except Exception as error:  # msgpack's own, and ValueError, UnicodeDecodeError
        raise FormatError(f"a message's header is not msgpack: {type(error).__name__}: {str(error)[:100]}") from None
    if not isinstance(header, dict):
        raise FormatError(f"a message's header is a {type(header).__name__}, expected a map")
    return header, data[end:]


def _value(data: memoryview, steps: Steps) -> Any:
    """The value of msgpack bytes. Arrays and maps are walked here: msgpack would make all of them in one call, which may take
    seconds, and which no other thread of Python's interrupts."""
    options = {"raw": False, "strict_map_key": True, "max_ext_len": 0, "ext_hook": _no_extension}
    if len(data) <= _SMALL:
        steps.spend(_CONTAINER * len(data))
        return msgpack.unpackb(data, **options)
    unpacker = msgpack.Unpacker(**options)
    unpacker.feed(data)
    whole: list[Any] = []
    open_: list[tuple[list[Any], int, bool]] = [(whole, 1, False)]  # items so far, how many there will be; of a map?
    while True:
        items, count, is_map = open_[-1]
        if len(items) == count:
            open_.pop()
            if not open_:
                break
            if is_map:
                open_[-1][0][-1] = _map(items)
            continue
        first = data[unpacker.tell()]
        if _is_array(first) or _is_map(first):
            size = unpacker.read_array_header() if _is_array(first) else 2 * unpacker.read_map_header()
            if size > len(data) or len(open_) > _NESTING or (_is_map(first) and size > 2 * _KEYS):
                raise ValueError(f"{size} values, or more than {_NESTING} lists in each other")
            steps.spend(_CONTAINER + size)
            items.append([])
            open_.append((items[-1], size, _is_map(first)))
        else:
            items.append(unpacker.unpack())
    if unpacker.tell() != len(data):
        raise ValueError("something stands behind it")
    return whole[0]


def _is_array(first: int) -> bool:
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def _is_map(first: int) -> bool:
    return 0x80 <= first <= 0x8F or first in (0xDE, 0xDF)


def _map(items: list[Any]) -> dict[Any, Any]:
    keys = items[::2]
    if not all(isinstance(key, (str, bytes)) for key in keys):
        raise ValueError("a key that is not text")
    return dict(zip(keys, items[1::2], strict=True))


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension {code}")


def error_to_wire(error: TreadleError) -> dict[str, Any]:
    """An error's class, text and places."""
    name = next((each.__name__ for each in type(error).__mro__ if ERRORS.get(each.__name__) is each), "TreadleError")
    found: dict[str, Any] = {"class": name, "message": str(getattr(error, "message", error))[:8000]}
    for place, kind in (_PLACES | _DETAILS).items():
        value = getattr(error, place, None)
        if isinstance(value, kind):
            found[place] = value
    return found


def error_of_wire(found: Any) -> TreadleError:
    """The error that was told of; of a class that is not in the table, a RemoteError."""
    if not isinstance(found, dict):
        return RemoteError("the server answered with an error that it does not name")
    kind = ERRORS.get(str(found.get("class")), RemoteError)
    places = {place: found[place] for place, type_ in _PLACES.items() if isinstance(found.get(place), type_)}
    text = str(found.get("message", ""))
    if kind.__init__ is TreadleError.__init__:
        error = kind(text, **places)
    else:  # constructors differ, and may change the text
        error = kind.__new__(kind)
        TreadleError.__init__(error, text, **places)
    for name in _DETAILS:
        if isinstance(found.get(name), str):
            setattr(error, name, found[name])
    return error
