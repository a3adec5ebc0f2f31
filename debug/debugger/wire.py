"""The messages of the Debug Adapter Protocol: JSON behind a header that says its length. What is larger than the bounds, or has
no such header, ends the connection: a page of a browser, which speaks HTTP, is not read further than its first line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from ...formats.messages.errors import ArgumentError

MOST_HEADER_BYTES = 1024
MOST_BODY_BYTES = 4 << 20
_HEADERS = (b"content-length", b"content-type")


class ConnectionFailure(Exception):
    """What arrives is not this protocol: nobody can tell where the next message begins."""


class Wire:
    """Both directions of a connection. Any thread may send; one reads."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source, self._sink, self._lock, self._count = source, sink, threading.Lock(), 0

    def requests(self) -> Iterator[dict[str, Any]]:
        """The requests of the client until it goes. Malformed ones are answered here. Raises ConnectionFailure, OSError."""
        while (size := self._header()) is not None:
            body = self._source.read(size)
            if len(body) < size:
                return
            try:
                message = json.loads(body)
            except (ValueError, RecursionError) as error:
                self.respond({}, ArgumentError(f"the message is not JSON: {str(error)[:100]}"))
                continue
            wrong = _malformed(message)
            if wrong:
                self.respond(message if isinstance(message, dict) else {}, ArgumentError(wrong))
            else:
                yield message

    def _header(self) -> int | None:
        """How long the next message is; None at the end of what arrives."""
        size, read = None, 0
        while line := self._source.readline(MOST_HEADER_BYTES):
            read += len(line)
            if line == b"\r\n" and size is not None:
                return size
            name, colon, value = line.partition(b":")
            if read > MOST_HEADER_BYTES or not colon or not line.endswith(b"\r\n") or name.lower() not in _HEADERS:
                raise ConnectionFailure(f"expected a header, as 'Content-Length: 119', got {line[:40]!r}")
            if name.lower() == b"content-length":
                digits = value.strip()
                if not digits.isdigit() or len(digits) > 9 or int(digits) > MOST_BODY_BYTES:
                    raise ConnectionFailure(f"a message of {digits[:20]!r} bytes; at most {MOST_BODY_BYTES} are read")
                size = int(digits)
        return None

    def respond(self, request: dict[str, Any], answer: dict[str, Any] | Exception | None = None) -> None:
        """Answers a request, with an error or a body."""
        sequence, command = request.get("seq"), request.get("command")
        message: dict[str, Any] = {
            "type": "response",
            "request_seq": sequence if type(sequence) is int else 0,
            "command": command if isinstance(command, str) else "",
            "success": not isinstance(answer, Exception),
        }
        if isinstance(answer, Exception):
            text = str(answer)
            message["message"] = text
            message["body"] = {"error": {"id": 1, "format": "{text}", "variables": {"text": text}}}
        elif answer is not None:
            message["body"] = answer
        self._send(message)

    def event(self, name: str, **body: Any) -> None:
        self._send({"type": "event", "event": name, "body": body})

    def _send(self, message: dict[str, Any]) -> None:
        """Sends a message; nothing if the client has gone, which the reader notices."""
        with self._lock:
            self._count += 1
            text = json.dumps({"seq": self._count, **message}).encode()
            try:
                self._sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
                self._sink.flush()
            except (OSError, ValueError):
                pass


def _malformed(message: Any) -> str:
    """What is wrong with a request; "" if nothing is."""
    if not isinstance(message, dict) or message.get("type") != "request":
        return "expected a request, an object whose type is 'request'"
    if type(message.get("seq")) is not int or not isinstance(message.get("command"), str):
        return "expected a request with its seq, an integer, and its command, a string"
    if not isinstance(message.get("arguments", {}), dict):
        return f"{message['command'][:40]}: expected an object of arguments"
    return ""


_WORDS = {str: "a string", int: "an integer", bool: "true or false", list: "a list", dict: "an object"}


def argument(arguments: dict[str, Any], name: str, default: Any) -> Any:
    """An argument of the type of its default; that where it is missing. Raises ArgumentError for another type."""
    value = arguments.get(name)
    if value is None:
        return default
    if type(value) is not type(default):
        raise ArgumentError(f"{name}: expected {_WORDS[type(default)]}, got {str(value)[:40]!r}")
    return value


def objects(arguments: dict[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    """A list of objects. Raises ArgumentError for anything else, and for more than `most`."""
    found = argument(arguments, name, [])
    if len(found) > most:
        raise ArgumentError(f"{name}: {len(found)} were given; at most {most} are taken")
    if not all(isinstance(each, dict) for each in found):
        raise ArgumentError(f"{name}: expected a list of objects")
    return found
