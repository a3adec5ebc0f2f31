"""Relay's text as tokens. Comments, also nested ones, and spaces are left out; the metadata section is one
token, the last but the end.

Names may have slashes, as in TVM, and dots before letters: `%conv1.weight`, `@lib.f`. `%t.0` is a tuple's item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ....formats.messages.errors import ParseError
from ...error import DiagnosticError
from .scalars import NUMBER

WORD = r"[A-Za-z_](?:[A-Za-z0-9_]|/(?![/*])|\.(?=[A-Za-z_]))*"
KEYWORDS = frozenset(("def", "else", "extern", "fn", "free_var", "if", "let", "match", "type"))

_WORD = re.compile(WORD)
_SPACE = re.compile(r"(?:[ \t\r\n\f\v]+|//[^\n]*)+")
_COMMENT = re.compile(r"/\*|\*/")
_NAMED = re.compile(r'#\[\s*(version|import)\s*=\s*"([^"\n]*)"\s*\]')
_METADATA = re.compile(r"#\[\s*metadata\s*\]")
_TOKENS = (
    ("meta", re.compile(r"meta\[([^\]\n]*)\]\[(\d{1,9})\]")),
    ("local", re.compile(f"%({WORD})")),
    ("graph", re.compile(r"%(\d{1,9})(?!\w)")),
    ("global", re.compile(f"@({WORD})")),
    ("number", NUMBER),
    ("keyword", re.compile(r"match\?")),
    ("word", re.compile(WORD)),
    ("string", re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)),
    ("mark", re.compile(r"->|=>|==|!=|<=|>=|[-+*/<>=,;:.?(){}\[\]]")),
)
_INDEX = re.compile(r"\d{1,9}(?!\w)")  # what follows the dot of a tuple's item: in `%t.0.1` that is not a 0.1


def word(name: str) -> str:
    """A name as a word: `_` for letters that words do not have, `v` before what no word begins with."""
    if _WORD.fullmatch(name):
        return name
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return word if word[:1].isalpha() else f"v{word}"


class TextError(ParseError, DiagnosticError):
    """Relay's text is wrong: the line and column, what was expected and what was found."""


class Token(NamedTuple):
    """`kind` is one of the names above, "index", "version", "import", "metadata" or "end"; `value` the text that counts."""

    kind: str
    value: str
    at: int
    number: int = 0  # of an entry of meta
    before: tuple[int, int] = (0, 0)  # where the spaces and comments in front of it lie

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 40 else self.value[:37] + "..."
        prefix = {"local": "%", "graph": "%", "global": "@"}.get(self.kind, "")
        return "the end of the text" if self.kind == "end" else f"`{prefix}{shown}`"


def error(text: str, at: int, message: str) -> TextError:
    """An error that points into the text."""
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return TextError(message, line=line, column=at - start + 1, text=text[start : end if end >= 0 else len(text)])


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens, "end" the last. Raises TextError."""
    at, size, after_dot = 0, len(text), False
    while True:
        before = at
        at = _skipped(text, at)
        if at >= size:
            break
        if text[at] == "#":
            token, at = _section(text, at)
            yield token
            continue
        if after_dot and (found := _INDEX.match(text, at)):
            yield Token("index", found.group(), at)
            at, after_dot = found.end(), False
            continue
        kind, found = next(((kind, found) for kind, each in _TOKENS if (found := each.match(text, at))), ("", None))
        if found is None:
            raise error(text, at, f"{text[at : at + 20].split(None, 1)[0]!r} begins no word, number or mark of Relay")
        value = found.group(1) if kind in ("meta", "local", "graph", "global", "string") else found.group()
        kind = "keyword" if kind == "word" and value in KEYWORDS else kind
        yield Token(kind, value, at, int(found.group(2)) if kind == "meta" else 0, (before, at))
        at, after_dot = found.end(), value == "." and kind == "mark"
    yield Token("end", "", size)


def _skipped(text: str, at: int) -> int:
    """After spaces and comments."""
    while True:
        found = _SPACE.match(text, at)
        at = found.end() if found else at
        if not text.startswith("/*", at):
            return at
        start, depth = at, 0
        while True:
            mark = _COMMENT.search(text, at)
            if mark is None:
                raise error(text, start, "the comment has no end: expected */")
            at = mark.end()
            depth += 1 if mark.group() == "/*" else -1
            if not depth:
                break


def _section(text: str, at: int) -> tuple[Token, int]:
    if found := _NAMED.match(text, at):
        return Token(found.group(1), found.group(2), at), found.end()
    if found := _METADATA.match(text, at):
        return Token("metadata", text[found.end() :], at), len(text)
    raise error(text, at, 'expected #[version = "0.0.5"], #[import = "…"] or #[metadata]')
