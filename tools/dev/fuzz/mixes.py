"""Random mixes of texts in one engine, and whether each has the tokens that it has alone.

    python -m treadle.tools.dev.fuzz.mixes --count 10000 --seed 1

A mix has texts with common beginnings, samplers and masks, in a cache that may be too small for them, with pieces of prompts and
guesses of any length. They are read in any order; some are cancelled, some fail, some are left, and steps are interrupted.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np

from ....compiler.driver import compile
from ....decode.contexts import Appended, Contexts
from ....decode.engine import Engine
from ....decode.guesses import Pays
from ....decode.paged_contexts import PagedContexts
from ....decode.running import Text
from ....decode.sampling import Sampler
from ....decode.step_contexts import StepContexts
from ....formats.messages.errors import CacheFullError, TreadleError
from ....vm.machine import VirtualMachine
from . import runs

WORDS, MOST = 24, 24  # of the vocabulary; tokens of a text
SAMPLERS = (
    Sampler(0.0),
    Sampler(0.0, repetition_penalty=1.5),
    Sampler(0.0, frequency_penalty=0.5, presence_penalty=0.2),
    Sampler(0.7, seed=1),
    Sampler(1.5, top_k=5, seed=2, repetition_penalty=0.7),
    Sampler(1.0, top_p=0.8, min_p=0.01, seed=3, logit_bias={3: 2.0}),
)


_fixed = Random(0)  # so that few prompts are computed alone
BEGINNINGS = [[_fixed.randrange(WORDS) for _ in range(count)] for count in (0, 3, 17, 17, 33, 40, 40)]
_ENDS = [[_fixed.randrange(4) for _ in range(count)] for count in (1, 1, 2, 2, 3, 5, 8, 8)]


class _Striped:
    """Every other token, in turns."""

    def __init__(self) -> None:
        self.place = 0

    def allowed(self) -> np.ndarray | None:
        return None if self.place % 3 == 2 else np.arange(WORDS) % 2 == self.place % 2

    def take(self, token: int) -> None:
        self.place += 1


def _interrupt(contexts: Contexts, random: Random, share: float) -> None:
    """From now on calls are interrupted, before or behind their work."""
    append = contexts.append

    def interrupted(batch: Sequence[Appended]) -> list[np.ndarray]:
        if random.random() < share:
            raise KeyboardInterrupt
        made = append(batch)
        if random.random() < share:
            raise KeyboardInterrupt
        return made

    contexts.append = interrupted  # type: ignore[method-assign]


class _AnyGuesses(Pays):
    """Guesses whether they pay or not."""

    def __init__(self, chances: Random) -> None:
        super().__init__()
        self._chances = chances

    def count(self, right: float, texts: int) -> int:
        return self._chances.choice((0, 1, 5))


ROUNDED = "genai int4, caches of 16 bits"
BUILDERS = ("optimum", "genai int4", "gpt", ROUNDED)


@cache
def machine(builder: str = BUILDERS[0]) -> VirtualMachine:
    """A small decoder, as this builder writes it."""
    from ..zoo import genai, gpt
    from ..zoo.llama import llama

    options: dict[str, Any] = {}
    if builder == "optimum":
        model = llama(layers=2, hidden=32, heads=2, groups=1, vocabulary=WORDS)
    elif builder == "gpt":
        model = gpt.gpt(layers=2, hidden=32, heads=2, vocabulary=WORDS)
    else:
        model = genai.decoder(vocabulary=WORDS, longest=512, bits=4)
        options = {"cache_dtype": "float16"} if builder == ROUNDED else {}
    return VirtualMachine(compile(model, progress=False, **options))


@cache
def _alone(builder: str, is_rounded: bool, prompt: tuple[int, ...], sampler: int, is_masked: bool) -> list[int]:
    """The tokens of a text, one call for each token. Only pages have caches of 16 bits."""
    contexts = (PagedContexts if is_rounded else StepContexts)(machine(builder))
    context, draws = contexts.open(), SAMPLERS[sampler].draws(prompt)
    mask = _Striped() if is_masked else None
    made: list[int] = []
    for token in prompt:
        (logits,) = contexts.append([Appended(context, np.array([token]))])
    for _ in range(MOST):
        made.append(draws.choose(logits[-1], None if mask is None else mask.allowed()))
        draws.take(made[-1])
        if mask is not None:
            mask.take(made[-1])
        (logits,) = contexts.append([Appended(context, np.array(made[-1:]))])
    return made


def try_mix(random: Random) -> str:
    """What comes of a mix; a text that begins with "finding" is one."""
    kind = random.choice((StepContexts, PagedContexts))
    builder = random.choice(BUILDERS)
    contexts: Contexts = kind(machine(builder), tokens=random.choice((60, 100, 400, 10_000)))
    capacity = contexts.room()
    _interrupt(contexts, random, random.choice((0.0, 0.0, 0.05)))
    engine = Engine(contexts=contexts, chunk=random.choice((1, 2, 5, 16, 64)))
    contexts.verifies = random.random() < 0.5
    engine._pays = _AnyGuesses(random)
    beginnings = random.sample(BEGINNINGS, 2)
    left, going = random.randint(1, 10), list[Reading]()
    while left or going:
        if left and (not going or random.random() < 0.4):
            left -= 1
            going.append(Reading(engine, random, random.choice(beginnings), builder))
        reading = random.choice(going)
        try:
            if said := reading.go_on(random):
                if said != "over":
                    return f"finding: {said}"
                going.remove(reading)
        except KeyboardInterrupt:
            continue
        del reading
    statistics = engine.statistics()
    engine.close()
    if statistics["waiting"] or contexts.room() != capacity:
        return f"finding: {statistics}, {capacity - contexts.room()} tokens are held by nobody"
    return "same tokens"


class Reading:
    """A text, and what is read of it."""

    def __init__(self, engine: Engine, random: Random, beginning: list[int], builder: str = BUILDERS[0]) -> None:
        self.prompt = (*beginning, *random.choice(_ENDS))
        self.sampler, self.count = random.randrange(len(SAMPLERS)), random.randint(0, MOST)
        self.is_masked, self.is_wrong = random.random() < 0.2, random.random() < 0.05
        is_rounded = builder == ROUNDED and isinstance(engine._contexts, PagedContexts)
        expected = _alone(builder, is_rounded, self.prompt, self.sampler, self.is_masked)[: self.count]
        ends = [random.randrange(WORDS)] if random.random() < 0.2 else []
        places = [place for place, token in enumerate(expected, 1) if token in ends]
        self.expected = expected[: places[0]] if places else expected
        self.finish = "stop" if places else "length"
        self.found: list[int] = []
        self.capacity = engine._capacity
        self.decoder = f"{builder}, {type(engine._contexts).__name__}"
        self.chooses = random.random() < 0.15
        prompt = [*self.prompt, WORDS + 3] if self.is_wrong else list(self.prompt)
        common: dict[str, Any] = {"max_new_tokens": self.count, "stop": ends}
        self.text: Text
        if self.chooses:
            self.draws = SAMPLERS[self.sampler].draws(self.prompt)
            self.mask = _Striped() if self.is_masked else None
            self.text = engine.choose_by_hand(prompt, **common)
        else:
            mask = _Striped() if self.is_masked else None
            self.text = engine.submit(prompt, sampler=SAMPLERS[self.sampler], mask=mask, **common)

    def go_on(self, random: Random) -> str:
        """What is wrong, "over" behind the last token, else nothing."""
        chance = random.random()
        if chance < 0.01:  # it is not read any more, and its owner lets go of it
            return "over"
        if chance < 0.02:
            if self.text.finish is None:
                self.finish = "cancelled"
            self.text.cancel()
            self.expected = self.expected[: len(self.found) + len(self.text._running.ready)]
        try:
            token = self._next(random)
        except TreadleError as error:
            is_full = len(self.prompt) + len(self.found) > self.capacity and isinstance(error, CacheFullError)
            return "over" if is_full or self.is_wrong else f"{self._told()}: {error}"
        if token is not None:
            self.found.append(token)
            is_right = self.found == self.expected[: len(self.found)] and not self.is_wrong
            return "" if is_right else self._told()
        is_right = self.found == self.expected and self.text.finish == self.finish
        return "over" if is_right or self.is_wrong else self._told()

    def _next(self, random: Random) -> int | None:
        if not self.chooses:
            made = next(self.text, None)
            return None if made is None else made.id
        logits = self.text.logits()
        if logits is None:
            return None
        if random.random() < 0.1:
            self.text = self.text.fork()
        token = self.draws.choose(logits, None if self.mask is None else self.mask.allowed())
        self.draws.take(token)
        if self.mask is not None:
            self.mask.take(token)
        self.text.take(token)
        return token

    def _told(self) -> str:
        return f"{self.decoder}, {self.prompt}, sampler {self.sampler}: {self.found}, {self.text.finish}; alone {self.expected}"


def _trial(options: Namespace) -> Callable[[int], str]:
    return lambda number: try_mix(Random(f"{options.seed} {number}"))


if __name__ == "__main__":
    sys.exit(runs.main(runs.Fuzzer(__spec__.name, "mix", __doc__, _trial, count=10_000)))
