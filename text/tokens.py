"""Texts to token numbers, by Hugging Face's library: the tokenizer of an executable, which cuts texts at its model's bound.

The library runs in a process of its own (`tokenizer_process.py`), since tokenizers come from anywhere. Texts go to it in pieces;
texts of tokens are made here, of names that were asked for once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, BudgetExceededError, FormatError, MissingPackageError
from ..formats.text_model import GENERATE, TextModel
from .confined import MEMORY, Confined
from .decoders import decoding, joining

SECONDS = 10.0  # for a piece of texts, and another for each _PACE characters
_PACE = 200_000
_MOST_TOKENS = 1 << 21
_MOST_BYTES = 1 << 26  # of an answer
_PIECE = 1024  # texts that the library has at once: it holds some 300 bytes for each token
_CHARACTERS = 1 << 20  # of these, but for one that has more
_THREADS = 1 << 30  # address space of the library's threads
_PARSED = 24  # bytes that a byte of a tokenizer takes
_NAMES = 4096  # tokens whose names are asked for at once


class Tokens(NamedTuple):
    """The tokens of one text, or of a pair. `kinds` says which of a pair's texts each is of."""

    ids: np.ndarray
    kinds: np.ndarray


class Tokenizer:
    """Any thread may use it."""

    def __init__(self, text: TextModel) -> None:
        """Raises MissingPackageError, FormatError."""
        if find_spec("tokenizers") is None:
            raise MissingPackageError("texts need tokenizers: pip install 'treadle[text]'")
        most = text.max_tokens if text.task != GENERATE else 0  # a prompt that is cut is another one
        memory = MEMORY + _THREADS + _PARSED * len(text.tokenizer)
        try:
            first = {"what": "read", "of": [text.tokenizer.decode(), most]}
            self._process = Confined("tokenizer_process.py", json.dumps(first).encode(), memory)
            found = self._process.begin(_MOST_BYTES)
        except UnicodeDecodeError as error:
            found = {"error": str(error)}
        if found is None or "error" in found:
            reason = found["error"][:300] if found else f"it takes more than {memory >> 20} MiB or half a minute"
            raise FormatError(f"the tokenizer of the executable cannot be read: {reason}")
        self._memory = memory
        self.size: int = found["size"]
        self._added: dict[int, str] = {number: content for number, content, _ in found["added"]}
        self.special: dict[int, str] = {number: content for number, content, is_special in found["added"] if is_special}
        self._special_names = frozenset(self.special.values())
        self._decoder: dict[str, Any] | None = found["decoder"] and json.loads(found["decoder"])
        self._names: dict[int, list[str | None]] = {}  # of tokens, by the number of their block
        self._bytes: dict[int, bytes] = {}
        self.max_tokens = text.max_tokens
        self._special = dict(text.tokens)
        self._stops = text.stops

    def _ask(self, what: str, *of: Any, characters: int = 0) -> dict[str, Any]:
        """The process' answer. Raises ArgumentError, BudgetExceededError."""
        seconds = SECONDS + characters / _PACE
        found = self._process.ask({"what": what, "of": of}, seconds, _MOST_BYTES)
        if found is None:
            raise BudgetExceededError(
                f"the tokenizer took more than {seconds:.0f} s, {self._memory >> 20} MiB, or {_MOST_BYTES >> 20} MiB of tokens"
                + (f", for {characters} characters" if characters else ""),
                budget="seconds",
            )
        if "error" in found:
            raise ArgumentError(f"the tokenizer: {found['error'][:300]}")
        return found

    def number(self, name: str) -> int | None:
        """The number of a special token, such as "pad_token"."""
        text = self._special.get(name)
        return None if text is None else self.token(text)

    @cached_property
    def ends(self) -> list[int]:
        """The tokens that end a text."""
        end = self.number("eos_token")
        return sorted({*self._stops} or ({end} if end is not None else set()))

    @cached_property
    def _to_bytes(self) -> Callable[[str], bytes]:
        """What makes bytes of a token's text. Raises ArgumentError."""
        return decoding(self._decoder or {})

    @cached_property
    def _joined(self) -> Callable[[Sequence[str]], str] | None:
        """What makes a text of tokens; None: the process does."""
        return " ".join if self._decoder is None else joining(self._decoder)

    def _name(self, token: int) -> str | None:
        """The text of a token in the vocabulary; None where there is none of this number."""
        block, place = divmod(token, _NAMES)
        if block not in self._names:
            if not 0 <= token < _MOST_TOKENS:
                return self._added.get(token)
            self._names[block] = self._ask("names", block * _NAMES, _NAMES)["names"]
        return self._names[block][place]

    def pieces(self) -> tuple[list[bytes], list[int]]:
        """The bytes of each token within a text, by its number, and the numbers of special ones, whose bytes are their names.
        Raises ArgumentError where a token's text depends on its neighbours."""
        to_bytes = self._to_bytes
        count = max([self._ask("count")["count"], *(number + 1 for number in self._added)])
        if count > _MOST_TOKENS:
            raise ArgumentError(f"the tokenizer has a token of number {count - 1}; expected at most {_MOST_TOKENS - 1}")
        pieces = [to_bytes(self._name(number) or "") for number in range(count)]
        for number, content in self._added.items():
            pieces[number] = content.encode()
        return pieces, sorted(self.special)

    def tokens(self, texts: Sequence[Any], add_special_tokens: bool = True) -> Iterator[Tokens]:
        """Of texts, pairs of them, or lists of token numbers, which stay as they are. Raises ArgumentError and
        BudgetExceededError."""
        start = size = 0
        for end, text in enumerate(texts):
            more = _length(text)
            if end > start and (end - start == _PIECE or size + more > _CHARACTERS):
                yield from self._piece(texts[start:end], start, size, add_special_tokens)
                start, size = end, 0
            size += more
        yield from self._piece(texts[start:], start, size, add_special_tokens)

    def _piece(self, texts: Sequence[Any], start: int, size: int, add_special_tokens: bool) -> Iterator[Tokens]:
        if not all(isinstance(text, str) for text in texts):
            texts = [self._checked(text, number) for number, text in enumerate(texts, start)]
        given = [text for text in texts if not isinstance(text, Tokens)]
        made = self._made(given, size, add_special_tokens) if given else iter(())
        yield from (text if isinstance(text, Tokens) else next(made) for text in texts)

    def _made(self, texts: Sequence[Any], size: int, add_special_tokens: bool) -> Iterator[Tokens]:
        found = self._ask("encode", texts, add_special_tokens, characters=size)
        ids = np.frombuffer(base64.b64decode(found["ids"]), np.uint32).astype(np.int64)
        kinds = np.frombuffer(base64.b64decode(found["kinds"]), np.uint32).astype(np.int64)
        kinds = kinds if len(kinds) else np.zeros(len(ids), np.int64)
        start = 0
        for end in found["ends"]:
            yield Tokens(ids[start:end], kinds[start:end])
            start = end

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token within a text, of a special one its name. A character may have several tokens."""
        if token not in self._bytes:
            self._bytes[token] = self._made_bytes(token)
        return self._bytes[token]

    def _made_bytes(self, token: int) -> bytes:
        if token in self._added:
            return self._added[token].encode()
        try:
            to_bytes = self._to_bytes
        except ArgumentError:  # its text depends on its neighbours
            return self.decode([token], False).encode(errors="replace")
        return to_bytes(self._name(token) or "")

    def text_of(self, token: int) -> str:
        """The same as text, as far as it is one."""
        return self.bytes_of(token).decode(errors="replace")

    def token(self, text: str) -> int | None:
        """The number of a token. None where there is none of this text."""
        number: int | None = self._ask("number", text)["number"]
        return number

    def _checked(self, text: Any, number: int) -> Any:
        if isinstance(text, (str, Tokens)) or _is_pair(text):
            return text
        if not isinstance(text, (list, tuple, np.ndarray)) or not all(
            isinstance(each, (int, np.integer)) and not isinstance(each, bool) for each in text
        ):
            raise ArgumentError(f"text {number}: expected a text or a list of token numbers, got {told(text)}")
        if wrong := [each for each in text if not 0 <= each < self.size]:
            raise ArgumentError(
                f"text {number}: token {str(wrong[0])[:40]} is none of the tokenizer's, 0 … {self.size - 1}"
            )
        ids = np.array(text, np.int64)
        if self.max_tokens and len(ids) > self.max_tokens:
            raise ArgumentError(f"text {number}: {len(ids)} tokens; the model takes at most {self.max_tokens}")
        return Tokens(ids, np.zeros(len(ids), np.int64))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens. Raises ArgumentError, BudgetExceededError."""
        numbers = [int(each) for each in ids]
        if wrong := [each for each in numbers if not 0 <= each < 1 << 32]:
            raise ArgumentError(f"decode: {str(wrong[0])[:40]} is no token's number")
        if self._joined is None:
            return str(self._ask("decode", numbers, skip_special_tokens, characters=len(numbers))["text"])
        skipped = self._special_names if skip_special_tokens else ()
        return self._joined([name for name in map(self._name, numbers) if name is not None and name not in skipped])


def _is_pair(text: Any) -> bool:
    return isinstance(text, tuple) and len(text) == 2 and all(isinstance(each, str) for each in text)


def _length(text: Any) -> int:
    """Characters."""
    return len(text) if isinstance(text, str) else sum(map(len, text)) if _is_pair(text) else 0
