"""Constraints of what a decoder writes, by JSON schemas, regular expressions and grammars: `treadle.text.grammar`.

    mask = treadle.text.grammar.json_schema(generator, {"type": "object", …})
    engine.submit(prompt, mask=mask, …)

llguidance says which tokens may come next, in a process of its own (`grammar_process.py`): grammars come from anywhere, and some
exhaust a stack or a memory. That process is a cache: a text is its grammar and its tokens, by which another process goes on.
"""

from __future__ import annotations

import base64
import itertools
import json
import weakref
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..formats.messages.calling import Suggesting, public, told
from ..formats.messages.errors import ArgumentError, BudgetExceededError, MissingPackageError
from .confined import MEMORY, Confined
from .models import Texts
from .tokens import Tokenizer

SECONDS = 5.0  # for one step of a text, or all of them after another grammar has ended the process
MOST_CHARACTERS = 1 << 18  # of a grammar
_REFUSED = 1024  # grammars that took too much, which are not tried again
_WHITESPACE = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}"}  # without a bound small models go on with spaces


@public
def json_schema(tokenizer: Any, schema: Mapping[str, Any] | str | bool) -> Constraint:
    """A constraint of one text: JSON by a schema, as an object or as JSON. `tokenizer` is what `treadle.text.load` gives.

    Properties come in the order of the schema. Its key "x-guidance" has llguidance's options, such as
    {"whitespace_flexible": false} or {"coerce_one_of": true}. Raises ArgumentError for what is not a schema, or has what
    llguidance does not know, BudgetExceededError for one that takes too much, MissingPackageError.
    """
    try:
        given = json.loads(schema) if isinstance(schema, str) else schema
        given = {} if given is True else given
        if not isinstance(given, Mapping):
            raise ArgumentError(f"json_schema: expected an object, got {told(given)}")
        text = json.dumps({"x-guidance": _WHITESPACE, **given}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"json_schema: the schema is not JSON: {error}") from None
    return _constraint("json_schema", tokenizer, {"lark": f"start: %json {text}"})


@public
def regex(tokenizer: Any, pattern: str) -> Constraint:
    """A constraint of one text, which matches the whole of a regular expression of Rust's syntax: without references and
    looking around. Raises ArgumentError, BudgetExceededError, MissingPackageError."""
    return _constraint("regex", tokenizer, {"regex": pattern})


@public
def lark(tokenizer: Any, grammar: str) -> Constraint:
    """A constraint of one text by a context-free grammar in Lark's syntax, as llguidance extends it: its rule `start`,
    `%json {…}` for schemas, `<|name|>` for special tokens. Raises ArgumentError, BudgetExceededError, MissingPackageError."""
    return _constraint("lark", tokenizer, {"lark": grammar})


class Constraint(Suggesting):
    """Which tokens may come next in one text: a `mask` of `Engine.submit`."""

    def __init__(self, process: _Process, what: str, grammar: Mapping[str, str]) -> None:
        self._process, self._what, self._grammar = process, what, grammar
        self._number, self._digest = next(process.numbers), sha256(json.dumps(grammar).encode()).digest()
        self._tokens: list[int] = []
        self._sent = 0  # of the tokens
        self._mask = self._asked({"grammar": grammar, "tokens": []})

    def allowed(self) -> np.ndarray:
        """bool [vocabulary]: the tokens that may come next. The model's ends of texts are among them where the text may end.
        Raises ArgumentError where the last token was none of them, BudgetExceededError."""
        if self._sent < len(self._tokens):
            self._mask = self._asked({"tokens": self._tokens[self._sent :]})
            self._sent = len(self._tokens)
        return self._mask

    def take(self, token: int) -> None:
        """The next token."""
        self._tokens.append(int(token))

    def _asked(self, request: Mapping[str, Any]) -> np.ndarray:
        answer = self._process.step({"text": self._number, **request}, self._digest)
        if answer is None:
            bound = f"{SECONDS} s or {MEMORY >> 20} MiB"
            raise BudgetExceededError(f"{self._what}: a step took more than {bound}", budget="seconds")
        if "unknown" in answer:
            return self._asked({"grammar": self._grammar, "tokens": self._tokens})
        if "error" in answer:
            raise ArgumentError(f"{self._what}: {answer['error']}")
        bits = np.frombuffer(base64.b64decode(answer["mask"]), np.uint8)
        return np.unpackbits(bits, count=self._process.size, bitorder="little").view(bool)


class _Process(Confined):
    """The process of a tokenizer's constraints."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        pieces, special = tokenizer.pieces()
        ends = [each for each in tokenizer.ends if each < len(pieces)]
        if not ends:
            raise ArgumentError(
                "grammar: no token ends a text: expected eos_token_id in the model's generation_config.json, or eos_token in its "
                "tokenizer_config.json"
            )
        vocabulary = {"vocabulary": [each.decode("latin-1") for each in pieces], "special": special, "ends": ends}
        super().__init__("grammar_process.py", json.dumps(vocabulary).encode())
        self.size = len(pieces)
        self.numbers = itertools.count()
        self._refused: dict[bytes, None] = {}

    def step(self, request: Mapping[str, Any], digest: bytes) -> dict[str, Any] | None:
        """The answer; None for a grammar that takes too much."""
        answer = None if digest in self._refused else self.ask(request, SECONDS, 4096 + self.size)
        if answer is None and len(self._refused) < _REFUSED:
            self._refused[digest] = None
        return answer


_processes: weakref.WeakKeyDictionary[Tokenizer, _Process] = weakref.WeakKeyDictionary()


def _constraint(what: str, tokenizer: Any, grammar: Mapping[str, str]) -> Constraint:
    (text,) = grammar.values()
    if not isinstance(text, str):
        raise ArgumentError(f"{what}: expected a text, got {told(text)}")
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError(f"{what}: {len(text)} characters; expected at most {MOST_CHARACTERS}")
    if find_spec("llguidance") is None:
        raise MissingPackageError("constraints need llguidance: pip install 'treadle[grammar]'")
    given = tokenizer.tokenizer if isinstance(tokenizer, Texts) else tokenizer
    if not isinstance(given, Tokenizer):
        raise ArgumentError(f"{what}: tokenizer: expected what treadle.text.load gives, got {told(tokenizer)}")
    process = _processes.get(given)
    if process is None:
        process = _processes.setdefault(given, _Process(given))
    return Constraint(process, what, grammar)
