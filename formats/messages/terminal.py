"""Foreign text as it is shown: names and messages of files, without what a terminal would obey.

Errors (`errors.py`), objects' texts (`readable.py`), tables and the command line all show text by `shown`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

# Control characters but for tab and line feed, directions of text, and what has no width: none belongs to a line of ours.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def shown(text: str) -> str:
    """The text with each character that a terminal would obey, or not show, as Python writes it: `\\x1b`."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


_F = TypeVar("_F", bound=Callable[..., str])


def showing(function: _F) -> _F:
    """A function that gives a text for people, which is shown."""

    @functools.wraps(function)
    def show(*args: Any, **kwargs: Any) -> str:
        return shown(function(*args, **kwargs))

    return show  # type: ignore[return-value]


class Shown:
    """A stream that shows what is printed to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(shown(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
