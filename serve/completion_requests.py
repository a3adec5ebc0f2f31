"""What clients of OpenAI's ask a generator for, checked: `/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..decode.sampling import Sampler
from ..formats.messages.errors import MissingPackageError
from ..text.generator import Answer, Generator, Prompt
from ..text.replies import BARE, Reply
from ..vm.budgets import CancelToken
from .embeddings import given_texts, model_name, texts_of
from .errors import BadRequestError, NotFoundError, NotImplementedHereError
from .model import Model

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
MAX_ANSWERS = 32  # of a request: its prompts, times `n`
MAX_LOGPROBS = 20  # tokens, beside the one that was taken
MAX_ENTRIES = 1 << 17  # of these, in all answers of a request
MAX_STOPS = 16
MAX_BIAS = 1024  # tokens
MAX_TOOLS = 128
_PLAIN_TOKENS = 16  # where a request does not say how many, as OpenAI has it


@dataclass(frozen=True)
class Asked:
    """A request that fits its model."""

    model: Model
    generator: Generator
    is_chat: bool
    prompts: tuple[Any, ...]  # texts, lists of token numbers, or chats
    n: int
    max_tokens: int
    sampler: Sampler
    stop: tuple[str, ...]
    logprobs: int | None  # of how many of the likeliest tokens; None: of none at all
    is_streamed: bool
    with_usage: bool  # in a stream
    echoes: bool
    template: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    schema: Any = None  # of JSON, which the answer must be
    calls_alone: bool = False  # the answer is a call of a tool
    name: str = ""  # of the model, as the client says it
    adapter: Any = None  # treadle.Adapter

    @property
    def count(self) -> int:
        """Of answers."""
        return len(self.prompts) * self.n

    def begin(self, seconds: float, cancel: CancelToken) -> tuple[list[Prompt], list[Answer]]:
        """The prompts' tokens, and the answers, `n` of each prompt. Raises ServeError, TreadleError."""
        make_mask = self._mask()
        prompts = [self.generator.prompt(prompt, self.template) for prompt in self.prompts]
        if self.echoes:
            prompts = [each._replace(text=self.generator.decode(each.ids)) for each in prompts]
        answers: list[Answer] = []
        seed = self.sampler.seed
        try:
            for prompt in prompts:
                for number in range(self.n):
                    # the first answer is that of n = 1
                    sampler = self.sampler if seed is None or not number else replace(self.sampler, seed=seed + number)
                    answers.append(
                        self.generator.answer(
                            prompt,
                            max_new_tokens=self.max_tokens,
                            stop=self.stop,
                            sampler=sampler,
                            mask=make_mask(),
                            logprobs=self.logprobs,
                            max_seconds=seconds,
                            cancel=cancel,
                            adapter=self.adapter,
                        )
                    )
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        return prompts, answers

    def reply(self, prompt: Prompt) -> Reply | None:
        """Reads an answer to a chat; None for a plain completion."""
        if not self.is_chat:
            return None
        if self.schema is not None:  # the answer has no room for thoughts
            return Reply(BARE if self.calls_alone else None, self.tools)
        return self.generator.reply(prompt, self.tools)

    def _mask(self) -> Callable[[], Any]:
        """What makes the constraint of an answer. Raises NotImplementedHereError, ArgumentError."""
        if self.schema is None:
            return lambda: None
        try:
            from ..text.grammar import json_schema

            return lambda: json_schema(self.generator.tokenizer, self.schema)
        except (ImportError, MissingPackageError) as error:
            raise NotImplementedHereError(f"response_format, tool_choice: {error}") from None


def asked(path: str, model: Model, values: Mapping[str, Any]) -> Asked:
    """Raises ServeError."""
    generator: Generator = texts_of(model, Generator, "completions")
    is_chat = path == CHAT
    prompts = (_messages(values),) if is_chat else tuple(given_texts(values, "prompt"))
    n, best = _whole(values, "n", 1, MAX_ANSWERS) or 1, _whole(values, "best_of", 1, MAX_ANSWERS)
    if best is not None and best != n:
        raise BadRequestError(f"best_of: {best}; expected n, {n}: all answers are given")
    if len(prompts) * n > min(MAX_ANSWERS, model.config.max_queue):
        raise BadRequestError(f"{len(prompts)} prompts, n = {n}: at most {MAX_ANSWERS} answers are made at once")
    if values.get("suffix"):
        raise BadRequestError("suffix: answers are put behind prompts, not between texts")
    names = ("max_completion_tokens", "max_tokens") if is_chat else ("max_tokens",)
    wanted = next((each for name in names if (each := _whole(values, name, 1, 1 << 40)) is not None), None)
    most = model.config.max_new_tokens
    max_tokens = min(most, wanted or (most if is_chat else _PLAIN_TOKENS))
    options = _object(values, "stream_options")
    logprobs = _logprobs(values, is_chat)
    echoes = not is_chat and values.get("echo") is True
    if logprobs is not None and len(prompts) * n * max_tokens * (1 + logprobs) > MAX_ENTRIES:
        raise BadRequestError(f"logprobs: at most {MAX_ENTRIES} are given at once: ask for fewer, or for fewer tokens")
    if echoes and logprobs is not None:
        raise BadRequestError("echo: the tokens of prompts have no logprobs here; ask for one of the two")
    tools, calls_alone = _tools(values, generator) if is_chat else ([], False)
    template = dict(_object(values, "chat_template_kwargs")) if is_chat else {}
    schema = _schema(values) if is_chat else None
    if tools:
        template["tools"] = tools
    if calls_alone:
        schema = _schema_of([each["function"] for each in tools])
    return Asked(
        model,
        generator,
        is_chat,
        prompts,
        n,
        max_tokens,
        _sampler(values, generator.tokenizer.size),
        _stops(values),
        logprobs,
        values.get("stream") is True,
        options.get("include_usage") is True,
        echoes,
        template,
        tuple(each["function"]["name"] for each in tools),
        schema,
        calls_alone,
        model_name(values),
        _adapter(model, model_name(values)),
    )


# ---- parts of requests ----


def _adapter(model: Model, name: str) -> Any:
    """What a name of a model has behind the colon. Raises NotFoundError."""
    _, colon, wanted = name.partition(":")
    if colon and wanted not in model.adapters:
        raise NotFoundError(
            f"model {model.name!r} has no adapter {wanted!r}; it has {', '.join(model.adapters) or 'none'}"
        )
    return model.adapters.get(wanted)


def _messages(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = values.get("messages")
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(each, dict) and isinstance(each.get("role"), str) for each in found)
    ):
        raise BadRequestError('messages: expected a list of objects with a "role" and a "content"')
    return found


def _sampler(values: Mapping[str, Any], size: int) -> Sampler:
    top_k = _whole(values, "top_k", -1, 1 << 31) or 0
    seed = _whole(values, "seed", -(1 << 63), (1 << 64) - 1)
    given: dict[str, Any] = {
        "temperature": _number(values, "temperature", 0, 100),
        "top_p": _number(values, "top_p", 0, 1),
        "min_p": _number(values, "min_p", 0, 1),
        "presence_penalty": _number(values, "presence_penalty", -2, 2),
        "frequency_penalty": _number(values, "frequency_penalty", -2, 2),
        "repetition_penalty": _number(values, "repetition_penalty", 0.01, 100),
        "seed": None if seed is None else seed % (1 << 63),
    }
    if given["top_p"] == 0:  # the likeliest alone
        given["top_p"] = 1e-9
    bias = {}
    for text, value in _object(values, "logit_bias").items():
        if not (text.isdecimal() and len(text) < 10 and int(text) < size) or not _is_number(value, -100, 100):
            raise BadRequestError(
                f"logit_bias: {text[:20]!r}: expected numbers from -100 to 100 by tokens, 0 … {size - 1}"
            )
        bias[int(text)] = float(value)
    if len(bias) > MAX_BIAS:
        raise BadRequestError(f"logit_bias: {len(bias)} tokens; at most {MAX_BIAS} are taken")
    return Sampler(
        top_k=max(0, top_k), logit_bias=bias, **{name: each for name, each in given.items() if each is not None}
    )


def _stops(values: Mapping[str, Any]) -> tuple[str, ...]:
    given = values.get("stop")
    found = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not all(isinstance(each, str) and 0 < len(each) <= 1000 for each in found):
        raise BadRequestError("stop: expected a text or a list of texts, of 1 to 1000 characters")
    if len(found) > MAX_STOPS:
        raise BadRequestError(f"stop: {len(found)} texts; at most {MAX_STOPS} are taken")
    return tuple(found)


def _logprobs(values: Mapping[str, Any], is_chat: bool) -> int | None:
    if not is_chat:
        return _whole(values, "logprobs", 0, MAX_LOGPROBS)
    if values.get("logprobs") is not True:
        return None
    return _whole(values, "top_logprobs", 0, MAX_LOGPROBS) or 0


def _tools(values: Mapping[str, Any], generator: Generator) -> tuple[list[Any], bool]:
    """The tools that may be called, and whether one must be. Raises BadRequestError."""
    found, choice = values.get("tools") or [], values.get("tool_choice")
    if not isinstance(found, list) or len(found) > MAX_TOOLS:
        raise BadRequestError(f"tools: expected a list of at most {MAX_TOOLS} functions")
    for each in found:
        function = each.get("function") if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequestError('tools: expected {"type": "function", "function": {"name": …}}')
    if choice == "none" or not found:
        return [], False
    if generator.form is None:
        raise BadRequestError("tools: the model's chat template takes none")
    if choice in (None, "auto"):
        return found, False
    if choice == "required":
        return found, True
    name = _object(choice, "function").get("name") if isinstance(choice, dict) else None
    chosen = [each for each in found if each["function"]["name"] == name]
    if not chosen:
        raise BadRequestError(
            'tool_choice: expected "auto", "none", "required", or a function that is one of the tools'
        )
    return chosen, True


def _schema_of(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a call of one of them. What a schema refers to is at the root. Raises BadRequestError."""
    shared: dict[str, dict[str, Any]] = {}
    calls = []
    for function in functions:
        parameters = dict(_object(function, "parameters")) or {"type": "object"}
        for name in ("$defs", "definitions"):
            for key, each in _object(parameters, name).items():
                if shared.setdefault(name, {}).setdefault(key, each) != each:
                    raise BadRequestError(
                        f"tools: several have {name} of the name {key[:40]!r}: choose one of the tools"
                    )
            parameters.pop(name, None)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {"anyOf": calls, **shared, "x-guidance": {"whitespace_flexible": False}}


def _schema(values: Mapping[str, Any]) -> Any:
    """That of the response's format; None of any text. Raises BadRequestError."""
    found = _object(values, "response_format")
    kind = found.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise BadRequestError(f"response_format: expected text, json_object or json_schema, got {str(kind)[:40]!r}")
    schema = _object(found, "json_schema").get("schema", {})
    if not isinstance(schema, (dict, bool)):
        raise BadRequestError("response_format: json_schema: expected an object with a schema")
    return schema


def _object(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object, an empty one where there is none. Raises BadRequestError."""
    found = values.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadRequestError(f"{name}: expected an object")
    return found


def _whole(values: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    found = values.get(name)
    if found is None:
        return None
    if type(found) is not int or not least <= found <= most:
        raise BadRequestError(f"{name}: expected an integer from {least} to {most}, got {str(found)[:40]}")
    return found


def _number(values: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    found = values.get(name)
    if found is None:
        return None
    if not _is_number(found, least, most):
        raise BadRequestError(f"{name}: expected a number from {least} to {most}, got {str(found)[:40]}")
    return float(found)


def _is_number(value: Any, least: float, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
