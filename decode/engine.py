"""Many texts of one decoder at once: `treadle.Engine`.

Each step appends tokens to many contexts in one call (`contexts.py`): the newest of each text, and pieces of prompts beside them.
A text's tokens do not depend on the texts beside it, on the pieces of its prompt, nor on what it shares with others.

It has no thread: the caller that waits for a token makes the steps, one at a time, for all. Ctrl-C ends a step where it waits or
computes, and a process is forked between two steps: no token is lost, and none is another one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..formats.container import Source
from ..formats.executable import Executable
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import (
    ArgumentError,
    BudgetExceededError,
    CacheFullError,
    CancelledError,
    CheckError,
)
from ..native.once import Lock, deferred, interruptible
from ..vm.machine import CancelToken, VirtualMachine
from .adapters import Adapter
from .beams import Beam, searched
from .contexts import Appended, Contexts
from .guesses import Guesses, Pays
from .paged_contexts import PagedContexts, has_pages
from .prefixes import BLOCK, Prefixes, chain
from .running import Running, Text, Token, check_count, ends_with, stops
from .sampling import Draws, Mask, Sampler, is_finite, likeliest, log_probabilities
from .session import TokenSession, prompt_of, resume
from .step_contexts import StepContexts

_MOST_SECONDS = threading.TIMEOUT_MAX / 2  # a lock cannot wait longer than twice that
_TICK_SECONDS = 0.05  # after which the main thread, waiting for others, looks whether Ctrl-C has come
_FORK_SECONDS = 30.0  # that a fork waits for a step's end
_PENALTY = 16  # so that no length to its power is infinite, or 0
_SLACK = 16  # tokens that each running text may still need when another is admitted
STATISTICS = ("tokens", "prompt_tokens", "cached_tokens", "drafted", "accepted")


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
        self._machine: VirtualMachine | None = None
        if contexts is None:
            if not isinstance(model, (VirtualMachine, Executable)):
                raise ArgumentError(
                    f"Engine: model: expected a machine or an executable, got {told(model)}; treadle.compile and treadle.load "
                    "give one"
                )
            self._machine = model if isinstance(model, VirtualMachine) else VirtualMachine(model)
            kind = PagedContexts if has_pages(self._machine, function) else StepContexts
            contexts = kind(self._machine, function, tokens=cache_tokens)
        elif not isinstance(contexts, Contexts):
            raise ArgumentError(f"Engine: contexts: expected contexts of a decoder, got {told(contexts)}")
        self.function, self._contexts, self._chunk = function, contexts, chunk
        self._prefixes, self._pays = Prefixes(contexts), Pays()
        self._capacity = contexts.room()
        self._lock = Lock()  # guards what texts and threads share; never held while a step computes
        self._condition = threading.Condition(self._lock)
        self._stepping = 0  # the thread that makes a step
        self._is_closed = False
        self._asking = 0  # threads that wait for a pause between two steps
        self._has_ended = False  # texts whose contexts are not closed yet
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._counts = dict.fromkeys(STATISTICS, 0)
        _engines.add(self)

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
        salt: bytes = b"",
        adapter: Adapter | None = None,
    ) -> Text:
        """A text behind a prompt, int [length]; its tokens come when they are asked for.

        sampler      without one the likeliest token is taken; `Sampler.draws()` goes on with random numbers from text to text
        stop         token ids, or sequences of them, after any of which the text ends; the token that completes it is the last
        cancel       ends it from another thread, as `Text.cancel` does
        max_seconds  from now on, after which it ends
        mask         says which tokens may come next
        logprobs     how many of the likeliest tokens come with each, and with all their logarithms of probabilities
        salt         texts of another salt share no beginnings with this one
        adapter      a treadle.Adapter, of a decoder that was compiled with `adapters`

        Raises ArgumentError, and CacheFullError for a prompt that is longer than the cache.
        """
        prompt = prompt_of(ids)
        check_count("max_new_tokens", max_new_tokens)
        if logprobs is not None:
            check_count("logprobs", logprobs)
        if not isinstance(sampler, (Sampler, Draws, type(None))):
            raise ArgumentError(f"submit: sampler: expected a treadle.Sampler, got {told(sampler)}")
        if mask is not None and not (
            callable(getattr(mask, "allowed", None)) and callable(getattr(mask, "take", None))
        ):
            raise ArgumentError(f"submit: mask: expected an object with `allowed` and `take`, got {told(mask)}")
        if not isinstance(salt, bytes):
            raise ArgumentError(f"submit: salt: expected bytes, got {told(salt)}")
        if not (max_seconds is None or (isinstance(max_seconds, (int, float)) and max_seconds >= 0)):
            raise ArgumentError(f"submit: max_seconds: expected a number from 0 on, got {max_seconds!r}")
        draws = sampler if isinstance(sampler, Draws) else (sampler or Sampler(0.0)).draws(prompt.tolist())
        running = Running(prompt, max_new_tokens, draws, stops(stop), mask)
        running.top, running.salt = logprobs, salt
        self._adapt(running, adapter)
        if max_seconds is not None:
            running.deadline = time.monotonic() + min(max_seconds, _MOST_SECONDS)
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
        check_count("max_new_tokens", max_new_tokens)
        running = Running(prompt_of(ids), max_new_tokens, None, stops(stop), None)
        self._adapt(running, adapter)
        return self._submitted(running, cancel)

    # ---- sessions ----

    def session(self, ids: Any = (), sampler: Sampler | None = None, *, adapter: Adapter | None = None) -> TokenSession:
        """A text that goes on, can be forked, and saved: `session.append(ids)`, `session.generate(max_new_tokens)`. Without a
        sampler the likeliest tokens are taken; `adapter` is as for `submit`. Raises ArgumentError."""
        self._contexts.adapters.check(adapter)
        return TokenSession(self, ids, sampler, adapter)

    def resume(self, source: Source, *, adapter: Adapter | None = None) -> TokenSession:
        """The session in a file that `TokenSession.save` wrote, or in its bytes; `adapter` is the one that it was saved with.
        Raises FormatError (ChecksumError where a byte is another one), FileError, and ArgumentError where it is of another model
        or adapter."""
        return resume(source, self, adapter)

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides about tokens: the program and its weights. Raises ArgumentError for an engine without a
        machine."""
        if self._machine is None:
            raise ArgumentError(
                "the engine has contexts in place of a machine: nobody knows of which model its sessions are"
            )
        return self._machine._calls.image.digest

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        """Holds off the next step while the caller reads what contexts hold."""
        with self._lock:
            self._asking += 1
            try:
                self._pause()
                self._sweep()
                yield
            finally:
                self._asking -= 1
                self._condition.notify_all()

    def kept(self, ids: np.ndarray, salt: bytes, adapter: Adapter | None) -> tuple[int, dict[str, np.ndarray]]:
        """Of the longest beginning of these tokens that is known, the length, and what the decoder keeps of it."""
        with self._between_steps():
            return self._prefixes.saved(ids, _salted(salt, adapter))

    def restore(self, ids: np.ndarray, arrays: Mapping[str, np.ndarray], salt: bytes, adapter: Adapter | None) -> None:
        """The inverse. Raises ArgumentError, CacheFullError."""
        with self._between_steps():
            self._prefixes.restore(ids, arrays, _salted(salt, adapter), adapter)

    # ---- texts ----

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
        check_count("max_new_tokens", max_new_tokens)
        check_count("count", count, 1)
        if not is_finite(length_penalty) or abs(length_penalty) > _PENALTY:
            expected = f"a number from {-_PENALTY} to {_PENALTY}"
            raise ArgumentError(f"beams: length_penalty: expected {expected}, got {length_penalty!r}")
        sequences = stops(stop)
        text = self.choose_by_hand(ids, max_new_tokens=max_new_tokens, cancel=cancel, adapter=adapter)
        return searched(
            text, max_new_tokens, count, length_penalty, lambda tokens: ends_with(tokens, len(tokens), sequences)
        )

    def _begun(
        self,
        prompt: np.ndarray,
        count: int,
        draws: Draws | None,
        ends: list[tuple[int, ...]],
        context: int | None = None,
        adapter: Adapter | None = None,
    ) -> Text:
        """A text, in an open context of its owner's, if there is one, which no other text may share."""
        running = Running(prompt, count, draws, ends, None)
        self._adapt(running, adapter)
        if context is not None:
            running.context, running.salt = context, None
        return self._submitted(running)

    def _adapt(self, running: Running, adapter: Adapter | None) -> None:
        """Raises ArgumentError for an adapter that the decoder does not take."""
        self._contexts.adapters.check(adapter)
        if adapter is not None:
            running.adapter, running.salt = adapter, _salted(running.salt or b"", adapter)

    def statistics(self) -> dict[str, int]:
        """Texts that are running and waiting; tokens made, tokens of prompts, those of them that other texts had computed, tokens
        that were guessed ahead, and those of them that were right."""
        with self._lock:
            if not self._stepping:
                self._sweep()
            return {"running": len(self._running), "waiting": len(self._waiting), **self._counts}

    def close(self) -> None:
        """Ends all texts, and lets go of their memory."""
        self._check_apart()
        with self._lock:
            self._is_closed = True
            for running in (*self._waiting, *self._running):
                self._end(running, "cancelled")
            self._pause()
            self._sweep()
            while self._prefixes.drop():
                pass

    def _pause(self, seconds: float = _MOST_SECONDS) -> None:
        """Waits until no step is made, so long at most. Raises CheckError in a step."""
        self._check_apart()
        self._condition.wait_for(lambda: not self._stepping, seconds)

    def _check_apart(self) -> None:
        """Raises CheckError for a step that would wait for itself."""
        if self._stepping == threading.get_ident():
            raise CheckError("a mask asks the engine that waits for it: it may use another engine")

    # ---- fork ----

    def _hold(self) -> bool:
        """Takes the lock between two steps, so that a child gets a consistent engine; False after the time for it."""
        is_held = self._lock.acquire(timeout=_FORK_SECONDS)
        if is_held and self._stepping != threading.get_ident():
            self._asking += 1
            self._pause(_FORK_SECONDS)
            self._asking -= 1
            self._condition.notify_all()  # threads that go on once the lock is free
        return is_held

    def _go_on_in_child(self) -> None:
        """Without the threads of the other process."""
        self._asking = 0
        if self._stepping not in (0, threading.get_ident()):
            # The step of another thread took longer than the fork waits: what contexts hold is not known
            self._stepping = 0
            self.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submitted(self, running: Running, cancel: CancelToken | None = None) -> Text:
        if not isinstance(cancel, (CancelToken, type(None))):
            raise ArgumentError(f"submit: cancel: expected a treadle.CancelToken, got {told(cancel)}")
        if running.prompt_tokens > self._capacity:
            raise CacheFullError(f"the prompt has {running.prompt_tokens} tokens; the cache holds {self._capacity}")
        text = Text(self, running)
        with self._lock:
            if self._is_closed:
                raise CheckError("submit: the engine is closed")
            self._counts["prompt_tokens"] += running.prompt_tokens
            if not running.left:
                running.finish = "length"
                return text
            if running.salt is not None:  # of the last token the logits are wanted in any case
                running.hashes = chain(np.array(running.ids[:-1]), running.salt)
                if running.draws is not None and self._contexts.verifies:
                    running.guesses = Guesses(running.ids)
            self._waiting.append(running)
        self._attach(running, cancel)
        return text

    def _attach(self, running: Running, cancel: CancelToken | None) -> None:
        if cancel is not None:
            running.cancel = cancel
            cancel.attach(id(running), partial(self._end, running, "cancelled"))  # which does not hold the text
            if cancel.cancelled:
                self._end(running, "cancelled")

    def _forked(self, running: Running) -> Text:
        with self._lock:
            made = Running(np.array(running.ids), running.left, None, running.stops, None)
            made.adapter = running.adapter
            made.prompt_tokens, made.hashes, made.salt = running.prompt_tokens, running.hashes, running.salt
            made.logits, made.finish, made.source = running.logits, running.finish, running
            if made.finish is None:
                self._waiting.append(made)
                self._attach(made, running.cancel)
            return Text(self, made)

    def _end(self, running: Running, finish: str, error: BaseException | None = None) -> None:
        """Its context is closed by the next step."""
        with self._lock:
            if running.finish is None:
                if isinstance(error, StopIteration):  # which would end the reader's loop as if all were well
                    error = CheckError("the mask raises StopIteration")
                # The traceback would hold what the thread at hand reads, another text.
                running.error = None if error is None else error.with_traceback(None)
                self._has_ended = True
                running.finish, running.logits = finish, None
                if running.cancel is not None:
                    running.cancel.detach(id(running))
                self._condition.notify_all()

    def _take(self, running: Running, token: int) -> None:
        with deferred(), self._lock:
            if running.logits is not None:
                running.logits = None
                self._emit(running, Token(int(token)))

    def _emit(self, running: Running, token: Token) -> None:
        """The next token of a text."""
        with self._lock:
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
            if running.is_at_stop:
                self._end(running, "stop")
            elif not running.left:
                self._end(running, "length")

    # ---- steps ----

    def _wait(self, running: Running) -> None:
        """Until the text has a token, or logits that nobody has taken, or is over."""
        with deferred():
            while not running.has_news:
                with self._lock:
                    if not self._stepping and not self._asking:
                        self._stepping = threading.get_ident()
                    else:
                        self._wait_for_others(running)
                        continue
                try:
                    self._step()
                finally:
                    with self._lock:
                        self._stepping = 0
                        self._condition.notify_all()
                with interruptible():  # before a token is taken
                    pass

    def _wait_for_others(self, running: Running) -> None:
        """Until a step of another thread is over, or the text's time."""
        self._check_apart()
        left = None if running.deadline is None else running.deadline - time.monotonic()
        if left is not None and left <= 0:
            self._end(running, "deadline")
        else:
            tick = _TICK_SECONDS if threading.current_thread() is threading.main_thread() else _MOST_SECONDS
            self._condition.wait(tick if left is None else min(left, tick))
            with interruptible():
                pass

    def _step(self) -> None:
        try:
            with self._lock:
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
                with self._lock:
                    self._let_go()
        except BaseException:  # interrupted: what contexts hold is not known
            with self._lock:
                for running in reversed(self._running.copy()):
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

    def _release(self, running: Running, keeps: bool) -> None:
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

    def _put_back(self, running: Running) -> None:
        """Its tokens will be computed again, before those of texts that wait."""
        self._running.remove(running)
        self._release(running, keeps=False)
        running.computed = 0
        self._waiting.appendleft(running)

    def _admit(self) -> None:
        """Begins texts, first come first, as long as what the running ones need now leaves room."""
        if not self._waiting:
            return
        prompts = [each for each in self._running if each.computed < each.prompt_tokens]
        computing = {each for running in prompts for each in running.hashes}
        later: list[Running] = []
        while self._waiting and len(self._running) < self._chunk:
            running = self._waiting.popleft()
            if running.logits is not None:  # its owner has not gone on with it: there is nothing to compute
                later.append(running)
                continue
            found = self._prefixes.find(running.ids[:-1], running.hashes)
            known = found[1] // BLOCK if found else 0
            if self._contexts.shortens and known < len(running.hashes) and running.hashes[known] in computing:
                # the next step knows more of it
                later.append(running)
                continue
            if not self._begin(running, found):
                self._waiting.appendleft(running)
                break
            computing.update(running.hashes[known:])
            self._running.append(running)
        self._waiting.extendleft(reversed(later))

    def _begin(self, running: Running, found: tuple[int, int] | None) -> bool:
        """Whether there is room for a text. The first one begins in any case: it may have all."""
        if running.context is not None:
            return True
        needed = len(running.ids) + sum(len(each.ids) - each.computed + _SLACK for each in self._running)
        if found is not None and self._prefixes.would_move(*found):
            needed -= found[1]
        self._prefixes.make_room(needed, keep=found and found[0])
        if self._contexts.room() < needed:
            if self._running:
                return False
            if found is not None and not self._prefixes.would_move(*found):
                self._prefixes.drop()
                found = None
        running.computed = 0
        source, running.source = running.source, None
        if source is not None and source.context is not None and (found is None or found[1] < source.computed):
            running.computed = min(source.computed, len(running.ids) - 1)
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

    def _planned(self) -> list[tuple[Running, Appended]]:
        """What the next step appends: a token of each text that has its prompt, then tokens of prompts, then guesses."""
        while (room := self._contexts.room()) < self._needed():
            if self._prefixes.drop():
                continue
            # A text whose owner takes no tokens waits, else the newest one. The oldest one may have all.
            last = next((each for each in reversed(self._running) if each.logits is not None), self._running[-1])
            if len(self._running) == 1:
                break
            self._put_back(last)
        going = [each for each in self._running if len(each.ids) - each.computed == 1]
        left = max(min(self._chunk, room) - len(going), not going)
        batch: list[tuple[Running, Appended]] = []
        if len(going) < len(self._running):
            prompts = {each: n for each in self._running if (n := len(each.ids) - each.computed) > 1}
            shares = _shares(list(prompts.values()), left)
            left -= sum(shares)
            batch = [(each, self._next(each, share)) for each, share in zip(prompts, shares, strict=True) if share]
        for each in going:
            count = min(self._pays.count(each.guesses.right, len(going)), left, each.left - 1) if each.guesses else 0
            appended = self._next(each, 1, each.guesses.next(count) if each.guesses and count > 0 else [])
            left -= len(appended.tokens) - 1
            batch.append((each, appended))
        return batch

    @staticmethod
    def _next(running: Running, count: int, guesses: Sequence[int] = ()) -> Appended:
        """Its next tokens; of these logits are wanted if they are the last ones, and of guesses behind them."""
        assert running.context is not None
        end = running.computed + count
        tokens = np.array([*running.ids[running.computed : end], *guesses], np.int64)
        return Appended(running.context, tokens, len(guesses) + 1 if end == len(running.ids) else 0)

    def _appended(self, batch: list[tuple[Running, Appended]]) -> list[tuple[Running, Appended, np.ndarray]]:
        """The logits of each. If the call fails, each is called alone, and ends alone if that fails; the bounds of a call are
        those of all in it."""
        if not batch:
            return []
        try:
            with interruptible():
                made = self._contexts.append([each for _, each in batch])
            return [(*each, rows) for each, rows in zip(batch, made, strict=True)]
        except Exception as error:  # of contexts that are a user's, too
            if len(batch) == 1 or isinstance(error, (BudgetExceededError, CancelledError)):
                for running, _ in batch:
                    self._end(running, "error", error)
                return []
        return [made for each in batch for made in self._appended([each])]

    def _advance(self, running: Running, appended: Appended, rows: np.ndarray) -> None:
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
            with self._lock:
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
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of a mask, which is its user's
            self._end(running, "error", error)
        running.computed += right
        self._counts["drafted"] += len(guesses)
        self._counts["accepted"] += right
        if right < len(guesses):
            self._contexts.shorten(appended.context, running.computed)

    @staticmethod
    def _chosen(running: Running, draws: Draws, logits: np.ndarray) -> Token:
        allowed = None
        if running.mask is not None:
            with interruptible():
                allowed = running.mask.allowed()
        token = draws.choose(logits, allowed)
        if running.top is None:
            return Token(token)
        logarithms = log_probabilities(logits)
        top = likeliest(logits, running.top) if running.top else ()
        return Token(token, float(logarithms[token]), tuple((int(each), float(logarithms[each])) for each in top))


def _salted(salt: bytes, adapter: Adapter | None) -> bytes:
    """The salt of texts with this adapter: they share beginnings with no others."""
    return salt if adapter is None else salt + adapter.digest


def _shares(lengths: Sequence[int], most: int) -> list[int]:
    """How much of prompts of these lengths, the first comer first, is computed in a step: half of it goes to all alike, so that a
    long one keeps nobody waiting."""
    shares, alike = [0] * len(lengths), most // 2
    for number, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[place] = min(alike // (len(lengths) - number), lengths[place])
        alike -= shares[place]
    left = most - sum(shares)
    for place, length in enumerate(lengths):
        more = min(left, length - shares[place])
        shares[place] += more
        left -= more
    return shares


# ---- processes ----

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_held: list[Engine] = []


def _before_fork() -> None:
    _held[:] = [engine for engine in list(_engines) if engine._hold()]


def _after_fork(is_child: bool) -> None:
    for engine in _held:
        engine._lock.release()
    _held.clear()
    for engine in list(_engines) if is_child else ():
        engine._go_on_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=partial(_after_fork, False), after_in_child=partial(_after_fork, True)
    )
