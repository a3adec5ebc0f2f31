"""Many texts of one decoder at once: `treadle.Engine`.

Each step appends tokens to many contexts in one call (`contexts.py`): the newest of each text, and pieces of prompts beside them.
A text's tokens do not depend on the texts beside it, on the pieces of its prompt, nor on what it shares with others.

It has no thread: the caller that waits for a token makes the steps, one at a time, for all.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.executable import Executable
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    CacheFullError,
    CancelledError,
    CheckError,
    TreadleError,
)
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter
from .beams import Beam, searched
from .contexts import Appended, Contexts
from .guesses import Guesses, Pays
from .paged_contexts import PagedContexts, has_pages
from .prefixes import BLOCK, Prefixes, chain
from .sampling import Draws, Mask, Sampler, likeliest, log_probabilities
from .step_contexts import StepContexts

_SLACK = 16  # tokens that each running text may still need when another is admitted
STATISTICS = ("tokens", "prompt_tokens", "cached_tokens", "drafted", "accepted")


class Token(NamedTuple):
    """A token of a text. Where they were asked for, the logarithm of its probability, and the likeliest tokens with theirs."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class _Running:
    """A text as the engine holds it. Between two steps `ids[computed:]` are to be appended to its context."""

    def __init__(
        self, ids: np.ndarray, count: int, draws: Draws | None, stops: list[tuple[int, ...]], mask: Mask | None
    ) -> None:
        self.ids = ids.tolist()
        self.prompt_tokens, self.cached_tokens, self.left = len(ids), 0, count
        self.draws, self.mask = draws, mask
        self.stops = stops
        self.source: _Running | None = None  # of a fork that has not begun
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
        self.salt: bytes | None = b""  # None: its context is nobody else's
        self.hashes: list[bytes] = []  # of the prompt, while it is computed
        self.guesses: Guesses | None = None


@public_class
class Text(Suggesting):
    """The tokens of a text as they are made: an iterator. `finish` says why it ended: "stop", "length", "cancelled", "deadline",
    or "error", which the iterator raises."""

    def __init__(self, engine: Engine, running: _Running) -> None:
        self._engine, self._running = engine, running

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        running = self._running
        if not running.ready:
            self._engine._wait(running)
        if running.ready:
            return running.ready.popleft()
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
        """The next token of a text without a sampler."""
        self._engine._take(self._running, token)

    def fork(self) -> Text:
        """Of a text without a sampler: another one that goes on from here."""
        return self._engine._forked(self._running)

    def __del__(self) -> None:
        if hasattr(self, "_running"):
            self._running.is_abandoned = True


@public_class
class Engine(Suggesting):
    """Makes many texts at once by one decoder.

    model         a machine, or an executable
    function      the decoder in it
    cache_tokens  how many tokens are held at most, of all texts and of those before whose beginnings others may share; None:
                  what a gibibyte holds
    chunk         how many tokens a step computes at most: long prompts are computed in pieces, between which others go on
    contexts      what holds the caches, in place of those of a machine

    Threads may share it. Raises ArgumentError for a function that is not a decoder.
    """

    def __init__(
        self,
        model: VirtualMachine | Executable | None = None,
        function: str = "main",
        *,
        cache_tokens: int | None = None,
        chunk: int = 256,
        contexts: Contexts | None = None,
    ) -> None:
        for name, value in (("cache_tokens", cache_tokens), ("chunk", chunk)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ArgumentError(f"Engine: {name}: expected a whole number from 1 on, got {value!r}")
        if contexts is None:
            if not isinstance(model, (VirtualMachine, Executable)):
                raise ArgumentError(
                    f"Engine: model: expected a machine or an executable, got {told(model)}; treadle.compile and treadle.load "
                    "give one"
                )
            machine = model if isinstance(model, VirtualMachine) else VirtualMachine(model)
            kind = PagedContexts if has_pages(machine, function) else StepContexts
            contexts = kind(machine, function, tokens=cache_tokens)
        self._contexts, self._chunk = contexts, chunk
        self._prefixes, self._pays = Prefixes(contexts), Pays()
        self._capacity = contexts.room()
        self._condition = threading.Condition()  # guards what texts and threads share; never held while a step computes
        self._is_stepping = self._is_closed = False
        self._has_ended = False  # texts whose contexts are not closed yet
        self._waiting: deque[_Running] = deque()
        self._running: list[_Running] = []
        self._counts = dict.fromkeys(STATISTICS, 0)

    # ---- for its users ----

    def submit(
        self,
        ids: Any,
        *,
        max_new_tokens: int,
        sampler: Sampler | Draws | None = None,
        stop: Sequence[int] | Sequence[Sequence[int]] = (),
        cancel: CancelToken | None = None,
        max_seconds: float | None = None,
        mask: Mask | None = None,
        logprobs: int | None = None,
        adapter: Adapter | None = None,
    ) -> Text:
        """A text behind a prompt, int [length]; its tokens come when they are asked for.

        sampler      without one the likeliest token is taken; `Sampler.draws()` goes on with random numbers from text to text
        stop         token ids, or sequences of them, after any of which the text ends; the token that completes it is the last
        cancel       ends it from another thread, as `Text.cancel` does
        max_seconds  from now on, after which it ends
        mask         says which tokens may come next
        logprobs     how many of the likeliest tokens come with each, and with all their logarithms of probabilities
        adapter      a treadle.Adapter, of a decoder that was compiled with `adapters`

        Raises ArgumentError, and CacheFullError for a prompt that is longer than the cache.
        """
        prompt = _prompt(ids)
        _check_count("max_new_tokens", max_new_tokens)
        if logprobs is not None:
            _check_count("logprobs", logprobs)
        if not isinstance(sampler, (Sampler, Draws, type(None))):
            raise ArgumentError(f"submit: sampler: expected a treadle.Sampler, got {told(sampler)}")
        if mask is not None and not (
            callable(getattr(mask, "allowed", None)) and callable(getattr(mask, "take", None))
        ):
            raise ArgumentError(f"submit: mask: expected an object with `allowed` and `take`, got {told(mask)}")
        if not (max_seconds is None or (isinstance(max_seconds, (int, float)) and max_seconds >= 0)):
            raise ArgumentError(f"submit: max_seconds: expected a number from 0 on, got {max_seconds!r}")
        draws = sampler if isinstance(sampler, Draws) else (sampler or Sampler(0.0)).draws(prompt.tolist())
        running = _Running(prompt, max_new_tokens, draws, stops(stop), mask)
        running.top = logprobs
        self._adapt(running, adapter)
        running.guesses = Guesses(running.ids) if self._contexts.verifies else None
        if max_seconds is not None:
            running.deadline = time.monotonic() + max_seconds
        return self._submitted(running, cancel)

    def choose_by_hand(
        self,
        ids: Any,
        *,
        max_new_tokens: int,
        stop: Sequence[int] | Sequence[Sequence[int]] = (),
        cancel: CancelToken | None = None,
        adapter: Adapter | None = None,
    ) -> Text:
        """The same, of a text whose tokens the caller chooses, by `Text.logits` and `Text.take`."""
        _check_count("max_new_tokens", max_new_tokens)
        running = _Running(_prompt(ids), max_new_tokens, None, stops(stop), None)
        self._adapt(running, adapter)
        return self._submitted(running, cancel)

    def beams(
        self,
        ids: Any,
        *,
        max_new_tokens: int,
        count: int = 4,
        length_penalty: float = 1.0,
        stop: Sequence[int] | Sequence[Sequence[int]] = (),
        cancel: CancelToken | None = None,
        adapter: Adapter | None = None,
    ) -> list[Beam]:
        """The `count` best texts that a beam search finds behind a prompt, the best one first: `tokens` and `score`, the sum of
        their logarithms of probabilities over their number to the power of `length_penalty`. None if it is cancelled.

        Raises ArgumentError, and CacheFullError."""
        for name, value in (("max_new_tokens", max_new_tokens), ("count", count)):
            _check_count(name, value)
        ends = stops(stop)
        text = self.choose_by_hand(ids, max_new_tokens=max_new_tokens, cancel=cancel, adapter=adapter)
        return searched(text, max_new_tokens, count, length_penalty, lambda tokens: _ends(tokens, ends))

    def begun(
        self,
        prompt: np.ndarray,
        count: int,
        draws: Draws | None,
        ends: list[tuple[int, ...]],
        context: int | None = None,
        adapter: Adapter | None = None,
    ) -> Text:
        """A text, in an open context of its owner's, if there is one, which no other text may share."""
        running = _Running(prompt, count, draws, ends, None)
        self._adapt(running, adapter)
        if context is not None:
            running.context, running.salt = context, None
        elif draws is not None and self._contexts.verifies:
            running.guesses = Guesses(running.ids)
        return self._submitted(running)

    def _adapt(self, running: _Running, adapter: Adapter | None) -> None:
        """Raises ArgumentError for an adapter that the decoder does not take."""
        self._contexts.adapters.check(adapter)
        if adapter is not None:
            running.adapter, running.salt = adapter, adapter.digest  # of others' beginnings nothing is known

    def statistics(self) -> dict[str, int]:
        """Texts that are running and waiting; tokens made, tokens of prompts, those of them that other texts had computed, tokens
        that were guessed ahead, and those of them that were right."""
        with self._condition:
            if not self._is_stepping:
                self._sweep()
            return {"running": len(self._running), "waiting": len(self._waiting), **self._counts}

    def close(self) -> None:
        """Ends all texts, and lets go of their memory."""
        with self._condition:
            self._is_closed = True
            for running in (*self._waiting, *self._running):
                self._end(running, "cancelled")
            while self._is_stepping:
                self._condition.wait()
            self._sweep()
            while self._prefixes.drop():
                pass

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- texts ----

    def _submitted(self, running: _Running, cancel: CancelToken | None = None) -> Text:
        if not isinstance(cancel, (CancelToken, type(None))):
            raise ArgumentError(f"submit: cancel: expected a treadle.CancelToken, got {told(cancel)}")
        if running.prompt_tokens > self._capacity:
            raise CacheFullError(f"the prompt has {running.prompt_tokens} tokens; the cache holds {self._capacity}")
        text = Text(self, running)
        with self._condition:
            if self._is_closed:
                raise CheckError("submit: the engine is closed")
            self._counts["prompt_tokens"] += running.prompt_tokens
            if not running.left:
                running.finish = "length"
                return text
            if running.salt is not None:
                running.hashes = chain(
                    np.array(running.ids[:-1]), running.salt
                )  # the last one's logits must be computed
            self._waiting.append(running)
        if cancel is not None:
            running.cancel = cancel
            cancel.attach(id(running), text.cancel)
            if cancel.cancelled:
                text.cancel()
        return text

    def _forked(self, running: _Running) -> Text:
        with self._condition:
            made = _Running(np.array(running.ids), running.left, None, running.stops, None)
            made.adapter = running.adapter
            made.prompt_tokens, made.hashes, made.salt = running.prompt_tokens, running.hashes, running.salt
            made.logits, made.finish, made.source = running.logits, running.finish, running
            if made.finish is None:
                self._waiting.append(made)
            return Text(self, made)

    def _end(self, running: _Running, finish: str, error: BaseException | None = None) -> None:
        """Its context is closed by the next step."""
        with self._condition:
            if running.finish is None:
                # The traceback would hold what the thread at hand reads, another text.
                running.error = None if error is None else error.with_traceback(None)
                running.finish, running.logits = finish, None
                self._has_ended = True
                if running.cancel is not None:
                    running.cancel.detach(id(running))
                self._condition.notify_all()

    def _take(self, running: _Running, token: int) -> None:
        with self._condition:
            if running.logits is not None:
                running.logits = None
                self._emit(running, Token(token))

    def _emit(self, running: _Running, token: Token) -> None:
        """The next token of a text."""
        with self._condition:
            if running.finish is not None:
                return
            running.ids.append(token.id)
            running.left -= 1
            self._counts["tokens"] += 1
            if running.draws is not None:
                running.draws.take(token.id)
                running.ready.append(token)
            if running.mask is not None:
                running.mask.take(token.id)
            if running.guesses is not None:
                running.guesses.take()
            if running.stops and _ends(running.ids[running.prompt_tokens :], running.stops):
                self._end(running, "stop")
            elif not running.left:
                self._end(running, "length")

    # ---- steps ----

    def _wait(self, running: _Running) -> None:
        """Until the text has a token, or logits that nobody has taken, or is over."""
        while True:
            is_mine = False
            try:
                with self._condition:
                    while self._is_stepping and not _has_news(running):
                        left = None if running.deadline is None else running.deadline - time.monotonic()
                        if left is not None and left <= 0:
                            self._end(running, "deadline")
                        else:
                            self._condition.wait(left)
                    if _has_news(running):
                        return
                    is_mine = self._is_stepping = True
                self._step()
            finally:
                if is_mine:
                    with self._condition:
                        self._is_stepping = False
                        self._condition.notify_all()

    def _step(self) -> None:
        try:
            with self._condition:
                self._sweep()
                self._admit()
                while self._waiting and self._running and not self._needed():  # their owners do not go on with them
                    self._put_back(self._running[-1])
                    self._admit()
                batch = self._planned()
            start = time.perf_counter()
            made = self._appended(batch)
            if all(running.computed >= running.prompt_tokens for running, _ in batch):
                seconds = time.perf_counter() - start
                self._pays.saw(seconds, sum(len(appended.tokens) - 1 for _, appended in batch))
            for each in made:
                self._advance(*each)
            if self._has_ended:
                with self._condition:
                    self._let_go()
        except BaseException:  # interrupted: what contexts hold is not known
            with self._condition:
                for running in list(self._running):
                    self._put_back(running)
            raise

    def _sweep(self) -> None:
        """Ends texts whose time is over, and those that nobody reads."""
        now = time.monotonic()
        for running in (*self._running, *self._waiting):
            if running.deadline is not None and now >= running.deadline:
                self._end(running, "deadline")
            if running.is_abandoned:
                self._end(running, "cancelled")
        if self._has_ended:
            self._let_go()

    def _let_go(self) -> None:
        """Of texts that are over."""
        self._has_ended = False
        for running in [each for each in self._running if each.finish is not None]:
            self._running.remove(running)
            self._release(running, keeps=running.error is None)
        if any(each.finish is not None for each in self._waiting):
            self._waiting = deque(each for each in self._waiting if each.finish is None)

    def _release(self, running: _Running, keeps: bool) -> None:
        context, running.context = running.context, None
        if context is None:
            return
        if keeps and running.salt is not None and running.computed >= BLOCK:
            self._prefixes.keep(context, np.array(running.ids[: running.computed]), running.salt)
        else:
            self._prefixes.forget(context)
            self._contexts.close(context)

    def _needed(self) -> int:
        """A token of each text that goes on."""
        return sum(len(each.ids) > each.computed for each in self._running)

    def _put_back(self, running: _Running) -> None:
        """Its tokens will be computed again, before those of texts that wait."""
        self._running.remove(running)
        self._release(running, keeps=False)
        running.computed = 0
        self._waiting.appendleft(running)

    def _admit(self) -> None:
        """Begins texts, first come first, as long as what the running ones need now leaves room."""
        prompts = [each for each in self._running if each.computed < each.prompt_tokens]
        computing = {each for running in prompts for each in running.hashes}
        later: list[_Running] = []
        while self._waiting and len(self._running) < self._chunk:
            running = self._waiting.popleft()
            ids = np.array(running.ids)
            found = self._prefixes.find(ids[:-1], running.hashes)
            known = found[1] // BLOCK if found else 0
            # One that its owner has not gone on with has nothing to compute; of one that begins as another, which is computed
            # now, more is known in the next step.
            if running.logits is not None or (known < len(running.hashes) and running.hashes[known] in computing):
                later.append(running)
                continue
            if not self._begin(running, ids, found):
                self._waiting.appendleft(running)
                break
            computing.update(running.hashes[known:])
            self._running.append(running)
        self._waiting.extendleft(reversed(later))

    def _begin(self, running: _Running, ids: np.ndarray, found: tuple[int, int] | None) -> bool:
        """Whether there is room for a text. The first one begins in any case: it may have all."""
        if running.context is not None:
            return True
        needed = len(ids) + sum(len(each.ids) - each.computed + _SLACK for each in self._running)
        if found is not None and self._prefixes.would_move(*found):
            needed -= found[1]
        while self._contexts.room() < needed and self._prefixes.drop(but=found and found[0]):
            pass
        if self._contexts.room() < needed:
            if self._running:
                return False
            if found is not None and not self._prefixes.would_move(*found):
                self._prefixes.drop()
                found = None
        running.computed = 0
        source, running.source = running.source, None
        if source is not None and source.context is not None and (found is None or found[1] < source.computed):
            running.computed = min(source.computed, len(ids) - 1)
            running.context = self._contexts.fork(source.context, running.computed)
            return True
        if found is None:
            running.context = self._contexts.open(running.adapter)
            if self._running and self._contexts.room() < needed:  # which an open context may take
                self._release(running, keeps=False)
                return False
            return True
        running.context = self._prefixes.take(*found)
        running.computed = found[1]
        if not running.cached_tokens and len(running.ids) == running.prompt_tokens:
            running.cached_tokens = found[1]
            self._counts["cached_tokens"] += found[1]
        return True

    def _planned(self) -> list[tuple[_Running, Appended]]:
        """What the next step appends: a token of each text that has its prompt, and the rest of the chunk to prompts: half of it
        to those that came first, half to all alike, so that a long one keeps nobody waiting."""
        while self._contexts.room() < self._needed():
            if self._prefixes.drop():
                continue
            # One that its owner has not gone on with waits, else the one that came last. The first one may have all.
            last = next((each for each in reversed(self._running) if each.logits is not None), self._running[-1])
            if len(self._running) == 1:
                break
            self._put_back(last)
        going = [each for each in self._running if len(each.ids) - each.computed == 1]
        prompts = {each: len(each.ids) - each.computed for each in self._running if len(each.ids) - each.computed > 1}
        left = max(min(self._chunk, self._contexts.room()) - len(going), not going)
        shares = dict.fromkeys(prompts, 0)
        alike = left // 2
        for number, each in enumerate(sorted(prompts, key=lambda each: prompts[each])):
            shares[each] = min(alike // (len(prompts) - number), prompts[each])
            alike -= shares[each]
        left -= sum(shares.values())
        for each in prompts:
            more = min(left, prompts[each] - shares[each])
            shares[each] += more
            left -= more
        batch = [(each, self._next(each, share)) for each, share in shares.items() if share]
        for each in going:
            count = min(self._pays.count(each.guesses.right, len(going)), left, each.left - 1) if each.guesses else 0
            appended = self._next(each, 1, each.guesses.next(count) if each.guesses and count > 0 else [])
            left -= len(appended.tokens) - 1
            batch.append((each, appended))
        return batch

    @staticmethod
    def _next(running: _Running, count: int, guesses: Sequence[int] = ()) -> Appended:
        """Its next tokens; of these logits are wanted if they are the last ones, and of guesses behind them."""
        assert running.context is not None
        end = running.computed + count
        tokens = np.array([*running.ids[running.computed : end], *guesses], np.int64)
        return Appended(running.context, tokens, len(guesses) + 1 if end == len(running.ids) else 0)

    def _appended(self, batch: list[tuple[_Running, Appended]]) -> list[tuple[_Running, Appended, np.ndarray]]:
        """The logits of each. If the call fails, each is called alone, and ends alone if that fails; the bounds of a call are
        those of all in it."""
        if not batch:
            return []
        try:
            made = self._contexts.append([each for _, each in batch])
            return [(*each, rows) for each, rows in zip(batch, made, strict=True)]
        except TreadleError as error:
            if len(batch) == 1 or isinstance(error, (BudgetExceededError, CancelledError)):
                for running, _ in batch:
                    self._end(running, "error", error)
                return []
        return [made for each in batch for made in self._appended([each])]

    def _advance(self, running: _Running, appended: Appended, rows: np.ndarray) -> None:
        """Takes what a step has made of a text's tokens."""
        was_prompt = running.computed < running.prompt_tokens
        guesses = appended.tokens[len(appended.tokens) - appended.logits + 1 :].tolist() if appended.logits else []
        running.computed += len(appended.tokens) - len(guesses)
        if was_prompt and running.computed >= running.prompt_tokens and running.hashes:
            assert running.context is not None
            self._prefixes.hold(running.context, np.array(running.ids[: running.computed]), running.salt or b"")
        if not appended.logits:
            return
        if running.draws is None:
            with self._condition:
                running.logits = rows[-1] if running.finish is None else None
            return
        right = 0
        try:
            for row, guess in zip(rows, [*guesses, None], strict=True):
                token = self._chosen(running, running.draws, row)
                self._emit(running, token)
                if token.id != guess or running.finish is not None:
                    break
                right += 1
        except Exception as error:  # of a mask, which is its user's
            self._end(running, "error", error)
        running.computed += right
        self._counts["drafted"] += len(guesses)
        self._counts["accepted"] += right
        if right < len(guesses):
            self._contexts.shorten(appended.context, running.computed)

    @staticmethod
    def _chosen(running: _Running, draws: Draws, logits: np.ndarray) -> Token:
        token = draws.choose(logits, None if running.mask is None else running.mask.allowed())
        if running.top is None:
            return Token(token)
        logarithms = log_probabilities(logits)
        top = likeliest(logits, running.top) if running.top else ()
        return Token(token, float(logarithms[token]), tuple((int(each), float(logarithms[each])) for each in top))


def _prompt(ids: Any) -> np.ndarray:
    """A prompt's tokens. Raises ArgumentError for anything else."""
    try:
        array = np.asarray(ids)
    except ValueError:
        array = np.zeros((0, 0))
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.min() < 0:
        got = f"{array.dtype}{list(array.shape)}" if array.ndim == 1 else told(ids)
        raise ArgumentError(f"submit: ids: expected token ids, at least one, from 0 on, got {got}")
    return array.astype(np.int64)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ArgumentError(f"submit: {name}: expected a whole number from 0 on, got {value!r}")


def stops(stop: Any) -> list[tuple[int, ...]]:
    """The sequences that end a text. Raises ArgumentError."""
    try:
        sequences = [(int(each),) if isinstance(each, (int, np.integer)) else tuple(map(int, each)) for each in stop]
    except (TypeError, ValueError):
        raise ArgumentError(f"generate: stop: expected token ids, or lists of them, got {stop!r}") from None
    if () in sequences:
        raise ArgumentError("generate: stop: an empty sequence would end every text")
    return sequences


def _ends(tokens: Sequence[int], ends: Sequence[tuple[int, ...]]) -> bool:
    return any(tuple(tokens[-len(end) :]) == end for end in ends)


def _has_news(running: _Running) -> bool:
    return bool(running.ready) or running.finish is not None or running.logits is not None
