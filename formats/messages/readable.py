"""How objects of programs are shown: in one line of at most `WIDTH` characters, whatever they hold.

`str()` of a module, `as_text` of an executable and the fields of an object show all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from .calling import public
from .terminal import shown

WIDTH = 200  # characters of a line
_FEW = 4  # elements of a list that are shown
_NAME = 40  # characters of a name, and of whatever else stands within another object


class Words(str):
    """A text for people that is an attribute here and a method elsewhere, as `stats` of TVM's executables: called, it is
    itself."""

    __slots__ = ()

    def __new__(cls, text: str) -> Words:
        return super().__new__(cls, shown(text))

    @public
    def __call__(self) -> Words:
        return self


class Readable:
    """A dataclass (with `repr=False`) that is shown as `<Class what it is>`."""

    def __repr__(self) -> str:
        return cut(f"<{type(self).__name__} {self._shown()}".rstrip() + ">")

    def _shown(self) -> str:
        """The object in one line: each field, unless a class overrides it."""
        parts = (getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]
        return " ".join(filter(None, map(brief, parts)))

    def _brief(self) -> str:
        """The short form within another object."""
        return f"<{type(self).__name__}>"


def brief(value: Any) -> str:
    """A value within another object's line; nothing for what is empty."""
    if isinstance(value, Readable):
        return cut(value._brief(), _NAME)
    if isinstance(value, str):
        return cut(value, _NAME)
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(map(brief, value[:_FEW]))
        return f"({shown}{f', … {len(value)} in all' if len(value) > _FEW else ''})" if value else ""
    if isinstance(value, Mapping):
        return brief([*map(str, value)])
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} bytes"
    return "" if value is None else cut(str(value), _NAME) if is_dataclass(value) else cut(repr(value), _NAME)


def cut(text: str, width: int = WIDTH) -> str:
    """The text in one line, its end left out where it is longer."""
    line = shown(" ".join(text.split()))
    end = "…>" if line.endswith(">") and width == WIDTH else "…"
    return line if len(line) <= width else line[: width - len(end)] + end
