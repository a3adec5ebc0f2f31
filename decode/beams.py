"""Beam search: of the texts behind a prompt, some of the likeliest.

Of the texts at hand, each step keeps the likeliest continuations (Graves, Sequence Transduction with Recurrent Neural Networks,
2012). Scores are sums of logarithms of probabilities over the length to a power (Wu et al., Google's Neural Machine Translation
System, 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from .sampling import likeliest, log_probabilities


class Beam(NamedTuple):
    tokens: list[int]
    score: float


class Chosen(Protocol):
    """A text whose tokens are chosen here (`Engine.choose_by_hand`)."""

    def logits(self) -> np.ndarray | None: ...

    def take(self, token: int) -> None: ...

    def fork(self) -> Chosen: ...

    def cancel(self) -> None: ...


class _Live(NamedTuple):
    text: Chosen
    tokens: list[int]
    total: float


def searched(
    text: Chosen, most: int, count: int, length_penalty: float, is_end: Callable[[Sequence[int]], bool]
) -> list[Beam]:
    """The best texts of at most `most` tokens, the best one first. `is_end` says whether a text ends with its last token."""
    live, done = [_Live(text, [], 0.0)], list[Beam]()
    for length in range(1, most + 1):
        found: list[tuple[float, int, int]] = []  # total, number of the beam, token
        for number, beam in enumerate(live):
            logits = beam.text.logits()
            if logits is None:  # it has been cancelled
                return []
            logarithms = log_probabilities(logits)
            found += [
                (beam.total + float(logarithms[token]), number, int(token)) for token in likeliest(logits, 2 * count)
            ]
        found.sort(key=lambda each: (-each[0], each[1:]))
        going: list[tuple[float, int, int]] = []
        for total, number, token in found[: 2 * count]:
            tokens = [*live[number].tokens, token]
            if is_end(tokens) or length == most:
                done.append(Beam(tokens, total / length**length_penalty))
            elif len(going) < count:
                going.append((total, number, token))
        done = sorted(done, key=lambda each: -each.score)[:count]
        best = going[0][0] / length**length_penalty if going else -np.inf
        live = _gone_on(live, going)
        if len(done) == count and best <= done[-1].score:
            break
    for beam in live:
        beam.text.cancel()
    return done


def _gone_on(live: Sequence[_Live], going: Sequence[tuple[float, int, int]]) -> list[_Live]:
    """Each text goes on itself with its first token, with further ones as forks."""
    texts: list[Chosen | None] = [None] * len(going)
    for number, beam in enumerate(live):
        places = [place for place, each in enumerate(going) if each[1] == number]
        for place in places[1:]:
            texts[place] = beam.text.fork()
        if places:
            texts[places[0]] = beam.text
        else:
            beam.text.cancel()
    made = [
        _Live(text, [*live[each[1]].tokens, each[2]], each[0]) for text, each in zip(texts, going, strict=True) if text
    ]
    for beam in made:
        beam.text.take(beam.tokens[-1])
    return made
