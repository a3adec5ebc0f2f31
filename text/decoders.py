"""Texts of tokens, as the decoders of Hugging Face's library make them, where these are plain: those of decoder models.

An answer asks for the text of each token: plain decoders are computed here, others in the tokenizer's process (`tokens.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from ..formats.messages.errors import ArgumentError

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_GROWTH = 16  # times as long as its tokens a text may be; of longer ones the process' memory is the bound
_OF_BYTES = ("ByteLevel", "ByteFallback", "Metaspace", "Replace", "Fuse", "Strip")
Texts = Sequence[str]
Step = Callable[[Texts], Texts]


def joining(decoder: Mapping[str, Any]) -> Callable[[Texts], str] | None:
    """What makes a text of tokens; None for a decoder that is not plain."""
    steps = _steps(decoder)
    made = [_PLAIN[step["type"]](step) if step.get("type") in _PLAIN else None for step in steps]
    if not all(made) or math.prod(map(_growth, steps)) > _GROWTH:
        return None

    def text_of(tokens: Texts) -> str:
        for step in made:
            tokens = step(tokens)  # type: ignore[misc]
        return "".join(tokens)

    return text_of


def decoding(decoder: Mapping[str, Any]) -> Callable[[str], bytes]:
    """What makes bytes of a token's text. Raises ArgumentError where they depend on its neighbours."""
    steps = _steps(decoder)
    kinds = [step.get("type") for step in steps]
    if "ByteLevel" in kinds:
        return _of_characters
    if unknown := [kind for kind in kinds if kind not in _OF_BYTES]:
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


def _steps(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]


def _growth(step: Mapping[str, Any]) -> float:
    """The characters that a step makes of one."""
    pattern = step["pattern"].get("String", "") if step["type"] == "Replace" else ""
    return max(1.0, len(step["content"]) / len(pattern)) if pattern else 1.0


def _replace(step: Mapping[str, Any]) -> Step | None:
    old, new = step["pattern"].get("String"), step["content"]  # an expression may backtrack
    return (lambda tokens: [each.replace(old, new) for each in tokens]) if old else None


def _strip(step: Mapping[str, Any]) -> Step | None:
    content, most = step["content"], step["start"]

    def stripped(text: str) -> str:
        return text[min(most, len(text) - len(text.lstrip(content))) :]

    return (lambda tokens: list(map(stripped, tokens))) if not step["stop"] else None


def _metaspace(step: Mapping[str, Any]) -> Step:
    mark, first = step["replacement"], " " if step["prepend_scheme"] == "never" else ""
    return lambda tokens: [each.replace(mark, " " if at else first) for at, each in enumerate(tokens)]


def _of_bytes(tokens: Texts) -> Texts:
    """Of runs of bytes the characters, of a run that is none a mark for each byte."""
    made: list[str] = []
    for is_run, run in groupby(tokens, lambda each: _BYTE.fullmatch(each) is not None):
        texts = list(run)
        if is_run:
            try:
                texts = [bytes(int(each[3:5], 16) for each in texts).decode()]
            except UnicodeDecodeError:
                texts = ["�"] * len(texts)
        made += texts
    return made


_PLAIN: dict[str, Callable[[Mapping[str, Any]], Step | None]] = {
    "ByteLevel": lambda step: lambda tokens: [b"".join(map(_of_characters, tokens)).decode(errors="replace")],
    "ByteFallback": lambda step: _of_bytes,
    "Fuse": lambda step: lambda tokens: ["".join(tokens)],
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Strip": _strip,
}


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
