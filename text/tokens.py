"""Texts to token numbers, by Hugging Face's library: the tokenizer of an executable, which cuts texts at its model's bound."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from ..formats.messages.calling import told
from ..formats.messages.errors import ArgumentError, FormatError, MissingPackageError
from ..formats.text_model import GENERATE, TextModel
from .growth import growth

_MOST_TOKENS = 1 << 21
_MOST_BYTES = 1 << 28  # that the library may make of the texts that it has at once
_WORD = 1000  # characters of a word that WordPiece takes apart; BERT's has 100
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_PIECE = 1024  # texts that the library has at once: it holds some 300 bytes for each token


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
            self._added = self._tokenizer.get_added_tokens_decoder()
            parts = [
                (each, getattr(self._tokenizer, each)) for each in ("normalizer", "pre_tokenizer", "post_processor")
            ]
            self._growth = max(1, math.prod(growth(*each) for each in parts))
            self._decoded_growth = growth("decoder", self._tokenizer.decoder)
            if getattr(self._tokenizer.model, "max_input_chars_per_word", 0) > _WORD:
                raise FormatError(f"words may have more than {_WORD} characters, of which each piece is looked up")
        self.special = frozenset(number for number, token in self._added.items() if token.special)
        self.max_tokens = text.max_tokens
        self._special = dict(text.tokens)
        self._stops = text.stops

    def number(self, name: str) -> int | None:
        """The number of a special token, such as "pad_token"."""
        text = self._special.get(name)
        return None if text is None else self.token(text)

    @property
    def ends(self) -> list[int]:
        """The tokens that end a text."""
        end = self.number("eos_token")
        return sorted({*self._stops} or ({end} if end is not None else set()))

    @cached_property
    def _to_bytes(self) -> Callable[[str], bytes]:
        """What makes bytes of a token's text. Raises ArgumentError."""
        with _named("the tokenizer", ArgumentError):
            decoder = self._tokenizer.decoder
            return _decoding(json.loads(decoder.__getstate__()) if decoder is not None else {})

    def pieces(self) -> tuple[list[bytes], list[int]]:
        """The bytes of each token within a text, by its number, and the numbers of special ones, whose bytes are their names.
        Raises ArgumentError where a token's text depends on its neighbours."""
        with _named("the tokenizer", ArgumentError):
            numbers = self._tokenizer.get_vocab(with_added_tokens=False)
        added = self._added
        count = max([*numbers.values(), *added], default=-1) + 1
        if count > _MOST_TOKENS:
            raise ArgumentError(f"the tokenizer has a token of number {count - 1}; expected at most {_MOST_TOKENS - 1}")
        to_bytes = self._to_bytes
        pieces = [b""] * count
        for text, number in numbers.items():
            pieces[number] = to_bytes(text)
        for number, token in added.items():
            pieces[number] = token.content.encode()
        return pieces, [number for number, token in added.items() if token.special]

    def tokens(self, texts: Sequence[Any], add_special_tokens: bool = True) -> Iterator[Tokens]:
        """Of texts, pairs of them, or lists of token numbers, which stay as they are. Raises ArgumentError."""
        start = size = 0
        for end, text in enumerate(texts):
            more = sum(map(len, text)) if _is_pair(text) else len(text) if isinstance(text, str) else 0
            if more * self._growth > _MOST_BYTES:
                raise ArgumentError(
                    f"text {end}: {more} characters, of which the tokenizer may make {self._growth} times as many; at most "
                    f"{_MOST_BYTES // self._growth} are taken"
                )
            if end - start == _PIECE or (size + more) * self._growth > _MOST_BYTES:
                yield from self._piece(texts[start:end], start, add_special_tokens)
                start, size = end, 0
            size += more
        yield from self._piece(texts[start:], start, add_special_tokens)

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

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token within a text, of a special one its name. A character may have several tokens."""
        raw = self._tokenizer.id_to_token(token) or ""
        if token in self._added:
            return raw.encode()
        try:
            return self._to_bytes(raw)
        except ArgumentError:  # its text depends on its neighbours
            return self.decode([token], False).encode(errors="replace")

    def text_of(self, token: int) -> str:
        """The same as text, as far as it is one."""
        return self.bytes_of(token).decode(errors="replace")

    @cached_property
    def _longest(self) -> int:
        """Characters of a token."""
        return max(map(len, self._tokenizer.get_vocab()), default=0)

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
        if len(ids) * self._longest * self._decoded_growth > _MOST_BYTES:
            raise ArgumentError(f"decode: {len(ids)} tokens of up to {self._longest} characters are too much")
        with _named("decode", ArgumentError):
            return str(self._tokenizer.decode([int(each) for each in ids], skip_special_tokens=skip_special_tokens))


def _decoding(decoder: Mapping[str, Any]) -> Callable[[str], bytes]:
    """What makes bytes of a token's text, as Hugging Face's decoders do. Raises ArgumentError."""
    steps = decoder.get("decoders", [decoder]) if decoder.get("type") == "Sequence" else [decoder]
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return _of_characters
    if unknown := [kind for kind in kinds if kind not in ("ByteFallback", "Metaspace", "Replace", "Fuse", "Strip")]:
        raise ArgumentError(
            f"the tokenizer's decoder {unknown[0]} makes a token's text of its neighbours; expected ByteLevel, or ByteFallback, "
            "Metaspace and Replace"
        )
    replaced = [(step["replacement"], " ") for step in steps if step["type"] == "Metaspace"]
    for step in steps:
        if step["type"] == "Replace" and "String" in step["pattern"]:
            replaced.append((step["pattern"]["String"], step["content"]))

    def to_bytes(text: str) -> bytes:
        if "ByteFallback" in kinds and (byte := _BYTE.fullmatch(text)):
            return bytes.fromhex(byte[1])
        for old, new in replaced:
            text = text.replace(old, new)
        return text.encode()

    return to_bytes


@cache
def _bytes_of_characters() -> dict[int, int]:
    """The byte of each character in GPT-2's alphabet: printable ones of Latin-1 stand for themselves, others from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: byte for byte in plain} | {256 + at: byte for at, byte in enumerate(others)}


def _of_characters(text: str) -> bytes:
    table = _bytes_of_characters()
    try:
        return bytes(table[ord(each)] for each in text)
    except KeyError:  # which the decoder takes for text
        return text.encode()


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
