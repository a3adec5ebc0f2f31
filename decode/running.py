"""A text: as its owner reads it, as the engine holds it, and what is asked of it."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.errors import ArgumentError
from ..native.once import deferred
from ..vm.machine import CancelToken
from .adapters import Adapter
from .guesses import Guesses
from .sampling import Draws, Mask

_LAST_TOKEN = np.iinfo(np.int64).max


class Token(NamedTuple):
    """A token of a text. Where they were asked for, the logarithm of its probability, and the likeliest tokens with theirs."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Running:
    """A text as the engine holds it. Between two steps `ids[computed:]` are to be appended to its context."""

    def __init__(
        self, ids: np.ndarray, count: int, draws: Draws | None, stops: list[tuple[int, ...]], mask: Mask | None
    ) -> None:
        self.ids = ids.tolist()
        self.prompt_tokens, self.cached_tokens, self.left = len(ids), 0, count
        self.draws, self.mask = draws, mask
        self.stops = stops
        self.source: Running | None = None  # of a fork that has not begun
        self.context: int | None = None
        self.computed = 0
        self.logits: np.ndarray | None = None  # of a text whose tokens its owner chooses
        self.ready: deque[Token] = deque()
        self.finish: str | None = None
        self.error: BaseException | None = None
        self.deadline: float | None = None
        self.cancel: CancelToken | None = None
        self.is_abandoned = False
        self.top: int | None = None
        self.adapter: Adapter | None = None
        self.salt: bytes | None = b""  # None: no other text may use its context
        self.hashes: list[bytes] = []  # of the prompt, while it is computed
        self.guesses: Guesses | None = None

    @property
    def has_news(self) -> bool:
        """A token, logits that nobody has taken, or the end."""
        return bool(self.ready) or self.finish is not None or self.logits is not None

    @property
    def is_at_stop(self) -> bool:
        return ends_with(self.ids, len(self.ids) - self.prompt_tokens, self.stops)


@public_class
class Text(Suggesting):
    """The tokens of a text as they are made: an iterator. `finish` says why it ended: "stop", "length", "cancelled", "deadline",
    or "error", which the iterator raises."""

    def __init__(self, engine: Any, running: Running) -> None:
        self._engine, self._running = engine, running

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        running = self._running
        with deferred():
            while True:
                if not running.ready:
                    self._engine._wait(running)
                with contextlib.suppress(IndexError):  # another thread took it
                    return running.ready.popleft()
                if running.finish is not None:
                    break
        if running.error is not None:
            raise running.error
        raise StopIteration

    def cancel(self) -> None:
        """Ends the text; tokens that are made can still be read."""
        self._engine._end(self._running, "cancelled")

    @property
    def finish(self) -> str | None:
        """Why it ended; None while it goes on."""
        return self._running.finish

    @property
    def prompt_tokens(self) -> int:
        return self._running.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt another text had computed."""
        return self._running.cached_tokens

    def logits(self) -> np.ndarray | None:
        """Of a text without a sampler: the logits of the next token, float32 [vocabulary], for which `take` is called then; None
        at its end."""
        if self._running.logits is None:
            self._engine._wait(self._running)
        if self._running.error is not None:
            raise self._running.error
        return self._running.logits

    def take(self, token: int) -> None:
        """The next token of a text without a sampler. Raises ArgumentError."""
        check_count("token", token)
        if token > _LAST_TOKEN:  # else the steps of all texts would fail by it
            raise ArgumentError(f"take: token: expected at most {_LAST_TOKEN}, got {token}")
        self._engine._take(self._running, token)

    def fork(self) -> Text:
        """Of a text without a sampler: another one that goes on from here."""
        return self._engine._forked(self._running)

    def __del__(self) -> None:
        if hasattr(self, "_running"):
            self._running.is_abandoned = True


def ends_with(tokens: Sequence[int], made: int, sequences: Sequence[tuple[int, ...]]) -> bool:
    """Whether the last `made` tokens end with any of the sequences."""
    return any(len(end) <= made and tuple(tokens[-len(end) :]) == end for end in sequences)


def check_count(name: str, value: Any, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ArgumentError(f"submit: {name}: expected a whole number from {least} on, got {value!r}")


def stops(stop: Any) -> list[tuple[int, ...]]:
    """The sequences that end a text. Raises ArgumentError."""
    try:
        sequences = [(int(each),) if isinstance(each, (int, np.integer)) else tuple(map(int, each)) for each in stop]
    except (TypeError, ValueError):
        raise ArgumentError(f"generate: stop: expected token ids, or lists of them, got {stop!r}") from None
    if () in sequences:
        raise ArgumentError("generate: stop: an empty sequence would end every text")
    return sequences
