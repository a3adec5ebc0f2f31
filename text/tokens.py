"""Texts to token numbers, by Hugging Face's library: the tokenizer of an executable, which cuts texts at its model's bound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, FormatError, MissingPackageError
from ..formats.text_model import GENERATE, TextModel

_SPACE = "▁"  # a space before a word, which decoders leave out where a text begins
_PIECE = 1024  # texts that the library has at once: it holds some 300 bytes for each token

# GPT-2's characters of bytes, by which tokenizers of bytes write their tokens
_PRINTED = (*range(33, 127), *range(161, 173), *range(174, 256))
_BYTES = {chr(each): each for each in _PRINTED}
_BYTES |= {chr(256 + place): each for place, each in enumerate(each for each in range(256) if each not in _PRINTED)}


class Tokens(NamedTuple):
    """The tokens of one text, or of a pair. `kinds` says which of a pair's texts each is of."""

    ids: np.ndarray
    kinds: np.ndarray


class Tokenizer:
    """Any thread may use it."""

    def __init__(self, text: TextModel) -> None:
        """Raises MissingPackageError, FormatError."""
        try:
            import tokenizers
        except ModuleNotFoundError:
            raise MissingPackageError("texts need tokenizers: pip install 'treadle[text]'") from None
        with _named("the tokenizer of the executable cannot be read", FormatError):
            self._tokenizer = tokenizers.Tokenizer.from_buffer(text.tokenizer)
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
            if text.max_tokens and text.task != GENERATE:  # a prompt that is cut is another one
                self._tokenizer.enable_truncation(text.max_tokens)
            self.size = self._tokenizer.get_vocab_size()
            added = self._tokenizer.get_added_tokens_decoder()
        self.special = frozenset(number for number, token in added.items() if token.special)
        self.max_tokens = text.max_tokens
        self._special = dict(text.tokens)

    def number(self, name: str) -> int | None:
        """The number of a special token, such as "pad_token"."""
        text = self._special.get(name)
        return None if text is None else self.token(text)

    def tokens(self, texts: Sequence[Any], add_special_tokens: bool = True) -> Iterator[Tokens]:
        """Of texts, pairs of them, or lists of token numbers, which stay as they are. Raises ArgumentError."""
        for at in range(0, len(texts), _PIECE):
            yield from self._piece(texts[at : at + _PIECE], at, add_special_tokens)

    def _piece(self, texts: Sequence[Any], start: int, add_special_tokens: bool) -> Iterator[Tokens]:
        if not all(isinstance(text, str) for text in texts):
            texts = [self._checked(text, number) for number, text in enumerate(texts, start)]
        given = [text for text in texts if not isinstance(text, Tokens)]
        with _named("the tokenizer", ArgumentError):
            made = iter(self._tokenizer.encode_batch_fast(given, add_special_tokens=add_special_tokens))
        for text in texts:
            if isinstance(text, Tokens):
                yield text
            else:
                found = next(made)
                yield Tokens(np.array(found.ids, np.int64), np.array(found.type_ids, np.int64))

    def text_of(self, token: int) -> str:
        """The text of one token, special or not, as it stands within others."""
        raw = self._tokenizer.id_to_token(token) or ""
        text = raw if token in self.special else self.decode([token], False)
        return f" {text}" if raw.startswith(_SPACE) and not text.startswith(" ") else text

    def bytes_of(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character."""
        text, raw = self.text_of(token), self._tokenizer.id_to_token(token) or ""
        if "\N{REPLACEMENT CHARACTER}" in text:
            if re.fullmatch("<0x[0-9A-F]{2}>", raw):
                return bytes([int(raw[3:5], 16)])
            if all(each in _BYTES for each in raw):
                return bytes(_BYTES[each] for each in raw)
        return text.encode(errors="replace")

    def token(self, text: str) -> int | None:
        """The number of a token. None where there is none of this text."""
        return self._tokenizer.token_to_id(text)

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
        """The text of tokens. Raises ArgumentError."""
        with _named("decode", ArgumentError):
            return str(self._tokenizer.decode([int(each) for each in ids], skip_special_tokens=skip_special_tokens))


def _is_pair(text: Any) -> bool:
    return isinstance(text, tuple) and len(text) == 2 and all(isinstance(each, str) for each in text)


class _named:
    """Raises errors of the library, panics among them, as ours."""

    def __init__(self, what: str, kind: type[ArgumentError] | type[FormatError]) -> None:
        self._what, self._kind = what, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, _: object) -> None:
        if isinstance(error, Exception) or getattr(kind, "__name__", "") == "PanicException":
            raise self._kind(f"{self._what}: {str(error)[:300]}") from None
