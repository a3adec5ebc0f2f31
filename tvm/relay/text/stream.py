"""Tokens one after another, and the errors that say what was expected there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..expr import Span
from .spans import span_of
from .tokens import TextError, Token, error, tokens_of

T = TypeVar("T")


class Stream:
    """The tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0
        self.tokens = list(tokens_of(text))

    @property
    def token(self) -> Token:
        """The next one."""
        return self.tokens[self.place]

    @property
    def span(self) -> Span | None:
        """The span that the comment in front of the next token tells."""
        start, end = self.token.before
        return span_of(self.text[start:end].rstrip()) if end - start > 8 else None

    @property
    def following(self) -> Token:
        """The one after it."""
        return self.tokens[min(self.place + 1, len(self.tokens) - 1)]

    def error(self, message: str, token: Token | None = None) -> TextError:
        """An error at a token, the next one by default."""
        return error(self.text, (token or self.token).at, message)

    def at(self, kind: str, *values: str) -> bool:
        """Whether the next token is one of these."""
        return self.token.kind == kind and (not values or self.token.value in values)

    def at_mark(self, *values: str) -> bool:
        return self.at("mark", *values)

    def step(self) -> Token:
        """The next token, taken."""
        token = self.token
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def accept(self, kind: str, *values: str) -> bool:
        """Takes the next token if it is one of these."""
        if self.at(kind, *values):
            self.step()
            return True
        return False

    def take(self, kind: str, expected: str, *values: str) -> Token:
        """The next token, which must be one of these. Raises TextError."""
        if not self.at(kind, *values):
            raise self.unexpected(f"`{expected}`" if kind == "mark" else expected)
        return self.step()

    def unexpected(self, expected: str) -> TextError:
        return self.error(f"expected {expected}, found {self.token}")

    def several(self, start: str, end: str, one: Callable[[], T]) -> list[T]:
        """Things between two marks, commas between them; one after the last is allowed."""
        self.take("mark", start, start)
        made: list[T] = []
        while not self.accept("mark", end):
            made.append(one())
            if not self.at_mark(end):
                self.take("mark", f",` or `{end}", ",")
        return made
