"""JSON of requests that is read, and JSON of answers that is written, in pieces of some milliseconds.

A call of Python's `json` holds the interpreter's lock until it is done, 40 ns for each byte, and all clients wait meanwhile. Here
it gets a piece at a time. A piece begins where a value does, and ends before a comma: if it is JSON as the elements of a list,
these are the values that stand there.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from ..formats.metering import ITEMS, rows, spans
from .errors import BadRequestError, TooLargeError

SHORT = 1 << 16  # characters of a piece: 3 ms
MAX_NESTED = 1 << 17  # lists and objects, and members of these: the collector of garbage walks through them at once
_DIGITS = 1000  # characters of a number that is a piece
_BLANKS = re.compile(r"[ \t\n\r]*")
_SCALARS = re.compile(r"""[^\[\]{}"]*""")
_CHARACTERS = re.compile(r"""[^"\\]*(?:\\(?:u[0-9A-Fa-f]{4}|[^u])[^"\\]*)*""")
_ESCAPE = 6  # characters of \\u1234
_WORD = re.compile(r"[^\s,\[\]{}\":]*")
_ENDS = {"[": "],", "{": "},", '"': '",'}
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def loads(data: bytes | memoryview) -> Any:
    """What `json.loads` makes of UTF-8; `discard` lets go of a large result. Raises BadRequestError, TooLargeError."""
    try:
        if len(data) <= SHORT:
            return json.loads(bytes(data))
        return _Reader(str(data, "utf-8-sig")).whole()
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is no JSON: {error}") from None


def discard(tree: Any) -> None:
    """Lets go of lists and objects, as long as nobody else holds them, piece by piece."""
    nested = [tree]
    while nested:
        values = nested.pop()
        if type(values) is dict:
            nested += values.values()
            values.clear()
        elif type(values) is list:
            while values:
                piece = values[-ITEMS:]
                del values[-ITEMS:]
                if not _SINGLE.issuperset(map(type, piece)):
                    nested += (each for each in piece if type(each) in (list, dict))


_SINGLE = frozenset((int, float, str, bool, type(None)))


def listed(array: np.ndarray) -> str:
    """The elements of an array as a list of JSON."""
    flat = array.reshape(-1)
    pieces = rows(flat.tolist()) if array.dtype == object else spans(flat.size)
    return f"[{', '.join([json.dumps(flat[piece].tolist())[1:-1] for piece in pieces])}]"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.nested = text, 0

    def whole(self) -> Any:
        value, at = self.value(self.behind_blanks(0))
        at = self.behind_blanks(at)
        if at != len(self.text):
            discard(value)
            raise json.JSONDecodeError("Extra data", self.text, at)
        return value

    def behind_blanks(self, at: int) -> int:
        found = _BLANKS.match(self.text, at)
        assert found is not None
        return found.end()

    def value(self, at: int) -> tuple[Any, int]:
        """The value that begins there, and where it ends."""
        char = self.text[at : at + 1]
        if char == "[":
            return self.elements(at + 1)
        if char == "{":
            return self.members(at + 1)
        if char == '"' and not self.text.startswith('"', self.end_in_text(at + 1)):
            return self.long_text(at + 1)
        if len(_WORD.match(self.text, at, at + _DIGITS).group()) == _DIGITS:  # type: ignore[union-attr]
            raise json.JSONDecodeError(f"A number of {_DIGITS} characters or more", self.text, at)
        try:
            return _scan(self.text, at)
        except StopIteration:
            raise json.JSONDecodeError("Expecting value", self.text, at) from None

    def long_text(self, at: int) -> tuple[str, int]:
        """The text whose first character is there."""
        parts: list[str] = []
        while not self.text.startswith('"', at):
            end = self.end_in_text(at)
            if end == at:
                raise json.JSONDecodeError("Unterminated string or wrong escape", self.text, at)
            part = json.loads(f'"{self.text[at:end]}"')
            if "\ud800" <= part[-1:] < "\udc00" and len(part) > 1:  # half a character, as an escape
                part, end = part[:-1], end - _ESCAPE
            parts.append(part)
            at = end
        return "".join(parts), at + 1

    def end_in_text(self, at: int) -> int:
        """Where a piece of a text ends, or the text: at no place within an escape."""
        found = _CHARACTERS.match(self.text, at, at + SHORT)
        assert found is not None
        return found.end()

    def count(self, nested: int) -> None:
        self.nested += nested
        if self.nested > MAX_NESTED:
            raise TooLargeError(
                f"more than {MAX_NESTED} lists and objects of JSON; send the elements of a tensor as one list, or as bytes "
                "(binary_data)"
            )

    def elements(self, at: int) -> tuple[list, int]:
        self.count(1)
        values: list[Any] = []
        try:
            at = self.behind_blanks(at)
            if self.text.startswith("]", at):
                return values, at + 1
            next_try = at  # the next place from which a piece is looked for
            while True:
                end = None
                if at >= next_try:
                    end = self.piece(values, at)
                    next_try = at + SHORT if end is None else at
                if end is None:
                    value, end = self.value(at)
                    values.append(value)
                at, is_last = self.behind_item(end, "]")
                if is_last:
                    return values, at
        except BaseException:
            discard(values)
            raise

    def behind_item(self, at: int, end: str) -> tuple[int, bool]:
        """Where the next item begins, or, behind the last one, what comes after `end`."""
        at = self.behind_blanks(at)
        if self.text.startswith(end, at):
            return at + 1, True
        if not self.text.startswith(",", at):
            raise json.JSONDecodeError("Expecting ',' delimiter", self.text, at)
        return self.behind_blanks(at + 1), False

    def piece(self, values: list, at: int) -> int | None:
        """Adds the values of a piece; where it ends. None where none is found."""
        text, char = self.text, self.text[at : at + 1]
        if char in _ENDS:
            end = text.rfind(_ENDS[char], at + 1, at + SHORT) + 1
        else:
            end = _SCALARS.match(text, at, at + SHORT).end()  # type: ignore[union-attr]
            if not text.startswith("]", end):
                end = text.rfind(",", at, end)
        if end <= at:
            return None
        try:
            found = json.loads(f"[{text[at:end]}]")
        except ValueError:
            return None
        if char in _ENDS:
            self.count(_containers(found))
        values += found
        return end

    def members(self, at: int) -> tuple[dict, int]:
        self.count(1)
        values: dict[str, Any] = {}
        try:
            at = self.behind_blanks(at)
            if self.text.startswith("}", at):
                return values, at + 1
            while True:
                if not self.text.startswith('"', at):
                    raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self.text, at)
                name, at = self.value(at)
                at = self.behind_blanks(at)
                if not self.text.startswith(":", at):
                    raise json.JSONDecodeError("Expecting ':' delimiter", self.text, at)
                self.count(1)
                values[name], at = self.value(self.behind_blanks(at + 1))
                at, is_last = self.behind_item(at, "}")
                if is_last:
                    return values, at
        except BaseException:
            discard(values)
            raise


def _containers(values: list) -> int:
    """Lists and objects in a list, and members of objects."""
    found, nested = 0, [values]
    while nested:
        each = nested.pop()
        if type(each) is dict:
            found += len(each)
            each = list(each.values())
        inner = [value for value in each if type(value) in (list, dict)]
        found += len(inner)
        nested += inner
    return found
