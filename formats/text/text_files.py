"""Files of text: assembly and the IR, which people write."""

from __future__ import annotations

import os

from ..container import named, open_ending
from ..messages.errors import FileError, FormatError
from ..messages.file_kinds import HEAD_BYTES, told


def read_text(path: str | os.PathLike) -> str:
    """The text in a file, in UTF-8. Raises FormatError, which says what else the file is, and FileError."""
    try:
        with open(named(path), "rb", opener=open_ending) as file:
            content = file.read()
    except OSError as error:
        raise FileError.of(error, f"{os.fspath(path)} cannot be read", os.fspath(path)) from error
    return decoded(content, os.fspath(path))


def decoded(content: bytes, name: str) -> str:
    """The text that `name` holds. Raises FormatError, which says what else it is."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError(f"{name} is not text in UTF-8: {told(content[:HEAD_BYTES])}") from None
