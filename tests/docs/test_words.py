"""Phrases that a reader of the field would have to translate stay out of code, comments, messages and pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What is not written, and what is written instead. A phrase goes here once it has no hit.
INSTEAD = {
    r"[\w}'\"\])] came(?=[\"';:]|\.\s|\.$)": "expected A, got B",
    r"\bwhat came\b": "what was given, the input, the outcome",
    r"\bso (many|much)\b": "the parameter's name, or this many",
    r"(?<![Tt]here )\b(is|are|was|were) no (number|tensor|name|text|string|type|program|parameter|function|node|element)s?\b": (
        "is not a"
    ),
    r"\bwhat (is|are) no\b": "anything but a, or NaN",
    r"\b(first|second|third) caches?\b": "L1, L2, L3",
    r"\b(asked|asks|ask) for .*\bahead\b": "prefetched",
    r"\b(is|are) to (be|have)\b[^\"]*, (but|got)\b": "must be",
    r"\bneeded, (but|got)\b": "expected A, got B",
    r"\b([Ww]hoever|Who)\b(?! may)": "the caller, the user, the next; or a passive sentence",
    r"\bone behind (the other|another)\b": "one after the other, consecutive",
    r"\b(only a run|a run (can )?tells?)\b": "known only at run time",
    r"\b(past the caches|no cache has room)\b": "non-temporal; larger than the caches",
    r"\bmay come from anywhere\b": "untrusted",
    r"\b[Nn]umbers of (a few|few|so few|4|8|4 or 8) bits\b": "4-bit integers, narrow integers",
    r"\bthat there (is|are)( not)?\b(?! (a|an|no|one|not enough|nothing|something|some|room)\b)": "unknown, missing, existing",
    r"\b(brings?|brought|bringing)\b.*\bnearer\b": "prefetches",
}

# Written by others at present


def texts() -> dict[str, list[str]]:
    """The lines of the repository's modules and pages."""
    found = {}
    for path in [*ROOT.glob("*.*"), *(each for folder in ROOT.glob("[a-z]*/") for each in folder.rglob("*.*"))]:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".md", ".tasm") and not name.startswith(
            ("CHANGELOG", "build/", "tests/corpus/", "tests/docs/test_words.py")
        ):
            found[name] = path.read_text(encoding="utf-8").splitlines()
    return found


@pytest.mark.parametrize("phrase", INSTEAD)
def test_what_is_not_written(phrase: str) -> None:
    pattern = re.compile(phrase)
    hits = [
        f"{name}:{number}: {line.strip()}"
        for name, lines in TEXTS.items()
        for number, line in enumerate(lines, 1)
        if pattern.search(line)
    ]
    assert not hits, "\n".join([f"write instead: {INSTEAD[phrase]}", *hits])


TEXTS = texts()
