"""Tokens to text while they are made: whole characters alone, and nothing of a text that ends the answer."""

from __future__ import annotations

from collections.abc import Sequence

from .tokens import Tokenizer

_UNREADABLE = "�"  # what decoders make of bytes that are no character, or not yet
_BYTES = 4  # of a character, at most, each of which may be a token
_MOST_HELD = 8  # tokens that may wait: decoders give nothing of a run of bytes that has a wrong one


class Pieces:
    """The text of tokens, one token after another. A token's text depends on those before it: of some tokenizers a space, of
    others the rest of a character. So a window of tokens is decoded: those of the piece before, and those that wait."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), shown: frozenset[int] = frozenset()) -> None:
        """`before` are the last tokens that are not part of the text, `shown` the special tokens whose text is."""
        self._tokenizer, self._shown = tokenizer, shown
        self._window = [each for each in before if each not in tokenizer.special]
        self._context = len(self._window)  # tokens of the window whose text has been given
        self._given = len(self._decoded())  # characters of the window's text that have been given

    def take(self, token: int) -> str:
        """The text that is certain now."""
        if token in self._tokenizer.special:
            return self.end() + self._tokenizer.text_of(token) if token in self._shown else ""
        self._window.append(token)
        text = self._decoded()
        is_whole, is_long = not text.endswith(_UNREADABLE), len(self._window) - self._context > _MOST_HELD
        end = len(text) if is_whole else len(text) - 1 if is_long else len(text.rstrip(_UNREADABLE))
        new = text[self._given : end]
        self._given = max(self._given, end)
        if is_whole:
            self._advance()
        elif is_long:  # no character: but the last bytes may be the beginning of one
            del self._window[:-_BYTES]
            self._context = len(self._window)
            self._given = len(self._decoded()) - 1
        return new

    def end(self) -> str:
        """What waits, whole or not."""
        new = self._decoded()[self._given :]
        self._advance()
        return new

    def _advance(self) -> None:
        """The tokens that waited are the context of the next ones."""
        if self._context < len(self._window):
            del self._window[: self._context]
        self._context = len(self._window)
        self._given = len(self._decoded())

    def _decoded(self) -> str:
        return self._tokenizer.decode(self._window) if self._window else ""


class Until:
    """A text up to the first of some others, piece by piece: what may be the beginning of one waits."""

    def __init__(self, ends: Sequence[str]) -> None:
        self._ends = [end for end in ends if end]
        self._held = ""
        self.rest: str | None = None  # behind the end, once there was one

    def take(self, piece: str) -> str:
        """The text that is certain now; nothing behind the end."""
        if self.rest is not None:
            return ""
        text = self._held + piece
        found = [(at, -len(end)) for end in self._ends if (at := text.find(end)) >= 0]
        if found:
            at, size = min(found)
            self._held, self.rest = "", text[at - size :]
            return text[:at]
        held = max((_beginning(text, end) for end in self._ends), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def end(self) -> str:
        """What waited."""
        text, self._held = self._held, ""
        return text


def _beginning(text: str, end: str) -> int:
    """How many of the last characters of a text are the first ones of `end`."""
    return next((size for size in range(min(len(end) - 1, len(text)), 0, -1) if text.endswith(end[:size])), 0)
