"""A text as the engine holds it, and what is asked of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.messages.errors import ArgumentError
from ..vm.machine import CancelToken
from .adapters import Adapter
from .guesses import Guesses
from .sampling import Draws, Mask


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
