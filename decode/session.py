"""Sessions: texts that go on, as values. `Engine.session` begins one, `Engine.resume` reads one that was saved.

A session is its tokens and the state of its sampler, no more: what the decoder keeps of the tokens is the engine's, which finds
it by the tokens, and computes it again where it has gone. So a session costs nothing while nobody generates, and `generate(a)`
and then `generate(b)` give what `generate(a + b)` gives, however often it was forked, saved and resumed in between.
"""

from __future__ import annotations

import copy
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..formats import session as files
from ..formats.container import Source
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import ArgumentError, CacheFullError, FormatError
from ..formats.session import SavedSession
from ..native.once import deferred
from ..vm.machine import CancelToken
from .adapters import Adapter
from .sampling import Draws, Mask, Sampler


class Tokens(Protocol):
    """A text as an engine makes it (`engine.py`)."""

    @property
    def finish(self) -> str | None: ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    def __next__(self) -> Any: ...

    def cancel(self) -> None: ...


class Maker(Protocol):
    """What a session asks of its engine."""

    function: str

    @property
    def digest(self) -> str: ...

    def submit(self, *ids: Any, **options: Any) -> Tokens: ...

    def kept(self, ids: np.ndarray, salt: bytes, adapter: Adapter | None) -> tuple[int, dict[str, np.ndarray]]: ...

    def restore(
        self, ids: np.ndarray, arrays: Mapping[str, np.ndarray], salt: bytes, adapter: Adapter | None
    ) -> None: ...


@public_class
class TokenSession(Suggesting):
    """A text that goes on. One thread at a time may use it; an engine's sessions run together."""

    def __init__(
        self, engine: Maker, ids: Any = (), sampler: Sampler | None = None, adapter: Adapter | None = None
    ) -> None:
        """`Engine.session` makes it."""
        self._engine, self._sampler, self._adapter = engine, _checked(sampler), adapter
        self._seed = _seed_of(self._sampler)
        self._tokens: list[int] = []
        self._made = 0  # of the last tokens, those that were generated: what penalties count
        self._drawn = 0  # of the sampler's random numbers
        self._salt = b""  # of contexts that were read from a file, and so are nobody else's
        self._text: Tokens | None = None  # that goes on
        self.append(ids)

    @property
    def tokens(self) -> np.ndarray:
        """All tokens so far, int64 [length]."""
        return np.array(self._tokens, np.int64)

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"<TokenSession: {len(self)} tokens>"

    def append(self, ids: Any) -> None:
        """More tokens, which are not the decoder's. Raises ArgumentError."""
        self._change([*self._tokens, *prompt_of(ids, least=0).tolist()], 0)

    def rewrite(self, ids: Any) -> None:
        """Other tokens in the place of all. What the decoder has kept of the first ones that are the same is used. Raises
        ArgumentError."""
        self._change(prompt_of(ids).tolist(), 0)

    def shorten(self, length: int) -> None:
        """Keeps the first `length` tokens. Raises ArgumentError."""
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= len(self):
            raise ArgumentError(f"shorten: length: expected a whole number from 0 to {len(self)}, got {length!r}")
        self._change(self._tokens[:length], max(0, self._made - (len(self) - length)))

    def _change(self, tokens: list[int], made: int) -> None:
        """A text that goes on belongs to other tokens now."""
        with deferred():
            self._tokens, self._made, self._text = tokens, made, None

    def generate(
        self,
        max_new_tokens: int,
        *,
        stop: Sequence[int] | Sequence[Sequence[int]] = (),
        cancel: CancelToken | None = None,
        max_seconds: float | None = None,
        mask: Mask | None = None,
        logprobs: int | None = None,
    ) -> SessionText:
        """The next tokens, as `Engine.submit` gives them; those that are taken belong to the session. Raises what that does."""
        self._text = self._engine.submit(
            self.tokens,
            max_new_tokens=max_new_tokens,
            sampler=self._draws(),
            stop=stop,
            cancel=cancel,
            max_seconds=max_seconds,
            mask=mask,
            logprobs=logprobs,
            salt=self._salt,
            adapter=self._adapter,
        )
        return SessionText(self, self._text)

    def _take(self, text: Tokens, token: Any) -> None:
        if self._text is not text:
            text.cancel()
            raise ArgumentError("generate: the session has other tokens by now; generate anew")
        self._tokens.append(token.id)
        self._made, self._drawn = self._made + 1, self._drawn + 1

    def _draws(self) -> Draws:
        """The sampler, in the state that it has behind the tokens so far: one random number was used for each."""
        split = len(self) - self._made
        draws = self._sampler.draws(self._tokens[:split])
        for token in self._tokens[split:]:
            draws.take(token)
        draws.random_state = np.random.PCG64(self._seed).advance(self._drawn).state
        return draws

    def fork(self, sampler: Sampler | None = None) -> TokenSession:
        """A session of the same tokens, which both go on from: alike, or by another sampler. Raises ArgumentError."""
        made = copy.copy(self)
        made._tokens, made._text = list(self._tokens), None
        if sampler is not None:
            made._sampler, made._seed, made._drawn = _checked(sampler), _seed_of(sampler), 0
        return made

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the session: its tokens, the state of its sampler, and what the decoder has kept of them. The file is there
        whole or not at all, whatever happens; in a folder it gets the digest of its contents as its name. The path of the file.
        Raises FileError, LimitError, and ArgumentError for an engine without a machine."""
        return files.save(self.saved(), path)

    def saved(self, chat: bytes = b"") -> SavedSession:
        """What is written; `chat` are the messages that the tokens were made of."""
        engine, sampler, adapter = self._engine, self._sampler, self._adapter
        held, caches = engine.kept(self.tokens, self._salt, adapter)
        settings = tuple(
            (each.name, _plain(getattr(sampler, each.name)))
            for each in fields(Sampler)
            if each.name != "seed" and getattr(sampler, each.name) != _default(each)
        )
        return SavedSession(
            engine.digest,
            engine.function,
            held,
            settings,
            self._seed,
            self._drawn,
            self._made,
            chat,
            self.tokens,
            caches,
            None if adapter is None else (adapter.name, adapter.digest.hex()),
        )


@public_class
class SessionText(Suggesting):
    """The tokens of a session as they are made, an iterator, as `Text` is."""

    def __init__(self, session: TokenSession, text: Tokens) -> None:
        self._session, self._text = session, text

    def __iter__(self) -> SessionText:
        return self

    def __next__(self) -> Any:
        with deferred():
            token = next(self._text)
            self._session._take(self._text, token)
        return token

    @property
    def finish(self) -> str | None:
        """Why it ended: "stop", "length", "cancelled", "deadline"; None while it goes on."""
        return self._text.finish

    @property
    def prompt_tokens(self) -> int:
        return self._text.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Of the tokens before, those that the decoder had kept."""
        return self._text.cached_tokens

    def cancel(self) -> None:
        """Ends the text, from any thread; the session goes on behind the tokens that were taken."""
        self._text.cancel()


def resume(source: Source, engine: Maker, adapter: Adapter | None) -> TokenSession:
    """Of `Engine.resume`."""
    return resumed(files.load(source), engine, source_name(source), adapter)


def source_name(source: Source) -> str:
    """For messages."""
    return os.fsdecode(source) if isinstance(source, (str, os.PathLike)) else "the session"


def _check_adapter(saved: SavedSession, adapter: Any, name: str) -> None:
    """Raises ArgumentError for another adapter than that of the session."""
    if adapter is not None and not isinstance(adapter, Adapter):
        raise ArgumentError(f"resume: adapter: expected a treadle.Adapter, got {told(adapter)}")
    if adapter is None and saved.adapter is None:
        return
    if saved.adapter is None:
        raise ArgumentError(f"{name} is a session without an adapter, got {adapter!r}: resume it without one")
    kept, digest = saved.adapter
    if adapter is None or adapter.digest.hex() != digest:
        got = "none" if adapter is None else f"{adapter.name!r} of digest {adapter.digest.hex()[:12]}"
        raise ArgumentError(
            f"{name} is a session with the adapter {kept!r} of digest {digest[:12]}, got {got}; resume it with "
            "adapter=treadle.Adapter.load(…) of that one"
        )


def resumed(saved: SavedSession, engine: Maker, name: str, adapter: Adapter | None = None) -> TokenSession:
    """The session that was saved; `name` is for messages. Raises ArgumentError, FormatError."""
    _check_adapter(saved, adapter, name)
    if (saved.program, saved.function) != (engine.digest, engine.function):
        raise ArgumentError(
            f"{name} is a session of another model: of function {saved.function!r} of program {saved.program[:12]}; this is "
            f"{engine.function!r} of {engine.digest[:12]}. Take the executable that it was begun with, and its weights"
        )
    settings = dict(saved.sampler)
    try:
        if "logit_bias" in settings:
            settings["logit_bias"] = dict(settings["logit_bias"])
        sampler = Sampler(seed=saved.seed, **settings)
    except (ArgumentError, TypeError, ValueError) as error:
        raise FormatError(f"{name}: {getattr(error, 'message', error)}", section="session") from None
    made = TokenSession(engine, saved.tokens, sampler, adapter)
    made._made, made._drawn, made._salt = saved.made, saved.drawn, bytes.fromhex(saved.digest)
    if saved.held:
        try:
            engine.restore(saved.tokens[: saved.held], saved.caches, made._salt, adapter)
        except CacheFullError:  # they are computed again
            pass
        except ArgumentError as error:
            raise FormatError(f"{name}: {error.message}", section="caches") from None
    return made


def prompt_of(ids: Any, least: int = 1) -> np.ndarray:
    """A prompt's tokens, int64 [length]. Raises ArgumentError for anything else."""
    try:
        array = np.asarray(ids)
    except ValueError:
        array = np.zeros((0, 0))
    if array.ndim == 1 and not array.size and not least:
        return np.zeros(0, np.int64)
    tokens = array.astype(np.int64) if array.ndim == 1 and array.dtype.kind in "iu" else np.zeros(0, np.int64)
    if not tokens.size or tokens.min() < 0:  # what an int64 does not hold is negative then
        got = f"{array.dtype}{list(array.shape)}" if array.ndim == 1 else told(ids)
        raise ArgumentError(f"submit: ids: expected token ids, at least one, from 0 on, got {got}")
    return tokens


def _checked(sampler: Any) -> Sampler:
    if sampler is None:
        return Sampler(0.0)
    if not isinstance(sampler, Sampler):
        raise ArgumentError(
            f"session: sampler: expected a treadle.Sampler, whose state can be saved, got {told(sampler)}"
        )
    return sampler


def _seed_of(sampler: Sampler) -> int:
    """The sampler's seed, or a random one, so that its state can be restored; 0 where no random number is drawn."""
    if sampler.seed is not None or sampler.temperature == 0:
        return int(sampler.seed or 0)
    return secrets.randbits(128)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((_plain(key), _plain(each)) for key, each in sorted(value.items()))
    return value.item() if isinstance(value, np.generic) else value


def _default(field: Any) -> Any:
    return field.default if field.default is not MISSING else field.default_factory()
