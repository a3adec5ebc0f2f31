"""OpenAI's endpoints for generators, `/v1/completions` and `/v1/chat/completions`: whole answers, and streams of events.

A request has a thread, which waits for the tokens of its answers; the engine's steps make those of all requests
(`decode/engine.py`). What becomes certain goes to the event loop, which sends it. A client that goes away, or does not read, ends
its answers. A model has `max_queue` answers at most; a request that would be more is refused at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from ..formats.starting import Thread
from ..text.generator import Answer, Piece, Prompt
from ..text.replies import Part
from ..vm.budgets import CancelToken
from .completion_requests import CHAT, PLAIN, Asked, asked
from .embeddings import model_name, refusal
from .errors import ClientGoneError, DeadlineError, OverloadedError, UnavailableError, as_serve_error
from .http_body import Receive, gone
from .http_tensors import read_json
from .json_pieces import SHORT
from .model import Model
from .service import Service

_GRACE = 5.0  # seconds behind a deadline in which the engine must have ended the answers
_FEW = 512  # tokens of answers whose JSON takes the event loop some milliseconds
_END = b"data: [DONE]\n\n"


class Completions:
    """The endpoints that generate."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def takes(self, path: str) -> bool:
        """Whether requests of this path are answered here."""
        return path in (CHAT, PLAIN)

    async def answer(
        self, path: str, data: bytes | bytearray, timeout: float | None, receive: Receive
    ) -> bytes | AsyncIterator[bytes]:
        """The JSON that answers a body, or the events of a stream, whose first is certain. Raises ServeError."""
        service, begun = self._service, time.monotonic()
        view = memoryview(data)
        values = read_json(view) if len(view) <= SHORT else await asyncio.to_thread(read_json, view)
        if service.is_draining:
            raise UnavailableError("the server stops")
        name = model_name(values)
        model = service.repository.find(name.partition(":")[0])
        run = _Run(service, model, "chat" if path == CHAT else "completions", begun, receive)
        try:
            await run.begin(asked(path, model, values), timeout)
        except BaseException as error:
            run.close(error)
            raise
        return run.stream() if run.asked.is_streamed else await run.whole()


class _Run:
    """One request: its answers, as the thread at work on them tells."""

    asked: Asked
    _prompts: list[Prompt]
    _answers: list[Answer]

    def __init__(self, service: Service, model: Model, function: str, begun: float, receive: Receive) -> None:
        self._service, self._model, self._function, self._begun = service, model, function, begun
        self._cancel = CancelToken()
        self._events: asyncio.Queue[Any] = asyncio.Queue()  # (number of an answer, piece), None at the end, or an error
        self._loop = asyncio.get_running_loop()
        self._watcher = asyncio.ensure_future(gone(receive))
        self._watcher.add_done_callback(self._client_is_gone)
        self._deadline = begun
        self._first: float | None = None  # time of the first token
        self._is_closed = False

    # ---- in the event loop ----

    async def begin(self, asked: Asked, timeout: float | None) -> None:
        """Takes the answers' seats, and starts the thread; returns when the prompts are understood. Raises ServeError."""
        self.asked = asked
        seconds = self._model.config.max_seconds
        self._deadline = self._begun + (seconds if timeout is None else min(timeout, seconds))
        self._model.seats.take(asked.count)
        try:
            Thread(target=self._work, name="treadle-answers", daemon=True).start()
        except RuntimeError:
            self._model.seats.give(asked.count)
            raise OverloadedError("the system has no thread to make the answer; try again later") from None
        await self._next()

    async def whole(self) -> bytes:
        """The answer's JSON. Raises ServeError."""
        try:
            shape = _SHAPES[self.asked.is_chat](self.asked, self._prompts)
            while (event := await self._next()) is not None:
                number, piece = event
                shape.choices[number].take(piece)
            for choice, answer in zip(shape.choices, self._answers, strict=True):
                choice.end(self._finish(answer))
        except BaseException as error:
            self.close(error)
            raise
        self.close()
        usage = self._usage()
        if usage["completion_tokens"] <= _FEW:
            return shape.printed(usage)
        return await asyncio.to_thread(shape.printed, usage)

    async def stream(self) -> AsyncIterator[bytes]:
        """The events. An error is one."""
        asked = self.asked
        shape = _SHAPES[asked.is_chat](asked, self._prompts)
        try:
            for number in range(asked.count):
                yield shape.events(number, shape.first(number))
            while (event := await self._next()) is not None:
                number, piece = event
                if made := shape.choices[number].take(piece):
                    yield shape.events(number, made)
                if piece.token is None:
                    made = shape.choices[number].end(self._finish(self._answers[number]))
                    yield shape.events(number, made)
            if asked.with_usage:
                yield shape.event([], self._usage())
            self.close()
            yield _END
        except Exception as error:
            self.close(error)
            yield b"data: " + refusal(error)[1] + b"\n\n"
        finally:
            self.close(ClientGoneError("the client went away"))

    async def _next(self) -> Any:
        """What the thread tells next. Raises what it raised, ClientGoneError, DeadlineError."""
        left = self._deadline + _GRACE - time.monotonic()
        try:
            event = await asyncio.wait_for(self._events.get(), max(0.0, left))
        except asyncio.TimeoutError:
            raise DeadlineError("the deadline passed") from None
        if self._watcher.done():  # whatever waits is for nobody
            raise ClientGoneError("the client went away")
        if isinstance(event, BaseException):
            raise event
        return event

    def _client_is_gone(self, watcher: asyncio.Future) -> None:
        if not watcher.cancelled():
            watcher.exception()
            self._cancel.cancel()
            self._events.put_nowait(None)

    def _finish(self, answer: Answer) -> str:
        """Why an answer ended: one that has used up its time is as far as it goes. Raises DeadlineError, ClientGoneError."""
        if answer.finish == "cancelled":
            raise ClientGoneError("the answer was cancelled")
        if answer.finish == "deadline" and not answer.tokens:
            raise DeadlineError("the deadline passed before the first token")
        return "stop" if answer.finish == "stop" else "length"

    def _usage(self) -> dict[str, Any]:
        firsts = self._answers[:: self.asked.n]
        prompts, cached = sum(each.prompt_tokens for each in firsts), sum(each.cached_tokens for each in firsts)
        made = sum(each.tokens for each in self._answers)
        return {
            "prompt_tokens": prompts,
            "completion_tokens": made,
            "total_tokens": prompts + made,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def close(self, error: BaseException | None = None) -> None:
        """The request is over: the first call counts."""
        if self._is_closed:
            return
        self._is_closed = True
        self._watcher.cancel()
        if error is not None:
            self._cancel.cancel()
            error = ClientGoneError("the request was given up") if not isinstance(error, Exception) else error
        code = "OK" if error is None else as_serve_error(error).grpc
        self._service.metrics.answered(self._model.name, self._function, code, time.monotonic() - self._begun)
        if self._first is not None:
            self._service.metrics.spoke(self._model.name, self._first - self._begun)

    # ---- in the thread ----

    def _work(self) -> None:
        asked = self.asked
        try:
            self._prompts, self._answers = asked.begin(max(0.0, self._deadline - time.monotonic()), self._cancel)
            self._tell(None)
            waiting = {number: answer.pieces() for number, answer in enumerate(self._answers)}
            while waiting:  # a token of each, since the steps make one of each
                for number, pieces in list(waiting.items()):
                    piece = next(pieces)
                    self._first = self._first or time.monotonic()
                    if piece.token is None:
                        del waiting[number]
                    elif asked.logprobs is not None:  # the event loop need not ask the tokenizer for their bytes
                        for each in (piece.token.id, *(number for number, _ in piece.token.top)):
                            asked.generator.tokenizer.bytes_of(each)
                    self._tell((number, piece))
            self._tell(None)
        except BaseException as error:
            self._cancel.cancel()
            self._tell(error)
        finally:
            self._model.seats.give(asked.count)

    def _tell(self, event: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


# ---- answers as JSON ----


class _Choice:
    """One answer as it is told: each method gives the changes that an event has."""

    def __init__(self, asked: Asked, prompt: Prompt) -> None:
        self._asked = asked
        self._waiting: list[dict[str, Any]] = []  # logarithms of tokens whose text is not certain yet
        self.text = ""
        self.logprobs: list[dict[str, Any]] = []
        self.finish = ""

    def take(self, piece: Piece) -> list[dict[str, Any]]:
        """A piece of the answer."""
        if self._asked.logprobs is not None and piece.token is not None:
            self._waiting.append(self._entry(piece.token))
        return [self._with_logprobs(each) for each in self._changes(piece.text)]

    def end(self, finish: str) -> list[dict[str, Any]]:
        """The last change."""
        self.finish = finish
        rest = [self._with_logprobs(each) for each in self._rest()]
        return [*rest, {**self._with_logprobs(self._nothing()), "finish_reason": self._reason()}]

    def _with_logprobs(self, change: dict[str, Any]) -> dict[str, Any]:
        entries, self._waiting = self._waiting, []
        self.logprobs += entries
        return {**change, "logprobs": self.printed(entries) if entries else None, "finish_reason": None}

    def _entry(self, token: Any) -> dict[str, Any]:
        """A token with its logarithm, and the likeliest ones."""
        texts = self._asked.generator.tokenizer

        def entry(number: int, logarithm: float) -> dict[str, Any]:
            data = texts.bytes_of(number)
            # JSON has no infinities
            return {"token": data.decode(errors="replace"), "logprob": max(logarithm, -9999.0), "bytes": list(data)}

        top = [entry(number, logarithm) for number, logarithm in token.top]
        return {**entry(token.id, token.logprob), "top_logprobs": top}

    def _changes(self, text: str) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _rest(self) -> list[dict[str, Any]]:
        return []

    def _nothing(self) -> dict[str, Any]:
        raise NotImplementedError

    def _reason(self) -> str:
        return self.finish

    def printed(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Tokens' logarithms, as the endpoint has them."""
        raise NotImplementedError

    def whole(self) -> dict[str, Any]:
        """The answer: of all endpoints, its tokens' logarithms and why it ended."""
        found = self.printed(self.logprobs) if self._asked.logprobs is not None else None
        return {"logprobs": found, "finish_reason": self._reason()}


class _PlainChoice(_Choice):
    def __init__(self, asked: Asked, prompt: Prompt) -> None:
        super().__init__(asked, prompt)
        self.text = prompt.text  # where it is echoed
        self._end = len(self.text)  # of the text whose logarithms were printed

    def _changes(self, text: str) -> list[dict[str, Any]]:
        self.text += text
        return [{"text": text}] if text else []

    def _nothing(self) -> dict[str, Any]:
        return {"text": ""}

    def printed(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        places = []
        for each in entries:
            places.append(self._end)
            self._end += len(each["token"])
        return {
            "tokens": [each["token"] for each in entries],
            "token_logprobs": [each["logprob"] for each in entries],
            # of several tokens of one text, such as parts of characters, the likeliest
            "top_logprobs": [{t["token"]: t["logprob"] for t in reversed(each["top_logprobs"])} for each in entries],
            "text_offset": places,
        }

    def whole(self) -> dict[str, Any]:
        self._end = 0
        return {"text": self.text, **super().whole()}


class _ChatChoice(_Choice):
    def __init__(self, asked: Asked, prompt: Prompt) -> None:
        super().__init__(asked, prompt)
        reply = asked.reply(prompt)
        assert reply is not None
        self._reply = reply
        self._thought = ""
        self._calls: list[dict[str, Any]] = []

    def _changes(self, text: str) -> list[dict[str, Any]]:
        return [self._delta(part) for part in self._reply.take(text)] if text else []

    def _rest(self) -> list[dict[str, Any]]:
        return [self._delta(part) for part in self._reply.end()]

    def _delta(self, part: Part) -> dict[str, Any]:
        if part.call is not None:
            call = {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": part.call.name, "arguments": part.call.arguments},
            }
            self._calls.append(call)
            return {"delta": {"tool_calls": [{"index": len(self._calls) - 1, **call}]}}
        self.text += part.text
        self._thought += part.thought
        return {"delta": {"content": part.text} if part.text else {"reasoning_content": part.thought}}

    def _nothing(self) -> dict[str, Any]:
        return {"delta": {}}

    def _reason(self) -> str:
        return "tool_calls" if self._calls and self.finish == "stop" else self.finish

    def printed(self, entries: list[dict[str, Any]]) -> dict[str, Any] | None:
        return {"content": entries, "refusal": None}

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text, "refusal": None}
        if self._thought:
            message["reasoning_content"] = self._thought
        if self._calls:
            message |= {"content": self.text or None, "tool_calls": self._calls}
        return {"message": message, **super().whole()}


class _Shape:
    """A request's answers in the form of its endpoint."""

    name, streamed, prefix = "text_completion", "text_completion", "cmpl"
    choice: type[_Choice] = _PlainChoice

    def __init__(self, asked: Asked, prompts: list[Prompt]) -> None:
        self.choices: list[_Choice] = [self.choice(asked, prompt) for prompt in prompts for _ in range(asked.n)]
        self._asked = asked
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "object": self.name,
            "created": int(time.time()),
            "model": asked.name,
        }

    def first(self, number: int) -> list[dict[str, Any]]:
        """What comes before an answer."""
        text = self.choices[number].text
        return [{"text": text, "logprobs": None, "finish_reason": None}] if text else []

    def printed(self, usage: Mapping[str, Any]) -> bytes:
        """The answers, complete."""
        choices = [{"index": number, **choice.whole()} for number, choice in enumerate(self.choices)]
        return json.dumps({**self._head, "choices": choices, "usage": usage}).encode()

    def events(self, number: int, changes: list[dict[str, Any]]) -> bytes:
        """The events of an answer's changes."""
        return b"".join(self.event([{"index": number, **each}]) for each in changes)

    def event(self, choices: list[dict[str, Any]], usage: Any = None) -> bytes:
        """An event."""
        told = {**self._head, "object": self.streamed, "choices": choices}
        if self._asked.with_usage:
            told["usage"] = usage
        return b"data: " + json.dumps(told).encode() + b"\n\n"


class _Chat(_Shape):
    name, streamed, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"
    choice = _ChatChoice

    def first(self, number: int) -> list[dict[str, Any]]:
        return [{"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]


_SHAPES: Mapping[bool, Callable[[Asked, list[Prompt]], _Shape]] = {True: _Chat, False: _Shape}
