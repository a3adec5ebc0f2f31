"""What a client of a remote device and its server say to each other: frames of msgpack with bytes behind it, and errors.

Neither side ever unpickles anything: a header is plain msgpack, an error is a class of a fixed table and its text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from ..formats import errors
from ..formats.errors import ArgumentError, FormatError, RemoteError, TreadleError

SERVICE = "treadle.Remote"
VERSION = 2
MAX_HEADER = 4 << 20  # bytes of msgpack in a frame: its values take some 60 times as much for a moment
CHUNK = 1 << 20  # bytes of a message of an upload or download
INLINE = 1 << 20  # bytes of tensors that travel within a request; larger ones are uploaded before
NAME = 1024  # characters of a name
SESSION_BYTES = 16
SESSION_KEY = "treadle-session-bin"  # of an upload's metadata: whose it is, is known before its first byte comes

_LENGTH = struct.Struct("<I")
_ITEMS = 1 << 19  # in one array or map of a header
_PLACES = {"node": str, "function": str, "instruction": int, "section": str, "offset": int}
_DETAILS = {"budget": str, "layer": str}
ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TreadleError)
}


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


def unpack(frame: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header of a frame and the bytes behind it. Raises FormatError."""
    if not isinstance(frame, bytes) or len(frame) < _LENGTH.size:
        raise FormatError("a message to or from a remote device is cut off")
    (length,) = _LENGTH.unpack_from(frame)
    end = _LENGTH.size + length
    if length > MAX_HEADER or end > len(frame):
        raise FormatError(f"a message of {len(frame)} bytes says that its header has {length}, {MAX_HEADER} at most")
    data = memoryview(frame)
    try:
        header = msgpack.unpackb(
            data[_LENGTH.size : end],
            raw=False,
            strict_map_key=True,
            max_array_len=_ITEMS,
            max_map_len=64,
            max_ext_len=0,
            ext_hook=_no_extension,
        )
    except Exception as error:  # msgpack's own, and ValueError, UnicodeDecodeError, RecursionError
        raise FormatError(f"a message's header is no msgpack: {type(error).__name__}: {str(error)[:100]}") from None
    if not isinstance(header, dict):
        raise FormatError(f"a message's header is a {type(header).__name__}, expected a map")
    return header, data[end:]


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
