"""Which token comes next: samplers, and the choices of one text.

Fan et al., Hierarchical Neural Story Generation, 2018 (the k likeliest tokens); Holtzman et al., The Curious Case of Neural Text
Degeneration, 2020 (the likeliest tokens that are p together); Nguyen et al., Min-p Sampling, 2024; Keskar et al., CTRL, 2019
(repetition penalty). Presence and frequency penalties are OpenAI's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..formats.messages.calling import Suggesting, public_class
from ..formats.messages.errors import ArgumentError, CheckError

Choose = Callable[[np.ndarray], np.ndarray]  # float logits of a batch, [batch, vocabulary] → token ids, [batch]
_FEW = 256  # of the likeliest tokens, which are looked at first


class Mask(Protocol):
    """Which tokens may come next in one text: a grammar, for one."""

    def allowed(self) -> np.ndarray | None:
        """bool [vocabulary]; None: all."""

    def take(self, token: int) -> None:
        """Called with each token that is chosen."""


@public_class
@dataclass(frozen=True)
class Sampler(Suggesting):
    """Which token comes next. At a temperature of 0 the likeliest; else one by chance: of the `top_k` likeliest if that is not 0,
    of those that are at least `min_p` times as likely as the likeliest, and of the fewest likeliest whose probabilities are
    `top_p` together. Equal seeds give equal texts.

    Before that, logits of tokens that the prompt or the text has are divided by `repetition_penalty` if they are positive, else
    multiplied; from those that the text has, `presence_penalty` is subtracted, and `frequency_penalty` for each time that it has
    them; `logit_bias` is added to those of its tokens."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        bias = self.logit_bias
        is_bias = isinstance(bias, Mapping) and all(_is_token(k) and is_finite(v) for k, v in bias.items())
        for name, is_good, expected in (
            ("temperature", is_finite(self.temperature) and self.temperature >= 0, "a number from 0 on"),
            ("top_k", isinstance(self.top_k, int) and self.top_k >= 0, "a whole number from 0 on"),
            ("top_p", is_finite(self.top_p) and 0 < self.top_p <= 1, "a number above 0, up to 1"),
            ("seed", self.seed is None or _is_token(self.seed), "a whole number from 0 on, or None"),
            ("min_p", is_finite(self.min_p) and 0 <= self.min_p <= 1, "a number from 0 to 1"),
            ("repetition_penalty", is_finite(r := self.repetition_penalty) and r > 0, "a number above 0"),
            ("presence_penalty", is_finite(self.presence_penalty), "a number"),
            ("frequency_penalty", is_finite(self.frequency_penalty), "a number"),
            ("logit_bias", is_bias, "a dict from token ids to numbers"),
        ):
            if not is_good:
                raise ArgumentError(f"generate: {name}: expected {expected}, got {getattr(self, name)!r}")

    def chooser(self) -> Choose:
        """A function that draws, each time it is called, for a batch that has no past."""
        draws = Draws(self)
        return lambda logits: np.array([draws.choose(row) for row in logits])

    def draws(self, prompt: Iterable[int] = (), number: int = 0) -> Draws:
        """The choices of a text behind a prompt, the `number`th of texts with one seed."""
        return Draws(self, prompt, number)


class Draws:
    """The choices of one text: a sampler, its random numbers, and what penalties count."""

    def __init__(self, sampler: Sampler, prompt: Iterable[int] = (), number: int = 0) -> None:
        self.sampler = sampler
        seed = sampler.seed if sampler.seed is None or not number else [sampler.seed, number]
        self._random = None if sampler.temperature == 0 else np.random.default_rng(seed)
        self._counts = Counter[int]()
        self._prompt = set(prompt) if sampler.repetition_penalty != 1 else set[int]()
        penalised = sampler.repetition_penalty != 1 or sampler.presence_penalty or sampler.frequency_penalty
        self._counted, self._changes = bool(penalised), bool(penalised or sampler.logit_bias)

    @property
    def random_state(self) -> Any:
        """Of the random numbers, as NumPy's bit generators give and take it; None at a temperature of 0."""
        return None if self._random is None else self._random.bit_generator.state

    @random_state.setter
    def random_state(self, state: Any) -> None:
        if self._random is not None:
            self._random.bit_generator.state = state

    def take(self, token: int) -> None:
        """Counts a token for the penalties."""
        if self._counted:
            self._counts[token] += 1

    def choose(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> int:
        """The next token by the logits [vocabulary] of the ones that are allowed. Raises CheckError where there is none."""
        if self._changes or allowed is not None:
            logits = self._changed(logits, allowed)
        best = int(logits.argmax())
        if np.isinf(logits[best]) and logits[best] > 0:
            return best
        if not np.isfinite(logits[best]):
            what = "not a number" if np.isnan(logits[best]) else "all minus infinity: no token is allowed"
            raise CheckError(f"generate: the logits are {what}")
        return best if self._random is None else self._drawn(logits, best, self._random.random())

    def _changed(self, logits: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        sampler, logits = self.sampler, logits.astype(np.float32)  # a copy
        try:
            if sampler.repetition_penalty != 1 and (seen := {*self._prompt, *self._counts}):
                places = np.fromiter(seen, np.int64, len(seen))
                old, by = logits[places], np.float32(sampler.repetition_penalty)
                logits[places] = np.where(old > 0, old / by, old * by)
            if self._counts and (sampler.presence_penalty or sampler.frequency_penalty):
                places, times = np.array([*self._counts.items()]).T
                logits[places] -= np.float32(sampler.presence_penalty) + np.float32(sampler.frequency_penalty) * times
            for token, bias in sampler.logit_bias.items():
                logits[token] += bias
        except IndexError:
            raise ArgumentError(f"generate: a token of the prompt or of logit_bias is none of {len(logits)}") from None
        if allowed is not None:
            allowed = np.asarray(allowed, bool)  # of numbers ~ would make places
            if allowed.ndim != 1:
                raise ArgumentError(f"generate: mask: expected bool [vocabulary], got {list(allowed.shape)}")
            logits[: len(allowed)][~allowed[: len(logits)]] = -np.inf
            logits[len(allowed) :] = -np.inf
        return logits

    def _drawn(self, logits: np.ndarray, best: int, number: float) -> int:
        """The token at which the sum of probabilities passes `number`, from 0 to 1; few candidates are summed in the order of
        probability, many in that of their ids."""
        sampler = self.sampler
        if sampler.top_k or sampler.top_p < 1:
            order = likeliest(logits, sampler.top_k or _FEW)
            weights = _weights(logits[order].astype(np.float64), logits[best], sampler.temperature)
            if sampler.min_p:
                weights = weights[weights >= sampler.min_p]
            is_whole = bool(sampler.top_k) or len(weights) < len(order) or len(order) == len(logits)
            total = weights.sum() if is_whole else _weights(logits, logits[best], sampler.temperature).sum()
            sums = np.cumsum(weights / total)
            if is_whole or sums[-1] > sampler.top_p:
                if sampler.top_p < 1:  # the last of them is the one that reaches it
                    sums = sums[: int(np.searchsorted(sums, sampler.top_p)) + 1]
                return int(order[np.searchsorted(sums, number * sums[-1], side="right").clip(max=len(sums) - 1)])
        weights = _weights(logits, logits[best], sampler.temperature)
        if sampler.min_p:
            weights[weights < sampler.min_p] = 0
        if sampler.top_p < 1:
            sums = np.cumsum(sorted_ := np.sort(weights)[::-1], dtype=np.float64)
            count = int(np.searchsorted(sums, sampler.top_p * sums[-1])) + 1
            least = sorted_[min(count, len(sums)) - 1]
            equal = np.flatnonzero(weights == least)
            weights[weights < least] = 0
            weights[equal[count - np.count_nonzero(weights > least) :]] = 0
        sums = np.cumsum(weights, dtype=np.float64)
        return int(np.searchsorted(sums, number * sums[-1], side="right").clip(max=len(sums) - 1))


def likeliest(logits: np.ndarray, count: int) -> np.ndarray:
    """The likeliest tokens, the first of equal ones first."""
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    least = np.partition(logits, len(logits) - count)[len(logits) - count]
    candidates = np.flatnonzero(logits >= least)
    return candidates[np.argsort(-logits[candidates], kind="stable")][:count]


def _weights(logits: np.ndarray, best: np.floating, temperature: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp((logits - best) / logits.dtype.type(max(temperature, 1e-30)))


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """float32 [vocabulary]"""
    with np.errstate(divide="ignore", invalid="ignore"):
        shifted = logits - logits.max()
        return shifted - np.log(np.exp(shifted).sum())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))


def is_finite(value: Any) -> bool:
    return _is_number(value) and -math.inf < value < math.inf


def _is_token(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)
