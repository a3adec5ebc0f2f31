"""Tuning: which variant of its kernel each primitive shall have on a target, as text.

A variant is a list of choices, "band=4 tile=6x4", in order of their names. What the names mean, and what may be chosen, only the
kernel templates know (`kernels/variants.py`), who refuse what is not on their lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .messages.errors import FormatError

Tuning = Mapping[str, Mapping[str, str]]  # target key → definition key, hex → variant

SECONDS = 60.0  # that tuning takes, if nobody says how many

_CHOICE = re.compile(r"([a-z_]+)=([0-9A-Za-z_.]+)")


def parse_variant(text: str) -> dict[str, str]:
    """The choices by name; none for an empty text. Raises FormatError for text that is not of the one form."""
    choices = {}
    for word in text.split(" ") if text else []:
        match = _CHOICE.fullmatch(word)
        if match is None:
            raise FormatError(f"not a variant of a kernel: {text[:60]!r}")
        choices[match[1]] = match[2]
    if text != print_variant(choices):
        raise FormatError(f"a variant whose choices are not in order, each once: {text[:60]!r}")
    return choices


def print_variant(choices: Mapping[str, str]) -> str:
    """The text of a variant."""
    return " ".join(f"{name}={choice}" for name, choice in sorted(choices.items()))


def check_variant(text: str) -> str:
    """The text itself. Raises FormatError."""
    parse_variant(text)
    return text
