"""Prompts and chats to answers, piece by piece: a decoder's tokenizer and chat template around the engine of its texts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..decode.adapters import Adapter
from ..decode.engine import Engine
from ..decode.sampling import Sampler
from ..decode.session import TokenSession, resumed, source_name
from ..formats import session as sessions
from ..formats.container import Source
from ..formats.executable import Executable
from ..formats.messages.calling import Suggesting, public_class, told
from ..formats.messages.errors import ArgumentError, FormatError
from ..formats.text_model import TextModel
from ..native.once import Lock, deferred
from ..vm.budgets import CancelToken
from ..vm.machine import VirtualMachine
from .models import Texts
from .pieces import Pieces, Until
from .replies import ARGUMENTS, THINK, THOUGHT, Reply, form_of

_CONTEXT = 4  # tokens before the first that tell how its text begins


class Prompt(NamedTuple):
    """The tokens of a prompt, and its text where that matters: of a chat."""

    ids: tuple[int, ...]
    text: str = ""


class Piece(NamedTuple):
    """What became certain with a token: its text, which may be empty, and the token, None where the answer ends."""

    text: str
    token: Any


@public_class
class Generator(Texts):
    """Prompts to answers. Any thread may ask; answers that are made at once share the decoder's calls."""

    def __init__(
        self,
        text: TextModel,
        executable: Executable,
        machine: VirtualMachine,
        max_steps: int | None,
        cache_tokens: int | None = None,
    ) -> None:
        super().__init__(text, executable, machine, max_steps)
        self._cache_tokens, self._lock = cache_tokens, Lock()
        self._engine: Engine | None = None
        self.form = form_of(text.template)
        marks = {THINK, THOUGHT, ARGUMENTS, *((self.form.opens, self.form.closes) if self.form else ())} - {""}
        self._marks = frozenset(number for number, name in self.tokenizer.special.items() if name in marks)

    @property
    def engine(self) -> Engine:
        """The engine, which begins with the first question for it."""
        with self._lock:
            if self._engine is None:
                self._engine = Engine(self._machine, cache_tokens=self._cache_tokens)
            return self._engine

    def statistics(self) -> dict[str, int]:
        """The engine's counts; none before it begins."""
        engine = self._engine
        return {} if engine is None else engine.statistics()

    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        sampler: Sampler | None = None,
        mask: Any = None,
        logprobs: int | None = None,
        max_seconds: float | None = None,
        cancel: CancelToken | None = None,
        template: Mapping[str, Any] | None = None,
        adapter: Adapter | None = None,
        **sampling: Any,
    ) -> Answer:
        """The answer to a prompt, an iterator of pieces of text as they are made.

        prompt    a text, token numbers, or a chat: messages with "role" and "content", of which the chat template makes a text
        stop      texts that end the answer, and are no part of it; the model's own ends do too
        sampler   a treadle.Sampler, or its fields as arguments (temperature=0.8); by default the likeliest token is taken
        mask      a constraint, such as treadle.text.grammar makes
        logprobs  how many of the likeliest tokens each of the answer's is to have
        template  what the chat template takes besides, such as tools
        adapter   a treadle.Adapter, of a decoder that was compiled with `adapters`

        Raises ArgumentError; while pieces are made, also what a call of the decoder raises.
        """
        return self.answer(
            self.prompt(prompt, template or {}),
            max_new_tokens=max_new_tokens,
            stop=stop,
            sampler=_sampler(sampler, sampling),
            mask=mask,
            logprobs=logprobs,
            max_seconds=max_seconds,
            cancel=cancel,
            adapter=adapter,
        )

    def answer(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        chat: Chat | None = None,
        **submitted: Any,
    ) -> Answer:
        """The answer to a prompt whose tokens are there, or that the session of a chat has. Raises ArgumentError."""
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(each, str) and each for each in stops):
            raise ArgumentError(f"generate: stop: expected texts, got {told(stop)}")
        room = self.room(prompt)
        if max_new_tokens is None:
            if room is None:
                raise ArgumentError(
                    "generate: max_new_tokens: the model has no bound of its own; expected a whole number"
                )
            max_new_tokens = room
        elif room is not None and max_new_tokens > room:
            max_new_tokens = room
        submit = partial(self.engine.submit, prompt.ids) if chat is None else chat.session.generate
        text = submit(max_new_tokens=max_new_tokens, stop=self.tokenizer.ends, **submitted)
        pieces = Pieces(self.tokenizer, prompt.ids[-_CONTEXT:], self._marks)
        return Answer(text, pieces, Until(stops), frozenset(self.tokenizer.ends), chat)

    def map(
        self, prompts: Sequence[str], *, max_new_tokens: int | None = None, chat: bool = False, **sampling: Any
    ) -> np.ndarray:
        """The answers to prompts, in their order, as UTF-8, which share the decoder's calls. Where `chat`, a prompt is what a
        user says; `sampling` are a Sampler's fields. Raises ArgumentError, and what a call of the decoder raises."""
        answers: list[Answer] = []
        try:
            for each in prompts:
                prompt = [{"role": "user", "content": each}] if chat else each
                answers.append(self.generate(prompt, max_new_tokens=max_new_tokens, **sampling))
            return np.array([answer.text.encode() for answer in answers], np.bytes_)
        finally:
            for answer in answers:
                answer.cancel()

    def session(
        self,
        messages: Sequence[Mapping[str, Any]] = (),
        *,
        sampler: Sampler | None = None,
        template: Mapping[str, Any] | None = None,
        adapter: Adapter | None = None,
        **sampling: Any,
    ) -> Chat:
        """A chat that goes on, can be forked, and saved: `chat.ask(text)`. `messages` begin it; `sampler` or its fields,
        `template` and `adapter` are as for `generate`. Raises ArgumentError."""
        session = self.engine.session((), _sampler(sampler, sampling), adapter=adapter)
        made = Chat(self, session, dict(template or {}))
        made.append(*messages)
        return made

    def resume(self, source: Source, *, adapter: Adapter | None = None) -> Chat:
        """The chat in a file that `Chat.save` wrote, or in its bytes, to go on with identical tokens; `adapter` is the one that
        it was saved with. Raises FormatError (ChecksumError where a byte is another one), FileError, and ArgumentError where it
        is of another model or adapter."""
        saved, name = sessions.load(source), source_name(source)
        session = resumed(saved, self.engine, name, adapter)
        try:
            found = json.loads(saved.chat or b"0")
            messages, template = found["messages"], found["template"]
            if not isinstance(messages, list) or not isinstance(template, dict):
                raise TypeError
            made = Chat(self, session, template)
            made.append(*messages)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise FormatError(
                f"{name} holds no chat; treadle.Engine.resume goes on with its tokens", section="session"
            ) from None
        return made

    def prompt(self, prompt: Any, template: Mapping[str, Any] = MappingProxyType({})) -> Prompt:
        """The tokens of a text, of token numbers or of a chat. Raises ArgumentError, BudgetExceededError, MissingPackageError."""
        is_chat = isinstance(prompt, (list, tuple)) and bool(prompt) and isinstance(prompt[0], Mapping)
        text = self._rendered([_message(each) for each in prompt], template) if is_chat else ""
        (found,) = self.tokenizer.tokens([text if is_chat else prompt], add_special_tokens=not is_chat)
        ids = tuple(found.ids.tolist())
        if not ids:
            raise ArgumentError("generate: the prompt has no tokens")
        if self.room(Prompt(ids)) == 0:
            raise ArgumentError(
                f"generate: the prompt has {len(ids)} tokens; the model takes {self.text.max_tokens} with the answer"
            )
        return Prompt(ids, text)

    def room(self, prompt: Prompt) -> int | None:
        """How many tokens an answer may have; None: any number."""
        return max(0, self.text.max_tokens - len(prompt.ids)) if self.text.max_tokens else None

    @cached_property
    def thinks(self) -> bool:
        """Whether replies may begin with thoughts."""
        return THINK in self.text.template or self.tokenizer.token(THINK) is not None

    def reply(self, prompt: Prompt, tools: Sequence[str] = ()) -> Reply:
        """What reads an answer to a chat in which these tools may be called."""
        return Reply(
            self.form if tools else None, tools, thinks=self.thinks, is_thinking=prompt.text.rstrip().endswith(THINK)
        )


def _sampler(sampler: Sampler | None, fields: Mapping[str, Any]) -> Sampler:
    if sampler is None:
        return Sampler(**{"temperature": float(bool(fields)), **fields})
    if fields:
        raise ArgumentError(f"generate: sampler: expected it alone; {next(iter(fields))} is a Sampler's own")
    return sampler


@public_class
class Chat(Suggesting):
    """A chat: its messages, and the session of their tokens. `Generator.session` begins one, `treadle.text.resume` reads one that
    was saved. One thread at a time may use it; chats of a generator run together."""

    def __init__(self, generator: Generator, session: TokenSession, template: Mapping[str, Any]) -> None:
        self._generator, self.session, self._template = generator, session, template
        self._messages: list[dict[str, Any]] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages so far: copies."""
        copied: list[dict[str, Any]] = json.loads(json.dumps(self._messages))
        return copied

    def append(self, *messages: str | Mapping[str, Any]) -> None:
        """Messages with "role" and "content", or texts of the user's. Raises ArgumentError."""
        given = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
        if wrong := [each for each in given if not isinstance(each, Mapping) or not isinstance(each.get("role"), str)]:
            raise ArgumentError(f'chat: expected messages, each with "role" and "content", got {told(wrong[0])}')
        try:
            self._messages += json.loads(json.dumps([dict(each) for each in given]))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"chat: a message is not JSON: {error}") from None

    def generate(self, **options: Any) -> Answer:
        """The answer to the messages so far, which is one of them when it is complete. `options` are those of
        `Generator.generate`, but for samplers and templates. Raises ArgumentError."""
        prompt = self._generator.prompt(self._messages, self._template)
        self.session.rewrite(prompt.ids)
        return self._generator.answer(prompt, chat=self, **options)

    def ask(self, text: str | Mapping[str, Any], **options: Any) -> Answer:
        """The answer to another message. Raises ArgumentError."""
        self.append(text)
        return self.generate(**options)

    def fork(self, sampler: Sampler | None = None) -> Chat:
        """A chat of the same messages, which both go on from: alike, or by another sampler."""
        made = Chat(self._generator, self.session.fork(sampler), self._template)
        made._messages = self.messages
        return made

    def save(self, path: str | os.PathLike) -> Path:
        """Writes the chat: its messages, tokens, sampler, and what the decoder has kept, as `TokenSession.save` does.
        The path of the file. Raises FileError, LimitError."""
        data = json.dumps({"messages": self._messages, "template": self._template}).encode()
        return sessions.save(self.session.saved(data), path)

    def __repr__(self) -> str:
        return f"<Chat: {len(self._messages)} messages, {len(self.session)} tokens>"


def _message(message: Any) -> Any:
    """A message as templates expect it: OpenAI's clients give texts in parts, and arguments of calls as JSON."""
    if not isinstance(message, Mapping):
        return message
    made = dict(message)
    content = made.get("content")
    if content is None:
        made["content"] = ""
    elif isinstance(content, list):
        if wrong := [
            each for each in content if not isinstance(each, Mapping) or not isinstance(each.get("text"), str)
        ]:
            raise ArgumentError(f"generate: a message's content: expected parts of text, got {told(wrong[0])}")
        made["content"] = "".join(each["text"] for each in content)
    if made.get("role") == "developer":
        made["role"] = "system"
    if isinstance(calls := made.get("tool_calls"), list):
        made["tool_calls"] = [_call(each) for each in calls]
    return made


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"] or "{}")}}
    except (ValueError, RecursionError):
        return call  # the template gets the text


class Answer(Iterator[str]):
    """Pieces of text, as they are made. `finish` says afterwards why it ended: "stop", "length", "cancelled" or "deadline"."""

    def __init__(
        self, text: Any, pieces: Pieces, until: Until, stops: frozenset[int], chat: Chat | None = None
    ) -> None:
        self._text, self._pieces, self._until, self._stops, self._chat = text, pieces, until, stops, chat
        self._given = ""
        self.finish: str | None = None
        self.tokens = 0  # made so far, the one that ends it among them

    def pieces(self) -> Iterator[Piece]:
        """A piece for each token that is still to come, and one for the end."""
        while True:
            with deferred():  # a token that is taken is in the answer
                piece = self._piece()
            if piece is None:
                return
            yield piece

    def _piece(self) -> Piece | None:
        """None behind the end. An answer that nobody holds is cancelled with its text."""
        if self.finish is not None:
            return None
        token = None if self._until.rest is not None else next(self._text, None)
        if token is None:
            text = self._until.take(self._pieces.end()) + self._until.end()
            self.finish = "stop" if self._until.rest is not None else self._text.finish
            self._text.cancel()
        else:
            self.tokens += 1
            text = "" if token.id in self._stops else self._until.take(self._pieces.take(token.id))
        self._given += text
        if token is None and self._chat is not None:
            self._chat.append({"role": "assistant", "content": self._given})
        return Piece(text, token)

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> str:
        return next(piece.text for piece in self.pieces() if piece.text)

    def __repr__(self) -> str:
        return f"<Answer of {self.tokens} tokens: {self.finish or 'not complete'}>"

    @property
    def text(self) -> str:
        """The whole answer, once it is made."""
        for _ in self:
            pass
        return self._given

    @property
    def prompt_tokens(self) -> int:
        return self._text.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that the engine had computed before."""
        return self._text.cached_tokens

    def cancel(self) -> None:
        """Ends it, from any thread."""
        self._text.cancel()
